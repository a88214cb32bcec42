//! Room: how many packets an interface holds together.

use crate::limits;
use crate::view::View;
use std::fmt;
use weir_core::packet::Meta;
use weir_core::port::rows_for;
use weir_core::sched::LeafInfo;
use weir_text::{Diagnostic, Severity, Trouble};

/// What a queue counts for whose limit says nothing about packets.
const UNLIMITED: u32 = 4_096;
/// Bytes of a buffer for a frame in live operation.
const FRAME_BYTES: u64 = 2_048;

/// The room of an interface's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Most packets in the port at once.
    pub packets: u32,
    /// What all queues may hold by their limits, and what stands beside them.
    pub wanted: u32,
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = |bytes: u64| (u64::from(self.packets) * bytes).div_ceil(1_000);
        let (rows, frames) = (kilobytes(size_of::<Meta>() as u64), kilobytes(FRAME_BYTES));
        write!(f, "room for {} packets: {rows} kB, and up to {frames} kB of frames live", self.packets)
    }
}

impl View<'_> {
    /// The room that the interface's line asks for, or what its queues may hold.
    ///
    /// # Errors
    /// A diagnostic where the queues may hold more than the line has room for.
    pub(crate) fn room(&self, leaves: &[LeafInfo]) -> Result<Room, Diagnostic> {
        let limit = |leaf: &LeafInfo| if leaf.limit == u32::MAX { UNLIMITED } else { leaf.limit };
        let wanted = rows_for(leaves.iter().map(limit), 0);
        let Some(packets) = self.interface.capacity else {
            let packets = wanted.clamp(limits::USUAL_CAPACITY, limits::AUTOMATIC_CAPACITY);
            return Ok(Room { packets, wanted });
        };
        if wanted > packets {
            let message =
                format!("the queues of `{}` may hold {wanted} packets together", self.interface.name);
            let help = match limits::CAPACITY.contains(&wanted.into()) {
                true => format!(
                    "`capacity {packets}` has not room for them: write `capacity {wanted}`, or smaller `qlimit`s"
                ),
                false => format!("`capacity {packets}` has not room for them: write smaller `qlimit`s"),
            };
            return Err(self.refuse(self.interface.place, message, help));
        }
        Ok(Room { packets, wanted })
    }

    /// What is said where the queues may hold more than there is room for.
    pub fn short_of_room(&self, room: Room) -> Option<Diagnostic> {
        let (name, Room { packets, wanted }) = (&self.interface.name, room);
        let message = format!(
            "the queues of `{name}` may hold {wanted} packets together, and there is room for {packets}"
        );
        let help = "each class keeps a part of the room, and is refused beyond it when others need theirs: write smaller `qlimit`s";
        let trouble = Trouble::new(self.interface.place, message, help);
        (wanted > packets).then(|| self.plan.source.diagnostic(Severity::Warning, trouble))
    }
}

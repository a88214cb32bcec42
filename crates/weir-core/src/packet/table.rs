//! The packet table: every packet of a port as 64 bytes in one array, named by move-only handles.
//!
//! Nothing is allocated per packet and memory is bounded by the capacity given at the start.
//! A handle cannot be copied, so one packet cannot stand in two queues; a handle that is lost
//! leaves its packet live in the table, where the port's ledger and `Port::check` see it.

use crate::units::{Bounded, Instant};
use alloc::vec::Vec;
use core::fmt;

/// "No packet" in the `next` and `prev` of `Meta`.
pub const NIL: u32 = u32::MAX;

/// The name of one live packet of a `PacketTable`. Move-only: whoever holds it owns the packet.
#[must_use = "a packet that is neither queued nor dropped is lost"]
// The number of a row in a word, so that `Next` is returned in two registers, not through memory.
#[derive(PartialEq, Eq)]
pub struct PacketId(u64);

impl PacketId {
    #[inline(always)]
    pub(super) fn of(row: u32) -> Self {
        PacketId(row.into())
    }
    #[inline(always)]
    pub(super) fn row(&self) -> u32 {
        self.0 as u32
    }
    /// The row in the table, for logs and for arrays kept beside the table.
    pub fn index(&self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A place for one handle, or none, in four bytes.
#[derive(Debug)]
pub(crate) struct Slot(u32);

impl Default for Slot {
    fn default() -> Self {
        Slot(NIL)
    }
}

impl Slot {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == NIL
    }
    /// Puts a handle into an empty place.
    pub(crate) fn put(&mut self, id: PacketId) {
        debug_assert!(self.is_empty(), "a handle is put where another is");
        self.0 = id.row();
    }
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<PacketId> {
        if self.is_empty() {
            return None;
        }
        Some(PacketId::of(core::mem::replace(&mut self.0, NIL)))
    }
    /// The row of the packet.
    pub(crate) fn get<'t>(&self, table: &'t PacketTable) -> Option<&'t Meta> {
        table.row_of(self.0)
    }
}

/// The bytes of a packet, as their owner (simulator, engine, replay) names them. Weir's core
/// never follows it: the bytes may be in shared memory, in the kernel, or nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct FrameRef(pub u32);

/// A meter's judgement (RFC 2697, section 1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum Colour {
    /// In profile.
    #[default]
    Green,
    /// Between the profiles.
    Yellow,
    /// Out of profile.
    Red,
}

/// Where a packet is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[repr(u8)]
pub enum PacketState {
    /// The row is free.
    #[default]
    Free,
    /// The port has the handle: just arrived, or just taken from the tree.
    Held,
    /// Handed to the tree of disciplines.
    Queued,
    /// In the device ring or on the wire.
    Ring,
    /// Dropped, waiting for the host to take the frame back.
    Dropped,
}

/// What disciplines know of a packet: one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Meta {
    pub(crate) next: u32,
    pub(crate) prev: u32,
    /// Bytes: the frame as handed to the port, layer-2 header included, without checksum,
    /// preamble or gap.
    pub len: u32,
    /// Index of the leaf class, depth first over the port's tree.
    pub leaf: u32,
    /// When the port, and so its queue, got the packet: sojourn times count from here.
    pub arrival: Instant,
    /// Hash of the 5-tuple.
    pub flow: u32,
    /// Hash of the source address.
    pub src_hash: u32,
    /// Hash of the destination address.
    pub dst_hash: u32,
    /// The owner's name for the bytes.
    pub frame: FrameRef,
    /// Order of arrival at the port, wrapping: what a fall back to FIFO sorts by.
    pub order: u32,
    /// TCP or UDP source port, else 0.
    pub src_port: u16,
    /// TCP or UDP destination port, else 0.
    pub dst_port: u16,
    /// IP protocol.
    pub protocol: u8,
    /// DSCP, 0 to 63; written to the header at egress, see `tos_out`.
    pub dscp: u8,
    /// The two ECN bits (RFC 3168): 0 not ECN-capable, 1 ECT(1), 2 ECT(0), 3 CE. Always 0 where the
    /// port's configuration does not let them mean congestion. A discipline marks a packet that
    /// `ecn_capable` says it may mark by writing 3, and writes nothing else here.
    pub ecn: u8,
    /// The TOS byte (IPv6: traffic class) with which the packet came.
    pub tos_in: u8,
    /// Verdict of the meters.
    pub colour: Colour,
    /// Where the packet is.
    pub state: PacketState,
    /// Why it was dropped, as `DropReason as u8`, if `state` is `Dropped`.
    pub(crate) reason: u8,
    /// It goes, or went, before the tree, as control packets do.
    pub(crate) control: bool,
}

const _: () = assert!(size_of::<Meta>() == 64, "Meta is one cache line");

impl Meta {
    /// A row of `len` bytes that arrived at `arrival`; every other field zero.
    pub const fn new(len: u32, arrival: Instant, frame: FrameRef) -> Self {
        Meta {
            next: NIL,
            prev: NIL,
            len,
            leaf: 0,
            arrival,
            flow: 0,
            src_hash: 0,
            dst_hash: 0,
            frame,
            order: 0,
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            dscp: 0,
            ecn: 0,
            tos_in: 0,
            colour: Colour::Green,
            state: PacketState::Held,
            reason: 0,
            control: false,
        }
    }
    /// True if the sender understands marks (ECT or CE).
    pub fn ecn_capable(&self) -> bool {
        self.ecn != 0
    }
    /// The TOS byte (IPv6: traffic class) with which the packet leaves: its DSCP, and its ECN bits
    /// as they are now, or as they came where they do not mean congestion.
    pub fn tos_out(&self) -> u8 {
        self.dscp << 2 | if self.ecn_capable() { self.ecn & 3 } else { self.tos_in & 3 }
    }
    /// True if it goes, or went, before the tree.
    pub fn is_control(&self) -> bool {
        self.control
    }
    /// The packet as one that goes before the tree, or not.
    pub fn with_control(mut self, control: bool) -> Self {
        self.control = control;
        self
    }
    /// True if the packet was marked "congestion experienced" since it came.
    pub fn is_marked(&self) -> bool {
        self.ecn == 3 && self.tos_in & 3 != 3
    }
}

/// All packets of one port.
pub struct PacketTable {
    rows: Vec<Meta>,
    free: u32,
    /// Rows that are taken: at most all.
    live: u32,
    capacity: u32,
}

impl PacketTable {
    /// A table for at most `capacity` packets, all memory taken now.
    pub fn new(capacity: u32) -> Self {
        let capacity = capacity.min(NIL - 1);
        PacketTable { rows: Vec::with_capacity(capacity as usize), free: NIL, live: 0, capacity }
    }
    /// Takes a row for `meta`; gives `meta` back when the table is full.
    // The error is the argument itself, as large as it is.
    #[allow(clippy::result_large_err)]
    pub fn insert(&mut self, meta: Meta) -> Result<PacketId, Meta> {
        // `NIL` is beyond all rows.
        let index = if let Some(row) = self.rows.get_mut(self.free as usize) {
            let next = row.next;
            *row = meta;
            core::mem::replace(&mut self.free, next)
        } else if self.rows.len() < self.capacity as usize {
            self.rows.push(meta);
            (self.rows.len() - 1) as u32
        } else {
            return Err(meta);
        };
        self.live = self.live.plus(1);
        Ok(PacketId::of(index))
    }
    /// Gives the row back.
    pub fn remove(&mut self, id: PacketId) {
        self.give_back(id).state = PacketState::Free;
    }
    /// The same, and shows the row, whose state is to be set: else it is what it was, until another packet takes it.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, id: PacketId) -> &mut Meta {
        let row = &mut self.rows[id.0 as usize];
        row.next = self.free;
        self.free = id.row();
        self.live = self.live.less(1);
        row
    }
    /// The row of a packet.
    pub fn get(&self, id: &PacketId) -> &Meta {
        &self.rows[id.0 as usize]
    }
    /// The row of a packet, to change.
    pub fn get_mut(&mut self, id: &PacketId) -> &mut Meta {
        &mut self.rows[id.0 as usize]
    }
    /// Packets alive, wherever they are.
    pub fn live(&self) -> u32 {
        self.live
    }
    /// Most packets that can be alive at once.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    pub(super) fn row(&self, index: u32) -> &Meta {
        &self.rows[index as usize]
    }
    /// The row of that number, or none for `NIL`, which is beyond all rows.
    #[inline(always)]
    pub(super) fn row_of(&self, index: u32) -> Option<&Meta> {
        debug_assert!(index == NIL || (index as usize) < self.rows.len(), "there is no row {index}");
        self.rows.get(index as usize)
    }
    pub(super) fn row_mut(&mut self, index: u32) -> &mut Meta {
        &mut self.rows[index as usize]
    }
    /// Every packet that the tree of disciplines should have, in order of arrival, taken out of
    /// the table's own books and not out of the tree: what survives a broken or replaced tree.
    /// The old tree must never be called again. Allocates.
    pub(crate) fn reclaim_queued(&mut self) -> Vec<PacketId> {
        let mut found: Vec<PacketId> = Vec::with_capacity(self.live as usize);
        for (index, row) in self.rows.iter_mut().enumerate() {
            if row.state == PacketState::Queued {
                row.state = PacketState::Held;
                (row.next, row.prev) = (NIL, NIL);
                found.push(PacketId::of(index as u32));
            }
        }
        sort_by_order(&mut found, |id| self.rows[id.index()].order);
        found
    }
    /// Copies of all packets that wait, for the tree or before it, in order of arrival. Allocates.
    pub(crate) fn waiting(&self) -> Vec<Meta> {
        let waits = |row: &&Meta| match row.state {
            PacketState::Queued => true,
            PacketState::Held => row.control,
            _ => false,
        };
        let mut found: Vec<Meta> = Vec::with_capacity(self.live as usize);
        let copy = |row: &Meta| Meta { next: NIL, prev: NIL, ..row.clone() };
        found.extend(self.rows.iter().filter(waits).map(copy));
        sort_by_order(&mut found, |row| row.order);
        found
    }
}

/// Sorts by order of arrival. Live packets span fewer than 2^31 orders, so the wrapping difference to the
/// newest sorts.
fn sort_by_order<T>(found: &mut [T], order: impl Fn(&T) -> u32) {
    let newest = found.iter().map(&order).reduce(|n, o| if o.wrapping_sub(n) < 1 << 31 { o } else { n });
    if let Some(newest) = newest {
        found.sort_unstable_by_key(|row| core::cmp::Reverse(newest.wrapping_sub(order(row))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_bounded_and_reuses_rows() {
        let mut table = PacketTable::new(2);
        let meta = |len| Meta::new(len, Instant::ZERO, FrameRef(len));
        let a = table.insert(meta(1)).unwrap();
        let b = table.insert(meta(2)).unwrap();
        assert_eq!(table.insert(meta(3)).unwrap_err().len, 3);
        let row = a.index();
        table.remove(a);
        let c = table.insert(meta(4)).unwrap();
        assert_eq!((c.index(), table.get(&c).len, table.get(&b).len, table.live()), (row, 4, 2, 2));
    }

    /// A mark and a new code point leave with the packet; bits that mean no congestion here leave
    /// as they came, and so does what no discipline touched.
    #[test]
    fn the_tos_byte_that_leaves() {
        for tos in 0..=255u8 {
            let mut meta = Meta { tos_in: tos, dscp: tos >> 2, ..Meta::new(100, Instant::ZERO, FrameRef(0)) };
            assert_eq!((meta.tos_out(), meta.is_marked()), (tos, false), "ECN bits are not the port's");
            meta.ecn = tos & 3;
            assert_eq!((meta.tos_out(), meta.is_marked()), (tos, false), "ECN bits are the port's");
            if meta.ecn_capable() {
                meta.ecn = 3;
            }
            meta.dscp = 46;
            let ecn = if tos & 3 == 0 { 0 } else { 3 };
            assert_eq!(meta.tos_out(), 46 << 2 | ecn);
            assert_eq!(meta.is_marked(), tos & 3 == 1 || tos & 3 == 2);
        }
    }

    #[test]
    fn reclaims_in_order_across_the_wrap() {
        let mut table = PacketTable::new(4);
        for (order, state) in [
            (1, PacketState::Queued),
            (u32::MAX, PacketState::Queued),
            (0, PacketState::Ring),
            (u32::MAX - 1, PacketState::Queued),
        ] {
            let id = table.insert(Meta::new(order, Instant::ZERO, FrameRef(0))).unwrap();
            (table.get_mut(&id).order, table.get_mut(&id).state) = (order, state);
        }
        let order: Vec<u32> = table.reclaim_queued().iter().map(|id| table.get(id).order).collect();
        assert_eq!(order, [u32::MAX - 1, u32::MAX, 1]);
    }

    /// A row that was given back while its packet was queued is nobody's.
    #[test]
    fn what_was_removed_is_not_reclaimed() {
        let mut table = PacketTable::new(2);
        for order in [1, 2] {
            let id = table.insert(Meta::new(100, Instant::ZERO, FrameRef(order))).unwrap();
            (table.get_mut(&id).order, table.get_mut(&id).state) = (order, PacketState::Queued);
            if order == 1 {
                table.remove(id);
                assert_eq!((table.live(), table.reclaim_queued().len()), (0, 0));
            }
        }
        assert_eq!((table.live(), table.reclaim_queued().len()), (1, 1));
    }
}

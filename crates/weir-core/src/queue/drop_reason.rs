//! Why a packet was dropped. The names are stable: reports, traces and counters carry them.

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum DropReason {
    /// The queue was full and the arriving packet was dropped.
    Tail,
    /// An AQM dropped it before the queue was full.
    Early,
    /// It was queued, and made room for another.
    Pushout,
    /// The queue was full and the oldest packet was dropped; or an AQM dropped at departure.
    Head,
    /// The queue was flushed.
    Flush,
    /// Its class went away and nothing could take it.
    Reconfigure,
    /// It could no longer meet its delay bound.
    Deadline,
    /// A policer found it out of profile.
    Policed,
    /// The packet table was full.
    Nobuf,
    /// The device below the port was down.
    Portdown,
    /// It was longer than the device sends.
    Toolong,
    /// The device below the port had no room left for it.
    Devicefull,
    /// The device below the port refused it for another reason.
    Refused,
    /// The device below the port was deleted.
    Gone,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [DropReason; 14] = [
        DropReason::Tail,
        DropReason::Early,
        DropReason::Pushout,
        DropReason::Head,
        DropReason::Flush,
        DropReason::Reconfigure,
        DropReason::Deadline,
        DropReason::Policed,
        DropReason::Nobuf,
        DropReason::Portdown,
        DropReason::Toolong,
        DropReason::Devicefull,
        DropReason::Refused,
        DropReason::Gone,
    ];

    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Tail => "tail",
            DropReason::Early => "early",
            DropReason::Pushout => "pushout",
            DropReason::Head => "head",
            DropReason::Flush => "flush",
            DropReason::Reconfigure => "reconfigure",
            DropReason::Deadline => "deadline",
            DropReason::Policed => "policed",
            DropReason::Nobuf => "nobuf",
            DropReason::Portdown => "portdown",
            DropReason::Toolong => "toolong",
            DropReason::Devicefull => "devicefull",
            DropReason::Refused => "refused",
            DropReason::Gone => "gone",
        }
    }
    /// The reason with that number (`reason as u8`).
    pub(crate) fn from_u8(n: u8) -> DropReason {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(DropReason::Flush)
    }
}

//! How much a file may ask for, all in one place. Each limit is far above what a person or a program
//! writes, and keeps memory and time of reading, checking and building within what one machine has.

use weir_text::{Diagnostic, Place, Severity, Source, Trouble};

/// Bytes of a configuration file, at most.
pub const MAX_BYTES: usize = 64 << 20;
/// Lines of a file.
const LINES: usize = 1_000_000;
/// Errors of lines, after which reading ends.
pub(crate) const ERRORS: usize = 100;
/// Interfaces of a file.
pub(crate) const INTERFACES: usize = 65_536;
/// Classes of an interface.
pub(crate) const CLASSES: usize = 262_144;
/// Filters of an interface.
pub(crate) const FILTERS: usize = 262_144;
/// Different masks of the filters of an interface: every search may have to look for each.
pub(crate) const MASKS: usize = 4_096;
/// Conditioners of an interface.
pub(crate) const CONDITIONERS: usize = 262_144;

/// The longest name of an edge, in characters.
pub(crate) const MAX_EDGE: usize = 32;
/// The longest name of a lease, in characters.
pub(crate) const MAX_LEASE: usize = 64;

/// Flow queues of all interfaces of a file together, at most; those of one have a limit in weir-core.
pub(crate) const FLOW_QUEUES: u64 = 2 * weir_core::sched::MAX_FLOW_QUEUES;

/// Threads that may run a bridge.
pub(crate) const WORKERS: std::ops::RangeInclusive<usize> = 1..=16;
/// Packets that an interface may be given room for.
pub(crate) const CAPACITY: std::ops::RangeInclusive<i128> = 128..=1 << 20;
/// Packets that every interface has room for unless it is said: 8 MB of frames in live operation.
pub(crate) const USUAL_CAPACITY: u32 = 4_096;
/// Packets that an interface gets room for at most without being asked: 16 MB of table.
pub(crate) const AUTOMATIC_CAPACITY: u32 = 1 << 18;

/// What is said of a text that is too long to be read.
pub(crate) fn of_text(name: &str, text: &str) -> Option<Diagnostic> {
    let said = |message: String, help: String| {
        Some(Source::new(name, "").diagnostic(Severity::Error, Trouble::new(Place::default(), message, help)))
    };
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        return said(message, format!("a configuration has at most {MAX_BYTES}: divide it by interfaces"));
    }
    let lines = text.bytes().filter(|&b| b == b'\n').count();
    if lines > LINES {
        let message = format!("the file has {lines} lines");
        return said(message, format!("a configuration has at most {LINES}: divide it by interfaces"));
    }
    None
}

/// The refusal of one more of `what` where `limit` of them are there.
pub(crate) fn more_than(limit: usize, what: &str, place: Place) -> Trouble {
    let message = format!("more than {limit} {what}");
    Trouble::new(place, message, format!("a file may have {limit}: divide it, or take some away"))
}

/// The refusal of one more of `what` of an interface.
pub(crate) fn more_than_of(limit: usize, what: &str, interface: &str, place: Place) -> Trouble {
    let message = format!("more than {limit} {what} on interface `{interface}`");
    Trouble::new(place, message, format!("an interface may have {limit}: take some away"))
}

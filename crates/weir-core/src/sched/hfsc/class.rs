//! A class: what every packet needs in one line of memory, and beside it what most classes do not have.

use super::curve::{CLOCK, Runtime, Slopes};
use super::options::Curves;
use crate::queue::{Child, Curve};
use crate::units::Instant;
use alloc::string::String;

/// What a leaf class owes.
pub(super) struct Owed {
    pub slopes: Slopes<CLOCK>,
    pub of: Curve,
    pub curve: Runtime<CLOCK>,
    /// Bytes on the wire, served by this criterion.
    pub served: u64,
    /// When the next packet may be served by this criterion, while its class is active.
    pub eligible: Instant,
}

impl Owed {
    /// By `of`, from `now` on, to a class that has had so many bytes by it.
    pub fn new(of: Curve, now: Instant, served: u64) -> Self {
        let slopes = Slopes::of(of);
        let curve = Runtime::new(&slopes, now.as_nanos(), served);
        Owed { slopes, of, curve, served, eligible: Instant::NEVER }
    }
    /// Its class becomes active: what it did not ask for is not owed [HFSC97 equations 4 to 7].
    #[inline(always)]
    pub fn join(&mut self, now: Instant) {
        let eligible = self.curve.restart(&self.slopes, &self.of, now.as_nanos(), self.served);
        self.eligible = Instant::from_nanos(eligible);
    }
    /// Its class, which has been served by this criterion, goes on.
    #[inline(always)]
    pub fn go_on(&mut self) {
        self.eligible = Instant::from_nanos(self.curve.eligible_at(&self.slopes, self.served));
    }
    /// By when a packet of so many bytes that is served next has to be out.
    #[inline(always)]
    pub fn deadline(&self, bytes: u64) -> Instant {
        Instant::from_nanos(self.curve.time_at(&self.slopes, self.served + bytes))
    }
}

/// Where a class with a real-time curve stands.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Eligibility {
    /// Not in the trees.
    #[default]
    Out,
    /// Not yet eligible.
    Waiting,
    /// Eligible.
    Ready,
}

/// A class, as every packet needs it: a cache line with its queue.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct HfscClass {
    /// Its queue; none for a class with children.
    pub queue: Option<Child>,
    /// What the packet that its queue has shown costs on the wire, bytes.
    pub shown: Shown,
    pub sent_packets: u64,
    /// It has packets: it is in the trees.
    pub active: bool,
    /// Its queue is a discipline of its own, and has to be asked again.
    pub stirred: bool,
    pub place: Eligibility,
    /// It has a real-time curve.
    pub owes: bool,
    /// Its queue gave nothing when it was asked last, before the time that its node in `share` has.
    pub late: bool,
}

const _: () = assert!(size_of::<HfscClass>() == 64, "a class is a cache line");

/// Bytes on the wire of a packet that was shown; [`Shown::NOTHING`] where none was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown(pub u64);

impl Shown {
    pub const NOTHING: Shown = Shown(u64::MAX);
}

impl Default for Shown {
    fn default() -> Self {
        Shown::NOTHING
    }
}

/// What a class was configured as.
pub(super) struct Spec {
    pub name: String,
    pub curves: Curves,
    pub depth: u32,
}

//! When does which class wake: the least of many times, each settable at any moment.

use crate::sched::tournament::Tournament;
use crate::units::Instant;

/// A time for each of a fixed number of classes; `Instant::NEVER` for most.
pub(super) struct Wakes(Tournament);

impl Wakes {
    pub fn new(classes: usize) -> Self {
        Wakes(Tournament::new(classes))
    }
    /// The least of all times.
    #[inline]
    pub fn least(&self) -> Instant {
        self.0.least().map_or(Instant::NEVER, Instant::from_nanos)
    }
    /// Sets the time of class `index`.
    #[inline]
    pub fn set(&mut self, index: usize, at: Instant) {
        match at {
            Instant::NEVER => self.0.remove(index as u32),
            at => self.0.set(index as u32, at.as_nanos()),
        }
    }
    /// The same for a class that has none.
    #[inline(always)]
    pub fn insert(&mut self, index: usize, at: Instant) {
        if at != Instant::NEVER {
            self.0.insert(index as u32, at.as_nanos());
        }
    }
    /// The time of class `index`.
    pub fn get(&self, index: usize) -> Instant {
        self.0.get(index as u32).map_or(Instant::NEVER, Instant::from_nanos)
    }
    /// Takes out a class whose time has come, which the time before `NEVER` does not.
    #[inline(always)]
    pub fn take_due(&mut self, now: Instant) -> Option<usize> {
        let (slot, _) = self.0.min_finite().filter(|&(_, at)| at <= now.as_nanos())?;
        self.0.remove(slot);
        Some(slot as usize)
    }
}

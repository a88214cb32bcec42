//! Hearts that several workers share, because they run the same directions.

use super::FailOpen;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::units::Instant;

/// In the place of the time of a worker that is bypassed.
const BYPASSED: u64 = 0;

impl FailOpen {
    /// The same for so many workers, each of which runs a part of both directions. The counts go on with the first.
    pub(super) fn parts(self, count: usize) -> Vec<FailOpen> {
        // Those who have not begun count as alive for one limit.
        let now = weir_sys::now().as_nanos();
        let beats: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(now)).collect();
        let FailOpen { ref kernel, limit, last, bypassed, .. } = self;
        let part = |own: usize| {
            let beats = Some((beats.clone(), own));
            FailOpen { limit, last, bypassed, beats, ..FailOpen::of(kernel.clone()) }
        };
        let others: Vec<FailOpen> = (1..count).map(part).collect();
        std::iter::once(FailOpen { beats: Some((beats, 0)), ..self }).chain(others).collect()
    }

    /// Of the workers that run its directions the longest silent one, when it was alive last; this one is at `now`. None if
    /// one of them is bypassed.
    pub(super) fn oldest(&self, now: Instant) -> Option<Instant> {
        let Some((beats, own)) = &self.beats else { return Some(now) };
        beats[*own].store(now.as_nanos(), Ordering::Relaxed);
        let all = beats.iter().map(|beat| beat.load(Ordering::Relaxed));
        let oldest = all.min().unwrap_or(BYPASSED);
        (oldest != BYPASSED).then(|| Instant::from_nanos(oldest))
    }

    /// Its worker has the kernel carry the traffic: so do the others.
    pub(super) fn is_bypassed(&self) {
        self.beats.iter().for_each(|(beats, own)| beats[*own].store(BYPASSED, Ordering::Relaxed));
    }
}

//! What is due: the timer that wakes the tree, and on an emulated link the end of a packet.
//!
//! Principle: whatever was due before a call happens before it, in order of time.

use super::wire::Wire;
use super::{Event, Port, Timer};
use crate::units::{Bounded, Fine, Instant};

impl Port {
    /// Does what is due before `now`, and at `now` too if `inclusive`; then sets the clock.
    #[inline(always)]
    pub(super) fn run(&mut self, now: Instant, inclusive: bool, host: &mut impl FnMut(Event<'_>)) {
        match &self.wire {
            Wire::Device(_) => self.run_in_order(now, inclusive, host),
            Wire::Bucket(_) | Wire::Open => self.run_at(now, inclusive, host),
        }
    }

    /// On a real wire all that was due happens now, or at the latest time that the bucket allows.
    #[inline(always)]
    pub(super) fn run_at(&mut self, now: Instant, inclusive: bool, host: &mut impl FnMut(Event<'_>)) {
        // A clock that runs backwards stands still here.
        let present = self.clock.tree(now).max(self.cx.now);
        let due = self.timer.due;
        if due > present || (due == present && !inclusive) {
            self.cx.now = present;
            return;
        }
        self.wake_up(due, present, host);
    }

    // Apart for the same reason.
    #[inline(never)]
    fn wake_up(&mut self, due: Instant, present: Instant, host: &mut impl FnMut(Event<'_>)) {
        if self.clock.is_late(due, present) {
            return self.wake_up_late(due, present, host);
        }
        self.wake(present, host);
    }

    // Its registers are not to be saved by one that is in time.
    #[cold]
    #[inline(never)]
    fn wake_up_late(&mut self, due: Instant, present: Instant, host: &mut impl FnMut(Event<'_>)) {
        let at = self.clock.late(due, present);
        self.wake(at, host);
    }

    #[inline(always)]
    fn wake(&mut self, at: Instant, host: &mut impl FnMut(Event<'_>)) {
        self.cx.now = at.max(self.cx.now);
        self.wake_ups = self.wake_ups.plus(1);
        self.timer = Timer::NONE;
        self.fill(host);
    }

    /// On an emulated link all happens when it was due, in order of time.
    #[inline(always)]
    pub(super) fn run_in_order(&mut self, now: Instant, inclusive: bool, host: &mut impl FnMut(Event<'_>)) {
        let now = now.max(self.cx.now);
        let until = Fine::from(now);
        let is_due = |at: Fine| at < until || (inclusive && at == until);
        while let Some((at, completes)) = self.next_due().filter(|&(at, _)| is_due(at)) {
            if completes {
                self.complete(at, host);
            } else {
                self.wake(at.floor(), host);
            }
        }
        self.cx.now = now;
    }

    /// What comes next on an emulated link: the end of a packet, which goes first, or the timer.
    #[inline(always)]
    fn next_due(&self) -> Option<(Fine, bool)> {
        let timer = self.timer.is_set().then(|| (Fine::from(self.timer.due), false));
        let done = match &self.wire {
            Wire::Device(device) => device.next_completion(),
            _ => None,
        };
        match (done, timer) {
            (Some(done), timer) if timer.is_none_or(|(due, _)| done <= due) => Some((done, true)),
            (_, timer) => timer,
        }
    }

    fn complete(&mut self, done: Fine, host: &mut impl FnMut(Event<'_>)) {
        let Wire::Device(device) = &mut self.wire else { return };
        self.cx.now = self.cx.now.max(done.floor());
        let Some((id, descriptors_back)) = device.complete(&mut self.cx.packets, &self.cx.link) else {
            return;
        };
        self.sent(id, done.floor(), host);
        if descriptors_back {
            self.refills += 1;
            self.ask_again(host);
        }
    }
}

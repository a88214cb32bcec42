//! The books of link sharing: how classes stand in their rings, how many are unsatisfied on each level, and when
//! the others wake.

use super::member::{LEVELS, Member, NONE, Pick};
use super::wakes::Wakes;
use super::wrr::{Ring, Standing};
use crate::units::{Bounded, Instant};

/// Priorities, which `PARAMS` allow: 0 to 7.
pub(super) const PRIORITIES: usize = 8;

/// What changes where a class goes over its limit or below it.
pub(super) struct Books {
    pub rings: Rings,
    pub wakes: Wakes,
    pub levels: Levels,
    pub again: Again,
    /// The last choice.
    pub last: Pick,
}

/// Whether the next choice is the last one again: its turn goes on, no class stands differently since, and
/// its departure has moved nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    No,
    /// It has not departed yet.
    Maybe,
    Yes,
}

/// A ring for each priority.
pub(super) struct Rings {
    pub of: [Ring; PRIORITIES],
    /// Priorities with a class that is ready; with one that is ready or might borrow.
    pub ready: u8,
    pub queued: u8,
}

impl Rings {
    /// The ring of a priority, which is below 8.
    #[inline(always)]
    pub fn of(&self, priority: u8) -> &Ring {
        &self.of[usize::from(priority) % PRIORITIES]
    }
    #[inline(always)]
    pub fn of_mut(&mut self, priority: u8) -> &mut Ring {
        &mut self.of[usize::from(priority) % PRIORITIES]
    }
    /// Lets a class stand where it belongs now.
    #[inline(always)]
    pub fn stand<T>(&mut self, member: &mut Member<T>) {
        let to = match (member.queued, member.under) {
            (false, _) => Standing::Out,
            (true, true) => Standing::Ready,
            (true, false) if member.lender != NONE => Standing::Over,
            (true, false) => Standing::Out,
        };
        if member.standing != to {
            let ring = self.of_mut(member.priority);
            let changes = ring.stand(member.place as usize, member.standing, to);
            member.standing = to;
            if changes {
                self.tell(member.priority);
            }
        }
    }
    /// Some class of a priority is ready or queued now, or none any more.
    fn tell(&mut self, priority: u8) {
        let priority = priority % PRIORITIES as u8;
        let ring = self.of(priority);
        let (ready, queued) = (ring.any(false), ring.any(true));
        let with = |set: u8, any: bool| set & !(1 << priority) | u8::from(any) << priority;
        (self.ready, self.queued) = (with(self.ready, ready), with(self.queued, queued));
    }
}

/// The levels of the tree.
pub(super) struct Levels {
    /// Unsatisfied classes per level: at most all.
    pub unsatisfied: [u32; LEVELS],
    /// The levels with any.
    pub any: u64,
}

impl Levels {
    /// One class more, or less, is unsatisfied.
    #[inline(always)]
    pub fn count(&mut self, level: u8, more: bool) {
        let level = usize::from(level) % LEVELS;
        let count = &mut self.unsatisfied[level];
        *count = if more { count.plus(1) } else { count.less(1) };
        let bit = 1 << level;
        self.any = if *count > 0 { self.any | bit } else { self.any & !bit };
    }
}

impl Books {
    /// The class `member`, of number `class`, is underlimit from `wake` on.
    #[inline(always)]
    pub fn set_wake<T>(&mut self, class: usize, member: &mut Member<T>, wake: Instant, now: Instant) {
        if member.demand == 0 {
            member.wake = wake;
        } else {
            self.move_wake(class, member, wake, now);
        }
    }

    /// The same for a class with demand.
    #[inline(always)]
    pub fn move_wake<T>(&mut self, class: usize, member: &mut Member<T>, wake: Instant, now: Instant) {
        debug_assert!(member.demand > 0, "a class without demand waits");
        let under = wake <= now;
        member.wake = wake;
        if under != member.under {
            member.under = under;
            self.again = Again::No;
            self.levels.count(member.level, under);
            self.rings.stand(member);
            if under {
                self.wakes.set(class, Instant::NEVER);
            } else {
                self.wakes.insert(class, wake);
            }
        } else if !under {
            self.wakes.set(class, wake);
        }
    }

    /// Whether the next choice is the last one again, whatever has departed of that class.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.again == Again::Yes
    }

    /// The next choice is made anew.
    #[cfg(test)]
    pub fn forget(&mut self) {
        self.again = Again::No;
    }

    /// The class `member` sent a packet of `bytes` on the wire.
    #[inline(always)]
    pub fn sent<T>(&mut self, member: &Member<T>, bytes: u64) {
        if !self.rings.of_mut(member.priority).sent(member.place as usize, bytes) {
            self.again = Again::No;
        }
    }
}

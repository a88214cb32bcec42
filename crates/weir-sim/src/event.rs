//! The event queue: who acts next, and when.
//!
//! An *entity* (the far end of a link, a port, an end point of a flow) has at most one pending
//! time, the earliest at which it has something to do, so the queue never holds more entries
//! than there are entities, however many packets are under way: the packets on a link wait in
//! the link's own ring, in order. The queue is a winner tree of four ways: a line holds the words of
//! four entities, and the least of each line stands in the line above. A change walks up to the root without
//! a branch that depends on times, because an event mostly moves the least of all.
//!
//! **Order.** Earlier first; at equal times the lower entity number first. A word is the time above
//! the number, so that one comparison decides both. The numbers are given by the scenario's order alone,
//! so a run does not depend on the history of insertions.

use weir_core::units::Instant;

/// Pending times of a fixed number of entities.
#[derive(Debug)]
pub struct EventQueue {
    /// The root, and below place p of line i line `WAYS` * i + p + 1. Entities are places of the last level.
    lines: Vec<[u64; WAYS]>,
    /// The first place of the last level, counted over all lines.
    leaves: usize,
    /// The least word of all.
    first: u64,
    /// Bits of a word that are the entity.
    bits: u32,
}

/// No time: greater than every word.
const ABSENT: u64 = u64::MAX;
/// Places of a line.
const WAYS: usize = 4;

impl EventQueue {
    /// A queue for the entities `0..count`, none of which has a time yet. A time from 2^(64 - log2(count)) ns
    /// on is as good as none: with 2^17 entities after 39 hours, where a run ends within 24.
    pub fn new(count: usize) -> Self {
        let count = count.max(2);
        let (mut lines, mut width) = (0, 1);
        while width * WAYS < count {
            lines += width;
            width *= WAYS;
        }
        let leaves = lines * WAYS;
        let lines = vec![[ABSENT; WAYS]; lines + count.div_ceil(WAYS)];
        EventQueue { lines, leaves, first: ABSENT, bits: count.next_power_of_two().trailing_zeros() }
    }

    /// The earliest time and whose it is. It stays until `set` moves it.
    #[inline]
    pub fn first(&self) -> Option<(Instant, u32)> {
        (self.first != ABSENT).then(|| (self.time(self.first), (self.first & ((1 << self.bits) - 1)) as u32))
    }

    /// When `entity` acts next; `NEVER` if it has no time.
    #[inline]
    pub fn time_of(&self, entity: u32) -> Instant {
        let place = self.leaves + entity as usize;
        self.time(self.lines[place / WAYS][place % WAYS])
    }

    #[inline(always)]
    fn time(&self, word: u64) -> Instant {
        if word == ABSENT { Instant::NEVER } else { Instant::from_nanos(word >> (self.bits & 63)) }
    }

    /// Gives `entity` the time `at` instead of the one it had; `NEVER` takes it out.
    pub fn set(&mut self, entity: u32, at: Instant) {
        let ns = at.as_nanos();
        let shifted = ns << (self.bits & 63);
        let mut least = if shifted >> (self.bits & 63) == ns { shifted | u64::from(entity) } else { ABSENT };
        let mut place = self.leaves + entity as usize;
        if self.lines[place / WAYS][place % WAYS] == least {
            return;
        }
        loop {
            let line = &mut self.lines[place / WAYS];
            line[place % WAYS] = least;
            least = line.iter().fold(ABSENT, |least, &word| least.min(word));
            let Some(above) = (place / WAYS).checked_sub(1) else { break };
            place = above;
        }
        self.first = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;
    use std::collections::BTreeSet;

    /// Against an ordered set, with random settings, removals and equal times.
    #[test]
    fn agrees_with_an_ordered_set() {
        for seed in weir_seed::seeds(20) {
            let mut random = Stream::new(seed, 0);
            let count = 1 + random.below(600);
            let mut queue = EventQueue::new(count as usize);
            let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
            for _ in 0..5_000 {
                let entity = random.below(count) as u32;
                let at = match random.below(4) {
                    0 => Instant::NEVER,
                    _ => Instant::from_nanos(random.below(40)),
                };
                queue.set(entity, at);
                model.retain(|&(_, e)| e != entity);
                if at != Instant::NEVER {
                    model.insert((at.as_nanos(), entity));
                }
                let first = queue.first().map(|(t, e)| (t.as_nanos(), e));
                assert_eq!(first, model.first().copied(), "seed {seed}");
                assert_eq!(queue.time_of(entity), at, "seed {seed}");
            }
        }
    }
}

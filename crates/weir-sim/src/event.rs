//! The event queue: who acts next, and when.
//!
//! An *entity* (the far end of a link, a port, an end point of a flow) has at most one pending
//! time, the earliest at which it has something to do, so the queue never holds more entries
//! than there are entities, however many packets are under way: the packets on a link wait in
//! the link's own ring, in order. The queue is a 4-ary heap over (time, entity) that knows
//! where each entity stands, so that moving a time costs one sift.
//!
//! **Order.** Earlier first; at equal times the lower entity number first. The numbers are
//! given by the scenario's order alone, so a run does not depend on the history of insertions.

use weir_core::units::Instant;

/// Pending times of a fixed number of entities.
#[derive(Debug)]
pub struct EventQueue {
    heap: Vec<Entry>,
    /// Where each entity stands in `heap`; `ABSENT` if it has no time.
    place: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    time_ns: u64,
    entity: u32,
}

const ABSENT: u32 = u32::MAX;
/// Children per node. Four: the children of a node share a cache line (4 · 16 bytes).
const ARITY: usize = 4;

impl EventQueue {
    /// A queue for the entities `0..count`, none of which has a time yet.
    pub fn new(count: usize) -> Self {
        EventQueue { heap: Vec::with_capacity(count), place: vec![ABSENT; count] }
    }

    /// The earliest time and whose it is. It stays until `set` moves it.
    pub fn first(&self) -> Option<(Instant, u32)> {
        self.heap.first().map(|e| (Instant::from_nanos(e.time_ns), e.entity))
    }

    /// When `entity` acts next; `NEVER` if it has no time.
    pub fn time_of(&self, entity: u32) -> Instant {
        match self.place[entity as usize] {
            ABSENT => Instant::NEVER,
            place => Instant::from_nanos(self.heap[place as usize].time_ns),
        }
    }

    /// Gives `entity` the time `at` instead of the one it had; `NEVER` takes it out.
    pub fn set(&mut self, entity: u32, at: Instant) {
        let place = self.place[entity as usize];
        let entry = Entry { time_ns: at.as_nanos(), entity };
        match (place, at) {
            (ABSENT, Instant::NEVER) => {}
            (ABSENT, _) => {
                self.heap.push(entry);
                self.up(self.heap.len() - 1, entry);
            }
            (_, Instant::NEVER) => self.remove(place as usize),
            _ if entry < self.heap[place as usize] => self.up(place as usize, entry),
            _ => self.down(place as usize, entry),
        }
    }

    fn remove(&mut self, place: usize) {
        self.place[self.heap[place].entity as usize] = ABSENT;
        let Some(last) = self.heap.pop() else { return };
        if place == self.heap.len() {
            return;
        }
        if last < self.heap[place] { self.up(place, last) } else { self.down(place, last) }
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.place[entry.entity as usize] = place as u32;
    }

    /// Puts `entry` at `place` or above it.
    fn up(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.heap[parent] < entry {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    /// Puts `entry` at `place` or below it.
    fn down(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * ARITY + 1;
            let Some(children) = self.heap.get(first..self.heap.len().min(first + ARITY)) else {
                break;
            };
            let Some((offset, least)) = children.iter().enumerate().min_by_key(|(_, e)| **e) else {
                break;
            };
            if entry < *least {
                break;
            }
            let (child, least) = (first + offset, *least);
            self.put(place, least);
            place = child;
        }
        self.put(place, entry);
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
            let mut queue = EventQueue::new(50);
            let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
            for _ in 0..5_000 {
                let entity = random.below(50) as u32;
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

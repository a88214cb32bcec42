//! Which queue is the longest, without asking all: a heap that is kept only while it is needed.
//!
//! A buffer that overflows wants its longest queue, for every packet as long as the overload
//! lasts. The heap is made at the first overflow and given up when the buffer is half empty.
//! Its keys are upper bounds: a queue that grows is lifted at once, one that shrinks is noticed
//! when it comes up as the longest. So dequeues cost nothing, and an overflow the logarithm of the
//! number of queues. All memory is taken at the start, 10 bytes per queue.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Lengths that count as different, and queues that have numbers: a word holds one of each.
const MOST: u64 = (1 << 48) - 1;

/// An upper bound of a length, above the number of its queue.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    #[inline(always)]
    fn new(length: u64, queue: u16) -> Self {
        Entry(length.min(MOST) << 16 | u64::from(queue))
    }
    #[inline(always)]
    fn bound(self) -> u64 {
        self.0 >> 16
    }
    #[inline(always)]
    fn queue(self) -> u16 {
        self.0 as u16
    }
}

pub(super) struct Longest {
    /// The greatest bound first.
    heap: Vec<Entry>,
    /// Where each queue stands in the heap, if it is the queue of that place.
    place: Box<[u16]>,
    awake: bool,
}

impl Longest {
    /// Of that many queues, 65,536 at most.
    pub fn new(queues: usize) -> Self {
        let place = alloc::vec![0; queues].into_boxed_slice();
        Longest { heap: Vec::with_capacity(queues), place, awake: false }
    }
    pub fn is_awake(&self) -> bool {
        self.awake
    }
    /// Starts over with the queues that have anything: (queue, length).
    pub fn wake(&mut self, queues: impl Iterator<Item = (u32, u64)>) {
        self.sleep();
        self.awake = true;
        for (queue, length) in queues {
            self.grown(queue, length);
        }
    }
    pub fn sleep(&mut self) {
        self.heap.clear();
        self.awake = false;
    }
    /// A queue has that length now; needed only after it grew. Lengths from 2^48 on count as alike.
    pub fn grown(&mut self, queue: u32, length: u64) {
        let entry = Entry::new(length, queue as u16);
        let mut at = usize::from(self.place[queue as usize]);
        match self.heap.get(at).filter(|there| there.queue() == entry.queue()) {
            Some(there) if there.bound() >= entry.bound() => return,
            Some(_) => {}
            None => {
                at = self.heap.len();
                self.heap.push(entry);
            }
        }
        while at > 0 && self.heap[(at - 1) / 2].bound() < entry.bound() {
            self.put(self.heap[(at - 1) / 2], at);
            at = (at - 1) / 2;
        }
        self.put(entry, at);
    }
    /// The longest queue, by `length` of each; the earlier in the heap among equals.
    pub fn longest(&mut self, length: impl Fn(u32) -> u64) -> Option<u32> {
        loop {
            let first = *self.heap.first()?;
            let queue = u32::from(first.queue());
            let now = Entry::new(length(queue), first.queue());
            if now.bound() == first.bound() {
                return (now.bound() > 0).then_some(queue);
            }
            self.sink(now);
        }
    }
    /// The first of the heap has become shorter.
    fn sink(&mut self, entry: Entry) {
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = (left + 1).min(self.heap.len() - 1);
            let child = if self.heap[right].bound() > self.heap[left].bound() { right } else { left };
            if self.heap[child].bound() <= entry.bound() {
                break;
            }
            self.put(self.heap[child], at);
            at = child;
        }
        self.put(entry, at);
    }
    #[inline(always)]
    fn put(&mut self, entry: Entry, at: usize) {
        self.heap[at] = entry;
        self.place[usize::from(entry.queue())] = at as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn finds_the_greatest_whatever_grows_and_shrinks() {
        let (mut random, mut lengths) = (Random::new(weir_seed::seed()), [0u64; 40]);
        let mut longest = Longest::new(lengths.len());
        for step in 0..50_000u32 {
            let queue = random.below(40) as usize;
            lengths[queue] = random.below(1_000) * u64::from(random.below(3) > 0);
            match random.below(50) {
                0 => longest.sleep(),
                1 => longest.wake((0..40).map(|q| (q, lengths[q as usize]))),
                _ if longest.is_awake() => longest.grown(queue as u32, lengths[queue]),
                _ => {}
            }
            if longest.is_awake() {
                let found = longest.longest(|q| lengths[q as usize]).map_or(0, |q| lengths[q as usize]);
                assert_eq!(Some(&found), lengths.iter().max(), "step {step}");
            }
        }
    }
}

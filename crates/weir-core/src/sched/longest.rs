//! Which queue is the longest, without asking all: a heap that is kept only while it is needed.
//!
//! A buffer that overflows wants its longest queue, for every packet as long as the overload
//! lasts. The heap is made at the first overflow and given up when the buffer is half empty.
//! Its keys are upper bounds: a queue that grows is lifted at once, one that shrinks is noticed
//! when it comes up as the longest. So dequeues cost nothing, and an overflow the logarithm of the
//! number of queues. All memory is taken at the start.

use alloc::vec::Vec;

const NOWHERE: u32 = u32::MAX;

pub(super) struct Longest {
    /// (upper bound of the length, queue), the greatest first.
    heap: Vec<(u64, u32)>,
    /// Where each queue stands in the heap.
    place: Vec<u32>,
    awake: bool,
}

impl Longest {
    /// Of that many queues.
    pub fn new(queues: usize) -> Self {
        Longest { heap: Vec::with_capacity(queues), place: alloc::vec![NOWHERE; queues], awake: false }
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
        for (_, queue) in self.heap.drain(..) {
            self.place[queue as usize] = NOWHERE;
        }
        self.awake = false;
    }
    /// A queue has that length now; needed only after it grew.
    pub fn grown(&mut self, queue: u32, length: u64) {
        let mut at = self.place[queue as usize] as usize;
        if at == NOWHERE as usize {
            at = self.heap.len();
            self.heap.push((length, queue));
        } else if self.heap[at].0 >= length {
            return;
        }
        while at > 0 && self.heap[(at - 1) / 2].0 < length {
            self.put((at - 1) / 2, at);
            at = (at - 1) / 2;
        }
        self.heap[at] = (length, queue);
        self.place[queue as usize] = at as u32;
    }
    /// The longest queue, by `length` of each; the earlier in the heap among equals.
    pub fn longest(&mut self, length: impl Fn(u32) -> u64) -> Option<u32> {
        loop {
            let &(bound, queue) = self.heap.first()?;
            let true_length = length(queue);
            if true_length == bound {
                return (bound > 0).then_some(queue);
            }
            self.sink(true_length, queue);
        }
    }
    /// The first of the heap has become shorter.
    fn sink(&mut self, length: u64, queue: u32) {
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            if left >= self.heap.len() {
                break;
            }
            let right = (left + 1).min(self.heap.len() - 1);
            let child = if self.heap[right].0 > self.heap[left].0 { right } else { left };
            if self.heap[child].0 <= length {
                break;
            }
            self.put(child, at);
            at = child;
        }
        self.heap[at] = (length, queue);
        self.place[queue as usize] = at as u32;
    }
    fn put(&mut self, from: usize, to: usize) {
        self.heap[to] = self.heap[from];
        self.place[self.heap[to].1 as usize] = to as u32;
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

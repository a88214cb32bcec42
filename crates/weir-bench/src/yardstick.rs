//! What any queue costs at least, and what memory costs, on this machine.

use crate::Bed;
use std::hint::black_box;
use weir_core::Random;

/// A ring of 64 handles: one is put in, one taken out.
pub struct Ring {
    slots: [u32; Ring::SLOTS],
    head: usize,
    tail: usize,
}

impl Ring {
    const SLOTS: usize = 128;
    pub fn new() -> Self {
        let mut slots = [0; Ring::SLOTS];
        (0..64).for_each(|n| slots[n as usize] = n);
        Ring { slots, head: 0, tail: 64 }
    }
}

impl Bed for Ring {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            let id = black_box(self.slots[self.head]);
            self.head = (self.head + 1) % Ring::SLOTS;
            self.slots[self.tail] = black_box(id);
            self.tail = (self.tail + 1) % Ring::SLOTS;
        }
        Ok(())
    }
}

/// A walk through 4 MB, a line of 64 bytes after the other in random order: each step waits for the one before.
pub struct Chase {
    next: Vec<[u32; 16]>,
    at: u32,
}

impl Chase {
    const LINES: u32 = 4 << 20 >> 6;
    pub fn new() -> Self {
        let mut random = Random::new(7);
        let mut order: Vec<u32> = (0..Chase::LINES).collect();
        for n in (1..order.len()).rev() {
            order.swap(n, random.below(n as u64 + 1) as usize);
        }
        let mut next = vec![[0; 16]; order.len()];
        for (n, &line) in order.iter().enumerate() {
            next[line as usize][0] = order[(n + 1) % order.len()];
        }
        Chase { next, at: 0 }
    }
}

impl Bed for Chase {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            self.at = self.next[self.at as usize][0];
        }
        black_box(self.at);
        Ok(())
    }
}

//! Deficit round robin, word by word after Shreedhar and Varghese, SIGCOMM 1995, figure 3.

use std::collections::{BTreeMap, VecDeque};

/// Flows with their queues of packets (name, bytes).
#[derive(Clone, Debug, Default)]
pub struct DeficitRoundRobin {
    quantum: BTreeMap<u32, u64>,
    default_quantum: u64,
    queues: BTreeMap<u32, (VecDeque<(u32, u64)>, u64)>,
    active: VecDeque<u32>,
    /// The flow at the front of the active list has got its quantum.
    visited: bool,
}

impl DeficitRoundRobin {
    /// Every flow gets `quantum` bytes a round.
    pub fn new(quantum: u64) -> Self {
        DeficitRoundRobin { default_quantum: quantum, ..Self::default() }
    }
    /// Gives one flow another quantum.
    pub fn set_quantum(&mut self, flow: u32, quantum: u64) {
        self.quantum.insert(flow, quantum);
    }
    /// A packet comes.
    pub fn enqueue(&mut self, flow: u32, packet: u32, bytes: u64) {
        if !self.active.contains(&flow) {
            self.active.push_back(flow);
            self.queues.entry(flow).or_default().1 = 0;
        }
        self.queues.entry(flow).or_default().0.push_back((packet, bytes));
    }
    /// The next packet: (flow, packet, bytes).
    pub fn dequeue(&mut self) -> Option<(u32, u32, u64)> {
        loop {
            let flow = *self.active.front()?;
            let quantum = self.quantum.get(&flow).copied().unwrap_or(self.default_quantum);
            let (queue, deficit) = self.queues.get_mut(&flow)?;
            if !self.visited {
                *deficit += quantum;
                self.visited = true;
            }
            match queue.front().copied() {
                Some((packet, bytes)) if bytes <= *deficit => {
                    *deficit -= bytes;
                    queue.pop_front();
                    if queue.is_empty() {
                        *deficit = 0;
                        self.active.pop_front();
                        self.visited = false;
                    }
                    return Some((flow, packet, bytes));
                }
                _ => {
                    self.active.rotate_left(1);
                    self.visited = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the paper's figures 1 and 2: quantum 500, flows of 200/750/20 and 500/500.
    #[test]
    fn serves_as_in_the_paper() {
        let mut drr = DeficitRoundRobin::new(500);
        for (flow, packet, bytes) in [(1, 0, 200), (1, 1, 750), (1, 2, 20), (2, 3, 500), (2, 4, 500)] {
            drr.enqueue(flow, packet, bytes);
        }
        let order: Vec<u32> = std::iter::from_fn(|| drr.dequeue()).map(|(_, packet, _)| packet).collect();
        // Flow 1 keeps 300 of its first quantum, which with 500 more pay for 750 and 20.
        assert_eq!(order, [0, 3, 1, 2, 4]);
    }
}

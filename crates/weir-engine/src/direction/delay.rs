//! Propagation delay behind the wire, and the frames that are on their way.

use std::collections::{BTreeMap, VecDeque};
use weir_core::packet::{FrameRef, Key};
use weir_core::units::{Duration, Instant};

/// Propagation delay behind the wire: one for all packets, or by the hosts that they are between.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// For packets of which no host is known.
    pub otherwise: Duration,
    /// Host address (as in `Key`), and its part of the delay. A packet waits for the parts of its
    /// source and of its destination.
    pub parts: BTreeMap<u128, Duration>,
}

impl Delay {
    /// The same for every packet.
    pub fn constant(delay: Duration) -> Self {
        Delay { otherwise: delay, parts: BTreeMap::new() }
    }
    pub(super) fn of(&self, key: &Key) -> Duration {
        match (self.parts.get(&key.src), self.parts.get(&key.dst)) {
            (None, None) => self.otherwise,
            (from, to) => from.copied().unwrap_or_default() + to.copied().unwrap_or_default(),
        }
    }
}

/// Frames that have left the wire and are on their way to the far end: a queue for each delay that
/// occurs, so that each is in order of time.
#[derive(Default)]
pub(super) struct DelayLine {
    queues: Vec<(Duration, VecDeque<(Instant, FrameRef)>)>,
}

impl DelayLine {
    pub(super) fn push(&mut self, left: Instant, delay: Duration, frame: FrameRef) {
        let known = self.queues.iter().position(|q| q.0 == delay);
        let index = known.unwrap_or_else(|| {
            self.queues.push((delay, VecDeque::new()));
            self.queues.len() - 1
        });
        self.queues[index].1.push_back((left + delay, frame));
    }
    /// The queue whose front arrives first, and when.
    pub(super) fn first(&self) -> Option<(Instant, usize)> {
        let fronts = self.queues.iter().enumerate();
        fronts.filter_map(|(index, q)| q.1.front().map(|f| (f.0, index))).min()
    }
    pub(super) fn pop(&mut self, now: Instant) -> Option<FrameRef> {
        let (_, index) = self.first().filter(|(at, _)| *at <= now)?;
        self.queues[index].1.pop_front().map(|(_, frame)| frame)
    }
    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(|q| q.1.len()).sum()
    }
    /// All of them, each delay's in order of time.
    pub(super) fn frames(&self) -> impl Iterator<Item = FrameRef> + '_ {
        self.queues.iter().flat_map(|(_, queue)| queue.iter().map(|(_, frame)| *frame))
    }
}

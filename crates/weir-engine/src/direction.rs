//! One direction of the bridge: frames from one interface, through a port, to the other.

use weir_core::packet::dissect::Dissected;
use weir_core::packet::{FragmentCache, FrameRef, Key, dissect, look_inside};
use weir_core::port::{Event, Port, PortPlan, Retired};
use weir_core::queue::{DropReason, Link, Params};
use weir_core::spread::part_of;
use weir_core::units::{Duration, Instant};
use weir_io::segment::{Aggregate, fragmented_bytes, split};
use weir_io::{BATCH, Io, Pool, PoolSize, Refusal};

mod delay;
mod edge;
mod estate;
mod frames;
pub(crate) mod hand;
mod with_edge;

pub use delay::Delay;
pub use edge::{EdgeClass, EdgePlan, LastRequest, LiveEdge};
pub(crate) use estate::DirectionEstate;

use delay::DelayLine;
use frames::{FrameRecord, Frames, NO_LEAF, Whereabouts};
use hand::Hand;

/// Hears what happens to packets, for reports finer than the port's own counters.
///
/// `index` is 0 for the direction from left to right, 1 for the other.
pub trait Observe: Send {
    /// A frame of `len` bytes came, whose headers say `key`; its class is leaf `leaf`.
    fn arrived(&mut self, index: usize, now: Instant, key: &Key, leaf: u32, len: u32);
    /// What the port told.
    fn told(&mut self, index: usize, event: &Event<'_>);
    /// The edge has found the flow of the packet that comes next to be real-time.
    fn found(&mut self, _index: usize, _key: &Key) {}
}

#[cfg(test)]
mod tests;

/// A packet on its way into the port.
struct Arrival<'a> {
    frame: FrameRef,
    /// What the port is told that it has.
    len: u32,
    /// What filters are asked about.
    key: &'a Key,
    /// Its own headers, where an edge looks at it.
    outer: Option<&'a Dissected>,
    control: bool,
}

/// Hands a packet to the edge, to the conditioners and to the tree.
fn offer(port: &mut Port, frames: &mut Frames, now: Instant, arrival: Arrival<'_>) {
    let Arrival { frame, len, mut key, outer, control } = arrival;
    let marked;
    if let Some(outer) = outer {
        let Some(tos) = frames.examine(now, frame, len, outer) else {
            return with_edge::carry_out(port, frames, now);
        };
        marked = key.with_tos(tos);
        key = &marked;
    }
    let packet = port.condition(now, len, frame, key);
    let packet = if control { packet.protected() } else { packet };
    if let Some(observer) = &mut frames.observer {
        observer.arrived(frames.index, now, key, packet.leaf(), len);
    }
    if let Some(edge) = frames.edge.as_mut().filter(|_| !packet.is_policed()) {
        edge.entered(now, packet.leaf(), len);
    }
    let _ = port.offer(now, packet, &mut |event| frames.hear(event));
    if frames.edge.is_some() {
        with_edge::carry_out(port, frames, now);
    }
}

/// One direction.
pub struct Direction {
    /// The port; `None` forwards plainly.
    port: Option<Port>,
    frames: Frames,
    delay: Delay,
    /// Frames being sent; the front first.
    outbox: Vec<FrameRef>,
    /// Frames that the device did not take, for as long as a call lasts.
    refusals: Vec<Refusal>,
    /// How many it did not take since the start, by reason.
    refused: [u64; DropReason::ALL.len()],
    fresh: Vec<FrameRef>,
    /// The pieces of what has just been received, for as long as a call lasts.
    pieces: Vec<FrameRef>,
    /// The link for which the device's queue was last limited.
    queue_for: Option<Link>,
    /// The system cuts up what is longer than the link's longest frame.
    fragmented_below: bool,
    /// Aggregates that were taken apart, and segments of such that were lost for want of a buffer.
    segmented: u64,
    unsegmented: u64,
    /// Ports of first fragments, for the later ones.
    fragments: FragmentCache,
    /// The ways to the workers that have the other parts of the port, and from them.
    hand: Option<Box<Hand>>,
}

/// Segments of an aggregate, usually at most: 64 KB in pieces of 536 bytes.
const MOST_SEGMENTS: usize = 128;

/// What is to become of what manages a direction.
pub enum Change {
    /// All that the port's configuration says.
    Plan(Box<PortPlan>),
    /// Parameters of classes (the empty name: of the outermost discipline). If the port refuses
    /// one, all that its configuration says.
    Params {
        /// Class, and its parameters that change.
        params: Vec<(String, Params)>,
        /// The same as a plan.
        otherwise: Box<PortPlan>,
    },
    /// Another port, or none: what waits leaves first. An edge before the old one ends with it.
    Port(Option<Box<Port>>),
    /// Another edge before the port, or none, and what else changes, which comes first.
    Edge(Option<Box<LiveEdge>>, Option<Box<Change>>),
}

impl Change {
    /// What the port's configuration says, where it changes.
    pub(crate) fn plan_mut(&mut self) -> Option<&mut PortPlan> {
        match self {
            Change::Plan(plan) | Change::Params { otherwise: plan, .. } => Some(plan),
            Change::Edge(_, Some(change)) => change.plan_mut(),
            Change::Edge(_, None) | Change::Port(_) => None,
        }
    }
    /// A port comes that is whole again.
    pub(crate) fn brings_port(&self) -> bool {
        match self {
            Change::Port(port) => port.is_some(),
            Change::Edge(_, Some(change)) => change.brings_port(),
            Change::Edge(_, None) | Change::Plan(_) | Change::Params { .. } => false,
        }
    }
}

/// What became of a change. What it holds is to be dropped where time does not matter.
pub enum Changed {
    /// The parameters changed, and nothing was exchanged. The plan was not needed.
    InPlace(Option<Box<PortPlan>>),
    /// A tree, or a port, took the place of what was there.
    Exchanged(Option<Retired>),
    /// There is no port whose configuration could change.
    NoPort,
    /// Another edge took the place of what was there; and what became of the rest.
    Edge(Option<Box<LiveEdge>>, Option<Box<Changed>>),
}

/// Changes parameters of classes; false if one was refused. A class that may have no more until
/// another has less comes behind that one, whatever their order.
fn reconfigure(
    port: &mut Port,
    now: Instant,
    mut params: Vec<(String, Params)>,
    host: &mut impl FnMut(Event<'_>),
) -> bool {
    while !params.is_empty() {
        let before = params.len();
        params.retain(|(class, params)| port.reconfigure(now, class, params, host).is_err());
        if params.len() == before {
            return false;
        }
    }
    true
}

const A_MILLISECOND_NS: u64 = 1_000_000;

/// How soon a device that takes no more frames is asked again.
const FULL_DEVICE: Duration = Duration::from_micros(50);

impl Direction {
    /// A direction with its own frames. `delay` is the propagation delay behind the wire.
    pub fn new(index: usize, port: Option<Port>, size: PoolSize, delay: Delay) -> Self {
        let record = FrameRecord {
            order: (0, 0),
            l3_offset: 0,
            tos: 0,
            place: Whereabouts::Elsewhere,
            delay: Duration::ZERO,
            sent_as: (NO_LEAF, 0),
        };
        Direction {
            port,
            frames: Frames {
                index,
                pool: Pool::new(size),
                records: vec![record; size.frames as usize],
                line: DelayLine::default(),
                observer: None,
                edge: None,
                policed: 0,
                order: 0,
                rewritten: 0,
                dropped: Vec::with_capacity(2 * BATCH),
            },
            delay,
            outbox: Vec::with_capacity(2 * BATCH),
            refusals: Vec::with_capacity(BATCH),
            refused: [0; DropReason::ALL.len()],
            fresh: Vec::with_capacity(BATCH),
            pieces: Vec::with_capacity(MOST_SEGMENTS),
            queue_for: None,
            fragmented_below: false,
            segmented: 0,
            unsegmented: 0,
            fragments: FragmentCache::new(),
            hand: None,
        }
    }

    /// Says that this runs one part of the direction, and how frames go to those who run the others.
    pub(crate) fn is_part(&mut self, hand: Hand) {
        self.hand = Some(Box::new(hand));
    }
    /// Frames that were handed to other workers, and those that were lost because their rings were full.
    pub fn handed(&self) -> (u64, u64) {
        self.hand.as_ref().map_or((0, 0), |hand| (hand.handed, hand.lost))
    }
    /// Whether frames that others have handed over wait to be taken in.
    pub(crate) fn is_handed_some(&self) -> bool {
        self.hand.as_ref().is_some_and(|hand| hand.has_some())
    }

    /// Says that the system cuts up into fragments what is longer than the link's longest frame, so that it costs
    /// what they cost.
    pub fn fragments_below(&mut self) {
        self.fragmented_below = true;
    }
    /// Has `observer` hear everything from now on.
    pub fn observe(&mut self, observer: Box<dyn Observe>) {
        self.frames.observer = Some(observer);
    }
    /// 0 for the direction from left to right, 1 for the other.
    pub fn index(&self) -> usize {
        self.frames.index
    }
    /// How many frames it may have.
    pub(crate) fn frames(&self) -> u32 {
        self.frames.records.len() as u32
    }
    /// The port.
    pub fn port(&self) -> Option<&Port> {
        self.port.as_ref()
    }
    /// Frames in the delay line or waiting to be sent.
    pub fn leaving(&self) -> usize {
        self.frames.line.len() + self.outbox.len()
    }
    /// Frames whose ECN or DSCP was written on the way out.
    pub fn rewritten(&self) -> u64 {
        self.frames.rewritten
    }
    /// Frames that the device did not take, by `DropReason as usize`. Their classes count them as
    /// dropped.
    pub fn refused(&self) -> &[u64; DropReason::ALL.len()] {
        &self.refused
    }
    /// Aggregates that were taken apart.
    pub fn segmented(&self) -> u64 {
        self.segmented
    }
    /// Segments that were lost because there was no frame for them.
    pub fn unsegmented(&self) -> u64 {
        self.unsegmented
    }
    /// Frames that can still be taken in.
    pub fn frames_available(&self) -> usize {
        self.frames.pool.available()
    }

    /// True if no frame is inside.
    pub fn is_empty(&self) -> bool {
        self.frames.records.iter().all(|record| record.place == Whereabouts::Elsewhere)
    }

    /// Receives all that waits at `from`, and what other workers have handed over, and throws it away: how many frames
    /// that were.
    pub fn discard(&mut self, from: &mut impl Io) -> u64 {
        let mut thrown = self.hand.as_mut().map_or(0, |hand| hand.discard());
        loop {
            let mut fresh = std::mem::take(&mut self.fresh);
            fresh.clear();
            from.receive(&mut self.frames.pool, &mut fresh);
            fresh.iter().for_each(|&frame| self.frames.pool.free(frame));
            let count = fresh.len();
            self.fresh = fresh;
            thrown += count as u64;
            if count < BATCH {
                return thrown;
            }
        }
    }

    /// Receives one batch and offers it to the port. True if more may be waiting. `other` is the edge of the
    /// way back, which looks at what comes here.
    pub fn receive(&mut self, now: Instant, from: &mut impl Io, other: Option<&mut LiveEdge>) -> bool {
        let mut other = other.filter(|edge| edge.looks());
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.clear();
        from.receive(&mut self.frames.pool, &mut fresh);
        for &frame in &fresh {
            // All of the batch is in the books before any of it is handed on: what a panic
            // leaves behind is then found.
            self.frames.enter(frame, self.delay.otherwise);
        }
        let whole_bytes = self.whole_bytes();
        for &frame in &fresh {
            // Once for the edge and the port: the memory of fragments forgets a datagram with its last one.
            let read = (other.is_some() || whole_bytes.is_some()).then(|| {
                let mut read = dissect(self.frames.pool.head(frame));
                self.fragments.fill(&mut read);
                read
            });
            if let (Some(edge), Some(read)) = (&mut other, &read) {
                edge.observe(now, self.frames.pool.head(frame), read);
            }
            match (whole_bytes, read) {
                (Some(whole_bytes), Some(read)) => self.take_in(now, frame, read, whole_bytes, true),
                _ => self.frames.put_on_the_line(now, frame),
            }
        }
        let full = fresh.len() >= BATCH;
        self.fresh = fresh;
        if self.hand.is_none() {
            return full;
        }
        self.hand.iter_mut().for_each(|hand| hand.wake());
        self.take_handed(now) || full
    }

    /// Takes in a batch of what other workers have handed over. True if more may be waiting.
    pub(crate) fn take_handed(&mut self, now: Instant) -> bool {
        let Some(hand) = &mut self.hand else { return false };
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.clear();
        hand.take(&mut self.frames.pool, &mut fresh);
        fresh.iter().for_each(|&frame| self.frames.enter(frame, self.delay.otherwise));
        let whole_bytes = self.whole_bytes();
        for &frame in &fresh {
            let Some(whole_bytes) = whole_bytes else {
                self.frames.put_on_the_line(now, frame);
                continue;
            };
            let mut read = dissect(self.frames.pool.head(frame));
            self.fragments.fill(&mut read);
            self.take_in(now, frame, read, whole_bytes, false);
        }
        self.fresh = fresh;
        self.hand.iter_mut().for_each(|hand| hand.wake());
        self.is_handed_some()
    }

    /// Bytes up to which an aggregate stays whole; none where nothing manages the egress.
    fn whole_bytes(&self) -> Option<u64> {
        self.port.as_ref().map(|port| port.segment().longest_whole_bytes(port.link()))
    }

    /// Hands a frame to the port: an aggregate that would last too long in pieces, another one as
    /// long as what its segments cost. They have the same headers as far as a port sees them. One whose class is in
    /// another part goes to the worker of that part. So does one that was handed over (not `own`) before an apply gave its
    /// class another worker. A fragment stays then, because each worker knows other fragments, and could send it back.
    fn take_in(&mut self, now: Instant, frame: FrameRef, mut read: Dissected, whole_bytes: u64, own: bool) {
        let Direction { port: Some(port), frames, delay, pieces, fragmented_below, hand, .. } = self else {
            return;
        };
        let control = port.protects().holds(frames.pool.head(frame), &read);
        let record = &mut frames.records[frame.0 as usize];
        (record.l3_offset, record.tos) = (read.l3_offset as u16, read.key.tos);
        let outer = frames.edge.as_ref().filter(|edge| edge.looks() && !control).map(|_| read);
        if port.looks_inside() {
            look_inside(frames.pool.head(frame), &mut read);
        }
        if let Some(hand) = hand.as_mut().filter(|_| own || !read.key.later_fragment) {
            // Control packets have one lane.
            let leaf = if control { port.otherwise() } else { port.leaf_of(&read.key) };
            if let Some(part) = part_of(leaf) {
                hand.give(&frames.pool, frame, part);
                return frames.forget(frame);
            }
        }
        if !delay.parts.is_empty() {
            frames.records[frame.0 as usize].delay = delay.of(&read.key);
        }
        let mut len = frames.pool.len_bytes(frame);
        if *fragmented_below {
            let Link { mtu, overhead, .. } = *port.link();
            len = fragmented_bytes(frames.pool.head(frame), read.l3_offset, len, mtu, overhead);
        }
        pieces.clear();
        if let Some(aggregate) = Aggregate::of(&frames.pool, frame) {
            let overhead = port.link().overhead;
            len = aggregate.cost_bytes(overhead);
            // A segment needs none of the long buffers, which all classes share.
            let scarce = frames.pool.tails_available() < frames.pool.tails() / 4;
            if scarce || u64::from(len) + u64::from(overhead) > whole_bytes {
                self.unsegmented += u64::from(split(&mut frames.pool, frame, &aggregate, pieces));
                self.segmented += 1;
                frames.enter_pieces(pieces);
            }
        }
        let whole = Arrival { frame, len, key: &read.key, outer: outer.as_ref(), control };
        if pieces.is_empty() {
            return offer(port, frames, now, whole);
        }
        for &piece in &*pieces {
            let len = frames.pool.len_bytes(piece);
            offer(port, frames, now, Arrival { frame: piece, len, ..whole });
        }
    }

    /// Does what the port has due up to `now`.
    pub fn advance(&mut self, now: Instant) {
        if let Direction { port: Some(port), frames, .. } = self {
            port.advance(now, &mut |event| frames.hear(event));
            if frames.edge.is_some() {
                with_edge::tick(port, frames, now);
            }
        }
    }

    /// Below a port the device has what the link sends in a millisecond, or two full frames. While a
    /// device that is slower than its link is said to be takes no more, the port is held.
    fn keep_queue_short(&mut self, to: &mut impl Io) {
        let link = self.port.as_ref().map(|port| *port.link());
        if link == self.queue_for {
            return;
        }
        self.queue_for = link;
        // Parts share the device.
        let parts = self.hand.as_ref().map_or(1, |hand| hand.workers() as u64);
        let bytes = |link: Link| (link.rate.bytes_in(A_MILLISECOND_NS) / parts).max(2 * u64::from(link.mtu));
        to.keep_queue_short(link.map(bytes), link.map_or(0, |link| link.mtu));
    }

    /// Whoever sends its frames hears of those that the port dropped.
    fn tell_dropped(&mut self, to: &mut impl Io) {
        if !self.frames.dropped.is_empty() {
            to.discard(&self.frames.dropped);
            for frame in self.frames.dropped.drain(..) {
                self.frames.pool.free(frame);
            }
        }
    }

    /// Does what is due up to `now`, so that all that it has can be told: nothing waits to be dropped.
    pub(crate) fn settle(&mut self, now: Instant, to: &mut impl Io) {
        self.advance(now);
        self.tell_dropped(to);
    }

    /// Sends what has reached the end of the delay line.
    pub fn send(&mut self, now: Instant, to: &mut impl Io) {
        self.tell_dropped(to);
        self.keep_queue_short(to);
        loop {
            while self.outbox.len() < BATCH
                && let Some(frame) = self.frames.line.pop(now)
            {
                self.outbox.push(frame);
            }
            if self.outbox.is_empty() {
                // The device has taken all that had left the port: what waits there may follow.
                if !self.hold(now, false) {
                    return;
                }
                self.advance(now);
                continue;
            }
            let done = to.send(&mut self.frames.pool, &self.outbox, &mut self.refusals);
            for (frame, reason) in self.refusals.drain(..) {
                self.refused[reason as usize] += 1;
                let (leaf, len) = self.frames.records[frame.0 as usize].sent_as;
                if let Some(port) = &mut self.port {
                    port.refused(leaf, len, reason);
                }
            }
            for frame in self.outbox.drain(..done) {
                self.frames.records[frame.0 as usize].place = Whereabouts::Elsewhere;
                self.frames.pool.free(frame);
            }
            if done == 0 {
                // From here on packets wait where classes count.
                self.hold(now, true);
                return;
            }
        }
    }

    /// Whether the port may give packets; true if that is a change.
    fn hold(&mut self, now: Instant, held: bool) -> bool {
        let Direction { port: Some(port), frames, .. } = self else { return false };
        port.hold(now, held, &mut |event| frames.hear(event))
    }

    /// What is due up to `now` leaves by `to`.
    pub(crate) fn leave(&mut self, now: Instant, to: &mut impl Io) {
        self.advance(now);
        self.send(now, to);
    }

    /// When something is due here next.
    pub fn next_wake_up(&self, now: Instant) -> Instant {
        if !self.outbox.is_empty() {
            return now + FULL_DEVICE;
        }
        let line = self.frames.line.first().map_or(Instant::NEVER, |(at, _)| at);
        let edge = self.edge().map_or(Instant::NEVER, |edge| edge.edge().poll_at());
        self.port().map_or(Instant::NEVER, Port::next_wake_up).min(line).min(edge)
    }

    /// Changes what manages this direction, losing nothing.
    pub fn change(&mut self, now: Instant, change: Change) -> Changed {
        match (change, &mut self.port) {
            (Change::Port(port), _) => {
                let old = self.release(now);
                self.port = port.map(|port| *port);
                Changed::Exchanged(old.map(|old| Box::new(old) as Retired))
            }
            (Change::Edge(edge, change), _) => {
                let changed = change.map(|change| Box::new(self.change(now, *change)));
                Changed::Edge(self.set_edge(now, edge), changed)
            }
            (_, None) => Changed::NoPort,
            (Change::Plan(plan), Some(_)) => Changed::Exchanged(self.swap(now, *plan)),
            (Change::Params { params, otherwise }, Some(port)) => {
                let frames = &mut self.frames;
                match reconfigure(port, now, params, &mut |event| frames.hear(event)) {
                    true => {
                        self.fit_edge(now);
                        Changed::InPlace(Some(otherwise))
                    }
                    false => Changed::Exchanged(self.swap(now, *otherwise)),
                }
            }
        }
    }

    /// Replaces all that the port's configuration says, losing nothing: what was there before.
    /// `None` if there is no port.
    pub fn swap(&mut self, now: Instant, mut plan: PortPlan) -> Option<Retired> {
        let Direction { port: Some(port), frames, .. } = self else { return None };
        port.prepare(&mut plan);
        // Until here frames have left as the leaves of the old plan, from here on as the new ones.
        port.advance(now, &mut |event| frames.hear(event));
        let leaving = frames.records.iter_mut().filter(|record| record.place == Whereabouts::DelayLine);
        for FrameRecord { sent_as: (leaf, _), .. } in leaving {
            if *leaf == Port::CONTROL {
                continue;
            }
            *leaf = plan.heir(*leaf).unwrap_or(NO_LEAF);
        }
        let retired = port.swap(now, plan, &mut |event| frames.hear(event));
        self.fit_edge(now);
        Some(retired)
    }

    /// After a panic: gives up the port, whose state cannot be trusted, and forwards plainly from
    /// now on.
    pub fn forward_plainly(&mut self, now: Instant) {
        let mut port = self.release(now);
        // What this part sends from now on is not lent.
        port.iter_mut().for_each(|port| port.part_from(now));
        // Its destructor might stumble over the same broken state.
        std::mem::forget(port);
    }

    /// Takes the port away. Every frame that this side's books know to be inside leaves in the
    /// order in which it came.
    fn release(&mut self, now: Instant) -> Option<Port> {
        drop(self.set_edge(now, None));
        let port = self.port.take();
        // Nobody's books have them any more.
        self.frames.records.iter_mut().for_each(|record| record.sent_as = (NO_LEAF, 0));
        let records = self.frames.records.iter().enumerate();
        let mut inside: Vec<((u64, u32), FrameRef)> = records
            .filter(|(_, record)| record.place == Whereabouts::Port)
            .map(|(index, record)| (record.order, FrameRef(index as u32)))
            .collect();
        inside.sort_unstable_by_key(|&(order, _)| order);
        for (_, frame) in inside {
            self.frames.put_on_the_line(now, frame);
        }
        port
    }
}

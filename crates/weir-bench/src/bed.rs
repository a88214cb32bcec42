//! A tree of disciplines: dequeue a packet, offer it again, many times.

use crate::scene::{LINK, Scene};
use crate::{Bed, Case};
use std::hint::black_box;
use std::time::Instant as Clock;
use weir_core::Random;
use weir_core::packet::{FrameRef, Meta, PacketId, PacketState};
use weir_core::queue::{Cx, Discipline, Link, Next};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};

const PACKET_BYTES: u32 = 64;
/// The longest packet.
const LONGEST: u32 = 1_518;
/// Packets of [`TreeBed::bursts`].
pub const BURST: usize = 32;
/// Packets that an empty queue may refuse before the next one is taken.
const TRIES: u32 = 100_000;
/// Fewest draws before they come again.
const DRAWS: usize = 4_096;
/// Packets outside of a queue that is overloaded.
const REFUSED: usize = 64;
/// Rows of the table of a queue that is filled until it refuses.
const ROOM: u32 = 1 << 17;

/// What a packet is when it is offered again at random: worked out before, so that only writing it is measured.
#[derive(Clone, Copy)]
struct Draw {
    leaf: u32,
    len: u32,
    hash: u32,
    dst_hash: u32,
    src_port: u16,
}

impl Draw {
    fn new(leaf: u32, flow: u32, len: u32) -> Draw {
        let hash = flow.wrapping_mul(0x9e37_79b9);
        Draw { leaf, len, hash, dst_hash: hash.rotate_left(16), src_port: flow as u16 }
    }
}

/// A tree in its steady state.
pub struct TreeBed {
    cx: Cx,
    tree: Box<dyn Discipline>,
    /// Packets that were dropped and are offered again.
    spare: Vec<PacketId>,
    /// Time that the packet taken last lasts.
    step: Duration,
    /// Drawn before, so that drawing is not measured; empty where nothing is random.
    draws: Vec<Draw>,
    drawn: usize,
    /// How long a packet lasts, by its length.
    lasts: Vec<Duration>,
}

fn write(meta: &mut Meta, Draw { leaf, len, hash, dst_hash, src_port }: Draw) {
    (meta.leaf, meta.len) = (leaf, len);
    (meta.flow, meta.src_hash, meta.dst_hash) = (hash, hash, dst_hash);
    meta.src_port = src_port;
}

impl TreeBed {
    /// A tree of `scene` with its packets: `Case::Hot`, `Case::Random` or `Case::Overload`.
    ///
    /// # Errors
    /// Why it cannot be built or filled.
    pub fn new(registry: &Registry, scene: &Scene, case: Case) -> Result<Self, String> {
        let link = Link::new(LINK, 0, 1_514);
        let tree = registry.build(&scene.node, link).map_err(|error| error.to_string())?;
        let inner = |leaf: usize| !tree.leaves[leaf].terminal;
        let leaves: Vec<u32> = (0..tree.leaves.len()).filter(|&l| !inner(l)).map(|l| l as u32).collect();
        let lasts = |len| Duration::from_nanos(link.time_for(len).ceil().as_nanos());
        let room = if case == Case::Overload { ROOM } else { scene.backlog + 1 };
        let mut bed = TreeBed {
            cx: Cx::new(room, link, 1),
            tree: tree.discipline,
            spare: Vec::with_capacity(2 * REFUSED),
            step: lasts(PACKET_BYTES),
            draws: Vec::new(),
            drawn: 0,
            lasts: (0..=LONGEST).map(lasts).collect(),
        };
        if case == Case::Random {
            let mut random = Random::new(7);
            // So many that nearly every leaf is among them: the lines of a leaf must not be those of a turn before.
            let draws = (4 * leaves.len()).max(DRAWS);
            bed.draws.extend((0..draws).map(|_| {
                let leaf = leaves[random.below(leaves.len() as u64) as usize];
                let flow = random.below(u64::from(scene.flows)) as u32;
                let len = [64, 594, LONGEST][[0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2][random.below(12) as usize]];
                Draw::new(leaf, flow, len)
            }));
        }
        let mut waiting = 0..room;
        let enough = |bed: &TreeBed, n: u32| match case {
            Case::Overload => bed.spare.len() >= REFUSED,
            _ => n >= scene.backlog,
        };
        while let Some(n) = waiting.next().filter(|&n| !enough(&bed, n)) {
            let mut meta = Meta::new(PACKET_BYTES, Instant::ZERO, FrameRef(n));
            (meta.dst_port, meta.protocol, meta.ecn) = (80, 6, 0);
            let leaf = leaves[n as usize % leaves.len()];
            write(&mut meta, Draw::new(leaf, n % scene.flows, PACKET_BYTES));
            match bed.cx.packets.insert(meta) {
                Ok(id) => bed.offer(id),
                Err(_) => return Err("the packet table is too small".into()),
            }
        }
        if case == Case::Overload && bed.spare.len() < REFUSED {
            return Err(format!("it takes {room} packets, and refuses none"));
        }
        Ok(bed)
    }
    #[inline]
    fn offer(&mut self, id: PacketId) {
        let row = self.cx.packets.get_mut(&id);
        (row.arrival, row.state) = (self.cx.now, PacketState::Queued);
        self.enter(id);
    }
    #[inline]
    fn enter(&mut self, id: PacketId) {
        let _ = self.tree.enqueue(&mut self.cx, id);
        while let Some((id, _)) = self.cx.next_dropped() {
            self.spare.push(id);
        }
    }
    #[inline]
    fn take(&mut self) -> Result<PacketId, String> {
        self.cx.now += self.step;
        let mut tries = 0;
        loop {
            match self.tree.dequeue(&mut self.cx) {
                Next::Packet(id) => return Ok(id),
                Next::At(at) => self.cx.now = at,
                // An AQM may drop more than came, and go on dropping until its average has fallen.
                Next::Idle if tries < TRIES => {
                    let Some(id) = self.spare.pop() else { return Err("it lost packets".into()) };
                    tries += 1;
                    self.cx.now += self.step;
                    self.offer(id);
                }
                stop => return Err(format!("it stopped with {stop:?} and {:?}", self.tree.backlog())),
            }
        }
    }
    /// A packet of random leaf and length, offered once the one taken has lasted.
    #[inline]
    fn offer_another(&mut self, id: PacketId) {
        let row = self.cx.packets.get_mut(&id);
        (row.arrival, row.state) = (self.cx.now, PacketState::Queued);
        self.step = self.lasts[row.len as usize];
        write(row, self.draws[self.drawn]);
        self.drawn = if self.drawn + 1 == self.draws.len() { 0 } else { self.drawn + 1 };
        self.enter(id);
    }
    /// Nanoseconds of (enqueues, dequeues) in bursts, by one packet.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub fn bursts(&mut self, count: u32) -> Result<(f64, f64), String> {
        let mut hand = Vec::with_capacity(BURST);
        let (mut enqueue_ns, mut dequeue_ns) = (0, 0);
        for _ in 0..count {
            let start = Clock::now();
            for _ in 0..BURST {
                hand.push(self.take()?);
            }
            let middle = Clock::now();
            while let Some(id) = hand.pop() {
                self.offer(id);
            }
            let end = Clock::now();
            dequeue_ns += (middle - start).as_nanos();
            enqueue_ns += (end - middle).as_nanos();
            while let Some(id) = self.spare.pop() {
                self.offer(id);
                if !self.spare.is_empty() {
                    break;
                }
            }
        }
        let packets = f64::from(count) * BURST as f64;
        let clock = clock_ns() / BURST as f64;
        let net = |ns: u128| (ns as f64 / packets - clock).max(0.1);
        Ok((net(enqueue_ns), net(dequeue_ns)))
    }
}

impl Bed for TreeBed {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        let random = !self.draws.is_empty();
        for _ in 0..count {
            let id = self.take()?;
            match random {
                true => self.offer_another(id),
                false => self.offer(id),
            }
            if let Some(id) = self.spare.pop() {
                self.offer(id);
            }
        }
        Ok(())
    }
}

/// What a read of the clock costs.
fn clock_ns() -> f64 {
    const READS: u32 = 10_000;
    let start = Clock::now();
    for _ in 0..READS {
        black_box(Clock::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

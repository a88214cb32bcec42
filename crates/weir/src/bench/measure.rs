//! Dequeue a packet, offer it again, many times.

use super::scene::{LINK, Scene};
use super::{Bench, Effort};
use std::hint::black_box;
use std::time::Instant as Clock;
use weir_core::packet::{FrameRef, Meta, PacketId, PacketState};
use weir_core::queue::{Cx, Discipline, Link, Next};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};
use weir_sys::allocations;

const PACKET_BYTES: u32 = 64;
const BURST: usize = 32;
/// Packets that an empty queue may refuse before the next one is taken.
const TRIES: u32 = 100_000;

/// A tree in its steady state.
struct Bed {
    cx: Cx,
    tree: Box<dyn Discipline>,
    /// Packets that were dropped and are offered again.
    spare: Vec<PacketId>,
    step: Duration,
}

impl Bed {
    fn new(registry: &Registry, scene: &Scene) -> Result<Self, String> {
        let link = Link::new(LINK, 0, 1_514);
        let tree = registry.build(&scene.node, link).map_err(|error| error.to_string())?;
        let step = Duration::from_nanos(link.time_for(PACKET_BYTES).ceil().as_nanos());
        let cx = Cx::new(scene.backlog + 1, link, 1);
        let mut bed = Bed { cx, tree: tree.discipline, spare: Vec::with_capacity(64), step };
        let inner = |leaf: usize| !tree.leaves[leaf].terminal;
        let leaves: Vec<u32> = (0..tree.leaves.len()).filter(|&l| !inner(l)).map(|l| l as u32).collect();
        for n in 0..scene.backlog {
            let mut meta = Meta::new(PACKET_BYTES, Instant::ZERO, FrameRef(n));
            let flow = n % scene.flows;
            meta.leaf = leaves[n as usize % leaves.len()];
            meta.flow = flow.wrapping_mul(0x9e37_79b9);
            (meta.src_hash, meta.dst_hash) = (meta.flow, meta.flow.rotate_left(16));
            (meta.src_port, meta.dst_port, meta.protocol) = (flow as u16, 80, 6);
            meta.ecn = 0;
            match bed.cx.packets.insert(meta) {
                Ok(id) => bed.offer(id),
                Err(_) => return Err("the packet table is too small".into()),
            }
        }
        Ok(bed)
    }
    #[inline]
    fn offer(&mut self, id: PacketId) {
        let row = self.cx.packets.get_mut(&id);
        (row.arrival, row.state) = (self.cx.now, PacketState::Queued);
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
    /// Nanoseconds a pair.
    fn pairs(&mut self, count: u32) -> Result<f64, String> {
        let start = Clock::now();
        for _ in 0..count {
            let id = self.take()?;
            self.offer(id);
            if let Some(id) = self.spare.pop() {
                self.offer(id);
            }
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
    }
    /// Nanoseconds of (enqueues, dequeues) in bursts, by one packet.
    fn bursts(&mut self, count: u32) -> Result<(f64, f64), String> {
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

/// What a read of the clock costs.
fn clock_ns() -> f64 {
    const READS: u32 = 10_000;
    let start = Clock::now();
    for _ in 0..READS {
        black_box(Clock::now());
    }
    start.elapsed().as_nanos() as f64 / f64::from(READS)
}

/// Allocations of `act` per packet; `None` if the program's allocator does not count.
pub fn allocations_of(packets: u32, act: impl FnOnce() -> Result<(), String>) -> Result<Option<f64>, String> {
    let idle = allocations::on_this_thread();
    black_box(Box::new(idle));
    let before = allocations::on_this_thread();
    act()?;
    let after = allocations::on_this_thread();
    Ok((before > idle).then(|| (after - before) as f64 / f64::from(packets)))
}

/// The median, and the lowest and highest tenth of the runs left out, the least and the most.
pub fn summary(mut runs: Vec<f64>) -> (f64, (f64, f64)) {
    runs.sort_by(f64::total_cmp);
    let tenth = runs.len() / 10;
    let (least, most) = match runs.get(tenth..runs.len() - tenth) {
        Some([least, .., most]) => (*least, *most),
        _ => (runs.first().copied().unwrap_or(0.0), runs.last().copied().unwrap_or(0.0)),
    };
    let middle = runs.len() / 2;
    let median = match runs.len() {
        0 => 0.0,
        n if n % 2 == 1 => runs[middle],
        _ => (runs[middle - 1] + runs[middle]) / 2.0,
    };
    (median, (least, most))
}

/// Measures `scene`.
///
/// # Errors
/// Why it cannot run.
pub fn run(registry: &Registry, name: &str, scene: &Scene, effort: Effort) -> Result<Bench, String> {
    let mut bed = Bed::new(registry, scene)?;
    bed.pairs(effort.packets)?;
    let packets = effort.packets_a_run(|packets| bed.pairs(packets))?;
    let mut runs = Vec::with_capacity(effort.runs);
    for _ in 0..effort.runs {
        runs.push(bed.pairs(packets)?);
    }
    let (total_ns, range_ns) = summary(runs);
    // What all packets dropped and offered again cost is in the pairs, and is the discipline's.
    let allocations_per_packet = allocations_of(effort.packets, || bed.pairs(effort.packets).map(|_| ()))?;
    let mut shares = Vec::with_capacity(effort.runs);
    for _ in 0..effort.runs {
        let (enqueue, dequeue) = bed.bursts((packets / BURST as u32).max(1))?;
        shares.push(enqueue / (enqueue + dequeue));
    }
    let (share, _) = summary(shares);
    Ok(Bench {
        name: name.into(),
        enqueue_ns: Some(total_ns * share),
        dequeue_ns: Some(total_ns * (1.0 - share)),
        total_ns,
        range_ns,
        allocations_per_packet,
    })
}

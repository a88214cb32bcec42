//! A port of 10,000 subscribers on one core, and spread over two threads.
//!
//! `cargo run --release -p weir-bench --example cores`

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_bench::cores::{Door, spread};
use weir_bench::scene;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::packet::{Family, FrameRef, dissect};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::{Link, ParamError};
use weir_core::sched::{Registry, Tree};
use weir_core::spread::Lend;
use weir_core::units::{Instant, Rate};

const SUBSCRIBERS: u32 = 10_000;
const FLOWS_EACH: u32 = 10;
const BYTES: u32 = 1_000;
/// A packet arrives in so many nanoseconds, a little more than the link carries, so that packets wait.
const EVERY_NS: u64 = 1_000;
const RATE: Rate = Rate::from_bps(7_900_000_000);
const PACKETS: u64 = 128_000;
const ROUNDS: usize = 15;
/// Packets by which one thread may be ahead of the other: they share one simulated clock.
const AHEAD: u64 = 64;

/// What one core does: from the bytes of a frame to the event that it has left.
struct Core {
    port: Port,
    frames: Vec<Vec<u8>>,
    spare: Vec<u32>,
    every_ns: u64,
    done: u64,
}

fn address(subscriber: u32) -> u32 {
    0x0a80_0000 + subscriber
}

/// UDP over IPv4 to a subscriber, from a host and port of the flow's own.
fn frame(subscriber: u32, flow: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&46u16.to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&(0x0a00_0000 + flow).to_be_bytes());
    bytes[30..34].copy_from_slice(&address(subscriber).to_be_bytes());
    bytes[34..38].copy_from_slice(&[(flow >> 8) as u8, flow as u8, 0, 53]);
    bytes
}

impl Core {
    fn new(tree: Tree, link: Link, wire: WireConfig, every_ns: u64) -> Core {
        let number = |name: &str| name.trim_start_matches("subscriber").parse().unwrap_or(0);
        let subscribers: Vec<u32> = tree.leaves.iter().map(|leaf| number(&leaf.name)).collect();
        let rule = |(leaf, &subscriber): (usize, &u32)| {
            let to = u128::from(address(subscriber));
            Filter::new(Family::V4, leaf as u32, leaf as u32).exactly(Field::Dst, to)
        };
        let classifier = Classifier::compile(subscribers.iter().enumerate().map(rule));
        let config = PortConfig { capacity: 1 << 15, ..PortConfig::new(link, wire) };
        let flows =
            subscribers.iter().flat_map(|&s| (0..FLOWS_EACH).map(move |n| frame(s, s * FLOWS_EACH + n)));
        let port = Port::new(config, PortPlan::new(tree, classifier));
        Core { port, frames: flows.collect(), spare: (0..1 << 16).collect(), every_ns, done: 0 }
    }
    fn run(&mut self, packets: u64) {
        let Core { port, frames, spare, every_ns, done } = self;
        for _ in 0..packets {
            *done += 1;
            let now = Instant::from_nanos(*done * *every_ns);
            let mut hear = |Event { meta, kind, .. }: Event<'_>| {
                if kind != EventKind::Taken {
                    spare.push(meta.frame.0);
                }
            };
            port.advance(now, &mut hear);
            let number = spare.pop().unwrap_or(0);
            // Neighbours in time are not neighbours in memory.
            let bytes = &frames[(*done as usize).wrapping_mul(7_919) % frames.len()];
            let key = dissect(bytes).key;
            port.receive(now, BYTES, FrameRef(number), &key, &mut |event: Event<'_>| {
                if event.kind != EventKind::Taken {
                    spare.push(event.meta.frame.0);
                }
            });
        }
    }
}

/// Nanoseconds per packet of all cores together, each with its share of the packets.
fn together(cores: &mut [Core]) -> f64 {
    let each = PACKETS / cores.len() as u64;
    let done: Vec<AtomicU64> = cores.iter().map(|_| AtomicU64::new(0)).collect();
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for (own, core) in cores.iter_mut().enumerate() {
            let done = &done;
            scope.spawn(move || {
                for step in 0..each / AHEAD {
                    while done.iter().any(|other| other.load(Ordering::Acquire) + 1 < step) {
                        std::hint::spin_loop();
                    }
                    core.run(AHEAD);
                    done[own].store(step + 1, Ordering::Release);
                }
            });
        }
    });
    start.elapsed().as_nanos() as f64 / PACKETS as f64
}

fn measure() -> Result<(), String> {
    let node = scene::of(&format!("subscribers-{SUBSCRIBERS}")).ok_or("no such scene")?.node;
    let link = Link::new(RATE, 24, 1_514);
    let words = |error: ParamError| error.to_string();
    let whole = Registry::builtin().build(&node, link).map_err(words)?;
    let mut one = vec![Core::new(whole, link, WireConfig::Regulator { depth_bytes: 32_000 }, EVERY_NS)];
    let doors = Door::all(&link, 2, 32_000, 256_000);
    let lend = doors.iter().map(|door| -> Box<dyn Lend> { Box::new(door.clone()) });
    let trees = spread(&node, link, 32_000, lend.collect()).map_err(words)?;
    let mut two: Vec<Core> =
        trees.into_iter().map(|tree| Core::new(tree, link, WireConfig::Open, 2 * EVERY_NS)).collect();
    let (mut alone, mut both, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (a, b) = (together(&mut one), together(&mut two));
        // The first round fills the queues.
        if round > 0 {
            alone.push(a);
            both.push(b);
            ratios.push(a / b);
        }
    }
    let sent: u64 = two.iter().map(|core| core.port.total().sent_packets).sum();
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    println!("one core  {:.1} ns per packet", median(&mut alone));
    println!("two cores {:.1} ns per packet", median(&mut both));
    println!(
        "two cores / one: {:.2} times ({:.2} to {:.2})",
        median(&mut ratios),
        ratios[0],
        ratios[ROUNDS - 1]
    );
    let whole = one[0].port.total().sent_packets;
    println!(
        "packets sent: {whole} by one, {sent} by two; the link was asked {:.4} times per packet sent",
        doors[0].asked() as f64 / sent as f64
    );
    Ok(())
}

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

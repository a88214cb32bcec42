//! What a port costs per packet, from the bytes of a frame to the last bit, in instructions:
//! `valgrind --tool=callgrind --toggle-collect='*run_packets*' port_cost [link|bucket|open] PACKETS
//! [fifoq|cbq|hfsc] FLOWS FILTERS`. CBQ and HFSC have 20 leaves. Twice as many packets less the same once
//! leaves out the start.
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::packet::{Family, FrameRef, dissect};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{Link, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry};
use weir_core::units::{Fraction, Instant, Rate};

#[derive(Default)]
struct Host {
    left_bytes: u64,
    last_ns: u64,
    dropped: u64,
    spare: Vec<u32>,
}
impl Host {
    fn hear(&mut self, event: Event<'_>) {
        let Event { at, meta, kind } = event;
        match kind {
            EventKind::Taken => self.last_ns = at.as_nanos(),
            EventKind::Sent => {
                self.left_bytes += u64::from(meta.len);
                self.last_ns = at.as_nanos();
                self.spare.push(meta.frame.0);
            }
            EventKind::Dropped(_) => {
                self.dropped += 1;
                self.spare.push(meta.frame.0);
            }
        }
    }
}

#[inline(never)]
fn run_packets(port: &mut Port, host: &mut Host, frames: &[Vec<u8>], packets: u32) {
    for n in 0..packets {
        let now = Instant::from_nanos(u64::from(n) * 1_000);
        port.advance(now, &mut |event| host.hear(event));
        let frame = FrameRef(host.spare.pop().unwrap_or(0));
        // Neighbours in time are not neighbours in memory.
        let bytes = &frames[(n as usize).wrapping_mul(7_919) % frames.len()];
        let key = dissect(bytes).key;
        port.receive(now, 1_000, frame, &key, &mut |event| host.hear(event));
    }
}

/// A flow's frame: UDP over IPv4, from a port and to an address of its own.
fn frame(flow: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&46u16.to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&(0x0a00_0000 + flow / 1_000).to_be_bytes());
    bytes[30..34].copy_from_slice(&(0x0a80_0000 + flow % 1_000).to_be_bytes());
    bytes[34..38].copy_from_slice(&[(flow >> 8) as u8, flow as u8, 0, 53]);
    bytes
}

fn node(discipline: &str) -> Node {
    let class = |n: u32, name: String, parent, params: Params| ClassConfig {
        name,
        parent,
        params: if n == 0 { params.with("default", Value::Flag) } else { params },
        queue: None,
    };
    let share = |parts: u64| Value::Fraction(Fraction::ratio(parts, 100));
    let mut classes = Vec::new();
    if discipline == "cbq" {
        let all = Params::new().with("pbandwidth", share(100));
        classes.push(ClassConfig { name: "root".into(), parent: None, params: all, queue: None });
    }
    if discipline != "fifoq" {
        classes.extend((0..20).map(|n| {
            let (parent, params) = match discipline {
                "cbq" => (Some(0), Params::new().with("pbandwidth", share(4)).with("borrow", Value::Flag)),
                _ => (None, Params::new().with("bandwidth", Value::Rate(Rate::from_mbps(300)))),
            };
            class(n, format!("c{n}"), parent, params)
        }));
    }
    Node { discipline: discipline.into(), params: Params::new(), classes }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let wire = match args.next().as_deref() {
        Some("bucket") => WireConfig::Regulator { depth_bytes: 10_000 },
        Some("open") => WireConfig::Open,
        _ => WireConfig::Link { ring: 4, refill: Refill::Packet },
    };
    let mut number = |default| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let packets = number(100_000);
    let discipline = args.next().unwrap_or_else(|| "fifoq".into());
    let mut number = |default| args.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (flows, filters) = (number(64), number(1_000));
    let link = Link::new(Rate::from_bps(7_900_000_000), 24, 1_514);
    let tree =
        Registry::builtin().build(&node(&discipline), link).expect("nothing that it needs is left out");
    // Four hosts in five have a filter of their own.
    let rule = |n: u32| {
        let filter =
            Filter::new(Family::V4, n % 20, n).exactly(Field::Dst, u128::from(0x0a80_0000 + n * 5 / 4));
        filter.exactly(Field::Protocol, 17)
    };
    let frames: Vec<Vec<u8>> = (0..flows).map(frame).collect();
    let classifier = Classifier::compile((0..filters).map(rule));
    let mut port = Port::new(PortConfig::new(link, wire), PortPlan::new(tree, classifier));
    let mut host = Host { spare: (0..4096).collect(), ..Host::default() };
    run_packets(&mut port, &mut host, &frames, packets);
    println!(
        "{} bytes left, the last at {} ns, {} packets dropped",
        host.left_bytes, host.last_ns, host.dropped
    );
}

//! The whole path of a packet through a port: the bytes of a frame in, the event that it has left out.

use crate::Bed;
use crate::scene::cbq;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::meter::{Action, Conditioners, Meter};
use weir_core::packet::{Dscp, Family, FrameRef, dissect};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{Link, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry};
use weir_core::units::{Instant, Rate};

const FILTERS: u32 = 1_000;
const BYTES: u32 = 1_000;
/// Frames from one that comes to the next.
const STRIDE: usize = 7_919;
/// A packet arrives in so many nanoseconds: a little more than the link carries, so that packets wait.
const EVERY_NS: u64 = 1_000;
const RATE: Rate = Rate::from_bps(7_900_000_000);

#[derive(Default)]
struct Host {
    left_bytes: u64,
    last_ns: u64,
    spare: Vec<u32>,
}

impl Host {
    fn hear(&mut self, Event { at, meta, kind }: Event<'_>) {
        self.last_ns = at.as_nanos();
        match kind {
            EventKind::Taken => {}
            EventKind::Sent => {
                self.left_bytes += u64::from(meta.len);
                self.spare.push(meta.frame.0);
            }
            EventKind::Dropped(_) => self.spare.push(meta.frame.0),
        }
    }
}

/// A port that is always a little overloaded.
pub struct PortBed {
    port: Port,
    host: Host,
    frames: Vec<Vec<u8>>,
    /// The frame that comes next.
    next: usize,
    sent: u64,
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

/// 20 classes, each guaranteed 300 Mbit/s.
fn hfsc() -> Node {
    let class = |n: u32| {
        let params = Params::new().with("bandwidth", Value::Rate(Rate::from_mbps(300)));
        let params = if n == 0 { params.with("default", Value::Flag) } else { params };
        ClassConfig { name: format!("c{n}"), parent: None, params, queue: None }
    };
    Node { discipline: "hfsc".into(), params: Params::new(), classes: (0..20).map(class).collect() }
}

/// Everything is measured by RFC 2698's meter and marked AF11, AF12 or AF13.
fn conditioners() -> Result<Conditioners, String> {
    let part = |of_ten: u64| Rate::from_bps(RATE.as_bps() / 10 * of_ten);
    let meter = Meter::TwoRate {
        rate: part(5),
        burst: 80_000,
        peak: part(8),
        peak_burst: 80_000,
        aware: false,
        rfc4115: false,
    };
    let actions =
        ["AF11", "AF12", "AF13"].iter().filter_map(|name| Dscp::from_name(name)).map(Action::Mark).collect();
    let all = Classifier::compile([Filter::new(Family::V4, 0, 0)]);
    Conditioners::new(all, &[("marker".into(), Action::Meter { meter, actions })])
        .map_err(|error| error.to_string())
}

impl PortBed {
    /// `fifo-open`, `fifo-regulator`, `cbq-20-link`, `cbq-20-conditioned` or `hfsc-20-regulator`, whose packets are
    /// of so many flows.
    ///
    /// # Errors
    /// Why there is none.
    pub fn new(registry: &Registry, name: &str, flows: u32) -> Result<Self, String> {
        let wire = match name {
            "fifo-open" => WireConfig::Open,
            "fifo-regulator" | "hfsc-20-regulator" => WireConfig::Regulator { depth_bytes: 10_000 },
            "cbq-20-link" | "cbq-20-conditioned" => WireConfig::Link { ring: 4, refill: Refill::Packet },
            _ => return Err(format!("no such path as `{name}`")),
        };
        let node = match name.split('-').next() {
            Some("cbq") => cbq(20).node,
            Some("hfsc") => hfsc(),
            _ => Node { discipline: "fifoq".into(), ..Node::default() },
        };
        let link = Link::new(RATE, 24, 1_514);
        let tree = registry.build(&node, link).map_err(|error| error.to_string())?;
        // Four hosts in five have a filter of their own.
        let rule = |n: u32| {
            let to = u128::from(0x0a80_0000 + n * 5 / 4);
            let leaf = if tree.leaves.len() > 1 { n % 20 } else { 0 };
            Filter::new(Family::V4, leaf, n).exactly(Field::Dst, to).exactly(Field::Protocol, 17)
        };
        let classifier = Classifier::compile((0..FILTERS).map(rule));
        let mut plan = PortPlan::new(tree, classifier);
        if name.ends_with("-conditioned") {
            plan.conditioners = Some(conditioners()?);
        }
        let port = Port::new(PortConfig::new(link, wire), plan);
        let host = Host { spare: (0..4_096).collect(), ..Host::default() };
        Ok(PortBed { port, host, frames: (0..flows).map(frame).collect(), next: 0, sent: 0 })
    }
}

impl Bed for PortBed {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        let PortBed { port, host, frames, next, sent } = self;
        // Neighbours in time are not neighbours in memory.
        let step = STRIDE % frames.len();
        for _ in 0..count {
            *sent += 1;
            let now = Instant::from_nanos(*sent * EVERY_NS);
            port.advance(now, &mut |event| host.hear(event));
            let frame = FrameRef(host.spare.pop().unwrap_or(0));
            *next += step;
            if *next >= frames.len() {
                *next -= frames.len();
            }
            let bytes = &frames[*next];
            let headers = dissect(bytes);
            port.receive(now, BYTES, frame, &headers.key, &mut |event| host.hear(event));
        }
        if host.left_bytes == 0 { Err("nothing left the port".into()) } else { Ok(()) }
    }
}

//! How exact `weir up` is, beside the kernel's htb, on one testbed in one run.
//!
//! Two hosts, and between them in turn `weir up` itself, with a file and its usual priority, and the
//! kernel's bridge with `tc htb` of the same tree, bucket and queues. What is asked of both:
//!
//! - *Shares*: a class with 60 % of the link, full of one TCP stream of the kernel's (CUBIC), and one
//!   with 40 %, offered a quarter more than that in paced UDP; neither may borrow. Each class keeps its rate over every
//!   second. In any 1 ms and 10 ms no more passes than rate × time, the bucket, and one packet.
//! - *Premium*: 500 small packets a second before four TCP streams and a flood of UDP in four sizes,
//!   twice the link together. They are in the box for one full-size packet's time and 0.3 ms at most,
//!   at the 99th percentile.
//!
//! Times are the kernel's ([`weir_sys::capture`]), taken beside the box: at the far end of its two
//! virtual cables, as a frame leaves the cable's near end. So they leave out the hosts, and the
//! bridges that lead to them. Rates count frames without overhead (`overhead 0`), because htb counts
//! overhead once for an aggregate. An aggregate counts as the packets that it is.

mod judge;
pub(crate) mod node;
mod report;
mod scene;

pub use report::{AccuracyReport, Row, Told};
pub use scene::{RATES, Scene, Stands, What, scenes};

use crate::bed::{Bed, BedHost, BedPlan, SIDES, possible_here};
use crate::capacity;
use crate::error::Error;
use crate::flow::{ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use crate::node::{NodeError, Order, Program};
use node::{Heard, Listen};
use report::Sample;
use scene::{PREMIUM, STREAM};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use weir_core::units::Duration;
use weir_sys::now;

/// Windows in which bursts are looked for.
const WINDOWS_NS: [u64; 2] = [1_000_000, 10_000_000];
/// Every second that begins so often is looked at.
const STEP_NS: u64 = 100_000_000;
/// From the order to the first packet.
const LEAD: Duration = Duration::from_millis(40);
/// Source ports: so many for a scene, from the first to the last.
const PORTS: u16 = 16;
const FIRST_PORT: u16 = 20_000;
const LAST_PORT: u16 = 60_000;

const SENDER: &str = "a";
const RECEIVER: &str = "b";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// Routed to the receiver and not its own: its kernel drops what comes for it, and answers nothing.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

/// What to measure.
pub struct Asked {
    /// Rounds: each figure is judged over all of them.
    pub rounds: usize,
    /// The scenes, in this order.
    pub scenes: Vec<Scene>,
    /// The command `weir`.
    pub weir: PathBuf,
    /// How nodes are started.
    pub program: Program,
}

/// Two hosts with their offloads on or off, and what their testbed carries without shaping, bit/s.
struct Prepared {
    bed: Bed,
    offloads: bool,
    carries_bps: f64,
}

/// Measures all scenes of these rates, `rounds` times each. `progress` hears what is being measured.
///
/// # Errors
/// Not root, or something of the testbed broke.
pub fn accuracy(order: &Asked, progress: &mut dyn FnMut(&str)) -> Result<AccuracyReport, Error> {
    possible_here()?;
    let hosts_cpu = crate::bed::hosts_processor();
    let mut beds = Vec::new();
    for offloads in [false, true] {
        progress(&format!("what the testbed carries, offloads {}", if offloads { "on" } else { "off" }));
        beds.push(prepare(offloads, hosts_cpu, &order.program)?);
    }
    let mut measured: Vec<(Scene, Vec<Sample>)> =
        order.scenes.iter().map(|scene| (*scene, Vec::with_capacity(order.rounds))).collect();
    let (mut said, mut ports) = (String::new(), FIRST_PORT);
    for round in 1..=order.rounds {
        for (scene, samples) in &mut measured {
            progress(&format!("round {round} of {}: {scene}", order.rounds));
            let Some(prepared) = beds.iter_mut().find(|p| p.offloads == scene.offloads) else { continue };
            let began = prepared.bed.call_box("accuracy-begin", json!(scene.stand(&order.weir)))?;
            if let Some(line) = began.as_str().filter(|line| !line.is_empty()) {
                said = line.to_string();
            }
            // A connection of the scene before may still be in the kernel: no port is used again soon.
            ports = if ports > LAST_PORT { FIRST_PORT } else { ports + PORTS };
            let sample = prepared.bed.ready().and_then(|()| measure(&mut prepared.bed, scene, ports));
            prepared.bed.call_box("accuracy-end", Value::Null)?;
            samples.push(sample?);
        }
    }
    let carries = beds.iter().map(|p| (p.offloads, p.carries_bps)).collect::<Vec<_>>();
    Ok(AccuracyReport::of(&measured, &carries, said))
}

fn prepare(offloads: bool, hosts_cpu: Option<usize>, program: &Program) -> Result<Prepared, Error> {
    let host =
        |name: &str, address| BedHost { name: name.into(), address, address6: None, settings: Vec::new() };
    let plan = BedPlan {
        sides: vec![vec![host(SENDER, ADDRESSES[0])], vec![host(RECEIVER, ADDRESSES[1])]],
        mtu: 1500,
        offloads,
        hosts_cpu,
    };
    let mut bed = Bed::build(&plan, program)?;
    let carries_bps = capacity::measure(&mut bed, &plan, [0, 1], 0)?;
    // The second host has the second address of the testbed's numbering.
    bed.host(SENDER)?.tell(&Order::Ip(format!(
        "route add {NOBODY}/32 dev eth0 scope link\nneigh add {NOBODY} lladdr 02:00:00:00:00:02 dev eth0 nud permanent\n"
    )))?;
    Ok(Prepared { bed, offloads, carries_bps })
}

fn measure(bed: &mut Bed, scene: &Scene, ports: u16) -> Result<Sample, NodeError> {
    let t0 = now() + LEAD;
    let from = t0 + scene.warm_up();
    let (from_ns, to_ns) = (from.as_nanos(), (from + scene.counted()).as_nanos());
    let patience =
        std::time::Duration::from_nanos(to_ns - now().as_nanos()) + std::time::Duration::from_secs(20);
    let premium = scene.what == What::Premium;
    let listen = |out, rate_bps, classes| {
        let interface = "box".into();
        let numbered = if premium { PREMIUM } else { 0 };
        let listen = Listen { interface, out, from_ns, to_ns, rate_bps, classes, numbered };
        Order::Call { name: "accuracy-listen".into(), with: json!(listen) }
    };
    bed.side(1).ask(&listen(false, scene.rate_bps, scene.classes()))?;
    if premium {
        bed.side(0).ask(&listen(true, 0, Vec::new()))?;
    }
    let (t0_ns, end_ns) = (t0.as_nanos(), to_ns + 20_000_000);
    let streams: Vec<u16> = (0..scene.streams()).map(|n| ports + n).collect();
    let receiver = ReceiverSpec {
        kind: ReceiverKind::Tcp,
        port: STREAM,
        ipv6: false,
        flows: streams.iter().map(|&port| (port, None)).collect(),
        tos: 0,
        t0_ns,
        cell_ns: 1_000_000_000,
        end_ns,
        quick_ack: false,
    };
    bed.host(RECEIVER)?.tell(&Order::Receive(receiver))?;
    let sender = |to: (Ipv4Addr, u16), from_port, traffic| SenderSpec {
        to: to.into(),
        from_port,
        tos: 0,
        active: vec![(t0_ns, end_ns)],
        end_ns,
        traffic,
    };
    for &port in &streams {
        let traffic = Traffic::Tcp {
            congestion: "cubic".into(),
            mss_bytes: scene.mss_bytes(),
            chunk: None,
            unsent_bytes: (scene.rate_bps < 200_000_000).then_some(16_384),
        };
        bed.host(SENDER)?.tell(&Order::Send(sender((ADDRESSES[1], STREAM), port, traffic)))?;
    }
    for (index, (port, frame_bytes, bps)) in scene.datagrams().into_iter().enumerate() {
        let traffic = scene::paced(frame_bytes, bps);
        bed.host(SENDER)?.tell(&Order::Send(sender((NOBODY, port), ports + 8 + index as u16, traffic)))?;
    }
    let late = now() > t0;
    let far: Heard = heard(bed.side(1).answer(patience)?)?;
    let near = match premium {
        true => heard(bed.side(0).answer(patience)?)?,
        false => Heard::default(),
    };
    for name in [SENDER, RECEIVER] {
        bed.host(name)?.ask(&Order::Collect)?;
    }
    for name in [SENDER, RECEIVER] {
        bed.host(name)?.answer(patience)?;
    }
    Ok(Sample::of(scene, &near, &far, late))
}

fn heard(answer: Value) -> Result<Heard, NodeError> {
    serde_json::from_value(answer).map_err(|e| NodeError { node: SIDES[1].into(), what: e.to_string() })
}

//! The data plane beside the kernel's own, on one testbed in one run.
//!
//! Between the same pair of hosts stand, in turn and in every round: the kernel's bridge, the same
//! with `tc htb` of 20 classes and with `tc tbf` on its egress, and Weir's bridge without a
//! discipline, with a FIFO, and with CBQ of 20 leaves, the last one also by AF_XDP. Nothing limits the rate: what is measured is
//! the cost of the way. Then both directions are loaded at once (`both`), with one worker and with two.
//!
//! What keeps the comparison fair:
//! - The generator writes frames past its host's network stack, on a processor of its own.
//! - By itself the kernel forwards on the generator's processor. So two rows have its work moved to
//!   the second processor (RPS), where Weir's worker runs.
//! - Processor time per packet is what is missing to a thread of the idle class on each processor,
//!   at a low rate, where each burst is a wake-up, and at half of what htb carries here. What it takes to make a
//!   packet and to lead it to the box is measured with the box's interface down, and taken off. The rest is
//!   divided by the packets that arrived.
//! - No bridge of the testbed, the kernel's own in the box included, goes through the packet filter's hooks.
//! - All packets of the generator go to one class, for htb and for CBQ.
//!
//! Absolute figures belong to the machine; the rows are to be held against each other.

mod both;
mod figure;
pub(crate) mod node;
mod report;

pub use both::{BothRow, BothSample};
pub use figure::{Figure, Target, Verdict};
pub use report::{BenchReport, Row, Sample};

use crate::bed::{Bed, BedHost, BedPlan, possible_here};
use crate::error::Error;
use crate::flow::{FlowReport, ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use crate::node::{NodeError, Order, Program};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use weir_core::units::Duration;
use weir_engine::state::FailState;
use weir_sys::{now, sleep_until};

/// What stands in the box.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The kernel's bridge.
    Kernel,
    /// The same, on the worker's processor.
    KernelRps,
    /// The kernel's bridge with `tc htb` of 20 classes.
    KernelHtb,
    /// The same, on the worker's processor.
    KernelHtbRps,
    /// The kernel's bridge with `tc tbf`.
    KernelTbf,
    /// Weir without a discipline: frames pass.
    WeirPlain,
    /// Weir with a FIFO.
    WeirFifo,
    /// Weir with CBQ of 20 leaves.
    WeirCbq,
    /// The same, by AF_XDP: the worker sleeps until frames come.
    WeirXdp,
    /// The same, by AF_XDP with busy polling.
    WeirXdpBusy,
}

impl Mode {
    /// All, in the order of the table.
    pub const ALL: [Mode; 10] = [
        Mode::Kernel,
        Mode::KernelRps,
        Mode::KernelHtb,
        Mode::KernelHtbRps,
        Mode::KernelTbf,
        Mode::WeirPlain,
        Mode::WeirFifo,
        Mode::WeirCbq,
        Mode::WeirXdp,
        Mode::WeirXdpBusy,
    ];
    /// As JSON and the command line call it.
    pub fn key(self) -> String {
        serde_json::to_value(self).ok().and_then(|key| key.as_str().map(String::from)).unwrap_or_default()
    }
    /// As the table calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Kernel => "kernel bridge",
            Mode::KernelRps => "kernel bridge, RPS",
            Mode::KernelHtb => "kernel bridge, htb, 20 classes",
            Mode::KernelHtbRps => "kernel bridge, htb, RPS",
            Mode::KernelTbf => "kernel bridge, tbf",
            Mode::WeirPlain => "weir bridge, no discipline",
            Mode::WeirFifo => "weir bridge, FIFO",
            Mode::WeirCbq => "weir bridge, CBQ of 20 leaves",
            Mode::WeirXdp => "weir bridge, CBQ, AF_XDP",
            Mode::WeirXdpBusy => "weir bridge, CBQ, AF_XDP busy polling",
        }
    }
}

/// How long each part lasts.
const BLAST: Duration = Duration::from_millis(600);
/// Of that, what is counted: the end is left out, because orders take their time.
const COUNTED: Duration = Duration::from_millis(450);
const STREAM: Duration = Duration::from_millis(1000);
const PINGS: u32 = 100;
/// The low rate at which processor time is measured, packets a second, and for how long.
const LOW_PPS: u64 = 40_000;
const SOAKED: Duration = Duration::from_millis(500);
/// How long a node may take to answer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// Left out at the beginning, while windows open and caches fill.
const WARM_UP: Duration = Duration::from_millis(300);

const SENDER: &str = "a";
const RECEIVER: &str = "b";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// An address that is routed to the receiver and not its own: its kernel drops what comes for it
/// at the earliest point, so that the receiver costs next to nothing.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

/// What is to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    /// What stands in the box, in turn.
    pub modes: Vec<Mode>,
    /// Whether both directions are loaded at once, too.
    pub both_ways: bool,
}

impl Rows {
    /// As what rows of [`Rows::both_ways`] are asked for.
    pub const BOTH_WAYS: &'static str = "both-ways";

    /// Those of these names, as JSON has them; all without names.
    ///
    /// # Errors
    /// A name that no row has.
    pub fn of(names: &[String]) -> Result<Rows, String> {
        let mut rows = Rows { modes: Vec::new(), both_ways: names.is_empty() };
        for name in names {
            match Mode::ALL.into_iter().find(|mode| mode.key() == *name) {
                Some(mode) => rows.modes.push(mode),
                None if name == Rows::BOTH_WAYS => rows.both_ways = true,
                None => {
                    let keys = Mode::ALL.map(Mode::key).join(" ");
                    return Err(format!("no row `{name}`; there are {keys} {}", Rows::BOTH_WAYS));
                }
            }
        }
        if names.is_empty() {
            rows.modes = Mode::ALL.to_vec();
        }
        Ok(rows)
    }
}

/// Measures `rows`, `rounds` times each. `progress` hears what is being measured.
pub fn bench(
    rows: &Rows,
    rounds: usize,
    program: &Program,
    progress: &mut dyn FnMut(&str),
) -> Result<BenchReport, Error> {
    let ([hosts_cpu, cpu], mut bed) = build(program)?;
    let mut measured: Vec<Vec<Sample>> = vec![Vec::new(); rows.modes.len()];
    let mut both_ways = [Vec::new(), Vec::new()];
    progress("what htb carries");
    let rates = [LOW_PPS, half_of_htb(&mut bed, cpu)?];
    for round in 1..=rounds {
        // Modes take turns within a round, so that a slow moment of the machine hits them all.
        progress(&format!("round {round} of {rounds}: the generator alone"));
        bed.boxed().tell(&Order::Ip("link set dev left down\n".into()))?;
        let alone = rates.map(|pps| busy(&mut bed, [hosts_cpu, cpu], pps));
        bed.boxed().tell(&Order::Ip("link set dev left up\n".into()))?;
        bed.ready()?;
        for (&mode, samples) in rows.modes.iter().zip(&mut measured) {
            progress(&format!("round {round} of {rounds}: {}", mode.name()));
            bed.call_box("bench-begin", json!({ "mode": mode, "cpu": cpu }))?;
            let sample = measure(&mut bed).and_then(|mut sample| {
                for ((us, pps), alone) in
                    [&mut sample.cpu_us, &mut sample.cpu_half_us].into_iter().zip(rates).zip(&alone)
                {
                    let with = busy(&mut bed, [hosts_cpu, cpu], pps)?;
                    let before = alone.as_ref().map_err(Clone::clone)?;
                    *us = (with.processors - before.processors) * 1e6 / with.pps;
                }
                Ok(sample)
            });
            bed.call_box("bench-end", Value::Null)?;
            samples.push(sample?);
        }
        for (workers, samples) in both::WORKERS.into_iter().zip(&mut both_ways).filter(|_| rows.both_ways) {
            progress(&format!("round {round} of {rounds}: both ways, workers {workers}"));
            samples.push(both::measure(&mut bed, workers, [hosts_cpu, cpu])?);
        }
    }
    let report = BenchReport::of(&rows.modes, &measured).map_err(Error::Broke)?;
    Ok(if rows.both_ways { report.with_both_ways(&both_ways) } else { report })
}

/// Packets that a way in carries on this machine, between two pairs of interfaces of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Carried {
    /// What stood in the box.
    pub mode: Mode,
    /// The way, as the box said it.
    pub way: String,
    /// What becomes of the traffic without the box.
    pub without: FailState,
    /// Packets of 60 bytes that passed, a second.
    pub pps_60: f64,
    /// Packets of 1514 bytes that passed, a second.
    pub pps_1514: f64,
}

/// Measures once, within some seconds, how many packets a second pass. A mode that cannot be had here
/// tells why.
///
/// # Errors
/// There is no testbed here.
pub fn carried(modes: &[Mode], program: &Program) -> Result<Vec<Result<Carried, String>>, Error> {
    let ([_, cpu], mut bed) = build(program)?;
    let mut all = Vec::new();
    for &mode in modes {
        let begun = bed.call_box("bench-begin", json!({ "mode": mode, "cpu": cpu }));
        let one = begun.and_then(|said| {
            let pps = [packets(&mut bed, 60)?, packets(&mut bed, 1514)?];
            Ok((said, pps))
        });
        let one = one.map_err(|e| e.to_string()).and_then(|(said, [pps_60, pps_1514])| {
            let way = said["way"].as_str().unwrap_or_default().to_string();
            let without = serde_json::from_value(said["without"].clone()).map_err(|e| e.to_string())?;
            Ok(Carried { mode, way, without, pps_60, pps_1514 })
        });
        bed.call_box("bench-end", Value::Null)?;
        all.push(one);
    }
    Ok(all)
}

/// The testbed: the processors of the hosts and of the box, and the hosts with their routes.
fn build(program: &Program) -> Result<([usize; 2], Bed), Error> {
    possible_here()?;
    let [hosts_cpu, cpu] = two_processors();
    let host =
        |name: &str, address| BedHost { name: name.into(), address, address6: None, settings: Vec::new() };
    let plan = BedPlan {
        sides: vec![vec![host(SENDER, ADDRESSES[0])], vec![host(RECEIVER, ADDRESSES[1])]],
        mtu: 1500,
        offloads: true,
        hosts_cpu: Some(hosts_cpu),
    };
    let mut bed = Bed::build(&plan, program)?;
    // The second host has the second address of the testbed's numbering.
    bed.host(SENDER)?.tell(&Order::Ip(format!(
        "route add {NOBODY}/32 dev eth0 scope link\nneigh add {NOBODY} lladdr 02:00:00:00:00:02 dev eth0 nud permanent\n"
    )))?;
    Ok(([hosts_cpu, cpu], bed))
}

/// The generator's processor, and the worker's: the same where there is only one.
fn two_processors() -> [usize; 2] {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    [0, count.min(2) - 1]
}

/// Half of the packets of 60 bytes a second that htb carries beside the generator, in thousands.
fn half_of_htb(bed: &mut Bed, cpu: usize) -> Result<u64, NodeError> {
    bed.call_box("bench-begin", json!({ "mode": Mode::KernelHtb, "cpu": cpu }))?;
    let carried = packets(bed, 60);
    bed.call_box("bench-end", Value::Null)?;
    Ok((carried? / 2e3).max(1.0) as u64 * 1000)
}

/// What the processors did while packets were sent.
struct Busy {
    /// How much of the two was busy, in processors.
    processors: f64,
    /// Packets a second that arrived.
    pps: f64,
}

/// What the two processors do while the sender sends `pps` packets of 60 bytes a second.
fn busy(bed: &mut Bed, cpus: [usize; 2], pps: u64) -> Result<Busy, NodeError> {
    let length_ns = (WARM_UP + SOAKED + WARM_UP).as_nanos();
    let paced = json!({ "size": 60, "length_ns": length_ns, "pps": pps });
    bed.host(SENDER)?.ask(&call("bench-blast", paced))?;
    sleep_until(now() + WARM_UP);
    let first = received(bed)?;
    let order = |cpu: usize| call("bench-soak", json!({ "cpu": cpu, "length_ns": SOAKED.as_nanos() }));
    // The box's node drives its soaker on the worker's processor, the left one's on the other.
    bed.side(0).ask(&order(cpus[0]))?;
    bed.boxed().ask(&order(cpus[1]))?;
    let answers = [bed.side(0).answer(PATIENCE)?, bed.boxed().answer(PATIENCE)?];
    let pps = rate(first, received(bed)?);
    bed.host(SENDER)?.answer(PATIENCE)?;
    Ok(Busy { processors: answers.iter().map(|answer| answer.as_f64().unwrap_or(f64::NAN)).sum(), pps })
}

/// Packets that have arrived at the receiver, and when they were counted, in nanoseconds.
fn received(bed: &mut Bed) -> Result<[u64; 2], NodeError> {
    let answer = bed.host(RECEIVER)?.tell(&call("bench-received", Value::Null))?;
    Ok(["packets", "at_ns"].map(|name| answer[name].as_u64().unwrap_or(0)))
}

/// Packets a second between two counts.
fn rate(first: [u64; 2], last: [u64; 2]) -> f64 {
    (last[0] - first[0]) as f64 * 1e9 / (last[1] - first[1]).max(1) as f64
}

fn measure(bed: &mut Bed) -> Result<Sample, NodeError> {
    let ping = bed.host(SENDER)?.tell(&call("bench-ping", json!(PINGS)))?;
    let us = |name: &str| ping[name].as_f64().unwrap_or(f64::NAN);
    Ok(Sample {
        ping_mean_us: us("mean_us"),
        ping_least_us: us("least_us"),
        ping_p99_us: us("p99_us"),
        pps_60: packets(bed, 60)?,
        pps_1514: packets(bed, 1514)?,
        tcp_bps: stream(bed)?,
        cpu_us: f64::NAN,
        cpu_half_us: f64::NAN,
    })
}

fn call(name: &str, with: Value) -> Order {
    Order::Call { name: name.into(), with }
}

/// Packets a second that reach the receiver while more are sent than can pass.
fn packets(bed: &mut Bed, size: u32) -> Result<f64, NodeError> {
    let length_ns = (WARM_UP + BLAST).as_nanos();
    bed.host(SENDER)?.ask(&call("bench-blast", json!({ "size": size, "length_ns": length_ns })))?;
    sleep_until(now() + WARM_UP);
    let first = received(bed)?;
    sleep_until(now() + COUNTED);
    let last = received(bed)?;
    bed.host(SENDER)?.answer(PATIENCE)?;
    Ok(rate(first, last))
}

/// Payload a second of one greedy CUBIC stream.
fn stream(bed: &mut Bed) -> Result<f64, NodeError> {
    let t0_ns = now().as_nanos() + 20_000_000;
    let end_ns = t0_ns + (WARM_UP + STREAM).as_nanos();
    let cell_ns = 10_000_000;
    let receiver = ReceiverSpec {
        kind: ReceiverKind::Tcp,
        port: 5001,
        ipv6: false,
        flows: vec![(20_000, None)],
        tos: 0,
        t0_ns,
        cell_ns,
        end_ns,
        quick_ack: false,
    };
    let sender = SenderSpec {
        to: (ADDRESSES[1], 5001).into(),
        from_port: 0,
        tos: 0,
        active: vec![(t0_ns, end_ns)],
        end_ns,
        traffic: Traffic::Tcp {
            congestion: "cubic".into(),
            mss_bytes: None,
            chunk: None,
            unsent_bytes: None,
        },
    };
    bed.host(RECEIVER)?.tell(&Order::Receive(receiver))?;
    bed.host(SENDER)?.tell(&Order::Send(sender))?;
    for name in [SENDER, RECEIVER] {
        bed.host(name)?.ask(&Order::Collect)?;
    }
    bed.host(SENDER)?.answer(PATIENCE)?;
    let seen = bed.host(RECEIVER)?.answer(PATIENCE)?;
    let seen: Vec<FlowReport> = serde_json::from_value(seen).unwrap_or_default();
    let skip = (WARM_UP.as_nanos() / cell_ns) as usize;
    let bytes: u64 = seen.iter().flat_map(|r| r.delivered.iter().skip(skip)).sum();
    Ok(bytes as f64 * 8e9 / STREAM.as_nanos() as f64)
}

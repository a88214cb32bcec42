//! The data plane beside the kernel's own, on one testbed in one run.
//!
//! Between the same pair of hosts stand, in turn and several times over: the kernel's bridge; the
//! same with `tc htb` of 20 classes on its egress; Weir's bridge with a FIFO; Weir's bridge with CBQ
//! of 20 leaves. Nothing limits the rate: what is measured is the cost of the way. Each is asked
//! for packets a second at 60 and 1514 bytes (more is sent than can pass), one TCP stream with
//! segmentation offload, and the round trip of single packets.
//!
//! Absolute figures belong to the machine; the rows are to be held against each other.

pub(crate) mod node;

use crate::bed::{Bed, BedHost, BedPlan, possible_here, processors};
use crate::error::Error;
use crate::flow::{FlowReport, ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use crate::node::{NodeError, Order, Program};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use weir_core::units::Duration;
use weir_sys::{now, sleep_until};

/// What stands in the box.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The kernel's bridge.
    Kernel,
    /// The same, with `tc htb` of 20 classes.
    KernelHtb,
    /// Weir without a discipline: frames pass.
    WeirPlain,
    /// Weir with a FIFO.
    WeirFifo,
    /// Weir with CBQ of 20 leaves.
    WeirCbq,
}

impl Mode {
    /// All, in the order of the table.
    pub const ALL: [Mode; 5] =
        [Mode::Kernel, Mode::KernelHtb, Mode::WeirPlain, Mode::WeirFifo, Mode::WeirCbq];
    /// As the table calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Kernel => "kernel bridge",
            Mode::KernelHtb => "kernel bridge, tc htb, 20 classes",
            Mode::WeirPlain => "weir bridge, no discipline",
            Mode::WeirFifo => "weir bridge, FIFO",
            Mode::WeirCbq => "weir bridge, CBQ of 20 leaves",
        }
    }
}

/// One row: medians over the rounds, but for the least round trip.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What stood in the box.
    pub mode: Mode,
    /// Packets of 60 bytes that passed, a second.
    pub pps_60: f64,
    /// Packets of 1514 bytes that passed, a second.
    pub pps_1514: f64,
    /// Payload of one TCP stream, bit/s.
    pub tcp_bps: f64,
    /// Mean round trip, microseconds.
    pub ping_mean_us: f64,
    /// Least round trip, microseconds.
    pub ping_min_us: f64,
}

/// A figure and what it should be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// What was compared.
    pub what: String,
    /// What is asked.
    pub asked: String,
    /// What came.
    pub measured: f64,
    /// Whether that is enough.
    pub pass: bool,
}

/// The whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BenchReport {
    /// Times that each row was measured.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<Row>,
    /// The comparison.
    pub targets: Vec<Target>,
}

/// How long each part lasts.
const BLAST: Duration = Duration::from_millis(1200);
/// Of that, what is counted: the end is left out, for orders take their time.
const COUNTED: Duration = Duration::from_millis(1000);
const STREAM: Duration = Duration::from_millis(2000);
const PINGS: u32 = 200;
/// Left out at the beginning, while windows open and caches fill.
const WARM_UP: Duration = Duration::from_millis(300);

const SENDER: &str = "a";
const RECEIVER: &str = "b";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
/// An address that is routed to the receiver and not its own: its kernel drops what comes for it
/// at the earliest point, so that the receiver costs next to nothing.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

/// Measures all modes, `rounds` times each. `progress` hears what is being measured.
pub fn bench(rounds: usize, program: &Program, progress: &mut dyn FnMut(&str)) -> Result<BenchReport, Error> {
    possible_here()?;
    let (hosts_cpu, cpu) = processors();
    let host =
        |name: &str, address| BedHost { name: name.into(), address, address6: None, settings: Vec::new() };
    let plan = BedPlan {
        left: vec![host(SENDER, ADDRESSES[0])],
        right: vec![host(RECEIVER, ADDRESSES[1])],
        mtu: 1500,
        offloads: true,
        hosts_cpu,
    };
    let mut bed = Bed::build(&plan, program)?;
    // The second host has the second address of the testbed's numbering.
    bed.host(SENDER)?.tell(&Order::Ip(format!(
        "route add {NOBODY}/32 dev eth0 scope link\nneigh add {NOBODY} lladdr 02:00:00:00:00:02 dev eth0 nud permanent\n"
    )))?;
    let mut measured: Vec<Vec<Row>> = vec![Vec::new(); Mode::ALL.len()];
    for round in 1..=rounds {
        // Modes take turns within a round, so that a slow moment of the machine hits them all.
        for (mode, rows) in Mode::ALL.into_iter().zip(&mut measured) {
            progress(&format!("round {round} of {rounds}: {}", mode.name()));
            bed.call_box("bench-begin", json!({ "mode": mode, "cpu": cpu }))?;
            let row = measure(&mut bed, mode);
            bed.call_box("bench-end", Value::Null)?;
            rows.push(row?);
        }
    }
    BenchReport::of(&measured).map_err(Error::Broke)
}

impl BenchReport {
    /// The report of what was measured: for each of `Mode::ALL`, a row a round.
    ///
    /// # Errors
    /// Why these are no figures: something did not pass at all.
    pub fn of(measured: &[Vec<Row>]) -> Result<BenchReport, String> {
        let rows: Vec<Row> =
            Mode::ALL.into_iter().zip(measured).map(|(mode, rows)| summary(mode, rows)).collect();
        for row in &rows {
            let figures = [row.pps_60, row.pps_1514, row.tcp_bps, row.ping_mean_us, row.ping_min_us];
            if figures.iter().any(|figure| !figure.is_finite() || *figure <= 0.0) {
                let [p60, p1514, tcp, mean, _] = figures;
                return Err(format!(
                    "{}: packets, a stream or echoes did not pass ({p60} and {p1514} packets/s, {tcp} bit/s, {mean} us)",
                    row.mode.name()
                ));
            }
        }
        let targets = targets(&rows);
        Ok(BenchReport { rounds: measured.iter().map(Vec::len).min().unwrap_or(0), rows, targets })
    }
}

fn measure(bed: &mut Bed, mode: Mode) -> Result<Row, NodeError> {
    let ping = bed.host(SENDER)?.tell(&call("bench-ping", json!(PINGS)))?;
    Ok(Row {
        mode,
        pps_60: packets(bed, 60)?,
        pps_1514: packets(bed, 1514)?,
        tcp_bps: stream(bed)?,
        ping_mean_us: ping["mean_us"].as_f64().unwrap_or(f64::NAN),
        ping_min_us: ping["min_us"].as_f64().unwrap_or(f64::NAN),
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
    let count = |bed: &mut Bed| -> Result<(u64, u64), NodeError> {
        let answer = bed.host(RECEIVER)?.tell(&call("bench-received", Value::Null))?;
        Ok((answer["packets"].as_u64().unwrap_or(0), answer["at_ns"].as_u64().unwrap_or(0)))
    };
    let first = count(bed)?;
    sleep_until(now() + COUNTED);
    let last = count(bed)?;
    bed.host(SENDER)?.answer(std::time::Duration::from_secs(10))?;
    Ok((last.0 - first.0) as f64 * 1e9 / (last.1 - first.1).max(1) as f64)
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
    let patience = std::time::Duration::from_secs(10);
    for name in [SENDER, RECEIVER] {
        bed.host(name)?.ask(&Order::Collect)?;
    }
    bed.host(SENDER)?.answer(patience)?;
    let seen = bed.host(RECEIVER)?.answer(patience)?;
    let seen: Vec<FlowReport> = serde_json::from_value(seen).unwrap_or_default();
    let skip = (WARM_UP.as_nanos() / cell_ns) as usize;
    let bytes: u64 = seen.iter().flat_map(|r| r.delivered.iter().skip(skip)).sum();
    Ok(bytes as f64 * 8e9 / STREAM.as_nanos() as f64)
}

fn summary(mode: Mode, rows: &[Row]) -> Row {
    let median = |of: fn(&Row) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Row {
        mode,
        pps_60: median(|r| r.pps_60),
        pps_1514: median(|r| r.pps_1514),
        tcp_bps: median(|r| r.tcp_bps),
        ping_mean_us: median(|r| r.ping_mean_us),
        ping_min_us: rows.iter().map(|r| r.ping_min_us).fold(f64::INFINITY, f64::min),
    }
}

/// What the AF_PACKET data plane with CBQ of 20 leaves should reach.
fn targets(rows: &[Row]) -> Vec<Target> {
    let row = |mode| rows.iter().find(|r| r.mode == mode);
    let (Some(kernel), Some(htb), Some(fifo), Some(cbq)) =
        (row(Mode::Kernel), row(Mode::KernelHtb), row(Mode::WeirFifo), row(Mode::WeirCbq))
    else {
        return Vec::new();
    };
    let at_least = |what: &str, least: f64, measured: f64| Target {
        what: what.into(),
        asked: format!("at least {least}"),
        measured,
        pass: measured >= least,
    };
    let at_most = |what: &str, most: f64, measured: f64| Target {
        what: what.into(),
        asked: format!("at most {most}"),
        measured,
        pass: measured <= most,
    };
    vec![
        at_least("60-byte packets/s, CBQ over htb", 1.0, cbq.pps_60 / htb.pps_60),
        at_least("1514-byte packets/s, CBQ over htb", 0.9, cbq.pps_1514 / htb.pps_1514),
        at_least("one TCP stream with CBQ, Gbit/s", 8.0, cbq.tcp_bps / 1e9),
        at_most("least ping added by CBQ, us", 60.0, cbq.ping_min_us - kernel.ping_min_us),
        at_most("cost of CBQ over FIFO at 60 bytes, part", 0.15, 1.0 - cbq.pps_60 / fifo.pps_60),
    ]
}

impl std::fmt::Display for BenchReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "median of {} rounds; ping: mean (least)", self.rounds)?;
        writeln!(
            f,
            "{:<36}{:>12}{:>12}{:>12}{:>16}",
            "in the box", "60 B kpps", "1514 B kpps", "TCP Gbit/s", "ping us"
        )?;
        for row in &self.rows {
            let ping = format!("{:.0} ({:.0})", row.ping_mean_us, row.ping_min_us);
            writeln!(
                f,
                "{:<36}{:>12.0}{:>12.0}{:>12.1}{:>16}",
                row.mode.name(),
                row.pps_60 / 1e3,
                row.pps_1514 / 1e3,
                row.tcp_bps / 1e9,
                ping
            )?;
        }
        for target in &self.targets {
            let verdict = if target.pass { "reached" } else { "missed" };
            writeln!(f, "{:<44}{:>10.2}   {} {verdict}", target.what, target.measured, target.asked)?;
        }
        Ok(())
    }
}

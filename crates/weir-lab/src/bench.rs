//! The data plane beside the kernel's own, on one testbed in one run.
//!
//! Between the same pair of hosts stand, in turn and several times over: the kernel's bridge; the
//! same with `tc htb` of 20 classes on its egress; Weir's bridge with a FIFO; Weir's bridge with CBQ
//! of 20 leaves. Nothing limits the rate: what is measured is the cost of the way. Each is asked
//! for packets a second at 60 and 1514 bytes (more is sent than can pass), one TCP stream with
//! segmentation offload, and the round trip of single packets.
//!
//! Absolute figures belong to the machine; the rows are to be held against each other.

use crate::bed::{Bed, BedHost, BedPlan, SIDES, possible_here};
use crate::configure::{Built, configure, fifo};
use crate::flow::{FlowReport, ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use crate::node::{self, NodeError, Order, Program};
use crate::run::{Error, processors};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Rate};
use weir_engine::up::{Setup, Side, Up, up};
use weir_engine::{Delay, Pace};
use weir_io::PoolSize;
use weir_sys::icmp::Pinger;
use weir_sys::socket;
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

/// What nodes do for this bench, by name.
pub(crate) fn node_call(name: &str, with: Value, state: &mut node::State) -> Option<Result<Value, String>> {
    Some(match name {
        "bench-begin" => begin(with).map(|up| {
            state.bench = up;
            Value::Null
        }),
        "bench-end" => {
            let stopped =
                state.bench.take().map_or(Ok(()), |up| up.stop().map(|_| ()).map_err(|e| e.to_string()));
            // The kernel's bridge, if it stood, goes with what hangs on it.
            let _ = node::ip("link del dev k\n");
            let _ = tc(&["qdisc", "del", "dev", SIDES[1], "root"]);
            stopped.map(|()| Value::Null)
        }
        "bench-blast" => blast(&with),
        "bench-received" => received(),
        "bench-ping" => ping(&with),
        _ => return None,
    })
}

fn begin(with: Value) -> Result<Option<Up>, String> {
    #[derive(Deserialize)]
    struct Begin {
        mode: Mode,
        cpu: Option<usize>,
    }
    let Begin { mode, cpu } = serde_json::from_value(with).map_err(|e| e.to_string())?;
    let built = match mode {
        Mode::Kernel => return kernel_bridge().map(|()| None),
        Mode::KernelHtb => return htb().and_then(|()| kernel_bridge()).map(|()| None),
        Mode::WeirPlain => None,
        Mode::WeirFifo => Some(fifo(1000)),
        Mode::WeirCbq => {
            Some(configure("cbq of 20 leaves", &cbq_20(), None, fast_link(), &Registry::builtin())?)
        }
    };
    let side = |interface: &str, built: Option<Built>| Side {
        interface: interface.into(),
        port: built.map(|Built { plan, .. }| {
            let wire = WireConfig::Regulator { depth_bytes: 1 << 20 };
            let plan = PortPlan { regulated: Some((fast_link(), wire)), ..plan };
            Port::new(PortConfig::new(fast_link(), wire), plan)
        }),
        delay: Delay::default(),
    };
    up(Setup {
        left: side(SIDES[0], None),
        right: side(SIDES[1], built),
        pool: PoolSize::default(),
        pace: Pace { cpu, ..Pace::default() },
        socket: None,
        observers: [None, None],
    })
    .map(Some)
    .map_err(|e| e.to_string())
}

/// Faster than anything here: the regulator is asked for every packet and never says no.
fn fast_link() -> Link {
    Link::new(Rate::from_bps(100_000_000_000), 24, 65_536)
}

/// Twenty leaves that share 95 % equally, and all borrow; a filter for each, and queues as long as
/// those of the FIFO and of htb.
fn cbq_20() -> String {
    let mut text = String::from("interface em0 bandwidth 100G cbq\nclass cbq em0 root NULL pbandwidth 100\n");
    for n in 0..20 {
        let default = if n == 0 { " default" } else { "" };
        text += &format!("class cbq em0 c{n} root borrow exactbandwidth 4750M qlimit 1000{default}\n");
    }
    for n in 1..20 {
        text += &format!("filter em0 c{n} 0 {} 0 0 6\n", 6000 + n);
    }
    text
}

fn kernel_bridge() -> Result<(), String> {
    let [left, right] = SIDES;
    node::ip(&format!(
        "link add name k type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set dev {left} master k\nlink set dev {right} master k\nlink set dev k up\n"
    ))
}

fn tc(arguments: &[&str]) -> Result<(), String> {
    let done = std::process::Command::new("tc").args(arguments).output().map_err(|e| format!("tc: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("tc {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim()))
}

/// Twenty classes under one that is never full; unmatched packets go to the first.
fn htb() -> Result<(), String> {
    let dev = SIDES[1];
    tc(&["qdisc", "add", "dev", dev, "root", "handle", "1:", "htb", "default", "10"])?;
    let class = |parent: &str, id: &str, rate: &str| {
        let fixed = ["class", "add", "dev", dev, "parent", parent, "classid", id, "htb", "rate", rate];
        let more = ["ceil", "30gbit", "burst", "1m", "cburst", "1m", "quantum", "60000"];
        tc(&[&fixed[..], &more[..]].concat())
    };
    class("1:", "1:1", "30gbit")?;
    for n in 0..20 {
        // Identifiers are hexadecimal.
        class("1:1", &format!("1:{:x}", 16 + n), "1500mbit")?;
    }
    Ok(())
}

/// Sends packets as fast as the kernel takes them.
fn blast(with: &Value) -> Result<Value, String> {
    let size = with["size"].as_u64().unwrap_or(60).clamp(60, 1514) as usize;
    let end = now() + Duration::from_nanos(with["length_ns"].as_u64().unwrap_or(0).min(10_000_000_000));
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 20_000)).map_err(|e| e.to_string())?;
    let to: Ipv4Addr = serde_json::from_value(with["to"].clone()).unwrap_or(NOBODY);
    socket.connect((to, 9)).map_err(|e| e.to_string())?;
    let (payload, mut sent) = (vec![0; size - 42], 0);
    while now() < end {
        sent += socket::send_repeated(&socket, &payload, 64).map_err(|e| e.to_string())?;
    }
    Ok(json!(sent))
}

/// Packets that have arrived at this host.
fn received() -> Result<Value, String> {
    let text = std::fs::read_to_string("/proc/net/dev").map_err(|e| e.to_string())?;
    let line = text.lines().find_map(|l| l.trim().strip_prefix("eth0:")).ok_or("no eth0 here")?;
    let packets: u64 = line.split_whitespace().nth(1).and_then(|w| w.parse().ok()).ok_or("no counter")?;
    Ok(json!({ "packets": packets, "at_ns": now().as_nanos() }))
}

fn ping(with: &Value) -> Result<Value, String> {
    let count = with.as_u64().unwrap_or(100).min(10_000);
    let mut pinger = Pinger::new(ADDRESSES[1]).map_err(|e| e.to_string())?;
    let mut times = Vec::new();
    for _ in 0..count {
        if let Some(time) = pinger.ping(Duration::from_millis(100)).map_err(|e| e.to_string())? {
            times.push(time.as_nanos() as f64 / 1e3);
        }
        sleep_until(now() + Duration::from_millis(2));
    }
    if times.is_empty() {
        return Err("no ping was answered".into());
    }
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let min = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(json!({ "mean_us": mean, "min_us": min }))
}

//! What a node does for the bench: as the box, as the sender, as the receiver.

use super::{ADDRESSES, Mode, NOBODY};
use crate::bed::SIDES;
use crate::configure::{Built, configure, fifo};
use crate::namespace;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, UdpSocket};
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Rate};
use weir_engine::up::{Pair, Side, Up, up};
use weir_engine::{Delay, Pace};
use weir_sys::icmp::Pinger;
use weir_sys::socket;
use weir_sys::{now, sleep_until};

/// What nodes do for this bench, by name.
pub(crate) fn call(name: &str, with: Value, bench: &mut Option<Up>) -> Option<Result<Value, String>> {
    Some(match name {
        "bench-begin" => begin(with).map(|up| {
            *bench = up;
            Value::Null
        }),
        "bench-end" => {
            let last = bench.take().map(Up::stop);
            // The kernel's bridge, if it stood, goes with what hangs on it.
            let _ = namespace::ip("link del dev k\n");
            let _ = tc(&["qdisc", "del", "dev", SIDES[1], "root"]);
            let silent = last.and_then(|last| last.bridges.into_iter().find_map(|bridge| bridge.silent));
            silent.map_or(Ok(Value::Null), Err)
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
    let pair = Pair::new(side(SIDES[0], None), side(SIDES[1], built));
    let pair = Pair { pace: Pace { cpu, ..Pace::default() }, ..pair };
    up(vec![pair]).map(Some).map_err(|e| e.to_string())
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
    namespace::ip(&format!(
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

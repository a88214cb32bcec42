//! What a node does for the bench: as the box, as the sender, as the receiver.

use super::{ADDRESSES, Mode, NOBODY};
use crate::bed::{BRIDGES, SIDES};
use crate::configure::{Built, configure, fifo};
use crate::namespace;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::IoSlice;
use std::net::Ipv4Addr;
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Rate};
use weir_engine::up::{Pair, Side, Up, Way, up};
use weir_engine::{Delay, Pace, Processor};
use weir_sys::icmp::Pinger;
use weir_sys::packet::{OFFLOAD_BYTES, PacketSocket, SendError};
use weir_sys::{now, sleep_until};

/// What nodes do for this bench, by name.
pub(crate) fn call(name: &str, with: Value, bench: &mut Option<Up>) -> Option<Result<Value, String>> {
    Some(match name {
        "bench-begin" => begin(with).map(|up| {
            *bench = up;
            let said = bench.as_ref().and_then(|up| up.snapshot().bridges.into_iter().next());
            said.map_or(Value::Null, |bridge| json!({ "way": bridge.way, "without": bridge.without }))
        }),
        "bench-end" => {
            let last = bench.take().map(Up::stop);
            // What the kernel would carry after the box is not part of the next measurement.
            for side in BRIDGES.into_iter().flatten() {
                let _ = weir_engine::fail_open::remove(side);
            }
            // The kernel's bridge, if it stood, goes with what hangs on it.
            let _ = namespace::ip("link del dev k\n");
            let _ = tc(&["qdisc", "del", "dev", SIDES[1], "root"]);
            let _ = rps(0);
            let _ = defer_interrupts([0, 0]);
            let silent = last.and_then(|last| last.bridges.into_iter().find_map(|bridge| bridge.silent));
            silent.map_or(Ok(Value::Null), Err)
        }
        "bench-blast" => match with["cpu"].as_u64() {
            None => blast(&with),
            Some(cpu) => {
                let pinned = move || {
                    weir_sys::pin_to(cpu as usize).map_err(|e| e.to_string())?;
                    blast(&with)
                };
                std::thread::spawn(pinned).join().unwrap_or_else(|_| Err("the generator ended".into()))
            }
        },
        "bench-carried" => carried(bench.as_ref()),
        "bench-received" => received(),
        "bench-ping" => ping(&with),
        "bench-soak" => soak(&with),
        _ => return None,
    })
}

fn begin(with: Value) -> Result<Option<Up>, String> {
    #[derive(Deserialize)]
    struct Begin {
        mode: Mode,
        cpu: Option<usize>,
        /// Both egresses are managed, by so many workers.
        both: Option<usize>,
        /// Which of the box's bridges.
        #[serde(default)]
        bridge: usize,
    }
    let Begin { mode, cpu, both, bridge } = serde_json::from_value(with).map_err(|e| e.to_string())?;
    let built = match mode {
        Mode::Kernel => return kernel_bridge().map(|()| None),
        Mode::KernelRps => return kernel_bridge().and_then(|()| rps_to(cpu)).map(|()| None),
        Mode::KernelHtb => return htb().and_then(|()| kernel_bridge()).map(|()| None),
        Mode::KernelHtbRps => {
            return htb().and_then(|()| kernel_bridge()).and_then(|()| rps_to(cpu)).map(|()| None);
        }
        Mode::KernelTbf => return tbf().and_then(|()| kernel_bridge()).map(|()| None),
        Mode::WeirPlain => None,
        Mode::WeirFifo => Some(fifo(1000)),
        Mode::WeirCbq | Mode::WeirXdp | Mode::WeirXdpBusy => Some(cbq(&cbq_20())?),
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
    let back = both.is_some().then(|| cbq(&cbq_20())).transpose()?;
    let [left, right] = *BRIDGES.get(bridge).ok_or("no such bridge in the box")?;
    let pair = Pair::new(side(left, back), side(right, built));
    let way = match mode {
        Mode::WeirXdp => Way::Xdp { busy_poll: false },
        Mode::WeirXdpBusy => Way::Xdp { busy_poll: true },
        _ => Way::Packet,
    };
    if mode == Mode::WeirXdpBusy {
        defer_interrupts([2, 200_000])?;
    }
    // As `weir up` has them.
    let count = both.unwrap_or(1);
    let bound = count > 1 || mode == Mode::WeirXdpBusy;
    let processor = |worker| Processor::of_worker(worker, count, bound);
    let workers = (0..count).map(|n| Pace { processor: processor(n), ..Pace::default() }).collect();
    let pair = Pair { way, workers, ..pair };
    up(vec![pair]).map(Some).map_err(|e| e.to_string())
}

fn cbq(text: &str) -> Result<Built, String> {
    configure("cbq of 20 leaves", text, None, fast_link(), &Registry::builtin())
}

/// Packets that have left the box, both ways.
fn carried(up: Option<&Up>) -> Result<Value, String> {
    let bridge = up.and_then(|up| up.snapshot().bridges.pop()).ok_or("there is no bridge")?;
    let packets: u64 = bridge.egresses.iter().map(|egress| egress.sent_packets).sum();
    Ok(json!({ "packets": packets, "at_ns": now().as_nanos() }))
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

pub(crate) fn kernel_bridge() -> Result<(), String> {
    let [left, right] = SIDES;
    namespace::ip(&format!(
        "link add name k type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set dev {left} master k\nlink set dev {right} master k\nlink set dev k up\n"
    ))
}

pub(crate) fn tc(arguments: &[&str]) -> Result<(), String> {
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

/// A bucket that is never empty.
fn tbf() -> Result<(), String> {
    let shape = ["tbf", "rate", "30gbit", "burst", "4m", "limit", "16m"];
    tc(&[&["qdisc", "add", "dev", SIDES[1], "root"][..], &shape[..]].concat())
}

fn rps_to(cpu: Option<usize>) -> Result<(), String> {
    rps(cpu.map_or(0, |cpu| 1 << cpu))
}

/// Has the processors of `mask` do the kernel's work on what the box receives.
fn rps(mask: u64) -> Result<(), String> {
    set_devices(&[("queues/rx-0/rps_cpus", format!("{mask:x}"))])
}

/// Has the box's devices leave out so many interrupts, for so many nanoseconds, once a worker polls
/// them.
fn defer_interrupts([count, nanoseconds]: [u32; 2]) -> Result<(), String> {
    set_devices(&[
        ("napi_defer_hard_irqs", count.to_string()),
        ("gro_flush_timeout", nanoseconds.to_string()),
    ])
}

/// Writes to files of the box's devices. They belong to the namespace in which they are mounted, so
/// they are mounted anew, where nobody else sees it.
fn set_devices(files: &[(&str, String)]) -> Result<(), String> {
    let mut script = String::from("mount --make-rprivate / && mount -t sysfs sysfs /sys");
    for side in SIDES {
        for (file, value) in files {
            script += &format!(" && echo {value} > /sys/class/net/{side}/{file}");
        }
    }
    let done = std::process::Command::new("unshare").args(["-m", "sh", "-c", &script]).output();
    let done = done.map_err(|e| format!("unshare: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("settings of the devices: {}", said.trim())) }
}

/// Frames of one system call.
const TOGETHER: usize = 32;

/// Sends frames as fast as the device takes them, or `pps` of them a second, past the stack.
fn blast(with: &Value) -> Result<Value, String> {
    let size = with["size"].as_u64().unwrap_or(60).clamp(60, 1514) as usize;
    let pace = with["pps"].as_u64();
    let to: Ipv4Addr = serde_json::from_value(with["to"].clone()).unwrap_or(NOBODY);
    let mac = with["mac"].as_str().unwrap_or("02:00:00:00:00:02").to_string();
    let mut socket = PacketSocket::open("eth0", 0).map_err(|e| e.to_string())?;
    let frame = udp_frame(size, &mac, to)?;
    let batch: Vec<_> = (0..TOGETHER).map(|_| [IoSlice::new(&frame), IoSlice::new(&[])]).collect();
    let (mut at, mut sent) = (now(), 0);
    let end = at + Duration::from_nanos(with["length_ns"].as_u64().unwrap_or(0).min(10_000_000_000));
    while at < end {
        match socket.send(&batch) {
            Ok(count) => sent += count,
            Err(SendError::Full | SendError::NoRoom) => std::thread::yield_now(),
            // With the box's interface down the frames end there.
            Err(SendError::LinkDown) => {}
            Err(e) => return Err(format!("the generator cannot send: {e:?}")),
        }
        at = match pace {
            None => now(),
            Some(pps) => {
                let next = at + Duration::from_nanos(TOGETHER as u64 * 1_000_000_000 / pps.max(1));
                sleep_until(next);
                next
            }
        };
    }
    Ok(json!(sent))
}

/// A UDP packet over IPv4 to port 9 of `to`, behind an offload header of zeroes.
fn udp_frame(size: usize, mac: &str, to: Ipv4Addr) -> Result<Vec<u8>, String> {
    let mut frame = vec![0; OFFLOAD_BYTES + size];
    let bytes = &mut frame[OFFLOAD_BYTES..];
    for (byte, text) in bytes.iter_mut().zip(mac.split(':')) {
        *byte = u8::from_str_radix(text, 16).map_err(|e| format!("address {mac}: {e}"))?;
    }
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    bytes[16..18].copy_from_slice(&((size - 14) as u16).to_be_bytes());
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&ADDRESSES[0].octets());
    bytes[30..34].copy_from_slice(&to.octets());
    let words = bytes[14..34].chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes[34..38].copy_from_slice(&[0x4e, 0x20, 0, 9]);
    bytes[38..40].copy_from_slice(&((size - 34) as u16).to_be_bytes());
    Ok(frame)
}

/// The part of a processor's time that a thread of the idle class does not get: it reads the clock without end,
/// and where two readings lie apart something else ran, be it a thread, an interrupt, or another machine. (How far
/// a loop comes meanwhile is no measure: two processors may share one core, and slow each other down.)
fn soak(with: &Value) -> Result<Value, String> {
    let length = Duration::from_nanos(with["length_ns"].as_u64().unwrap_or(0).min(10_000_000_000));
    let cpu = with["cpu"].as_u64().unwrap_or(0) as usize;
    let run = move || -> Result<f64, String> {
        weir_sys::pin_to(cpu).map_err(|e| e.to_string())?;
        weir_sys::be_idle().map_err(|e| e.to_string())?;
        let mut last = now();
        let mut apart = || {
            let this = now();
            (this.since(std::mem::replace(&mut last, this)), this)
        };
        let reading = (0..10_000).map(|_| apart().0).min().unwrap_or_default();
        let (_, began) = apart();
        let mut taken_ns = 0;
        loop {
            let (gap, this) = apart();
            if gap.as_nanos() > 4 * reading.as_nanos().max(25) {
                taken_ns += gap.as_nanos() - reading.as_nanos();
            }
            let spent = this.since(began);
            if spent >= length {
                return Ok(taken_ns as f64 / spent.as_nanos() as f64);
            }
        }
    };
    let thread = std::thread::spawn(run);
    let taken = thread.join().map_err(|_| "the soaker ended".to_string())??;
    Ok(json!(taken))
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
    times.sort_by(f64::total_cmp);
    let p99 = times[(times.len() - 1) * 99 / 100];
    Ok(json!({ "mean_us": mean, "least_us": times[0], "p99_us": p99 }))
}

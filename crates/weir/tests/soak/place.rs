//! A box with hosts whose only traffic is the load, in each of its modes.

use crate::bed::{Bed, Held, inside, wait};
use crate::probes::{Load, Probes};
use crate::support::Run;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::process::Command;
use weir_core::units::{Duration, Instant};

/// How a box comes by its packets, and what becomes of them without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Open,
    TwoWorkers,
    Closed,
    Nfqueue,
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::Open, Mode::TwoWorkers, Mode::Closed, Mode::Nfqueue];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Open => "bridge, fails open",
            Mode::TwoWorkers => "bridge of two workers, fails open",
            Mode::Closed => "bridge, fails closed",
            Mode::Nfqueue => "nfqueue",
        }
    }

    /// A file that gives each of two flows a class, at this rate.
    pub fn conf(self, mbps: u64) -> String {
        let bridged = || format!("interface left0 bandwidth {mbps}M fifoq\n");
        let (attach, back) = match self {
            Mode::Open => ("attach bridge left0", bridged()),
            Mode::TwoWorkers => ("attach bridge left0 workers 2", bridged()),
            Mode::Closed => ("attach bridge left0 fail closed", bridged()),
            Mode::Nfqueue => ("attach nfqueue", String::new()),
        };
        format!(
            "interface right0 bandwidth {mbps}M {attach} priq\n\
             class priq right0 voice NULL priority 1 qlimit 2000\n\
             class priq right0 rest NULL priority 0 default qlimit 2000\n\
             filter right0 voice 0 0 0 {} 17\n{back}",
            Load::SOURCE
        )
    }
}

/// Nobody asks for an address, and nothing but the load is on the wires: then every packet of the
/// box's counters is one of the load.
fn quieten(bed: &Bed, bridge: usize, mode: Mode) {
    let no_v6 = "sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; ";
    let hosts = &bed.hosts[bridge];
    [&hosts.left, &hosts.right].iter().for_each(|host| inside(host, no_v6));
    if mode == Mode::Nfqueue {
        let mut script = format!("{no_v6} sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0; ");
        for (side, address) in [("left0", 1), ("right0", 2)] {
            script += &format!(
                "ip link set {side} address 02:00:00:00:fe:0{address}; ip addr add 10.0.0.25{address}/32 dev {side}; \
                 ip route add 10.0.0.{address}/32 dev {side}; \
                 ip neigh replace 10.0.0.{address} lladdr 02:00:00:00:00:0{address} nud permanent dev {side}; "
            );
        }
        inside(&bed.boxed, &script);
    } else {
        inside(&bed.boxed, no_v6);
    }
    for (host, own, other) in [(&hosts.left, 1, 2), (&hosts.right, 2, 1)] {
        let knows = match mode {
            Mode::Nfqueue => knows(bridge, other, &format!("02:00:00:00:fe:0{own}")),
            _ => knows_the_other(bridge, other),
        };
        inside(host, &knows);
    }
}

/// Tells a host of a bridge the other one's address of layer 2, so that it never asks for it.
pub fn knows_the_other(bridge: usize, other: u8) -> String {
    knows(bridge, other, &format!("02:00:00:00:{bridge:02x}:0{other}"))
}

fn knows(bridge: usize, other: u8, link: &str) -> String {
    format!("ip neigh replace 10.{bridge}.0.{other} lladdr {link} nud permanent dev eth0")
}

/// A quiet bed of so many bridges.
pub fn bed(bridges: usize, mode: Mode) -> Bed {
    let bed = Bed::new(bridges);
    for bridge in 0..bridges {
        quieten(&bed, bridge, mode);
        for (host, box_side) in [(&bed.hosts[bridge].left, "left"), (&bed.hosts[bridge].right, "right")] {
            running(host, "eth0");
            running(&bed.boxed, &format!("{box_side}{bridge}"));
        }
    }
    bed
}

/// Waits until the kernel has seen that a link is up: until then it drops what leaves by it.
pub fn running(of: &Held, interface: &str) {
    let (pid, interface) = (of.0.id(), interface.to_owned());
    std::thread::spawn(move || {
        weir_sys::enter_network_of(pid).unwrap();
        wait("a link that is up", || weir_sys::interface(&interface).is_ok_and(|i| i.running));
    })
    .join()
    .unwrap();
}

/// Probes from left to right, or the other way.
pub fn probes(bed: &Bed, bridge: usize, forth: bool, load: Load) -> Probes {
    let hosts = &bed.hosts[bridge];
    let [left, right] = [1, 2].map(|last| Ipv4Addr::new(10, bridge as u8, 0, last));
    match forth {
        true => Probes::start((&hosts.left, left), (&hosts.right, right), load),
        false => Probes::start((&hosts.right, right), (&hosts.left, left), load),
    }
}

/// The egress of that name as `weir stats -j` shows it; null if there is none or nobody answers.
pub fn egress(bed: &Bed, name: &str) -> Value {
    let run = bed.ask(&["stats", "-j"]);
    if run.code != 0 {
        return Value::Null;
    }
    let stats = run.json();
    let bridges = stats["bridges"].as_array().cloned().unwrap_or_default();
    let mut all = bridges.iter().flat_map(|b| b["egresses"].as_array().unwrap());
    all.find(|e| e["interface"] == name).cloned().unwrap_or_default()
}

/// Packets whose end the counters of that direction tell, other than that they were sent.
pub fn counted(egress: &Value) -> u64 {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let drops =
        |of: &Value| of["dropped_packets"].as_object().map_or(0, |all| all.values().map(number).sum());
    let port = &egress["port"];
    let refused = if port.is_null() { number(&egress["refused_packets"]) } else { 0 };
    drops(&port["total"])
        + drops(&port["protected"])
        + refused
        + number(&egress["overrun_packets"])
        + number(&egress["nobuf_packets"])
        + number(&egress["unhanded_packets"])
}

/// Times that a worker was silent for longer than its limit, so that the kernel carried for it, and the
/// packets that it threw away for that, of both directions.
pub fn lapses(bed: &Bed) -> (u64, u64) {
    let run = bed.ask(&["stats", "-j"]);
    if run.code != 0 {
        return (0, 0);
    }
    let stats = run.json();
    let of = |name: &str| -> u64 {
        let bridges = stats["bridges"].as_array().unwrap().iter();
        bridges.map(|bridge| bridge["without"][name].as_u64().unwrap_or(0)).sum()
    };
    (of("lapses"), of("stale_packets"))
}

/// How long it takes from `from` until packets leave by the worker.
pub fn until_shaped(bed: &Bed, name: &str, from: Instant) -> Duration {
    let sent = || egress(bed, name)["sent_packets"].as_u64();
    let mut before = None;
    wait("a worker that carries the load", || {
        let now = sent();
        let moved = before.is_some_and(|before| now > Some(before));
        before = now.or(before);
        moved
    });
    weir_sys::now().since(from)
}

pub fn signal(process: &Held, name: &str) {
    assert!(Command::new("kill").args([name, &process.pid()]).status().unwrap().success());
}

pub fn pause(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// What a command in the box's namespace leaves.
pub fn in_box(bed: &Bed, script: &str) -> Run {
    let mut command = Command::new("nsenter");
    command.args(["-t", &bed.boxed.pid(), "-n", "bash", "-c", script]).stdin(std::process::Stdio::null());
    command.output().unwrap().into()
}

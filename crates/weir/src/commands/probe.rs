//! `weir probe`: what interfaces offer to `attach`, which way each would get and why, and how many
//! packets the ways carry on this machine. Nothing is done to the interfaces.

use super::tables::{print_wrapped, say, table};
use super::{Done, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use weir_engine::state::FailState;
use weir_lab::bench::{Mode, carried};
use weir_sys::netlink::{Link, links};
use weir_sys::rights::{Capability, has};
use weir_sys::{Offload, xdp};

/// Everything that was found.
#[derive(Serialize)]
struct Found {
    interfaces: Vec<Offered>,
    /// What becomes of a bridge's traffic without Weir, as it was on the testbed.
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<FailState>,
    measured: Vec<Measured>,
    /// Why a way was not measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_measured: Vec<String>,
}

/// What one interface offers.
#[derive(Serialize)]
struct Offered {
    interface: String,
    driver: String,
    link: &'static str,
    mtu: u32,
    receive_queues: u32,
    /// Those that the system tells of, and whether they are on.
    offloads: BTreeMap<&'static str, bool>,
    ways: Vec<Way>,
    /// What `attach bridge PEER` gives.
    would_get: String,
    because: String,
}

/// One thing that a line of altq.conf may say, and what that gives.
#[derive(Serialize)]
struct Way {
    attach: &'static str,
    possible: bool,
    /// What it gives, or why it is not possible.
    what: String,
}

/// What a way carries between two pairs of interfaces of the testbed's own.
#[derive(Serialize)]
struct Measured {
    attach: &'static str,
    by: String,
    pps_60: f64,
    pps_1514: f64,
}

const PACKET: &str = "bridge PEER";
const XDP: &str = "bridge PEER xdp";
const BUSY: &str = "bridge PEER xdp busy-poll";
const QUEUE: &str = "nfqueue";

/// Offloads as `ethtool -K` names them.
const OFFLOADS: [(&str, Offload); 5] = [
    ("gro", Offload::Gro),
    ("gso", Offload::Gso),
    ("sg", Offload::ScatterGather),
    ("tso", Offload::Tso),
    ("tx", Offload::Checksum),
];

/// Looks at the interfaces of those names, or at all but the loopback.
pub fn run(names: &[String], no_rates: bool, json: bool) -> Done {
    let links = links().map_err(Failure::failed)?;
    let mut wanted = Vec::new();
    for name in names {
        let link = links.iter().find(|link| link.is_called(name));
        wanted.push(
            link.ok_or_else(|| Failure::usage(format!("no interface {name:?} here: `ip link` shows them")))?,
        );
    }
    if names.is_empty() {
        wanted.extend(links.iter().filter(|link| link.name != "lo"));
    }
    let queue = way_of_nfqueue();
    let interfaces = wanted.into_iter().map(|link| offered(link, &queue)).collect();
    let mut found = Found { interfaces, without: None, measured: Vec::new(), not_measured: Vec::new() };
    if !no_rates {
        measure(&mut found)?;
    }
    if json {
        return super::print_json(&found);
    }
    print(&found);
    Ok(())
}

fn offered(link: &Link, queue: &Way) -> Offered {
    let name = &link.name;
    let tells = |(word, offload)| Some((word, weir_sys::has_offload(name, offload).ok()?));
    let mut ways = vec![Way { attach: PACKET, possible: true, what: "AF_PACKET".into() }, way_of_xdp(link)];
    ways.push(way_of_busy_poll(&ways[1]));
    ways.push(Way { attach: QUEUE, possible: queue.possible, what: queue.what.clone() });
    if !has(Capability::NetRaw) {
        ways[0] = Way { possible: false, what: "needs CAP_NET_RAW".into(), ..ways.remove(0) };
    }
    let takers = weir_engine::up::who_takes(name).unwrap_or_default();
    let (would_get, because) = match takers.first() {
        Some(taker) => ("nothing".to_owned(), taker.clone()),
        None if !link.up => ("nothing".into(), format!("it is down: `ip link set {name} up`")),
        None if !ways[0].possible => ("nothing".into(), ways[0].what.clone()),
        None => (
            "AF_PACKET".into(),
            "a line that does not say `xdp` gets it: TCP passes in aggregates, and the box's own addresses answer".into(),
        ),
    };
    Offered {
        interface: name.clone(),
        driver: weir_sys::driver(name).unwrap_or_default(),
        link: match link {
            Link { up: false, .. } => "down",
            Link { carrier: false, .. } => "no carrier",
            _ => "up",
        },
        mtu: link.mtu,
        receive_queues: weir_sys::receive_queues(name),
        offloads: OFFLOADS.into_iter().filter_map(tells).collect(),
        ways,
        would_get,
        because,
    }
}

fn way_of_xdp(link: &Link) -> Way {
    let no = |what: String| Way { attach: XDP, possible: false, what };
    if link.mtu > xdp::MOST_MTU {
        return no(format!("its MTU is {}, and at most {} fit", link.mtu, xdp::MOST_MTU));
    }
    let lacking =
        [Capability::NetRaw, Capability::NetAdmin, Capability::Bpf].into_iter().find(|&right| !has(right));
    if let Some(right) = lacking {
        return no(format!("needs {right}"));
    }
    let what = match weir_sys::netdev::xdp_features(link.index) {
        Ok(offers) if offers.zero_copy => "AF_XDP in the driver, zero copy",
        Ok(offers) if offers.native => "AF_XDP in the driver, copying",
        Ok(_) => "AF_XDP behind the driver, copying",
        Err(_) => "AF_XDP; this kernel does not tell what the driver offers",
    };
    Way { attach: XDP, possible: true, what: what.into() }
}

fn way_of_busy_poll(waiting: &Way) -> Way {
    match xdp::busy_poll_is_known() {
        _ if !waiting.possible => Way { attach: BUSY, possible: false, what: waiting.what.clone() },
        Ok(()) => Way { attach: BUSY, possible: true, what: format!("{}, busy polling", waiting.what) },
        Err(e) => Way { attach: BUSY, possible: false, what: e.to_string() },
    }
}

fn way_of_nfqueue() -> Way {
    let version = std::process::Command::new("iptables").arg("--version").output();
    let why = match version {
        Err(e) => Some(format!("iptables: {e}")),
        Ok(_) if !has(Capability::NetAdmin) => Some("needs CAP_NET_ADMIN".into()),
        Ok(_) => None,
    };
    Way { attach: QUEUE, possible: why.is_none(), what: why.unwrap_or_else(|| "NFQUEUE".into()) }
}

fn measure(found: &mut Found) -> Done {
    let program = weir_lab::Program::this().map_err(Failure::failed)?;
    let modes = [(Mode::WeirCbq, PACKET), (Mode::WeirXdp, XDP), (Mode::WeirXdpBusy, BUSY)];
    say("measures for some seconds, in network namespaces of its own");
    let all = match carried(&modes.map(|(mode, _)| mode), &program) {
        Ok(all) => all,
        Err(e) => {
            found.not_measured.push(e.to_string());
            return Ok(());
        }
    };
    for ((_, attach), one) in modes.into_iter().zip(all) {
        match one {
            Ok(one) => {
                found.without.get_or_insert(one.without);
                let [pps_60, pps_1514] = [one.pps_60, one.pps_1514].map(f64::round);
                found.measured.push(Measured { attach, by: one.way, pps_60, pps_1514 });
            }
            Err(why) => found.not_measured.push(format!("{attach}: {why}")),
        }
    }
    Ok(())
}

fn print(found: &Found) {
    for Offered { interface, driver, link, mtu, receive_queues, offloads, ways, would_get, because } in
        &found.interfaces
    {
        let driver = if driver.is_empty() { String::new() } else { format!("{driver}, ") };
        let on: Vec<&str> = offloads.iter().filter(|(_, on)| **on).map(|(name, _)| *name).collect();
        let on = if on.is_empty() { "no offload".to_owned() } else { on.join(" ") };
        let queues = if *receive_queues == 1 { "queue" } else { "queues" };
        print_wrapped(&format!(
            "{interface}: {driver}{link}, MTU {mtu}, {receive_queues} receive {queues}, {on}"
        ));
        let mut rows = table(&["ATTACH", "POSSIBLE", "WHAT IT GIVES, OR WHY NOT"]);
        for Way { attach, possible, what } in ways {
            let possible = if *possible { "yes" } else { "no" };
            rows.add(vec![(*attach).into(), possible.into(), what.clone()]);
        }
        rows.print();
        print_wrapped(&format!("`attach bridge PEER` gets {would_get}: {because}"));
        out!("");
    }
    if !found.measured.is_empty() {
        out!("This machine, between two pairs of veth, CBQ of 20 leaves:");
        let mut rows = table(&["ATTACH", "BY", ">60 B|kpps", ">1514 B|kpps"]);
        for Measured { attach, by, pps_60, pps_1514 } in &found.measured {
            let kpps = |pps: f64| format!("{:.0}", pps / 1e3);
            rows.add(vec![(*attach).into(), by.clone(), kpps(*pps_60), kpps(*pps_1514)]);
        }
        rows.print();
    }
    if let Some(without) = &found.without {
        print_wrapped(&super::fail_open::fails(without));
    }
    for why in &found.not_measured {
        print_wrapped(&format!("not measured: {why}"));
    }
}

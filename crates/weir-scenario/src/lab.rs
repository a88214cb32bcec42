//! How the lab runs a scenario: one box, a transparent bridge with two egresses, and the hosts on its two sides. Or two
//! such boxes in line, and hosts between them too.

use crate::scenario::{Flow, Scenario};
use crate::topology::{NodeId, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use weir_report::FlowKind;
use weir_text::{BitRate, Time};

/// A scenario as the lab sees it. Links other than those at the box become delay; boxes other than
/// the managed ones become the bridge of their side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabLayout {
    /// The box: the node whose egress the scenario's first port manages.
    pub box_name: String,
    /// Each box, from the one that the first port is at: its egress back, and the one that the port leads to.
    pub boxes: Vec<[Egress; 2]>,
    /// The hosts before, between and behind the boxes, in the order of the scenario: one side more than boxes.
    pub sides: Vec<Vec<LabHost>>,
    /// MTU of all links.
    pub mtu_bytes: u64,
}

/// A host of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabHost {
    /// Index in the scenario.
    pub host: usize,
    /// For each box, the part of the one-way delay of this host's packets that it adds: all links between the two that
    /// no other box adds.
    pub delays: Vec<Time>,
    /// The slowest link between this host and the box's own link: at least as fast as the egresses.
    pub rate: Option<BitRate>,
}

/// An egress of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The scenario's port that manages it; without one it is a FIFO of the link's `queue` packets.
    pub port: Option<usize>,
    /// The link whose rate, overhead, ring, refill, tick and queue it has.
    pub link: usize,
}

/// Why the lab cannot run a scenario: a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNot(pub String);

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WhyNot {}

fn why_not<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot(reason.into()))
}

impl LabLayout {
    /// One-way delay of a packet from one host to another, on different sides.
    pub fn delay(&self, from: usize, to: usize) -> Option<Time> {
        let of = |host| self.sides.iter().flatten().find(|known| known.host == host);
        let (a, b) = (self.side_of(from)?, self.side_of(to)?);
        let (from, to) = (of(from)?, of(to)?);
        let crossed = a.min(b)..a.max(b);
        let all = crossed.map(|at| from.delays[at].as_nanos() + to.delays[at].as_nanos());
        Some(Time::from_nanos(all.sum()))
    }

    /// The side that a host is on.
    pub fn side_of(&self, host: usize) -> Option<usize> {
        self.sides.iter().position(|side| side.iter().any(|known| known.host == host))
    }
}

/// The layout of a scenario in the lab, or why there is none.
pub fn lab_layout(scenario: &Scenario) -> Result<LabLayout, WhyNot> {
    let topology = Topology::of(scenario);
    let Some(first) = scenario.ports.first() else {
        return why_not("the scenario has no managed port: the lab runs one box with one or two of them");
    };
    let nodes = (topology.node(&first.at), topology.node(&first.to));
    let ((Some(at), Some(to)), Some((cut, _))) = (nodes, scenario.link_between(&first.at, &first.to)) else {
        return why_not(format!("the managed port {} is not on a link", first.name()));
    };
    if topology.is_host(at) {
        return why_not(format!(
            "the managed port {} is on a host: in the lab only a box between the hosts can be managed",
            first.name()
        ));
    }
    let beyond = reachable(&topology, to, cut);
    if beyond.contains(&at) {
        return why_not(format!(
            "the hosts do not fall into two sides: a second way leads round the link {}",
            first.name()
        ));
    }
    let forth = Egress { port: Some(0), link: cut };
    let (boxes, beyond_both) = match behind(scenario, &topology, to) {
        Some((second, (from, to))) => {
            let further = reachable(&topology, to, second);
            if further.contains(&from) {
                return why_not(format!(
                    "the hosts do not fall into sides: a second way leads round the link {}",
                    scenario.ports[1].name()
                ));
            }
            let plain = |link| Egress { port: None, link };
            (vec![[plain(cut), forth], [plain(second), Egress { port: Some(1), link: second }]], further)
        }
        None => (vec![[second_port(scenario, &topology, (at, to), cut)?, forth]], BTreeSet::new()),
    };
    let back = boxes[0][0];
    let managed: Vec<usize> = boxes.iter().flatten().map(|egress| egress.link).collect();
    let fastest = managed.iter().map(|link| scenario.links[*link].rate).max().unwrap_or_default();
    let mut sides = vec![Vec::new(); boxes.len() + 1];
    for host in 0..scenario.hosts.len() {
        let side = usize::from(beyond.contains(&host)) + usize::from(beyond_both.contains(&host));
        let Some(path) = topology.path(at, host) else {
            return why_not(format!(
                "no path leads from the box `{}` to host `{}`",
                first.at, scenario.hosts[host].name
            ));
        };
        if side == 0 && back.link != cut && path.first().is_none_or(|hop| hop.link != back.link) {
            let name = &scenario.hosts[host].name;
            return why_not(format!(
                "host `{name}` is on neither side: the box has two managed links, and `{name}` hangs on a third"
            ));
        }
        let links: Vec<usize> = path.iter().map(|hop| hop.link).collect();
        let own = |link: &&usize| **link != cut && (boxes.len() == 1 || !managed.contains(link));
        let rate = links.iter().filter(own).map(|link| scenario.links[*link].rate).min();
        if rate.is_some_and(|rate| rate < fastest) {
            return why_not(format!(
                "a link on the way to host `{}` is slower than the managed link: the lab emulates the managed link only",
                scenario.hosts[host].name
            ));
        }
        // To the second box it is at `to`; the way from a host before the first box ends there.
        let whole = sum_of_delays(scenario, &links);
        let from_second = || {
            topology.path(to, host).map_or(0, |path| {
                sum_of_delays(scenario, &path.iter().map(|hop| hop.link).collect::<Vec<_>>())
            })
        };
        let delays = match (boxes.len(), side) {
            (1, _) => vec![whole],
            (_, 0) => vec![whole, 0],
            (_, 1) => vec![whole, from_second()],
            _ => vec![whole - from_second(), from_second()],
        };
        sides[side].push(LabHost { host, delays: delays.into_iter().map(Time::from_nanos).collect(), rate });
    }
    let mtu = scenario.links[cut].mtu;
    if scenario.links.iter().any(|link| link.mtu != mtu) {
        return why_not("the links have different MTUs: the lab is one bridged network with one MTU");
    }
    let layout = LabLayout { box_name: first.at.clone(), boxes, sides, mtu_bytes: mtu.as_bytes() };
    traffic(scenario, &layout)?;
    Ok(layout)
}

fn sum_of_delays(scenario: &Scenario, links: &[usize]) -> u64 {
    links.iter().map(|link| scenario.links[*link].delay.as_nanos()).sum()
}

/// The link of a second managed port that goes on in the direction of the first from `there`, where that one leads
/// to, and the ends of it.
fn behind(scenario: &Scenario, topology: &Topology, there: NodeId) -> Option<(usize, (NodeId, NodeId))> {
    let [first, second] = scenario.ports.as_slice() else { return None };
    let (from, to) = (topology.node(&second.at)?, topology.node(&second.to)?);
    let (link, _) = scenario.link_between(&second.at, &second.to)?;
    (from == there && second.to != first.at && !topology.is_host(from)).then_some((link, (from, to)))
}

/// The egress towards the near side: managed by a second port, or the other direction of the cut.
fn second_port(
    scenario: &Scenario,
    topology: &Topology,
    cut_ends: (NodeId, NodeId),
    cut: usize,
) -> Result<Egress, WhyNot> {
    let several = "the managed links are neither one link, nor two of one box, nor two in line: it runs in the simulator only";
    match scenario.ports.as_slice() {
        [_] => Ok(Egress { port: None, link: cut }),
        [_, second] => {
            let ends = (topology.node(&second.at), topology.node(&second.to));
            let Some((link, _)) = scenario.link_between(&second.at, &second.to) else {
                return why_not(several);
            };
            let reverse = ends == (Some(cut_ends.1), Some(cut_ends.0));
            let same_box = ends.0 == Some(cut_ends.0);
            if reverse || same_box { Ok(Egress { port: Some(1), link }) } else { why_not(several) }
        }
        _ => why_not(several),
    }
}

/// The nodes that can be reached from `from` without the link `cut`.
fn reachable(topology: &Topology, from: NodeId, cut: usize) -> BTreeSet<NodeId> {
    let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
    while let Some(node) = next.pop() {
        for hop in topology.neighbours(node) {
            if hop.link != cut && seen.insert(hop.to) {
                next.push(hop.to);
            }
        }
    }
    seen
}

/// Every flow must cross the box and be something that a kernel can send.
fn traffic(scenario: &Scenario, layout: &LabLayout) -> Result<(), WhyNot> {
    for (index, flow) in scenario.flows.iter().enumerate() {
        let name = scenario.flow_name(index);
        let side = |host: &str| scenario.host(host).and_then(|host| layout.side_of(host));
        if side(&flow.from) == side(&flow.to) {
            return why_not(format!("flow `{name}` stays on one side of the box and would never cross it"));
        }
        if flow.kind == FlowKind::Tcp && !flow.slow_start {
            return why_not(format!(
                "flow `{name}` has slow_start = false: the kernel's TCP always begins with slow start"
            ));
        }
        if !flow.rates.is_empty() {
            return why_not(format!("flow `{name}` has `rates`: only the simulator sends at rates in turn"));
        }
    }
    if let Some(port) = scenario.ports.iter().find(|port| port.ideal) {
        return why_not(format!("port {} is ideal: nobody tells an edge what flows send", port.name()));
    }
    if let Some(broker) = scenario.brokers.first() {
        return why_not(format!(
            "broker `{}` is described: the lab's brokers answer at once, with the capacity of the configuration",
            broker.name
        ));
    }
    if layout.sides.first().is_none_or(Vec::is_empty) || layout.sides.last().is_none_or(Vec::is_empty) {
        return why_not("all hosts are on one side of the box");
    }
    hosts_agree(scenario)?;
    receivers_agree(scenario)
}

/// What the kernel sets per host must be the same for all TCP flows of a host.
fn hosts_agree(scenario: &Scenario) -> Result<(), WhyNot> {
    type Flag = fn(&Flow) -> bool;
    let flags: [(&str, Flag); 2] = [("ecn", |flow| flow.ecn), ("sack", |flow| flow.sack)];
    for (what, of) in flags {
        let mut known: BTreeMap<&str, bool> = BTreeMap::new();
        for flow in scenario.flows.iter().filter(|flow| flow.kind == FlowKind::Tcp) {
            for host in [&flow.from, &flow.to] {
                if *known.entry(host).or_insert(of(flow)) != of(flow) {
                    return why_not(format!(
                        "TCP flows with and without `{what}` share host `{host}`: the kernel sets that per host; \
                         use two hosts"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// What belongs to a receiver must be the same for all flows to one port of one host.
fn receivers_agree(scenario: &Scenario) -> Result<(), WhyNot> {
    let mut known = BTreeMap::new();
    for (index, flow) in scenario.flows.iter().enumerate() {
        let receiver = (flow.to.as_str(), flow.port, flow.kind as u8, flow.ipv6);
        let first = *known.entry(receiver).or_insert(index);
        let of = |flow: &Flow| (flow.dscp, flow.delayed_ack);
        if of(&scenario.flows[first]) != of(flow) {
            return why_not(format!(
                "flows `{}` and `{}` go to one port of one host with different `dscp` or `delayed_ack`: \
                 in the lab both belong to the port's receiver; give them different ports",
                scenario.flow_name(first),
                scenario.flow_name(index)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scenario from `a-b rate delay` links; hosts are the names in lower case.
    fn scenario(links: &str, ports: &[(&str, &str)], flows: &[(&str, &str)]) -> Scenario {
        let mut text = String::from("duration = \"1s\"\n");
        let mut hosts = BTreeSet::new();
        for link in links.split(',') {
            let words: Vec<&str> = link.split_whitespace().collect();
            let (a, b) = words[0].split_once('-').unwrap();
            hosts.extend([a, b].into_iter().filter(|name| name.starts_with(char::is_lowercase)));
            text += &format!(
                "[[link]]\na = \"{a}\"\nb = \"{b}\"\nrate = \"{}\"\ndelay = \"{}\"\n",
                words[1], words[2]
            );
        }
        hosts.iter().for_each(|name| text += &format!("[[host]]\nname = \"{name}\"\n"));
        ports.iter().for_each(|(at, to)| {
            text += &format!("[[port]]\nat = \"{at}\"\nto = \"{to}\"\ntext = \"interface em0 fifoq\"\n")
        });
        flows.iter().for_each(|(from, to)| text += &format!("[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\n"));
        toml::from_str(&text).unwrap()
    }

    const STAR: &str = "b-BOX 1G 100us, c-BOX 1G 200us, BOX-sink 20M 1ms";

    #[test]
    fn a_star_has_senders_left_and_sink_right() {
        let layout =
            lab_layout(&scenario(STAR, &[("BOX", "sink")], &[("b", "sink"), ("sink", "c")])).unwrap();
        let hosts = |side: usize| layout.sides[side].iter().map(|host| host.host).collect::<Vec<_>>();
        assert_eq!((hosts(0), hosts(1)), (vec![0, 1], vec![2]));
        let egress = |port| Egress { port, link: 2 };
        assert_eq!(layout.boxes, [[egress(None), egress(Some(0))]]);
        assert_eq!(layout.delay(1, 2), Some(Time::from_nanos(1_200_000)));
        assert_eq!(layout.box_name, "BOX");
    }

    #[test]
    fn a_dumbbell_is_cut_at_the_managed_link() {
        let links = "a-R1 10M 5ms, b-R1 10M 5ms, R1-R2 1500k 5ms, R2-k 10M 5ms";
        let flows = [("a", "k")];
        let one = lab_layout(&scenario(links, &[("R1", "R2")], &flows)).unwrap();
        assert_eq!(one.delay(0, 2), Some(Time::from_millis(15)));
        let both = lab_layout(&scenario(links, &[("R1", "R2"), ("R2", "R1")], &flows)).unwrap();
        assert_eq!(both.boxes[0][0], Egress { port: Some(1), link: 2 });
    }

    /// Each link's delay is added once, by one of the boxes that a packet crosses.
    #[test]
    fn two_boxes_in_line_have_hosts_between_them() {
        let links = "s-R1 1G 1us, t-R1 1G 2us, R1-R2 100M 10us, R2-u 1G 20us, R2-v 1G 40us, R2-R3 100M 100us, \
                     R3-k 1G 200us, R3-l 1G 400us";
        let flows = [("s", "k"), ("t", "u"), ("v", "l"), ("k", "s")];
        let layout = lab_layout(&scenario(links, &[("R1", "R2"), ("R2", "R3")], &flows)).unwrap();
        // Hosts are numbered by their names: k l s t u v.
        let hosts = |side: usize| layout.sides[side].iter().map(|host| host.host).collect::<Vec<_>>();
        assert_eq!((hosts(0), hosts(1), hosts(2)), (vec![2, 3], vec![4, 5], vec![0, 1]));
        let egress = |port, link| Egress { port, link };
        assert_eq!(layout.boxes[0], [egress(None, 2), egress(Some(0), 2)]);
        assert_eq!(layout.boxes[1], [egress(None, 5), egress(Some(1), 5)]);
        for (from, to, us) in [(2, 0, 311), (0, 2, 311), (3, 4, 32), (4, 3, 32), (5, 1, 540), (3, 1, 512)] {
            assert_eq!(layout.delay(from, to), Some(Time::from_nanos(us * 1_000)), "{from} to {to}");
        }
    }

    #[test]
    fn what_the_lab_cannot_do_has_a_reason() {
        let reason = |links: &str, ports: &[(&str, &str)], flows: &[(&str, &str)]| {
            lab_layout(&scenario(links, ports, flows)).unwrap_err().to_string()
        };
        let chain = "s-R1 1G 0, R1-R2 100M 0, R2-R3 100M 0, R3-k 1G 0";
        assert_eq!(
            reason(chain, &[("R1", "R2"), ("R3", "R2")], &[("s", "k")]),
            "the managed links are neither one link, nor two of one box, nor two in line: it runs in the simulator only"
        );
        assert_eq!(
            reason(STAR, &[], &[]),
            "the scenario has no managed port: the lab runs one box with one or two of them"
        );
        assert_eq!(
            reason(STAR, &[("b", "BOX")], &[]),
            "the managed port b>BOX is on a host: in the lab only a box between the hosts can be managed"
        );
        assert_eq!(
            reason("a-B1 1G 0, B1-B2 1M 0, B2-B3 1G 0, B3-B1 1G 0, B2-k 1G 0", &[("B1", "B2")], &[]),
            "the hosts do not fall into two sides: a second way leads round the link B1>B2"
        );
        assert_eq!(
            reason(STAR, &[("BOX", "sink"), ("BOX", "b")], &[]),
            "host `c` is on neither side: the box has two managed links, and `c` hangs on a third"
        );
        assert_eq!(
            reason("a-BOX 1M 0, BOX-k 2M 0", &[("BOX", "k")], &[]),
            "a link on the way to host `a` is slower than the managed link: the lab emulates the managed link only"
        );
        assert_eq!(
            reason(STAR, &[("BOX", "sink")], &[("b", "c")]),
            "flow `f1` stays on one side of the box and would never cross it"
        );
        let mut slow = scenario(STAR, &[("BOX", "sink")], &[("b", "sink")]);
        slow.flows[0].slow_start = false;
        assert_eq!(
            lab_layout(&slow).unwrap_err().0,
            "flow `f1` has slow_start = false: the kernel's TCP always begins with slow start"
        );
        let mut other = scenario(STAR, &[("BOX", "sink")], &[("b", "sink")]);
        other.flows[0].rates = vec![weir_text::BitRate::from_bps(1_000)];
        let reason = lab_layout(&other).unwrap_err().0;
        assert_eq!(reason, "flow `f1` has `rates`: only the simulator sends at rates in turn");
        other.flows[0].rates.clear();
        other.ports[0].ideal = true;
        let reason = lab_layout(&other).unwrap_err().0;
        assert_eq!(reason, "port BOX>sink is ideal: nobody tells an edge what flows send");
        slow.links[0].mtu = weir_text::Size::from_bytes(9000);
        assert_eq!(
            lab_layout(&slow).unwrap_err().0,
            "the links have different MTUs: the lab is one bridged network with one MTU"
        );
    }
}

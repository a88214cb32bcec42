//! The testbed: two sides of hosts and a box between them, each in a namespace of its own. Or three sides in line, and
//! a bridge of the box between each two.
//!
//! ```text
//!  host ─┐                                        ┌─ host
//!  host ─┼─ bridge "left" ── box ── bridge "right" ┼─ host
//!  host ─┘                                        └─ host
//! ```
//!
//! One network without routers: static neighbours, static addresses. The kernel bridges only fan out; every frame from
//! one side to the other goes through the box's two interfaces `left` and `right`, where the
//! engine stands.

use crate::error::Error;
use crate::node::{Node, NodeError, Order, Program};
use serde_json::Value;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A host of the testbed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BedHost {
    /// Its name.
    pub name: String,
    /// Its address. Every host has a route to every other, so no subnet is needed.
    pub address: Ipv4Addr,
    /// Its IPv6 address, if it shall have one; without one its kernel is silent in IPv6.
    pub address6: Option<Ipv6Addr>,
    /// Kernel settings of its namespace besides the usual ones: path below `/proc/sys/net`, value.
    pub settings: Vec<(String, String)>,
}

/// What to build.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BedPlan {
    /// Hosts of each side, from left to right: two sides, or three.
    pub sides: Vec<Vec<BedHost>>,
    /// Largest IP packet on every link.
    pub mtu: u32,
    /// Segmentation and aggregation offloads of the hosts: off for fairness and delay, on for speed.
    pub offloads: bool,
    /// Processor of everything but the box; `None` leaves it to the scheduler.
    pub hosts_cpu: Option<usize>,
}

impl BedPlan {
    /// The hardware address of a host.
    pub(crate) fn mac_of(&self, host: &str) -> String {
        mac(self.sides.iter().flatten().position(|h| h.name == host).unwrap_or(0))
    }
}

/// Names of the box's interfaces.
pub const SIDES: [&str; 2] = ["left", "right"];
/// The same for each of its bridges.
pub const BRIDGES: [[&str; 2]; 2] = [SIDES, ["left2", "right2"]];

/// What leads a side's hosts to the box: names there, names in the box.
fn links_of(side: usize, sides: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    let to_the_right = (side + 1 < sides).then(|| ("box", BRIDGES[side][0]));
    let to_the_left = side.checked_sub(1).map(|bridge| ("box2", BRIDGES[bridge][1]));
    // The outer sides have one.
    let last = to_the_right.is_none();
    to_the_right.into_iter().chain(to_the_left.map(|(there, here)| (if last { "box" } else { there }, here)))
}

/// The testbed as it stands. Dropping it ends every process and namespace of it.
pub struct Bed {
    boxed: Node,
    hosts: Vec<Node>,
    /// What leads the hosts of each side to the box.
    bridges: Vec<Node>,
    /// The side of each host.
    side_of: Vec<usize>,
}

/// Checks what a machine must have.
pub fn possible_here() -> Result<(), Error> {
    if !weir_sys::is_root() {
        return Err(Error::NotRoot);
    }
    let found = std::process::Command::new("ip").arg("-V").output();
    if !found.is_ok_and(|o| o.status.success()) {
        return Err(Error::Impossible("the lab needs the command `ip`: apt-get install iproute2".into()));
    }
    Ok(())
}

/// Where hosts run: on one processor if there are just two, so that the box's worker has the other one when it is busy.
pub(crate) fn hosts_processor() -> Option<usize> {
    std::thread::available_parallelism().is_ok_and(|count| count.get() == 2).then_some(0)
}

impl Bed {
    /// Builds the testbed. The nodes live no longer than the calling thread.
    pub fn build(plan: &BedPlan, program: &Program) -> Result<Bed, NodeError> {
        let mut boxed = Node::start(program, "box")?;
        let sides = plan.sides.len();
        let name = |side: usize| ["left", if side + 1 < sides { "middle" } else { "right" }][side.min(1)];
        let mut bridges =
            (0..sides).map(|side| Node::start(program, name(side))).collect::<Result<Vec<_>, _>>()?;
        for (side, bridge) in bridges.iter_mut().enumerate() {
            // An interface's MTU must fit the frames of both sides.
            let (mtu, pid) = (plan.mtu, boxed.pid());
            let mut lines = format!(
                "link add name br mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
            );
            for (there, here) in links_of(side, sides) {
                lines += &format!(
                    "link add name {there} mtu {mtu} type veth peer name {here} mtu {mtu} netns {pid}\n\
                     link set dev {there} master br up\n"
                );
            }
            bridge.tell(&Order::Ip(lines + "link set dev br up\n"))?;
            for (_, here) in links_of(side, sides) {
                boxed.tell(&Order::Ip(format!("link set dev {here} up\n")))?;
            }
            if let Some(cpu) = plan.hosts_cpu {
                bridge.tell(&Order::Pin(cpu))?;
            }
        }
        let with_side = |(side, hosts): (usize, &'_ Vec<BedHost>)| vec![side; hosts.len()];
        let side_of: Vec<usize> = plan.sides.iter().enumerate().flat_map(with_side).collect();
        let everybody: Vec<&BedHost> = plan.sides.iter().flatten().collect();
        let mut hosts = Vec::with_capacity(everybody.len());
        for (index, host) in everybody.iter().enumerate() {
            let mut node = Node::start(program, &host.name)?;
            let bridge = &mut bridges[side_of[index]];
            bridge.tell(&Order::Ip(format!(
                "link add name h{index} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} netns {pid}\n\
                 link set dev h{index} master br up\n",
                mtu = plan.mtu,
                mac = mac(index),
                pid = node.pid()
            )))?;
            let mut lines = format!("addr add {}/32 dev eth0\n", host.address);
            if let Some(address) = host.address6 {
                lines.push_str(&format!("addr add {address}/128 dev eth0 nodad\n"));
                node.tell(&Order::Set(speak_ipv6()))?;
            }
            lines.push_str("link set dev eth0 up\n");
            for (other, peer) in everybody.iter().enumerate().filter(|&(other, _)| other != index) {
                let (to, from, mac) = (peer.address, host.address, mac(other));
                lines.push_str(&format!(
                    "route add {to}/32 dev eth0 scope link src {from}\nneigh add {to} lladdr {mac} dev eth0 nud permanent\n"
                ));
                if let (Some(_), Some(to)) = (host.address6, peer.address6) {
                    lines.push_str(&format!(
                        "route add {to}/128 dev eth0\nneigh add {to} lladdr {mac} dev eth0 nud permanent\n"
                    ));
                }
            }
            node.tell(&Order::Set(host.settings.clone()))?;
            node.tell(&Order::Ip(lines))?;
            node.tell(&Order::Offloads { interface: "eth0".into(), on: plan.offloads })?;
            if !plan.offloads {
                // The bridge's end of the pair would aggregate again what comes from the host.
                let port = format!("h{index}");
                bridge.tell(&Order::Offloads { interface: port, on: false })?;
            }
            if let Some(cpu) = plan.hosts_cpu {
                node.tell(&Order::Pin(cpu))?;
            }
            hosts.push(node);
        }
        if !plan.offloads {
            for (side, bridge) in bridges.iter_mut().enumerate() {
                for (there, here) in links_of(side, sides) {
                    bridge.tell(&Order::Offloads { interface: there.into(), on: false })?;
                    boxed.tell(&Order::Offloads { interface: here.into(), on: false })?;
                }
            }
        }
        let mut bed = Bed { boxed, hosts, bridges, side_of };
        bed.ready()?;
        Ok(bed)
    }

    /// Waits up to 5 seconds until the kernel sends through every device of the bed. It hears of a
    /// carrier up to a second late, and drops until then what a device is to send.
    pub(crate) fn ready(&mut self) -> Result<(), NodeError> {
        let order = |interfaces: Vec<String>| Order::Ready { interfaces, patience_ms: 5000 };
        let sides = self.bridges.len();
        let here = (0..sides).flat_map(|side| links_of(side, sides)).map(|(_, here)| here.to_string());
        self.boxed.tell(&order(here.collect()))?;
        for (side, bridge) in self.bridges.iter_mut().enumerate() {
            let on_side = |index: &usize| self.side_of[*index] == side;
            let ports = (0..self.hosts.len()).filter(on_side).map(|index| format!("h{index}"));
            let there = links_of(side, sides).map(|(there, _)| there.to_string());
            bridge.tell(&order(ports.chain(there).chain(["br".into()]).collect()))?;
        }
        self.hosts.iter_mut().try_for_each(|host| host.tell(&order(vec!["eth0".into()])).map(|_| ()))
    }

    /// The node of a host.
    pub fn host(&mut self, name: &str) -> Result<&mut Node, NodeError> {
        let missing = || NodeError { node: name.into(), what: "no such host in the testbed".into() };
        self.hosts.iter_mut().find(|n| n.name == name).ok_or_else(missing)
    }

    /// All hosts.
    pub fn hosts(&mut self) -> impl Iterator<Item = &mut Node> {
        self.hosts.iter_mut()
    }

    /// The processes of all nodes.
    pub fn pids(&mut self) -> Vec<u32> {
        self.hosts.iter().chain(&self.bridges).chain([&self.boxed]).map(Node::pid).collect()
    }

    /// The node of the box.
    pub fn boxed(&mut self) -> &mut Node {
        &mut self.boxed
    }

    /// The node that leads the hosts of a side, from the left, to the box.
    pub fn side(&mut self, index: usize) -> &mut Node {
        &mut self.bridges[index]
    }

    /// Has the box do something by name.
    pub fn call_box(&mut self, name: &str, with: Value) -> Result<Value, NodeError> {
        self.boxed.tell(&Order::Call { name: name.into(), with })
    }
}

/// IPv6 on `eth0`, but nothing that it says by itself: no link-local address, no search for
/// routers or doubles.
fn speak_ipv6() -> Vec<(String, String)> {
    let settings = [
        ("ipv6/conf/eth0/addr_gen_mode", "1"),
        ("ipv6/conf/eth0/accept_ra", "0"),
        ("ipv6/conf/eth0/router_solicitations", "0"),
        ("ipv6/conf/eth0/accept_dad", "0"),
        ("ipv6/conf/all/disable_ipv6", "0"),
        ("ipv6/conf/eth0/disable_ipv6", "0"),
        // Receivers of both families may share a port.
        ("ipv6/bindv6only", "1"),
    ];
    settings.map(|(path, value)| (path.to_string(), value.to_string())).to_vec()
}

/// A locally administered address for each host.
fn mac(index: usize) -> String {
    let n = index + 1;
    format!("02:00:00:00:{:02x}:{:02x}", n >> 8 & 0xff, n & 0xff)
}

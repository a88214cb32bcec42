//! The managed ports of a live bridge, as a file describes them.

use super::Failure;
use weir_conf::Plan;
use weir_core::classify::Classifier;
use weir_core::port::{Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::{Node, Registry};
use weir_engine::control::Control;
use weir_engine::direction::Delay;
use weir_engine::up::Side;

/// Bytes of an Ethernet header: a frame's length counts it, an interface's MTU does not.
const LAYER_2: u32 = 14;

/// A bridge, and the MTUs that its ports were made for.
pub struct Ports<'a> {
    /// Their names: left, right.
    pub names: [&'a str; 2],
    mtus: [u32; 2],
}

impl<'a> Ports<'a> {
    /// For a bridge between interfaces of those names (left, right), with their MTUs of now.
    pub fn new(names: [&'a str; 2]) -> Result<Self, Failure> {
        let [left, right] = names.map(|name| {
            let interface = weir_sys::interface(name);
            interface.map(|i| i.mtu).map_err(|e| Failure::usage(format!("interface {name}: {e}")))
        });
        Ok(Ports { names, mtus: [left?, right?] })
    }

    /// Both sides, each with the port that the file says for its egress.
    pub fn sides(&self, plan: &Plan, registry: &Registry) -> Result<[Side; 2], Failure> {
        let side = |egress: usize| -> Result<Side, Failure> {
            let make = |(link, plan)| -> Result<Port, Failure> {
                let config = PortConfig { seed: seed()?, ..PortConfig::new(link, WireConfig::Open) };
                Ok(Port::new(config, plan))
            };
            let port = self.plan_for(egress, plan, registry)?.map(make).transpose()?;
            Ok(Side { interface: self.names[egress].to_owned(), port, delay: Delay::default() })
        };
        Ok([side(0)?, side(1)?])
    }

    /// Gives each port another plan whose interface has another MTU by now. What waits stays.
    pub fn follow(&mut self, plan: &Plan, registry: &Registry, control: &Control) {
        for (side, link) in control.links().into_iter().enumerate() {
            if link.mtu == self.mtus[side] || link.state.is_empty() {
                continue;
            }
            self.mtus[side] = link.mtu;
            let egresses = (0..2).filter(|&egress| self.described_by(egress, plan) == Some(side));
            for egress in egresses {
                let swapped = match self.plan_for(egress, plan, registry) {
                    Ok(Some((_, plan))) => {
                        control.swap(1 - egress, plan).map(|_| ()).map_err(Failure::failed)
                    }
                    Ok(None) => Ok(()),
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = swapped {
                    let (name, mtu) = (self.names[side], link.mtu);
                    eprintln!(
                        "weir: the port of {name} stays as it was before its MTU of {mtu}: {}",
                        failure.message
                    );
                }
            }
        }
    }

    /// The side whose line in the file says what manages an egress; `None` if nothing does.
    fn described_by(&self, egress: usize, plan: &Plan) -> Option<usize> {
        let declared = |side: usize| plan.interfaces.iter().find(|i| i.name == self.names[side]);
        match (declared(egress), declared(1 - egress)) {
            (Some(_), _) => Some(egress),
            // What enters by the peer is conditioned, though nothing is said about where it leaves.
            (None, Some(entrance)) if !entrance.conditioners.is_empty() => Some(1 - egress),
            _ => None,
        }
    }

    /// The link and the plan of the port of an egress.
    fn plan_for(
        &self,
        egress: usize,
        plan: &Plan,
        registry: &Registry,
    ) -> Result<Option<(Link, PortPlan)>, Failure> {
        let Some(side) = self.described_by(egress, plan) else { return Ok(None) };
        let view = plan.interface(self.names[side]).map_err(Failure::usage)?;
        let link = view.link(self.mtus[side] + LAYER_2);
        if side == egress {
            let (built, link) = super::conf::build(plan, self.names[side], registry, Some(link))?;
            return Ok(Some((link, built.port_plan(link))));
        }
        let plain = Node { discipline: "fifoq".into(), ..Node::default() };
        let tree = registry.build(&plain, link).map_err(Failure::usage)?;
        let conditioners = view.conditioners().map_err(Failure::usage)?;
        let regulated = Some((link, WireConfig::Open));
        Ok(Some((link, PortPlan { conditioners, regulated, ..PortPlan::new(tree, Classifier::empty()) })))
    }
}

/// A seed of its own for each port: with one that is known, anybody could compute source ports
/// whose flows share a queue with a victim's.
fn seed() -> Result<u64, Failure> {
    weir_sys::random_seed().map_err(|e| Failure::failed(format!("a random seed: {e}")))
}

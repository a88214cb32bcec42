//! Who is connected to whom, and who forwards where: shortest paths by hops.

use crate::scenario::Scenario;
use std::collections::{BTreeMap, VecDeque};

/// Index of a node: hosts first, in the order of the file, then boxes in order of appearance in links.
pub type NodeId = usize;

/// One direction of a link as seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the link.
    pub link: usize,
    /// The node at its other end.
    pub to: NodeId,
}

/// The nodes of a scenario, and how far each is from each host.
///
/// Paths are the shortest by number of links; among equals the link that comes first in the file
/// wins. Hosts do not forward. Between two nodes the first link is the one used.
#[derive(Clone, Debug)]
pub struct Topology {
    names: Vec<String>,
    ids: BTreeMap<String, NodeId>,
    hosts: usize,
    /// Neighbours of each node, in the order of the links.
    hops: Vec<Vec<Hop>>,
    /// `distances[host][node]`: links from the node to the host, or `FAR`.
    distances: Vec<Vec<u16>>,
}

/// The distance of a node from which no way leads. A scenario has fewer links.
const FAR: u16 = u16::MAX;

impl Topology {
    /// The topology of a scenario: cost hosts × links in time, two bytes × nodes × hosts in memory.
    pub fn of(scenario: &Scenario) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut ids: BTreeMap<String, NodeId> = BTreeMap::new();
        let ends = scenario.links.iter().flat_map(|link| [&link.a, &link.b]);
        for name in scenario.hosts.iter().map(|host| &host.name).chain(ends) {
            if !ids.contains_key(name) {
                ids.insert(name.clone(), names.len());
                names.push(name.clone());
            }
        }
        let mut hops = vec![Vec::new(); names.len()];
        for (link, written) in scenario.links.iter().enumerate() {
            let (a, b) = (ids[&written.a], ids[&written.b]);
            hops[a].push(Hop { link, to: b });
            hops[b].push(Hop { link, to: a });
        }
        let hosts = scenario.hosts.len().min(names.len());
        let distances = (0..hosts).map(|host| distances(&hops, hosts, host)).collect();
        Topology { names, ids, hosts, hops, distances }
    }

    /// How many nodes.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// True if the node is a host, false for a box.
    pub fn is_host(&self, node: NodeId) -> bool {
        node < self.hosts
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.names[node]
    }

    /// The node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// Links at a node, in the order of the file.
    pub fn neighbours(&self, node: NodeId) -> &[Hop] {
        &self.hops[node]
    }

    /// Where `node` sends what is for `host`; none at the host itself, or if there is no way.
    pub fn next_hop(&self, node: NodeId, host: NodeId) -> Option<Hop> {
        let distances = self.distances.get(host).filter(|_| node != host)?;
        // A neighbour can take the packet on if it is the host itself or a box.
        let usable = self.hops.get(node)?.iter().filter(|hop| hop.to == host || !self.is_host(hop.to));
        usable.filter(|hop| distances[hop.to] != FAR).min_by_key(|hop| distances[hop.to]).copied()
    }

    /// The hops from one node to a host; none if there is no way.
    pub fn path(&self, from: NodeId, host: NodeId) -> Option<Vec<Hop>> {
        let (mut node, mut path) = (from, Vec::new());
        while node != host {
            let hop = self.next_hop(node, host)?;
            path.push(hop);
            node = hop.to;
        }
        Some(path)
    }
}

/// Hops from each node to `host`, through boxes only.
fn distances(hops: &[Vec<Hop>], hosts: usize, host: NodeId) -> Vec<u16> {
    let mut distance = vec![FAR; hops.len()];
    distance[host] = 0;
    let mut reached = VecDeque::from([(host, 0)]);
    while let Some((node, steps)) = reached.pop_front() {
        for hop in &hops[node] {
            if distance[hop.to] == FAR {
                distance[hop.to] = steps + 1;
                // Another host may begin a path, but no path leads through it.
                if hop.to >= hosts {
                    reached.push_back((hop.to, steps + 1));
                }
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(hosts: &[&str], links: &[(&str, &str)]) -> Scenario {
        let mut text = String::from("duration = \"1s\"\n");
        hosts.iter().for_each(|name| text += &format!("[[host]]\nname = \"{name}\"\n"));
        links
            .iter()
            .for_each(|(a, b)| text += &format!("[[link]]\na = \"{a}\"\nb = \"{b}\"\nrate = \"1M\"\n"));
        toml::from_str(&text).unwrap()
    }

    fn route(topology: &Topology, from: &str, to: &str) -> Option<String> {
        let path = topology.path(topology.node(from)?, topology.node(to)?)?;
        Some(path.iter().map(|hop| topology.name(hop.to)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn shortest_paths_through_boxes() {
        let links = [("s", "r1"), ("r1", "r2"), ("r2", "r3"), ("r1", "r3"), ("r3", "k"), ("s2", "r2")];
        let topology = Topology::of(&scenario(&["s", "s2", "k"], &links));
        assert_eq!(route(&topology, "s", "k").as_deref(), Some("r1 r3 k"));
        assert_eq!(route(&topology, "k", "s").as_deref(), Some("r3 r1 s"));
        assert_eq!(route(&topology, "s2", "k").as_deref(), Some("r2 r3 k"));
        assert_eq!(route(&topology, "s", "s").as_deref(), Some(""));
        assert_eq!(topology.nodes(), 6);
        assert!(topology.is_host(2) && !topology.is_host(3));
    }

    /// The only way from a to c leads through host b, which does not forward.
    #[test]
    fn hosts_do_not_forward() {
        let topology = Topology::of(&scenario(&["a", "b", "c"], &[("a", "b"), ("b", "c")]));
        assert_eq!(route(&topology, "a", "c"), None);
        assert_eq!(route(&topology, "a", "b").as_deref(), Some("b"));
    }

    #[test]
    fn of_equal_paths_the_first_link_wins() {
        let links = [("s", "x"), ("x", "k"), ("s", "y"), ("y", "k")];
        let topology = Topology::of(&scenario(&["s", "k"], &links));
        assert_eq!(route(&topology, "s", "k").as_deref(), Some("x k"));
    }
}

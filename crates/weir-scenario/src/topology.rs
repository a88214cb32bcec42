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

/// The nodes of a scenario and the next hop from each towards each host.
///
/// Paths are the shortest by number of links; among equals the link that comes first in the file
/// wins. Hosts do not forward. Between two nodes the first link is the one used.
#[derive(Clone, Debug)]
pub struct Topology {
    names: Vec<String>,
    hosts: usize,
    /// Neighbours of each node, in the order of the links.
    hops: Vec<Vec<Hop>>,
    /// `next[node][host]`.
    next: Vec<Vec<Option<Hop>>>,
}

impl Topology {
    /// The topology of a scenario: cost hosts × links in time, nodes × hosts in memory.
    pub fn of(scenario: &Scenario) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut ids: BTreeMap<&str, NodeId> = BTreeMap::new();
        let ends = scenario.links.iter().flat_map(|link| [link.a.as_str(), link.b.as_str()]);
        for name in scenario.hosts.iter().map(|host| host.name.as_str()).chain(ends) {
            ids.entry(name).or_insert_with(|| {
                names.push(name.to_string());
                names.len() - 1
            });
        }
        let mut hops = vec![Vec::new(); names.len()];
        for (link, written) in scenario.links.iter().enumerate() {
            let (a, b) = (ids[written.a.as_str()], ids[written.b.as_str()]);
            hops[a].push(Hop { link, to: b });
            hops[b].push(Hop { link, to: a });
        }
        let hosts = scenario.hosts.len().min(names.len());
        let mut next = vec![vec![None; hosts]; names.len()];
        for host in 0..hosts {
            let distance = distances(&hops, hosts, host);
            for (node, table) in next.iter_mut().enumerate() {
                // A neighbour can take the packet on if it is the host itself or a box.
                let usable = hops[node].iter().filter(|hop| hop.to == host || hop.to >= hosts);
                let nearest =
                    usable.filter(|hop| distance[hop.to].is_some()).min_by_key(|hop| distance[hop.to]);
                table[host] = nearest.copied().filter(|_| node != host);
            }
        }
        Topology { names, hosts, hops, next }
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
        self.names.iter().position(|known| known == name)
    }

    /// Links at a node, in the order of the file.
    pub fn neighbours(&self, node: NodeId) -> &[Hop] {
        &self.hops[node]
    }

    /// Where `node` sends what is for `host`; none at the host itself, or if there is no way.
    pub fn next_hop(&self, node: NodeId, host: NodeId) -> Option<Hop> {
        self.next.get(node).and_then(|table| table.get(host)).copied().flatten()
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
fn distances(hops: &[Vec<Hop>], hosts: usize, host: NodeId) -> Vec<Option<u32>> {
    let mut distance = vec![None; hops.len()];
    distance[host] = Some(0);
    let mut reached = VecDeque::from([(host, 0)]);
    while let Some((node, steps)) = reached.pop_front() {
        for hop in &hops[node] {
            if distance[hop.to].is_none() {
                distance[hop.to] = Some(steps + 1);
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

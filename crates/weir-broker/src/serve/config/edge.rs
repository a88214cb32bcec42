//! Boxes at the edge of the domain, and whose devices stand behind each.

use crate::book::Name;
use serde::Deserialize;
use std::net::IpAddr;
use weir_text::Prefix;

/// A box that is told of sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// As its certificate or its line `broker` names it.
    pub name: Name,
    /// Addresses of the devices whose traffic it carries.
    pub devices: Vec<Prefix>,
}

/// Whether each has its own name, and each prefix one edge.
pub(super) fn check(edges: &[Edge], name: impl Fn(&str, &str) -> Result<(), String>) -> Result<(), String> {
    for (at, edge) in edges.iter().enumerate() {
        name("edge", &edge.name)?;
        if edges[..at].iter().any(|other| other.name == edge.name) {
            return Err(format!("edge \"{}\" is there twice: leave one", edge.name));
        }
        if edge.devices.is_empty() {
            return Err(format!(
                "edge \"{}\": devices: expected the addresses of its devices, as [\"198.51.100.0/24\"]",
                edge.name
            ));
        }
        for (n, prefix) in edge.devices.iter().enumerate() {
            let owner = edges[..=at].iter().find(|other| {
                let known = if other.name == edge.name { &other.devices[..n] } else { &other.devices };
                known.contains(prefix)
            });
            if let Some(other) = owner {
                return Err(format!(
                    "edge \"{}\": devices: {prefix} is one of edge \"{}\" already: a prefix belongs to one edge",
                    edge.name, other.name
                ));
            }
        }
    }
    Ok(())
}

/// The edge that carries the traffic of a device: the one with the longest prefix that holds an address of it.
pub(in crate::serve) fn carrier(
    edges: &[Edge],
    addresses: impl Iterator<Item = IpAddr> + Clone,
) -> Option<&Edge> {
    let longest = |edge: &Edge| {
        let holds = |prefix: &&Prefix| addresses.clone().any(|address| prefix.holds(address));
        edge.devices.iter().filter(holds).map(Prefix::length).max()
    };
    let held = edges.iter().filter_map(|edge| Some((longest(edge)?, edge)));
    held.max_by_key(|(length, _)| *length).map(|(_, edge)| edge)
}

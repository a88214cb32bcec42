//! Boxes at the edge of the domain, and whose devices stand behind each.

use crate::book::Name;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::net::IpAddr;

/// A box that is told of sessions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// As its certificate or its line `broker` names it.
    pub name: Name,
    /// Addresses of the devices whose traffic it carries.
    pub devices: Vec<Prefix>,
}

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl Prefix {
    /// `198.51.100.0/24`, `2001:db8::/56`, or an address alone. None if it is none, or has bits beyond its length.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().ok()?;
        let (bits, width) = bits(address);
        let length =
            length.map_or(Some(width), |length| length.parse().ok()).filter(|length| *length <= width)?;
        let beyond = bits.checked_shl(length.into()).unwrap_or(0);
        (beyond == 0).then_some(Prefix { address, length })
    }

    /// How many bits of an address it says, if that is within.
    pub(in crate::serve) fn holds(&self, address: IpAddr) -> Option<u8> {
        let differs = bits(self.address).0 ^ bits(address).0;
        let is_within = self.address.is_ipv4() == address.is_ipv4()
            && (self.length == 0 || differs >> (128 - u32::from(self.length)) == 0);
        is_within.then_some(self.length)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Prefix::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "{text}: expected an address, or a prefix without bits beyond its length, as \"198.51.100.0/24\""
            ))
        })
    }
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
                    "edge \"{}\": devices: {}/{} is one of edge \"{}\" already: a prefix belongs to one edge",
                    edge.name, prefix.address, prefix.length, other.name
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
        let all = edge
            .devices
            .iter()
            .flat_map(|prefix| addresses.clone().filter_map(|address| prefix.holds(address)));
        all.max()
    };
    let held = edges.iter().filter_map(|edge| Some((longest(edge)?, edge)));
    held.max_by_key(|(length, _)| *length).map(|(_, edge)| edge)
}

//! What the edge makes of a packet: of a known flow, of one on trial, and under 10,000 contracts.

use crate::Bed;
use std::hint::black_box;
use std::net::Ipv4Addr;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Admission;
use weir_edge::edge::{Class, Config, Edge, Reason, Recognition};
use weir_edge::recognise::Payload;
use weir_edge::sla::{Contract, Policy, Prefix};

/// Contracts of `sla-10k`.
const CONTRACTS: u32 = 10_000;
/// Places in the table of flows.
const PLACES: u32 = 262_144;
/// A packet comes so often.
const EVERY_NS: u64 = 1_000;
/// A flow on trial has so many packets, and then another one has its turn.
const TRIAL: u64 = 100;

/// An edge in its steady state.
pub struct EdgeBed {
    edge: Edge,
    keys: Vec<Key>,
    head: [u8; 64],
    sent: u64,
    /// What each packet must come to.
    reason: Reason,
}

fn contract(id: u32) -> Contract {
    Contract {
        id,
        bandwidth_bps: 1_000_000_000_000,
        shared: Fraction::ratio(20, 100),
        lend: true,
        dscp: Dscp::EF,
        policy: Policy::BestEffort,
        timeout: Some(Duration::from_secs(5)),
        flows: 4_096,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    }
}

/// The source of flow n lies under another contract each.
fn key(flow: u64) -> Key {
    let (contract, port) = ((flow % u64::from(CONTRACTS)) as u32, (flow / u64::from(CONTRACTS)) as u16);
    let source = Ipv4Addr::from_bits(0x0a00_0000 + contract * 256 + 1);
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(20_000 + port, 5_004)
}

/// A packet of G.711.
fn media(sequence: u16) -> [u8; 64] {
    let mut bytes = [0x55; 64];
    bytes[..2].copy_from_slice(&[0x80, 0]);
    bytes[2..4].copy_from_slice(&sequence.to_be_bytes());
    bytes[4..8].copy_from_slice(&(u32::from(sequence) * 160).to_be_bytes());
    bytes[8..12].copy_from_slice(&7u32.to_be_bytes());
    bytes
}

impl EdgeBed {
    /// `edge-known`, `edge-candidate` or `sla-10k`, of so many flows.
    ///
    /// # Errors
    /// Why there is none.
    pub fn new(name: &str, flows: u32) -> Result<Self, String> {
        let (contracts, is_known) = match name {
            "edge-known" => (0, true),
            "edge-candidate" => (0, false),
            "sla-10k" => (CONTRACTS, true),
            _ => return Err(format!("no such edge as `{name}`")),
        };
        let admission = Admission { accept: Fraction::ONE, drop: Fraction::ONE, ..Admission::default() };
        let prefix = |n: u32| (Prefix::new(false, u128::from(0x0a00_0000 + n * 256), 24), n);
        let config = Config {
            classes: vec![Class { leaf: 0, allocation: None, admission, rate_bps: 1_000_000_000_000_000 }],
            contracts: (0..contracts).map(contract).collect(),
            prefixes: (0..contracts).map(prefix).collect(),
            recognition: Some(Recognition { flows: PLACES, ..Recognition::default() }),
            keep_untrusted: false,
            overhead: 0,
            seed: 1,
        };
        let keys = (0..flows).map(|n| key(u64::from(n))).collect();
        // What begins no protocol is tried further in as well.
        let (head, reason) =
            if is_known { (media(9), Reason::InProfile) } else { ([0x60; 64], Reason::Ordinary) };
        let mut bed = EdgeBed { edge: Edge::new(config, Instant::ZERO), keys, head, sent: 0, reason };
        for sequence in (0..4).filter(|_| is_known) {
            let head = media(sequence);
            for key in &bed.keys {
                bed.sent += 1;
                let now = Instant::from_nanos(bed.sent * EVERY_NS);
                bed.edge.packet(now, key, Payload { head: &head, len: 172 }, 214);
            }
        }
        Ok(bed)
    }
}

impl Bed for EdgeBed {
    fn pairs(&mut self, count: u32) -> Result<(), String> {
        let EdgeBed { edge, keys, head, sent, reason } = self;
        let all = keys.len() as u64;
        let mut others = 0;
        for _ in 0..count {
            *sent += 1;
            // Neighbours in time are not neighbours in memory.
            let mut key = keys[(sent.wrapping_mul(7_919) % all) as usize];
            if *reason == Reason::Ordinary {
                key.src_port = (*sent / (all * TRIAL)) as u16;
            }
            let now = Instant::from_nanos(*sent * EVERY_NS);
            let verdict = edge.packet(now, &key, Payload { head, len: 172 }, 214);
            others += u32::from(black_box(verdict).reason != *reason);
        }
        // Of 100,000 flows some find none of their eight places free.
        if others <= count / 20 {
            Ok(())
        } else {
            Err(format!("{others} of {count} packets were not {reason:?}"))
        }
    }
}

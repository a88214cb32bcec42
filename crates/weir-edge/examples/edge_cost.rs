//! What an edge costs per packet, ns: `cargo run --release -p weir-edge --example edge_cost`.
//!
//! Known flows, flows on trial, and sources under 10,000 contracts, in tables of few and of many flows.
//! Each figure is the least of several rounds: what else the machine does only adds.
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant as Clock;
use weir_core::packet::{Dscp, Key};
use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Admission;
use weir_edge::edge::{Class, Config, Edge, Recognition};
use weir_edge::recognise::{Payload, Rules};
use weir_edge::sla::{Contract, Policy, Prefix};

/// As the command has it: tables lie in huge pages where the kernel has them.
#[global_allocator]
static ALLOCATOR: weir_sys::allocations::Counting = weir_sys::allocations::Counting;

const ROUNDS: u32 = 7;
const PACKETS: u32 = 400_000;

fn contract(id: u32) -> Contract {
    Contract {
        id,
        bandwidth_bps: 1_000_000_000,
        shared: Fraction::ratio(100, 100),
        lend: false,
        dscp: Dscp::EF,
        policy: Policy::BestEffort,
        timeout: Some(Duration::from_secs(5)),
        flows: 1_000_000,
        class: 0,
        accept: None,
        drop: None,
        evict: None,
        guessed: None,
        guessed_dscp: None,
    }
}

fn edge(contracts: u32) -> Edge {
    let admission = Admission { accept: Fraction::ONE, drop: Fraction::ONE, ..Admission::default() };
    let rate_bps = 1_000_000_000_000;
    let config = Config {
        classes: vec![Class { leaf: 0, allocation: None, admission, rate_bps }],
        contracts: (0..contracts).map(contract).collect(),
        // Each contract has 256 addresses.
        prefixes: (0..contracts)
            .map(|n| (Prefix::new(false, u128::from(0x0a00_0000 + n * 256), 24), n))
            .collect(),
        recognition: Some(Recognition { rules: Rules::default(), flows: 262_144, ..Recognition::default() }),
        keep_untrusted: false,
        overhead: 0,
        seed: 1,
    };
    Edge::new(config, Instant::ZERO)
}

/// The source of flow n lies under another contract each.
fn key(flow: u32) -> Key {
    let source = Ipv4Addr::from_bits(0x0a00_0000 + (flow % 10_000) * 256 + 1);
    Key::ipv4(source, Ipv4Addr::new(192, 0, 2, 1), 17).with_ports(20_000 + (flow / 10_000) as u16, 5_004)
}

fn rtp(sequence: u32) -> [u8; 64] {
    let mut bytes = [0x55; 64];
    bytes[0] = 0x80;
    bytes[1] = 0;
    bytes[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
    bytes[4..8].copy_from_slice(&(sequence * 160).to_be_bytes());
    bytes[8..12].copy_from_slice(&7u32.to_be_bytes());
    bytes
}

/// Least ns a packet, over the rounds, of packets of `flows` flows in turn.
fn measure(edge: &mut Edge, flows: u32, known: bool) -> f64 {
    let keys: Vec<Key> = (0..flows).map(|n| key(n.wrapping_mul(7_919) % flows)).collect();
    let mut now = Instant::ZERO;
    if known {
        for sequence in 0..4 {
            for key in &keys {
                let bytes = rtp(sequence);
                edge.packet(now, key, Payload { head: &bytes, len: 172 }, 214);
            }
            now += Duration::from_millis(1);
        }
    }
    // Packets that begin no protocol: each is looked at, and tried further in for 200 packets.
    let stranger = [0x60; 64];
    let media = rtp(9);
    let head: &[u8; 64] = if known { &media } else { &stranger };
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = Clock::now();
        for n in 0..PACKETS {
            let key = &keys[(n % flows) as usize];
            black_box(edge.packet(now, key, Payload { head, len: 172 }, 214));
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(PACKETS));
        now += Duration::from_millis(1);
    }
    best
}

fn main() {
    println!("ns per packet            100 flows   10,000 flows   100,000 flows");
    for (name, contracts, known) in
        [("known", 0, true), ("on trial", 0, false), ("known, 10,000 contracts", 10_000, true)]
    {
        let all = [100, 10_000, 100_000].map(|flows| measure(&mut edge(contracts), flows, known));
        println!("{name:24} {:9.1} {:14.1} {:15.1}", all[0], all[1], all[2]);
    }
}

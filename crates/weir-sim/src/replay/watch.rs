//! The edge before a replayed port: what it decides, and which flows it finds.

use super::Event;
use crate::edge::{Broker, EdgeHost};
use crate::rng::Stream;
use std::collections::HashMap;
use weir_conf::EdgePlan;
use weir_core::packet::dissect::Dissected;
use weir_core::packet::key::protocol;
use weir_core::packet::{Family, Key};
use weir_core::port::Port;
use weir_core::units::{Duration, Instant};
use weir_edge::allocate::Action;
use weir_edge::edge::{Reason, Verdict};
use weir_edge::recognise::{Found, Kind, Payload};
use weir_scenario::scenario::BrokerSpec;

/// What an edge recognised in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recognised {
    /// Directions of UDP flows: addresses and ports, one way.
    pub directions: u64,
    /// Of these, taken for ordinary for good: QUIC.
    pub quic: u64,
    /// Those that were found, in the order in which they were.
    pub flows: Vec<FoundFlow>,
}

/// A direction that was found to be real-time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FoundFlow {
    /// Its header fields, as `weir explain` takes them.
    pub flow: String,
    /// The number of its contract.
    pub contract: Option<u32>,
    /// By which rule: `rtp`, `rtp turn`, `rtp+27`, `statistical`, `dscp`, or `aggregate`: then it is the flow whose packet
    /// all flows of the contract were found with.
    pub kind: String,
    /// Its packet with which it was found, from 1.
    pub packet: u64,
    /// When that came, ns since the first packet of the recording.
    pub at_ns: u64,
    /// The SSRC, hexadecimal, where there is one.
    pub ssrc: Option<String>,
    /// Packets that went on from each other until then.
    pub chain: u8,
    /// From the first of these to the last, ns.
    pub span_ns: u64,
    /// Whether it was admitted to its class then.
    pub admitted: bool,
    /// All of its packets in the recording.
    pub packets: u64,
    /// All of its bytes.
    pub bytes: u64,
    /// Its packets that were out of profile.
    pub out_of_profile: u64,
}

impl FoundFlow {
    /// Why it was found, in words.
    pub fn why(&self) -> String {
        let span = weir_text::show(self.span_ns as f64, weir_text::Unit::Time);
        match &self.ssrc {
            Some(ssrc) => format!("ssrc {ssrc}, {} in {span}", self.chain),
            None if self.kind == Kind::Marked.to_string() => "its code point".into(),
            None if self.kind == Kind::Aggregate.to_string() => {
                format!("short packets of its contract, often over {span}")
            }
            None => format!("short packets, even over {span}"),
        }
    }
}

/// What is counted of a direction.
#[derive(Default)]
struct Direction {
    packets: u64,
    bytes: u64,
    out_of_profile: u64,
    quic: bool,
    /// Its place in the list of those that were found.
    found: Option<usize>,
}

/// An edge that is watched.
pub struct Watch {
    host: EdgeHost,
    brokers: Vec<Broker>,
    directions: HashMap<Key, Direction>,
    flows: Vec<(Key, FoundFlow)>,
}

impl Watch {
    /// The edge of a plan, from the start of the recording on. Brokers answer at once.
    pub fn new(plan: EdgePlan) -> Self {
        let host = EdgeHost::new(plan, false);
        let mut brokers: Vec<Broker> = Vec::new();
        for (name, capacity) in host.classes.iter().filter_map(|(_, class)| class.broker.as_ref()) {
            if brokers.iter().all(|broker| broker.name() != name) {
                let spec = BrokerSpec { name: name.clone(), ..Default::default() };
                brokers.push(Broker::new(spec, capacity.as_bps(), Stream::new(0, brokers.len() as u64)));
            }
        }
        host.begin(0, &mut brokers);
        Watch { host, brokers, directions: HashMap::new(), flows: Vec::new() }
    }

    /// When it has something to do though no packet comes. Without a class whose rate it sets that is
    /// never: windows that ended meanwhile are made up for with the next packet, and a capture may last long.
    pub(super) fn next(&self) -> Instant {
        let asks = self.host.edge.allocators().next().is_some();
        if asks { self.host.next() } else { Instant::NEVER }
    }

    /// The clock reached `now`.
    pub(super) fn timer(&mut self, now: Instant) {
        self.host.timer(now);
    }

    /// Looks at a packet.
    pub(super) fn examine(&mut self, now: Instant, bytes: &[u8], read: &Dissected, len: u32) -> Verdict {
        let verdict = self.host.edge.packet(now, &read.key, Payload::of(bytes, read), len);
        if read.key.protocol != protocol::UDP || read.key.family == Family::Other {
            return verdict;
        }
        let Key { src, dst, src_port, dst_port, family, protocol, .. } = read.key;
        let key = Key { src, dst, src_port, dst_port, family, protocol, ..Key::default() };
        let direction = self.directions.entry(key).or_default();
        direction.packets += 1;
        direction.bytes += u64::from(len);
        direction.quic |= verdict.reason == Reason::Quic;
        direction.out_of_profile += u64::from(verdict.reason == Reason::OutOfProfile);
        if let (Some(found), None) = (verdict.found, direction.found) {
            direction.found = Some(self.flows.len());
            let packet = direction.packets;
            let flow = self.found(now, &key, packet, &found, verdict.reason != Reason::Refused);
            self.flows.push((key, flow));
        }
        verdict
    }

    fn found(&self, now: Instant, key: &Key, packet: u64, found: &Found, admitted: bool) -> FoundFlow {
        let Found { kind, ssrc, packets, span } = *found;
        let edge = &self.host.edge;
        let contract = edge.contract(key).map(|contract| contract.id);
        FoundFlow {
            flow: key.to_string(),
            contract,
            kind: kind.to_string(),
            packet,
            at_ns: now.as_nanos(),
            ssrc: (ssrc != 0).then(|| format!("{ssrc:08x}")),
            chain: packets,
            span_ns: Duration::as_nanos(span),
            admitted,
            packets: 0,
            bytes: 0,
            out_of_profile: 0,
        }
    }

    /// A packet goes to a leaf.
    pub(super) fn entered(&mut self, now: Instant, leaf: u32, len: u32) {
        self.host.edge.entered(now, leaf, len);
    }

    /// What the port did with a packet.
    pub(super) fn hear(&mut self, now: Instant, event: &Event<'_>) {
        self.host.hear(now, event.kind, event.meta.leaf, event.meta.len);
    }

    /// Has the port do what the edge asks for.
    pub(super) fn orders(&mut self, now: Instant, port: &mut Port, hear: &mut dyn FnMut(Event<'_>)) {
        while let Some((leaf, action)) = self.host.edge.poll() {
            match action {
                Action::Ask(request) => self.host.ask(now, 0, leaf, request, &mut self.brokers),
                Action::Shape(rate) => {
                    let class = self.host.classes.iter().find(|(own, _)| *own == leaf);
                    let Some((name, params)) = class.map(|(_, c)| (c.name.clone(), c.shape(rate))) else {
                        continue;
                    };
                    let host = &mut self.host;
                    // The reader has seen that the class has such a rate.
                    let _ = port.reconfigure(now, &name, &params, &mut |event| {
                        host.hear(now, event.kind, event.meta.leaf, event.meta.len);
                        hear(event);
                    });
                }
            }
        }
    }

    /// What it recognised.
    pub(super) fn report(self) -> Recognised {
        let counted = |(key, flow): (Key, FoundFlow)| {
            let all = self.directions.get(&key);
            FoundFlow {
                packets: all.map_or(0, |d| d.packets),
                bytes: all.map_or(0, |d| d.bytes),
                out_of_profile: all.map_or(0, |d| d.out_of_profile),
                ..flow
            }
        };
        Recognised {
            directions: self.directions.len() as u64,
            quic: self.directions.values().filter(|direction| direction.quic).count() as u64,
            flows: self.flows.into_iter().map(counted).collect(),
        }
    }
}

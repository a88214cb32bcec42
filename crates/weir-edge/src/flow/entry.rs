//! What is kept of a flow in its place of the table.

use super::NONE;
use super::name::{MAPPED, Name};
use crate::evict::Evict;
use crate::recognise::{Found, Kind, Sign, Trial};
use crate::sla::Own;
use weir_core::packet::key::protocol;
use weir_core::packet::{Family, Key};
use weir_core::units::{Duration, Fraction, Instant};

/// What a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum State {
    /// Not known to be real-time.
    #[default]
    Candidate,
    /// Real-time, and in its class.
    Admitted,
    /// Real-time, and ordinary until it is silent: it was refused or evicted.
    Refused,
    /// Real-time, and silent for longer than its contract's `timeout`: its next packet asks anew.
    Silent,
}

/// What is kept of a flow, by its state.
// Its order is that of the lines: what a packet of an admitted flow touches comes first.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(crate) enum Body {
    /// There is no flow.
    Free,
    /// On trial.
    Candidate(Trial, Links),
    /// In its class.
    Admitted {
        /// Packets in the present window, up to 65,535.
        packets: u16,
        /// Bytes in the present window, up to 4 GiB.
        bytes: u32,
        /// What else it has.
        part: Part,
    },
    /// Real-time, but in no class.
    Outside(Outside),
}

/// The neighbours of a flow on trial in its contract's list of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl Links {
    pub(super) const NONE: Links = Links { older: NONE, newer: NONE };
}

/// What a real-time flow keeps, whether it is in its class or not: how it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// The chain's SSRC; 0 where there is none.
    pub(super) ssrc: u32,
    /// From the chain's first packet to its last, ms; 65,535 stands for more.
    pub(super) span_ms: u16,
    /// The rule.
    pub(super) kind: Kind,
    /// Packets of the chain.
    pub(super) packets: u8,
    /// Emergency: neither refused nor evicted.
    pub pinned: bool,
}

impl Standing {
    pub fn new(found: &Found, pinned: bool) -> Self {
        let Found { kind, ssrc, packets, span } = *found;
        let span_ms = (span.as_nanos() / 1_000_000).min(u64::from(u16::MAX)) as u16;
        Standing { ssrc, span_ms, kind, packets, pinned }
    }
    /// By which rule it was found.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// How it was found, to the millisecond.
    pub fn found(&self) -> Found {
        let span = Duration::from_millis(u64::from(self.span_ms));
        Found { kind: self.kind, ssrc: self.ssrc, packets: self.packets, span }
    }
}

/// What an admitted flow has.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Part {
    /// Its part of the contract's meter.
    pub own: Own,
    /// When it was admitted.
    pub since: Instant,
    /// Until when it goes on as best effort (`be-flow`).
    pub best_effort_until: Instant,
    /// Bytes in the last window, up to 4 GiB.
    pub last_bytes: u32,
    /// Packets in the last window, up to 65,535.
    pub last_packets: u16,
    /// What the class was charged for it in the last window, bytes up to 4 GiB.
    pub last_charged: u32,
    /// Of what it sent in the present window, with what each packet costs besides, the class is not charged for this, bytes up to
    /// 4 GiB.
    pub uncharged: u32,
    /// What it was expected to add when it was admitted, bit/s up to 4 Gbit/s.
    pub expected_bps: u32,
    /// Its place in its class's list of admitted flows.
    pub place: u32,
    /// How it was found.
    pub standing: Standing,
}

impl Part {
    /// What the class was charged in the present window for a flow that sent so much in it, where each packet costs `overhead`
    /// bytes besides.
    pub fn charged(&self, packets: u16, bytes: u32, overhead: u32) -> u32 {
        let sent = u64::from(bytes) + u64::from(packets) * u64::from(overhead);
        sent.saturating_sub(self.uncharged.into()).min(u32::MAX.into()) as u32
    }
}

/// What a real-time flow in no class has.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// When it was refused or evicted, and why; none: it is silent, and its next packet asks.
    pub refused: Option<(Instant, Cause)>,
    /// How it was found.
    pub standing: Standing,
}

/// Why a real-time flow is in no class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It came when the class had no room: the load, with what new flows are expected to add, was not
    /// below this share of the limit, T_a.
    Load {
        /// B_o + Σ new, bit/s.
        load_bps: u64,
        /// The most that the class may get, bit/s.
        limit_bps: u64,
        /// T_a.
        accept: Fraction,
    },
    /// It came when its contract had as many real-time flows as it may have.
    Full {
        /// So many.
        flows: u32,
    },
    /// It was evicted, because the admitted flows sent more than this share of the limit, T_d.
    Above {
        /// B_o, bit/s.
        offered_bps: u64,
        /// The most that the class may get, bit/s.
        limit_bps: u64,
        /// T_d.
        drop: Fraction,
        /// The policy that chose it: of its contract, or else of its class.
        evict: Evict,
    },
    /// It was evicted, because the queue of its class was too long, and no more bandwidth came.
    Congested,
    /// It was evicted by a person. ([`crate::edge::Edge::evict_flow`])
    Order,
}

/// One flow, in one direction.
// Two lines of cache. Packets of an admitted flow touch the first alone.
#[derive(Clone, Debug)]
#[repr(C, align(128))]
pub struct Flow {
    pub(super) src: u128,
    pub(super) dst: u128,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    /// The contract that it is under, by its place in the edge's list.
    pub contract: u32,
    /// The last packet.
    pub last: Instant,
    pub(crate) body: Body,
}

const _: () = assert!(size_of::<Flow>() <= 128);

impl Flow {
    pub(super) const FREE: Flow = Flow {
        src: 0,
        dst: 0,
        last: Instant::ZERO,
        body: Body::Free,
        src_port: 0,
        dst_port: 0,
        contract: NONE,
    };
    /// It is all flows of a contract that are judged as one.
    pub fn is_aggregate(&self) -> bool {
        self.dst == 0
    }
    /// Addresses, ports, protocol and family. An aggregate has none of them.
    pub fn key(&self) -> Key {
        if self.is_aggregate() {
            return Key { family: Family::Other, src: self.src, protocol: protocol::UDP, ..Key::default() };
        }
        let is_v4 = self.src >> 32 == MAPPED >> 32;
        let (family, bits) = if is_v4 { (Family::V4, u128::from(u32::MAX)) } else { (Family::V6, u128::MAX) };
        let (src, dst) = (self.src & bits, self.dst & bits);
        Key { family, src, dst, protocol: protocol::UDP, ..Key::default() }
            .with_ports(self.src_port, self.dst_port)
    }
    /// What it is.
    pub fn state(&self) -> State {
        match &self.body {
            Body::Free | Body::Candidate(..) => State::Candidate,
            Body::Admitted { .. } => State::Admitted,
            Body::Outside(outside) if outside.refused.is_some() => State::Refused,
            Body::Outside(_) => State::Silent,
        }
    }
    /// How it was found; none while it is on trial.
    pub fn kind(&self) -> Option<Kind> {
        self.standing().map(|standing| standing.kind)
    }
    /// It was taken for ordinary for good, and is no longer looked at.
    pub fn is_ordinary(&self) -> bool {
        matches!(&self.body, Body::Candidate(trial, _) if trial.has(Sign::Ordinary))
    }
    /// Emergency: neither refused nor evicted.
    pub fn is_pinned(&self) -> bool {
        match &self.body {
            Body::Candidate(trial, _) => trial.has(Sign::Pinned),
            _ => self.standing().is_some_and(|standing| standing.pinned),
        }
    }
    pub(crate) fn pin(&mut self, pinned: bool) {
        match &mut self.body {
            Body::Free => {}
            Body::Candidate(trial, _) => trial.set(Sign::Pinned, pinned),
            Body::Admitted { part, .. } => part.standing.pinned = pinned,
            Body::Outside(outside) => outside.standing.pinned = pinned,
        }
    }
    pub(crate) fn standing(&self) -> Option<&Standing> {
        match &self.body {
            Body::Free | Body::Candidate(..) => None,
            Body::Admitted { part, .. } => Some(&part.standing),
            Body::Outside(outside) => Some(&outside.standing),
        }
    }
    pub(crate) fn part(&self) -> Option<&Part> {
        match &self.body {
            Body::Admitted { part, .. } => Some(part),
            _ => None,
        }
    }
    pub(crate) fn part_mut(&mut self) -> Option<&mut Part> {
        match &mut self.body {
            Body::Admitted { part, .. } => Some(part),
            _ => None,
        }
    }
    /// Its neighbours; none if it is not on trial.
    pub(super) fn links(&self) -> Links {
        match self.body {
            Body::Candidate(_, links) => links,
            _ => Links::NONE,
        }
    }
    /// Gives a flow on trial other neighbours.
    pub(super) fn relink(&mut self, change: impl FnOnce(&mut Links)) {
        if let Body::Candidate(_, links) = &mut self.body {
            change(links);
        }
    }
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.body, Body::Free)
    }
    pub(super) fn is(&self, name: &Name) -> bool {
        (self.src, self.dst, self.src_port, self.dst_port)
            == (name.src, name.dst, name.src_port, name.dst_port)
            && !self.is_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a packet of an admitted flow touches lies in one line of cache.
    #[test]
    fn a_packet_of_an_admitted_flow_touches_one_line() {
        let found = Found { kind: Kind::Rtp, ssrc: 1, packets: 4, span: Duration::ZERO };
        let part = Part {
            own: Own::default(),
            since: Instant::ZERO,
            best_effort_until: Instant::ZERO,
            last_bytes: 0,
            last_packets: 0,
            last_charged: 0,
            uncharged: 0,
            expected_bps: 0,
            place: 0,
            standing: Standing::new(&found, false),
        };
        let flow = Flow { body: Body::Admitted { packets: 0, bytes: 0, part }, ..Flow::FREE };
        let Body::Admitted { packets, bytes, part } = &flow.body else { unreachable!("it was made so") };
        let start = (&raw const flow).addr();
        let end = [
            (&raw const part.own).addr() + 8,
            (&raw const *bytes).addr() + 4,
            (&raw const *packets).addr() + 2,
        ];
        assert_eq!((start % 128, align_of::<Flow>()), (0, 128));
        assert!(end.iter().all(|end| *end <= start + 64), "{start} {end:?}");
        assert!((&raw const part.since).addr() == start + 64, "the first line is full");
    }
}

//! Single flows: what is known of one and why, and the orders of a person about one.

use super::Edge;
use crate::flow::{Body, Cause, Flow, Outside, State};
use crate::recognise::{Found, Progress, Sign};
use weir_core::packet::Key;
use weir_core::packet::key::protocol;
use weir_core::units::{Duration, Instant};

/// What is known of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The number of its contract; none: every source is served.
    pub contract: Option<u32>,
    /// What it is.
    pub state: State,
    /// Neither refused nor evicted.
    pub pinned: bool,
    /// Its last packet.
    pub last: Instant,
    /// What it sent in the last window of its class, while it is admitted.
    pub sent: Option<Sent>,
    /// Why it is what it is.
    pub why: Why,
}

/// What a flow sent in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Bytes, up to 4 GiB.
    pub bytes: u32,
    /// Packets, up to 65,535.
    pub packets: u16,
}

/// Why a flow is what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It is traffic of the session of this number, which is not judged, since that time.
    Session(u128, Instant),
    /// Recognition is off, or was not configured: no packet is looked at.
    Off,
    /// It is not UDP over IP: nothing else is looked at.
    NotUdp,
    /// No contract has its source, and none its destination.
    NoContract,
    /// It is not in the table: no packet came within `idle`, or it found no place.
    Unheard,
    /// Ordinary for good: it is QUIC.
    Quic,
    /// On trial: what came began no chain of headers that is still good.
    NoChain {
        /// Packets that were tried further in.
        tried: u8,
    },
    /// On trial: this chain is nearest to its end.
    Chain(Progress),
    /// Real-time, and admitted at that time.
    Admitted {
        /// By which rule, at which packet of the chain.
        found: Found,
        /// When.
        since: Instant,
    },
    /// Real-time, and refused or evicted at that time.
    Refused {
        /// By which rule it was found.
        found: Found,
        /// When.
        since: Instant,
        /// Why.
        cause: Cause,
    },
    /// Real-time, and in no class: its next packet asks for admission.
    Silent {
        /// By which rule it was found.
        found: Found,
    },
}

/// Why a flow was not evicted by an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotEvicted {
    /// It is not in the table.
    Unheard,
    /// It is in no class: ordinary, refused or silent already.
    NotAdmitted(State),
    /// It is pinned: unpin it first.
    Pinned,
}

impl Edge {
    /// What is known of the flow of that key, and why it is what it is.
    pub fn explain(&self, key: &Key) -> Explained {
        if let Some(session) = self.session_of(key) {
            let contract = self.contract_of(key).and_then(|contract| self.id_of(contract));
            let why = Why::Session(session.id, session.since);
            let last = session.last.unwrap_or(Instant::ZERO);
            return Explained { contract, state: State::Admitted, pinned: true, last, sent: None, why };
        }
        if let Some(flow) = self.flows.find(key).filter(|_| self.recognises()) {
            return self.explain_flow(self.flows.get(flow));
        }
        let contract = self.contract_of(key);
        let why = if !self.recognises() {
            Why::Off
        } else if contract.is_none() {
            Why::NoContract
        } else if key.protocol != protocol::UDP {
            Why::NotUdp
        } else {
            Why::Unheard
        };
        let contract = contract.and_then(|contract| self.id_of(contract));
        let state = State::Candidate;
        Explained { contract, state, pinned: false, last: Instant::ZERO, sent: None, why }
    }

    /// What is known of one of [`Edge::flows`].
    pub fn explain_flow(&self, flow: &Flow) -> Explained {
        let why = match &flow.body {
            Body::Free => Why::Unheard,
            Body::Candidate(trial, _) if trial.has(Sign::Ordinary) => Why::Quic,
            Body::Candidate(trial, _) => {
                let recognition = self.config.recognition.unwrap_or_default();
                let expected = || {
                    let index = self.flows.find(&flow.key())?;
                    Some(self.reverse_of(index, &flow.key(), &recognition)?.1)
                };
                let progress = recognition
                    .rules
                    .rtp
                    .and_then(|rtp| trial.progress(&rtp, flow.last, expected() == Some(true)));
                progress.map_or(Why::NoChain { tried: trial.tried() }, Why::Chain)
            }
            Body::Admitted { part, .. } => Why::Admitted { found: part.standing.found(), since: part.since },
            Body::Outside(Outside { refused: Some((since, cause)), standing }) => {
                Why::Refused { found: standing.found(), since: *since, cause: *cause }
            }
            Body::Outside(Outside { refused: None, standing }) => Why::Silent { found: standing.found() },
        };
        Explained {
            contract: self.id_of(flow.contract),
            state: flow.state(),
            pinned: flow.is_pinned(),
            last: flow.last,
            sent: flow.part().map(|part| Sent { bytes: part.last_bytes, packets: part.last_packets }),
            why,
        }
    }

    /// The number of a contract by its place.
    fn id_of(&self, contract: u32) -> Option<u32> {
        self.config.contracts.get(contract as usize).map(|c| c.id)
    }

    /// An admitted flow goes, by order of a person: it is refused until it is silent for its contract's
    /// `timeout`.
    ///
    /// # Errors
    /// Why it stays what it is.
    pub fn evict_flow(&mut self, now: Instant, key: &Key) -> Result<(), NotEvicted> {
        let index = self.flows.find(key).ok_or(NotEvicted::Unheard)?;
        let flow = self.flows.get(index);
        match flow.state() {
            State::Admitted if flow.is_pinned() => Err(NotEvicted::Pinned),
            State::Admitted => {
                self.count(flow.contract, |flows| flows.evicted += 1);
                self.leave(now, index, Some(Cause::Order));
                Ok(())
            }
            state => Err(NotEvicted::NotAdmitted(state)),
        }
    }

    /// Makes a known flow an emergency: it is neither refused nor evicted. A flow that was refused gets
    /// in at once. False if it is not known.
    pub fn pin(&mut self, now: Instant, key: &Key) -> bool {
        let Some(index) = self.flows.find(key) else { return false };
        self.flows.get_mut(index).pin(true);
        if self.flows.get(index).state() == State::Refused {
            self.admit(now, index);
        }
        true
    }

    /// Takes an emergency back: the flow stays what it is, and may be refused or evicted from now on.
    /// False if it is not known.
    pub fn unpin(&mut self, key: &Key) -> bool {
        let index = self.flows.find(key);
        index.into_iter().for_each(|index| self.flows.get_mut(index).pin(false));
        index.is_some()
    }

    /// Whether packets are looked at.
    pub fn recognises(&self) -> bool {
        self.recognises && self.config.recognition.is_some()
    }

    /// Switches recognition off or on. (T61)
    ///
    /// While it is off no packet is looked at, and those of sources with a contract are ordinary: they
    /// lose their code point, so that no mark passes that nobody has metered. Admitted flows end. They
    /// are remembered as real-time: switched on within `idle` again, their next packet asks for admission. Allocators, meters and counters go on.
    pub fn recognise(&mut self, now: Instant, on: bool) {
        self.timer(now);
        if !on {
            (0..self.flows.capacity() as u32).for_each(|index| self.dismiss(now, index));
            // Otherwise those that come back would stand in their own way.
            for lane in &mut self.lanes {
                lane.gate.empty();
                lane.window.discard();
            }
        }
        self.recognises = on;
    }

    /// An admitted or refused flow is real-time and silent from now on: its next packet asks anew.
    pub(super) fn dismiss(&mut self, now: Instant, index: u32) {
        let flow = self.flows.get(index);
        match flow.state() {
            State::Admitted => {
                self.count(flow.contract, |flows| flows.ended += 1);
                self.leave(now, index, None);
            }
            State::Refused => {
                let Some(&standing) = flow.standing() else { return };
                self.flows.settle(index, Body::Outside(Outside { refused: None, standing }));
            }
            State::Candidate | State::Silent => {}
        }
    }

    /// The time without a packet after which a flow is forgotten; 0 without recognition.
    pub(super) fn idle(&self) -> Duration {
        self.config.recognition.as_ref().map_or(Duration::ZERO, |r| r.idle)
    }
}

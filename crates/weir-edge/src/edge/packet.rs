//! What becomes of a packet: whose it is, whether its flow is real-time, whether that flow gets in, and
//! whether the packet is in profile. [multiservice III.3.2: T25]

use super::{Edge, Meter, PacketTerms, Reason, Recognition, Verdict};
use crate::admit::Admission;
use crate::flow::{self, Body, Cause, Outside, Part, Standing, State, reverse};
use crate::recognise::{self, Found, Kind, Payload, Place, SEEN, Sample, Sign};
use crate::sla::{Own, Policy, Profile};
use weir_core::packet::key::protocol;
use weir_core::packet::{Dscp, Family, Key};
use weir_core::units::{Duration, Instant};

/// A flow under `be-flow` goes back to its class after so long within its profile.
const FIT_FOR: Duration = Duration::from_secs(1);
/// Ports of DNS and of multicast DNS, whose answers come at even distances under load.
const DNS: [u16; 2] = [53, 5353];

fn is_dns(key: &Key) -> bool {
    DNS.contains(&key.src_port) || DNS.contains(&key.dst_port)
}

/// Octets of IP of a datagram with so many of payload.
fn ip_len(key: &Key, payload_len: u32) -> u32 {
    payload_len + if key.family == Family::V6 { 48 } else { 28 }
}

impl Meter {
    /// A packet of a flow of a contract where flows that were guessed have something of their own: its code point in profile.
    #[cold]
    fn take_guessed(&mut self, now: Instant, part: &mut Part, bytes: u32) -> (Profile, Dscp) {
        let PacketTerms { dscp, guessed_dscp, .. } = self.terms;
        if !matches!(part.standing.kind(), Kind::Statistical | Kind::Aggregate) {
            return (self.shared.take(now, &mut part.own, bytes), dscp);
        }
        let share = self.guessed.as_mut();
        if share.is_some_and(|share| !share.fits(now, bytes)) {
            return (Profile::Out, guessed_dscp);
        }
        let profile = self.shared.take(now, &mut part.own, bytes);
        if profile == Profile::In {
            self.guessed.iter_mut().for_each(|share| share.pay(bytes));
        }
        (profile, guessed_dscp)
    }
}

impl Edge {
    /// What becomes of a packet of `len` bytes, with what is known of its payload.
    pub fn packet(&mut self, now: Instant, key: &Key, payload: Payload<'_>, len: u32) -> Verdict {
        let as_is = |reason| Verdict { tos: key.tos, drop: false, reason, found: None };
        let best_effort = |reason| Verdict { tos: key.tos & 3, drop: false, reason, found: None };
        if !self.sessions.is_empty()
            && let Some(verdict) = self.of_session(now, key, len)
        {
            return verdict;
        }
        let Some(&Recognition { idle, .. }) = self.config.recognition.as_ref() else {
            return as_is(Reason::Ordinary);
        };
        self.timer(now);
        // A flow in the table knows its contract: the prefixes are searched for others alone.
        let known = if self.recognises { self.flows.find(key) } else { None };
        if let Some(index) = known
            && let Some(verdict) = self.goes_on(now, key.tos, index, idle, len)
        {
            return verdict;
        }
        let Some(recognition) = self.config.recognition else { return as_is(Reason::Ordinary) };
        let contract = known.map(|index| self.flows.get(index).contract).or_else(|| self.contract_of(key));
        let Some(contract) = contract else {
            let keep = self.config.keep_untrusted;
            return if keep { as_is(Reason::NoContract) } else { best_effort(Reason::NoContract) };
        };
        if key.protocol != protocol::UDP || !self.recognises {
            return best_effort(Reason::Ordinary);
        }
        let Some((mut index, mut pause)) = self.heard(now, key, known, contract, recognition.idle) else {
            return best_effort(Reason::Ordinary);
        };
        let mut found = None;
        if self.flows.get(index).state() == State::Candidate {
            found = self.examine(now, key, payload, index, pause, &recognition);
            if let Some(found) = &found {
                self.found(index, found);
            } else if let Some(whole) = self.as_one(now, key, index, payload.len, &recognition) {
                (index, pause, found) = whole;
            }
        }
        match self.flows.get(index).state() {
            State::Admitted if pause > self.timeout(contract) => {
                self.end(now, index);
                self.admit(now, index);
            }
            State::Refused if pause > self.timeout(contract) => self.admit(now, index),
            State::Silent => self.admit(now, index),
            State::Candidate | State::Admitted | State::Refused => {}
        }
        let verdict = match self.flows.get(index).state() {
            State::Candidate if self.flows.get(index).is_ordinary() => best_effort(Reason::Quic),
            State::Candidate | State::Silent => best_effort(Reason::Ordinary),
            State::Refused => {
                let drop =
                    self.lanes.get(self.class_of(contract)).is_some_and(|l| l.class.admission.drop_refused);
                Verdict { drop, ..best_effort(Reason::Refused) }
            }
            State::Admitted => {
                let before = Instant::from_nanos(now.as_nanos().saturating_sub(pause.as_nanos()));
                self.meter(now, before, index, key.tos, len)
            }
        };
        Verdict { found, ..verdict }
    }

    /// What becomes of a packet of a flow that was admitted and has not been silent: most packets of media are of such a one.
    fn goes_on(&mut self, now: Instant, tos: u8, index: u32, idle: Duration, len: u32) -> Option<Verdict> {
        let flow = self.flows.get(index);
        let before = flow.last;
        let pause = now.since(before);
        let is_in = matches!(flow.body, Body::Admitted { .. }) && pause <= idle;
        if !is_in || pause > self.timeout(flow.contract) {
            return None;
        }
        self.flows.get_mut(index).last = before.max(now);
        Some(self.meter(now, before, index, tos, len))
    }

    /// A packet that goes the other way, at another port. Nothing becomes of it here: it is evidence, as
    /// where ICE has succeeded in both directions.
    pub fn observe(&mut self, now: Instant, key: &Key, payload: Payload<'_>) {
        let Some(recognition) = self.config.recognition.filter(|_| self.recognises) else { return };
        let Some(contract) = self.contract_of(key).filter(|_| key.protocol == protocol::UDP) else { return };
        self.timer(now);
        let known = self.flows.find(key);
        // What is metered here goes by its own packets.
        if known.is_some_and(|index| self.flows.get(index).state() == State::Admitted) {
            return;
        }
        // Strangers send this: they have at most half of the places, unless they answer.
        let most = self.config.contracts.get(contract as usize).map_or(recognition.flows, |c| c.flows);
        let crowded = || self.flows.of_contract(contract) >= most / 2;
        if known.is_none() && crowded() && self.flows.find(&reverse(key)).is_none() {
            return;
        }
        let Some((index, pause)) = self.heard(now, key, known, contract, recognition.idle) else { return };
        if self.flows.get(index).state() == State::Candidate
            && let Some(found) = self.examine(now, key, payload, index, pause, &recognition)
        {
            self.found(index, &found);
        }
    }

    /// The contract of a packet: by its source, or on its way back by its destination. None if there are
    /// contracts, and none of them has it.
    pub(super) fn contract_of(&self, key: &Key) -> Option<u32> {
        super::follow::contract_in(&self.table, &self.config.contracts, key)
    }

    /// The flow of a packet, `known` if it is in the table, and the time since the packet before; none if
    /// it has no place.
    fn heard(
        &mut self,
        now: Instant,
        key: &Key,
        mut known: Option<u32>,
        contract: u32,
        idle: Duration,
    ) -> Option<(u32, Duration)> {
        if let Some(index) = known.filter(|&index| now.since(self.flows.get(index).last) > idle) {
            self.end(now, index);
            self.flows.remove(index);
            known = None;
        }
        let index = match known {
            Some(index) => index,
            None => {
                let most = self.config.contracts.get(contract as usize).map_or(u32::MAX, |c| c.flows);
                let index = self.flows.insert(key, contract, most, now)?;
                if let Some(history) = self.histories.get_mut(index as usize) {
                    *history = Default::default();
                }
                index
            }
        };
        let flow = self.flows.get_mut(index);
        let pause = now.since(flow.last);
        flow.last = flow.last.max(now);
        Some((index, pause))
    }

    /// Whether a packet shows that its flow, which is on trial, is real-time.
    fn examine(
        &mut self,
        now: Instant,
        key: &Key,
        payload: Payload<'_>,
        index: u32,
        pause: Duration,
        recognition: &Recognition,
    ) -> Option<Found> {
        self.stats.inspected += 1;
        if recognition.trust_dscp && matches!(key.dscp().value(), 44..=46) {
            return Some(Found { kind: Kind::Marked, ssrc: 0, packets: 1, span: Duration::ZERO });
        }
        let reverse = self.reverse_of(index, key, recognition);
        let sample = Sample {
            now,
            pause,
            head: &payload.head[..payload.head.len().min(SEEN)],
            len: payload.len,
            place: Place::START,
            expected: reverse.is_some_and(|(_, expected)| expected),
            reverse_bytes: reverse.map_or(0, |(reverse, _)| {
                self.histories.get(reverse as usize).map_or(0, |history| history.bytes)
            }),
            ip_len: ip_len(key, payload.len),
            rules: &recognition.rules,
        };
        let Body::Candidate(trial, _) = &mut self.flows.get_mut(index).body else { return None };
        let was_ordinary = trial.has(Sign::Ordinary);
        match recognise::look(trial, &sample) {
            recognise::Verdict::RealTime(found) => return Some(found),
            recognise::Verdict::Ordinary => {
                self.stats.quic += u64::from(!was_ordinary);
                return None;
            }
            recognise::Verdict::Nothing | recognise::Verdict::Known => {}
        }
        let history = self.histories.get_mut(index as usize)?;
        if is_dns(key) {
            return None;
        }
        match recognise::statistical::look(history, &sample) {
            recognise::Verdict::RealTime(found) => Some(found),
            _ => None,
        }
    }

    /// What takes a packet of a flow on trial that nothing else tells, if its contract's flows are judged as one and this
    /// packet passes: where they stand in the table, the time since the last that passed, and whether that is new.
    fn as_one(
        &mut self,
        now: Instant,
        key: &Key,
        index: u32,
        payload_len: u32,
        recognition: &Recognition,
    ) -> Option<(u32, Duration, Option<Found>)> {
        let rule = recognition.rules.statistical?;
        let last = self.aggregates.len().checked_sub(1)?;
        let flow = self.flows.get(index);
        let contract = flow.contract;
        if flow.is_ordinary() || is_dns(key) {
            return None;
        }
        let aggregate = &mut self.aggregates[(contract as usize).min(last)];
        let found = aggregate.look(now, &rule, recognition.idle, ip_len(key, payload_len))?;
        let name = flow::aggregate(self.config.contracts.get(contract as usize).map(|c| c.id));
        let known = self.flows.find(&name);
        let (index, pause) = self.heard(now, &name, known, contract, recognition.idle)?;
        let is_new = self.flows.get(index).state() == State::Candidate;
        if is_new {
            self.found(index, &found);
        }
        Some((index, pause, is_new.then_some(found)))
    }

    /// The flow that goes the other way, and whether both show that media is to be expected. It is looked
    /// for only where it can matter.
    pub(super) fn reverse_of(&self, index: u32, key: &Key, recognition: &Recognition) -> Option<(u32, bool)> {
        let Body::Candidate(trial, _) = &self.flows.get(index).body else { return None };
        if self.histories.is_empty() && !trial.has_chain() {
            return None;
        }
        let Some(other) = self.flows.find(&reverse(key)) else {
            return trial.has(Sign::Keyed).then_some((u32::MAX, true));
        };
        let flow = self.flows.get(other);
        let is_heard = flow.last + recognition.idle >= self.flows.get(index).last;
        let expected = match &flow.body {
            Body::Free => false,
            Body::Candidate(back, _) => {
                trial.has(Sign::Answered) && back.has(Sign::Answered) || back.has(Sign::Keyed)
            }
            Body::Admitted { .. } | Body::Outside(_) => true,
        };
        Some((other, trial.has(Sign::Keyed) || is_heard && expected))
    }

    /// A flow is found to be real-time; it is in no class yet.
    fn found(&mut self, index: u32, found: &Found) {
        let standing = Standing::new(found, self.flows.get(index).is_pinned());
        self.stats.found[found.kind.index()] += 1;
        self.stats.overtaken += u64::from(found.packets.saturating_sub(1));
        self.flows.settle(index, Body::Outside(Outside { refused: None, standing }));
    }

    pub(super) fn class_of(&self, contract: u32) -> usize {
        self.meters.get(contract as usize).map_or(0, |meter| meter.terms.class as usize)
    }

    pub(super) fn timeout(&self, contract: u32) -> Duration {
        let own = self.meters.get(contract as usize).map(|meter| meter.terms.timeout);
        let class = || self.lanes.get(self.class_of(contract)).map(|lane| lane.class.admission.timeout);
        let own = own.filter(|own| *own != PacketTerms::OF_CLASS);
        own.or_else(class).unwrap_or(Admission::default().timeout)
    }

    /// A real-time flow that is in no class asks for admission.
    pub(super) fn admit(&mut self, now: Instant, index: u32) {
        let flow = self.flows.get(index);
        let contract = flow.contract;
        let Body::Outside(Outside { standing, .. }) = flow.body else { return };
        let class = self.class_of(contract);
        let Some(lane) = self.lanes.get_mut(class) else { return };
        let limit = lane.limit(now);
        let terms = self.config.contracts.get(contract as usize);
        let accept = terms.and_then(|c| c.accept).unwrap_or(lane.class.admission.accept);
        let full = match (terms, self.meters.get(contract as usize)) {
            (Some(terms), Some(meter)) => meter.shared.flows() >= terms.flows,
            _ => false,
        };
        let load_bps = lane.gate.load_bps();
        let refused = if standing.pinned {
            lane.gate.count_new();
            None
        } else if full {
            terms.map(|terms| Cause::Full { flows: terms.flows })
        } else {
            let fits = lane.gate.admit(limit, accept);
            (!fits).then_some(Cause::Load { load_bps, limit_bps: limit, accept })
        };
        if let Some(cause) = refused {
            self.count(contract, |flows| flows.refused += 1);
            self.flows.settle(index, Body::Outside(Outside { refused: Some((now, cause)), standing }));
            return;
        }
        let place = lane.admitted.len() as u32;
        let part = Part {
            own: Own::default(),
            since: now,
            best_effort_until: Instant::ZERO,
            last_bytes: 0,
            last_packets: 0,
            last_charged: 0,
            uncharged: 0,
            expected_bps: lane.gate.new_flow_bps().min(u32::MAX.into()) as u32,
            place,
            standing,
        };
        lane.admitted.push(index);
        // The others are collected first: its bucket is empty now, and not at its last packet.
        self.resize(now, contract, 1);
        self.flows.settle(index, Body::Admitted { packets: 0, bytes: 0, part });
        if let Some(meter) = self.meters.get_mut(contract as usize) {
            self.next[index as usize] = meter.first.replace(index);
        }
        self.count(contract, |flows| flows.admitted += 1);
    }

    /// One flow more or less has a part of a contract.
    pub(super) fn resize(&mut self, now: Instant, contract: u32, change: i32) {
        self.collect(now, contract);
        if let Some(Meter { shared, .. }) = self.meters.get_mut(contract as usize) {
            shared.set_flows(now, shared.flows().saturating_add_signed(change));
        }
    }

    /// Hands over what the flows of a contract cannot hold: one pass over these flows alone, however many
    /// the class has.
    pub(super) fn collect(&mut self, now: Instant, contract: u32) {
        let Some(meter) = self.meters.get_mut(contract as usize) else { return };
        let mut at = meter.first;
        while let Some(index) = at {
            let flow = self.flows.get_mut(index);
            let last = flow.last;
            if let Some(part) = flow.part_mut() {
                meter.shared.collect(now, last, &mut part.own);
            }
            at = self.next[index as usize];
        }
        meter.shared.collected(now);
    }

    /// Takes a flow out of the chain of its contract.
    pub(super) fn unchain(&mut self, contract: u32, index: u32) {
        let Some(meter) = self.meters.get_mut(contract as usize) else { return };
        let behind = self.next[index as usize].take();
        let mut link = &mut meter.first;
        while let Some(at) = *link {
            if at == index {
                *link = behind;
                return;
            }
            link = &mut self.next[at as usize];
        }
    }

    /// A packet of an admitted flow, whose packet `before` it is known. The class is charged for it if it stays there: what a
    /// contract sends beyond its profile is at nobody's cost but its own.
    fn meter(&mut self, now: Instant, before: Instant, index: u32, tos: u8, len: u32) -> Verdict {
        let verdict = |dscp: Dscp, drop, reason| Verdict { tos: dscp.on_tos(tos), drop, reason, found: None };
        let in_profile = |dscp| verdict(dscp, false, Reason::InProfile);
        let flow = self.flows.get_mut(index);
        let contract = flow.contract as usize;
        let Body::Admitted { packets, bytes, part } = &mut flow.body else { return in_profile(Dscp::EF) };
        (*packets, *bytes) = (packets.saturating_add(1), bytes.saturating_add(len));
        let cost = u64::from(len + self.config.overhead);
        let Some(meter) = self.meters.get_mut(contract) else {
            self.lanes[0].window.count(cost);
            return in_profile(Dscp::EF);
        };
        let PacketTerms { dscp, policy, class, has_guessed, .. } = meter.terms;
        meter.shared.collect(now, before, &mut part.own);
        if meter.shared.wants_collection(now) {
            // From this flow there is nothing more, because it was heard now.
            self.collect(now, contract as u32);
        }
        let (meter, Some(part)) = (&mut self.meters[contract], self.flows.get_mut(index).part_mut()) else {
            return in_profile(dscp);
        };
        let (profile, dscp) = match has_guessed {
            false => (meter.shared.take(now, &mut part.own, len + self.config.overhead), dscp),
            true => meter.take_guessed(now, part, len + self.config.overhead),
        };
        let window = &mut self.lanes[class as usize].window;
        if profile == Profile::In && (policy != Policy::FlowBestEffort || now >= part.best_effort_until) {
            meter.in_profile_bytes += u64::from(len);
            window.count(cost);
            return in_profile(dscp);
        }
        if profile == Profile::Out {
            part.best_effort_until = now + FIT_FOR;
        }
        let others = &mut meter.others;
        let (counter, dscp, drop) = match policy {
            Policy::Ok => (&mut others.passed_bytes, dscp, false),
            Policy::Drop => (&mut others.dropped_bytes, Dscp::CS0, true),
            Policy::BestEffort | Policy::FlowBestEffort => (&mut others.best_effort_bytes, Dscp::CS0, false),
        };
        *counter += u64::from(len);
        if policy == Policy::Ok {
            window.count(cost);
        } else {
            part.uncharged = part.uncharged.saturating_add(cost.min(u32::MAX.into()) as u32);
        }
        verdict(dscp, drop, Reason::OutOfProfile)
    }
}

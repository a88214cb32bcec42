//! Conditioners: what enters an interface is measured, and by what is found passed, marked or dropped.
//!
//! Principle: a filter takes a packet to a conditioner, whose action is a small tree: meters, below
//! each of whose results stands another action, down to `pass`, `drop` (a policer) or `mark` (a
//! marker). A packet that no filter matches passes. What passes goes on to the filters of the
//! classes with the code point that it has now. So a marked packet is classified by its mark.
//! Paper: the words and the place at the edge, RFC 2475, section 2.3; the grammar, ALTQ's CDNR
//! (altq.conf(5)); the edge of two-bit diff-serv, RFC 2638, section 3.
//! Where we differ, and why: a mark is written where the packet leaves, with the IPv4 checksum brought
//! along (ALTQ wrote the byte and left the checksum); rates have 64 bits; filters that name a
//! conditioner and filters that name a class are two lists, so neither hides the other.
//! Cost: a classification, and per meter that the packet goes through what its file says; nothing
//! is allocated.
//! Guarantees: `colours_are_those_of_the_marks`, `a_shared_meter_is_one`, `every_packet_is_counted_once`,
//! `refuses_what_cannot_be`; with a port, `policed_packets_are_in_the_ledger` and
//! `a_mark_decides_the_class`.
//! Parameters: those of `conditioner IF NAME <action>`, where an action is one of
//! `<pass>`, `<drop>`, `<mark DS>`, `<conditioner NAME>`, `<tbmeter RATE DEPTH <in><out>>`,
//! `<srtcm CIR CBS EBS <green><yellow><red> [coloraware]>`,
//! `<trtcm CIR CBS PIR PBS <green><yellow><red> [coloraware]>`,
//! `<trtcm4115 CIR CBS EIR EBS <green><yellow><red> [coloraware]>`,
//! `<tswtcm CIR PIR WINDOW <green><yellow><red>>`; rates in bit/s, depths in
//! bytes; both count bytes on the wire, as every rate does.

use super::{SingleRate, TimeWindow, TokenBucket, TwoRate};
use crate::Random;
use crate::classify::Classifier;
use crate::packet::{Colour, Dscp, Key};
use crate::queue::{Link, ParamError, Visit};
use crate::units::{Duration, Instant, Rate};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What a meter measures against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meter {
    /// `tbmeter`: one token bucket; in or out.
    TokenBucket {
        /// Its rate.
        rate: Rate,
        /// Its depth, bytes.
        depth: u64,
    },
    /// `srtcm`: single rate, three colours (RFC 2697).
    SingleRate {
        /// Committed rate.
        rate: Rate,
        /// Committed burst, bytes.
        burst: u64,
        /// Excess burst, bytes.
        excess: u64,
        /// Whether the colour that a packet comes with counts.
        aware: bool,
    },
    /// `trtcm`: two rates, three colours (RFC 2698), or RFC 4115's, as `trtcm4115`.
    TwoRate {
        /// Committed rate.
        rate: Rate,
        /// Committed burst, bytes.
        burst: u64,
        /// Peak rate; RFC 4115's excess rate.
        peak: Rate,
        /// Peak burst, bytes; RFC 4115's excess burst.
        peak_burst: u64,
        /// Whether the colour that a packet comes with counts.
        aware: bool,
        /// RFC 4115 instead of RFC 2698.
        rfc4115: bool,
    },
    /// `tswtcm`: time sliding window, three colours (RFC 2859).
    TimeWindow {
        /// Committed rate.
        rate: Rate,
        /// Peak rate.
        peak: Rate,
        /// Length of the window.
        window: Duration,
    },
}

impl Meter {
    /// How many results it has.
    pub fn results(&self) -> usize {
        if matches!(self, Meter::TokenBucket { .. }) { 2 } else { 3 }
    }
    /// Its keyword in altq.conf.
    pub fn keyword(&self) -> &'static str {
        match self {
            Meter::TokenBucket { .. } => "tbmeter",
            Meter::SingleRate { .. } => "srtcm",
            Meter::TwoRate { rfc4115: false, .. } => "trtcm",
            Meter::TwoRate { rfc4115: true, .. } => "trtcm4115",
            Meter::TimeWindow { .. } => "tswtcm",
        }
    }
}

/// What a conditioner does with a packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Let it go on.
    Pass,
    /// Drop it.
    Drop,
    /// Give it this code point.
    Mark(Dscp),
    /// Do what the conditioner of that name does: with its meters, not with copies of them.
    Conditioner(String),
    /// Measure, and act by the result.
    Meter {
        /// How it measures.
        meter: Meter,
        /// One action for each result, the best first: in and out, or green, yellow and red.
        actions: Vec<Action>,
    },
}

/// A meter at work.
#[derive(Clone, Debug)]
enum Device {
    TokenBucket(TokenBucket),
    SingleRate(SingleRate),
    TwoRate(TwoRate),
    TimeWindow(TimeWindow),
}

impl Device {
    fn new(meter: &Meter) -> Self {
        match *meter {
            Meter::TokenBucket { rate, depth } => Device::TokenBucket(TokenBucket::new(rate, depth)),
            Meter::SingleRate { rate, burst, excess, aware } => {
                Device::SingleRate(SingleRate::new(rate, burst, excess, aware))
            }
            Meter::TwoRate { rate, burst, peak, peak_burst, aware, rfc4115 } => {
                let make = if rfc4115 { TwoRate::rfc4115 } else { TwoRate::rfc2698 };
                Device::TwoRate(make((rate, burst), (peak, peak_burst), aware))
            }
            Meter::TimeWindow { rate, peak, window } => {
                Device::TimeWindow(TimeWindow::new(rate, peak, window))
            }
        }
    }
    fn meter(&mut self, now: Instant, bytes: u32, before: Colour, random: &mut Random) -> Colour {
        match self {
            // Out of profile is the last of two results.
            Device::TokenBucket(bucket) => match bucket.take(now, bytes) {
                true => Colour::Green,
                false => Colour::Red,
            },
            Device::SingleRate(meter) => meter.meter(now, bytes, before),
            Device::TwoRate(meter) => meter.meter(now, bytes, before),
            Device::TimeWindow(meter) => meter.meter(now, bytes, random),
        }
    }
}

/// Packets and their bytes.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    packets: u64,
    bytes: u64,
}

impl Tally {
    fn count(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
    }
    fn add(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
    fn show(self, visit: &mut dyn Visit, packets: &'static str, bytes: &'static str) {
        visit.value(packets, "packets", self.packets as i64);
        visit.value(bytes, "bytes", self.bytes as i64);
    }
}

/// A node of all the trees; what it leads to stands before it.
#[derive(Clone, Debug)]
enum Node {
    Pass,
    Drop,
    Mark(u8),
    Meter {
        device: Device,
        /// By colour: where to go on, the code point that stands for the colour, what came out.
        next: [u32; 3],
        dscp: [u8; 3],
        results: [Tally; 3],
        two_results: bool,
    },
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    entry: u32,
    /// Its nodes: up to here, from where the one before ends.
    end: u32,
    /// What filters brought.
    came: Tally,
}

/// The conditioners of an interface, and the filters that lead to them.
pub struct Conditioners {
    classifier: Classifier,
    named: Vec<Named>,
    nodes: Vec<Node>,
    /// The packets for which each node was the last.
    ended: Vec<Tally>,
    /// What nested meters are called, by node; empty for the others.
    labels: Vec<String>,
    /// How they measure, by node.
    meters: Vec<Option<Meter>>,
    unmatched: u64,
    now: Instant,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// False if it is to be dropped.
    pub passes: bool,
    /// Its code point from here on.
    pub dscp: u8,
    /// The last meter's result; green where there was none.
    pub colour: Colour,
}

impl Judgement {
    /// Of a packet that no conditioner looks at.
    #[inline(always)]
    pub(crate) fn none(key: &Key) -> Judgement {
        Judgement { passes: true, dscp: key.tos >> 2, colour: Colour::Green }
    }
}

/// Code points of the colours where an action does not say: AF11, AF12, AF13, as in ALTQ.
const COLOURS: [Dscp; 3] = [Dscp::AF11, Dscp::AF12, Dscp::AF13];
/// How deep actions may stand in one another.
const MAX_DEPTH: usize = 64;

impl Conditioners {
    /// Conditioners by name, each before those that refer to it, and the filters to them: the
    /// class that `classifier` answers is an index into `named`.
    ///
    /// # Errors
    /// `ParamError` for a reference to no earlier conditioner, for a meter with too few or too many
    /// actions, and for actions nested too deep.
    pub fn new(classifier: Classifier, named: &[(String, Action)]) -> Result<Self, ParamError> {
        let mut made = Conditioners {
            classifier,
            named: Vec::with_capacity(named.len()),
            nodes: Vec::new(),
            ended: Vec::new(),
            labels: Vec::new(),
            meters: Vec::new(),
            unmatched: 0,
            now: Instant::ZERO,
        };
        let mut entries: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, action) in named {
            let mut meters = 0;
            let entry = made.lay(&entries, name, action, 0, &mut meters)?;
            entries.entry(name).or_insert(entry);
            let end = made.nodes.len() as u32;
            made.named.push(Named { name: name.clone(), entry, end, came: Tally::default() });
        }
        made.ended = alloc::vec![Tally::default(); made.nodes.len()];
        Ok(made)
    }

    /// `entries` are the first nodes of the conditioners before.
    fn lay(
        &mut self,
        entries: &BTreeMap<&str, u32>,
        name: &str,
        action: &Action,
        depth: usize,
        meters: &mut u32,
    ) -> Result<u32, ParamError> {
        if depth > MAX_DEPTH {
            return Err(ParamError::new(
                name,
                "conditioner",
                depth,
                format!("actions nested {MAX_DEPTH} deep at most"),
            ));
        }
        let (node, label) = match action {
            Action::Pass => (Node::Pass, String::new()),
            Action::Drop => (Node::Drop, String::new()),
            Action::Mark(dscp) => (Node::Mark(dscp.value()), String::new()),
            Action::Conditioner(other) => {
                return entries.get(other.as_str()).copied().ok_or_else(|| {
                    ParamError::new(
                        name,
                        "conditioner",
                        other,
                        "the name of a conditioner that stands before",
                    )
                });
            }
            Action::Meter { meter, actions } => {
                let results = meter.results();
                if actions.len() != results {
                    let expected = format!("{results}, one for each result");
                    return Err(ParamError::new(name, meter.keyword(), actions.len(), expected));
                }
                *meters += 1;
                let label = match *meters {
                    1 => format!("{name} {}", meter.keyword()),
                    n => format!("{name} {} {n}", meter.keyword()),
                };
                let (mut next, mut dscp) = ([0; 3], COLOURS.map(Dscp::value));
                for (result, action) in actions.iter().enumerate() {
                    // In is green and out is red.
                    let colour = if results == 2 { 2 * result } else { result };
                    next[colour] = self.lay(entries, name, action, depth + 1, meters)?;
                    if let Action::Mark(mark) = action {
                        dscp[colour] = mark.value();
                    }
                }
                let device = Device::new(meter);
                let two_results = results == 2;
                (Node::Meter { device, next, dscp, results: Default::default(), two_results }, label)
            }
        };
        self.nodes.push(node);
        self.labels.push(label);
        self.meters.push(match action {
            Action::Meter { meter, .. } => Some(*meter),
            _ => None,
        });
        Ok((self.nodes.len() - 1) as u32)
    }

    /// Goes on with what the conditioners of the same names have: their counts, and what is in
    /// their meters. A token bucket with another rate or depth keeps its tokens, as far as they
    /// fit; another meter begins anew.
    pub fn inherit(&mut self, now: Instant, old: &Conditioners) {
        self.now = self.now.max(now);
        self.unmatched = old.unmatched;
        let start =
            |of: &Conditioners, index: usize| index.checked_sub(1).map_or(0, |before| of.named[before].end);
        let by_name: BTreeMap<&str, usize> =
            old.named.iter().enumerate().map(|(index, named)| (&*named.name, index)).collect();
        for index in 0..self.named.len() {
            let Some(&from) = by_name.get(&*self.named[index].name) else { continue };
            self.named[index].came = old.named[from].came;
            let mine = start(self, index) as usize..self.named[index].end as usize;
            let theirs = start(old, from) as usize..old.named[from].end as usize;
            for (at, from) in mine.zip(theirs) {
                self.inherit_node(now, at, old, from);
            }
        }
    }

    /// Node `at` stands where node `from` of the old ones stood.
    fn inherit_node(&mut self, now: Instant, at: usize, old: &Conditioners, from: usize) {
        let (Some(meter), Some(before)) = (self.meters[at], old.meters[from]) else {
            if core::mem::discriminant(&self.nodes[at]) == core::mem::discriminant(&old.nodes[from]) {
                self.ended[at] = old.ended[from];
            }
            return;
        };
        let (Node::Meter { device, results, .. }, Node::Meter { device: known, results: counted, .. }) =
            (&mut self.nodes[at], &old.nodes[from])
        else {
            return;
        };
        if meter.keyword() == before.keyword() {
            *results = *counted;
        }
        match (&mut *device, known, meter) {
            (_, _, _) if meter == before => *device = known.clone(),
            (Device::TokenBucket(bucket), Device::TokenBucket(known), Meter::TokenBucket { rate, depth }) => {
                *bucket = known.clone();
                bucket.reshape(now, rate, depth);
            }
            _ => {}
        }
    }

    /// Judges a packet of `len` bytes whose headers say `key`. Meters count what it costs on `link`.
    pub fn judge(
        &mut self,
        now: Instant,
        len: u32,
        link: &Link,
        key: &Key,
        random: &mut Random,
    ) -> Judgement {
        let cost_bytes = u32::try_from(link.cost_bytes(len)).unwrap_or(u32::MAX);
        // A clock that runs backwards stands still here.
        self.now = self.now.max(now);
        let mut dscp = key.tos >> 2;
        let mut colour = Colour::Green;
        let Some(named) = self.classifier.classify(key).and_then(|f| self.named.get_mut(f.class as usize))
        else {
            self.unmatched += 1;
            return Judgement { passes: true, dscp, colour };
        };
        named.came.count(len);
        let mut at = named.entry as usize;
        // The code point that the packet would have if it were marked by its colour: what the next
        // meter sees, as in ALTQ. Only `mark` writes one.
        let mut seen = dscp;
        // Nodes lead to earlier ones only: this ends.
        let passes = loop {
            match &mut self.nodes[at] {
                Node::Pass => break true,
                Node::Drop => break false,
                Node::Mark(mark) => {
                    dscp = *mark;
                    break true;
                }
                Node::Meter { device, next, dscp, results, two_results } => {
                    let before = match seen {
                        s if s == dscp[1] && s != dscp[0] => Colour::Yellow,
                        s if s == dscp[2] && s != dscp[0] => Colour::Red,
                        _ => Colour::Green,
                    };
                    colour = device.meter(self.now, cost_bytes, before, random);
                    results[colour as usize].count(len);
                    if !*two_results {
                        seen = dscp[colour as usize];
                    }
                    at = next[colour as usize] as usize;
                }
            }
        };
        self.ended[at].count(len);
        Judgement { passes, dscp, colour }
    }

    /// The conditioner that filters take packets with that key to.
    pub fn which(&self, key: &Key) -> Option<&str> {
        let found = self.classifier.classify(key)?;
        self.named.get(found.class as usize).map(|named| named.name.as_str())
    }
    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|n| n.name.as_str())
    }
    /// Packets that no filter matched.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }
    /// Shows each conditioner with what its own actions did, and each meter with its results.
    pub fn visit_stats(&self, visit: &mut dyn Visit) {
        let mut start = 0;
        for named in &self.named {
            let [mut passed, mut marked, mut dropped] = [Tally::default(); 3];
            let nodes = start..named.end as usize;
            for (node, count) in self.nodes[nodes.clone()].iter().zip(&self.ended[nodes.clone()]) {
                match node {
                    Node::Pass => passed.add(*count),
                    Node::Mark(_) => marked.add(*count),
                    Node::Drop => dropped.add(*count),
                    Node::Meter { .. } => {}
                }
            }
            if visit.wants(&named.name, 0) {
                named.came.show(visit, "packets", "bytes");
                passed.show(visit, "passed", "passed_bytes");
                marked.show(visit, "marked", "marked_bytes");
                dropped.show(visit, "dropped", "dropped_bytes");
            }
            // Children stand before their meter: from the last to the first is the order of the file.
            for at in nodes.clone().rev() {
                if let Node::Meter { results: [green, yellow, red], two_results, .. } = &self.nodes[at] {
                    if !visit.wants(&self.labels[at], 1) {
                        continue;
                    }
                    if *two_results {
                        green.show(visit, "in", "in_bytes");
                        red.show(visit, "out", "out_bytes");
                    } else {
                        green.show(visit, "green", "green_bytes");
                        yellow.show(visit, "yellow", "yellow_bytes");
                        red.show(visit, "red", "red_bytes");
                    }
                }
            }
            start = named.end as usize;
        }
    }
}

#[cfg(test)]
#[path = "conditioner_tests.rs"]
mod tests;

//! What a scenario must satisfy beyond its types: names resolve, values are in range, keys fit.

use crate::derived::gcd;
use crate::scenario::{ProbeWhat, Scenario, probe_interval};
use crate::topology::Topology;
use std::collections::BTreeSet;
use weir_report::recorder::MAX_CELLS;
use weir_text::{Size, Time};

mod expect;
mod flow;

/// An error and the key that it concerns.
pub struct Problem {
    /// The kind of table, as written: `flow`; empty for keys at the top.
    pub table: &'static str,
    /// Which of them, from 0.
    pub index: usize,
    /// The key; empty for the table as a whole.
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub help: String,
}

struct Judge<'a> {
    scenario: &'a Scenario,
    topology: Topology,
    problems: Vec<Problem>,
    /// The table that is being judged.
    table: &'static str,
    index: usize,
    /// Of the flows judged so far: names, and copies in all.
    flow_names: BTreeSet<String>,
    copies: u64,
}

/// The distances of all nodes from all hosts are at most 63 MB: two bytes each, and a link has two ends.
const MAX_HOSTS: usize = 2500;
const MAX_LINKS: usize = 5000;
/// An MTU, bytes.
const LEAST_MTU: u64 = 576;
const MOST_MTU: u64 = 65_535;
/// Of a damaged file this many problems are said.
const MAX_PROBLEMS: usize = 100;

/// All problems of a scenario; none means that it can run.
pub(crate) fn problems(scenario: &Scenario) -> Vec<Problem> {
    for (key, count, limit) in
        [("host", scenario.hosts.len(), MAX_HOSTS), ("link", scenario.links.len(), MAX_LINKS)]
    {
        if count > limit {
            let message = format!("there are {count} tables [[{key}]]");
            let help = format!("a scenario has at most {limit} of them");
            return vec![Problem { table: key, index: limit, key: "", message, help }];
        }
    }
    let mut judge = Judge {
        scenario,
        topology: Topology::of(scenario),
        problems: Vec::new(),
        table: "",
        index: 0,
        flow_names: BTreeSet::new(),
        copies: 0,
    };
    judge.top();
    judge.each("host", scenario.hosts.len(), Judge::host);
    judge.each("link", scenario.links.len(), Judge::link);
    judge.each("port", scenario.ports.len(), Judge::port);
    judge.each("broker", scenario.brokers.len(), Judge::broker);
    judge.each("flow", scenario.flows.len(), Judge::flow);
    judge.each("probe", scenario.probes.len(), Judge::probe);
    judge.each("expect", scenario.expects.len(), Judge::expect);
    judge.grid();
    judge.problems
}

/// A value as a scenario writes it: between quotes, unless it is a number.
fn typed<T: serde::Serialize + std::fmt::Display>(value: T) -> String {
    match toml::Value::try_from(&value) {
        Ok(toml::Value::String(text)) if text.parse::<u64>().is_err() => format!("\"{text}\""),
        _ => value.to_string(),
    }
}

impl Judge<'_> {
    fn each(&mut self, table: &'static str, count: usize, judge: fn(&mut Self, usize)) {
        for index in 0..count {
            (self.table, self.index) = (table, index);
            judge(self, index);
        }
    }

    fn say(&mut self, key: &'static str, message: impl Into<String>, help: impl Into<String>) {
        // Of thousands nobody reads more.
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let (table, index) = (self.table, self.index);
        self.problems.push(Problem { table, index, key, message: message.into(), help: help.into() });
    }

    /// Says so unless `low ≤ value ≤ high`.
    fn range<T>(&mut self, key: &'static str, value: T, low: T, high: T)
    where
        T: PartialOrd + std::fmt::Display + serde::Serialize,
    {
        if value < low || value > high {
            let help = format!("write a value from {} to {}", typed(low), typed(high));
            self.say(key, format!("`{key}` is {value}"), help);
        }
    }

    fn top(&mut self) {
        self.range("duration", self.scenario.duration, Time::from_nanos(1), Time::from_secs(86_400));
    }

    fn broker(&mut self, index: usize) {
        let broker = &self.scenario.brokers[index];
        self.name("name", &broker.name);
        if self.scenario.brokers[..index].iter().any(|other| other.name == broker.name) {
            let message = format!("there are two brokers called `{}`", broker.name);
            self.say("name", message, "give each broker its own name");
        }
        for (key, share) in [("loss", broker.loss), ("deny", broker.deny)] {
            self.range(key, share, 0.0, 1.0);
        }
        self.range("delay", broker.delay, Time::ZERO, Time::from_secs(60));
        for (begin, end) in &broker.down {
            if begin >= end {
                let message = format!("the interval {begin} to {end} has no length");
                self.say("down", message, "write [begin, end] with begin before end");
            }
        }
    }

    fn name(&mut self, key: &'static str, name: &str) {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > 15 || !name.chars().all(fits) {
            self.say(key, format!("`{name}` cannot be a name"), "write 1 to 15 letters, digits, `-` or `_`");
        }
    }

    fn host(&mut self, index: usize) {
        let (scenario, host) = (self.scenario, &self.scenario.hosts[index]);
        self.name("name", &host.name);
        let earlier = &scenario.hosts[..index];
        if earlier.iter().any(|other| other.name == host.name) {
            self.say(
                "name",
                format!("there are two hosts called `{}`", host.name),
                "give each host its own name",
            );
        }
        if (0..index).any(|other| scenario.address(other) == scenario.address(index)) {
            let key = if host.address.is_some() { "address" } else { "name" };
            self.say(
                key,
                format!("{} is taken by another host", scenario.address(index)),
                "give each host its own address",
            );
        }
        if (0..index).any(|other| scenario.address6(other) == scenario.address6(index)) {
            let key = if host.address6.is_some() { "address6" } else { "name" };
            self.say(
                key,
                format!("{} is taken by another host", scenario.address6(index)),
                "give each host its own address6",
            );
        }
        if !scenario.links.iter().any(|link| link.a == host.name || link.b == host.name) {
            self.say(
                "name",
                format!("host `{}` has no link", host.name),
                format!("add a [[link]] with a = \"{}\", b = \"NODE\" and rate = \"10M\"", host.name),
            );
        }
    }

    fn link(&mut self, index: usize) {
        let link = &self.scenario.links[index];
        self.name("a", &link.a);
        self.name("b", &link.b);
        if link.a == link.b {
            self.say("b", format!("the link joins `{}` to itself", link.a), "name two different ends");
        }
        if self.scenario.link_between(&link.a, &link.b).is_some_and(|(first, _)| first < index) {
            self.say(
                "b",
                format!("there is a link between `{}` and `{}` already", link.a, link.b),
                "join two nodes by one link",
            );
        }
        if link.rate.as_bps() == 0 {
            self.say("rate", "a link of rate 0 carries nothing", "write a rate above 0, such as \"10M\"");
        }
        self.range("delay", link.delay, Time::ZERO, Time::from_secs(60));
        self.range("mtu", link.mtu, Size::from_bytes(LEAST_MTU), Size::from_bytes(MOST_MTU));
        self.range("overhead", link.overhead, Size::from_bytes(0), Size::from_bytes(1000));
        self.range("ring", link.ring, 1, 4096);
        self.range("tick", link.tick, Time::ZERO, Time::from_secs(1));
        self.range("queue", link.queue, 1, 1_000_000);
    }

    fn port(&mut self, index: usize) {
        let port = &self.scenario.ports[index];
        if self.scenario.link_between(&port.at, &port.to).is_none() {
            let known = self.node_names(|_, _| true);
            if self.topology.node(&port.at).is_none() {
                self.say("at", format!("there is no node `{}`", port.at), known);
            } else if self.topology.node(&port.to).is_none() {
                self.say("to", format!("there is no node `{}`", port.to), known);
            } else {
                let at = self.topology.node(&port.at).unwrap_or_default();
                let near: Vec<&str> =
                    self.topology.neighbours(at).iter().map(|hop| self.topology.name(hop.to)).collect();
                let help = format!("`{}` has links to: {}", port.at, near.join(", "));
                self.say("to", format!("there is no link from `{}` to `{}`", port.at, port.to), help);
            }
        }
        if self.scenario.ports[..index].iter().any(|other| other.at == port.at && other.to == port.to) {
            self.say(
                "to",
                format!("the egress {} is managed already", port.name()),
                "manage each egress once",
            );
        }
        for setting in &port.set {
            self.range("at", setting.at, Time::ZERO, self.scenario.duration);
        }
        if let Some(from) = port.recognise_from {
            self.range("recognise_from", from, Time::ZERO, self.scenario.duration);
        }
        match (&port.conf, &port.text) {
            (None, None) => self.say(
                "",
                "the port has no configuration",
                "add conf = \"FILE.altq\", or text = '''…''' with the configuration itself",
            ),
            (Some(_), Some(_)) => {
                self.say("text", "the port has two configurations", "write either `conf` or `text`")
            }
            _ => {}
        }
    }

    /// "known here: …" with the names of some nodes.
    fn node_names(&self, wanted: fn(&Topology, usize) -> bool) -> String {
        let names = (0..self.topology.nodes()).filter(|node| wanted(&self.topology, *node));
        let names: Vec<&str> = names.map(|node| self.topology.name(node)).take(20).collect();
        format!("write one of: {}", names.join(", "))
    }

    fn probe(&mut self, index: usize) {
        let probe = &self.scenario.probes[index];
        self.range(
            "every",
            probe.every,
            Time::from_millis(1),
            self.scenario.duration.max(Time::from_millis(1)),
        );
        self.over(Some(probe.every), probe.over);
        if self.scenario.probes[..index].iter().any(|other| other.what == probe.what) {
            let what = if probe.what == ProbeWhat::Classes { "classes" } else { "flows" };
            self.say("what", format!("there are two probes of {what}"), "keep one of them");
        }
    }

    /// Windows that slide are not shorter than the way from one to the next.
    fn over(&mut self, every: Option<Time>, over: Option<Time>) {
        match (every, over) {
            (None, Some(_)) => self.say(
                "over",
                "`over` without `every`: there is one window",
                "add how often one begins, as in every = \"100ms\"",
            ),
            (Some(every), Some(over)) if over < every || over > self.scenario.duration => self.say(
                "over",
                format!("windows of {over} that begin every {every}"),
                format!("write a length from {} to {}", typed(every), typed(self.scenario.duration)),
            ),
            _ => {}
        }
    }

    /// Names the entry that makes the cells of the series too many.
    fn grid(&mut self) {
        let scenario = self.scenario;
        let probes = scenario
            .probes
            .iter()
            .enumerate()
            .map(|(index, probe)| ("probe", "every", index, probe.times().collect::<Vec<_>>()));
        let expects = scenario.expects.iter().enumerate();
        let expects = expects.map(|(index, expect)| ("expect", "", index, expect.times().collect()));
        let default = scenario.probes.iter().all(|probe| probe.what != ProbeWhat::Classes);
        let mut cell = if default { probe_interval().as_nanos() } else { 0 };
        if default && scenario.duration.as_nanos() / cell > MAX_CELLS {
            (self.table, self.index) = ("", 0);
            let message = format!("a run of {} is too long to be sampled every 100 ms", scenario.duration);
            self.say("duration", message, "add a [[probe]] with what = \"classes\" and every = \"10s\"");
            return;
        }
        for (table, key, index, times) in probes.chain(expects) {
            cell = times.into_iter().fold(cell, |cell, time| gcd(cell, time.as_nanos()));
            if cell > 0 && scenario.duration.as_nanos() / cell > MAX_CELLS {
                (self.table, self.index) = (table, index);
                let message = format!(
                    "the series would need cells of {}, more than {MAX_CELLS} of them",
                    Time::from_nanos(cell)
                );
                self.say(key, message, "write rounder times, which all are multiples of a longer one");
                return;
            }
        }
        // Each port has a class at least; how many, its configuration says.
        if cell > 0
            && let Some((message, help)) = scenario.too_large(scenario.ports.len() as u64)
        {
            (self.table, self.index) = ("", 0);
            self.say("duration", message, help);
        }
    }
}

impl Scenario {
    /// Indices of the flow copies that `name` means: all copies of a flow, or one copy.
    pub fn flows_called(&self, name: &str) -> BTreeSet<usize> {
        let copies = self.flow_copies().into_iter().enumerate();
        copies
            .filter(|(_, copy)| copy.name == name || self.flow_name(copy.flow) == name)
            .map(|(index, _)| index)
            .collect()
    }
}

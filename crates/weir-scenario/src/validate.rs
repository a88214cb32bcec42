//! What a scenario must satisfy beyond its types: names resolve, values are in range, keys fit.

use crate::measure::{Measure, Unit};
use crate::quantity::{Amount, Size, Time};
use crate::recorder::MAX_CELLS;
use crate::scenario::{Distribution, Expect, Flow, Kind, MAX_FLOWS, ProbeWhat, Scenario, Windows, gcd};
use crate::topology::Topology;
use std::collections::BTreeSet;

/// An error and the key that it concerns.
pub(crate) struct Problem {
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
}

/// All problems of a scenario; none means that it can run.
pub(crate) fn problems(scenario: &Scenario) -> Vec<Problem> {
    let topology = Topology::of(scenario);
    let mut judge = Judge { scenario, topology, problems: Vec::new(), table: "", index: 0 };
    judge.top();
    judge.each("host", scenario.hosts.len(), Judge::host);
    judge.each("link", scenario.links.len(), Judge::link);
    judge.each("port", scenario.ports.len(), Judge::port);
    judge.each("flow", scenario.flows.len(), Judge::flow);
    judge.each("probe", scenario.probes.len(), Judge::probe);
    judge.each("expect", scenario.expects.len(), Judge::expect);
    judge.grid();
    judge.problems
}

impl Judge<'_> {
    fn each(&mut self, table: &'static str, count: usize, judge: fn(&mut Self, usize)) {
        for index in 0..count {
            (self.table, self.index) = (table, index);
            judge(self, index);
        }
    }

    fn say(&mut self, key: &'static str, message: impl Into<String>, help: impl Into<String>) {
        let (table, index) = (self.table, self.index);
        self.problems.push(Problem { table, index, key, message: message.into(), help: help.into() });
    }

    /// Says so unless `low ≤ value ≤ high`.
    fn range<T: PartialOrd + std::fmt::Display>(&mut self, key: &'static str, value: T, low: T, high: T) {
        if value < low || value > high {
            self.say(key, format!("`{key}` is {value}"), format!("write a value from {low} to {high}"));
        }
    }

    fn top(&mut self) {
        self.range("duration", self.scenario.duration, Time::from_nanos(1), Time::from_secs(86_400));
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
                format!("add a [[link]] with a = \"{}\"", host.name),
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
        self.range("mtu", link.mtu, Size::from_bytes(576), Size::from_bytes(65_535));
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

    fn flow_end(&mut self, key: &'static str, name: &str) -> Option<usize> {
        let host = self.scenario.host(name);
        if host.is_none() {
            let help = self.node_names(Topology::is_host);
            match self.topology.node(name) {
                Some(_) => self.say(
                    key,
                    format!("`{name}` is a box: only hosts send and receive"),
                    format!("{help}, or add a [[host]] with name = \"{name}\""),
                ),
                None => self.say(key, format!("there is no host `{name}`"), help),
            }
        }
        host
    }

    fn flow(&mut self, index: usize) {
        let (scenario, flow) = (self.scenario, &self.scenario.flows[index]);
        if !flow.name.is_empty() {
            self.name("name", &flow.name);
        }
        let name = scenario.flow_name(index);
        if (0..index).any(|other| scenario.flow_name(other) == name) {
            self.say(
                if flow.name.is_empty() { "" } else { "name" },
                format!("there are two flows called `{name}`"),
                "give each flow its own name",
            );
        }
        self.range("count", flow.count, 1, 10_000);
        let limit = MAX_FLOWS as u64;
        let copies: u64 = scenario.flows[..=index].iter().map(|flow| u64::from(flow.count)).sum();
        if copies > limit && copies - u64::from(flow.count) <= limit {
            self.say(
                "count",
                format!("these are {copies} flows"),
                format!("a scenario has at most {MAX_FLOWS}: each needs a source port"),
            );
        }
        self.range("port", flow.port, 1, u16::MAX);
        let ends = (self.flow_end("from", &flow.from), self.flow_end("to", &flow.to));
        let mut mtu = 65_535;
        if let (Some(from), Some(to)) = ends {
            if from == to {
                self.say(
                    "to",
                    format!("the flow goes from `{}` to itself", flow.from),
                    "name two different hosts",
                );
            }
            match (self.topology.path(from, to), self.topology.path(to, from)) {
                (Some(path), Some(_)) => {
                    let mtus = path.iter().map(|hop| scenario.links[hop.link].mtu.as_bytes());
                    mtu = mtus.min().unwrap_or(mtu);
                }
                _ => self.say(
                    "to",
                    format!("no path leads from `{}` to `{}`", flow.from, flow.to),
                    "add the links that are missing; hosts do not forward",
                ),
            }
        }
        self.flow_times(flow);
        if let Some(size) = flow.size {
            self.range("size", size, Size::from_bytes(60), Size::from_bytes(mtu + 14));
        }
        self.flow_keys(flow);
        match flow.kind {
            Kind::Tcp => self.flow_tcp(flow),
            Kind::Udp => self.flow_udp(flow),
            Kind::Rr => {
                let most = Size::from_bytes(mtu - if flow.ipv6 { 48 } else { 28 });
                self.range("request", flow.request.unwrap_or(Size::from_bytes(1)), Size::from_bytes(1), most);
                self.range(
                    "response",
                    flow.response.unwrap_or(Size::from_bytes(1)),
                    Size::from_bytes(1),
                    most,
                );
            }
        }
    }

    fn flow_times(&mut self, flow: &Flow) {
        let end = self.scenario.duration;
        let stop = flow.stop.unwrap_or(end);
        if stop > end {
            self.say(
                "stop",
                format!("the flow stops at {stop}, after the end of the run at {end}"),
                format!("write a time up to {end}, or leave `stop` out"),
            );
        }
        if flow.start >= stop {
            self.say(
                "start",
                format!("the flow starts at {}, but stops at {stop}", flow.start),
                format!("write a time before {stop}"),
            );
        }
        let mut after = flow.start;
        for (begin, until) in &flow.idle {
            if begin >= until {
                self.say(
                    "idle",
                    format!("the idle interval {begin} to {until} has no length"),
                    "write [begin, end] with begin before end",
                );
            } else if *begin < after {
                self.say(
                    "idle",
                    format!("the idle interval {begin} to {until} begins before {after}"),
                    "write idle intervals in order, not overlapping, after `start`",
                );
            } else if *until > stop {
                self.say(
                    "idle",
                    format!("the idle interval {begin} to {until} ends after the flow, at {stop}"),
                    format!("write times up to {stop}"),
                );
            }
            after = after.max(*until);
        }
    }

    /// Says of each key that is set although the flow's kind has no use for it.
    fn flow_keys(&mut self, flow: &Flow) {
        let tcp = ["tcp"].as_slice();
        let udp = ["udp"].as_slice();
        let kind = match flow.kind {
            Kind::Tcp => "tcp",
            Kind::Udp => "udp",
            Kind::Rr => "rr",
        };
        let set = [
            ("size", flow.size.is_some(), ["tcp", "udp"].as_slice()),
            ("cc", flow.cc != Default::default(), tcp),
            ("window", flow.window.is_some(), tcp),
            ("chunk", flow.chunk.is_some(), tcp),
            ("pause", flow.pause.is_some(), ["tcp", "rr"].as_slice()),
            ("ecn", flow.ecn, ["tcp", "udp"].as_slice()),
            ("sack", !flow.sack, tcp),
            ("delayed_ack", !flow.delayed_ack, tcp),
            ("slow_start", !flow.slow_start, tcp),
            ("rate", flow.rate.is_some(), udp),
            ("burst", flow.burst.is_some(), udp),
            ("period", flow.period.is_some(), udp),
            ("on", flow.on.is_some(), udp),
            ("off", flow.off.is_some(), udp),
            ("distribution", flow.distribution != Distribution::Constant, udp),
            ("shape", flow.shape.is_some(), udp),
            ("request", flow.request.is_some(), ["rr"].as_slice()),
            ("response", flow.response.is_some(), ["rr"].as_slice()),
        ];
        for (key, is_set, kinds) in set {
            if is_set && !kinds.contains(&kind) {
                self.say(
                    key,
                    format!("`{key}` means nothing for a flow of kind {kind}"),
                    format!("leave it out, or write kind = \"{}\"", kinds[0]),
                );
            }
        }
    }

    fn flow_tcp(&mut self, flow: &Flow) {
        if let Some(window) = flow.window {
            self.range("window", window, Size::from_bytes(536), Size::from_bytes(1 << 30));
        }
        if let Some(chunk) = flow.chunk {
            self.range("chunk", chunk, Size::from_bytes(1), Size::from_bytes(1 << 40));
        } else if flow.pause.is_some() {
            self.say(
                "pause",
                "`pause` without `chunk`: a greedy flow has no pauses",
                "add chunk = BYTES, or write idle = [[\"5s\", \"10s\"]]",
            );
        }
    }

    fn flow_udp(&mut self, flow: &Flow) {
        if flow.size.is_none() {
            self.say(
                "",
                "a udp flow needs the length of its packets",
                "add size = BYTES, the frame's length, such as 1000",
            );
        }
        match (flow.rate, flow.burst, flow.period) {
            (Some(rate), None, None) if rate.as_bps() == 0 => {
                self.say("rate", "a flow of rate 0 sends nothing", "write a rate above 0")
            }
            (Some(_), None, None) => {}
            (None, Some(burst), Some(period)) => {
                self.range("burst", burst, 1, 10_000);
                self.range("period", period, Time::from_nanos(1), self.scenario.duration);
            }
            (None, Some(_), None) => self.say(
                "burst",
                "`burst` without `period`",
                "add period = \"150ms\": from one burst to the next",
            ),
            (None, None, Some(_)) => self.say("period", "`period` without `burst`", "add burst = PACKETS"),
            (None, None, None) => self.say(
                "",
                "a udp flow needs to know how fast it sends",
                "add rate = \"1M\", or burst = PACKETS and period = \"150ms\"",
            ),
            (Some(_), ..) => self.say(
                "rate",
                "`rate` beside `burst` or `period`: the flow has two speeds",
                "write either rate, or burst and period",
            ),
        }
        let floor = Time::from_nanos(1);
        match (flow.on, flow.off) {
            (Some(on), Some(off)) => {
                self.range("on", on, floor, Time::from_secs(86_400));
                self.range("off", off, floor, Time::from_secs(86_400));
                if flow.rate.is_none() {
                    self.say(
                        "on",
                        "`on` and `off` without `rate`",
                        "add rate = \"1M\": how fast it sends while on",
                    );
                }
            }
            (Some(_), None) => self.say("on", "`on` without `off`", "add off = \"1s\": the mean time off"),
            (None, Some(_)) => self.say("off", "`off` without `on`", "add on = \"1s\": the mean time on"),
            (None, None) if flow.distribution != Distribution::Constant => {
                self.say(
                    "distribution",
                    "there are no times to draw",
                    "add on = \"1s\" and off = \"1s\", the means",
                );
            }
            (None, None) => {}
        }
        if let Some(shape) = flow.shape {
            if flow.distribution != Distribution::Pareto {
                self.say(
                    "shape",
                    "`shape` is for the Pareto distribution",
                    "leave it out, or write distribution = \"pareto\"",
                );
            } else if !(shape > 1.0 && shape <= 100.0) {
                self.say(
                    "shape",
                    format!("`shape` is {shape}"),
                    "write a value above 1 (where the mean exists) up to 100",
                );
            }
        }
    }

    fn probe(&mut self, index: usize) {
        let probe = &self.scenario.probes[index];
        self.range(
            "every",
            probe.every,
            Time::from_millis(1),
            self.scenario.duration.max(Time::from_millis(1)),
        );
        if self.scenario.probes[..index].iter().any(|other| other.what == probe.what) {
            let what = if probe.what == ProbeWhat::Classes { "classes" } else { "flows" };
            self.say("what", format!("there are two probes of {what}"), "keep one of them");
        }
    }

    fn expect(&mut self, index: usize) {
        let expect = &self.scenario.expects[index];
        self.expect_subject(expect);
        let end = self.scenario.duration;
        let to = expect.to.unwrap_or(end);
        if to > end {
            self.say(
                "to",
                format!("the interval ends at {to}, after the end of the run at {end}"),
                format!("write a time up to {end}"),
            );
        }
        if expect.from >= to {
            self.say(
                "from",
                format!("the interval begins at {}, but ends at {to}", expect.from),
                format!("write a time before {to}"),
            );
        }
        if let Some(every) = expect.every
            && (every == Time::ZERO
                || every.as_nanos() > to.as_nanos().saturating_sub(expect.from.as_nanos()))
        {
            self.say(
                "every",
                format!("no window of {every} fits between {} and {to}", expect.from),
                "write a window above 0 that fits",
            );
        }
        if expect.every.is_none() && expect.windows != Windows::All {
            self.say(
                "windows",
                "`windows` without `every`: there is one window",
                "add every = \"1s\", or leave `windows` out",
            );
        }
        if expect.what.whole_run_only()
            && (expect.from > Time::ZERO || expect.to.is_some() || expect.every.is_some())
        {
            let key = if expect.from > Time::ZERO {
                "from"
            } else if expect.to.is_some() {
                "to"
            } else {
                "every"
            };
            self.say(
                key,
                format!("{} is only known for the whole run", expect.what),
                "leave out from, to and every",
            );
        }
        self.expect_amounts(expect);
    }

    fn expect_subject(&mut self, expect: &Expect) {
        let flow_keys = [("flow", expect.flow.is_some()), ("flows", !expect.flows.is_empty())];
        let class_keys = [("class", expect.class.is_some()), ("classes", !expect.classes.is_empty())];
        for (keys, fits, other) in
            [(flow_keys, expect.what.of_flows(), "classes"), (class_keys, !expect.what.of_flows(), "flows")]
        {
            for (key, set) in keys {
                if set && !fits {
                    self.say(
                        key,
                        format!("{} is measured for {other}, not by `{key}`", expect.what),
                        format!("leave `{key}` out, or see what can be measured for it"),
                    );
                }
            }
            if keys[0].1 && keys[1].1 {
                self.say(
                    keys[1].0,
                    format!("`{}` beside `{}`", keys[1].0, keys[0].0),
                    format!("put all names into `{}`", keys[1].0),
                );
            }
        }
        if expect.what.of_flows() {
            let names = expect.flow.iter().map(|name| ("flow", name));
            let names = names.chain(expect.flows.iter().map(|name| ("flows", name)));
            for (key, name) in names.chain(expect.per.iter().map(|name| ("per", name))) {
                if self.scenario.flows_called(name).is_empty() {
                    let known: Vec<String> = (0..self.scenario.flows.len().min(20))
                        .map(|flow| self.scenario.flow_name(flow))
                        .collect();
                    self.say(
                        key,
                        format!("there is no flow `{name}`"),
                        format!("write one of: {}", known.join(", ")),
                    );
                }
            }
            if expect.port.is_some() {
                self.say(
                    "port",
                    format!("{} is measured at the hosts, not at a port", expect.what),
                    "leave `port` out",
                );
            }
        } else if expect.what == Measure::Utilisation {
            if expect.class.is_some() || !expect.classes.is_empty() {
                self.say(
                    if expect.class.is_some() { "class" } else { "classes" },
                    "utilisation is of a link, not of a class",
                    "leave it out, or measure the share",
                );
            }
            self.expect_port(expect, true);
        } else {
            self.expect_port(expect, false);
        }
        if !expect.per.is_empty() && matches!(expect.what, Measure::Utilisation | Measure::Jain) {
            self.say(
                "per",
                format!("{} cannot be divided by that of others", expect.what),
                "leave `per` out",
            );
        }
    }

    fn expect_port(&mut self, expect: &Expect, links: bool) {
        let mut names: Vec<String> = self.scenario.ports.iter().map(|port| port.name()).collect();
        match &expect.port {
            None if names.is_empty() => {
                self.say(
                    "what",
                    format!("{} is measured at a managed port, and there is none", expect.what),
                    "add a [[port]], or say which link by port = \"A>B\" if it is the utilisation",
                );
            }
            None if names.len() > 1 => {
                self.say(
                    "",
                    "there are several managed ports",
                    format!("add port = one of: {}", names.join(", ")),
                );
            }
            None => {}
            Some(name) => {
                if links {
                    names = self
                        .scenario
                        .links
                        .iter()
                        .flat_map(|link| [format!("{}>{}", link.a, link.b), format!("{}>{}", link.b, link.a)])
                        .collect();
                }
                if !names.contains(name) {
                    names.truncate(20);
                    self.say(
                        "port",
                        format!("there is no {} `{name}`", if links { "link" } else { "managed port" }),
                        format!("write one of: {}", names.join(", ")),
                    );
                }
            }
        }
    }

    fn expect_amounts(&mut self, expect: &Expect) {
        let unit = expect.unit();
        match (expect.value, expect.min.is_some() || expect.max.is_some()) {
            (None, false) => {
                self.say("", "nothing is expected", "add value = … and tolerance = …, or min = … or max = …")
            }
            (Some(_), true) => self.say(
                "value",
                "`value` beside `min` or `max`",
                "write value and tolerance, or min and max",
            ),
            _ => {}
        }
        let form = match unit {
            Unit::Rate => "a rate such as \"10M\"",
            Unit::Time => "a time such as \"8ms\"",
            Unit::Share => "a share such as \"58%\" or 0.58",
            Unit::Number => "a number such as 43",
        };
        let ratio = !expect.per.is_empty();
        for (key, amount) in [("value", expect.value), ("min", expect.min), ("max", expect.max)] {
            let fits = match amount {
                None | Some(Amount::Number(0.0)) => true,
                Some(Amount::Number(_)) => unit != Unit::Time,
                Some(Amount::Percent(_)) => unit == Unit::Share || ratio,
                Some(Amount::Points(_)) => false,
                Some(Amount::Time(_)) => unit == Unit::Time,
                Some(Amount::Rate(_)) => unit == Unit::Rate,
            };
            if let (false, Some(amount)) = (fits, amount) {
                self.say(
                    key,
                    format!("`{amount}` does not fit {}", expect.label_of_value()),
                    format!("write {form}"),
                );
            }
        }
        for (key, amount) in [("tolerance", expect.tolerance), ("tolerance_live", expect.tolerance_live)] {
            let fits = match amount {
                None | Some(Amount::Percent(_)) => true,
                Some(Amount::Number(_)) => unit != Unit::Time,
                Some(Amount::Points(_)) => unit == Unit::Share || ratio,
                Some(Amount::Time(_)) => unit == Unit::Time,
                Some(Amount::Rate(_)) => unit == Unit::Rate,
            };
            if let (false, Some(amount)) = (fits, amount) {
                self.say(
                    key,
                    format!("the tolerance `{amount}` does not fit {}", expect.label_of_value()),
                    format!("write a part of the value such as \"5%\", or {form}"),
                );
            }
            if amount.is_some() && expect.value.is_none() {
                self.say(
                    key,
                    format!("`{key}` without `value`"),
                    "add value = …: min and max have no tolerance",
                );
            }
        }
        if let (Some(min), Some(max)) = (expect.min, expect.max)
            && min.base() > max.base()
        {
            self.say("min", format!("no value is at least {min} and at most {max}"), "write min up to max");
        }
    }

    /// Names the entry that makes the cells of the series too many.
    fn grid(&mut self) {
        let scenario = self.scenario;
        let probes = scenario
            .probes
            .iter()
            .enumerate()
            .map(|(index, probe)| ("probe", "every", index, vec![probe.every]));
        let expects = scenario.expects.iter().enumerate();
        let expects = expects.map(|(index, expect)| ("expect", "", index, expect.times().collect()));
        let mut cell = 0;
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

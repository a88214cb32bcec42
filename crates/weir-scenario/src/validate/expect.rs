//! Expectations: what is measured of whom, in which interval, and amounts that fit it.

use super::{Judge, typed};
use crate::scenario::Flow;
use weir_report::{Expect, FlowKind, Measure, Windows};
use weir_text::Unit;
use weir_text::{Amount, Time};

impl Judge<'_> {
    pub(super) fn expect(&mut self, index: usize) {
        let expect = &self.scenario.expects[index];
        self.expect_subject(expect);
        let end = self.scenario.duration;
        let to = expect.to.unwrap_or(end);
        if to > end {
            self.say(
                "to",
                format!("the interval ends at {to}, after the end of the run at {end}"),
                format!("write a time up to {}", typed(end)),
            );
        }
        if expect.from >= to {
            self.say(
                "from",
                format!("the interval begins at {}, but ends at {to}", expect.from),
                format!("write a time before {}", typed(to)),
            );
        }
        if let Some((every, window)) = expect.every.zip(expect.window())
            && (every == Time::ZERO
                || window.as_nanos() > to.as_nanos().saturating_sub(expect.from.as_nanos()))
        {
            self.say(
                if expect.over.is_some() && every != Time::ZERO { "over" } else { "every" },
                format!("no window of {window} fits between {} and {to}", expect.from),
                "write a window above 0 that fits",
            );
        }
        self.over(expect.every, expect.over);
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
                if !self.scenario.is_flow(name) {
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
            self.expect_kind(expect);
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

    /// Only some kinds of flows have round-trip or one-way times.
    fn expect_kind(&mut self, expect: &Expect) {
        let (kinds, words, other) = match expect.what {
            Measure::Rtt(of) => ([FlowKind::Tcp, FlowKind::Rr].as_slice(), "tcp or rr", Measure::OneWay(of)),
            Measure::OneWay(of) => {
                ([FlowKind::Udp, FlowKind::Rtp].as_slice(), "udp or rtp", Measure::Rtt(of))
            }
            _ => return,
        };
        let fits = |flow: &Flow| kinds.contains(&flow.kind);
        let needed = format!("{} is measured for flows of kind {words}", expect.what);
        if expect.flow.is_none() && expect.flows.is_empty() && !self.scenario.flows.iter().any(fits) {
            self.say(
                "what",
                format!("{needed}, and there is none"),
                format!("add kind = \"{}\" to a flow, or measure the delay of its class", kinds[0].name()),
            );
        }
        let names = expect.flow.iter().map(|name| ("flow", name));
        let names = names.chain(expect.flows.iter().map(|name| ("flows", name)));
        for (key, name) in names.chain(expect.per.iter().map(|name| ("per", name))) {
            let called = |index: &usize| {
                let flow = self.scenario.flow_name(*index);
                *name == flow || name.rsplit_once('.').is_some_and(|(of, _)| of == flow)
            };
            let Some(flow) = (0..self.scenario.flows.len()).find(called) else { continue };
            let flow = &self.scenario.flows[flow];
            if !fits(flow) {
                self.say(
                    key,
                    format!("{needed}, and `{name}` is of kind {}", flow.kind.name()),
                    format!("name a flow of kind {words}, or write what = \"{other}\""),
                );
            }
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
                    format!("add port = \"{}\", or another of: {}", names[0], names[1..].join(", ")),
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
}

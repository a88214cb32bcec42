//! Flows: who sends what to whom, when, and which keys belong to which kind.

use super::{Judge, LEAST_MTU, MOST_MTU, typed};
use crate::derived::MAX_FLOWS;
use crate::media::Codec;
use crate::scenario::{Distribution, Flow};
use crate::topology::Topology;
use weir_report::FlowKind;
use weir_text::number::MOST_RATE;
use weir_text::{Size, Time};

impl Judge<'_> {
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

    pub(super) fn flow(&mut self, index: usize) {
        let (scenario, flow) = (self.scenario, &self.scenario.flows[index]);
        if !flow.name.is_empty() {
            self.name("name", &flow.name);
        }
        let name = scenario.flow_name(index);
        if !self.flow_names.insert(name.clone()) {
            let key = if flow.name.is_empty() { "" } else { "name" };
            self.say(key, format!("there are two flows called `{name}`"), "give each flow its own name");
        }
        self.range("count", flow.count, 1, 10_000);
        let (before, limit) = (self.copies, MAX_FLOWS as u64);
        self.copies += u64::from(flow.count);
        if self.copies > limit && before <= limit {
            let message = format!("these are {} flows", self.copies);
            self.say(
                "count",
                message,
                format!("a scenario has at most {MAX_FLOWS}: each needs a source port"),
            );
        }
        self.range("port", flow.port, 1, u16::MAX);
        let ends = (self.flow_end("from", &flow.from), self.flow_end("to", &flow.to));
        let mut mtu = MOST_MTU;
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
                    // A link's own check says what is wrong with an MTU out of this range.
                    mtu = mtus.min().unwrap_or(mtu).clamp(LEAST_MTU, MOST_MTU);
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
            FlowKind::Tcp => self.flow_tcp(flow),
            FlowKind::Udp => self.flow_udp(flow),
            FlowKind::Rtp => self.flow_rtp(flow, mtu),
            FlowKind::Rr => {
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
                format!("write a time up to {}, or leave `stop` out", typed(end)),
            );
        }
        if flow.start >= stop {
            self.say(
                "start",
                format!("the flow starts at {}, but stops at {stop}", flow.start),
                format!("write a time before {}", typed(stop)),
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
                    format!("write [begin, end] with an end up to {}", typed(stop)),
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
            FlowKind::Tcp => "tcp",
            FlowKind::Udp => "udp",
            FlowKind::Rr => "rr",
            FlowKind::Rtp => "rtp",
        };
        let rtp = ["rtp"].as_slice();
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
            ("rates", !flow.rates.is_empty(), udp),
            ("hold", flow.hold.is_some(), udp),
            ("burst", flow.burst.is_some(), udp),
            ("period", flow.period.is_some(), udp),
            ("on", flow.on.is_some(), udp),
            ("off", flow.off.is_some(), udp),
            ("distribution", flow.distribution != Distribution::Constant, udp),
            ("shape", flow.shape.is_some(), udp),
            ("stationary", flow.stationary, udp),
            ("codec", flow.codec != Codec::default(), rtp),
            ("frames", flow.frames.is_some(), rtp),
            ("ssrc", flow.ssrc.is_some(), rtp),
            ("hidden", flow.hidden > 0, rtp),
            ("suppression", flow.suppression, rtp),
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
                "add chunk = BYTES, or write idle = [[\"5s\", \"10s\"]] instead of `pause`",
            );
        }
    }

    fn flow_rtp(&mut self, flow: &Flow, mtu: u64) {
        self.range("frames", flow.frames.unwrap_or(1), 1, 10);
        self.range("ssrc", flow.ssrc.unwrap_or(1), 1, u32::MAX - 10_000);
        self.range("hidden", flow.hidden, 0, 64);
        if flow.codec == Codec::Video {
            for (key, is_set) in [("frames", flow.frames.is_some()), ("suppression", flow.suppression)] {
                if is_set {
                    self.say(key, format!("`{key}` is for voice"), "leave it out, or write codec = \"g711\"");
                }
            }
        }
        let room = mtu - if flow.ipv6 { 48 } else { 28 };
        let octets = u64::from(flow.media_octets());
        if octets > room {
            let help = "write another codec, or a larger mtu for the links on its path";
            self.say("codec", format!("packets of {octets} bytes on a path with room for {room}"), help);
        }
    }

    /// A source faster than this would not let the simulator's time pass.
    fn flow_rate(&mut self, key: &'static str, bps: u128) {
        if bps > u128::from(MOST_RATE.as_bps()) {
            self.say(
                key,
                format!("the flow offers {bps} bit/s"),
                format!("a flow sends at most {MOST_RATE}: write less"),
            );
        }
    }

    /// The rates that a flow has one after the other.
    fn flow_rates(&mut self, flow: &Flow) {
        for rate in &flow.rates {
            self.flow_rate("rates", u128::from(rate.as_bps()));
        }
        if flow.rates.iter().all(|rate| rate.as_bps() == 0) {
            self.say(
                "rates",
                "a flow whose rates are all 0 sends nothing",
                "write a rate above 0 among them",
            );
        }
        match flow.hold {
            Some(hold) => self.range("hold", hold, Time::from_micros(1), Time::from_secs(86_400)),
            None => self.say("rates", "`rates` without `hold`", "add hold = \"10s\": the mean time at each"),
        }
        if flow.on.is_some() || flow.off.is_some() {
            self.say("on", "`on` and `off` beside `rates`", "write 0 among `rates`: it is silence");
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
            (None, None, None) if !flow.rates.is_empty() => self.flow_rates(flow),
            _ if !flow.rates.is_empty() => {
                self.say("rates", "`rates` beside `rate`, `burst` or `period`", "leave the others out")
            }
            (Some(rate), None, None) if rate.as_bps() == 0 => {
                self.say("rate", "a flow of rate 0 sends nothing", "write a rate above 0")
            }
            (Some(rate), None, None) => self.flow_rate("rate", u128::from(rate.as_bps())),
            (None, Some(burst), Some(period)) => {
                self.range("burst", burst, 1, 10_000);
                self.range("period", period, Time::from_nanos(1), self.scenario.duration);
                let bits = u128::from(burst) * 8 * flow.size.map_or(0, |size| u128::from(size.as_bytes()));
                self.flow_rate("period", bits * 1_000_000_000 / u128::from(period.as_nanos().max(1)));
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
        // Shorter means would draw times of nothing, one after the other.
        let floor = Time::from_micros(1);
        match (flow.on, flow.off) {
            (Some(on), Some(off)) => {
                self.range("on", on, floor, Time::from_secs(86_400));
                self.range("off", off, floor, Time::from_secs(86_400));
                if flow.rate.is_none() && flow.rates.is_empty() {
                    let help = match (flow.burst, flow.period) {
                        (None, None) => "add rate = \"1M\": how fast it sends while on",
                        _ => "leave `on` and `off` out: a burst comes every `period`",
                    };
                    self.say("on", "`on` and `off` without `rate`", help);
                }
            }
            (Some(_), None) => self.say("on", "`on` without `off`", "add off = \"1s\": the mean time off"),
            (None, Some(_)) => self.say("off", "`off` without `on`", "add on = \"1s\": the mean time on"),
            (None, None) if flow.distribution != Distribution::Constant && flow.rates.is_empty() => {
                self.say(
                    "distribution",
                    "there are no times to draw",
                    "add on = \"1s\" and off = \"1s\", the means",
                );
            }
            (None, None) => {}
        }
        if flow.hold.is_some() && flow.rates.is_empty() {
            self.say("hold", "`hold` without `rates`", "leave `hold` out, or add rates = …");
        }
        if flow.stationary && flow.on.is_none() {
            let help = "add on = \"1s\" and off = \"1s\", the means";
            self.say("stationary", "there are no times on and off to begin in the middle of", help);
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
}

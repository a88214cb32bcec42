//! What CBQ can be told: the declaration of every parameter, and those of the discipline itself.

use super::link_sharing::Rule;
use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{Kind, ParamError, ParamSpec, Params, TimeUnit, Value};

const ADMISSION: &[&str] = &["guaranteed", "predictive", "cntlload", "cntldelay", "none"];

pub(super) const PARAMS: &[ParamSpec] = &[
    P::discipline(
        "efficient",
        Kind::Flag,
        "",
        "Never idle: when every class is overlimit, the first that may borrow sends.",
    ),
    P::discipline(
        "link-sharing",
        Kind::Word(&["top-level", "formal", "ancestor-only"]),
        "top-level",
        "Which ancestors may lend (Floyd and Jacobson 1995, section III).",
    ),
    P::discipline(
        "gain",
        Kind::Count { min: 2, max: 1024 },
        "32",
        "Weight of the past in the estimator: a packet counts 1/gain; a power of two.",
    ),
    P::discipline(
        "minidle",
        Kind::Word(&["on", "off"]),
        "on",
        "Whether the debt of a class is bounded below.",
    ),
    P::discipline(
        "completion",
        Kind::Word(&["estimated", "callback"]),
        "estimated",
        "When a packet counts as sent: estimated from its size when it leaves, or when the link says so.",
    ),
    P::discipline("prr", Kind::Flag, "", "Packet by packet round robin instead of weighted round robin."),
    P::class("priority", Kind::Count { min: 0, max: 7 }, "1", "Higher goes first."),
    P::class("pbandwidth", Kind::Percent, "0", "Share of the interface's bandwidth, percent."),
    P::class("exactbandwidth", Kind::Rate, "", "Share as a rate, bit/s."),
    P::class("borrow", Kind::Flag, "", "May use what its parent has left over."),
    P::class("default", Kind::Flag, "", "Takes what no filter matches."),
    P::class("control", Kind::Flag, "", "Takes control traffic: ICMP, IGMP, RSVP."),
    P::class("admission", Kind::Word(ADMISSION), "none", "Kept for RSVP; no effect of its own."),
    P::class(
        "maxdelay",
        Kind::Time { bare: TimeUnit::Millis },
        "0",
        "Queue length as the time that it takes to drain, ms.",
    ),
    P::class(
        "maxburst",
        Kind::Count { min: 1, max: 10_000 },
        "16",
        "Packets that an idle class may send back to back (4 where a packet outlasts 10 ms).",
    ),
    P::class(
        "minburst",
        Kind::Count { min: 1, max: 10_000 },
        "2",
        "Packets that a class without borrowing sends back to back in steady state.",
    ),
    P::class("packetsize", Kind::Bytes { min: 1, max: 65_535 }, "MTU", "Average packet size, bytes."),
    P::class("maxpacketsize", Kind::Bytes { min: 1, max: 65_535 }, "MTU", "Largest packet, bytes."),
    P::class("qlimit", Kind::Count { min: 1, max: 1_000_000 }, "30", "Queue length, packets; 60 with RED."),
];

/// The parameters of the discipline itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub rule: Rule,
    pub efficient: bool,
    pub gain_log2: u32,
    pub minidle: bool,
    pub callback: bool,
    pub prr: bool,
}

impl Options {
    pub const DEFAULT: Options = Options {
        rule: Rule::TopLevel,
        efficient: false,
        gain_log2: default_of(PARAMS, "gain").trailing_zeros(),
        minidle: true,
        callback: false,
        prr: false,
    };

    /// With what `params` say; what they do not say stays.
    pub fn read(mut self, params: &Params) -> Result<Self, ParamError> {
        for (field, value) in params.iter() {
            match (field, value) {
                ("efficient", Value::Flag) => self.efficient = true,
                ("prr", Value::Flag) => self.prr = true,
                ("minidle", Value::Word(word)) => self.minidle = *word != "off",
                ("completion", Value::Word(word)) => self.callback = *word == "callback",
                ("link-sharing", Value::Word("formal")) => self.rule = Rule::Formal,
                ("link-sharing", Value::Word("ancestor-only")) => self.rule = Rule::AncestorOnly,
                ("link-sharing", Value::Word(_)) => self.rule = Rule::TopLevel,
                ("gain", Value::Count(n)) if n.is_power_of_two() => self.gain_log2 = n.trailing_zeros(),
                ("gain", found) => {
                    return Err(ParamError::new("", "gain", found, "a power of two, as 16 or 32"));
                }
                _ => {}
            }
        }
        Ok(self)
    }
}

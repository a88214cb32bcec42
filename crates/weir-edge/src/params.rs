//! The parameters of `recognise`, `sla` and `allocate`, each declared once, and what they come to.

use crate::admit::{Admission, Evict};
use crate::allocate::{Allocation, Amount, Congestion, Law, Log, Threshold, Windows};
use crate::edge::Recognition;
use crate::recognise::statistical::Rule;
use crate::recognise::{MOST_PACKETS, Rtp, Rules};
use crate::sla::{Contract, Policy};
use weir_core::packet::Dscp;
use weir_core::queue::params::{default_of, default_word};
use weir_core::queue::{Kind, ParamSpec, ParamSpec as P, Params, TimeUnit, Value};
use weir_core::units::{Duration, Fixed, Fraction, Rate};

const MILLIS: Kind = Kind::Time { bare: TimeUnit::Millis };

/// Of `recognise INTERFACE`.
pub const RECOGNISE: &[ParamSpec] = &[
    P::discipline(
        "trust",
        Kind::Word(&["nothing", "dscp"]),
        "nothing",
        "`dscp`: a flow that its host marks EF, VA or NQB is real-time, and counts against its contract.",
    ),
    P::discipline(
        "untrusted",
        Kind::Word(&["clear", "keep"]),
        "clear",
        "What becomes of the code point of packets from sources without a contract.",
    ),
    P::discipline(
        "rtp",
        Kind::Word(&["on", "off"]),
        "on",
        "Flows of RTP are real-time; `rtp 4/2s` is `packets 4 within 2s`. Off: no payload is looked at.",
    ),
    P::discipline(
        "packets",
        Kind::Count { min: 2, max: MOST_PACKETS as u64 },
        "4",
        "Packets of one SSRC that go on from each other and make a flow real-time, N.",
    ),
    P::discipline(
        "within",
        MILLIS,
        "2s",
        "Time from the first of them to the last, at most, T; up to 60min.",
    ),
    P::discipline(
        "offsets",
        Kind::Word(&["auto", "off"]),
        "auto",
        "Headers are also looked for further in, with N doubled, in the first 200 packets or 10 s of a flow.",
    ),
    P::discipline("stun", Kind::Flag, "", "Two packets suffice where ICE has succeeded in both directions."),
    P::discipline("dtls", Kind::Flag, "", "Two packets suffice where DTLS has finished."),
    P::discipline(
        "statistical",
        Kind::Flag,
        "",
        "Flows of short packets at even distances are real-time as well. A guess: off unless given.",
    ),
    P::discipline(
        "rate",
        Kind::Count { min: 1, max: 31 },
        "15",
        "Statistical rule: more packets than this in a second, L.",
    ),
    P::discipline(
        "size",
        Kind::Bytes { min: 29, max: 65_535 },
        "320",
        "Statistical rule: most bytes of IP on average, K. G.711 with 20 ms has 200.",
    ),
    P::discipline(
        "over",
        Kind::Count { min: 1, max: 16 },
        "15",
        "Statistical rule: packets of that average.",
    ),
    P::discipline(
        "skip",
        Kind::Count { min: 0, max: 65_535 },
        "4",
        "Statistical rule: packets at the start that are ordinary, J.",
    ),
    P::discipline(
        "per",
        Kind::Word(&["flow", "aggregate"]),
        "flow",
        "Statistical rule: `aggregate` takes all flows of a contract that nothing else tells as one, as the paper does.",
    ),
    P::discipline("idle", MILLIS, "30s", "A flow is forgotten after so much silence."),
    P::discipline(
        "flows",
        Kind::Count { min: 8, max: 16_777_216 },
        "65536",
        "Flows that are remembered, each direction by itself; 128 bytes each, taken at the start.",
    ),
];

/// Of `sla INTERFACE ID PREFIXES`.
pub const SLA: &[ParamSpec] = &[
    P::discipline(
        "bw",
        Kind::Rate,
        "",
        "Bandwidth of its real-time flows in one direction, bit/s; required.",
    ),
    P::discipline(
        "shared",
        Kind::Percent,
        "0",
        "Share that its flows compete for; the rest is divided equally.",
    ),
    P::discipline(
        "unused",
        Kind::Word(&["lend", "waste"]),
        "lend",
        "Whether what a flow leaves of its own part goes to the shared one.",
    ),
    P::discipline(
        "policy",
        Kind::Word(&["ok", "drop", "be", "be-flow"]),
        "be",
        "What becomes of packets out of profile: they pass, are dropped, or go on as best effort.",
    ),
    P::discipline(
        "timeout",
        MILLIS,
        "",
        "A flow that is silent for so long has ended; instead of its class's.",
    ),
    P::discipline(
        "flows",
        // When many end at once, each is taken out of the chain of all.
        Kind::Count { min: 1, max: 4_096 },
        "64",
        "Most flows at a time, on trial and real-time; the oldest on trial gives way.",
    ),
    P::discipline("accept", Kind::Percent, "", "Its own T_a, instead of its class's."),
    P::discipline("drop", Kind::Percent, "", "Its own T_d, instead of its class's."),
    P::discipline(
        "evict",
        Kind::Word(&Evict::WORDS),
        "",
        "Which of its flows goes when one of its flows must; else the class chooses among all.",
    ),
    P::discipline(
        "guessed",
        Kind::Percent,
        "",
        "Share of its bandwidth for flows that the statistical rule found, together and at most; all of it unless given.",
    ),
];

/// Of `allocate INTERFACE CLASS`.
pub const ALLOCATE: &[ParamSpec] = &[
    P::discipline(
        "law",
        Kind::Word(&["threshold", "log", "fixed"]),
        "threshold",
        "Which law asks for bandwidth; `fixed` leaves it to congestion control.",
    ),
    P::discipline("from", Kind::Rate, "0", "Least allocation, bit/s; guaranteed, never asked for."),
    P::discipline("to", Kind::Rate, "1T", "Most that is asked for, bit/s."),
    P::discipline("initial", Kind::Rate, "", "Allocation at the start, bit/s; as `from` unless given."),
    P::discipline("unit", Kind::Rate, "1", "Requests are multiples of this, rounded up, bit/s."),
    P::discipline("window", MILLIS, "800ms", "Length of a window of the meter, S."),
    P::discipline(
        "hold",
        Kind::Count { min: 1, max: 1_000 },
        "10",
        "Windows that a high mean is held for, T/S.",
    ),
    P::discipline(
        "measure",
        Kind::Word(&["arrivals", "shaper"]),
        "arrivals",
        "Where the class is measured: as packets arrive, or behind its own shaper.",
    ),
    P::discipline("up", Kind::Real, "1.2", "Threshold law: factor of a rise, i."),
    P::discipline("down", Kind::Real, "", "Threshold law: factor of a fall, d; 1/`up` unless given."),
    P::discipline("high", Kind::Percent, "90", "Threshold law: upper threshold of the allocation, l_max."),
    P::discipline("low", Kind::Percent, "70", "Threshold law: lower threshold, l_min."),
    P::discipline(
        "gain",
        Kind::Rate,
        "600K",
        "Logarithmic law: K, bit/s, or a percentage of the allocation.",
    ),
    P::discipline("target", Kind::Percent, "90", "Logarithmic law: target utilisation."),
    P::discipline("step", Kind::Rate, "50K", "Logarithmic law: least step, bit/s, or a percentage."),
    P::discipline(
        "published",
        Kind::Flag,
        "",
        "Logarithmic law: steps may pass their target, as in the paper.",
    ),
    P::discipline(
        "congestion",
        MILLIS,
        "",
        "Longest time that the queue may take to drain, T_s; off unless given.",
    ),
    P::discipline("margin", Kind::Percent, "20", "Margin of the rate asked for in congestion, M_s."),
    P::discipline("packets", Kind::Flag, "", "Congestion in packets, without margin: chapter V's variant."),
    P::discipline("guard", MILLIS, "", "Silence of the law after congestion; two windows unless given."),
    P::discipline("retry", MILLIS, "10s", "No rise is asked for so long after a refusal."),
    P::discipline("accept", Kind::Percent, "90", "A flow is admitted below this share of the limit, T_a."),
    P::discipline("drop", Kind::Percent, "95", "Above this share of the limit a flow goes, T_d."),
    P::discipline(
        "new-flow",
        Kind::Rate,
        "",
        "What a new flow is expected to send; the mean of the others unless given.",
    ),
    P::discipline("evict", Kind::Word(&Evict::WORDS), "random", "Which flow goes."),
    P::discipline("timeout", MILLIS, "5s", "A flow that is silent for so long has ended."),
    P::discipline(
        "refused",
        Kind::Word(&["be", "drop"]),
        "be",
        "What becomes of refused and evicted flows: best effort, or dropped.",
    ),
];

/// `gain` and `step` as percentages of the allocation.
pub const SHARES: &[ParamSpec] = &[
    P::discipline("gain", Kind::Percent, "", "K as a percentage of the allocation."),
    P::discipline("step", Kind::Percent, "", "The least step as a percentage of the allocation."),
];

fn time(params: &Params, specs: &'static [ParamSpec], name: &'static str) -> Duration {
    params.time(name).unwrap_or(Duration::from_nanos(default_of(specs, name)))
}

fn share(params: &Params, specs: &'static [ParamSpec], name: &'static str) -> Fraction {
    params.fraction(name).unwrap_or(percent_default(default_of(specs, name)))
}

/// The nearest fraction to a default, which `default_of` rounds down.
fn percent_default(raw: u64) -> Fraction {
    Fraction::ratio((raw * 10_000 + (1 << 31)) >> 32, 10_000)
}

fn word(params: &Params, specs: &'static [ParamSpec], name: &'static str) -> &'static str {
    params.word(name).unwrap_or(default_word(specs, name))
}

fn amount(params: &Params, name: &'static str, usual: u64) -> Amount {
    match params.get(name) {
        Some(Value::Fraction(share)) => Amount::Share(*share),
        Some(Value::Rate(rate)) => Amount::Rate(rate.as_bps()),
        _ => Amount::Rate(usual),
    }
}

/// The rules that the words of a `recognise` line ask for.
fn rules(params: &Params) -> Rules {
    let count = |name| params.count(name).unwrap_or(default_of(RECOGNISE, name));
    let rtp = || Rtp { packets: count("packets") as u8, within: time(params, RECOGNISE, "within") };
    let statistical = || Rule {
        rate: count("rate") as u8,
        size: params.bytes("size").unwrap_or(default_of(RECOGNISE, "size")) as u32,
        over: count("over") as u8,
        skip: count("skip") as u16,
        per_aggregate: word(params, RECOGNISE, "per") == "aggregate",
    };
    Rules {
        rtp: (word(params, RECOGNISE, "rtp") == "on").then(rtp),
        offsets: word(params, RECOGNISE, "offsets") == "auto",
        stun: params.has("stun"),
        dtls: params.has("dtls"),
        statistical: params.has("statistical").then(statistical),
    }
}

/// What the words of a `recognise` line come to, and whether untrusted marks are kept.
pub fn recognition(params: &Params) -> (Recognition, bool) {
    let recognition = Recognition {
        trust_dscp: word(params, RECOGNISE, "trust") == "dscp",
        rules: rules(params),
        idle: time(params, RECOGNISE, "idle"),
        flows: params.count("flows").unwrap_or(default_of(RECOGNISE, "flows")) as u32,
    };
    (recognition, word(params, RECOGNISE, "untrusted") == "keep")
}

/// What the words of an `sla` line come to.
pub fn contract(id: u32, dscp: Dscp, class: usize, params: &Params) -> Contract {
    Contract {
        id,
        bandwidth_bps: params.rate("bw").map_or(0, Rate::as_bps),
        shared: share(params, SLA, "shared"),
        lend: word(params, SLA, "unused") == "lend",
        dscp,
        policy: match word(params, SLA, "policy") {
            "ok" => Policy::Ok,
            "drop" => Policy::Drop,
            "be-flow" => Policy::FlowBestEffort,
            _ => Policy::BestEffort,
        },
        timeout: params.time("timeout"),
        flows: params.count("flows").unwrap_or(default_of(SLA, "flows")) as u32,
        class,
        accept: params.fraction("accept"),
        drop: params.fraction("drop"),
        evict: params.word("evict").and_then(Evict::of_word),
        guessed: params.fraction("guessed"),
        guessed_dscp: None,
    }
}

/// What the words of an `allocate` line come to.
pub fn allocation(params: &Params) -> Allocation {
    let usual = Allocation::default();
    let rate = |name, or: u64| params.rate(name).map_or(or, Rate::as_bps);
    let from = rate("from", usual.from);
    let span = time(params, ALLOCATE, "window");
    let law = match word(params, ALLOCATE, "law") {
        "log" => {
            let Log { gain: Amount::Rate(gain), step: Amount::Rate(step), .. } = Log::default() else {
                return usual;
            };
            Law::Log(Log {
                gain: amount(params, "gain", gain),
                target: share(params, ALLOCATE, "target"),
                step: amount(params, "step", step),
                published: params.has("published"),
            })
        }
        "fixed" => Law::Fixed,
        _ => Law::Threshold(Threshold {
            up: params.real("up").unwrap_or(Threshold::default().up),
            down: params.real("down").filter(|d: &Fixed| d.raw() > 0),
            high: share(params, ALLOCATE, "high"),
            low: share(params, ALLOCATE, "low"),
        }),
    };
    let congestion = params.time("congestion").map(|drain| Congestion {
        drain,
        margin: share(params, ALLOCATE, "margin"),
        packets: params.has("packets"),
    });
    Allocation {
        law,
        windows: Windows { span, hold: params.count("hold").unwrap_or(default_of(ALLOCATE, "hold")) as u32 },
        at_shaper: word(params, ALLOCATE, "measure") == "shaper",
        congestion,
        guard: params.time("guard").unwrap_or(span.saturating_mul(2)),
        from,
        to: rate("to", usual.to),
        initial: rate("initial", from),
        unit: rate("unit", usual.unit),
        retry: time(params, ALLOCATE, "retry"),
    }
}

/// Who gets in, as the words of an `allocate` line say.
pub fn admission(params: &Params) -> Admission {
    Admission {
        accept: share(params, ALLOCATE, "accept"),
        drop: share(params, ALLOCATE, "drop"),
        new_flow_bps: params.rate("new-flow").map(Rate::as_bps),
        evict: Evict::of_word(word(params, ALLOCATE, "evict")).unwrap_or_default(),
        timeout: time(params, ALLOCATE, "timeout"),
        drop_refused: word(params, ALLOCATE, "refused") == "drop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_words_everything_is_as_declared() {
        let none = Params::new();
        assert_eq!(allocation(&none), Allocation::default());
        assert_eq!(admission(&none), Admission::default());
        assert_eq!(recognition(&none), (Recognition::default(), false));
        let log = allocation(&none.clone().with("law", Value::Word("log")));
        assert_eq!(log.law, Law::Log(Log::default()));
    }

    #[test]
    fn rules_are_as_asked_for() {
        let none = Params::new();
        let rule = |params: &Params| recognition(params).0.rules;
        assert_eq!(rule(&none), Rules::default());
        let off = none.clone().with("rtp", Value::Word("off")).with("statistical", Value::Flag);
        assert_eq!((rule(&off).rtp, rule(&off).statistical), (None, Some(Rule::default())));
        let all = none
            .with("packets", Value::Count(6))
            .with("within", Value::Time(Duration::from_secs(1)))
            .with("offsets", Value::Word("off"))
            .with("stun", Value::Flag)
            .with("dtls", Value::Flag);
        let rtp = Some(Rtp { packets: 6, within: Duration::from_secs(1) });
        assert_eq!(rule(&all), Rules { rtp, offsets: false, stun: true, dtls: true, statistical: None });
    }

    #[test]
    fn words_come_to_what_they_say() {
        let params = Params::new()
            .with("law", Value::Word("log"))
            .with("gain", Value::Fraction(Fraction::ONE))
            .with("window", Value::Time(Duration::from_millis(100)))
            .with("hold", Value::Count(1))
            .with("from", Value::Rate(Rate::from_bps(64_000)))
            .with("congestion", Value::Time(Duration::from_millis(15)));
        let plan = allocation(&params);
        let Law::Log(law) = plan.law else { panic!("{plan:?}") };
        assert_eq!(law.gain, Amount::Share(Fraction::ONE));
        assert_eq!((plan.guard, plan.initial, plan.windows.hold), (Duration::from_millis(200), 64_000, 1));
        assert!(plan.congestion.is_some_and(|c| c.drain == Duration::from_millis(15) && !c.packets));
    }
}

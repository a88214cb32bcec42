//! What a configuration says of an HFSC class: its parameters, and the curves that they mean.

use crate::queue::ParamSpec as P;
use crate::queue::params::default_of;
use crate::queue::{Curve, Kind, ParamError, ParamSpec, Params, TimeUnit};
use crate::units::{Duration, Fraction, Rate};

pub(super) const PARAMS: &[ParamSpec] = &[
    P::class("sc", Kind::Curve, "", "Real-time and link-share curve: m1 (bit/s), d (ms), m2 (bit/s)."),
    P::class("rt", Kind::Curve, "", "Real-time curve: what is owed."),
    P::class("ls", Kind::Curve, "", "Link-share curve: the weight in dividing the rest."),
    P::class("ul", Kind::Curve, "", "Upper-limit curve: the most it gets."),
    P::class("pshare", Kind::Percent, "", "Link-share rate as a share of the interface, percent."),
    P::class("grate", Kind::Rate, "", "Real-time rate, bit/s."),
    P::class("bandwidth", Kind::Rate, "", "Real-time and link-share rate, bit/s."),
    P::class("ulimit", Kind::Rate, "", "Upper limit, bit/s."),
    P::class("rate", Kind::Rate, "", "With delay and burst: the rate that is owed in the long run, bit/s."),
    P::class(
        "delay",
        Kind::Time { bare: TimeUnit::Millis },
        "",
        "With rate: a burst that comes to an empty queue is out within this time, ms.",
    ),
    P::class(
        "burst",
        Kind::Bytes { min: 1, max: 1 << 32 },
        "1538",
        "With rate and delay: the burst, bytes on the wire. The default is a full Ethernet frame.",
    ),
    P::class("default", Kind::Flag, "", "Takes what no filter matches."),
    P::class(
        "admission",
        Kind::Word(&["guaranteed", "cntlload", "none"]),
        "none",
        "Kept for RSVP; no effect.",
    ),
];

/// The three curves of a class.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Curves {
    /// What is owed.
    pub real_time: Option<Curve>,
    /// The weight in sharing.
    pub link_share: Option<Curve>,
    /// The most it gets.
    pub upper_limit: Option<Curve>,
}

/// The curve by which `burst_bytes` that come to an empty queue are out within `delay`, and `rate`
/// is kept ever after [HFSC97 section 2, figure 1]: steep first if the burst needs more than the rate, flat
/// first if it needs less.
pub fn guarantee(rate: Rate, delay: Duration, burst_bytes: u64) -> Curve {
    let delay_ns = delay.as_nanos();
    if delay_ns == 0 {
        return Curve { m1: rate, d: Duration::ZERO, m2: rate };
    }
    // Rounded up: the burst is out in time, not a bit later.
    let needed = (u128::from(burst_bytes) * 8_000_000_000).div_ceil(u128::from(delay_ns));
    let m1 = Rate::from_bps(needed.min(u128::from(u64::MAX)) as u64);
    if m1 > rate {
        return Curve { m1, d: delay, m2: rate };
    }
    let flat = delay.saturating_sub(Duration::from_nanos(rate.time_for(burst_bytes).ceil().as_nanos()));
    Curve { m1: Rate::ZERO, d: flat, m2: rate }
}

impl Curves {
    /// The curves that `params` ask for, on top of `before` (a reconfiguration changes what it
    /// names). `link` is the interface's rate, for `pshare`.
    ///
    /// # Errors
    /// A curve that is neither convex from 0 nor concave to more than 0; `delay` without `rate`.
    pub fn of(class: &str, params: &Params, before: Curves, link: Rate) -> Result<Curves, ParamError> {
        let linear = |rate: Rate| Curve { m1: rate, d: Duration::ZERO, m2: rate };
        let mut curves = before;
        if let Some(rate) = params.rate("bandwidth") {
            (curves.real_time, curves.link_share) = (Some(linear(rate)), Some(linear(rate)));
        }
        if let Some(share) = params.fraction("pshare") {
            curves.link_share = Some(linear(Rate::from_bps(Fraction::of(share, link.as_bps()))));
        }
        if let Some(rate) = params.rate("grate") {
            curves.real_time = Some(linear(rate));
        }
        if let Some(rate) = params.rate("ulimit") {
            curves.upper_limit = Some(linear(rate));
        }
        match (params.rate("rate"), params.time("delay")) {
            (Some(rate), delay) => {
                let delay = delay.unwrap_or(Duration::ZERO);
                let burst = params.bytes("burst").unwrap_or(default_of(PARAMS, "burst"));
                curves.real_time = Some(guarantee(rate, delay, burst));
                curves.link_share = Some(linear(rate));
            }
            (None, Some(delay)) => {
                return Err(ParamError::new(
                    class,
                    "delay",
                    delay,
                    "`rate` beside it: `rate 2M delay 10ms burst 3000`",
                ));
            }
            (None, None) => {}
        }
        if let Some(curve) = params.curve("sc") {
            (curves.real_time, curves.link_share) = (Some(curve), Some(curve));
        }
        curves.real_time = params.curve("rt").or(curves.real_time);
        curves.link_share = params.curve("ls").or(curves.link_share);
        curves.upper_limit = params.curve("ul").or(curves.upper_limit);
        for (name, curve) in [("rt", curves.real_time), ("ls", curves.link_share), ("ul", curves.upper_limit)]
        {
            let Some(c) = curve else { continue };
            let bent = !c.d.is_zero();
            if bent && c.m1 < c.m2 && !c.m1.is_zero() {
                return Err(ParamError::new(
                    class,
                    name,
                    c.m1,
                    "m1 of 0 in a curve whose second slope is steeper",
                ));
            }
            if bent && c.m1 > c.m2 && c.m2.is_zero() {
                return Err(ParamError::new(
                    class,
                    name,
                    c.m2,
                    "m2 above 0 in a curve whose first slope is steeper",
                ));
            }
        }
        if curves.real_time.is_none() && curves.link_share.is_none() {
            return Err(ParamError::new(
                class,
                "bandwidth",
                "no curve",
                "one of bandwidth, rt, ls, sc, rate, grate, pshare",
            ));
        }
        Ok(curves)
    }
}

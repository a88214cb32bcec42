//! What altq.conf knows about HFSC classes: their curves, and whether these fit.

use crate::plan::{Class, Given};
use crate::rules::Report;
use crate::tree::{Instance, Shape};
use std::collections::HashMap;
use std::fmt;
use weir_core::queue::{Curve, Link, Params, Value};
use weir_core::sched::hfsc::guarantee;
use weir_core::units::{Duration, Instant, Rate, mul_div};
use weir_text::Place;

/// How much of the link real-time curves may take together, percent.
const REAL_TIME_PERCENT: u64 = 80;

/// The curves of one class.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Curves {
    pub real_time: Option<Curve>,
    pub link_share: Option<Curve>,
    pub upper_limit: Option<Curve>,
}

fn linear(rate: Rate) -> Curve {
    Curve { m1: rate, d: Duration::ZERO, m2: rate }
}

/// Burst that `rate` and `delay` are about where the class names none.
const BURST_BYTES: u64 = 1_500;

/// What one option makes of a class's real-time, link-share and upper-limit curves.
fn curves_of(class: &Class, given: &Given, link: Rate) -> [Option<Curve>; 3] {
    let name = given.spec.name;
    if let ("rate", Value::Rate(rate)) = (name, &given.value) {
        let params = class.options.params();
        let delay = params.time("delay").unwrap_or(Duration::ZERO);
        let burst = params.bytes("burst").unwrap_or(BURST_BYTES);
        return [Some(guarantee(*rate, delay, burst)), Some(linear(*rate)), None];
    }
    let curve = match (name, &given.value) {
        (_, Value::Curve(curve)) => *curve,
        ("pshare", Value::Fraction(part)) => linear(crate::share::part_of(*part, link)),
        ("bandwidth" | "grate" | "ulimit", Value::Rate(rate)) => linear(*rate),
        _ => return [None; 3],
    };
    match name {
        "sc" | "bandwidth" => [Some(curve), Some(curve), None],
        "rt" | "grate" => [Some(curve), None, None],
        "ls" | "pshare" => [None, Some(curve), None],
        "ul" | "ulimit" => [None, None, Some(curve)],
        _ => [None; 3],
    }
}

/// The curves that a class's options come to; the last option counts, curve by curve.
pub(crate) fn curves(class: &Class, link: Rate) -> Curves {
    let mut curves = Curves::default();
    for given in class.options.iter() {
        let [real_time, link_share, upper_limit] = curves_of(class, given, link);
        curves.real_time = real_time.or(curves.real_time);
        curves.link_share = link_share.or(curves.link_share);
        curves.upper_limit = upper_limit.or(curves.upper_limit);
    }
    curves
}

/// The parameters of a class for the discipline. Where two options are about one curve, the
/// order of the file decides, which parameters do not keep: then the curves themselves are given.
pub(crate) fn params(class: &Class, link: Rate) -> Params {
    let params = class.options.params();
    let mut sources = [0; 3];
    for given in class.options.iter() {
        for (count, curve) in sources.iter_mut().zip(curves_of(class, given, link)) {
            *count += usize::from(curve.is_some());
        }
    }
    if sources.iter().all(|&n| n < 2) {
        return params;
    }
    let mut made = Params::new();
    for given in class.options.iter() {
        let about_curves = curves_of(class, given, link).iter().any(Option::is_some);
        if !about_curves && !matches!(given.spec.name, "delay" | "burst") {
            made.set(given.spec.name, given.value.clone());
        }
    }
    let curves = curves(class, link);
    for (name, curve) in [("rt", curves.real_time), ("ls", curves.link_share), ("ul", curves.upper_limit)] {
        if let Some(curve) = curve {
            made.set(name, Value::Curve(curve));
        }
    }
    made
}

/// Bits that a curve serves in `ns`, times 10^9, exact.
fn served(curve: &Curve, ns: u64) -> u128 {
    let first = ns.min(curve.d.as_nanos());
    u128::from(curve.m1.as_bps()) * u128::from(first) + u128::from(curve.m2.as_bps()) * u128::from(ns - first)
}

/// The first time at which the sum of `curves` is above `limit`; `Some(None)` if only in the
/// long run. Both are straight between the corners, so the corners decide.
fn first_above(curves: &[Curve], limit: &Curve) -> Option<Option<Duration>> {
    let bps = |rate: Rate| u128::from(rate.as_bps());
    // Each corner, and what the slope of the sum loses and gains there. The limit changes nothing.
    let mut corners: Vec<(u64, u128, u128)> =
        curves.iter().map(|c| (c.d.as_nanos(), bps(c.m1), bps(c.m2))).collect();
    corners.push((limit.d.as_nanos(), 0, 0));
    corners.sort_unstable();
    // Shares come from percentages that round to 2^-32: one part in 10^8 more is not more.
    let above = |sum: u128, limit: u128| sum > limit.saturating_add(limit / 100_000_000);
    let mut slope: u128 = curves.iter().map(|c| bps(c.m1)).sum();
    let (mut sum, mut before) = (0u128, 0);
    for (ns, loses, gains) in corners {
        sum = sum.saturating_add(slope.saturating_mul(u128::from(ns - before)));
        if above(sum, served(limit, ns)) {
            return Some(Some(Duration::from_nanos(ns)));
        }
        slope = slope - loses + gains;
        before = ns;
    }
    // All corners are behind: the slope is the sum of the second rates.
    above(slope, bps(limit.m2)).then_some(None)
}

fn when(at: Option<Duration>) -> String {
    match at {
        Some(at) => format!("within the first {at}"),
        None => "in the long run".to_string(),
    }
}

fn place_of(class: &Class, names: &[&str]) -> Place {
    names.iter().find_map(|n| class.options.get(n)).map_or(class.place, |g| g.place)
}

const REAL_TIME: [&str; 5] = ["rt", "grate", "sc", "bandwidth", "rate"];
const LINK_SHARE: [&str; 5] = ["ls", "pshare", "sc", "bandwidth", "rate"];
const UPPER_LIMIT: [&str; 2] = ["ul", "ulimit"];

/// Curves that are none, and curves that do not fit.
pub(crate) fn errors(report: &mut Report<'_>, shape: &Shape<'_>, instance: &Instance<'_>) {
    let interface = shape.interface;
    let link = interface.rate();
    let all: HashMap<usize, Curves> =
        instance.members.iter().map(|&c| (c, curves(&interface.classes[c], link))).collect();
    for &index in &instance.members {
        let class = &interface.classes[index];
        well_formed(report, class, &all[&index]);
        let inner = !shape.below[index].is_empty();
        if inner && class.options.has("default") {
            let message = format!("the default class `{}` has classes below it", class.name);
            let help = "only a class without children has a queue: mark one of those as the default";
            report.error(place_of(class, &["default"]), message, help);
        }
        upper_limit(report, class, &all[&index], link);
    }
    // What an inner discipline gets depends on what its class gets: only the outermost is held
    // against the link.
    let roots = instance.owner.is_none();
    let limit = |percent| linear(Rate::from_bps(mul_div(link.as_bps(), percent, 100)));
    let parents = instance.members.iter().map(|&m| Some(m)).chain(roots.then_some(None));
    for parent in parents {
        let children: &[usize] = match parent {
            Some(parent) => &shape.below[parent],
            None => &instance.tops,
        };
        let Some(&last) = children.last() else { continue };
        let (name, rt_limit, ls_limit) = match parent {
            Some(p) => {
                let ls = all[&p].link_share.unwrap_or_default();
                (format!("`{}`", interface.classes[p].name), all[&p].real_time, ls)
            }
            None => ("the link".to_string(), Some(limit(REAL_TIME_PERCENT)), limit(100)),
        };
        let shares: Vec<Curve> = children.iter().filter_map(|&c| all[&c].link_share).collect();
        if let Some(at) = first_above(&shares, &ls_limit) {
            let message =
                format!("the link-share curves below {name} come to more than its own {}", when(at));
            let help = "shares are parts of the parent's: make them smaller";
            report.error(place_of(&interface.classes[last], &LINK_SHARE), message, help);
        }
        // Without a limit nothing is asked: so each class is come by once, however deep it stands.
        let Some(limit) = rt_limit else { continue };
        let mut needs = Vec::new();
        for &child in children {
            real_time_below(shape, &all, child, &mut needs);
        }
        if let Some(at) = first_above(&needs, &limit) {
            let (what, help) = match parent {
                Some(_) => ("its own real-time curve", "guarantees below a class must fit into its own"),
                None => (
                    "80 % of the link",
                    "guarantees may take 80 % of the link; what only shares the rest is written with `pshare` or `[ls ...]`",
                ),
            };
            let message = format!(
                "the real-time curves below {name} come to more than {what} ({}) {}",
                limit.m2,
                when(at)
            );
            report.error(place_of(&interface.classes[last], &REAL_TIME), message, help);
        }
    }
}

/// The real-time curves that class `index` answers for: its own, or those below it.
fn real_time_below(shape: &Shape<'_>, all: &HashMap<usize, Curves>, index: usize, needs: &mut Vec<Curve>) {
    // Walks without recursion: a chain of classes may be as long as the file.
    let mut open = vec![index];
    while let Some(index) = open.pop() {
        match all[&index].real_time {
            Some(curve) => needs.push(curve),
            None => open.extend(&shape.below[index]),
        }
    }
}

fn well_formed(report: &mut Report<'_>, class: &Class, curves: &Curves) {
    if curves.real_time.is_none() && curves.link_share.is_none() && curves.upper_limit.is_none() {
        let message = format!("class `{}` has no service curve", class.name);
        let help = "write `bandwidth 1M`, `pshare 10`, `grate 1M` or `[sc 10M 20ms 2M]`";
        report.error(class.place, message, help);
    }
    for (word, needed) in [("delay", "rate"), ("burst", "delay")] {
        if let Some(given) = class.options.get(word).filter(|_| !class.options.has(needed)) {
            let message = format!("`{word}` without `{needed}`");
            report.error(given.place, message, "write `rate 2M delay 10ms burst 3000`");
            break;
        }
    }
    for given in class.options.iter() {
        let Value::Curve(curve) = &given.value else { continue };
        if curve.d.is_zero() {
            continue;
        }
        if curve.m1 < curve.m2 && !curve.m1.is_zero() {
            let message = format!("the convex curve `{}` begins with {}", given.spec.name, curve.m1);
            let help = "a curve whose second rate is the higher must begin with rate 0";
            report.error(given.place, message, help);
        } else if curve.m1 > curve.m2 && curve.m2.is_zero() {
            let message = format!("the concave curve `{}` ends with rate 0", given.spec.name);
            report.error(given.place, message, "its second rate must be above 0");
        }
    }
}

fn upper_limit(report: &mut Report<'_>, class: &Class, curves: &Curves, link: Rate) {
    let Some(limit) = curves.upper_limit else { return };
    let place = place_of(class, &UPPER_LIMIT);
    if let Some(at) = first_above(&[limit], &linear(link)) {
        let message =
            format!("the upper limit of class `{}` is above the link's {link} {}", class.name, when(at));
        report.error(place, message, "a limit above the link limits nothing: take it away or lower it");
    }
    if let Some(at) = curves.real_time.and_then(|rt| first_above(&[rt], &limit)) {
        let message =
            format!("the real-time curve of class `{}` is above its upper limit {}", class.name, when(at));
        report.error(
            place,
            message,
            "what is guaranteed must be allowed: raise the limit or lower the guarantee",
        );
    }
}

/// What a real-time curve comes to for people: within what time a burst is out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarantee {
    /// The class.
    pub class: String,
    /// Its real-time curve.
    pub curve: Curve,
    /// The burst: the one that the class names, or one largest packet.
    pub burst_bytes: u64,
    /// The longest that the last byte of the burst takes, when the burst comes to an empty queue;
    /// `None` if the curve never serves it.
    pub delay: Option<Duration>,
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Curve { m1, d, m2 } = self.curve;
        write!(f, "class {}: [rt {m1} {d} {m2}] ", self.class)?;
        match self.delay {
            Some(delay) => write!(f, "has a burst of {} bytes out within {delay}", self.burst_bytes),
            None => write!(f, "never has a burst of {} bytes out", self.burst_bytes),
        }
    }
}

/// The guarantees of every leaf class of the interface's HFSC, for packets up to `mtu` bytes.
///
/// A class's packets are out by their deadlines, or one largest packet later, which was on the
/// wire already (Stoica, Zhang and Ng, SIGCOMM 1997, theorem 1); the deadline of a burst's last
/// byte is where the curve reaches the burst.
pub(crate) fn guarantees(shape: &Shape<'_>, link: &Link) -> Vec<Guarantee> {
    let Some(outer) = shape.instances.first().filter(|i| i.entry.name == "hfsc") else { return Vec::new() };
    let leaves = outer.members.iter().copied().filter(|&c| shape.below[c].is_empty());
    let classes = leaves.map(|c| &shape.interface.classes[c]);
    classes
        .filter_map(|class| {
            let curve = curves(class, link.rate).real_time?;
            let burst_bytes = class.options.params().bytes("burst").unwrap_or(u64::from(link.mtu));
            let on_wire = link.time_for(link.mtu).ceil().since(Instant::ZERO);
            let delay = reaches(&curve, burst_bytes).map(|at| at + on_wire);
            Some(Guarantee { class: class.name.clone(), curve, burst_bytes, delay })
        })
        .collect()
}

/// The first nanosecond by which `curve` has served `bytes`.
fn reaches(curve: &Curve, bytes: u64) -> Option<Duration> {
    let bits = u128::from(bytes) * 8_000_000_000;
    let first = u128::from(curve.m1.as_bps()) * u128::from(curve.d.as_nanos());
    let time = |bits: u128, rate: Rate| match rate.as_bps() {
        0 => None,
        bps => Some(bits.div_ceil(u128::from(bps))),
    };
    let ns = if bits <= first {
        time(bits, curve.m1)?
    } else {
        u128::from(curve.d.as_nanos()) + time(bits - first, curve.m2)?
    };
    u64::try_from(ns).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_reach_their_bursts_when_they_should() {
        let (rate, delay) = (Rate::from_mbps(2), Duration::from_millis(10));
        // 3,000 bytes within 10 ms need 2.4 Mbit/s: concave. 1,000 need less than 2: convex.
        for burst in [3_000, 1_000, 2_500] {
            let curve = guarantee(rate, delay, burst);
            let at = reaches(&curve, burst).unwrap();
            assert!(at <= delay, "{burst}: {at}");
            assert!(at + Duration::from_nanos(10) >= delay, "{burst}: {at}");
            let half = Curve { m1: Rate::from_bps(curve.m1.as_bps() / 2), d: delay, m2: Rate::from_mbps(1) };
            assert!(reaches(&half, burst).unwrap() > delay, "reversed: half the curve is too late");
        }
        assert_eq!(reaches(&Curve { m1: rate, d: delay, m2: Rate::ZERO }, 1 << 20), None);
    }

    #[test]
    fn sums_are_held_against_limits_at_every_corner() {
        let c = |m1, ms, m2| Curve {
            m1: Rate::from_mbps(m1),
            d: Duration::from_millis(ms),
            m2: Rate::from_mbps(m2),
        };
        assert_eq!(first_above(&[c(4, 0, 4), c(4, 0, 4)], &c(8, 0, 8)), None);
        assert_eq!(first_above(&[c(4, 0, 4), c(5, 0, 5)], &c(8, 0, 8)), Some(None));
        assert_eq!(first_above(&[c(9, 10, 1)], &c(8, 0, 8)), Some(Some(Duration::from_millis(10))));
        // A convex and a concave one that add up to less than either's peak.
        assert_eq!(first_above(&[c(8, 10, 2), c(0, 10, 6)], &c(8, 0, 8)), None);
        assert_eq!(
            first_above(&[c(8, 20, 2), c(0, 10, 6)], &c(8, 0, 8)),
            Some(Some(Duration::from_millis(20)))
        );
    }
}

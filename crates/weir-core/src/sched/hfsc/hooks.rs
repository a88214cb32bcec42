//! What a configuration of HFSC must satisfy, and what its real-time curves promise.

use super::options::{Curves, PARAMS, guarantee};
use crate::queue::params::default_of;
use crate::queue::{Curve, Link, ParamError, Params, Value};
use crate::sched::hooks::{BroughtFilter, Finding, Guarantee, Setting, below, given, part_of};
use crate::sched::node::{ClassConfig, Node};
use crate::spread::Share;
use crate::units::{Duration, Instant, Rate, mul_div};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// How much of the link real-time curves may take together, percent.
const REAL_TIME_PERCENT: u64 = 80;
/// Burst that `rate` and `delay` are about where the class names none.
const BURST_BYTES: u64 = default_of(PARAMS, "burst");
const REAL_TIME: [&str; 5] = ["rt", "grate", "sc", "bandwidth", "rate"];
const LINK_SHARE: [&str; 5] = ["ls", "pshare", "sc", "bandwidth", "rate"];
/// A weight of 0 counts as the least there is: such a class has what nobody else wants.
pub(super) const LEAST_SHARE: Rate = Rate::from_bps(2);
const UPPER_LIMIT: [&str; 2] = ["ul", "ulimit"];

fn linear(rate: Rate) -> Curve {
    Curve { m1: rate, d: Duration::ZERO, m2: rate }
}

/// What one option makes of a class's real-time, link-share and upper-limit curves.
fn curves_of(params: &Params, name: &str, value: &Value, link: Rate) -> [Option<Curve>; 3] {
    if let ("rate", Value::Rate(rate)) = (name, value) {
        let delay = params.time("delay").unwrap_or(Duration::ZERO);
        let burst = params.bytes("burst").unwrap_or(BURST_BYTES);
        return [Some(guarantee(*rate, delay, burst)), Some(linear(*rate)), None];
    }
    let curve = match (name, value) {
        (_, Value::Curve(curve)) => *curve,
        ("pshare", Value::Fraction(part)) => linear(part_of(*part, link)),
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
fn curves(params: &Params, link: Rate) -> Curves {
    let mut curves = Curves::default();
    for (name, value) in params.iter() {
        let [real_time, link_share, upper_limit] = curves_of(params, name, value, link);
        curves.real_time = real_time.or(curves.real_time);
        curves.link_share = link_share.or(curves.link_share);
        curves.upper_limit = upper_limit.or(curves.upper_limit);
    }
    curves
}

/// What each class at the root has of the link: its link-share rate. Upper limits would let packets wait that have
/// their turn on the link.
pub(super) fn shares(node: &Node, link: &Link) -> Result<Vec<Share>, ParamError> {
    let mut has_children = vec![false; node.classes.len()];
    node.classes.iter().filter_map(|class| class.parent).for_each(|parent| has_children[parent] = true);
    // For each class the share of the one at the root above it.
    let (mut shares, mut above) = (Vec::<Share>::new(), vec![0; node.classes.len()]);
    for (at, class) in node.classes.iter().enumerate() {
        let curves = Curves::of(&class.name, &class.params, Curves::default(), link.rate)?;
        if let Some(limit) = curves.upper_limit {
            let expected = "no upper limit: packets that wait for one would count as if they wanted the link";
            return Err(ParamError::new(&class.name, given(&class.params, &UPPER_LIMIT), limit.m2, expected));
        }
        let Some(c) = curves.link_share else {
            let expected = "a link-share curve: without one its packets wait although the link is free";
            return Err(ParamError::new(&class.name, "ls", "none", expected));
        };
        above[at] = class.parent.map_or(shares.len(), |parent| above[parent]);
        if class.parent.is_none() {
            if !c.d.is_zero() && c.m1 != c.m2 {
                let field = given(&class.params, &LINK_SHARE);
                return Err(ParamError::new(&class.name, field, c.m1, "a link-share curve of one slope"));
            }
            shares.push(Share { level: 0, weight: c.m2.max(LEAST_SHARE), owed: Rate::ZERO });
        }
        // Only a leaf has a queue to which something is owed.
        if let Some(c) = curves.real_time.filter(|_| !has_children[at]) {
            let steepest = if c.d.is_zero() { c.m2 } else { c.m1.max(c.m2) };
            let owed = &mut shares[above[at]].owed;
            *owed = Rate::from_bps(owed.as_bps().saturating_add(steepest.as_bps()));
        }
    }
    Ok(shares)
}

/// Where two options of a class are about one curve, the order of the file decides: then the
/// curves themselves are given.
pub(super) fn lower(node: &mut Node, setting: &Setting) -> Vec<BroughtFilter> {
    for class in &mut node.classes {
        let mut sources = [0; 3];
        for (name, value) in class.params.iter() {
            for (count, curve) in sources.iter_mut().zip(curves_of(&class.params, name, value, setting.rate))
            {
                *count += usize::from(curve.is_some());
            }
        }
        if sources.iter().any(|&n| n > 1) {
            class.params = by_curves(&class.params, setting.rate);
        }
    }
    Vec::new()
}

fn by_curves(params: &Params, link: Rate) -> Params {
    let mut made = Params::new();
    for (name, value) in params.iter() {
        let about_curves = curves_of(params, name, value, link).iter().any(Option::is_some);
        if !about_curves && !matches!(name, "delay" | "burst") {
            made.set(name, value.clone());
        }
    }
    let curves = curves(params, link);
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

/// Curves that are none, and curves that do not fit.
pub(super) fn check(node: &Node, setting: &Setting) -> Vec<Finding> {
    let mut found = Vec::new();
    let all: Vec<Curves> = node.classes.iter().map(|c| curves(&c.params, setting.rate)).collect();
    let below = below(node);
    for (index, class) in node.classes.iter().enumerate() {
        well_formed(index, class, &all[index], &mut found);
        if !below[index].is_empty() && class.params.has("default") {
            let message = format!("the default class `{}` has classes below it", class.name);
            let help = "only a class without children has a queue: mark one of those as the default";
            found.push(Finding::error(Some(index), "default", message, help));
        }
        upper_limit(index, class, &all[index], setting.rate, &mut found);
    }
    for parent in 0..node.classes.len() {
        let own = &all[parent];
        let limits = Limits {
            name: format!("`{}`", node.classes[parent].name),
            link_share: own.link_share.unwrap_or_default(),
            real_time: own.real_time,
            what: "its own real-time curve",
            help: "guarantees below a class must fit into its own",
        };
        children_fit(node, &all, &below, &below[parent], &limits, &mut found);
    }
    // What an inner discipline gets depends on what its class gets: only the outermost is held
    // against the link.
    if setting.outermost {
        let part = |percent| linear(Rate::from_bps(mul_div(setting.rate.as_bps(), percent, 100)));
        let limits = Limits {
            name: "the link".to_string(),
            link_share: part(100),
            real_time: Some(part(REAL_TIME_PERCENT)),
            what: "80 % of the link",
            help: "guarantees may take 80 % of the link; what only shares the rest is written with `pshare` or `[ls ...]`",
        };
        let tops: Vec<usize> =
            (0..node.classes.len()).filter(|&class| node.classes[class].parent.is_none()).collect();
        children_fit(node, &all, &below, &tops, &limits, &mut found);
    }
    doubtful(node, &all, &below, &mut found);
    found
}

/// What the curves of classes side by side must fit into.
struct Limits {
    name: String,
    link_share: Curve,
    /// Without one nothing is asked: so each class is come by once, however deep it stands.
    real_time: Option<Curve>,
    what: &'static str,
    help: &'static str,
}

fn children_fit(
    node: &Node,
    all: &[Curves],
    below: &[Vec<usize>],
    children: &[usize],
    limits: &Limits,
    found: &mut Vec<Finding>,
) {
    let name = &limits.name;
    let shares: Vec<(usize, Curve)> =
        children.iter().filter_map(|&c| Some((c, all[c].link_share?))).collect();
    if let Some((class, at)) = exceeds(shares, &limits.link_share) {
        let message = format!("the link-share curves below {name} come to more than its own {}", when(at));
        let help = "shares are parts of the parent's: make them smaller";
        let field = given(&node.classes[class].params, &LINK_SHARE);
        found.push(Finding::error(Some(class), field, message, help));
    }
    let Some(limit) = limits.real_time else { return };
    let mut needs = Vec::new();
    for &child in children {
        real_time_below(all, below, child, &mut needs);
    }
    if let Some((class, at)) = exceeds(needs, &limit) {
        let message = format!(
            "the real-time curves below {name} come to more than {} ({}) {}",
            limits.what,
            limit.m2,
            when(at)
        );
        let field = given(&node.classes[class].params, &REAL_TIME);
        found.push(Finding::error(Some(class), field, message, limits.help));
    }
}

/// The first class of the file with whose curve all up to it come to more than `limit`, and when
/// the sum of all first does.
fn exceeds(mut curves: Vec<(usize, Curve)>, limit: &Curve) -> Option<(usize, Option<Duration>)> {
    curves.sort_by_key(|&(class, _)| class);
    let only: Vec<Curve> = curves.iter().map(|&(_, curve)| curve).collect();
    let at = first_above(&only, limit)?;
    // Sums only grow: so many curves fit.
    let (mut fit, mut too_many) = (0, only.len());
    while fit + 1 < too_many {
        let middle = usize::midpoint(fit, too_many);
        match first_above(&only[..middle], limit) {
            Some(_) => too_many = middle,
            None => fit = middle,
        }
    }
    Some((curves[fit].0, at))
}

/// The real-time curves that class `index` answers for: its own, or those below it.
fn real_time_below(all: &[Curves], below: &[Vec<usize>], index: usize, needs: &mut Vec<(usize, Curve)>) {
    // Walks without recursion: a chain of classes may be as long as the file.
    let mut open = vec![index];
    while let Some(index) = open.pop() {
        match all[index].real_time {
            Some(curve) => needs.push((index, curve)),
            None => open.extend(&below[index]),
        }
    }
}

fn well_formed(index: usize, class: &ClassConfig, curves: &Curves, found: &mut Vec<Finding>) {
    let params = &class.params;
    if curves.real_time.is_none() && curves.link_share.is_none() && curves.upper_limit.is_none() {
        let message = format!("class `{}` has no service curve", class.name);
        let help = "write `bandwidth 1M`, `pshare 10`, `grate 1M` or `[sc 4M 5ms 1M]`";
        found.push(Finding::error(Some(index), "", message, help));
    }
    for (word, needed) in [("delay", "rate"), ("burst", "delay")] {
        if params.has(word) && !params.has(needed) {
            let message = format!("`{word}` without `{needed}`");
            found.push(Finding::error(Some(index), word, message, "write `rate 2M delay 10ms burst 3000`"));
            break;
        }
    }
    for (name, value) in params.iter() {
        let Value::Curve(curve) = value else { continue };
        if curve.d.is_zero() {
            continue;
        }
        if curve.m1 < curve.m2 && !curve.m1.is_zero() {
            let message = format!("the convex curve `{name}` begins with {}", curve.m1);
            let help = "a curve whose second rate is the higher must begin with rate 0";
            found.push(Finding::error(Some(index), name, message, help));
        } else if curve.m1 > curve.m2 && curve.m2.is_zero() {
            let message = format!("the concave curve `{name}` ends with rate 0");
            found.push(Finding::error(Some(index), name, message, "its second rate must be above 0"));
        }
    }
}

fn upper_limit(index: usize, class: &ClassConfig, curves: &Curves, link: Rate, found: &mut Vec<Finding>) {
    let Some(limit) = curves.upper_limit else { return };
    let field = given(&class.params, &UPPER_LIMIT);
    if let Some(at) = first_above(&[limit], &linear(link)) {
        let message =
            format!("the upper limit of class `{}` is above the link's {link} {}", class.name, when(at));
        let help = "a limit above the link limits nothing: take it away or lower it";
        found.push(Finding::error(Some(index), field, message, help));
    }
    if let Some(at) = curves.real_time.and_then(|rt| first_above(&[rt], &limit)) {
        let message =
            format!("the real-time curve of class `{}` is above its upper limit {}", class.name, when(at));
        let help = "what is guaranteed must be allowed: raise the limit or lower the guarantee";
        found.push(Finding::error(Some(index), field, message, help));
    }
}

/// What is lawful and of no use.
fn doubtful(node: &Node, all: &[Curves], below: &[Vec<usize>], found: &mut Vec<Finding>) {
    for (index, class) in node.classes.iter().enumerate() {
        let curves = &all[index];
        if curves.link_share.is_none() && curves.real_time.is_some() && !below[index].is_empty() {
            let message = format!("class `{}` has classes below it and no link-share curve", class.name);
            let help = "only link-share curves divide what a class has among its children";
            found.push(Finding::warning(Some(index), "", message, help));
        }
        if curves.link_share.is_none() && curves.real_time.is_none() {
            let message = format!("class `{}` has an upper limit and nothing below it", class.name);
            let help = "it never sends: give it a share, as in `pshare 10`";
            found.push(Finding::warning(Some(index), "", message, help));
        }
    }
}

/// The guarantees of every leaf class.
///
/// A class's packets are out by their deadlines, or one largest packet later, which was on the
/// wire already (Stoica, Zhang and Ng, SIGCOMM 1997, theorem 1); the deadline of a burst's last
/// byte is where the curve reaches the burst.
pub(super) fn guarantees(node: &Node, link: &Link) -> Vec<Guarantee> {
    let leaves = node.classes.iter().zip(below(node)).filter(|(_, below)| below.is_empty());
    leaves
        .filter_map(|(class, _)| {
            let curve = curves(&class.params, link.rate).real_time?;
            let burst_bytes = class.params.bytes("burst").unwrap_or(link.cost_bytes(link.mtu));
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
        // Only where the limit bends.
        assert_eq!(first_above(&[c(5, 0, 5)], &c(1, 10, 100)), Some(Some(Duration::from_millis(10))));
        // One part in 10^8 more is not more, and nothing beyond it is forgiven.
        let bps = |bps| linear(Rate::from_bps(bps));
        for limit in
            [linear(Rate::from_bps(100_000_000)), Curve { d: Duration::from_nanos(1), ..bps(100_000_000) }]
        {
            assert_eq!(first_above(&[bps(100_000_001)], &limit), None);
            assert!(first_above(&[bps(100_000_002)], &limit).is_some());
        }
    }
}

//! Conditions that parameters must keep: found before an edge runs, each with what to write.

use crate::admit::Admission;
use crate::allocate::{Allocation, Amount, LN_BITS, Law, Log, Threshold, ln_ratio};
use crate::recognise::statistical::Rule;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use weir_core::units::{Duration, Fraction, Rate};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Weight {
    /// It cannot work: refused.
    Error,
    /// It works, but hardly as meant.
    Warning,
    /// Worth knowing.
    Note,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// What, with the figures.
    pub what: String,
    /// The option that is at fault, as the configuration calls it.
    pub option: &'static str,
    /// What to write in its place, the option's name included.
    pub write: String,
}

/// A millionth: conditions that hold by less hold by rounding alone.
const SLACK: u128 = (1 << 32) / 1_000_000;

/// Whether no constant load makes the law go up and down for ever: l_max > k·l_min with
/// k = max(i, 1/d). [multiservice IV.3.2, T40]
pub fn is_stable(law: &Threshold) -> bool {
    let (high, low) = (u128::from(law.high.raw()), u128::from(law.low.raw()));
    let up = u128::from(law.up.raw().unsigned_abs());
    let down = u128::from(law.down_raw());
    // High and low are at most 2^32, factors below 2^63.
    high << 32 > low * up + (SLACK << 32) && high * down > (low << 32) + (SLACK << 32)
}

/// A share in percent, with two decimals at most.
fn percent(raw: u128) -> String {
    decimals(raw * 100, 2)
}

/// A number in units of 2^-32, with so many decimals at most.
fn decimals(raw: u128, places: u32) -> String {
    let scale = 10u128.pow(places);
    let scaled = (raw * scale + (1 << 31)) >> 32;
    let (whole, part) = (scaled / scale, scaled % scale);
    match part {
        0 => whole.to_string(),
        _ => {
            let text = format!("{whole}.{part:0width$}", width = places as usize);
            text.trim_end_matches('0').to_string()
        }
    }
}

fn rate(bps: u64) -> String {
    Rate::from_bps(bps).to_string()
}

/// Everything that is wrong with an allocation over packets of up to `mtu` bytes.
pub fn allocation(plan: &Allocation, mtu: u32) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |weight, option, what, write| found.push(Finding { weight, what, option, write });
    if plan.from > plan.to {
        let what = format!("the least allocation, {}, is above the most, {}", rate(plan.from), rate(plan.to));
        say(Weight::Error, "from", what, format!("from {}", rate(plan.to)));
    }
    match &plan.law {
        Law::Threshold(law) => threshold(law, &mut say),
        Law::Log(law) => log(law, plan, &mut say),
        Law::Fixed => {}
    }
    if let Some(control) = &plan.congestion {
        let span = plan.windows.span.as_nanos();
        if !control.packets && plan.guard.as_nanos() < 2 * span {
            let what = format!(
                "the law resumes {} after congestion, before two windows of {} have passed",
                plan.guard, plan.windows.span
            );
            let guard = Duration::from_nanos(2 * span);
            say(Weight::Error, "guard", what, format!("guard {guard}"));
        }
        // A packet lasts mtu·8/B_d: below that time any packet that waits is congestion.
        let least = plan.from.max(plan.initial).max(1);
        let packet_ns = (u128::from(mtu) * 8_000_000_000).div_ceil(u128::from(least)) as u64;
        if control.packets
            && control.drain.as_nanos()
                < (u128::from(mtu) * 8_000_000_000 / u128::from(plan.to.max(1))) as u64
        {
            let what = format!(
                "a packet of {mtu} bytes takes longer than {} at {}: every packet that waits is congestion",
                control.drain,
                rate(plan.to)
            );
            say(Weight::Warning, "congestion", what, format!("congestion {}", millis_up(packet_ns)));
        } else if !control.packets && control.drain.as_nanos() < packet_ns {
            let what = format!(
                "a packet of {mtu} bytes takes {} at {}, longer than {}: the queue cannot drain sooner",
                Duration::from_nanos(packet_ns),
                rate(least),
                control.drain
            );
            say(Weight::Warning, "congestion", what, format!("congestion {}", millis_up(packet_ns)));
        }
    }
    found
}

/// Whole milliseconds, rounded up.
fn millis_up(ns: u64) -> Duration {
    Duration::from_millis(ns.div_ceil(1_000_000))
}

fn threshold(law: &Threshold, say: &mut impl FnMut(Weight, &'static str, String, String)) {
    let one = 1u128 << 32;
    let (up, down) = (u128::from(law.up.raw().unsigned_abs()), u128::from(law.down_raw()));
    if up <= one {
        say(
            Weight::Error,
            "up",
            format!("a rise by the factor {} is none", decimals(up, 4)),
            "up 1.2".to_string(),
        );
        return;
    }
    if down >= one || down == 0 {
        let what = format!("a fall by the factor {} is none", decimals(down, 4));
        say(Weight::Error, "down", what, "down 0.8333".to_string());
        return;
    }
    let (high, low) = (u128::from(law.high.raw()), u128::from(law.low.raw()));
    if !is_stable(law) {
        // k as 2^-32.
        let k = up.max((one << 32) / down);
        let limit = (high << 32) / k;
        let what = format!(
            "a constant load can go up and down for ever: {} % is not above {} times {} %",
            percent(high),
            decimals(k, 4),
            percent(low)
        );
        // A whole percent below the limit.
        let below = ((limit * 100).div_ceil(one)).saturating_sub(1).max(1);
        say(Weight::Error, "low", what, format!("low {below}"));
    }
    // i·d = 1 within a thousandth.
    let product = (up * down) >> 32;
    if product.abs_diff(one) > one / 1000 {
        let inverse = (one << 32) / up;
        let what = format!(
            "a rise and a fall make {} of the allocation: it drifts with needless requests",
            percent(product) + " %"
        );
        let ten_thousandths = (inverse * 10_000 + (one >> 1)) >> 32;
        say(Weight::Note, "down", what, format!("down 0.{ten_thousandths:04}"));
    }
}

fn log(law: &Log, plan: &Allocation, say: &mut impl FnMut(Weight, &'static str, String, String)) {
    let (Amount::Rate(gain), step) = (law.gain, law.step) else { return };
    let step = step.bps(plan.from.max(1));
    // K·ln(1/u): what a saturated class gains in a window, if it is measured behind its own shaper.
    let ln = ln_ratio(1 << 32, law.target.raw()).unwrap_or(0);
    let gains = ((i128::from(gain) * i128::from(ln)) >> LN_BITS) as u64;
    if plan.at_shaper && plan.congestion.is_none() && gains <= step {
        // K > ΔB_min / ln(1/u), up to whole kbit/s.
        let least = ((i128::from(step) << LN_BITS) / i128::from(ln.max(1)) / 1_000 + 1) as u64;
        let what = format!(
            "dead lock: measured behind its shaper, a saturated class asks for {gains} bit/s more, and the least \
             step is {step}"
        );
        say(Weight::Error, "gain", what, format!("gain {least}K"));
    }
    if law.published && plan.from < gain / 2 {
        let what = format!(
            "as published, the law never settles while the target is below half its gain, {}",
            rate(gain / 2)
        );
        say(Weight::Warning, "from", what, format!("from {}", rate(gain / 2)));
    }
}

/// Everything that is wrong with the admission to a class.
pub fn admission(plan: &Admission) -> Vec<Finding> {
    thresholds(plan.accept, plan.drop)
}

/// T_a below T_d.
pub fn thresholds(accept: Fraction, drop: Fraction) -> Vec<Finding> {
    if accept < drop {
        return Vec::new();
    }
    let what = format!(
        "flows are admitted up to {} % and evicted from {} % on: what gets in is thrown out again",
        percent(accept.raw().into()),
        percent(drop.raw().into())
    );
    let below = ((u128::from(drop.raw()) * 100).div_ceil(1 << 32)).saturating_sub(5).max(1);
    alloc::vec![Finding { weight: Weight::Warning, what, option: "accept", write: format!("accept {below}") }]
}

/// The bytes of IP of G.711 in packets of 20 ms.
const G711: u32 = 200;

/// A statistical rule that passes over flows with a mean of that many bytes and more.
pub fn size(rule: &Rule) -> Option<Finding> {
    (rule.size < G711).then(|| Finding {
        weight: Weight::Warning,
        what: format!(
            "flows above {} bytes of IP are passed over, G.711 in packets of 20 ms among them: it has {G711}",
            rule.size
        ),
        option: "size",
        write: format!("size {}", Rule::default().size),
    })
}

/// Contracts of a class that together are more than it may get.
pub fn sum(contracts_bps: u64, to_bps: u64) -> Option<Finding> {
    (contracts_bps > to_bps).then(|| Finding {
        weight: Weight::Warning,
        what: format!(
            "the contracts of this class come to {}, and it may get {}",
            rate(contracts_bps),
            rate(to_bps)
        ),
        option: "to",
        write: format!("to {}", rate(contracts_bps)),
    })
}

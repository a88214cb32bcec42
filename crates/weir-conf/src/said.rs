//! What an edge says of a flow, in words: wherever it stands, they are the same.

use weir_core::units::{Duration, Fraction, Instant};
use weir_edge::admit::Evict;
use weir_edge::edge::Why;
use weir_edge::flow::{Cause, State};
use weir_edge::recognise::{Found, Kind};
use weir_text::{Unit, show};

/// What a flow is, in a word.
pub fn state(state: State) -> &'static str {
    match state {
        State::Candidate => "ordinary",
        State::Admitted => "admitted",
        State::Refused => "refused",
        State::Silent => "silent",
    }
}

fn rate(bps: u64) -> String {
    show(bps as f64, Unit::Rate)
}

fn time(time: Duration) -> String {
    show(time.as_nanos() as f64, Unit::Time)
}

fn percent(share: Fraction) -> u64 {
    ((u128::from(share.raw()) * 100 + (1 << 31)) >> 32) as u64
}

/// By what a flow was found.
fn evidence(found: &Found) -> String {
    let Found { kind, ssrc, packets, span } = *found;
    match kind {
        Kind::Marked => "its code point".into(),
        Kind::Statistical => format!("short packets, even over {}", time(span)),
        Kind::Aggregate => format!("short packets of its contract, often over {}", time(span)),
        _ => format!("ssrc {ssrc:08x}, {packets} in {}", time(span)),
    }
}

/// Why a flow was refused or evicted.
fn cause(cause: &Cause) -> String {
    let share = |part: u64, whole: u64| 100 * u128::from(part) / u128::from(whole.max(1));
    match *cause {
        Cause::Load { load_bps, limit_bps, accept } => format!(
            "class at {} % of {}, accept {}",
            share(load_bps, limit_bps),
            rate(limit_bps),
            percent(accept)
        ),
        Cause::Full { flows } => format!("its contract has {flows} flows, the most that it may have"),
        Cause::Above { offered_bps, limit_bps, drop, evict } => format!(
            "evicted: class at {} % of {}, drop {}, {}",
            share(offered_bps, limit_bps),
            rate(limit_bps),
            percent(drop),
            match evict {
                Evict::Random => "by a draw",
                Evict::Largest => "the largest",
                Evict::Smallest => "the smallest",
                Evict::Oldest => "the oldest",
                Evict::Newest => "the newest",
            }
        ),
        Cause::Congested => "evicted: its class was congested, and no more bandwidth came".into(),
        Cause::Order => "evicted by order".into(),
    }
}

/// The number of a session as its broker writes it: a UUID.
pub fn session(id: u128) -> String {
    let hex = format!("{id:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Why a flow is what it is, by which rule it was found, and since when it is so.
pub fn why(why: &Why, now: Instant) -> (String, Option<Kind>, Option<Instant>) {
    match why {
        Why::Session(id, since) => (format!("session {}", session(*id)), None, Some(*since)),
        Why::Off => ("recognition is off".into(), None, None),
        Why::NotUdp => ("not UDP: only that is looked at".into(), None, None),
        Why::NoContract => ("no contract has its source".into(), None, None),
        Why::Unheard => ("not known: no packet of it came lately, or it found no place".into(), None, None),
        Why::Quic => ("quic".into(), None, None),
        Why::NoChain { tried: 0 } => ("no header of RTP so far".into(), None, None),
        Why::NoChain { tried } => (format!("no header of RTP, {tried} packets tried further in"), None, None),
        Why::Chain(chain) => {
            let since = time(now.since(chain.since));
            let said = format!(
                "ssrc {:08x} as {}, {} of {} packets, the first {since} ago",
                chain.ssrc, chain.kind, chain.packets, chain.needed
            );
            (said, None, None)
        }
        Why::Admitted { found, since } => (evidence(found), Some(found.kind), Some(*since)),
        Why::Refused { found, since, cause: because } => (cause(because), Some(found.kind), Some(*since)),
        Why::Silent { found } => (evidence(found), Some(found.kind), None),
    }
}

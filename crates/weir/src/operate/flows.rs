//! The flows that an edge knows, as people ask for them.
//!
//! A worker hands them over some places of its table at a time, as they are. Words are made here, by who asked.

use serde::{Deserialize, Serialize};
use std::io;
use weir_conf::said;
use weir_core::packet::Key;
use weir_core::units::{Duration, Instant};
use weir_edge::edge::{Edge, Explained, Place, Session, SessionNow, Why};
use weir_edge::flow::{Flow, State};
use weir_edge::recognise::Kind;
use weir_engine::Control;
use weir_text::{Unit, show};

/// Places of the table that are looked at between two steps.
const PAGE: usize = 256;
/// The kind of a session.
const SESSION: &str = "session";

/// A flow, in one direction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FlowState {
    /// Its header fields, as `weir explain` takes them; `udp, as one` for all flows of a contract that are judged together.
    pub flow: String,
    /// The interface by which it leaves.
    pub interface: String,
    /// The number of its contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<u32>,
    /// By which rule it was found: `rtp`, `rtp turn`, `rtp+27`, `statistical`, `dscp` or `aggregate`; `session` for what a
    /// broker has set bandwidth apart for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `admitted`, `refused`, `silent` (real-time, and its next packet asks anew) or `ordinary`.
    pub state: String,
    /// It is neither refused nor evicted.
    pub pinned: bool,
    /// How long it has been admitted or refused, nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ns: Option<u64>,
    /// Since its last packet, nanoseconds; none for a flow that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ns: Option<u64>,
    /// What it sent in the last window of its class, bit/s, while it is admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Packets per second in that window, rounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_second: Option<u64>,
    /// Why it is what it is.
    pub why: String,
}

impl FlowState {
    /// What an edge has explained of a flow. `window` is that of the flow's class.
    pub fn of(interface: &str, key: &Key, explained: &Explained, window: Duration, now: Instant) -> Self {
        let (why, kind, since) = said::why(&explained.why, now);
        let state = said::state(explained.state);
        let window_ns = u128::from(window.as_nanos().max(1));
        let per_second =
            |count: u64| ((u128::from(count) * 1_000_000_000 + window_ns / 2) / window_ns) as u64;
        let is_known = !matches!(explained.why, Why::Off | Why::NotUdp | Why::NoContract | Why::Unheard);
        FlowState {
            flow: if kind == Some(Kind::Aggregate) { "udp, as one".into() } else { key.to_string() },
            interface: interface.to_owned(),
            sla: explained.contract,
            kind: match explained.why {
                Why::Session(..) => Some(SESSION.into()),
                _ => kind.map(|kind| kind.to_string()),
            },
            state: state.to_owned(),
            pinned: explained.pinned,
            for_ns: since.map(|since| now.since(since).as_nanos()),
            silent_ns: is_known.then(|| now.since(explained.last).as_nanos()),
            rate_bps: explained.sent.map(|sent| per_second(u64::from(sent.bytes) * 8)),
            packets_per_second: explained.sent.map(|sent| per_second(u64::from(sent.packets))),
            why,
        }
    }

    /// A session of the edge of an interface: all of its traffic is one flow here.
    fn session(interface: &str, session: &Session, seen: &SessionNow, now: Instant) -> Self {
        let ends = |places: &[Place]| places.iter().map(end).collect::<Vec<_>>().join(",");
        let [sent, above] = [seen.in_profile[1], seen.best_effort[1]];
        FlowState {
            flow: format!("{} > {}", ends(&session.device), ends(&session.server)),
            interface: interface.to_owned(),
            kind: Some(SESSION.into()),
            state: said::state(State::Admitted).to_owned(),
            pinned: true,
            for_ns: Some(now.since(seen.since).as_nanos()),
            silent_ns: seen.last.map(|last| now.since(last).as_nanos()),
            why: format!(
                "session {}, up to {}: {sent} packets, and {above} above it as best effort",
                said::session(session.id),
                show(session.rate_bps as f64, Unit::Rate)
            ),
            ..FlowState::default()
        }
    }

    /// What an edge knows of the flow of that key.
    pub fn explain(interface: &str, edge: &Edge, key: &Key, now: Instant) -> Self {
        let explained = edge.explain(key);
        Self::of(interface, key, &explained, window(edge), now)
    }
}

/// One end of a session's traffic, in words.
fn end(place: &Place) -> String {
    let whole = weir_conf::prefix_text(&place.prefix);
    let host = if place.prefix.v6 { "/128" } else { "/32" };
    let mut text = whole.strip_suffix(host).unwrap_or(&whole).to_owned();
    for (n, (first, last)) in place.ports.iter().enumerate() {
        text += if n == 0 { " port " } else { "+" };
        text += &if first == last { first.to_string() } else { format!("{first}-{last}") };
    }
    text
}

/// The window by which flows are measured. Classes of one edge seldom differ in it; the first one's counts.
fn window(edge: &Edge) -> Duration {
    let first = edge.config().classes.first().and_then(|class| class.allocation);
    first.map_or(weir_edge::allocate::Windows::DEFAULT, |allocation| allocation.windows).span
}

/// The flows of the edge of a direction, of one contract or of all; none if it has no edge.
///
/// # Errors
/// The worker does not answer.
pub fn flows(
    control: &Control,
    direction: usize,
    interface: &str,
    sla: Option<u32>,
) -> io::Result<Option<Vec<FlowState>>> {
    let (mut all, mut from) = (Vec::new(), 0);
    if sla.is_none() {
        let sessions = control.with_edge(direction, |edge, now| {
            (edge.sessions().map(|(session, seen)| (session.clone(), seen)).collect::<Vec<_>>(), now)
        })?;
        let Some((sessions, now)) = sessions else { return Ok(None) };
        all.extend(sessions.iter().map(|(session, seen)| FlowState::session(interface, session, seen, now)));
    }
    loop {
        let page = control.with_edge(direction, move |edge, now| {
            let places = edge.places();
            let explained = |flow| (edge.explain_flow(flow), Flow::key(flow));
            let some: Vec<(Explained, Key)> = edge.flows_at(now, from..from + PAGE).map(explained).collect();
            (some, places, window(edge), now)
        })?;
        let Some((some, places, window, now)) = page else { return Ok(None) };
        let of_sla = some.iter().filter(|(explained, _)| sla.is_none_or(|id| explained.contract == Some(id)));
        all.extend(of_sla.map(|(explained, key)| FlowState::of(interface, key, explained, window, now)));
        from += PAGE;
        if from >= places {
            return Ok(Some(all));
        }
    }
}

//! Counters held against intent: is each interface and class doing what it is there for?
//!
//! A pure state machine over statistics that somebody takes about once a second. It says a state for
//! each egress and each class, why, and since when.

use crate::state::{BridgeState, ClassState, Egress, PortState, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use weir_core::units::{Duration, Instant};

/// How a class or an interface is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Packets leave, or wait for their turn.
    Active,
    /// Nothing comes.
    Idle,
    /// Filters lead to the class, and none of them has matched, though traffic came.
    NotMatching,
    /// Packets wait and none leaves, though the link moves.
    Starved,
    /// The traffic passes without what is configured.
    Bypassed,
    /// Packets are lost before the queue, or the worker is late.
    Overloaded,
    /// The interface carries nothing: it is down, without a carrier, or gone.
    Down,
}

impl State {
    /// True if it is as configured.
    pub fn is_well(self) -> bool {
        matches!(self, State::Active | State::Idle)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
            State::NotMatching => "NOT MATCHING",
            State::Starved => "STARVED",
            State::Bypassed => "BYPASSED",
            State::Overloaded => "OVERLOADED",
            State::Down => "DOWN",
        })
    }
}

/// What is said of an egress, or of a class of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The interface that packets leave by.
    pub interface: String,
    /// The class; none for the interface itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How it is.
    pub state: State,
    /// Why, where that is not plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// For how long it has been so.
    pub for_ns: u64,
}

/// Traffic must have come for so long before a filter counts as not matching.
const UNMATCHED: Duration = Duration::from_secs(30);
/// Packets wait for so long before their class counts as starved.
const STUCK: Duration = Duration::from_secs(1);
/// An overload is told for so long after its last sign.
const AFTERMATH: Duration = Duration::from_secs(10);
/// A worker that lost more of the time, because it was later than the bucket holds, is overloaded, percent.
const LATE_PERCENT: u64 = 1;
/// A worker that is busy for more of its time is late, percent.
const BUSY_PERCENT: u64 = 95;

/// What is remembered of an egress or a class.
#[derive(Clone, Debug)]
struct Track {
    state: State,
    why: String,
    since: Instant,
    /// The counters of the last time.
    sent: u64,
    offered: u64,
    lost: u64,
    /// Of an egress: time that its port had lost, nanoseconds.
    late_ns: u64,
    /// Of an egress: what each of its workers had worked.
    busy_ns: Vec<u64>,
    /// Of a class: what it had been offered when its configuration began.
    offered_before: u64,
    /// Of a class: how long traffic came to others while none came to it.
    unmatched: Duration,
    /// Of a class: since when packets wait and none leaves. Of an egress: the last sign of overload.
    mark: Option<Instant>,
}

impl Track {
    fn new(now: Instant) -> Self {
        Track {
            state: State::Idle,
            why: String::new(),
            since: now,
            sent: 0,
            offered: 0,
            lost: 0,
            late_ns: 0,
            busy_ns: Vec::new(),
            offered_before: 0,
            unmatched: Duration::ZERO,
            mark: None,
        }
    }

    fn become_(&mut self, now: Instant, state: State, why: String) {
        if self.state != state {
            (self.state, self.since) = (state, now);
        }
        self.why = why;
    }
}

/// An egress, or a class of it.
type Key = (String, Option<String>);

/// The state machine.
#[derive(Default)]
pub struct Status {
    tracks: BTreeMap<Key, Track>,
    at: Option<Instant>,
}

impl Status {
    /// Begins anew, because the configuration has changed.
    pub fn begin_anew(&mut self) {
        *self = Status::default();
    }

    /// Goes on from what was found by another process that ran the same: how things are, and since when.
    pub fn go_on(&mut self, now: Instant, found: Vec<Finding>) {
        for Finding { interface, class, state, why, for_ns } in found {
            let since = now - Duration::from_nanos(for_ns);
            self.tracks.insert((interface, class), Track { state, why, since, ..Track::new(now) });
        }
    }

    /// Takes the statistics of `now`. `filtered` says whether filters of an interface lead to a class.
    pub fn observe(&mut self, now: Instant, snapshot: &Snapshot, filtered: &dyn Fn(&str, &str) -> bool) {
        let elapsed = self.at.map(|at| now.since(at));
        self.at = Some(now);
        let mut tracks = std::mem::take(&mut self.tracks);
        let mut take = |interface: &str, class: Option<&str>| {
            let key = (interface.to_string(), class.map(str::to_string));
            let known = tracks.remove(&key);
            let fresh = known.is_none();
            (key, known.unwrap_or_else(|| Track::new(now)), elapsed.filter(|_| !fresh))
        };
        for bridge in &snapshot.bridges {
            if bridge.silent.is_some() {
                // Nothing is known but that: what was known before goes on under it.
                for name in &bridge.interfaces {
                    let (key, mut track, _) = take(name, None);
                    track.become_(now, State::Overloaded, "the worker gives no answer".into());
                    self.tracks.insert(key, track);
                }
            }
            for (index, egress) in bridge.egresses.iter().enumerate() {
                let (key, mut track, elapsed) = take(&egress.interface, None);
                let busy = |(cpu_ns, spun_ns): (u64, u64)| cpu_ns.saturating_sub(spun_ns);
                let each = bridge.workers.iter().map(|worker| busy((worker.cpu_ns, worker.spun_ns)));
                let busy_ns = match bridge.workers.len() {
                    0 | 1 => vec![busy((bridge.cpu_ns, bridge.spun_ns))],
                    2 => each.skip(index).take(1).collect(),
                    // Each has a part of every egress.
                    _ => each.collect(),
                };
                let moves = judge_egress(&mut track, now, elapsed, bridge, (egress, busy_ns));
                self.tracks.insert(key, track);
                let Some(port) = &egress.port else { continue };
                for class in port.classes.iter().filter(|class| class.counts.is_some()) {
                    let (key, mut track, elapsed) = take(&egress.interface, Some(&class.name));
                    let is_filtered = filtered(&egress.interface, &class.name);
                    judge_class(&mut track, now, elapsed, class, port, (is_filtered, moves));
                    self.tracks.insert(key, track);
                }
            }
        }
    }

    /// What there is to say, interface by interface.
    pub fn findings(&self, now: Instant) -> Vec<Finding> {
        let finding = |((interface, class), track): (&Key, &Track)| Finding {
            interface: interface.clone(),
            class: class.clone(),
            state: track.state,
            why: track.why.clone(),
            for_ns: now.since(track.since).as_nanos(),
        };
        self.tracks.iter().map(finding).collect()
    }
}

/// Whether the link has moved since the last time. `busy_ns`: what each worker of the egress has worked.
fn judge_egress(
    track: &mut Track,
    now: Instant,
    elapsed: Option<Duration>,
    bridge: &BridgeState,
    (egress, busy_ns): (&Egress, Vec<u64>),
) -> bool {
    let lost = egress.overrun_packets
        + egress.nobuf_packets
        + egress.unhanded_packets
        + bridge.without.stale_packets;
    let late_ns = egress.port.as_ref().map_or(0, |port| port.lost_ns);
    let mut signs = Vec::new();
    if let Some(elapsed) = elapsed {
        if lost > track.lost {
            signs.push(format!("{} packets lost before the queue", lost - track.lost));
        }
        let before = track.busy_ns.iter().copied().chain(std::iter::repeat(0));
        let busiest = busy_ns.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).max();
        let busy = 100 * busiest.unwrap_or(0) / elapsed.as_nanos().max(1);
        if busy > BUSY_PERCENT {
            let which = if busy_ns.len() > 1 { "a worker" } else { "the worker" };
            signs.push(format!("{which} is busy for {busy} % of the time"));
        }
        // A new port begins at 0.
        let late = late_ns.saturating_sub(track.late_ns);
        if 100 * late > LATE_PERCENT * elapsed.as_nanos() {
            signs.push(format!(
                "the worker was late by {:.1} ms more than the token bucket holds",
                late as f64 / 1e6
            ));
        }
    }
    let sent = egress.sent_packets;
    let moved = elapsed.is_some() && sent > track.sent;
    let bypassed = match (&bridge.failed, egress.port.as_ref().and_then(|port| port.broken.as_ref())) {
        (Some(why), _) => Some(format!("the bridge forwards plainly: {why}")),
        (_, Some(why)) => Some(format!("the port runs as one FIFO: {why}")),
        _ if bridge.without.bypassed => Some("the kernel carries the traffic".to_string()),
        _ => None,
    };
    let link = egress.link.as_ref().map(|link| link.state.as_str()).filter(|state| !state.is_empty());
    let down = link.filter(|&state| state != "up").map(|state| format!("the interface is {state}"));
    let late = track.mark.is_some_and(|mark| now.since(mark) < AFTERMATH);
    match bypassed {
        _ if down.is_some() => track.become_(now, State::Down, down.unwrap_or_default()),
        Some(why) => track.become_(now, State::Bypassed, why),
        None if !signs.is_empty() => {
            track.mark = Some(now);
            track.become_(now, State::Overloaded, signs.join(", "));
        }
        // The last reason stays.
        None if late && track.state == State::Overloaded => {}
        None => track.become_(now, if moved { State::Active } else { State::Idle }, String::new()),
    }
    (track.sent, track.lost, track.busy_ns, track.late_ns) = (sent, lost, busy_ns, late_ns);
    moved
}

/// `filtered`: filters lead to the class. `moves`: the link carries packets.
fn judge_class(
    track: &mut Track,
    now: Instant,
    elapsed: Option<Duration>,
    class: &ClassState,
    port: &PortState,
    (filtered, moves): (bool, bool),
) {
    let Some(counts) = &class.counts else { return };
    let Some(elapsed) = elapsed else {
        (track.sent, track.offered) = (counts.sent_packets, port.total.offered_packets);
        track.offered_before = counts.offered_packets;
        return;
    };
    let moved = counts.sent_packets != track.sent;
    let waits = counts.inside_packets > 0;
    track.mark = match track.mark {
        _ if moved || !waits || !moves => None,
        Some(mark) => Some(mark),
        None => Some(now),
    };
    if counts.offered_packets != track.offered_before {
        track.unmatched = Duration::ZERO;
    } else if port.total.offered_packets != track.offered {
        track.unmatched += elapsed;
    }
    let never = counts.offered_packets == track.offered_before;
    if track.mark.is_some_and(|mark| now.since(mark) >= STUCK) {
        let why = format!("{} packets wait, and others leave", counts.inside_packets);
        track.become_(now, State::Starved, why);
    } else if filtered && never && track.unmatched >= UNMATCHED {
        let why = "none of its filters has matched since they were configured, though traffic came";
        track.become_(now, State::NotMatching, why.into());
    } else {
        track.become_(now, if moved || waits { State::Active } else { State::Idle }, String::new());
    }
    (track.sent, track.offered) = (counts.sent_packets, port.total.offered_packets);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{PacketCounts, WorkerState};

    /// A bridge with two classes, as it is at one second after the other.
    struct Box_ {
        status: Status,
        second: u64,
        snapshot: Snapshot,
    }

    impl Box_ {
        fn new() -> Box_ {
            let class = |name: &str| ClassState {
                name: name.into(),
                counts: Some(PacketCounts::default()),
                ..ClassState::default()
            };
            let port = PortState { classes: vec![class("voice"), class("rest")], ..PortState::default() };
            let egress = Egress { interface: "eth1".into(), port: Some(port), ..Egress::default() };
            let bridge = BridgeState { egresses: vec![egress], ..BridgeState::default() };
            let mut made = Box_ {
                status: Status::default(),
                second: 0,
                snapshot: Snapshot { bridges: vec![bridge], ..Snapshot::default() },
            };
            made.pass(|_| {});
            made
        }
        fn bridge(&mut self) -> &mut BridgeState {
            &mut self.snapshot.bridges[0]
        }
        /// `offered` come to a class and `sent` leave it.
        fn traffic(&mut self, class: usize, offered: u64, sent: u64) {
            let egress = &mut self.bridge().egresses[0];
            egress.sent_packets += sent;
            let port = egress.port.as_mut().unwrap();
            port.total.offered_packets += offered;
            let counts = port.classes[class].counts.as_mut().unwrap();
            counts.offered_packets += offered;
            counts.sent_packets += sent;
            counts.inside_packets = counts.offered_packets - counts.sent_packets;
        }
        /// A second passes in which `happens`; what is said of interface, voice and rest.
        fn pass(&mut self, happens: impl FnOnce(&mut Box_)) -> [State; 3] {
            happens(self);
            self.second += 1;
            let now = Instant::from_millis(1_000 * self.second);
            self.status.observe(now, &self.snapshot, &|_, class| class == "voice");
            let found = self.status.findings(now);
            let of = |class: Option<&str>| {
                found.iter().find(|f| f.class.as_deref() == class).map_or(State::Idle, |f| f.state)
            };
            [of(None), of(Some("voice")), of(Some("rest"))]
        }
    }

    use State::{Active, Bypassed, Idle, NotMatching, Overloaded, Starved};

    #[test]
    fn active_and_idle() {
        let mut one = Box_::new();
        assert_eq!(one.pass(|_| {}), [Idle, Idle, Idle]);
        assert_eq!(one.pass(|b| b.traffic(0, 5, 5)), [Active, Active, Idle]);
        assert_eq!(one.pass(|b| b.traffic(1, 5, 5)), [Active, Idle, Active]);
        assert_eq!(one.pass(|_| {}), [Idle, Idle, Idle]);
        let now = Instant::from_millis(1_000 * (one.second + 7));
        assert!(one.status.findings(now).iter().all(|f| f.for_ns >= 7_000_000_000), "since when");
    }

    #[test]
    fn a_worker_that_loses_time_is_overloaded() {
        for (lost_ns, expected) in [(9_000_000, Active), (11_000_000, Overloaded)] {
            let mut one = Box_::new();
            let [interface, ..] = one.pass(|b| {
                b.traffic(0, 5, 5);
                b.bridge().egresses[0].port.as_mut().unwrap().lost_ns = lost_ns;
            });
            assert_eq!(interface, expected);
        }
    }

    #[test]
    fn an_interface_that_carries_nothing_is_down() {
        let mut one = Box_::new();
        for (state, expected) in
            [("up", Active), ("no carrier", State::Down), ("gone", State::Down), ("up", Active)]
        {
            let link = crate::state::LinkState { state: state.into(), ..Default::default() };
            let [interface, ..] = one.pass(|b| {
                b.bridge().egresses[0].link = Some(link);
                b.traffic(0, 5, 5);
            });
            assert_eq!(interface, expected, "{state}");
        }
        assert!(!State::Down.is_well());
    }

    #[test]
    fn filters_that_never_match_are_found_and_quiet_ones_are_not() {
        let mut one = Box_::new();
        for second in 1..=60 {
            let [_, voice, rest] = one.pass(|b| b.traffic(1, 9, 9));
            // The default class has no filters, so that nothing is expected of it.
            assert_eq!((voice, rest), (if second < 30 { Idle } else { NotMatching }, Active), "{second}");
        }
        assert_eq!(one.pass(|b| b.traffic(0, 1, 1))[1], Active);
        for _ in 0..60 {
            assert_eq!(one.pass(|b| b.traffic(1, 9, 9))[1], Idle, "it has matched once");
        }
        // Nor is anything said where no traffic comes at all.
        let mut quiet = Box_::new();
        assert!((0..60).all(|_| quiet.pass(|_| {})[1] == Idle));
    }

    #[test]
    fn what_waits_while_others_leave_starves() {
        let mut one = Box_::new();
        assert_eq!(one.pass(|b| (b.traffic(0, 5, 0), b.traffic(1, 9, 9)).0), [Active, Active, Active]);
        assert_eq!(one.pass(|b| b.traffic(1, 9, 9)), [Active, Starved, Active]);
        assert_eq!(one.pass(|b| (b.traffic(0, 0, 1), b.traffic(1, 9, 9)).0), [Active, Active, Active]);
        // Reversed: where the link does not move either, nobody takes anything away.
        let mut still = Box_::new();
        still.pass(|b| b.traffic(0, 5, 0));
        assert!((0..5).all(|_| still.pass(|_| {})[1] == Active));
    }

    #[test]
    fn losses_and_late_workers_are_overload_for_a_while() {
        let signs: [fn(&mut BridgeState); 4] = [
            |b| b.egresses[0].overrun_packets += 3,
            |b| b.egresses[0].nobuf_packets += 3,
            |b| b.cpu_ns += 970_000_000,
            |b| b.without.stale_packets += 1,
        ];
        for sign in signs {
            let mut one = Box_::new();
            assert_eq!(one.pass(|_| {})[0], Idle);
            assert_eq!(one.pass(|b| sign(b.bridge()))[0], Overloaded);
            assert!((1..10).all(|_| one.pass(|b| b.traffic(1, 9, 9))[0] == Overloaded));
            assert_eq!(one.pass(|b| b.traffic(1, 9, 9))[0], Active);
        }
        // A worker that stays awake for what is due is not late.
        let mut awake = Box_::new();
        let spins = |b: &mut Box_| (b.bridge().cpu_ns += 970_000_000, b.bridge().spun_ns += 900_000_000).0;
        assert_eq!(awake.pass(spins)[0], Idle);
        let mut silent = Box_::new();
        let state = silent.pass(|b| {
            let interfaces = ["eth1".to_string(), "eth0".to_string()];
            *b.bridge() = BridgeState { interfaces, silent: Some("x".into()), ..BridgeState::default() };
        });
        assert_eq!(state[0], Overloaded);
    }

    /// Of two workers each is judged by what its own direction costs.
    #[test]
    fn a_busy_worker_overloads_its_own_egress_alone() {
        for (busy, expected) in [(0, Overloaded), (1, Idle)] {
            let mut one = Box_::new();
            one.pass(|b| b.bridge().workers = vec![WorkerState::default(); 2]);
            let state = one.pass(|b| {
                b.bridge().cpu_ns += 970_000_000;
                b.bridge().workers[busy].cpu_ns += 970_000_000;
            });
            assert_eq!(state[0], expected);
        }
    }

    /// Of more than two workers each runs a part of every egress: the busiest counts.
    #[test]
    fn a_busy_worker_of_several_overloads_what_it_is_a_part_of() {
        for (works, expected) in [([0, 0, 97], Overloaded), ([60, 60, 60], Idle)] {
            let mut one = Box_::new();
            one.pass(|b| b.bridge().workers = vec![WorkerState::default(); 3]);
            let state = one.pass(|b| {
                for (worker, percent) in b.bridge().workers.iter_mut().zip(works) {
                    worker.cpu_ns += percent * 10_000_000;
                }
            });
            assert_eq!(state[0], expected);
        }
    }

    #[test]
    fn what_passes_without_its_configuration_is_bypassed() {
        let ways: [fn(&mut BridgeState); 3] = [
            |b| b.failed = Some("a panic".into()),
            |b| b.without.bypassed = true,
            |b| b.egresses[0].port.as_mut().unwrap().broken = Some("cbq: x".into()),
        ];
        for way in ways {
            let mut one = Box_::new();
            assert_eq!(one.pass(|b| way(b.bridge()))[0], Bypassed);
            let now = Instant::from_millis(1_000 * one.second);
            assert!(!one.status.findings(now)[0].why.is_empty());
            assert!(!Bypassed.is_well() && !Starved.is_well() && Active.is_well() && Idle.is_well());
        }
    }
}

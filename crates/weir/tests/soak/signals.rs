//! Every mode meets every signal under load: `kill -9` and `SIGTERM` with a start behind them,
//! a stop of the whole process, and `SIGHUP`.

use crate::Size;
use crate::bed::{Held, wait};
use crate::page::Row;
use crate::place::{Mode, bed, counted, egress, lapses, pause, probes, signal, until_shaped};
use crate::probes::{Fate, Load, Probes, Seen};
use weir_core::units::{Duration, Instant};
use weir_sys::now;

/// 80 % of the link.
const LOAD: Load = Load { rate_pps: 2_000, flows: 2, payload_bytes: 434 };
const LINK_MBPS: u64 = 10;

const HUP: &str = "SIGHUP";
const STOP: &str = "SIGSTOP, 0.4 s";
const TERM: &str = "SIGTERM";
const START: &str = "start after SIGTERM";
const KILL: &str = "kill -9";
const AGAIN: &str = "start after kill -9";
const ALL: [&str; 6] = [HUP, STOP, TERM, START, KILL, AGAIN];

/// When something was done, and how long after it the worker shaped again.
struct Done {
    what: &'static str,
    at: Instant,
    until: Instant,
    shaped: Option<Duration>,
    /// Packets that the counters own to have lost meanwhile.
    counted: u64,
    lapses: (u64, u64),
}

/// The worst that became of the probes around one signal, over all rounds.
#[derive(Default)]
struct Worst {
    fate: Fate,
    shaped: Duration,
    counted: u64,
    lapses: (u64, u64),
}

fn round(mode: Mode, what: &mut Vec<Done>) -> (Seen, Fate) {
    let bed = bed(1, mode);
    let conf = bed.folder.write("a.altq", mode.conf(LINK_MBPS));
    let mut up = bed.up(&[&conf]);
    until_carried(&bed);
    let probes: Probes = probes(&bed, 0, true, LOAD);
    until_shaped(&bed, "right0", now());
    pause(300);
    let began = now();
    let mut note = |name: &'static str, up: &mut Held, act: &mut dyn FnMut(&mut Held) -> Option<Duration>| {
        let (before, early) = (counted(&egress(&bed, "right0")), lapses(&bed));
        let at = now();
        let shaped = act(up);
        pause(300);
        let (after, late) = (counted(&egress(&bed, "right0")), lapses(&bed));
        let lapses = (late.0.saturating_sub(early.0), late.1.saturating_sub(early.1));
        let counted = after.saturating_sub(before);
        what.push(Done { what: name, at, until: now(), shaped, counted, lapses });
    };
    note(HUP, &mut up, &mut |up| {
        signal(up, "-HUP");
        None
    });
    note(STOP, &mut up, &mut |up| {
        signal(up, "-STOP");
        pause(400);
        signal(up, "-CONT");
        let shaped = until_shaped(&bed, "right0", now());
        // What has waited meanwhile leaves at the link's rate, beside what comes.
        wait("the end of the queue", || {
            egress(&bed, "right0")["port"]["backlog_packets"].as_u64().is_some_and(|waiting| waiting < 20)
        });
        Some(shaped)
    });
    for (end, name, start) in [("-TERM", TERM, START), ("-KILL", KILL, AGAIN)] {
        note(name, &mut up, &mut |up| {
            signal(up, end);
            up.0.wait().unwrap();
            None
        });
        note(start, &mut up, &mut |up| {
            let from = now();
            *up = bed.up(&[&conf]);
            Some(until_shaped(&bed, "right0", from))
        });
    }
    let seen = probes.end();
    let all = seen.between(began, Instant::NEVER);
    (seen, all)
}

/// A start may find links that are not yet ready: the first probe that comes ends that.
fn until_carried(bed: &crate::bed::Bed) {
    let hosts = &bed.hosts[0];
    crate::bed::wait("the way", || {
        crate::bed::send(bed, 0, 5_999, 1);
        crate::bed::arrived(&hosts.right) > 0
    });
}

/// Milliseconds, to a tenth.
fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_nanos() as f64 / 1e6)
}

/// What is asked of a signal in a mode: the longest outage, and whether anything may be lost.
fn bound(mode: Mode, what: &str) -> Option<Duration> {
    let carried = matches!(mode, Mode::Open | Mode::TwoWorkers);
    let nothing = matches!(what, HUP) || (carried && matches!(what, TERM | START | AGAIN));
    match (mode, what) {
        _ if nothing => Some(Duration::ZERO),
        // Nothing is to pass while Weir is away; what is asked is that it is back.
        (Mode::Closed, _) => None,
        (_, STOP) => Some(Duration::from_millis(100)),
        _ => Some(Duration::from_millis(50)),
    }
}

fn row(size: &Size, mode: Mode, what: &'static str, worst: &Worst) -> Row {
    let fate = worst.fate;
    let bound = bound(mode, what);
    let asked = match bound {
        Some(none) if none.is_zero() => "0 lost, 0 twice".into(),
        Some(bound) => format!("outage at most {} ms, 0 twice", bound.as_nanos() / 1_000_000),
        None => "0 twice".to_string(),
    };
    let restart = matches!(what, STOP | START | AGAIN);
    let asked = if restart { format!("{asked}, shaping within 1 s") } else { asked };
    let mut row = Row::new(format!("{}: {what}, {} times", mode.name(), size.rounds), asked);
    row.found = format!(
        "{} lost, {} twice, {} overtaken, outage {}",
        fate.lost,
        fate.twice,
        fate.overtaken,
        ms(fate.outage)
    );
    if restart {
        row.found += &format!(", shaping after {}", ms(worst.shaped));
        row.expect(worst.shaped <= size.at_most(1_000), || "late to shape".into());
    }
    // Reversed: where nothing carries the traffic the probes see it.
    if mode == Mode::Closed && matches!(what, TERM | KILL) {
        row.expect(fate.outage >= Duration::from_millis(200), || "no outage is seen".into());
    }
    row.expect(fate.twice == 0, || "came twice".into());
    row.note_lapses(worst.lapses);
    let (lapses, stale) = worst.lapses;
    // What waited for a stopped process leaves behind what passed without it.
    row.expect(fate.overtaken == 0 || lapses > 0 || what == STOP, || "overtaken".into());
    match bound {
        Some(none) if none.is_zero() => row.expect(u64::from(fate.lost) <= stale, || "lost".into()),
        Some(bound) => {
            row.expect(fate.outage <= size.at_most(bound.as_nanos() / 1_000_000), || "outage too long".into())
        }
        None if what == STOP => {
            row.expect(u64::from(fate.lost) <= worst.counted, || format!("{} counted", worst.counted));
        }
        None => {}
    }
    row
}

pub fn rows(size: &Size) -> Vec<Row> {
    let mut rows = Vec::new();
    for mode in Mode::ALL {
        let mut worst: Vec<Worst> = ALL.iter().map(|_| Worst::default()).collect();
        for _ in 0..size.rounds {
            let mut done = Vec::new();
            let (seen, all) = round(mode, &mut done);
            println!("{mode:?}: {all:?}");
            for (worst, what) in worst.iter_mut().zip(ALL) {
                for done in done.iter().filter(|done| done.what == what) {
                    let fate = seen.between(done.at, done.until);
                    println!("  {what}: {fate:?}, shaped {:?}, counted {}", done.shaped, done.counted);
                    worst.add(fate, done);
                }
            }
        }
        rows.extend(ALL.iter().zip(&worst).map(|(what, worst)| row(size, mode, what, worst)));
    }
    rows
}

impl Worst {
    fn add(&mut self, fate: Fate, done: &Done) {
        let most = &mut self.fate;
        most.sent += fate.sent;
        most.lost += fate.lost;
        most.twice += fate.twice;
        most.overtaken += fate.overtaken;
        most.outage = most.outage.max(fate.outage);
        self.shaped = self.shaped.max(done.shaped.unwrap_or_default());
        self.counted += done.counted;
        self.lapses = (self.lapses.0 + done.lapses.0, self.lapses.1 + done.lapses.1);
    }
}

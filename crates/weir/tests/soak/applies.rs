//! Random configurations, one after the other, under load in both directions.

use crate::Size;
use crate::bed::{Bed, Held, terminate};
use crate::page::Row;
use crate::place::{Mode, bed, counted, egress, lapses, probes, until_shaped};
use crate::probes::{Fate, Load, Seen};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_core::Random;
use weir_core::units::Instant;
use weir_sys::now;

/// Forth: of these flows `STAY` keep their class, the others' classes come and go.
pub const FORTH: Load = Load { rate_pps: 2_000, flows: 6, payload_bytes: 434 };
pub const STAY: u64 = 4;
/// Back, and over the bridge that comes and goes.
const BACK: Load = Load { rate_pps: 500, flows: 2, payload_bytes: 200 };
const BESIDE: Load = Load { rate_pps: 300, flows: 2, payload_bytes: 200 };

/// What files are drawn from.
pub struct Kind {
    /// Rates of the managed link, in bit/s: from, to.
    pub rate_bps: (u64, u64),
    /// Whether limits and conditioners may be so narrow that they cost packets.
    pub narrow: bool,
    /// Threads of the bridge.
    pub workers: u32,
}

fn one_of(random: &mut Random, all: &[&'static str]) -> &'static str {
    all[random.below(all.len() as u64) as usize]
}

/// A class of its own, with its discipline or AQM.
fn class(random: &mut Random, discipline: &str, name: &str, number: u64, narrow: bool) -> String {
    const ROOMY: [&str; 5] =
        ["wfq nqueues 16 hash full qsize 900000", "drr", "fifoq qlimit 2000", "fqcodel", "qfq"];
    let limit = match narrow {
        true => 1 + random.below(30),
        false => 2_000,
    };
    let aqm = if narrow { one_of(random, &["", "", " red", " codel", " pie", " blue"]) } else { "" };
    let default = if number == 0 { " default" } else { "" };
    // All of them have more than all of the load, also where they may not borrow.
    let share = 14 + random.below(2);
    let text = match discipline {
        "hfsc" => format!("root pshare {share}{default} qlimit {limit}{aqm}"),
        "cbq" => format!("top borrow pbandwidth {share}{default} qlimit {limit}{aqm}"),
        _ if !narrow && random.below(2) == 0 => {
            format!("NULL priority {number}{default} {}", one_of(random, &ROOMY))
        }
        _ => format!("NULL priority {number}{default} qlimit {limit}{aqm}"),
    };
    format!("class {discipline} right0 {name} {text}\n")
}

/// A configuration of that kind; `beside` is how a second bridge fails, if there is one.
pub fn file(random: &mut Random, kind: &Kind, beside: Option<&str>) -> String {
    let (from, to) = kind.rate_bps;
    let rate = from + random.below(to - from);
    let discipline = one_of(random, &["priq", "hfsc", "cbq"]);
    let workers = kind.workers;
    let mut text =
        format!("interface right0 bandwidth {rate} {discipline} attach bridge left0 workers {workers}\n");
    if discipline == "cbq" {
        text += "class cbq right0 top NULL pbandwidth 100\n";
    }
    for number in 0..u64::from(FORTH.flows) {
        if number >= STAY && random.below(2) == 0 {
            continue;
        }
        text += &class(random, discipline, &format!("c{number}"), number, kind.narrow);
        writeln!(text, "filter right0 c{number} 0 0 0 {} 17", u64::from(Load::SOURCE) + number).unwrap();
    }
    match random.below(4) {
        0 => {}
        1 => text += "interface left0 bandwidth 20M priq\nclass priq left0 all NULL default qlimit 2000\n",
        2 => text += "interface left0 bandwidth 20M drr\n",
        _ => {
            let depth = if kind.narrow { 500 + random.below(20_000) } else { 200_000 };
            writeln!(
                text,
                "interface left0\nconditioner left0 c <tbmeter 20M {depth} <pass><drop>>\nfilter left0 c 0 0 0 0 17"
            )
            .unwrap();
        }
    }
    if let Some(fail) = beside {
        writeln!(text, "interface right1 bandwidth 10M fifoq attach bridge left1 fail {fail}").unwrap();
    }
    text
}

/// What a process holds.
#[derive(Clone, Debug, Default)]
struct Holds {
    resident_kb: u64,
    /// How many there are of each kind.
    descriptors: BTreeMap<String, usize>,
    threads: usize,
}

/// What a descriptor leads to, without the number that each one has: `socket`, `anon_inode:bpf-map`, a path.
fn kind(target: &str) -> String {
    match target.strip_suffix(']').and_then(|rest| rest.rsplit_once(":[")) {
        Some((kind, number)) if number.bytes().all(|b| b.is_ascii_digit()) => kind.into(),
        _ => target.into(),
    }
}

impl Holds {
    fn of(process: &Held) -> Holds {
        let proc = |name: &str| format!("/proc/{}/{name}", process.pid());
        let status = std::fs::read_to_string(proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let mut descriptors = BTreeMap::new();
        for entry in std::fs::read_dir(proc("fd")).unwrap() {
            // One that was closed meanwhile leads nowhere.
            if let Ok(target) = std::fs::read_link(entry.unwrap().path()) {
                *descriptors.entry(kind(&target.to_string_lossy())).or_default() += 1;
            }
        }
        Holds {
            resident_kb: line.trim().trim_end_matches(" kB").parse().unwrap(),
            descriptors,
            threads: std::fs::read_dir(proc("task")).unwrap().count(),
        }
    }
}

/// What a thousand applies may add to the memory of `weir up`: its allocator's fragments, and no ports.
const MORE_KB: u64 = 8_192;

/// What `applies` of a kind did to the traffic.
struct Found {
    applies: u32,
    forth: Seen,
    back: Seen,
    beside: Seen,
    /// Whole times in which the other bridge was there.
    there: Vec<(Instant, Instant)>,
    /// Each apply: when it began, and how the other bridge failed before and after it.
    turns: Vec<(Instant, [Option<&'static str>; 2])>,
    /// What the counters say was lost forth.
    counted: u64,
    reassigned: u64,
    sent_by_weir: u64,
    refused: Vec<String>,
    /// Of the workers, and what they threw away for it.
    lapses: (u64, u64),
    /// After a quarter of the applies, and at the end; both times with one bridge.
    holds: [Holds; 2],
}

fn run(random: &mut Random, kind: &Kind, applies: u32, seconds: u64) -> Found {
    let bed: Bed = bed(2, Mode::Open);
    let up = bed.up(&[&bed.folder.write("0.altq", file(random, kind, None))]);
    let ways = [probes(&bed, 0, true, FORTH), probes(&bed, 0, false, BACK), probes(&bed, 1, true, BESIDE)];
    until_shaped(&bed, "right0", now());
    let (mut beside, mut there, mut since) = (None, Vec::new(), None);
    let (start, mut refused, mut early) = (now(), Vec::new(), Holds::default());
    let mut turns = Vec::new();
    let pause_ns = seconds * 1_000_000_000 / u64::from(applies);
    for n in 1..=applies {
        let before = beside;
        let toggled = if random.below(6) == 0 { before.is_none() } else { before.is_some() };
        let alone = n == applies.div_ceil(4) || n == applies;
        beside = (toggled && !alone).then(|| one_of(random, &["open", "closed"]));
        // What it holds is read with the same file both times: buffers are as many as its limits ask for.
        let text = if alone { file(&mut Random::new(0), kind, None) } else { file(random, kind, beside) };
        let path = bed.folder.write("n.altq", text);
        if before.is_some() && beside.is_none() {
            there.extend(since.take().map(|since| (since, now())));
        }
        let from = now();
        let run = bed.ask(&["apply", &path]);
        turns.push((from, [before, beside]));
        if run.code != 0 {
            refused.push(format!("{run:?}\n{}", bed.folder.read("n.altq")));
        }
        if beside.is_some() && before.is_none() {
            since = Some(now());
        }
        weir_sys::sleep_until(
            start + weir_core::units::Duration::from_nanos(pause_ns).saturating_mul(u64::from(n)),
        );
        // Once what the last change has replaced is given back.
        if n == applies.div_ceil(4) {
            early = Holds::of(&up);
        }
    }
    there.extend(since.map(|since| (since, now())));
    let [forth, back, beside] = ways.map(crate::probes::Probes::end);
    let last = egress(&bed, "right0");
    let (holds, lapses) = ([early, Holds::of(&up)], lapses(&bed));
    terminate(up).ok();
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
    Found {
        applies,
        forth,
        back,
        beside,
        there,
        turns,
        counted: counted(&last),
        reassigned: number(&last["port"]["reassigned_packets"]),
        sent_by_weir: number(&last["sent_packets"]),
        refused,
        lapses,
        holds,
    }
}

/// The row of the way forth, whose losses the counters must explain one by one.
fn forth(what: &str, found: &Found, may_lose: bool) -> Row {
    let Found { applies, counted, reassigned, sent_by_weir, .. } = found;
    let asked = match may_lose {
        true => "each lost packet counted, 0 twice, 0 overtaken",
        false => "0 lost, 0 twice, 0 overtaken",
    };
    let fate = found.forth.fate();
    let mut row = Row::new(format!("{applies} applies, {what}"), asked);
    // A flow whose class goes has its packets in the default class, behind those of its next class.
    let moved = found.forth.overtaken_in(|flow| u64::from(flow) >= STAY);
    let stayed = fate.overtaken - moved;
    row.found = format!(
        "{} sent, {} lost and {counted} counted, {} twice, {stayed} overtaken; in flows that changed their class {moved} of {reassigned} moved packets overtaken",
        fate.sent, fate.lost, fate.twice
    );
    row.note_lapses(found.lapses);
    let (lapses, stale) = found.lapses;
    let lost = u64::from(fate.lost);
    // What a worker throws away after a lapse is counted for both directions together, and what it
    // keeps leaves behind what the kernel has carried for it.
    let explained = if lapses == 0 { lost == *counted } else { (*counted..=counted + stale).contains(&lost) };
    row.expect(explained, || format!("{lost} lost, {counted} counted"));
    row.expect(may_lose || lapses > 0 || lost == 0, || "lost".into());
    row.expect(!may_lose || lost > 0, || "no limit was reached: the row shows nothing".into());
    row.expect(fate.twice == 0, || "came twice".into());
    row.expect(stayed == 0 || lapses > 0, || "overtaken".into());
    row.expect(found.refused.is_empty(), || {
        format!("{} applies refused: {}", found.refused.len(), found.refused[0])
    });
    // Had the path underneath carried them, nothing would be shown.
    row.expect(lapses > 0 || *sent_by_weir >= u64::from(fate.sent - fate.lost), || {
        format!("weir sent {sent_by_weir} only")
    });
    row
}

fn others(what: &str, found: &Found, may_lose: bool) -> Vec<Row> {
    let back = found.back.fate();
    let mut row =
        Row::new(format!("{what}: the way back, managed and not in turn"), "0 lost, 0 twice, 0 overtaken");
    row.found =
        format!("{} sent, {} lost, {} twice, {} overtaken", back.sent, back.lost, back.twice, back.overtaken);
    if may_lose {
        row.asked = "0 twice, 0 overtaken".into();
    }
    row.note_lapses(found.lapses);
    let (lapses, stale) = found.lapses;
    let lost = u64::from(back.lost) <= stale || may_lose;
    row.expect(lost && back.twice == 0 && (back.overtaken == 0 || lapses > 0), || "not so".into());
    let fates: Vec<Fate> = found.there.iter().map(|&(from, to)| found.beside.between(from, to)).collect();
    let lost: u32 = fates.iter().map(|fate| fate.lost).sum();
    let sent: u32 = fates.iter().map(|fate| fate.sent).sum();
    let all = found.beside.fate();
    for at in found.beside.lost_at() {
        let last = found.turns.iter().rev().find(|(from, _)| *from <= at);
        let inside = found.there.iter().any(|(from, to)| (*from..*to).contains(&at));
        if let (true, Some((from, how))) = (inside, last) {
            // For whoever looks for the cause.
            println!("lost {:?} after an apply began: {how:?}", at.since(*from));
        }
    }
    let mut beside = Row::new(
        format!("{what}: a bridge that came and went {} times", fates.len()),
        "0 lost while it is there, 0 twice",
    );
    beside.found = format!("{sent} sent, {lost} lost, {} twice, {} overtaken", all.twice, all.overtaken);
    beside.note_lapses(found.lapses);
    // As it comes and goes the kernel and the worker carry at once, and one may overtake the other.
    beside.expect(u64::from(lost) <= stale && all.twice == 0, || "not so".into());
    vec![row, beside, holds(what, &found.holds)]
}

/// The row of what a process holds early and late: nothing of it may grow.
fn holds(what: &str, [early, late]: &[Holds; 2]) -> Row {
    let mut row = Row::new(
        format!("{what}: what `weir up` holds after a quarter of them, and at the end"),
        format!("at most {MORE_KB} KB more, no descriptor and no thread more"),
    );
    let say = |h: &Holds| {
        let descriptors: usize = h.descriptors.values().sum();
        format!("{} KB, {descriptors} descriptors, {} threads", h.resident_kb, h.threads)
    };
    row.found = format!("{}; then {}", say(early), say(late));
    row.expect(late.resident_kb <= early.resident_kb + MORE_KB, || "more memory".into());
    row.expect(late.threads <= early.threads, || "more threads".into());
    let before = |kind: &String| early.descriptors.get(kind).copied().unwrap_or(0);
    let beyond: Vec<String> = late
        .descriptors
        .iter()
        .filter(|(kind, count)| **count > before(kind))
        .map(|(kind, count)| format!("{} of {kind}", count - before(kind)))
        .collect();
    row.expect(beyond.is_empty(), || format!("more descriptors: {}", beyond.join(", ")));
    row
}

pub fn rows(size: &Size) -> Vec<Row> {
    let mut random = Random::new(weir_seed::seed());
    let bps = FORTH.bps();
    // At 80 % of the link, and at less.
    let roomy = Kind { rate_bps: (bps * 10 / 8, bps * 2), narrow: false, workers: 1 };
    let found = run(&mut random, &roomy, size.applies, size.applies_seconds);
    let mut rows = vec![forth("load at 80 % of the link and less", &found, false)];
    rows.extend(others("load at 80 %", &found, false));
    // And where links, limits and AQMs are narrower than the load.
    let narrow = Kind { rate_bps: (bps * 7 / 10, bps * 13 / 10), narrow: true, workers: 1 };
    let found = run(&mut random, &narrow, size.applies / 2, size.applies_seconds / 2);
    rows.push(forth("limits below the load", &found, true));
    rows.extend(others("limits below the load", &found, true));
    // The first again, each direction in a thread of its own.
    let found = run(&mut random, &Kind { workers: 2, ..roomy }, size.applies / 2, size.applies_seconds / 2);
    rows.push(forth("two workers", &found, false));
    rows.extend(others("two workers", &found, false));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::units::Duration;

    /// The row of a hundred probes, of which `fault` makes something else.
    fn row_of(
        counted: u64,
        may_lose: bool,
        lapses: (u64, u64),
        fault: impl FnOnce(&mut Vec<(u32, Instant)>),
    ) -> Row {
        let at = |number: u32| Instant::from_millis(1_000 + u64::from(number));
        let came = || (0..100).map(|n| (n, at(n) + Duration::from_millis(1))).collect();
        let seen = |came| Seen::of(FORTH, (0..100).map(at).collect(), came);
        let mut spoiled = came();
        fault(&mut spoiled);
        let found = Found {
            applies: 1,
            forth: seen(spoiled),
            back: seen(came()),
            beside: seen(came()),
            there: Vec::new(),
            turns: Vec::new(),
            counted,
            reassigned: 0,
            sent_by_weir: 100,
            refused: Vec::new(),
            lapses,
            holds: Default::default(),
        };
        forth("", &found, may_lose)
    }

    fn row(counted: u64, may_lose: bool, fault: impl FnOnce(&mut Vec<(u32, Instant)>)) -> Row {
        row_of(counted, may_lose, (0, 0), fault)
    }

    /// A lapse explains what it threw away, and no more.
    #[test]
    fn a_lapse_is_no_excuse_for_more_than_it_cost() {
        assert!(row_of(0, false, (1, 2), |came| came.truncate(98)).held());
        assert!(!row_of(0, false, (1, 2), |came| came.truncate(97)).held());
        assert!(!row_of(0, false, (1, 2), |came| came.push(came[3])).held());
    }

    /// Less is held at the end than before: that is well. More is not, also where something else is less.
    #[test]
    fn what_grows_is_named() {
        let of = |resident_kb, threads, fds: &[&str]| {
            let mut descriptors = BTreeMap::new();
            fds.iter().for_each(|fd| *descriptors.entry(kind(fd)).or_default() += 1);
            Holds { resident_kb, descriptors, threads }
        };
        let early = of(100, 3, &["socket:[12]", "socket:[13]", "/dev/null", "anon_inode:bpf-map"]);
        let wrong = |late: Holds| holds("", &[early.clone(), late]).wrong;
        assert!(wrong(early.clone()).is_empty());
        assert!(wrong(of(100 + MORE_KB, 2, &["socket:[99]"])).is_empty());
        assert_eq!(wrong(of(101 + MORE_KB, 3, &[])), ["more memory"]);
        assert_eq!(wrong(of(100, 4, &[])), ["more threads"]);
        let more = of(100, 3, &["socket:[7]", "socket:[8]", "socket:[9]", "anon_inode:[eventpoll]"]);
        assert_eq!(wrong(more), ["more descriptors: 1 of anon_inode:[eventpoll], 1 of socket"]);
    }

    #[test]
    fn a_packet_or_a_counter_that_is_wrong_is_seen() {
        assert!(row(0, false, |_| {}).held());
        assert!(!row(1, false, |_| {}).held(), "a counter that tells of a loss that was none");
        assert!(!row(0, false, |came| came.truncate(99)).held(), "a packet is lost");
        assert!(!row(1, false, |came| came.truncate(99)).held(), "it is lost though it is counted");
        assert!(row(1, true, |came| came.truncate(99)).held());
        assert!(
            !row(2, true, |came| came.truncate(99)).held() && !row(0, true, |came| came.truncate(99)).held()
        );
        assert!(!row(0, false, |came| came.push(came[3])).held(), "one came twice");
        // Flow 0 keeps its class, flow 5 does not.
        assert!(!row(0, false, |came| came.swap(0, 6)).held(), "one was overtaken");
        assert!(row(0, false, |came| came.swap(5, 11)).held());
    }
}

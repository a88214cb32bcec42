//! The world moves while packets pass: links, devices, addresses, clocks, disks, and a second owner.

use crate::Size;
use crate::bed::{Bed, Held, connect_knowing, inside, mortal, terminate, wait};
use crate::page::Row;
use crate::place::{
    Mode, bed, counted, egress, in_box, knows_the_other, lapses, pause, probes, running, until_shaped,
};
use crate::probes::{Fate, Load, Seen};
use crate::support::WEIR;
use std::process::{Command, Stdio};
use weir_core::units::{Duration, Instant};
use weir_sys::now;

/// 80 % of the link.
const LOAD: Load = Load { rate_pps: 2_000, flows: 2, payload_bytes: 434 };
const LINK_MBPS: u64 = 10;

/// What an event may cost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    Nothing,
    /// What the counters own to have lost, but for so many packets each time that had left the box.
    CountedBut(u64),
    /// The device on the way in is away: nobody at the box sees what is lost.
    Unseen,
}

/// Something that happens, and what ends it: in the box, or at a host.
struct Event {
    what: &'static str,
    cost: Cost,
    begin: &'static str,
    end: &'static str,
    /// The interface that is made again at the end.
    again: Option<&'static str>,
    /// Whether it is the right host that it happens to.
    at_host: bool,
}

const fn event(what: &'static str, cost: Cost, begin: &'static str, end: &'static str) -> Event {
    Event { what, cost, begin, end, again: None, at_host: false }
}

const EVENTS: [Event; 9] = [
    // Whether a link is up, and has a carrier, is asked once in a millisecond.
    event("egress down and up", Cost::CountedBut(8), "ip link set right0 down", "ip link set right0 up"),
    event("entrance down and up", Cost::Unseen, "ip link set left0 down", "ip link set left0 up"),
    Event {
        at_host: true,
        ..event("carrier lost and back", Cost::CountedBut(8), "ip link set eth0 down", "ip link set eth0 up")
    },
    event("MTU 9000 and 1500", Cost::Nothing, "ip link set right0 mtu 9000", "ip link set right0 mtu 1500"),
    event(
        "renamed and back",
        Cost::Nothing,
        "ip link set right0 name other0",
        "ip link set other0 name right0",
    ),
    event(
        "addresses come and go",
        Cost::Nothing,
        "ip addr add 10.9.0.1/24 dev left0; ip addr add 10.9.1.1/24 dev right0; ip route add 10.8.0.0/16 via 10.9.1.2",
        "ip addr flush dev left0; ip addr flush dev right0",
    ),
    event(
        "neighbours come and go",
        Cost::Nothing,
        "ip neigh add 10.9.1.2 lladdr 02:00:00:00:09:09 dev right0; ip neigh replace 10.9.1.2 lladdr 02:00:00:00:09:08 dev right0",
        "ip neigh flush dev right0 nud all",
    ),
    Event {
        again: Some("right0"),
        ..event("egress deleted and made again", Cost::CountedBut(64), "ip link del right0", "")
    },
    Event {
        again: Some("left0"),
        ..event("entrance deleted and made again", Cost::Unseen, "ip link del left0", "")
    },
];

/// One that happened: when, when it was over, and what the counters said meanwhile.
struct Happened {
    event: &'static Event,
    from: Instant,
    over: Instant,
    until: Instant,
    counted: u64,
    lapses: (u64, u64),
}

fn happen(bed: &Bed, event: &'static Event) -> Happened {
    let hosts = &bed.hosts[0];
    let at = if event.at_host { &hosts.right } else { &bed.boxed };
    let (before, early) = (counted(&egress(bed, "right0")), lapses(bed));
    let from = now();
    inside(at, event.begin);
    pause(100);
    if !event.end.is_empty() {
        inside(at, event.end);
    }
    if let Some(name) = event.again {
        let (host, address) = if name == "left0" { (&hosts.left, 1) } else { (&hosts.right, 2) };
        // A packet that waits for the address of layer 2 can be overtaken in the host when it is known.
        let knows = knows_the_other(0, 3 - address);
        connect_knowing(host, &bed.boxed, name, 0, address, &knows);
    }
    let over = now();
    for side in ["left0", "right0"] {
        running(&bed.boxed, side);
    }
    until_shaped(bed, "right0", over);
    pause(200);
    let last = egress(bed, "right0");
    let counted = counted(&last).saturating_sub(before);
    let late = lapses(bed);
    let lapses = (late.0.saturating_sub(early.0), late.1.saturating_sub(early.1));
    Happened { event, from, over, until: now(), counted, lapses }
}

fn moves(size: &Size, mode: Mode) -> Vec<Row> {
    let bed = bed(1, mode);
    let up = bed.up(&[&bed.folder.write("a.altq", mode.conf(LINK_MBPS))]);
    let probes = probes(&bed, 0, true, LOAD);
    until_shaped(&bed, "right0", now());
    let mut all = Vec::new();
    for _ in 0..size.rounds {
        all.extend(EVENTS.iter().map(|event| happen(&bed, event)));
    }
    let seen = probes.end();
    terminate(up).ok();
    EVENTS.iter().map(|event| row(size, mode, event, &seen, &all)).collect()
}

fn row(size: &Size, mode: Mode, event: &'static Event, seen: &Seen, all: &[Happened]) -> Row {
    let mine: Vec<&Happened> = all.iter().filter(|one| one.event.what == event.what).collect();
    let back = "0 twice, 0 overtaken, traffic within 1 s of the end";
    let asked = match event.cost {
        Cost::Nothing => "0 lost, 0 twice, 0 overtaken".into(),
        Cost::CountedBut(some) => format!("each lost packet counted but for {some} in the device, {back}"),
        Cost::Unseen => back.into(),
    };
    let mut row = Row::new(format!("{}: {}, {} times", mode.name(), event.what, mine.len()), asked);
    let times = mine.len() as u64;
    let (mut sum, mut back, mut counted, mut lapses) = (Fate::default(), Duration::ZERO, 0, (0, 0));
    for one in mine {
        let fate = seen.between(one.from, one.until);
        println!("  {mode:?} {}: {fate:?}, counted {}", event.what, one.counted);
        sum.lost += fate.lost;
        sum.twice += fate.twice;
        sum.overtaken += fate.overtaken;
        counted += one.counted;
        lapses = (lapses.0 + one.lapses.0, lapses.1 + one.lapses.1);
        back = back.max(seen.until_one_came(one.over).unwrap_or(Duration::MAX));
    }
    row.found = format!("{} lost, {} twice, {} overtaken", sum.lost, sum.twice, sum.overtaken);
    match event.cost {
        Cost::Nothing => {
            row.expect(u64::from(sum.lost) <= lapses.1 && counted == 0, || format!("{counted} counted"));
        }
        Cost::CountedBut(some) => {
            row.found += &format!(", {counted} counted");
            let beyond = u64::from(sum.lost).checked_sub(counted);
            row.expect(beyond.is_some_and(|beyond| beyond <= some * times + lapses.1), || {
                "not what is counted".into()
            });
        }
        Cost::Unseen => {}
    }
    if event.cost != Cost::Nothing {
        row.found += &format!(", traffic after {:.1} ms", back.as_nanos() as f64 / 1e6);
        row.expect(back <= size.at_most(1_000), || "late".into());
    }
    row.note_lapses(lapses);
    row.expect(sum.twice == 0, || "came twice".into());
    row.expect(sum.overtaken == 0 || lapses.0 > 0, || "overtaken".into());
    row
}

/// A box under load to which something is done that may cost no packet: what was found, and wrong.
fn unharmed(
    what: &str,
    asked: &str,
    start: impl FnOnce(&Bed, &str) -> Held,
    act: impl FnOnce(&Bed, &Held, &mut Row),
) -> Row {
    let bed = bed(1, Mode::Open);
    let conf = bed.folder.write("a.altq", Mode::Open.conf(LINK_MBPS));
    let up = start(&bed, &conf);
    let probes = probes(&bed, 0, true, LOAD);
    until_shaped(&bed, "right0", now());
    let mut row = Row::new(what, format!("{asked}; 0 lost, 0 twice, 0 overtaken"));
    pause(100);
    act(&bed, &up, &mut row);
    pause(100);
    let fate = probes.end().fate();
    let (lapses, stale) = lapses(&bed);
    terminate(up).ok();
    if !row.found.is_empty() {
        row.found += "; ";
    }
    row.found += &format!(
        "{} sent, {} lost, {} twice, {} overtaken",
        fate.sent, fate.lost, fate.twice, fate.overtaken
    );
    row.note_lapses((lapses, stale));
    row.expect(u64::from(fate.lost) <= stale && fate.twice == 0, || "lost or twice".into());
    row.expect(fate.overtaken == 0 || lapses > 0, || "overtaken".into());
    row
}

/// `--state` on a disk of 16 KB that is full, and then is not.
fn full_disk() -> Row {
    let start = |bed: &Bed, conf: &str| {
        std::fs::create_dir(bed.folder.path("disk")).unwrap();
        let script = format!(
            "mount -t tmpfs -o size=16k none {0}; cd {0}; exec {WEIR} up {conf} --socket {1} --state {0}/state.altq 2> {2}",
            bed.folder.path("disk"),
            bed.socket(),
            bed.folder.path("said"),
        );
        let mut command = mortal("nsenter");
        command.args(["-t", &bed.boxed.pid(), "-n", "unshare", "--mount", "bash", "-ec", &script]);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let up = Held(piped.spawn().unwrap());
        wait("the socket", || bed.ask(&["stats"]).code == 0);
        up
    };
    let asked = "applied and said; the file before stays whole; kept again once there is room";
    unharmed("the disk of `--state` is full", asked, start, |bed, up, row| {
        let there = |script: &str| -> String {
            let pid = up.pid();
            let script = format!("cd {}; {script}", bed.folder.path("disk"));
            let run =
                Command::new("nsenter").args(["-t", &pid, "-m", "bash", "-c", &script]).output().unwrap();
            String::from_utf8(run.stdout).unwrap()
        };
        let (first, faster) = (Mode::Open.conf(LINK_MBPS), Mode::Open.conf(LINK_MBPS + 1));
        let new = bed.folder.write("b.altq", &faster);
        there("cat /dev/zero > fill");
        bed.ask(&["apply", &new]).ok();
        let rate = egress(bed, "right0")["port"]["rate_bps"].clone();
        row.expect(rate == (LINK_MBPS + 1) * 1_000_000, || format!("not applied: {rate}"));
        let said = bed.folder.read("said");
        row.expect(said.contains("the last good configuration is not kept"), || format!("not said: {said}"));
        let kept = there("cat state.altq");
        row.expect(kept == first, || format!("the file before is not whole: {kept}"));
        there("rm fill");
        bed.ask(&["apply", &new]).ok();
        let kept = there("cat state.altq");
        row.expect(kept == faster, || format!("not kept: {kept}"));
    })
}

/// A second owner of the same interfaces tries while the first carries traffic.
fn two_owners() -> Row {
    let start = |bed: &Bed, conf: &str| bed.up(&[conf]);
    unharmed("a second owner, 3 times", "refused with the reason", start, |bed, _, row| {
        let conf = bed.folder.path("a.altq");
        for n in 0..3 {
            let socket = bed.folder.path(&format!("{n}.sock"));
            let state = bed.folder.path("other.altq");
            let run = bed.ask_inside(&["up", &conf, "--socket", &socket, "--state", &state]);
            row.expect(run.code == 3 && run.err.contains("another weir"), || format!("{run:?}"));
            let down = bed.ask_inside(&["down", &conf]);
            row.expect(down.code == 1, || format!("{down:?}"));
        }
    })
}

/// The clock of the day that a process sees steps by a day, forth and back, with each look at it.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static int step(void) { static int n; return __atomic_add_fetch(&n, 1, __ATOMIC_RELAXED) % 2 ? 86400 : -86400; }
int clock_gettime(clockid_t clock, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, at);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI) at->tv_sec += step();
    return answer;
}
int gettimeofday(struct timeval *at, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int answer = real(at, zone);
    at->tv_sec += step();
    return answer;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The machine's clock belongs to others, too. So the clock steps for this `weir up` alone.
fn clock_steps() -> Row {
    let start = |bed: &Bed, conf: &str| {
        let (source, shim) = (bed.folder.write("clock.c", CLOCK), bed.folder.path("clock.so"));
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-o", &shim, &source, "-ldl"]).status().unwrap();
        assert!(built.success());
        bed.up_by(&["env", &format!("LD_PRELOAD={shim}"), WEIR], &[conf])
    };
    let asked = "shapes, applies and waits for its confirmation as ever";
    unharmed("the clock of the day steps by 48 h with each look", asked, start, |bed, up, row| {
        // Reversed: a program that looks at the time of day sees it step.
        let date = |_| {
            let preload = format!("LD_PRELOAD={}", bed.folder.path("clock.so"));
            let run = Command::new("env").args([&preload, "date", "+%s"]).output().unwrap();
            String::from_utf8(run.stdout).unwrap().trim().parse::<u64>().unwrap()
        };
        let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let off: Vec<u64> = (0..3).map(date).map(|said| said.abs_diff(real)).collect();
        assert!(off.iter().all(|off| *off > 80_000), "the steps are not seen: {off:?}");
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", up.pid())).unwrap();
        assert!(maps.contains("clock.so"), "weir up runs without the steps");
        let new = bed.folder.write("b.altq", Mode::Open.conf(LINK_MBPS + 1));
        let rate = || egress(bed, "right0")["port"]["rate_bps"].as_u64().unwrap();
        let from = now();
        bed.ask(&["apply", &new, "--confirm", "1s"]).ok();
        row.expect(rate() == (LINK_MBPS + 1) * 1_000_000, || "not applied".into());
        wait("the way back", || rate() == LINK_MBPS * 1_000_000);
        let took = now().since(from);
        row.found = format!("back without a confirmation after {:.1} s of 1 s", took.as_nanos() as f64 / 1e9);
        row.expect(took >= Duration::from_secs(1) && took < Duration::from_secs(3), || {
            "at another time".into()
        });
        let status = in_box(bed, &format!("{WEIR} status --socket {}", bed.socket()));
        row.expect(status.code == 0, || format!("{status:?}"));
    })
}

pub fn rows(size: &Size) -> Vec<Row> {
    let mut rows = moves(size, Mode::Open);
    if size.minutes.is_some() {
        rows.extend([Mode::TwoWorkers, Mode::Closed].into_iter().flat_map(|mode| moves(size, mode)));
    }
    rows.extend([full_disk(), two_owners(), clock_steps()]);
    rows
}

//! What a box under load goes through, whatever its workers and the way of its frames: a kill, a stop, changes. All of
//! it stands within [`timed`](weir_seed::timed).

use crate::bed::{Bed, Held, connect, inside, send, terminate, wait};
use crate::fail_open::{Probes, Seen, pause, sent, signal, under_load};
use serde_json::Value;
use std::time::Duration;
use weir_seed::in_time;

/// Kills it under load: the kernel carries on within 50 ms, and nothing comes twice.
pub fn kill(up: &Held, probes: Probes) -> Seen {
    signal(up, "-KILL");
    pause(400);
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    in_time!(seen.outage <= Duration::from_millis(50), "{seen:?}");
    seen
}

/// Starts and ends it so many times under probes: it carries them, and nothing comes twice. `look` is called while it runs.
pub fn start_and_end(bed: &Bed, conf: &str, times: usize, look: impl Fn()) -> Seen {
    let probes = Probes::start(bed);
    pause(200);
    for _ in 0..times {
        let up = bed.up(&[conf]);
        pause(200);
        in_time!(sent(bed).0 > 0, "weir carries it");
        look();
        terminate(up).ok();
        pause(200);
    }
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    seen
}

/// Stops it under load for 0.7 s: nothing comes twice, no outage is longer than 100 ms, and so many times at least a worker
/// finds that the kernel had carried on. What the probes saw, what was sent once it went on and 0.4 s later, and what is
/// said of the time without it.
pub fn stop_and_go(bed: &Bed, up: &Held, probes: Probes, lapses: u64) -> (Seen, [u64; 2], Value) {
    signal(up, "-STOP");
    pause(700);
    signal(up, "-CONT");
    pause(300);
    let (before, _) = sent(bed);
    pause(400);
    let (after, without) = sent(bed);
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    in_time!(seen.outage <= Duration::from_millis(100), "{seen:?}");
    in_time!(without["lapses"].as_u64().unwrap() >= lapses, "{without}");
    (seen, [before, after], without)
}

/// The threads of the workers.
fn workers(up: &Held) -> Vec<u64> {
    let threads =
        std::fs::read_dir(format!("/proc/{}/task", up.pid())).unwrap().map(|thread| thread.unwrap());
    let of_worker = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "weir-worker")
    };
    let workers = threads.filter(|thread| of_worker(&thread.path()));
    workers.map(|thread| thread.file_name().to_str().unwrap().parse().unwrap()).collect()
}

/// Has a thread stand still for 0.4 s, alone of its process: a tracer takes hold of it and lets go.
fn hang(thread: u64) {
    let ptrace = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
    let script = format!(
        "syscall({ptrace}, 0x4206, {thread}, 0, 0) == 0 && syscall({ptrace}, 0x4207, {thread}, 0, 0) == 0 || die $!; \
         select(undef, undef, undef, 0.4)"
    );
    let done = std::process::Command::new("perl").args(["-e", &script]).output().unwrap();
    assert!(done.status.success(), "perl: {}", String::from_utf8_lossy(&done.stderr));
}

/// One worker after the other of a running process stands still for 0.4 s, while the others go on: the kernel carries what it does
/// not, nothing comes twice, and it goes on.
pub fn hang_each(what: &str, conf: &str) {
    let Some((bed, _, up, probes)) = under_load(what, conf) else { return };
    let all = workers(&up);
    assert!(all.len() > 1, "{all:?}");
    for thread in all {
        let lapses = || sent(&bed).1["lapses"].as_u64().unwrap();
        let before = lapses();
        hang(thread);
        pause(200);
        in_time!(lapses() > before, "it was not missed");
        in_time!(moved(&bed, 200) > 150, "the worker does not go on");
    }
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    in_time!(seen.outage <= Duration::from_millis(110), "{seen:?}");
    terminate(up).ok();
}

/// What weir sends to the right host in so many milliseconds, packets.
pub fn moved(bed: &Bed, milliseconds: u64) -> u64 {
    let before = sent(bed).0;
    pause(milliseconds);
    sent(bed).0 - before
}

/// Has the kernel carry the traffic and weir again, and has an interface fail closed and open.
pub fn bypass_and_fail(bed: &Bed, interface: &str) {
    bed.ask(&["bypass", "on"]).ok();
    pause(100);
    in_time!(moved(bed, 200) < 100, "the kernel carries it");
    assert_eq!(bed.bridge()["without"]["bypassed"], true);
    bed.ask(&["bypass", "off"]).ok();
    for how in ["closed", "open"] {
        bed.ask(&["set", interface, "fail", how]).ok();
        pause(60);
        assert_eq!(bed.bridge()["without"]["open"], how == "open");
    }
}

/// Applies files whose numbers of workers differ: each is another bridge, nothing comes twice, and no outage is longer than
/// 300 ms.
pub fn renumber(bed: &Bed, files: [(&str, usize); 2]) {
    let probes = Probes::start(bed);
    pause(200);
    for (file, workers) in files {
        bed.ask(&["apply", file]).ok();
        assert_eq!(bed.bridge()["workers"].as_array().map_or(1, Vec::len), workers);
        pause(200);
    }
    let seen = probes.end();
    assert_eq!(seen.twice, 0, "{seen:?}");
    in_time!(seen.outage <= Duration::from_millis(300), "{seen:?}");
}

/// Deletes the interface on the right, and makes it again after `meanwhile`: frames come by it, both ways.
pub fn delete_and_make(bed: &Bed, meanwhile: impl FnOnce()) {
    let Bed { boxed, hosts, .. } = bed;
    inside(boxed, "ip link del right0");
    meanwhile();
    connect(&hosts[0].right, boxed, "right0", 0, 2);
    let counts = || {
        let count = |of: &str, name: &str| bed.egress(of)[name].as_u64().unwrap();
        // The egress of left0 is that of what comes by right0.
        [count("left0", "received_packets"), count("right0", "sent_packets")]
    };
    let before = counts();
    wait("frames by the new device, both ways", || {
        send(bed, 0, 5001, 1);
        // Nobody waits there, so the host answers by ICMP.
        let now = counts();
        now[0] > before[0] && now[1] > before[1]
    });
}

//! `weir up` that is killed, stopped, ended and started again under traffic: numbered probes tell
//! what was lost, what came twice, and for how long nothing came.

use crate::bed::{Bed, Held, arrived, inside, possible, send, terminate, wait};
use crate::support::{Run, unfolded};
use crate::trials::{delete_and_make, kill, moved, start_and_end, stop_and_go};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

pub const CONF: &str = "\
interface right0 bandwidth 100M fifoq attach bridge left0
interface left0 bandwidth 100M fifoq
";
/// Probes come at this rate, in packets per second.
const RATE: u32 = 2_000;
const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);

/// Runs `act` on a thread in a network namespace.
pub fn within<T: Send + 'static>(
    namespace: &Held,
    act: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let pid = namespace.0.id();
    std::thread::spawn(move || {
        weir_sys::enter_network_of(pid).unwrap();
        weir_sys::take_priority(weir_sys::Priority::Fifo);
        act()
    })
}

/// Numbered probes from the left host to the right one, until they are counted.
pub struct Probes {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u32>,
    receiver: JoinHandle<Vec<(u32, Instant)>>,
}

/// What became of the probes.
#[derive(Debug)]
pub struct Seen {
    pub sent: u32,
    pub lost: u32,
    pub twice: u32,
    /// The longest time in which each probe that was sent was lost.
    pub outage: Duration,
}

impl Probes {
    pub fn start(bed: &Bed) -> Probes {
        let hosts = &bed.hosts[0];
        let stop = Arc::new(AtomicBool::new(false));
        let (told, ready) = std::sync::mpsc::channel();
        let receiver = within(&hosts.right, move || {
            let socket = UdpSocket::bind("10.0.0.2:5001").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            told.send(()).unwrap();
            let (mut came, mut buffer) = (Vec::new(), [0; 64]);
            // The first probe may wait for the bridge.
            let patience = Instant::now() + Duration::from_secs(5);
            loop {
                match socket.recv(&mut buffer) {
                    // One that showed the way, and was late.
                    Ok(length) if length < 60 => {}
                    Ok(_) => {
                        came.push((u32::from_be_bytes(buffer[..4].try_into().unwrap()), Instant::now()));
                    }
                    Err(_) if came.is_empty() && Instant::now() < patience => {}
                    Err(_) => return came,
                }
            }
        });
        ready.recv().unwrap();
        let (told_too, ready) = std::sync::mpsc::channel();
        let told = stop.clone();
        let sender = within(&hosts.left, move || {
            let socket = UdpSocket::bind("10.0.0.1:5000").unwrap();
            socket.connect("10.0.0.2:5001").unwrap();
            told_too.send(()).unwrap();
            let (start, mut number) = (weir_sys::now(), 0u32);
            while !told.load(Ordering::Relaxed) {
                let mut probe = [0; 60];
                probe[..4].copy_from_slice(&number.to_be_bytes());
                let _ = socket.send(&probe);
                number += 1;
                let due =
                    weir_core::units::Duration::from_nanos(PERIOD.as_nanos() as u64 * u64::from(number));
                weir_sys::sleep_until(start + due);
            }
            number
        });
        ready.recv().unwrap();
        Probes { stop, sender, receiver }
    }

    /// Ends them: none comes for a second.
    pub fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let came = self.receiver.join().unwrap();
        let mut times = vec![0u32; sent as usize];
        let (mut late, mut highest) = (0, 0);
        for (number, _) in &came {
            times[*number as usize] += 1;
            late += u32::from(*number < highest);
            highest = highest.max(*number);
        }
        let lost = times.iter().filter(|&&n| n == 0).count() as u32;
        let twice = times.iter().filter(|&&n| n > 1).count() as u32;
        let longest = times.split(|&n| n > 0).map(<[u32]>::len).max().unwrap_or_default() as u32;
        let seen = Seen { sent, lost, twice, outage: PERIOD * longest };
        // For whoever looks at the figures: `cargo test ... -- --nocapture`.
        println!("{seen:?}, {late} out of order");
        seen
    }
}

pub fn signal(process: &Held, name: &str) {
    assert!(Command::new("kill").args([name, &process.pid()]).status().unwrap().success());
}

pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Packets that the worker has sent to the right host, and what is said of the time without it.
pub fn sent(bed: &Bed) -> (u64, serde_json::Value) {
    let bridge = bed.bridge();
    let right = bridge["egresses"].as_array().unwrap().iter().find(|e| e["interface"] == "right0").unwrap();
    (right["sent_packets"].as_u64().unwrap(), bridge["without"].clone())
}

/// Filters on what enters by the box's interfaces, as `tc` shows them.
pub fn filters(bed: &Bed) -> String {
    let show = "tc qdisc show; for side in left0 right0; do tc filter show dev $side ingress; done";
    let run: Run = Command::new("nsenter")
        .args(["-t", &bed.boxed.pid(), "-n", "bash", "-c", show])
        .output()
        .unwrap()
        .into();
    run.ok().out
}

/// A box that is up on `conf` with probes through it, unless this machine cannot.
pub fn under_load(what: &str, conf: &str) -> Option<(Bed, String, Held, Probes)> {
    if !possible(what) {
        return None;
    }
    let bed = Bed::new(1);
    let conf = bed.folder.write("a.altq", conf);
    let up = bed.up(&[&conf]);
    let without = bed.bridge()["without"].clone();
    if without["open"] != true && !conf.contains("closed") {
        eprintln!("SKIPPED: {what}: {without}");
        return None;
    }
    // Until neighbours are found, and the kernel has seen that the links are up.
    wait("the way", || {
        send(&bed, 0, 5001, 1);
        arrived(&bed.hosts[0].right) > 0
    });
    let probes = Probes::start(&bed);
    pause(400);
    Some((bed, conf, up, probes))
}

// Claim L06.
#[test]
fn after_a_kill_the_kernel_carries_on_and_the_next_run_takes_over() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of a kill", CONF) else { return };
        let seen = kill(&up, probes);
        in_time!(seen.sent > RATE / 2, "{seen:?}");
        // The path is there, and the next run takes it over and leaves one.
        let path = || {
            let all = filters(&bed);
            assert_eq!(all.matches("weir to right0, with its clsact").count(), 1, "{all}");
        };
        path();
        let seen = start_and_end(&bed, &conf, 2, path);
        in_time!(seen.lost == 0, "two starts and two ends: {seen:?}");
    });
}

/// `fail` changes in place, both ways, under traffic: nothing is lost or comes twice, and the bridge, its port
/// and its counters go on.
#[test]
fn fail_open_and_fail_closed_change_in_place() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of `weir set IF fail`", CONF) else { return };
        let mut before = bed.bridge();
        for round in 0..6 {
            let how = ["closed", "open"][round % 2];
            let set = bed.ask(&["set", "right0", "fail", how]).ok();
            assert!(set.err.contains("0 exchanged"), "{set:?}");
            pause(60);
            let now = bed.bridge();
            let open = how == "open";
            assert_eq!(now["without"]["open"], open, "{now}");
            assert_eq!(filters(&bed).contains("weir to "), open, "{}", filters(&bed));
            let seed = |bridge: &serde_json::Value| bridge["egresses"][0]["port"]["seed"].clone();
            assert_eq!(seed(&now), seed(&before));
            for counter in ["uptime_ns", "steps"] {
                assert!(now[counter].as_u64() > before[counter].as_u64(), "{counter}: {before} {now}");
            }
            before = now;
        }
        // The last change holds: without the worker the kernel carries on.
        signal(&up, "-KILL");
        pause(300);
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.outage <= Duration::from_millis(50) && seen.lost <= RATE / 20, "{seen:?}");
    });
}

/// The change itself loses nothing. A device whose filters come or go drops what is sent by it meanwhile, so the worker
/// sends nothing then.
#[test]
fn a_change_of_fail_loses_nothing() {
    timed(|| {
        let Some((bed, _, _up, probes)) = under_load("the test of many `weir set IF fail`", CONF) else {
            return;
        };
        for round in 0..16 {
            bed.ask(&["set", "right0", "fail", ["closed", "open"][round % 2]]).ok();
            pause(10);
        }
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.lost == 0, "16 changes: {seen:?}");
    });
}

/// An apply that takes a bridge away which fails closed: what waits in it leaves first.
#[test]
fn what_waits_in_a_bridge_that_goes_leaves_first() {
    if !possible("the test of a bridge that goes") {
        return;
    }
    let bed = Bed::new(2);
    let line = |n: u32, rate: &str| {
        format!("interface right{n} bandwidth {rate} fifoq attach bridge left{n} fail closed\n")
    };
    let both = bed.folder.write("both.altq", line(0, "100K") + &line(1, "10M"));
    let one = bed.folder.write("one.altq", line(1, "10M"));
    let up = bed.up(&[&both]);
    wait("the way", || {
        send(&bed, 0, 5001, 1);
        arrived(&bed.hosts[0].right) > 0
    });
    pause(500);
    let before = arrived(&bed.hosts[0].right);
    // 40 packets of 68 bytes on the wire last 220 ms at 100 kbit/s.
    send(&bed, 0, 5001, 40);
    bed.ask(&["apply", &one]).ok();
    wait("what waited", || arrived(&bed.hosts[0].right) == before + 40);
    terminate(up).ok();
}

// Claim L07.
#[test]
fn while_a_worker_is_stopped_the_kernel_carries_and_nothing_comes_twice() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of a stop", CONF) else { return };
        let (seen, [before, after], without) = stop_and_go(&bed, &up, probes, 1);
        in_time!(seen.sent > RATE * 3 / 2, "{seen:?}");
        // Less than a second later the worker shapes again, all that comes.
        in_time!(after - before > u64::from(RATE) / 4, "{before} and {after} packets; {without}");
        in_time!(without["stale_packets"].as_u64().unwrap() >= 20, "{without}");
    });
}

// Claim L08.
#[test]
fn an_operator_has_the_kernel_carry_the_traffic_and_weir_again() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of `weir bypass`", CONF) else { return };
        let said = unfolded(&bed.ask(&["bypass", "on"]).ok().err);
        assert!(said.contains("carried by the kernel, without any discipline"), "{said}");
        pause(100);
        in_time!(moved(&bed, 200) < u64::from(RATE) / 20, "the kernel carries it");
        assert!(bed.ask(&["stats"]).ok().out.contains("BYPASSED: the kernel carries the traffic"));
        assert!(bed.ask(&["bypass", "off"]).ok().err.contains("carried by weir"));
        pause(100);
        in_time!(moved(&bed, 200) > u64::from(RATE) / 10, "weir carries it");
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.lost == 0, "{seen:?}");
        terminate(up).ok();
        bed.ask(&["bypass", "on"]).fails(1, &["weir up"]);
        let closed = bed
            .folder
            .write("b.altq", CONF.replace("attach bridge left0", "attach bridge left0 fail closed"));
        let _up = bed.up(&[&closed]);
        bed.ask(&["bypass", "on"]).fails(1, &["fails closed: the configuration says so: not bypassed"]);
    });
}

/// While the worker lives and after it, the box itself can be reached on an interface of the bridge.
// Claim L09.
#[test]
fn an_address_on_a_port_of_the_bridge_stays_reachable() {
    timed(|| {
        let what = "the test of an address of the box";
        let Some((bed, _, up, probes)) = under_load(what, CONF) else { return };
        inside(&bed.boxed, "ip addr add 10.0.0.9/24 dev left0");
        let reachable = |when: &str| {
            let before = arrived(&bed.boxed);
            inside(
                &bed.hosts[0].left,
                "ip neigh flush dev eth0; for n in 1 2 3; do echo > /dev/udp/10.0.0.9/5001; done",
            );
            wait(when, || arrived(&bed.boxed) >= before + 3);
        };
        reachable("the box while the worker lives");
        signal(&up, "-KILL");
        pause(100);
        reachable("the box after the worker");
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.outage <= Duration::from_millis(50), "{seen:?}");
    });
}

/// What hung on a device goes with it. When the interface is back, so is all of it.
// Claim L12.
#[test]
fn an_interface_that_was_made_again_fails_open_too() {
    timed(|| {
        let what = "the test of an interface that is made again";
        let Some((bed, _, up, probes)) = under_load(what, CONF) else { return };
        delete_and_make(&bed, || _ = probes.end());
        let probes = Probes::start(&bed);
        pause(200);
        signal(&up, "-STOP");
        pause(300);
        signal(&up, "-CONT");
        pause(200);
        signal(&up, "-KILL");
        pause(200);
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.outage <= Duration::from_millis(100), "{seen:?}");
        assert_eq!(filters(&bed).matches("weir to ").count(), 2, "{}", filters(&bed));
    });
}

/// The same kill where the file says `fail closed`: nothing passes any more, though an earlier run
/// had left its path.
// Claim L10.
#[test]
fn a_bridge_that_fails_closed_takes_its_traffic_with_it() {
    timed(|| {
        let what = "the test of `fail closed`";
        let Some((bed, conf, up, probes)) = under_load(what, CONF) else { return };
        terminate(up).ok();
        let closed = bed
            .folder
            .write("b.altq", CONF.replace("attach bridge left0", "attach bridge left0 fail closed"));
        let up = bed.up(&[&closed]);
        assert!(!filters(&bed).contains("weir"), "{}", filters(&bed));
        let table = bed.ask(&["stats"]).ok().out;
        assert!(table.contains("fails closed: the configuration says so"), "{table}");
        pause(200);
        let before = arrived(&bed.hosts[0].right);
        signal(&up, "-KILL");
        pause(500);
        let seen = probes.end();
        in_time!(seen.outage >= Duration::from_millis(400), "{seen:?}");
        assert_eq!(arrived(&bed.hosts[0].right), before);
        // `weir down` has nothing to do, and says so.
        let down = bed.ask_inside(&["down", &conf]);
        assert!(down.ok().err.contains("left0: it had no path"));
    });
}

// Claim L11.
#[test]
fn what_is_taken_down_is_as_it_was_and_strangers_filters_stay() {
    if !possible("the test of `weir down`") {
        return;
    }
    let bed = Bed::new(1);
    let untouched = filters(&bed);
    let conf = bed.folder.write("a.altq", CONF);
    let up = bed.up(&[&conf]);
    if !filters(&bed).contains("weir to") {
        eprintln!("SKIPPED: the test of `weir down`: no path here");
        return;
    }
    bed.ask_inside(&["down", &conf]).fails(1, &["another weir manages it (process"]);
    let said = terminate(up).ok();
    assert!(said.err.contains("fails open: redirect in the kernel"), "{}", said.err);
    bed.ask_inside(&["down", "left0"]).ok();
    assert_eq!(filters(&bed), untouched);
    bed.ask_inside(&["down", "left0"]).fails(2, &["interface left0 has no path of Weir's"]);
    // A stranger's filter, on a hook of the stranger's and on one that a run had made.
    let strange = "tc filter add dev SIDE ingress pref 7 protocol ip u32 match u32 0 0 flowid :1";
    inside(&bed.boxed, &format!("tc qdisc add dev left0 clsact; {}", strange.replace("SIDE", "left0")));
    let strangers = filters(&bed);
    let up = bed.up(&[&conf]);
    inside(&bed.boxed, &strange.replace("SIDE", "right0"));
    terminate(up).ok();
    let both = filters(&bed);
    assert!(
        both.contains("weir to left0, with its clsact") && both.contains("weir to right0 direct"),
        "{both}"
    );
    bed.ask_inside(&["down", &conf]).ok();
    let left = filters(&bed);
    assert!(!left.contains("weir") && left.matches("match 00000000").count() == 2, "{left}");
    inside(&bed.boxed, "tc qdisc del dev right0 clsact");
    assert_eq!(filters(&bed), strangers);
    // A run that does not come up leaves nothing new.
    inside(
        &bed.boxed,
        "tc qdisc del dev left0 clsact; for n in 0 1; do ip link add down$n type veth peer name end$n; done",
    );
    let two = bed.folder.write("b.altq", format!("{CONF}interface down0 fifoq attach bridge down1\n"));
    bed.ask_inside(&["up", &two, "--socket", &bed.socket()]).fails(1, &["is down"]);
    inside(&bed.boxed, "ip link del down0; ip link del down1");
    assert_eq!(filters(&bed), untouched);
}

//! A new process takes over from a running one, under load: nothing is lost, twice, or out of order.

use crate::bed::{Bed, Held, arrived, ended, inside, possible, send, terminate, wait};
use crate::fail_open::{Probes, pause, signal, within};
use serde_json::Value;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::Random;
use weir_seed::{in_time, timed};

/// Flows of the load, each of which has a class of its own.
const FLOWS: u16 = 4;
/// Packets of the load come 20 at once, so that some wait nearly always.
const BURST: u32 = 20;
/// 10,000 packets a second, of 266 bytes on the wire each: 21.3 Mbit/s.
const PERIOD: Duration = Duration::from_micros(100);

/// Four classes behind a link that the load fills to nine tenths.
fn file(discipline: &str) -> String {
    part(discipline, 0, "bridge left0", 24)
}

/// The same behind an interface of so many Mbit/s, by a way in.
fn part(discipline: &str, number: usize, attach: &str, rate: u32) -> String {
    let right = format!("right{number}");
    let mut text = format!("interface {right} bandwidth {rate}M {discipline} attach {attach}\n");
    if discipline == "cbq" {
        text += &format!("class cbq {right} all NULL pbandwidth 100\n");
    }
    for (n, name) in ["a", "b", "c", "d"].iter().enumerate() {
        let default = if n == 0 { " default" } else { "" };
        text += &match discipline {
            "cbq" => format!("class cbq {right} {name} all borrow pbandwidth 20{default} qlimit 2000\n"),
            _ => format!("class priq {right} {name} NULL priority {n}{default} qlimit 2000\n"),
        };
        text += &format!("filter {right} {name} 0 {} 0 0 17\n", 5001 + n);
    }
    text
}

/// Numbered packets of four flows from a left host to the right one, until they are counted.
struct Load {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u32>,
    receiver: JoinHandle<(u32, u32, u32)>,
}

/// What became of them.
#[derive(Debug)]
struct Counted {
    sent: u32,
    came: u32,
    twice: u32,
    overtaken: u32,
}

impl Load {
    fn start(bed: &Bed) -> Load {
        Load::through(bed, 0, PERIOD)
    }

    /// Through that bridge, a packet per period.
    fn through(bed: &Bed, bridge: usize, period: Duration) -> Load {
        let hosts = &bed.hosts[bridge];
        let [near, far] = [1, 2].map(|host| format!("10.{bridge}.0.{host}"));
        let there = far.clone();
        let (told, ready) = std::sync::mpsc::channel();
        let receiver = within(&hosts.right, move || {
            let socket = |n| {
                let socket = UdpSocket::bind((&*there, 5001 + n)).unwrap();
                weir_sys::socket::set_receive_buffer(socket.as_fd(), 8 << 20).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let sockets: Vec<UdpSocket> = (0..FLOWS).map(socket).collect();
            told.send(()).unwrap();
            let mut seen = vec![HashSet::new(); sockets.len()];
            let mut last = vec![None; sockets.len()];
            let (mut came, mut twice, mut overtaken, mut since) = (0, 0, 0, Instant::now());
            while since.elapsed() < Duration::from_millis(if came == 0 { 10_000 } else { 1_500 }) {
                let mut bytes = [0; 400];
                for (flow, socket) in sockets.iter().enumerate() {
                    while socket.recv(&mut bytes).is_ok() {
                        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                        came += 1;
                        twice += u32::from(!seen[flow].insert(number));
                        overtaken += u32::from(last[flow].is_some_and(|last| last > number));
                        (last[flow], since) = (Some(number), Instant::now());
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            (came, twice, overtaken)
        });
        ready.recv().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let sender = within(&hosts.left, move || {
            let socket = UdpSocket::bind((&*near, 0)).unwrap();
            let far: std::net::IpAddr = far.parse().unwrap();
            let (start, mut sent) = (weir_sys::now(), 0u32);
            // Each burst has as many packets of each flow.
            while !told.load(Ordering::Relaxed) {
                for _ in 0..BURST {
                    let mut bytes = [0; 200];
                    bytes[..4].copy_from_slice(&sent.to_be_bytes());
                    let flow = (sent % u32::from(FLOWS)) as u16;
                    socket.send_to(&bytes, (far, 5001 + flow)).unwrap();
                    sent += 1;
                }
                let due = period.as_nanos() as u64 * u64::from(sent);
                weir_sys::sleep_until(start + weir_core::units::Duration::from_nanos(due));
            }
            sent
        });
        Load { stop, sender, receiver }
    }

    fn end(self) -> Counted {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let (came, twice, overtaken) = self.receiver.join().unwrap();
        let counted = Counted { sent, came, twice, overtaken };
        println!("{counted:?}");
        counted
    }
}

/// A box with a way through it; none where this machine cannot.
fn bed(what: &str) -> Option<Bed> {
    possible(what).then(|| Bed::new(1))
}

/// The same with a box that routes, and whose packet filter hands packets over.
fn routing(what: &str) -> Option<Bed> {
    routing_beside(what, 0)
}

/// The same with so many ways more, which are for bridges.
fn routing_beside(what: &str, more: usize) -> Option<Bed> {
    if Command::new("iptables").arg("-V").output().is_err() {
        eprintln!("SKIPPED: {what} needs iptables");
        return None;
    }
    let bed = possible(what).then(|| Bed::new(1 + more))?;
    bed.route();
    Some(bed)
}

/// Until neighbours are found, and the kernel has seen that the links are up.
fn way(bed: &Bed) {
    for (n, hosts) in bed.hosts.iter().enumerate() {
        wait("the way", || {
            send(bed, n, 5999, 1);
            arrived(&hosts.right) > 0
        });
    }
}

/// In the order of the hosts behind them.
fn bridges(bed: &Bed) -> Vec<Value> {
    let mut all = bed.ask(&["stats", "-j"]).ok().json()["bridges"].as_array().unwrap().clone();
    all.sort_by_key(|bridge| right(bridge)["interface"].to_string());
    all
}

fn bridge(bed: &Bed) -> Value {
    bridges(bed).swap_remove(0)
}

fn right(bridge: &Value) -> &Value {
    let mut egresses = bridge["egresses"].as_array().unwrap().iter();
    egresses.find(|egress| egress["interface"].as_str().unwrap().starts_with("right")).unwrap()
}

fn port(bridge: &Value) -> Value {
    right(bridge)["port"].clone()
}

/// The sum of a count over the classes that only the load leads to: all but the default one.
fn sum(port: &Value, count: &str) -> u64 {
    let classes = port["classes"].as_array().unwrap().iter();
    classes
        .filter(|class| ["b", "c", "d"].iter().any(|name| class["name"] == *name))
        .filter_map(|class| class[count].as_u64())
        .sum()
}

/// Starts a `weir up` that takes over.
fn takes_over(bed: &Bed, conf: &str) -> Held {
    bed.begin(&[conf, "--takeover"])
}

/// A box is taken over again and again under load, each time with the next file, which asks for so many workers. Through
/// each way goes the same part of the load, and of its rate.
fn taken_over_under_load(bed: &Bed, files: &[(String, usize)]) -> Held {
    // Nobody serves yet: it starts as usual.
    let mut up = bed.up(&[&files[0].0, "--takeover"]);
    way(bed);
    let ways = bed.hosts.len() as u32;
    let first = bridges(bed);
    assert_eq!(first.len(), bed.hosts.len());
    let loads: Vec<_> = (0..bed.hosts.len()).map(|n| Load::through(bed, n, PERIOD * ways)).collect();
    let uptime = |bridge: &Value| bridge["uptime_ns"].as_u64().unwrap();
    let mut ages: Vec<u64> = first.iter().map(uptime).collect();
    let mut waited = vec![0; bed.hosts.len()];
    for (file, workers) in files {
        pause(100);
        let before = bridges(bed);
        let mut next = takes_over(bed, file);
        let pid = next.pid();
        wait("the end of one of them", || {
            up.0.try_wait().unwrap().is_some() || next.0.try_wait().unwrap().is_some()
        });
        if up.0.try_wait().unwrap().is_none() {
            let refused = ended(next);
            in_time!(!refused.err.contains("took longer"), "{refused:?}");
            panic!("not taken over: {refused:?}");
        }
        let last = ended(std::mem::replace(&mut up, next)).ok();
        println!("{}", last.err.lines().last().unwrap_or_default());
        assert!(last.err.contains(&format!("process {pid} has taken over")), "{last:?}");
        in_time!(!last.err.contains("nobody serves"), "{last:?}");
        for (n, (now, before)) in bridges(bed).iter().zip(&before).enumerate() {
            assert_eq!(now["workers"].as_array().map_or(1, Vec::len), *workers, "{now}");
            // What was counted goes on, and so does the seed.
            let old = std::mem::replace(&mut ages[n], uptime(now));
            assert!(ages[n] > old, "{} after {old}", ages[n]);
            let (now, before) = (port(now), port(before));
            let rate = 24_000_000 / u64::from(ways);
            assert_eq!((&now["seed"], now["rate_bps"].as_u64()), (&before["seed"], Some(rate)));
            assert!(sum(&now, "sent_packets") >= sum(&before, "sent_packets"), "{before} {now}");
            waited[n] += before["backlog_packets"].as_u64().unwrap();
        }
    }
    let counted: Vec<_> = loads.into_iter().map(Load::end).collect();
    for ((counted, waited), (now, first)) in counted.iter().zip(waited).zip(bridges(bed).iter().zip(&first)) {
        assert_eq!(counted.twice, 0, "{counted:?}");
        in_time!((counted.came, counted.overtaken) == (counted.sent, 0), "{counted:?}");
        in_time!(counted.sent > 10_000 / ways && waited > 0, "{counted:?}, {waited} waited");
        // All that came was counted once, in one of the processes.
        let count = |name: &str| sum(&port(now), name) - sum(&port(first), name);
        let loaded = u64::from(counted.sent / u32::from(FLOWS)) * 3;
        in_time!((count("offered_packets"), count("sent_packets")) == (loaded, loaded), "{now}");
        // Who polls has lapses beside the load's own threads without a takeover, too: both are of the same priority.
        let polls = now["way"].as_str().unwrap().contains("polling");
        in_time!(polls || now["without"]["lapses"] == 0, "{now}");
    }
    up
}

#[test]
fn twenty_takeovers_under_load_lose_double_and_reorder_nothing() {
    timed(|| {
        let Some(bed) = bed("the test of takeovers") else { return };
        // One worker takes over from two, two from one, and as many as there were.
        let rounds = (0..20).map(|round| {
            let (kind, workers) = (["priq", "cbq"][round / 5 % 2], [1, 2, 2][round % 3]);
            let text = file(kind).replace("left0", &format!("left0 workers {workers}"));
            (bed.folder.write(&format!("{kind}{workers}.altq"), text), workers)
        });
        terminate(taken_over_under_load(&bed, &rounds.collect::<Vec<_>>())).ok();
    });
}

/// What the packet filter hands over: the kernel holds each packet until the verdict of whoever has the queue by then.
// Claim L89.
#[test]
fn ten_takeovers_of_a_queue_lose_double_and_reorder_nothing() {
    timed(|| {
        let Some(bed) = routing("the test of takeovers of a queue") else { return };
        let rounds = (0..10).map(|round| {
            let kind = ["priq", "cbq"][round / 3 % 2];
            let text = file(kind).replace("attach bridge left0", "attach nfqueue");
            (bed.folder.write(&format!("{kind}.altq"), text), 1)
        });
        terminate(taken_over_under_load(&bed, &rounds.collect::<Vec<_>>())).ok();
    });
}

/// Frames that come from the driver: the new process maps the memory and the rings of the sockets that it gets.
// Claim L90.
#[test]
fn ten_takeovers_of_xdp_lose_double_and_reorder_nothing() {
    timed(|| {
        let (native, generic) = ("AF_XDP in the driver, copying", "AF_XDP behind the driver, copying");
        for (way, said) in [
            ("left0 xdp", native.to_string()),
            ("left0 xdp busy-poll", format!("{native}, busy polling")),
            // A bridge of the kernel's has no driver that runs programs.
            ("behind xdp", format!("{native}; {generic}")),
        ] {
            let Some(bed) = bed("the test of takeovers of AF_XDP") else { return };
            let behind =
                "ip link add behind type bridge; ip link set left0 master behind; ip link set behind up";
            inside(&bed.boxed, behind);
            if !way.starts_with("behind") {
                inside(&bed.boxed, "ip link set left0 nomaster");
            }
            let rounds = (0..10).map(|round| {
                let kind = ["priq", "cbq"][round / 3 % 2];
                let text = part(kind, 0, &format!("bridge {way}"), 24);
                (bed.folder.write(&format!("{kind}.altq"), text), 1)
            });
            let up = taken_over_under_load(&bed, &rounds.collect::<Vec<_>>());
            let now = bridge(&bed);
            assert_eq!(now["way"], said.as_str());
            assert!(now["without"]["how"].as_str().unwrap().contains("XDP programs above it"), "{now}");
            terminate(up).ok();
        }
    });
}

/// One box, and everything that can be taken over: an interface of a router, sockets that see a copy, and frames from
/// the driver.
// Claim L91.
#[test]
fn takeovers_of_a_box_of_all_ways_in_lose_double_and_reorder_nothing() {
    timed(|| {
        let attach = ["nfqueue", "bridge left1", "bridge left2 xdp"];
        for ways in 2..=attach.len() {
            let Some(bed) = routing_beside("the test of takeovers of a mixed box", ways - 1) else { return };
            let rounds = (0..10).map(|round| {
                let kind = ["priq", "cbq"][round / 3 % 2];
                let parts = attach[..ways].iter().enumerate();
                let text: String = parts.map(|(n, attach)| part(kind, n, attach, 24 / ways as u32)).collect();
                (bed.folder.write(&format!("{kind}.altq"), text), 1)
            });
            terminate(taken_over_under_load(&bed, &rounds.collect::<Vec<_>>())).ok();
        }
    });
}

/// How many packets the kernel holds for a verdict.
fn held(bed: &Bed) -> u64 {
    let mut command = Command::new("nsenter");
    command.args(["-t", &bed.boxed.pid(), "-n", "cat", "/proc/net/netfilter/nfnetlink_queue"]);
    let queues = String::from_utf8(command.output().unwrap().stdout).unwrap();
    // Queue, process, waiting.
    queues.split_whitespace().nth(2).expect("there is a queue").parse().unwrap()
}

/// A running process whose queue nobody takes in the end goes on, and each packet has its verdict.
#[test]
fn a_takeover_of_a_queue_that_fails_halfway_leaves_the_running_one_untouched() {
    timed(|| {
        let Some(bed) = routing("the test of takeovers of a queue that fail") else { return };
        let text = file("priq").replace("attach bridge left0", "attach nfqueue").replace("24M", "200M");
        let up = bed.up(&[&bed.folder.write("a.altq", text)]);
        way(&bed);
        let load = Load::start(&bed);
        for _ in 0..3 {
            pause(100);
            drop(asks_for(&bed, ["nfqueue", "right0"]));
            let mut has_all = asks_for(&bed, ["nfqueue", "right0"]);
            assert!(read_on(&mut has_all).len() > 1_000);
            drop(has_all);
            let mut hangs = asks_for(&bed, ["nfqueue", "right0"]);
            hangs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut all = Vec::new();
            hangs.read_to_end(&mut all).unwrap();
            assert!(String::from_utf8_lossy(&all).contains("took longer than 30ms"), "{}", all.len());
        }
        let counted = load.end();
        assert_eq!(counted.twice, 0, "{counted:?}");
        in_time!((counted.came, counted.overtaken) == (counted.sent, 0), "{counted:?}");
        assert_eq!(held(&bed), 0);
        terminate(up).ok();
    });
}

/// A process that asks for the box and then does not go on, in the test's own hands.
fn asks(bed: &Bed) -> UnixStream {
    asks_for(bed, ["right0", "left0"])
}

fn asks_for(bed: &Bed, [left, right]: [&str; 2]) -> UnixStream {
    let mut stream = UnixStream::connect(bed.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!(r#"{{"ask":"takeover","protocol":6,"bridges":[["{left}","{right}",false]]}}"#);
    stream.write_all(format!("{request}\n").as_bytes()).unwrap();
    stream
}

/// Reads what comes until it pauses, or ends.
fn read_on(stream: &mut UnixStream) -> Vec<u8> {
    let mut all = vec![0];
    stream.read_exact(&mut all).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
    let _ = stream.read_to_end(&mut all);
    all
}

#[test]
fn a_takeover_that_fails_halfway_leaves_the_running_one_untouched() {
    fails_halfway("");
}

#[test]
fn a_takeover_of_xdp_that_fails_halfway_leaves_the_running_one_untouched() {
    fails_halfway(" xdp");
}

fn fails_halfway(way_in: &str) {
    timed(|| {
        let Some(bed) = bed("the test of takeovers that fail") else { return };
        // What comes in the standstills leaves soon: no queue gets full.
        let text = file("priq").replace("24M", "200M").replace("left0", &format!("left0{way_in}"));
        let conf = bed.folder.write("a.altq", text);
        let up = bed.up(&[&conf]);
        way(&bed);
        let pid = up.pid();
        let load = Load::start(&bed);
        for round in 0..3 {
            pause(100);
            // It dies at once, when it has all, and after something that is no answer.
            drop(asks(&bed));
            let mut has_all = asks(&bed);
            assert!(read_on(&mut has_all).len() > 1_000);
            drop(has_all);
            let mut mad = asks(&bed);
            read_on(&mut mad);
            let _ = mad.write_all(b"what?");
            pause(50);
            // It hangs: after a tenth of a second the running one goes on, and says why.
            let mut hangs = asks(&bed);
            let begun = Instant::now();
            hangs.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut all = Vec::new();
            hangs.read_to_end(&mut all).unwrap();
            let told = String::from_utf8_lossy(&all);
            assert!(
                told.contains("took longer than 100ms"),
                "round {round}: {} after {:?}",
                told.len(),
                begun.elapsed()
            );
        }
        // Another protocol, other bridges, and no request at all.
        for (request, why) in [
            (
                r#"{"ask":"takeover","protocol":77,"bridges":[["right0","left0",false]]}"#,
                "by protocol 6, and this one takes over by 77",
            ),
            (
                r#"{"ask":"takeover","protocol":6,"bridges":[["right0","left9",false]]}"#,
                "bridges other interfaces",
            ),
            (
                r#"{"ask":"takeover","protocol":6,"bridges":[["right0","left0",true]]}"#,
                "or they fail otherwise",
            ),
        ] {
            let mut stream = UnixStream::connect(bed.socket()).unwrap();
            stream.write_all(format!("{request}\n").as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(why), "{answer}");
        }
        // It is killed at some instant before it has taken over.
        let mut random = Random::new(weir_seed::seed());
        let mut running = up;
        for _ in 0..6 {
            let next = takes_over(&bed, &conf);
            pause(random.below(40));
            if running.0.try_wait().unwrap().is_some() {
                running = next;
                continue;
            }
            signal(&next, "-KILL");
            drop(next);
            pause(20);
            if running.0.try_wait().unwrap().is_some() {
                // It had all, and died with it: the kernel carries on, and so may packets that waited be lost.
                println!("killed when it had taken over");
                load.end();
                return;
            }
        }
        let counted = load.end();
        assert_eq!(counted.twice, 0, "{counted:?}");
        in_time!((counted.came, counted.overtaken) == (counted.sent, 0), "{counted:?}");
        let now = bridge(&bed);
        in_time!(now["without"]["lapses"] == 0, "the heart has beaten all the time: {now}");
        if running.pid() == pid {
            assert!(terminate(running).ok().err.contains("all goes on here"));
        }
    });
}

#[test]
fn a_file_that_cannot_be_used_is_refused_before_anything_moves() {
    let Some(bed) = bed("the test of bad files for a takeover") else { return };
    let conf = bed.folder.write("a.altq", file("priq"));
    let up = bed.up(&[&conf]);
    let before = port(&bridge(&bed))["seed"].clone();
    let refused = |text: &str, code: u8, words: &[&str]| {
        let path = bed.folder.write("b.altq", text);
        let run = bed.try_up(&[&path, "--takeover"]);
        assert_eq!(run.code, i32::from(code), "{run:?}");
        // Prose is folded.
        let said = run.err.split_whitespace().collect::<Vec<_>>().join(" ");
        words.iter().for_each(|word| assert!(said.contains(word), "{word}: {run:?}"));
    };
    refused(&file("priq").replace("bandwidth", "bandwith"), 2, &["b.altq:1:18"]);
    inside(&bed.boxed, "ip link add p0 type veth peer name p1; ip link set p0 up; ip link set p1 up");
    let more = file("priq") + "interface p0 fifoq attach bridge left9\n";
    refused(
        &more,
        2,
        &["the running weir bridges left0 and right0", "left9 and p0", "`weir apply` this file first"],
    );
    let closed = file("priq").replace("attach bridge left0", "attach bridge left0 fail closed");
    refused(&closed, 2, &["they fail otherwise"]);
    refused(
        &file("priq").replace("left0", "left0 xdp"),
        2,
        &["the running weir has no `xdp` between right0 and left0", "`weir apply` this file first"],
    );
    refused(
        "interface right0 fifoq attach nfqueue\n",
        2,
        &["queues nothing of right0", "`weir apply` this file first"],
    );
    // Something that waits for a decision is not passed on.
    bed.ask(&["apply", &conf, "--confirm", "5m"]).ok();
    refused(&file("priq"), 1, &["`weir confirm` or `weir rollback` first"]);
    bed.ask(&["confirm"]).ok();
    assert_eq!(port(&bridge(&bed))["seed"], before);
    // A file that runs with the same bridges, written the other way round, takes over.
    let other = bed.folder.write("b.altq", "interface left0 bandwidth 5M fifoq attach bridge right0\n");
    let next = takes_over(&bed, &other);
    ended(up).ok();
    let now = bridge(&bed);
    assert_eq!(now["interfaces"], serde_json::json!(["right0", "left0"]));
    assert_eq!(port(&now), Value::Null);
    // What ran before is what `weir rollback` goes back to.
    bed.ask(&["rollback"]).ok();
    assert_eq!(port(&bridge(&bed))["rate_bps"], 24_000_000);
    terminate(next).ok();
}

/// Either process is killed at some instant around a takeover. What waited may be lost; the outage is
/// that of any kill, and nothing comes twice.
#[test]
fn whoever_is_killed_the_outage_is_bounded() {
    killed_around("");
}

#[test]
fn whoever_is_killed_the_outage_of_xdp_is_bounded() {
    killed_around(" xdp");
}

fn killed_around(way_in: &str) {
    timed(|| {
        let Some(bed) = bed("the test of kills around a takeover") else { return };
        let text = crate::fail_open::CONF.replace("bridge left0", &format!("bridge left0{way_in}"));
        let conf = bed.folder.write("a.altq", text);
        let mut random = Random::new(weir_seed::seed());
        let mut up = bed.up(&[&conf]);
        if bridge(&bed)["without"]["open"] != true {
            eprintln!("SKIPPED: no fail open here");
            return;
        }
        way(&bed);
        for round in 0..6 {
            let probes = Probes::start(&bed);
            pause(200);
            let next = takes_over(&bed, &conf);
            pause(random.below(60));
            let (killed, other) = if round % 2 == 0 { (up, next) } else { (next, up) };
            signal(&killed, "-KILL");
            drop(killed);
            pause(400);
            // Whoever lives goes on, or has ended because there was nothing to take over any more.
            let mut other = other;
            if other.0.try_wait().unwrap().is_some() {
                other = bed.up(&[&conf]);
            }
            pause(100);
            let seen = probes.end();
            assert_eq!(seen.twice, 0, "round {round}: {seen:?}");
            in_time!(seen.outage <= Duration::from_millis(100), "round {round}: {seen:?}");
            wait("an answer", || bed.ask(&["stats"]).code == 0);
            up = other;
        }
        terminate(up).ok();
    });
}

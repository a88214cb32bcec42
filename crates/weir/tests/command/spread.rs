//! `weir up` with `workers 3`: the classes of both egresses are divided between three workers.

use crate::bed::{Bed, Held, arrived, possible, send, terminate, wait};
use crate::fail_open::{Probes, pause, sent, under_load, within};
use crate::shape::{fits, of};
use crate::support::{source, weir};
use crate::trials::{
    bypass_and_fail, delete_and_make, hang_each, kill, moved, renumber, start_and_end, stop_and_go,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::units::{Duration as Time, Instant};
use weir_seed::{in_time, timed};
use weir_sys::capture::{Capture, Way};

/// To the right four classes of UDP below three at the root, and TCP in the fourth of those. To the left levels of priority.
const CONF: &str = "\
interface right0 bandwidth 40M hfsc attach bridge left0 workers 3
class hfsc right0 a root pshare 40
class hfsc right0 a1 a pshare 24
class hfsc right0 a2 a pshare 16
class hfsc right0 b root pshare 30
class hfsc right0 c root pshare 10
class hfsc right0 rest root pshare 20 default
filter right0 a1 0 6001 0 0 udp
filter right0 a2 0 6002 0 0 udp
filter right0 b 0 6003 0 0 udp
filter right0 c 0 6004 0 0 udp
interface left0 bandwidth 40M priq
class priq left0 x NULL priority 2
class priq left0 y NULL priority 1
class priq left0 z NULL priority 0 default
filter left0 x 0 0 0 0 icmp
filter left0 y 0 0 0 6005 tcp
";
const RATE: u64 = 40_000_000;
/// The port of each class, and its share in percent.
const SHARES: [(u16, u64); 5] = [(6001, 24), (6002, 16), (6003, 30), (6004, 10), (TCP, 20)];
const TCP: u16 = 6005;
/// Bytes per packet on the wire beyond its length.
const OVERHEAD: u64 = 24;
const FLOWS: usize = 4;
/// Bytes of the payload of a datagram of the load.
const PAYLOAD: usize = 958;

/// One packet that left by right0.
#[derive(Clone, Copy)]
struct Left {
    at: Instant,
    bytes: u64,
    /// Source and destination port.
    flow: (u16, u16),
    /// Of a datagram of the load: the how-manieth of its flow it is.
    number: Option<u32>,
}

/// Hears what comes to the right host until `end`, beginning at `begin`.
fn listen(host: &Held, begin: Instant, end: Instant) -> JoinHandle<Vec<Left>> {
    within(host, move || {
        let mut capture = Capture::open("eth0", Way::In).unwrap();
        let mut heard = Vec::new();
        while weir_sys::now() < end {
            let more = capture.read(&mut |frame| {
                let head = frame.head;
                if frame.at < begin || head.len() < 46 || head[12..14] != [8, 0] {
                    return;
                }
                let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
                let number =
                    (head[23] == 17).then(|| u32::from_be_bytes([head[42], head[43], head[44], head[45]]));
                // An aggregate leaves as its segments.
                let payload = u64::from(frame.len_bytes).saturating_sub(66);
                let segment =
                    if frame.segment_bytes > 0 { u64::from(frame.segment_bytes) } else { payload.max(1) };
                let pieces = payload.div_ceil(segment).max(1);
                let bytes = u64::from(frame.len_bytes) + (pieces - 1) * 66 + pieces * OVERHEAD;
                heard.push(Left { at: frame.at, bytes, flow: (half(34), half(36)), number });
            });
            if !more.unwrap() {
                weir_sys::sleep_until(weir_sys::now() + Time::from_millis(1));
            }
        }
        heard
    })
}

/// Sends numbered datagrams to a port, 30 Mbit/s of them over several flows, until `end`.
fn flood(host: &Held, port: u16, end: Instant) -> JoinHandle<()> {
    within(host, move || {
        let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        let (start, mut number, mut payload) = (weir_sys::now(), 0u32, [0; PAYLOAD]);
        while weir_sys::now() < end {
            payload[..4].copy_from_slice(&number.to_be_bytes());
            sockets.iter().for_each(|socket| _ = socket.send_to(&payload, ("10.0.0.2", port)));
            number += 1;
            let due = u64::from(number) * FLOWS as u64 * 8_192 * 1_000 / 30;
            weir_sys::sleep_until(start + Time::from_nanos(due));
        }
    })
}

/// Several TCP connections of the kernel's that send what they can until `end`.
fn streams(from: &Held, to: &Held, end: Instant) -> Vec<JoinHandle<()>> {
    let (told, ready) = std::sync::mpsc::channel();
    let server = within(to, move || {
        let listener = TcpListener::bind(("10.0.0.2", TCP)).unwrap();
        told.send(()).unwrap();
        let readers: Vec<_> = (0..FLOWS)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                std::thread::spawn(move || {
                    let mut room = [0; 1 << 16];
                    while stream.read(&mut room).is_ok_and(|n| n > 0) {}
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    ready.recv().unwrap();
    let client = || {
        within(from, move || {
            let mut stream = TcpStream::connect(("10.0.0.2", TCP)).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            while weir_sys::now() < end {
                let _ = stream.write(&[7; 1 << 14]);
            }
        })
    };
    let mut all: Vec<_> = (0..FLOWS).map(|_| client()).collect();
    all.push(server);
    all
}

/// The most, over all windows, by which more left than the rate carries, bytes.
fn ahead(left: &[Left], rate_bps: u64) -> f64 {
    let (mut sent, mut least, mut most) = (0.0f64, f64::MAX, 0.0f64);
    for packet in left {
        let flown = packet.at.as_nanos() as f64 * rate_bps as f64 / 8e9;
        least = least.min(sent - flown);
        sent += packet.bytes as f64;
        most = most.max(sent - flown - least);
    }
    most
}

/// Bytes by destination port.
fn by_port(left: &[Left]) -> BTreeMap<u16, u64> {
    let mut bytes = BTreeMap::new();
    left.iter().for_each(|packet| *bytes.entry(packet.flow.1).or_default() += packet.bytes);
    bytes
}

/// Whether the classes of UDP have their shares of what they have together within one percent, and TCP its own of the
/// whole within a tenth.
fn shared(bytes: &BTreeMap<u16, u64>, shares: &[(u16, u64)]) -> bool {
    let of = |port: u16| bytes.get(&port).copied().unwrap_or(0) as f64;
    let udp = || shares.iter().filter(|(port, _)| *port != TCP);
    let (had, due): (f64, u64) =
        (udp().map(|&(port, _)| of(port)).sum(), udp().map(|&(_, share)| share).sum());
    let near = |port, share: u64| {
        let wanted = had * share as f64 / due as f64;
        (of(port) - wanted).abs() < wanted / 100.0
    };
    let tcp = shares.iter().find(|(port, _)| *port == TCP).map_or(0.0, |&(_, share)| share as f64 / 100.0);
    udp().all(|&(port, share)| near(port, share)) && of(TCP) > 0.9 * tcp * (had + of(TCP))
}

/// Datagrams that are not behind all earlier ones of their flow: out of order, or there twice.
fn disordered(left: &[Left]) -> usize {
    let mut last: BTreeMap<(u16, u16), u32> = BTreeMap::new();
    let wrong = |packet: &&Left| {
        let Some(number) = packet.number else { return false };
        last.insert(packet.flow, number).is_some_and(|before| number <= before)
    };
    left.iter().filter(wrong).count()
}

/// Datagrams that have come before.
fn doubled(left: &[Left]) -> usize {
    let mut known = BTreeSet::new();
    left.iter().filter(|p| p.number.is_some_and(|number| !known.insert((p.flow, number)))).count()
}

/// What leaves beyond the rate in any window, as `weir check` says it.
fn bound_bytes(conf: &str) -> f64 {
    let said = weir(&["check", conf]).ok().out;
    let mut words = said.split_whitespace().skip_while(|word| *word != "beyond");
    let mut next = || words.find_map(|word| word.parse::<f64>().ok()).unwrap_or_else(|| panic!("{said}"));
    next() + next()
}

/// Floods and streams at once, of more than the link carries.
// Claim L96.
#[test]
fn three_workers_keep_the_rate_the_shares_and_the_order() {
    if !possible("the test of a port that is spread") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let conf = bed.folder.write("a.altq", CONF);
        let bound = bound_bytes(&conf);
        let up = bed.up(&[&conf]);
        let hosts = &bed.hosts[0];
        wait("the way", || {
            send(&bed, 0, 5001, 1);
            arrived(&hosts.right) > 0
        });
        let begin = weir_sys::now() + Time::from_millis(500);
        let end = begin + Time::from_millis(2_000);
        let ear = listen(&hosts.right, begin, end);
        let mut load = streams(&hosts.left, &hosts.right, end);
        load.extend((6001..=6004).map(|port| flood(&hosts.left, port, end)));
        let left = ear.join().unwrap();
        load.into_iter().for_each(|one| one.join().unwrap());
        let (ahead_bytes, bytes) = (ahead(&left, RATE), by_port(&left));
        let all: u64 = bytes.values().sum();
        println!("{ahead_bytes:.0} bytes ahead of the rate, bound {bound:.0}; {all} bytes in 2 s: {bytes:?}");
        assert!(ahead_bytes <= bound, "{ahead_bytes} bytes ahead, and {bound} are the bound");
        assert_eq!(disordered(&left), 0);
        in_time!(all * 8 > RATE * 2 * 97 / 100, "the link is not full: {all} bytes");
        in_time!(shared(&bytes, &SHARES), "{bytes:?}");
        // Reversed: a link that is a tenth slower, shares of other classes, and two datagrams exchanged.
        assert!(ahead(&left, RATE * 9 / 10) > bound);
        assert!(!shared(&bytes, &[(6001, 16), (6002, 24), (6003, 30), (6004, 10), (TCP, 20)]));
        let mut exchanged = left.clone();
        let last = exchanged.iter().rposition(|packet| packet.flow.1 == 6003).unwrap();
        let flow = exchanged[last].flow;
        let before = exchanged[..last].iter().rposition(|packet| packet.flow == flow).unwrap();
        exchanged.swap(last, before);
        assert!(disordered(&exchanged) > 0);
        // What is said of it.
        let now = bed.bridge();
        let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
        fits(&of(&page, "weir stats -j")["bridges"][0], &now, "").unwrap();
        let workers = now["workers"].as_array().unwrap();
        assert!(workers.len() == 3 && workers.iter().all(|w| w["cpu_ns"].as_u64().unwrap() > 0), "{now}");
        let right = &bed.egress("right0");
        let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
        assert!(count(right, "handed_packets") > 1_000 && right["unhanded_packets"] == 0, "{right}");
        let classes = right["port"]["classes"].as_array().unwrap();
        let names: Vec<&str> = classes.iter().filter_map(|c| c["name"].as_str()).collect();
        for name in ["a1", "a2", "b", "c", "rest"] {
            assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{names:?}");
        }
        let sum = |name: &str| classes.iter().filter_map(|c| c[name].as_u64()).sum::<u64>();
        let (total, protected) = (&right["port"]["total"], &right["port"]["protected"]);
        for name in ["offered_packets", "sent_packets"] {
            assert_eq!(sum(name) + count(protected, name), count(total, name), "{name}: {right}");
        }
        assert!(total["dropped_packets"]["tail"].as_u64().is_some_and(|n| n > 1_000), "{total}");
        assert!(bed.ask(&["stats"]).ok().out.matches(" and ").count() >= 2);
        let status = bed.ask(&["status", "-j"]).json();
        assert!(status["findings"].as_array().unwrap().iter().any(|f| f["class"] == "a2"), "{status}");
        let said = terminate(up).ok().err;
        assert!(said.contains("by AF_PACKET, 3 workers, "), "{said}");
    });
}

#[test]
fn after_a_kill_of_three_workers_the_kernel_carries_on_and_the_next_run_takes_over() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of a kill of three workers", CONF) else {
            return;
        };
        let end = weir_sys::now() + Time::from_millis(600);
        let load: Vec<_> = (6001..=6004).map(|port| flood(&bed.hosts[0].left, port, end)).collect();
        pause(200);
        kill(&up, probes);
        load.into_iter().for_each(|one| one.join().unwrap());
        let seen = start_and_end(&bed, &conf, 1, || ());
        in_time!(seen.lost == 0, "a start and an end: {seen:?}");
    });
}

#[test]
fn while_three_workers_are_stopped_the_kernel_carries_and_nothing_comes_twice() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of a stop of three workers", CONF) else {
            return;
        };
        let (_, [before, after], without) = stop_and_go(&bed, &up, probes, 3);
        in_time!(after - before > 500, "{before} and {after} packets; {without}");
    });
}

/// One of three workers hangs, in a running process: the kernel carries everything.
// Claim L97.
#[test]
fn while_one_of_three_workers_hangs_the_kernel_carries_all() {
    timed(|| hang_each("the test of one hanging worker of three", CONF));
}

/// Runs applies beside floods that fill four classes: nothing comes twice, and of probes, whose class has room, none is lost.
/// What right0 let go meanwhile.
fn beside_floods(bed: &Bed, applies: impl FnOnce()) -> Vec<Left> {
    let hosts = &bed.hosts[0];
    let probes = Probes::start(bed);
    let begin = weir_sys::now() + Time::from_millis(300);
    let end = begin + Time::from_millis(2_000);
    let ear = listen(&hosts.right, begin, end);
    let load: Vec<_> = (6001..=6004).map(|port| flood(&hosts.left, port, end)).collect();
    weir_sys::sleep_until(begin + Time::from_millis(200));
    let port = bed.egress("right0")["port"].clone();
    let class = |name: &str| port["classes"].as_array().unwrap().iter().find(|c| c["name"] == name).unwrap();
    let waits = |name: &&str| class(name)["inside_packets"].as_u64().is_some_and(|count| count > 0);
    in_time!(["a1", "a2", "b", "c"].iter().all(waits), "nothing waits in one of them: {port}");
    let before = bed.bridge()["without"]["lapses"].clone();
    applies();
    in_time!(weir_sys::now() < end, "the applies took longer than the floods");
    let left = ear.join().unwrap();
    load.into_iter().for_each(|one| one.join().unwrap());
    let seen = probes.end();
    let after = bed.bridge()["without"]["lapses"].clone();
    in_time!(before == after, "the kernel carried some of it");
    assert_eq!((seen.twice, doubled(&left)), (0, 0), "{seen:?}");
    in_time!(seen.lost == 0, "{seen:?}");
    left
}

/// The file, with other words in it.
fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(CONF.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// Applies a text, which all workers make a port of their own of.
fn apply(bed: &Bed, text: &str) {
    let applied = bed.ask(&["apply", &bed.folder.write("b.altq", text)]).ok();
    assert!(applied.err.contains("0 of the ports changed in place, 1 exchanged"), "{applied:?}");
}

/// An apply beside floods: where each class stays with its worker, all flows stay in order and the bound of the rate holds
/// over it. Where classes move, no packet comes twice.
// Claim L98.
#[test]
fn applies_beside_floods_double_nothing_and_lend_nothing() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of applies beside floods", CONF) else {
            return;
        };
        probes.end();
        let bound = bound_bytes(&conf);
        // Two classes of one worker exchange their shares, again and again.
        let inner = changed(&[("a1 a pshare 24", "a1 a pshare 16"), ("a2 a pshare 16", "a2 a pshare 24")]);
        let left = beside_floods(&bed, || {
            for text in [&*inner, CONF, &inner, CONF, &inner, CONF] {
                apply(&bed, text);
                pause(100);
            }
        });
        let ahead_bytes = ahead(&left, RATE);
        println!("{ahead_bytes:.0} bytes ahead of the rate over six applies, bound {bound:.0}");
        assert!(ahead_bytes <= bound, "{ahead_bytes} bytes ahead, and {bound} are the bound");
        assert_eq!(disordered(&left), 0);
        // Reversed: a link that is a tenth slower, and a datagram that comes again.
        assert!(ahead(&left, RATE * 9 / 10) > bound);
        let mut again = left.clone();
        again.push(*left.iter().rfind(|packet| packet.number.is_some()).unwrap());
        assert_eq!(doubled(&again), 1);
        // Two classes change their workers, there and back.
        let others =
            changed(&[("b root pshare 30", "b root pshare 10"), ("c root pshare 10", "c root pshare 30")]);
        let left = beside_floods(&bed, || {
            for text in [&*others, CONF, &others, CONF] {
                apply(&bed, text);
                pause(150);
            }
        });
        println!("{} packets of {} came out of order as classes moved", disordered(&left), left.len());
        terminate(up).ok();
    });
}

/// What is asked of a bridge is done by all of its workers, and an apply loses nothing: with the same parts, with leaves in
/// others, and with another number of workers.
// Claim L98.
#[test]
fn bypass_fail_and_apply_are_of_all_workers() {
    timed(|| {
        let Some((bed, conf, up, probes)) = under_load("the test of changes of three workers", CONF) else {
            return;
        };
        bypass_and_fail(&bed, "right0");
        let rate = || bed.egress("right0")["port"]["rate_bps"].as_u64().unwrap();
        apply(&bed, &changed(&[("right0 bandwidth 40M", "right0 bandwidth 50M")]));
        pause(100);
        assert_eq!(rate(), 50_000_000);
        bed.ask(&["rollback"]).ok();
        assert_eq!(rate(), RATE);
        in_time!(moved(&bed, 200) > 200, "weir carries it");
        let seen = probes.end();
        assert_eq!(seen.twice, 0, "{seen:?}");
        in_time!(seen.lost == 0, "{seen:?}");
        let two = bed.folder.write("c.altq", changed(&[("workers 3", "workers 2")]));
        renumber(&bed, [(&two, 2), (&conf, 3)]);
        // Nor does it pass to another process.
        let refused = bed.try_up(&[&conf, "--takeover"]);
        let said = refused.err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(refused.code != 0 && said.contains("has 3 workers"), "{refused:?}");
        in_time!(moved(&bed, 200) > 0 || sent(&bed).0 > 0, "it runs on");
        terminate(up).ok();
    });
}

/// A device that is deleted and made again gets a socket of each worker.
#[test]
fn an_interface_that_is_back_is_of_all_workers() {
    timed(|| {
        let Some((bed, _, up, probes)) = under_load("the test of an interface of three workers", CONF) else {
            return;
        };
        delete_and_make(&bed, || _ = probes.end());
        let probes = Probes::start(&bed);
        pause(300);
        let seen = probes.end();
        assert_eq!((seen.twice, seen.lost), (0, 0), "{seen:?}");
        // Frames of many flows: each socket of the group has some, and none comes twice.
        let (begin, hosts) = (weir_sys::now(), &bed.hosts[0]);
        let end = begin + Time::from_millis(300);
        let ear = listen(&hosts.right, begin, end);
        let load: Vec<_> = (6001..=6004).map(|port| flood(&hosts.left, port, end)).collect();
        let left = ear.join().unwrap();
        load.into_iter().for_each(|one| one.join().unwrap());
        let flows: BTreeSet<_> =
            left.iter().filter(|packet| packet.number.is_some()).map(|p| p.flow).collect();
        in_time!(flows.len() >= 4 * FLOWS, "{flows:?}");
        assert_eq!((doubled(&left), disordered(&left)), (0, 0));
        terminate(up).ok();
    });
}

//! `weir up` with an edge: calls are found, marked, held to contracts and admitted, on real sockets.
//!
//! The calls are RTP that the test sends itself: headers as RFC 3550 says, 50 packets/s of G.711.

use crate::bed::{Bed, Held, arrived, ended, inside, possible, send, terminate, wait};
use crate::fail_open::{pause, within};
use crate::shape::{fits, of};
use crate::support::{WEIR, source};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::units::Duration as Span;
use weir_seed::{in_time, timed};

/// Five calls of 95 kbit/s with what a frame costs on the wire fit into 512 kbit/s, and a sixth does not.
pub const CONF: &str = "\
broker core local 8M
interface left0 bandwidth 100M fifoq
interface right0 bandwidth 10M attach bridge left0 hfsc
class hfsc right0 rt root [ls 0 0 8M] [ul 0 0 1M]
class hfsc right0 be root [ls 0 0 2M] default
filter right0 rt 0 0 0 0 0 dscp EF
recognise left0 rtp 4/2s
sla left0 17 10.0.0.0/25 bw 512K shared 100 policy be
sla left0 18 10.0.0.128/25 bw 256K shared 100 policy be
allocate right0 rt law log gain 300K target 90 step 20K window 800ms 10 congestion 40ms guard 1600ms from 256K to 512K evict largest broker core
";

/// The same without anything that looks at flows.
fn blind() -> String {
    let is_edge =
        |line: &&str| ["recognise", "sla", "allocate", "broker"].iter().any(|word| line.starts_with(word));
    CONF.lines().filter(|line| !is_edge(line)).map(|line| format!("{line}\n")).collect()
}

/// Where a packet says when it was sent.
const SENT: std::ops::Range<usize> = 24..32;

/// A packet of a call, 172 octets.
fn rtp(ssrc: u32, number: u16, octets: usize) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(number.to_be_bytes());
    bytes.extend((u32::from(number) * 160).to_be_bytes());
    bytes.extend(ssrc.to_be_bytes());
    bytes.resize(octets, 0x55);
    bytes[SENT].copy_from_slice(&weir_sys::now().as_nanos().to_be_bytes());
    bytes
}

/// Sends a datagram every so often until it is told to stop: how many.
fn sender(
    host: &Held,
    from: (&'static str, u16),
    to: u16,
    every: Span,
    stop: &Arc<AtomicBool>,
    payload: impl Fn(u32) -> Vec<u8> + Send + 'static,
) -> JoinHandle<u32> {
    let stop = stop.clone();
    within(host, move || {
        let socket = UdpSocket::bind(from).unwrap();
        let (start, mut sent) = (weir_sys::now(), 0);
        while !stop.load(Ordering::Relaxed) {
            let _ = socket.send_to(&payload(sent), ("10.0.0.2", to));
            sent += 1;
            weir_sys::sleep_until(start + every.saturating_mul(sent.into()));
        }
        sent
    })
}

/// What came of a flow: the number and the TOS byte of each packet, and how long it took.
type Came = Vec<(u16, u8, Duration)>;

/// Receives at a port until it is told to stop. The number stands where RTP has its sequence.
fn receiver(host: &Held, port: u16, stop: &Arc<AtomicBool>) -> JoinHandle<Came> {
    let (stop, (told, ready)) = (stop.clone(), std::sync::mpsc::channel());
    let thread = within(host, move || {
        let socket = UdpSocket::bind(("10.0.0.2", port)).unwrap();
        weir_sys::socket::tell_tos(socket.as_fd()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        told.send(()).unwrap();
        let (mut came, mut room) = (Vec::new(), [0; 2_000]);
        loop {
            match weir_sys::socket::receive_with_tos(&socket, &mut room) {
                Ok((_, _, tos)) => {
                    let sent = room[SENT].try_into().map(u64::from_be_bytes).unwrap();
                    let took = Duration::from_nanos(weir_sys::now().as_nanos().saturating_sub(sent));
                    came.push((u16::from_be_bytes([room[2], room[3]]), tos, took));
                }
                Err(_) if stop.load(Ordering::Relaxed) => return came,
                Err(_) => {}
            }
        }
    });
    ready.recv().unwrap();
    thread
}

/// A call between the hosts, and what counts it.
pub struct Call {
    sent: JoinHandle<u32>,
    came: JoinHandle<Came>,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
}

/// What became of a call.
#[derive(Debug)]
pub struct Ended {
    pub sent: u32,
    came: Came,
}

impl Ended {
    pub fn lost(&self) -> u32 {
        self.sent - self.came.len() as u32
    }
    /// Packets from that number on that came, and of these those that were marked.
    pub fn marked_from(&self, number: u16) -> (u32, u32) {
        let from = self.came.iter().filter(|(n, ..)| *n >= number);
        let marked = from.clone().filter(|(_, tos, _)| tos >> 2 == 46);
        (from.count() as u32, marked.count() as u32)
    }
    /// How long packets from that number on took: so many per cent of them no longer.
    pub fn took(&self, number: u16, percent: usize) -> Duration {
        let from = self.came.iter().filter(|(n, ..)| *n >= number);
        let mut all: Vec<Duration> = from.map(|(.., took)| *took).collect();
        all.sort();
        all[(all.len() - 1) * percent / 100]
    }
}

impl Call {
    /// Of that number, 50 packets/s from a source address.
    pub fn start(bed: &Bed, number: u16, from: &'static str) -> Call {
        Call::of(bed, number, from, Span::from_millis(20), 172)
    }
    fn of(bed: &Bed, number: u16, from: &'static str, every: Span, octets: usize) -> Call {
        let (stop, done) = (Arc::default(), Arc::default());
        let came = receiver(&bed.hosts[0].right, 6_000 + number, &done);
        let packet = move |n: u32| rtp(0x4ee7_0000 + u32::from(number), n as u16, octets);
        let sent = sender(&bed.hosts[0].left, (from, 4_000 + number), 6_000 + number, every, &stop, packet);
        Call { sent, came, stop, done }
    }
    pub fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sent.join().unwrap();
        pause(300);
        self.done.store(true, Ordering::Relaxed);
        Ended { sent, came: self.came.join().unwrap() }
    }
}

/// What a packet of best effort takes on the link of 10 Mbit/s.
const FLOOD_TIME: Duration = Duration::from_micros(820);

/// 16 Mbit/s of best effort on the wire.
pub fn flood(bed: &Bed, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    sender(&bed.hosts[0].left, ("10.0.0.1", 3_000), 3_001, Span::from_micros(512), stop, |_| vec![0; 958])
}

pub fn egress(bed: &Bed) -> Value {
    let stats = bed.ask(&["stats", "-j"]).ok().json();
    let all = stats["bridges"][0]["egresses"].as_array().unwrap().clone();
    all.into_iter().find(|egress| egress["interface"] == "right0").unwrap()
}

pub fn class(bed: &Bed) -> Value {
    egress(bed)["edge"]["classes"][0].clone()
}

pub fn documented(heading: &str, value: &Value) {
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, heading), value, "").unwrap();
}

/// A second address for another contract, and neighbours that know each other.
pub fn ready(bed: &Bed) {
    inside(&bed.hosts[0].left, "ip addr add 10.0.0.200/24 dev eth0");
    wait("the way", || {
        send(bed, 0, 5_001, 1);
        arrived(&bed.hosts[0].right) > 0
    });
}

/// A call beside 16 Mbit/s on a link of 10: it loses a third and more, until flows are recognised. From then on
/// it loses nothing, and is marked from its fourth packet on.
// Claim L75.
#[test]
fn a_call_is_found_and_kept_clean_beside_a_flood() {
    if !possible("the test of recognition on a live link") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let (without, with) = (bed.folder.write("a.altq", blind()), bed.folder.write("b.altq", CONF));
        let up = bed.up(&[&without]);
        ready(&bed);
        // What hosts and wires take by themselves.
        let call = Call::start(&bed, 3, "10.0.0.1");
        pause(2_000);
        let alone = call.end();
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        pause(1_000);
        let call = Call::start(&bed, 1, "10.0.0.1");
        pause(3_000);
        let before = call.end();
        in_time!(10 * before.lost() >= 3 * before.sent, "{} of {} lost", before.lost(), before.sent);
        assert_eq!(before.marked_from(0).1, 0, "nobody marks");

        bed.ask(&["apply", &with]).ok();
        pause(500);
        let call = Call::start(&bed, 2, "10.0.0.1");
        pause(4_000);
        let after = call.end();
        let (came, marked) = after.marked_from(3);
        println!(
            "{} of {} lost before, {} of {} after",
            before.lost(),
            before.sent,
            after.lost(),
            after.sent
        );
        in_time!(came == after.sent - 3, "{came} of {} from the fourth on", after.sent - 3);
        let took = |call: &Ended| [50, 99].map(|percent| call.took(3, percent));
        let [alone, before, after_took] = [&alone, &before, &after].map(took);
        println!("p50 and p99: {alone:?} alone, {before:?} before, {after_took:?} after");
        // It waits for two packets of best effort at most, and for what the machine does.
        let most = alone[1] + 2 * FLOOD_TIME + Duration::from_millis(1);
        in_time!(
            after_took[1] <= most && before[0] > most,
            "{after_took:?} after {before:?}, at most {most:?}"
        );
        assert_eq!(came, marked, "each is marked from the fourth on");
        assert!(
            after.came.iter().filter(|(number, ..)| *number < 3).all(|(_, tos, _)| tos >> 2 == 0),
            "{after:?}"
        );
        let edge = egress(&bed)["edge"].clone();
        assert_eq!(edge["recognition"]["found"]["rtp"], 1, "{edge}");
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        documented("weir stats -j", &bed.ask(&["stats", "-j"]).ok().json());
        let text = bed.ask(&["stats"]).ok().out;
        assert!(text.contains("found rtp 1") && text.contains("broker core: "), "{text}");
        terminate(up).ok();
    });
}

/// A bulk flow with headers of RTP is bounded by its contract, and harms nobody but itself. An apply while calls run
/// loses nothing of them. `recognise off` and `on` neither.
// Claim L76.
#[test]
fn a_liar_harms_itself_and_changes_lose_nothing() {
    if !possible("the test of a liar on a live link") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
        ready(&bed);
        let stop = Arc::new(AtomicBool::new(false));
        let flood = flood(&bed, &stop);
        let calls: Vec<Call> = (1..=2).map(|number| Call::start(&bed, number, "10.0.0.1")).collect();
        pause(1_000);
        // 4 Mbit/s, where its contract has 256 kbit/s.
        let liar = Call::of(&bed, 9, "10.0.0.200", Span::from_millis(2), 1_000);
        pause(3_000);
        let other = CONF.replace("bw 256K", "bw 200K").replace("[ls 0 0 2M]", "[ls 0 0 1M]");
        let applied = bed.ask(&["apply", &bed.folder.write("b.altq", other)]).ok();
        assert!(
            applied.err.contains("3 differences, 1 of the ports changed in place, 0 exchanged"),
            "{applied:?}"
        );
        pause(1_500);
        let liar = liar.end();
        let all: Vec<Ended> = calls.into_iter().map(Call::end).collect();
        for call in &all {
            let (came, marked) = call.marked_from(3);
            in_time!(came == call.sent - 3, "{came} of {}", call.sent - 3);
            assert_eq!(came, marked);
        }
        let (_, marked) = liar.marked_from(0);
        // 256 kbit/s for its time, and what the buckets hold.
        let bound = 256_000 * u64::from(liar.sent) * 2 / 1_000 / 8 + 2 * 32_000;
        assert!(u64::from(marked) * 1_042 <= bound, "{marked} marked, {bound} bytes");
        in_time!(
            10 * liar.lost() >= liar.sent,
            "it loses as best effort does: {} of {}",
            liar.lost(),
            liar.sent
        );
        let contracts = egress(&bed)["edge"]["contracts"].clone();
        assert!(contracts[1]["best_effort_bytes"].as_u64().unwrap() > 0, "{contracts}");

        // Off: nothing is marked, and nothing is lost by the change but what best effort loses.
        stop.store(true, Ordering::Relaxed);
        flood.join().unwrap();
        let call = Call::start(&bed, 3, "10.0.0.1");
        pause(500);
        documented("weir recognise -j", &bed.ask(&["recognise", "off", "left0", "-j"]).ok().json());
        pause(500);
        bed.ask(&["recognise", "on", "left0"]).ok();
        pause(500);
        let call = call.end();
        in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        let unmarked = call.came.iter().filter(|(number, tos, _)| *number >= 3 && tos >> 2 != 46).count();
        in_time!((15..=40).contains(&unmarked), "{unmarked} while it was off");
        bed.ask(&["recognise", "on", "lfet0"]).fails(2, &["did you mean `left0`?"]);
        terminate(up).ok();
    });
}

/// Recognition is switched 1,000 times under three calls and 8 Mbit/s of others on a link of 10: no packet is lost, none comes twice,
/// and what is marked is what is counted.
// Claim T61.
#[test]
fn a_thousand_switches_of_recognition_lose_nothing() {
    if !possible("the test of recognition that is switched") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
        ready(&bed);
        let (stop, done) = (Arc::default(), Arc::default());
        let bulk = |n: u32| {
            let mut bytes = vec![0; 958];
            bytes[2..4].copy_from_slice(&(n as u16).to_be_bytes());
            bytes
        };
        let came = receiver(&bed.hosts[0].right, 3_001, &done);
        let sent = sender(&bed.hosts[0].left, ("10.0.0.1", 3_000), 3_001, Span::from_millis(1), &stop, bulk);
        let calls: Vec<Call> = (1..=3).map(|number| Call::start(&bed, number, "10.0.0.1")).collect();
        wait("the calls", || class(&bed)["flows"]["now"] == 3);
        let began = std::time::Instant::now();
        for n in 0..1_000 {
            let mut to = UnixStream::connect(bed.socket()).unwrap();
            let request =
                format!("{{\"ask\":\"recognise\",\"interface\":\"left0\",\"on\":{}}}\n", n % 2 == 1);
            to.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            to.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(&format!("\"on\":{}", n % 2 == 1)), "{answer}");
            // The calls send 250 packets meanwhile, so that some come while it is off and some while it is on.
            pause(5);
        }
        println!("1,000 switches in {:?}", began.elapsed());
        wait("the calls again", || class(&bed)["flows"]["now"] == 3);
        pause(500);
        let ended = class(&bed)["flows"]["ended"].as_u64().unwrap();
        let all: Vec<Ended> = calls.into_iter().map(Call::end).collect();
        stop.store(true, Ordering::Relaxed);
        let sent = sent.join().unwrap();
        pause(300);
        done.store(true, Ordering::Relaxed);
        let came = came.join().unwrap();
        let lost: u32 = all.iter().map(Ended::lost).sum::<u32>() + sent - came.len() as u32;
        in_time!(lost <= 1, "{lost} of {sent} and of the calls");
        assert!(
            came.len() as u32 <= sent && came.iter().all(|(_, tos, _)| *tos == 0),
            "nothing is made or marked"
        );
        let (mut marked, mut unmarked) = (0, 0);
        for call in &all {
            let numbers: std::collections::BTreeSet<u16> =
                call.came.iter().map(|(number, ..)| *number).collect();
            assert_eq!(numbers.len(), call.came.len(), "none comes twice");
            let (came, with) = call.marked_from(0);
            (marked, unmarked) = (marked + u64::from(with), unmarked + came - with);
            let (came, with) = call.marked_from(call.sent as u16 - 20);
            in_time!(came == with, "{with} of the last {came} are marked");
        }
        // A call that was admitted when it was switched off ended: seldom all three, because a packet comes in 20 ms.
        in_time!(unmarked > 20 && ended > 20, "{unmarked} packets came without a mark, {ended} flows ended");
        let contract = egress(&bed)["edge"]["contracts"][0].clone();
        assert_eq!(
            contract["in_profile_bytes"].as_u64().unwrap(),
            marked * (172 + 8 + 20 + 14),
            "{contract}"
        );
        terminate(up).ok();
    });
}

/// Five calls are admitted, and the sixth is refused. `weir flows` names it, and says why.
// Claim L77.
#[test]
fn the_sixth_call_is_refused_by_name() {
    if !possible("the test of admission on a live link") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let up = bed.up(&[&bed.folder.write("a.altq", CONF)]);
        ready(&bed);
        let mut calls = Vec::new();
        for number in 1..=6 {
            calls.push(Call::start(&bed, number, "10.0.0.1"));
            pause(1_700);
        }
        let flows = bed.ask(&["flows", "-j"]).ok().json();
        documented("weir flows -j", &flows);
        let all = flows["flows"].as_array().unwrap();
        let in_state = |state: &str| all.iter().filter(|flow| flow["state"] == state).count();
        in_time!(in_state("admitted") == 5 && in_state("refused") == 1, "{flows}");
        // A packet more or less stands in a window of 40.
        let at_50 =
            |flow: &&Value| flow["packets_per_second"].as_u64().is_some_and(|n| (48..=52).contains(&n));
        in_time!(all.iter().filter(at_50).count() >= 4, "{flows}");
        let text = bed.ask(&["flows", "--sla", "17"]).ok().out;
        let sixth = "udp 10.0.0.1:4006 > 10.0.0.2:6006";
        let refused = all.iter().find(|flow| flow["state"] == "refused").unwrap();
        in_time!(refused["flow"] == sixth, "{refused}");
        let why = refused["why"].as_str().unwrap();
        assert!(why.starts_with("class at ") && why.ends_with("% of 512 kbit/s, accept 90"), "{why}");
        assert!(text.contains("4006") && text.contains("refused"), "{text}");
        assert_eq!(
            bed.ask(&["flows", "--sla", "18", "-j"]).ok().json()["flows"].as_array().unwrap().len(),
            0
        );
        // The first call goes by order, and the sixth comes in as an emergency.
        let first = "udp 10.0.0.1:4001 > 10.0.0.2:6001";
        bed.ask(&["flow", "pin", first]).ok();
        bed.ask(&["flow", "evict", first]).fails(1, &["it is pinned: `weir flow unpin` it first"]);
        bed.ask(&["flow", "unpin", first]).ok();
        let evicted = bed.ask(&["flow", "evict", first, "-j"]).ok().json();
        documented("weir flow -j", &evicted);
        assert_eq!((&evicted["state"], &evicted["why"]), (&"refused".into(), &"evicted by order".into()));
        let pinned = bed.ask(&["flow", "pin", sixth, "-j"]).ok().json();
        assert_eq!((&pinned["state"], &pinned["pinned"]), (&"admitted".into(), &true.into()), "{pinned}");
        bed.ask(&["flow", "explain", "udp 10.0.0.1:1 > 10.0.0.2:2"]).ok();
        bed.ask(&["flow", "evict", "udp 10.0.0.1:1 > 10.0.0.2:2"])
            .fails(1, &["is not known", "`weir flows`"]);
        // How the class asks is read and set, by the paper's names too.
        let all = bed.ask(&["edge", "get", "right0", "rt", "-j"]).ok().json();
        documented("weir edge -j", &all);
        assert_eq!(
            (&all["values"]["law.gain"], &all["values"]["request.to"]),
            (&"300K".into(), &"512K".into())
        );
        assert_eq!(bed.ask(&["edge", "set", "right0", "rt", "law.gain=250K"]).ok().out, "law.gain=250K\n");
        let rises = bed.ask(&["edge", "get", "right0", "rt", "BB_connections_inc"]).ok().out;
        assert!(rises.starts_with("state.rises=") && !rises.ends_with("=0\n"), "{rises}");
        bed.ask(&["edge", "set", "right0", "rt", "gain=1M"]).fails(2, &["did you mean `law.gain`?"]);
        bed.ask(&["edge", "get", "right0", "tr"]).fails(2, &["did you mean `rt`?"]);
        bed.ask(&["edge", "get", "right0", "be"]).fails(2, &["`allocate right0 be`"]);
        // The class asks its broker, and says so.
        wait("the allocation", || {
            let allocator = class(&bed)["allocator"].clone();
            allocator["allocated_bps"].as_u64().unwrap() >= 450_000
                && allocator["granted"].as_u64().unwrap() > 0
        });
        metrics_say_the_same(&bed);
        let report = bed.ask(&["status", "-j"]).json();
        documented("weir status -j", &report);
        assert_eq!(report["brokers"][0]["held_bps"], class(&bed)["allocator"]["allocated_bps"]);
        let findings = report["findings"].as_array().unwrap();
        let why = findings.iter().find(|f| f["class"] == "rt").unwrap()["why"].as_str().unwrap().to_owned();
        assert!(why.contains(" granted, 5 flows, target 90 %, last request "), "{why}");
        let all: Vec<Ended> = calls.into_iter().map(Call::end).collect();
        // Nothing else is on the link: nobody loses anything.
        in_time!(
            all.iter().all(|call| call.lost() == 0),
            "{:?}",
            all.iter().map(Ended::lost).collect::<Vec<_>>()
        );
        terminate(up).ok();
    });
}

/// What Prometheus reads is what `weir stats -j` says, contracts only if asked for, and over HTTP the same.
fn metrics_say_the_same(bed: &Bed) {
    let page = bed.ask(&["stats", "--prometheus"]).ok().out;
    for line in [
        "weir_state{interface=\"right0\",class=\"rt\",state=\"active\"} 1",
        "weir_edge_class_flows{interface=\"right0\",class=\"rt\"} 5",
        "weir_edge_class_flows_total{interface=\"right0\",class=\"rt\",fate=\"evicted\"} 1",
        "weir_link_up{interface=\"right0\"} 1",
        "weir_class_dropped_bytes_total{interface=\"right0\",class=\"rt\"} 0",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    let value = |page: &str, name: &str| -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).trim().parse().unwrap()
    };
    let sent = "weir_class_sent_packets_total{interface=\"right0\",class=\"rt\"}";
    let classes = egress(bed)["port"]["classes"].as_array().unwrap().clone();
    let class = classes.iter().find(|class| class["name"] == "rt").unwrap();
    let counted = class["sent_packets"].as_u64().unwrap();
    let after = bed.ask(&["stats", "--prometheus", "--slas"]).ok().out;
    assert!((value(&page, sent)..=value(&after, sent)).contains(&counted), "{counted}");
    assert!(
        !page.contains("weir_sla_") && after.contains("weir_sla_flows{interface=\"right0\",sla=\"17\"} 5\n")
    );
    bed.ask(&["stats", "--prometheus", "--listen", "here"]).fails(2, &["write it like `127.0.0.1:9469`"]);
    let served = ["stats", "--prometheus", "--listen", "127.0.0.1:0", "--socket", &bed.socket()];
    let mut serving = Held(Command::new(WEIR).args(served).stderr(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(serving.0.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    let address = said.split("http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && value(&answer, sent) >= counted, "{answer}");
}

/// T61: contracts come, change and go by command while calls run: nobody loses a packet, and what other contracts count
/// goes on exactly. 60 changes; `WEIR_EFFORT=17` makes 1,020 of them.
// Claim L84.
#[test]
fn contracts_come_and_go_under_calls() {
    if !possible("the test of contracts that come and go") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let file = bed.folder.write("a.altq", CONF);
        let up = bed.up(&[&file]);
        ready(&bed);
        let calls: Vec<Call> = (1..=3).map(|number| Call::start(&bed, number, "10.0.0.1")).collect();
        pause(1_000);
        let more = weir_seed::effort(20);
        for n in 0..more {
            let (id, prefix) = ((100 + n).to_string(), format!("10.{}.{}.0/24", 7 + n / 256, n % 256));
            bed.ask(&["sla", "add", "left0", &id, &prefix, "bw", "1M", "policy", "drop"]).ok();
            bed.ask(&["sla", "set", "left0", &id, "bw", "2M"]).ok();
        }
        let listed = bed.ask(&["sla", "list", "-j"]).ok().json();
        documented("weir sla list -j", &listed);
        let listed = listed["contracts"].as_array().unwrap().clone();
        assert_eq!(
            (listed.len() as u64, &listed[2]["bandwidth_bps"]),
            (2 + more, &2_000_000.into()),
            "{listed:?}"
        );
        assert!(bed.ask(&["sla", "list"]).ok().out.contains("10.7.19.0/24"));
        let diff = bed.ask(&["diff", &file]);
        assert!(diff.code == 1 && diff.out.contains("sla left0 119"), "{diff:?}");
        for n in 0..more {
            bed.ask(&["sla", "del", "left0", &(100 + n).to_string()]).ok();
        }
        bed.ask(&["diff", &file]).ok();
        bed.ask(&["sla", "del", "left0", "100"]).fails(2, &["no contract 100", "it has 17, 18"]);
        bed.ask(&["sla", "add", "left0", "17", "10.7.0.0/24", "bw", "1M"])
            .fails(2, &["`weir sla set left0 17`"]);
        // What was changed is kept for the next start, too.
        bed.ask(&["sla", "set", "left0", "18", "bw", "300K"]).ok();
        assert!(bed.folder.read("state.altq").contains("bw 300K"));
        let all: Vec<Ended> = calls.into_iter().map(Call::end).collect();
        for call in &all {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            let (came, marked) = call.marked_from(3);
            assert_eq!(came, marked);
        }
        let contract = egress(&bed)["edge"]["contracts"][0].clone();
        let marked: u64 = all.iter().map(|call| u64::from(call.marked_from(0).1)).sum();
        let bytes = contract["in_profile_bytes"].as_u64().unwrap();
        // Each counts as its frame: 172 octets, and the headers of UDP, IPv4 and Ethernet.
        assert_eq!(bytes, marked * (172 + 8 + 20 + 14), "{contract} of {marked}");
        terminate(up).ok();
    });
}

/// Frames that come from the driver meet the same edge.
// Claim L75.
#[test]
fn frames_from_the_driver_meet_the_edge() {
    if !possible("the test of an edge behind AF_XDP") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let conf = CONF.replace("attach bridge left0", "attach bridge left0 xdp");
        let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
        ready(&bed);
        let call = Call::start(&bed, 1, "10.0.0.1");
        pause(1_000);
        let call = call.end();
        let (came, marked) = call.marked_from(3);
        in_time!(came == call.sent - 3 && came > 20, "{came} of {}", call.sent);
        assert_eq!(came, marked);
        let way = bed.ask(&["stats", "-j"]).ok().json()["bridges"][0]["way"].clone();
        assert!(way.as_str().unwrap().contains("AF_XDP"), "{way}");
        terminate(up).ok();
    });
}

/// Another process takes over: the class keeps what it was granted, and calls lose nothing.
// Claim L78.
#[test]
fn a_takeover_keeps_what_was_granted() {
    if !possible("the test of a takeover with an edge") {
        return;
    }
    timed(|| {
        let bed = Bed::new(1);
        let conf = bed.folder.write("a.altq", CONF);
        let first = bed.up(&[&conf]);
        ready(&bed);
        let calls: Vec<Call> = (1..=4).map(|number| Call::start(&bed, number, "10.0.0.1")).collect();
        let allocated = || class(&bed)["allocator"]["allocated_bps"].as_u64().unwrap();
        wait("the allocation", || allocated() > 350_000);
        let pinned = "udp 10.0.0.1:4002 > 10.0.0.2:6002";
        bed.ask(&["flow", "pin", pinned]).ok();
        bed.ask(&["flow", "evict", "udp 10.0.0.1:4003 > 10.0.0.2:6003"]).ok();
        bed.ask(&["edge", "set", "right0", "rt", "law.gain=250K"]).ok();
        let refused = || {
            let flows = bed.ask(&["flows", "-j"]).ok().json()["flows"].as_array().unwrap().clone();
            flows.iter().filter(|flow| flow["state"] == "refused").count()
        };
        assert_eq!(refused(), 1);
        let (before, flows) = (allocated(), class(&bed)["flows"].clone());
        let second = bed.begin(&[&conf, "--takeover"]);
        ended(first).ok();
        in_time!(allocated() >= before, "{} after {before}", allocated());
        // Each is what it was, and none was found again.
        assert_eq!(class(&bed)["flows"], flows);
        assert_eq!((refused(), flows["now"].as_u64()), (1, Some(3)));
        assert_eq!(egress(&bed)["edge"]["recognition"]["found"]["rtp"], 4);
        bed.ask(&["flow", "evict", pinned]).fails(1, &["pinned"]);
        // What was set holds, until the file says otherwise. So it does when the edge changes.
        let gain = || bed.ask(&["edge", "get", "right0", "rt", "law.gain"]).ok().out;
        assert_eq!(gain(), "law.gain=250K\n");
        bed.folder.write("a.altq", CONF.replace("step 20K", "step 30K"));
        bed.ask(&["apply", &conf]).ok();
        assert_eq!(gain(), "law.gain=250K\n");
        assert_eq!(class(&bed)["flows"], flows);
        bed.folder.write("a.altq", CONF.replace("gain 300K", "gain 200K"));
        bed.ask(&["apply", &conf]).ok();
        assert_eq!(gain(), "law.gain=200K\n");
        bed.ask(&["flow", "evict", pinned]).fails(1, &["pinned"]);
        for call in calls.into_iter().map(Call::end) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        }
        terminate(second).ok();
    });
}

//! Calls through a box with an edge, and what became of them. They are RTP that the test sends itself: headers as RFC 3550
//! says, 50 packets/s of G.711.

use crate::bed::{Bed, Held, arrived, inside, possible, send, wait};
use crate::fail_open::{pause, within};
use crate::shape::{fits, of};
use crate::support::source;
use serde_json::Value;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_core::units::Duration as Span;
use weir_seed::in_time;

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
pub fn sender(
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
pub type Came = Vec<(u16, u8, Duration)>;

/// Receives at a port until it is told to stop. The number stands where RTP has its sequence.
pub fn receiver(host: &Held, port: u16, stop: &Arc<AtomicBool>) -> JoinHandle<Came> {
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
    pub came: Came,
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
    /// Each packet from that number on that came has its mark. What the kernel carries for a worker that got no
    /// processor has none: that is late, and not wrong.
    pub fn keeps_its_mark(&self, number: u16) {
        let (came, marked) = self.marked_from(number);
        in_time!(came == marked, "{} of {came} packets came without their mark", came - marked);
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
    pub fn of(bed: &Bed, number: u16, from: &'static str, every: Span, octets: usize) -> Call {
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

/// 16 Mbit/s of best effort on the wire.
pub fn flood(bed: &Bed, stop: &Arc<AtomicBool>) -> JoinHandle<u32> {
    sender(&bed.hosts[0].left, ("10.0.0.1", 3_000), 3_001, Span::from_micros(512), stop, |_| vec![0; 958])
}

pub fn egress(bed: &Bed) -> Value {
    bed.egress("right0")
}

pub fn class(bed: &Bed) -> Value {
    egress(bed)["edge"]["classes"][0].clone()
}

pub fn documented(heading: &str, value: &Value) {
    let page = std::fs::read_to_string(source("book/src/json.md")).unwrap();
    fits(&of(&page, heading), value, "").unwrap();
}

/// A box that is up with these lines, unless this machine cannot do `what`.
pub fn edge(what: &str, conf: &str) -> Option<(Bed, Held)> {
    if !possible(what) {
        return None;
    }
    let bed = Bed::new(1);
    let up = bed.up(&[&bed.folder.write("a.altq", conf)]);
    ready(&bed);
    Some((bed, up))
}

/// The calls of the first so many numbers, all of one contract.
pub fn calls(bed: &Bed, count: u16) -> Vec<Call> {
    (1..=count).map(|number| Call::start(bed, number, "10.0.0.1")).collect()
}

/// What became of them.
pub fn end_all(calls: Vec<Call>) -> Vec<Ended> {
    calls.into_iter().map(Call::end).collect()
}

/// A second address for another contract, and neighbours that know each other.
pub fn ready(bed: &Bed) {
    inside(&bed.hosts[0].left, "ip addr add 10.0.0.200/24 dev eth0");
    wait("the way", || {
        send(bed, 0, 5_001, 1);
        arrived(&bed.hosts[0].right) > 0
    });
}

//! Two hosts with the kernel's own TCP and a box between them, each in a network namespace of its
//! own that a thread holds and that ends with the thread.
//!
//! ```text
//! a: ha ── left [box: the engine] right ── hb :b
//! a: ha ── xa [relay] xl ── left [box] right ── yr [relay] yb ── hb :b       with VLAN tags
//! ```
//! The relay puts a tag on what goes to the box and takes it off what comes from there.

#![allow(clippy::unwrap_used, dead_code, reason = "a test's helpers fail the test")]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_core::port::{Port, PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_engine::Delay;
use weir_engine::up::{Pair, Side, Up, up};
use weir_sys as sys;
use weir_sys::packet::{BATCH, OFFLOAD_BYTES, PacketSocket};
use weir_sys::socket::{TcpOptions, connect};

/// Address of the host on the right.
pub const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace, and the thread in it.
pub struct Space {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's number, by which `ip` names the namespace.
    id: String,
}

impl Space {
    fn new() -> Space {
        let (jobs, todo) = channel::<Job>();
        let (say, said) = channel();
        let thread = std::thread::spawn(move || {
            sys::enter_new_network().unwrap();
            let link = std::fs::read_link("/proc/thread-self").unwrap();
            say.send(link.file_name().unwrap().to_str().unwrap().to_string()).unwrap();
            todo.into_iter().for_each(|job| job());
        });
        Space { jobs: Some(jobs), thread: Some(thread), id: said.recv().unwrap() }
    }
    /// Does `job` in the namespace and waits for what it answers.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (say, said) = channel();
        self.jobs.as_ref().unwrap().send(Box::new(move || drop(say.send(job())))).unwrap();
        said.recv().expect("what runs in a namespace does not panic")
    }
    /// Does `job` in a thread of its own in the namespace.
    pub fn spawn<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.run(move || std::thread::spawn(job))
    }
    /// Runs commands, one a line.
    pub fn shell(&self, lines: &str) {
        let lines = lines.to_string();
        self.run(move || {
            for line in lines.lines().filter(|line| !line.trim().is_empty()) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let done = Command::new(words[0]).args(&words[1..]).output().unwrap();
                assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
            }
        });
    }
    fn set(&self, path: &'static str, value: &'static str) {
        self.run(move || std::fs::write(format!("/proc/sys/net/{path}"), value).unwrap());
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let _ = self.thread.take().unwrap().join();
    }
}

/// What an interface may leave to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offloads {
    pub tso: bool,
    pub gso: bool,
    pub gro: bool,
    pub tx: bool,
    pub sg: bool,
}

impl Offloads {
    pub const ON: Offloads = Offloads { tso: true, gso: true, gro: true, tx: true, sg: true };
    pub const OFF: Offloads = Offloads { tso: false, gso: false, gro: false, tx: false, sg: false };

    fn set(self, space: &Space, interface: &'static str) {
        space.run(move || {
            use sys::Offload::{Checksum, Gro, Gso, ScatterGather, Tso};
            // Segmentation needs scatter and gather, which needs the checksum: the kernel refuses
            // nothing, and switches off what lacks its ground.
            for (offload, on) in [
                (Checksum, self.tx),
                (ScatterGather, self.sg),
                (Tso, self.tso),
                (Gso, self.gso),
                (Gro, self.gro),
            ] {
                sys::set_offload(interface, offload, on).unwrap();
            }
        });
    }
}

/// The testbed.
pub struct Testbed {
    pub a: Space,
    pub b: Space,
    boxed: Space,
    relay: Option<(Space, Arc<AtomicBool>, JoinHandle<()>)>,
    up: Option<Up>,
    shape: Shape,
}

/// How the testbed is made.
#[derive(Clone, Copy)]
pub struct Shape {
    pub mtu: u32,
    /// Of the interface through which the box receives what is to be managed, and of the host's there.
    pub entrance: Offloads,
    /// Of the managed interface.
    pub exit: Offloads,
    /// Whether the frames at the box carry VLAN tags, and how many.
    pub tags: usize,
}

/// The testbed of `shape`, without an engine; `None` if this process may not have one.
pub fn testbed(shape: Shape) -> Option<Testbed> {
    if !sys::is_root() {
        eprintln!("SKIPPED: needs root for network namespaces");
        return None;
    }
    // Generators, box and receivers measure time: compilers may wait.
    let _ = sys::take_priority(sys::Priority::Nice);
    let (a, boxed, b) = (Space::new(), Space::new(), Space::new());
    for space in [&a, &boxed, &b] {
        space.set("ipv6/conf/all/disable_ipv6", "1");
        space.set("ipv6/conf/default/disable_ipv6", "1");
    }
    for host in [&a, &b] {
        host.set("ipv4/tcp_no_metrics_save", "1");
    }
    // A device lets one tag of 802.1Q pass beyond its MTU, and nothing else.
    let (plain, tagged) = (shape.mtu, shape.mtu + if shape.tags > 1 { 4 * shape.tags as u32 } else { 0 });
    let pair = |mtu: u32, one: &Space, name: &str, other: &Space, peer: &str| {
        one.shell(&format!(
            "ip link add {name} mtu {mtu} type veth peer name {peer} mtu {mtu} netns {}\nip link set {name} up",
            other.id
        ));
        other.shell(&format!("ip link set {peer} up"));
    };
    let relay = (shape.tags > 0).then(|| {
        let relay = Space::new();
        relay.set("ipv6/conf/all/disable_ipv6", "1");
        relay.set("ipv6/conf/default/disable_ipv6", "1");
        pair(plain, &a, "ha", &relay, "xa");
        pair(tagged, &relay, "xl", &boxed, "left");
        pair(tagged, &boxed, "right", &relay, "yr");
        pair(plain, &relay, "yb", &b, "hb");
        let stop = Arc::new(AtomicBool::new(false));
        let (told, tags) = (stop.clone(), shape.tags);
        let thread = relay.spawn(move || relay_frames(&told, tags));
        (relay, stop, thread)
    });
    if relay.is_none() {
        pair(plain, &a, "ha", &boxed, "left");
        pair(plain, &boxed, "right", &b, "hb");
    }
    a.shell("ip addr add 10.0.0.1/24 dev ha");
    b.shell("ip addr add 10.0.0.2/24 dev hb");
    shape.entrance.set(&a, "ha");
    shape.entrance.set(&boxed, "left");
    shape.exit.set(&boxed, "right");
    for (space, name) in [(&a, "ha"), (&boxed, "left"), (&boxed, "right"), (&b, "hb")] {
        space.run(move || while !sys::interface(name).unwrap().running {});
    }
    Some(Testbed { a, b, boxed, relay, up: None, shape })
}

impl Testbed {
    /// Starts the engine: `conf` manages what leaves by `right`; without it the box forwards plainly.
    pub fn start(&mut self, conf: Option<&str>) {
        let registry = Registry::builtin();
        let port = conf.map(|text: &str| {
            let plan = weir_conf::read("altq.conf", text, &registry).into_result().unwrap();
            let view = plan.interface("right").unwrap();
            let link = view.link(self.shape.mtu + 14);
            let built = view.build(&registry, link).unwrap();
            Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link))
        });
        let side = |name: &str, port| Side { interface: name.into(), port, delay: Delay::default() };
        let setup = vec![Pair::new(side("left", None), side("right", port))];
        self.up = Some(self.boxed.run(move || up(setup)).unwrap());
    }
    /// The counters of the way to the right.
    pub fn egress(&self) -> weir_engine::state::Egress {
        self.up.as_ref().unwrap().snapshot().bridges[0].egresses[0].clone()
    }
    /// The most bytes that stand in the queueing discipline of an interface of the box, for `length`.
    pub fn backlog(&self, interface: &'static str, length: Duration) -> JoinHandle<u64> {
        self.boxed.spawn(move || {
            let (start, mut most) = (Instant::now(), 0);
            while start.elapsed() < length {
                let said =
                    Command::new("tc").args(["-s", "qdisc", "show", "dev", interface]).output().unwrap();
                let said = String::from_utf8(said.stdout).unwrap();
                let word = said.split_whitespace().skip_while(|word| *word != "backlog").nth(1).unwrap();
                let digits = word.trim_end_matches('b');
                let bytes = match digits.strip_suffix('K') {
                    Some(thousands) => thousands.parse::<u64>().unwrap() * 1024,
                    None => digits.parse().unwrap(),
                };
                most = most.max(bytes);
                std::thread::sleep(Duration::from_millis(10));
            }
            most
        })
    }
    /// Runs commands in the box, one a line.
    pub fn shell_in_box(&self, lines: &str) {
        self.boxed.shell(lines);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(up) = self.up.take() {
            let _ = up.stop();
        }
        if let Some((_space, stop, thread)) = self.relay.take() {
            stop.store(true, Relaxed);
            let _ = thread.join();
        }
    }
}

/// Carries frames between the hosts and the box. The kernel takes a tag out of what it receives.
fn relay_frames(stop: &AtomicBool, tags: usize) {
    let mut sockets = ["xa", "xl", "yr", "yb"].map(|name| PacketSocket::open(name, 0).unwrap());
    let mut buffers = vec![vec![0u8; 70_000]; BATCH];
    while !stop.load(Relaxed) {
        let mut moved = false;
        // From, to, whether towards the box.
        for (from, to, inwards) in [(0, 1, true), (1, 0, false), (2, 3, false), (3, 2, true)] {
            let mut rooms: Vec<[IoSliceMut<'_>; 2]> =
                buffers.iter_mut().map(|b| [IoSliceMut::new(&mut b[..]), IoSliceMut::new(&mut [])]).collect();
            let Ok(count) = sockets[from].receive(&mut rooms) else { continue };
            moved = true;
            drop(rooms);
            for (i, buffer) in buffers.iter().enumerate().take(count) {
                let mut bytes = buffer[..sockets[from].received(i).len_bytes].to_vec();
                // The outermost tag is out already.
                if inwards {
                    add_tags(&mut bytes, tags)
                } else {
                    remove_tags(&mut bytes, tags - 1)
                }
                while sockets[to].send(&[[IoSlice::new(&bytes), IoSlice::new(&[])]])
                    == Err(sys::packet::SendError::Full)
                {}
            }
        }
        if !moved {
            let all = sockets.each_ref().map(AsFd::as_fd);
            let _ = sys::wait(&all, Some(weir_core::units::Duration::from_millis(20)));
        }
    }
}

/// Moves the start of the checksum in the offload header by `by` bytes, and the header's length.
fn shift(bytes: &mut [u8], by: i16) {
    for (asked, at) in [(bytes[0] & 1 != 0, 6), (bytes[1] != 0, 2)] {
        if asked {
            let value = i16::from_ne_bytes([bytes[at], bytes[at + 1]]) + by;
            bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
    }
}

fn add_tags(bytes: &mut Vec<u8>, tags: usize) {
    for tag in 0..tags {
        let kind = if tag + 1 == tags && tags > 1 { [0x88, 0xa8] } else { [0x81, 0x00] };
        bytes.splice(OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 12, [kind[0], kind[1], 0, 7]);
    }
    shift(bytes, 4 * tags as i16);
}

fn remove_tags(bytes: &mut Vec<u8>, tags: usize) {
    bytes.drain(OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 12 + 4 * tags);
    shift(bytes, -4 * tags as i16);
}

/// What was on the wire to `b` while somebody looked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wire {
    /// The longest frame.
    pub longest: u32,
    /// Bytes of all frames as they stand on a wire, each segment of an aggregate for itself, with
    /// 24 bytes each for preamble, checksum and gap.
    pub bytes: u64,
    pub frames: u64,
}

/// A TCP stream from a to b and pings beside it.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub goodput_mbps: f64,
    pub wire_mbps: f64,
    pub wire: Wire,
    /// Round trips, sorted.
    pub pings_us: Vec<f64>,
}

impl Outcome {
    pub fn ping(&self, quantile: f64) -> f64 {
        self.pings_us[((self.pings_us.len() - 1) as f64 * quantile).round() as usize]
    }
}

/// Runs a stream for `warm_up` and then measures for `length`.
pub fn stream(bed: &Testbed, warm_up: Duration, length: Duration) -> Outcome {
    let received = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let listener = bed.b.run(|| TcpListener::bind((B, 5001)).unwrap());
    let (count, told) = (received.clone(), stop.clone());
    let reader = bed.b.spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut buffer = vec![0; 1 << 18];
        while !told.load(Relaxed) {
            count.fetch_add(stream.read(&mut buffer).unwrap_or(0) as u64, Relaxed);
        }
    });
    let told = stop.clone();
    let writer = bed.a.spawn(move || {
        // The kernel's default may be another one.
        let options = TcpOptions {
            congestion: Some("cubic".into()),
            patience: Some(Duration::from_secs(2)),
            ..TcpOptions::default()
        };
        let mut stream = connect((B, 5001).into(), 0, &options).unwrap();
        let data = vec![0x5a; 1 << 18];
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        while !told.load(Relaxed) {
            let _ = stream.write(&data);
        }
    });
    std::thread::sleep(warm_up);
    let told = stop.clone();
    let pinger = bed.a.spawn(move || {
        let mut pinger = sys::icmp::Pinger::new(B).unwrap();
        let mut times = Vec::new();
        while !told.load(Relaxed) {
            if let Some(time) = pinger.ping(weir_core::units::Duration::from_millis(500)).unwrap() {
                times.push(time.as_nanos() as f64 / 1e3);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        times
    });
    let tags = bed.shape.tags as u64;
    let watcher = bed.b.spawn(move || watch(length, tags));
    let (start, before) = (Instant::now(), received.load(Relaxed));
    std::thread::sleep(length);
    let (bytes, seconds) = (received.load(Relaxed) - before, start.elapsed().as_secs_f64());
    let (wire, watched) = watcher.join().unwrap();
    stop.store(true, Relaxed);
    let mut pings_us = pinger.join().unwrap();
    pings_us.sort_by(f64::total_cmp);
    writer.join().unwrap();
    reader.join().unwrap();
    Outcome {
        goodput_mbps: bytes as f64 * 8.0 / seconds / 1e6,
        wire_mbps: wire.bytes as f64 * 8.0 / watched / 1e6,
        wire,
        pings_us,
    }
}

/// Looks at what reaches `hb` for `length`, and for how many seconds it did. The relay has taken
/// `tags` out of each frame.
fn watch(length: Duration, tags: u64) -> (Wire, f64) {
    let mut socket = PacketSocket::open("hb", 16 << 20).unwrap();
    let (mut wire, start) = (Wire::default(), Instant::now());
    let mut buffers = vec![vec![0u8; 128]; BATCH];
    let mut lost = 0;
    while start.elapsed() < length {
        let mut rooms: Vec<[IoSliceMut<'_>; 2]> =
            buffers.iter_mut().map(|b| [IoSliceMut::new(&mut b[..]), IoSliceMut::new(&mut [])]).collect();
        let Ok(count) = socket.receive(&mut rooms) else {
            let _ = sys::wait(&[socket.as_fd()], Some(weir_core::units::Duration::from_millis(2)));
            continue;
        };
        drop(rooms);
        for (i, buffer) in buffers.iter().enumerate().take(count) {
            // Only the headers were copied: the IP header tells the length.
            let len = 14 + u64::from(u16::from_be_bytes([buffer[26], buffer[27]]));
            let len = len.max((socket.received(i).len_bytes - OFFLOAD_BYTES) as u64);
            let (gso, size) = (buffer[1] & 0x7f, u64::from(u16::from_ne_bytes([buffer[4], buffer[5]])));
            let headers = 14 + 20 + u64::from(buffer[OFFLOAD_BYTES + 46] >> 4) * 4;
            let segments = if gso == 0 { 1 } else { (len - headers).div_ceil(size) };
            wire.bytes += len + (segments - 1) * headers + segments * (24 + 4 * tags);
            wire.frames += segments;
            wire.longest = wire.longest.max(len as u32);
        }
        lost += socket.take_overruns();
    }
    assert_eq!(lost, 0, "the watcher lost frames");
    (wire, start.elapsed().as_secs_f64())
}

//! The workers of a bridge from outside: statistics, hot swap, stop.
//!
//! Requests go through a channel that a worker looks into between two steps, and a bell (a
//! socket pair) that ends its sleep. It never waits for anybody; who asks, waits. Statistics come
//! in slices. What is about one direction goes to the worker that runs it, all else to each.

use crate::bridge::Bridge;
use crate::broker::BrokerState;
use crate::direction::{Change, Changed};
use crate::edge_state::EdgeState;
use crate::fail_open::FailState;
use crate::gather::{Assembly, Part, of_workers};
use crate::line::Line;
use crate::watch::LinkState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use weir_core::port::{Account, Port, PortPlan};
use weir_core::queue::DropReason;
use weir_core::units::{Duration, Instant};
use weir_edge::edge::Edge;
use weir_io::{Io, Socket};

pub use crate::gather::egresses;

mod change;
mod exchange;
mod fail;
mod request;

pub(crate) use exchange::Exchange;
pub(crate) use request::{Frozen, Request};

/// What happened so far, at one moment, on every bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// The bridges, in the order in which they were brought up.
    pub bridges: Vec<BridgeState>,
    /// The brokers that their edges ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerState>,
}

/// What happened so far on one bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BridgeState {
    /// Its interfaces: left, right.
    pub interfaces: [String; 2],
    /// Why a worker of it gave no answer; then nothing below is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<String>,
    /// Nanoseconds since it started.
    pub uptime_ns: u64,
    /// Processor time of its workers' threads, nanoseconds.
    pub cpu_ns: u64,
    /// Of that, about what went into staying awake for a packet due in a moment (see `Pace`).
    #[serde(default)]
    pub spun_ns: u64,
    /// Steps that its workers have made.
    pub steps: u64,
    /// The priority of the first worker's thread: `SCHED_FIFO 10`, `nice -20` or `no priority`, and in
    /// brackets what the system refused.
    #[serde(default)]
    pub priority: String,
    /// Its workers, where there are several: each of two runs the direction of the egress in the same place, each of more
    /// a part of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerState>,
    /// By which way frames come and go: `AF_PACKET`, `NFQUEUE`, or `AF_XDP` with what the drivers
    /// offered.
    #[serde(default)]
    pub way: String,
    /// What becomes of the traffic without the worker.
    #[serde(default)]
    pub without: FailState,
    /// Why the bridge forwards plainly, if the worker had to give up its ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Both directions: the egress on the right, then the one on the left. An interface whose packets the packet
    /// filter hands over has one.
    pub egresses: Vec<Egress>,
}

/// One of several workers of a bridge.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerState {
    /// Processor time of its thread, nanoseconds.
    pub cpu_ns: u64,
    /// Of that, about what went into staying awake for a packet due in a moment.
    pub spun_ns: u64,
    /// Steps that it has made.
    pub steps: u64,
    /// The priority of its thread.
    pub priority: String,
}

/// One direction: an input and the egress that it leads to.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Egress {
    /// The interface that packets leave by.
    pub interface: String,
    /// How that interface is; none where nobody watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkState>,
    /// Packets and bytes received on the other interface.
    pub received_packets: u64,
    /// Bytes received there.
    pub received_bytes: u64,
    /// Packets that the system dropped there because the worker was too slow. Above 0 no figure
    /// of this run can be trusted.
    pub overrun_packets: u64,
    /// Packets dropped there for want of a buffer.
    pub nobuf_packets: u64,
    /// Aggregates of segmentation offload that were taken apart before the queue.
    #[serde(default)]
    pub segmented_packets: u64,
    /// Packets that the worker which received them handed to the one that has their class; 0 unless a bridge has more
    /// than two workers.
    #[serde(default)]
    pub handed_packets: u64,
    /// Packets that were dropped there because that worker was behind and the ring to it full.
    #[serde(default)]
    pub unhanded_packets: u64,
    /// Packets that the system could not hand over there, and times that the link was found down.
    #[serde(default)]
    pub receive_errors: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that the device refused. Their classes count them as dropped, not as sent.
    pub refused_packets: u64,
    /// The same by reason: `toolong`, `devicefull`, `portdown`, `gone`, `refused`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// Bytes that stand in the device now, as the system counts them: whole buffers, up to 1 KB more
    /// a packet. 0 where nothing manages the egress, and where the device does not tell.
    #[serde(default)]
    pub device_queue_bytes: u64,
    /// The most that stood there after a packet was handed over.
    #[serde(default)]
    pub device_queue_most_bytes: u64,
    /// Packets whose ECN or DSCP was changed.
    pub rewritten_packets: u64,
    /// Packets on their way out: in the delay line, or at a full device.
    pub leaving_packets: u64,
    /// The managed port; none where traffic is forwarded plainly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<PortState>,
    /// The edge before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeState>,
}

/// A managed port.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PortState {
    /// Rate of its link, bit/s.
    pub rate_bps: u64,
    /// Longest packet that its configuration reckons with, bytes, layer-2 header included.
    #[serde(default)]
    pub longest_bytes: u32,
    /// Seed of its random stream and of its flow hashes, in hexadecimal (`0x`, 16 digits: more
    /// than a JSON number holds everywhere). `weir replay --seed` takes it. To be kept from
    /// strangers.
    #[serde(default)]
    pub seed: String,
    /// Why it runs as one FIFO, if a discipline broke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Packets waiting.
    pub backlog_packets: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// Packets in the device ring.
    pub ring_packets: u64,
    /// Times that the device ring was refilled.
    pub refills: u64,
    /// Times that the timer woke the discipline.
    pub wake_ups: u64,
    /// Packets that a swap gave to the default class because theirs was gone.
    pub reassigned_packets: u64,
    /// Time in which the worker was later than the token bucket holds, nanoseconds since the port was made.
    /// What could have been sent in it is lost.
    #[serde(default)]
    pub lost_ns: u64,
    /// Control packets that went before all classes; `None` where they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<PacketCounts>,
    /// All classes together.
    pub total: PacketCounts,
    /// The classes in the order of the configuration.
    pub classes: Vec<ClassState>,
    /// The conditioners in front of them, each followed by its meters. They have no account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditioners: Vec<ClassState>,
}

/// A class of a port, a conditioner, or a meter.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ClassState {
    /// Its name.
    pub name: String,
    /// Its account, if it is a place where packets wait.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counts: Option<PacketCounts>,
    /// What the discipline itself keeps, by name; units as in `weir disciplines`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, i64>,
}

/// What came, left and was dropped.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Packets that came.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets still inside.
    pub inside_packets: u64,
    /// Bytes that were dropped.
    pub dropped_bytes: u64,
    /// Packets that were dropped, by reason.
    pub dropped_packets: BTreeMap<String, u64>,
}

/// Counts by reason, without those that are zero.
pub(crate) fn by_reason(counts: &[u64; DropReason::ALL.len()]) -> BTreeMap<String, u64> {
    let named = DropReason::ALL.iter().map(|&reason| (reason.name().to_string(), counts[reason as usize]));
    named.filter(|(_, count)| *count > 0).collect()
}

impl From<&Account> for PacketCounts {
    fn from(account: &Account) -> PacketCounts {
        PacketCounts {
            offered_packets: account.offered_packets,
            offered_bytes: account.offered_bytes,
            sent_packets: account.sent_packets,
            sent_bytes: account.sent_bytes,
            inside_packets: account.inside(),
            dropped_bytes: account.dropped_bytes,
            dropped_packets: by_reason(&account.dropped_packets),
        }
    }
}

impl PacketCounts {
    /// The same as a port counts it. A reason that this version does not know counts as refused.
    pub(crate) fn account(&self) -> Account {
        let mut account = Account {
            offered_packets: self.offered_packets,
            offered_bytes: self.offered_bytes,
            sent_packets: self.sent_packets,
            sent_bytes: self.sent_bytes,
            dropped_bytes: self.dropped_bytes,
            ..Account::default()
        };
        for (name, count) in &self.dropped_packets {
            let known = DropReason::ALL.into_iter().find(|reason| reason.name() == name);
            account.dropped_packets[known.unwrap_or(DropReason::Refused) as usize] += count;
        }
        account
    }
    /// Counts what the other has counted too.
    pub(crate) fn add(&mut self, other: &PacketCounts) {
        self.offered_packets += other.offered_packets;
        self.offered_bytes += other.offered_bytes;
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        self.inside_packets += other.inside_packets;
        self.dropped_bytes += other.dropped_bytes;
        for (reason, count) in &other.dropped_packets {
            *self.dropped_packets.entry(reason.clone()).or_default() += count;
        }
    }
}

/// A port without what it says of its classes; `total` is what no class has.
fn port_head(port: &Port) -> PortState {
    let backlog = port.backlog();
    PortState {
        rate_bps: port.link().rate.as_bps(),
        longest_bytes: port.link().mtu,
        seed: format!("{:#018x}", port.seed()),
        broken: port.is_broken().map(|b| format!("{}: {}", b.discipline, b.what)),
        backlog_packets: backlog.packets,
        backlog_bytes: backlog.bytes,
        ring_packets: u64::from(port.in_ring()),
        refills: port.refills(),
        wake_ups: port.wake_ups(),
        reassigned_packets: port.reassigned(),
        lost_ns: port.lost_time().as_nanos(),
        protected: (!port.protects().is_empty()).then(|| PacketCounts::from(port.protected())),
        total: PacketCounts::from(&port.beside_leaves()),
        classes: Vec::new(),
        conditioners: Vec::new(),
    }
}

/// The directions of a bridge between interfaces of those names (left, right), without what their
/// ports say of their classes.
pub(crate) fn heads<L: Io, R: Io>(bridge: &mut Bridge<L, R>, names: &[String; 2]) -> Vec<Egress> {
    let now = weir_sys::now();
    let stats = bridge.io_stats();
    let directions = bridge.directions_mut().iter_mut();
    directions
        .map(|direction| {
            let index = direction.index();
            let (input, output) = (stats[index], stats[1 - index]);
            Egress {
                interface: names[1 - index].clone(),
                link: None,
                received_packets: input.rx_frames,
                received_bytes: input.rx_bytes,
                overrun_packets: input.rx_overrun,
                nobuf_packets: input.rx_nobuf + direction.unsegmented(),
                segmented_packets: direction.segmented(),
                handed_packets: direction.handed().0,
                unhanded_packets: direction.handed().1,
                receive_errors: input.rx_errors,
                sent_packets: output.tx_frames,
                sent_bytes: output.tx_bytes,
                refused_packets: output.tx_errors,
                refused: by_reason(direction.refused()),
                device_queue_bytes: output.tx_queue_bytes,
                device_queue_most_bytes: output.tx_queue_most_bytes,
                rewritten_packets: direction.rewritten(),
                leaving_packets: direction.leaving() as u64,
                port: direction.port().map(port_head),
                edge: direction.edge_state(now),
            }
        })
        .collect()
}

/// How long an answer, or a part of one, may take before the worker counts as hanging.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
/// Statistics are made at most this often.
const FRESH: Duration = Duration::from_millis(10);

/// The way to the workers of a bridge. Cheap to clone; safe from any thread.
#[derive(Clone)]
pub struct Control {
    workers: Arc<[Line]>,
    last: Arc<Mutex<Option<(Instant, BridgeState)>>>,
    /// How the interfaces are: left, right. The workers do not know.
    links: Arc<Mutex<[LinkState; 2]>>,
}

fn await_answer<T>(answer: &Receiver<T>) -> io::Result<T> {
    await_until(answer, std::time::Instant::now() + PATIENCE)
}

/// The answers of several, who have so long together.
fn await_all<T>(answers: &[Receiver<T>]) -> Vec<io::Result<T>> {
    let until = std::time::Instant::now() + PATIENCE;
    answers.iter().map(|answer| await_until(answer, until)).collect()
}

fn await_until<T>(answer: &Receiver<T>, until: std::time::Instant) -> io::Result<T> {
    answer.recv_timeout(until.saturating_duration_since(std::time::Instant::now())).map_err(|_| {
        io::Error::new(io::ErrorKind::TimedOut, format!("the worker did not answer within {PATIENCE:?}"))
    })
}

/// All parts of what a worker says of itself.
fn assembled(parts: &Receiver<Part>) -> io::Result<BridgeState> {
    let mut assembly = Assembly::default();
    loop {
        match assembly.take(await_answer(parts)?) {
            Ok(None) => {}
            Ok(Some(state)) => return Ok(state),
            Err(why) => return Err(io::Error::other(format!("the statistics failed: {why}"))),
        }
    }
}

impl Control {
    pub(crate) fn of(workers: Vec<Line>) -> Control {
        Control { workers: workers.into(), last: Arc::default(), links: Arc::default() }
    }

    /// Asks each worker the same, and only then waits for the answers.
    fn ask_each<T>(&self, of: impl Fn(Sender<T>) -> Request) -> io::Result<Vec<Receiver<T>>> {
        let ask = |worker: &Line| {
            let (done, answer) = channel();
            worker.ask(of(done)).map(|()| answer)
        };
        self.workers.iter().map(ask).collect()
    }

    /// The worker that runs a direction.
    fn runs(&self, direction: usize) -> Option<&Line> {
        self.workers.iter().find(|worker| worker.directions.contains(&direction))
    }

    /// What was told before is no longer so.
    fn forget(&self) {
        *self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// The statistics of now, or of at most 10 ms ago: many askers cost no more than one.
    pub fn state(&self) -> io::Result<BridgeState> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now = weir_sys::now();
        if let Some((at, state)) = &*last
            && now.since(*at) < FRESH
        {
            return Ok(state.clone());
        }
        let answers = self.ask_each(Request::State)?;
        let states = answers.iter().map(assembled).collect::<io::Result<Vec<_>>>()?;
        let state = self.whole(states);
        *last = Some((now, state.clone()));
        Ok(state)
    }

    /// How the interfaces are: left, right. Their states are empty if nobody watches them.
    pub fn links(&self) -> [LinkState; 2] {
        self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Notes how an interface is (0: left).
    pub(crate) fn tell(&self, side: usize, state: &LinkState) {
        let mut links = self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        links[side].clone_from(state);
    }

    /// What the workers say, and how the interfaces are.
    pub(crate) fn whole(&self, said: Vec<BridgeState>) -> BridgeState {
        let mut state = of_workers(said);
        let watched = self.links().map(|link| Some(link).filter(|link| !link.state.is_empty()));
        // The first direction leaves by the interface on the right.
        for (egress, link) in state.egresses.iter_mut().zip(watched.into_iter().rev()) {
            egress.link = link;
        }
        state
    }

    /// Gives the port of a direction (0: the egress on the right) another configuration, whole;
    /// its queued packets stay. False if that direction has no port.
    pub fn swap(&self, direction: usize, plan: PortPlan) -> io::Result<bool> {
        let changed = self.change(direction, Change::Plan(Box::new(plan)))?;
        Ok(matches!(changed, Changed::Exchanged(_)))
    }

    /// Does something with the edge of a direction (0: the egress on the right); none if it has no edge. It is to be
    /// quick: the worker does nothing else meanwhile.
    ///
    /// # Errors
    /// The worker has ended, or does not answer.
    pub fn with_edge<T: Send + 'static>(
        &self,
        direction: usize,
        act: impl FnOnce(&mut Edge, Instant) -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let Some(worker) = self.runs(direction) else { return Ok(None) };
        let (done, answer) = channel();
        let act = Box::new(move |edge: Option<&mut Edge>, now: Instant| {
            // Who asked may have gone: that is not our concern.
            let _ = done.send(edge.map(|edge| act(edge, now)));
        });
        worker.ask(Request::Edge { direction, act })?;
        let done = await_answer(&answer);
        self.forget();
        done
    }

    /// Goes on over `sockets` on a side (0: left), because its device was made anew: one, or one for each of more than two
    /// workers. Counters and what waits in the ports stay. A worker that hangs has the socket, and takes it when it goes on.
    pub(crate) fn exchange(&self, side: usize, mut sockets: Vec<Socket>) -> io::Result<Exchange> {
        let mut workers: Vec<&Line> = self.workers.iter().collect();
        if workers.len() == 2 {
            let halves = sockets.into_iter().map(Socket::halves).collect::<io::Result<Vec<_>>>()?;
            sockets = halves.into_iter().flatten().collect();
            // What comes by it is of the direction of that number, and what leaves by it of the other one.
            workers = [side, 1 - side].into_iter().filter_map(|direction| self.runs(direction)).collect();
        }
        let ask = |(worker, socket): (&Line, Socket)| {
            let (done, answer) = channel();
            worker.ask(Request::Exchange { side, socket, done }).map(|()| answer)
        };
        Ok(Exchange(workers.into_iter().zip(sockets).map(ask).collect::<io::Result<_>>()?))
    }

    /// Has the kernel carry the traffic, or the worker again. False if the bridge fails closed.
    pub fn bypass(&self, on: bool) -> io::Result<bool> {
        let answers = self.ask_each(|done| Request::Bypass { on, done })?;
        let done = answers.iter().map(await_answer).collect::<io::Result<Vec<_>>>();
        self.forget();
        Ok(done?.into_iter().all(|done| done))
    }

    /// Has the workers stand still: an answer comes when one does, or tells why it does not.
    pub(crate) fn freeze(&self) -> io::Result<Vec<Receiver<io::Result<Frozen>>>> {
        self.ask_each(|done| Request::Freeze { done })
    }

    /// Has workers that stand still end, because another process goes on, or go on themselves.
    pub(crate) fn release(&self, taken: bool) {
        for worker in &*self.workers {
            let _ = worker.ask(if taken { Request::Leave } else { Request::Thaw });
        }
    }

    /// Has the workers end after their present steps. What is inside leaves first.
    pub fn stop(&self) {
        for worker in &*self.workers {
            let _ = worker.ask(Request::Stop);
        }
    }
}

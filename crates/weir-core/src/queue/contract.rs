//! The contract of a queueing discipline. **Read this first.**
//!
//! The laws stand on [`Discipline`], where the rendered page shows them. The timer tick belongs to
//! the port, not to disciplines: they answer exact times.

use super::{DropReason, ParamError, Params, Visit};
use crate::Random;
use crate::packet::{List, PacketId, PacketState, PacketTable};
use crate::units::{Fine, Instant, PerByte, Rate};

/// What became of the packet offered. Others may have been dropped in the same call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is in the queue.
    Queued,
    /// It was given to `Cx::drop`.
    Dropped,
}

/// The answer of `dequeue`.
#[must_use]
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// This packet goes now.
    Packet(PacketId),
    /// Nothing may go before that time, though packets are waiting.
    At(Instant),
    /// Nothing may go until another call changes that, though packets are waiting.
    Held(Cause),
    /// Nothing is waiting.
    Idle,
}

impl Next {
    /// What a parent waits for that got this answer of a child. A packet is there at once.
    #[inline]
    pub fn wait(&self) -> Wait {
        match *self {
            Next::Packet(_) => Wait::At(Instant::ZERO),
            Next::At(at) => Wait::At(at),
            Next::Held(_) => Wait::Held,
            Next::Idle => Wait::Idle,
        }
    }
}

/// Why packets wait that only another call can let go.
// A word, as what the other answers hold: only then `Next` is returned in registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u64)]
pub enum Cause {
    /// The rate of their class or of the link is 0, or so low that their time never comes: they
    /// wait for `reconfigure`.
    Rate,
    /// The discipline is a parent, and the children that have packets are held.
    Child,
}

/// What a parent waits for: the least of what its children wait for is the soonest.
///
/// ```
/// # use weir_core::{queue::{Cause, Next, Wait}, units::Instant};
/// let children = [Next::Idle, Next::Held(Cause::Rate), Next::At(Instant::from_nanos(7))];
/// let soonest = children.iter().map(Next::wait).min().unwrap_or(Wait::Idle);
/// assert_eq!(Next::from(soonest), Next::At(Instant::from_nanos(7)));
/// assert_eq!(Next::from(children[1].wait()), Next::Held(Cause::Child));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// That time.
    At(Instant),
    /// A call other than `dequeue`.
    Held,
    /// A packet: there is none.
    Idle,
}

impl From<Wait> for Next {
    #[inline]
    fn from(wait: Wait) -> Next {
        match wait {
            Wait::At(at) => Next::At(at),
            Wait::Held => Next::Held(Cause::Child),
            Wait::Idle => Next::Idle,
        }
    }
}

/// Packets waiting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Backlog {
    /// How many.
    pub packets: u64,
    /// Their bytes (`Meta::len`).
    pub bytes: u64,
}

impl core::ops::Add for Backlog {
    type Output = Backlog;
    fn add(self, o: Backlog) -> Backlog {
        Backlog { packets: self.packets + o.packets, bytes: self.bytes + o.bytes }
    }
}

/// A discipline found its own invariant broken: our bug. The port falls back to FIFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The discipline.
    pub discipline: &'static str,
    /// The invariant that does not hold.
    pub what: &'static str,
}

/// The link below the tree, as disciplines know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link {
    /// Bit rate.
    pub rate: Rate,
    /// Bytes that each packet costs on the wire beyond `Meta::len` (Ethernet: 24).
    pub overhead: u32,
    /// Largest packet, bytes, layer-2 header included.
    pub mtu: u32,
    per_byte: PerByte,
}

impl Link {
    /// A link of `rate` with `overhead` bytes a packet and packets up to `mtu` bytes.
    pub fn new(rate: Rate, overhead: u32, mtu: u32) -> Self {
        Link { rate, overhead, mtu, per_byte: PerByte::of(rate) }
    }
    /// What a packet of `len` bytes costs on the wire, bytes: the one measure of every rate.
    #[inline]
    pub fn cost_bytes(&self, len: u32) -> u64 {
        u64::from(len) + u64::from(self.overhead)
    }
    /// What all of `backlog` costs on the wire, bytes.
    #[inline]
    pub fn cost_of(&self, backlog: Backlog) -> u64 {
        backlog.bytes + backlog.packets * u64::from(self.overhead)
    }
    /// Transmission time of a packet of `len` bytes: its cost * 8 / rate.
    pub fn time_for(&self, len: u32) -> Fine {
        self.per_byte.time_for(self.cost_bytes(len))
    }
    /// Time a byte takes, in units of 2^-32 ns.
    pub fn per_byte(&self) -> PerByte {
        self.per_byte
    }
}

/// All that a discipline can reach.
pub struct Cx {
    /// The time of this call.
    pub now: Instant,
    /// The port's packets.
    pub packets: PacketTable,
    /// The link below.
    pub link: Link,
    /// The port's random stream.
    pub random: Random,
    pub(crate) dropped: List,
    pub(crate) adopting: bool,
    /// Something was dropped or found broken since the port looked: one question after each call of the tree.
    pub(crate) alert: bool,
    broken: Option<Broken>,
}

impl Cx {
    /// A context for a table of `capacity` packets.
    pub fn new(capacity: u32, link: Link, seed: u64) -> Self {
        Cx {
            now: Instant::ZERO,
            packets: PacketTable::new(capacity),
            link,
            random: Random::new(seed),
            dropped: List::new(),
            adopting: false,
            alert: false,
            broken: None,
        }
    }
    /// Ends a packet's life. The port counts it and hands the frame back to the host.
    pub fn drop(&mut self, id: PacketId, reason: DropReason) {
        let row = self.packets.get_mut(&id);
        row.state = PacketState::Dropped;
        row.reason = reason as u8;
        self.dropped.push_back(&mut self.packets, id);
        self.alert = true;
    }
    /// Says that an invariant is broken. The first report stays until the port has acted.
    #[cold]
    pub fn broken(&mut self, discipline: &'static str, what: &'static str) {
        self.broken.get_or_insert(Broken { discipline, what });
        self.alert = true;
    }
    /// What is broken, if anything is.
    pub fn is_broken(&self) -> Option<Broken> {
        self.broken
    }
    /// True if an invariant is broken, for a port that has not acted since.
    #[inline(always)]
    pub(crate) fn breaks(&self) -> bool {
        self.alert && self.is_broken_for_sure()
    }
    // Apart, so that both are not read each time.
    #[cold]
    #[inline(never)]
    fn is_broken_for_sure(&self) -> bool {
        self.broken.is_some()
    }
    /// True while a new tree takes over the packets of an old one: nothing may be dropped then.
    pub fn adopting(&self) -> bool {
        self.adopting
    }
    pub(crate) fn mend(&mut self) {
        self.broken = None;
    }
    /// Takes the oldest packet that was dropped and not yet taken, with its reason: for hosts
    /// that drive a discipline without a port. The caller removes it from `packets`.
    pub fn next_dropped(&mut self) -> Option<(PacketId, DropReason)> {
        // Mostly nothing was dropped: then the table is not looked at.
        if self.dropped.is_empty() {
            return None;
        }
        let (id, _) = self.dropped.take_first(&self.packets);
        let reason = DropReason::from_u8(self.packets.get(&id).reason);
        Some((id, reason))
    }
}

/// A queueing discipline: a node that decides which packet goes next, and when.
///
/// A discipline is a **pure function of (configuration, seed, sequence of calls)**. It has no clock,
/// and no hidden state outside itself and [`Cx`]. That is why one implementation runs in the
/// simulator, on a live link and inside other programs, and why a recording replays bit for bit.
///
/// # Laws
///
/// The conformance suite (`weir-testkit`) holds every registered discipline against each of them.
///
/// 1. **Conservation.** Each packet that was enqueued MUST be returned by `dequeue` once, or given
///    to [`Cx::drop`] once. A discipline MUST NOT free a packet in any other way. It MAY drop any
///    packet that it holds, in any call.
///    *Example:* a full queue drops the packet that came, or its oldest one. A full queue that lets
///    go of the handle has lost a row of the port's table.
/// 2. **Time of the next packet.** These hold for calls of `dequeue` with no other call in between:
///    - `At(t)` MUST mean now < t < [`Instant::NEVER`], and that packets wait. Asked again before t,
///      `dequeue` MUST repeat t. Asked at t or later, it MUST answer `Packet`, or have dropped at
///      least one packet.
///    - `Held(cause)` MUST be the answer where time alone changes nothing. It MUST be repeated
///      whatever the time is.
///    - `Idle` MUST be the answer if, and only if, the backlog is 0 after the call.
///
///    Any other call MAY move t either way. A parent's t MUST NOT lie before that of the child it
///    waits for ([`Child::head`](super::Child::head) tells it). A parent MUST remember its answer
///    until another call, because a child that is asked twice MAY drop in between.
///    *Example:* a shaper whose tokens suffice in 3 ms answers `At(now + 3 ms)`. Asked after 1 ms it
///    names the same instant. Asked after 5 ms it gives the packet.
/// 3. **Order.** Packets of one flow in one leaf MUST leave in the order in which they came. Packets
///    of different flows, or of different leaves, MAY overtake each other.
///    *Example:* DRR serves a short packet of flow B before an older long one of flow A.
/// 4. **Time of calls.** `Cx::now` does not run backwards. A discipline MUST be right when it stands
///    still or jumps.
///    *Example:* three dequeues at one instant, then one a day later.
/// 5. **Adoption.** While [`Cx::adopting`] is true, `enqueue` MUST accept every packet, also beyond
///    the limits of its queues, and nothing MAY be dropped.
///    *Example:* a swap hands 800 packets to a FIFO of 50. It holds 800 until they have left.
/// 6. **Refusal.** `reconfigure` MUST refuse a word that it does not know, a value of another kind,
///    and one out of range. The error MUST say which. Whatever comes afterwards MUST be as if the
///    call had not been made.
///    *Example:* `qlimit 80, quantum 0` changes neither, because a quantum of 0 is refused.
/// 7. **Progress.** A class that comes again and again to a link which idles in between MUST get packets through: not
///    all of them may be dropped. Those that are late when `dequeue` is called MAY be, where the operator has asked for
///    that (JoBS, `relax loss-first`).
///    *Example:* a packet of 2 ms whose class has a delay bound of 1 ms leaves all the same.
///
/// # Driving one by hand
///
/// A [`Port`](crate::port::Port) does this for a host. A test may do it itself:
///
/// ```
/// use weir_core::packet::{FrameRef, Meta};
/// use weir_core::queue::{Cx, DropReason, Link, Next, Verdict};
/// use weir_core::sched::{Node, Registry};
/// use weir_core::units::{Instant, Rate};
///
/// let link = Link::new(Rate::from_mbps(10), 24, 1_514);
/// let fifo = Node { discipline: "fifoq".into(), ..Node::default() };
/// let mut fifo = Registry::builtin().build(&fifo, link)?.discipline;
///
/// let mut cx = Cx::new(8, link, 1);
/// for number in 0..3 {
///     let packet = Meta::new(1_000, cx.now, FrameRef(number));
///     let id = cx.packets.insert(packet).expect("a table of 8 packets");
///     assert_eq!(fifo.enqueue(&mut cx, id), Verdict::Queued);
/// }
/// // Law 3: in the order of arrival. The caller owns the handle again.
/// let Next::Packet(id) = fifo.dequeue(&mut cx) else { panic!("three packets wait") };
/// assert_eq!(cx.packets.get(&id).frame, FrameRef(0));
/// cx.packets.remove(id);
/// // Law 1: what a flush drops comes back through `Cx`.
/// fifo.flush(&mut cx, DropReason::Flush);
/// while let Some((id, reason)) = cx.next_dropped() {
///     assert_eq!(reason, DropReason::Flush);
///     cx.packets.remove(id);
/// }
/// // Law 2: nothing waits.
/// assert_eq!(fifo.dequeue(&mut cx), Next::Idle);
/// assert_eq!(cx.packets.live(), 0);
/// # Ok::<(), weir_core::queue::ParamError>(())
/// ```
pub trait Discipline: Send {
    /// Takes a packet whose `leaf` lies below this node.
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict;

    /// Chooses what goes next, or says when to come back.
    fn dequeue(&mut self, cx: &mut Cx) -> Next;

    /// What is waiting, held packets included.
    fn backlog(&self) -> Backlog;

    /// True if nothing is waiting; cheaper than `backlog`.
    fn is_empty(&self) -> bool {
        self.backlog().packets == 0
    }

    /// Drops everything, also what dequeue would not give yet.
    fn flush(&mut self, cx: &mut Cx, reason: DropReason);

    /// Changes parameters of the class of that name, or of the discipline itself for "".
    /// Whole or not at all: `params::accept` first, or `Child::reconfigure_queue` where the class has
    /// a queue.
    ///
    /// # Errors
    /// `ParamError` for a class that is not below this node (its field is then `class`), and for
    /// what law 6 says.
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError>;

    /// Shows every class with its counters.
    fn visit_stats(&self, visit: &mut dyn Visit);

    /// Verifies every invariant, at any cost: for tests.
    ///
    /// # Errors
    /// `Broken` names the invariant that does not hold.
    fn check(&self, cx: &Cx) -> Result<(), Broken>;

    /// The last bit of a packet that this node dequeued left at `at`.
    fn on_sent(&mut self, _cx: &mut Cx, _id: &PacketId, _at: Instant) {}

    /// False if `on_sent` does nothing: then it may be left out. Only `reconfigure` changes the answer.
    fn hears_sent(&self) -> bool {
        true
    }

    /// False if `dequeue` changes nothing where no packet waits: then it may be left out there. Only
    /// `reconfigure` changes the answer.
    fn turns_when_empty(&self) -> bool {
        true
    }
}

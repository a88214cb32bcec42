//! Fail open: while no worker carries the traffic of a bridge, the kernel does.
//!
//! - **A path underneath.** On each of the two interfaces a filter of the kernel's (`cls_bpf`) sends
//!   what enters out of the other one. It outlives the process. The next `weir up` takes it over,
//!   and [`remove`] takes it away.
//! - **A program above it** (TCX), which ends with the process, hides the path while the worker's
//!   heart beats: it drops the frame, of which the worker's socket has its copy by then. So a frame
//!   goes one way, and the kernel spends no work on it.
//! - **A filter on the sockets** reads the same heartbeat: what the path carries enters no socket,
//!   so that a worker that was stopped sends nothing twice.
//!
//! What is for the box itself, by its address or as a broadcast, the kernel gets in any case. So an
//! address on an interface of the bridge stays reachable.
//!
//! Each direction has a heart of its own. The worker that runs it stores the time with each step, one write to
//! shared memory. Of two workers the kernel does the work of one that hangs, and the other goes on. After `kill -9`
//! the program above goes with the process. A worker that hangs is hidden no more once the limit has passed.
//! Where more than two workers run the same directions, both hearts show when the longest silent of all was alive: if one
//! hangs, the kernel carries both directions.
//! Where frames come by AF_XDP, the program that hands them over is above the path by itself.
//! A kernel without TCX (before 6.6) has one program for both, and then a death costs the limit, too.

use crate::owner::Claim;
use crate::state::FailState;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use weir_core::units::{Duration, Instant};
use weir_sys::bpf::{self, Assembler, Heartbeat, Kind, Program};
use weir_sys::netlink::links;
use weir_sys::tc::{self, Place, Side};

/// Where the path hangs: behind the filters of others, which see the frames first.
const PATH: Place = Place { priority: 65_000, handle: 0x7765_6972 };
/// The path's name is this and the other interface ...
const TOWARDS: &str = "weir to ";
/// ... and this, if its `clsact` was made for it.
const WITH_CLSACT: &str = ", with its clsact";

/// What a classifier answers: the kernel takes the frame.
const PASS: i32 = 0;
/// What a classifier answers: drop the frame.
const DROP: i32 = 2;
/// What a classifier answers: let the next one decide.
const NEXT: i32 = -1;

/// How long a worker may be silent that the system runs before all others.
const LIMIT_PROMPT: Duration = Duration::from_millis(50);
/// How long any other worker may be silent.
const LIMIT: Duration = Duration::from_millis(100);

/// So much before the path carries, the sockets take nothing more in. A frame meets the filter first and the path
/// after it: without this, one that meets them at the limit goes both ways. One that comes meanwhile is lost.
const EARLIER: Duration = Duration::from_millis(1);

/// What hides the path, in words.
const BY_LINKS: &str = "a TCX program above it";
const BY_SOCKETS: &str = "XDP programs above it";
const BY_PATH: &str = "one program for both, because this kernel has no TCX";

/// What a bridge that fails open leaves to the process that takes over. Its heartbeat and its programs
/// pass as descriptors.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct FailCounts {
    bypassed: bool,
    lapses: u64,
    stale_packets: u64,
}

impl FailCounts {
    /// Those of a bridge, one of whose workers counted these and the other one those.
    pub(crate) fn and(self, other: FailCounts) -> FailCounts {
        FailCounts {
            bypassed: self.bypassed || other.bypassed,
            lapses: self.lapses + other.lapses,
            stale_packets: self.stale_packets + other.stale_packets,
        }
    }
}

/// What hides the path while the worker lives.
enum Above {
    /// Nothing yet.
    Nothing,
    /// Programs that end with this process, left and right.
    Links([OwnedFd; 2]),
    /// The path itself.
    Path,
}

/// What stands in the kernel for a bridge.
pub struct Kernel {
    /// Of the direction from the left, and of that from the right, as are the programs that read them.
    heartbeats: [Heartbeat; 2],
    filters: [Program; 2],
    hides: [Program; 2],
    names: [String; 2],
    /// The path was laid, not taken over.
    new: bool,
    above: Mutex<Above>,
    /// What hides the path, in words: nobody waits for the system to say it.
    means: OnceLock<&'static str>,
}

/// A bridge that fails open, as a worker of it holds it.
pub struct FailOpen {
    kernel: Arc<Kernel>,
    /// What the worker runs.
    directions: Range<usize>,
    /// Where several workers run the same directions: when each was alive last, ns, and which of them it is. A heart
    /// shows the oldest of these.
    beats: Option<(Arc<[AtomicU64]>, usize)>,
    limit: Duration,
    last: Option<Instant>,
    bypassed: bool,
    lapses: u64,
    stale_packets: u64,
}

/// How the frames of a bridge come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// By sockets that see a copy of each packet (AF_PACKET): on any interface.
    #[default]
    Packet,
    /// From the driver, before the kernel has made packets of them (AF_XDP).
    Xdp {
        /// The worker has the drivers look for frames all the time, and sleeps never.
        busy_poll: bool,
    },
}

/// Why a bridge fails closed that could fail open.
pub(crate) const CLOSED: &str = "the configuration says so";

/// A bridge that fails open, or the reason why this one fails closed.
pub type Failing = Result<FailOpen, String>;

/// Decides for the interfaces `names` of a bridge, which fails closed if it is `closed` by the
/// configuration or the kernel has not the means. Then no path is left either: one of an earlier
/// run would carry all traffic a second time. Otherwise the path is laid, or the one that is there
/// is taken over, and carries the traffic until the first beat.
///
/// # Errors
/// A path that cannot be taken away.
pub fn begin(names: &[String; 2], closed: bool) -> io::Result<Failing> {
    let why = if closed {
        CLOSED.to_owned()
    } else {
        match Kernel::prepare(names.clone()) {
            Ok(kernel) => return Ok(Ok(FailOpen::new(kernel))),
            Err(e) => e.to_string(),
        }
    };
    remove_between(names)?;
    Ok(Err(why))
}

/// Takes the path away that is between two interfaces, whatever is called so now, and what else leads to
/// one of them.
///
/// # Errors
/// A path that cannot be taken away.
pub(crate) fn remove_between(names: &[String; 2]) -> io::Result<()> {
    let there = names.iter().filter(|name| weir_sys::interface_index(name).is_ok()).cloned();
    for name in there.chain(leading_to(names)?) {
        remove(&name).map_err(|e| io::Error::new(e.kind(), format!("the old path on {name}: {e}")))?;
    }
    Ok(())
}

/// Other interfaces on which a path to one of these hangs: one that was renamed, or that had another peer in
/// an earlier run.
///
/// # Errors
/// What the system refuses to tell.
pub fn leading_to(names: &[String; 2]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for link in links()?.into_iter().filter(|link| !names.iter().any(|name| link.is_called(name))) {
        // One that has just gone has no path.
        let Ok(Some(ours)) = at_our_place(link.index) else { continue };
        if towards(&ours).is_some_and(|peer| names.iter().any(|name| name == peer)) {
            found.push(link.name);
        }
    }
    Ok(found)
}

impl Kernel {
    fn prepare(names: [String; 2]) -> io::Result<Kernel> {
        let kernel = Kernel::new(names)?;
        kernel.lay(&Above::Nothing)?;
        Ok(kernel)
    }

    /// The programs, of which none hangs anywhere yet.
    fn new(names: [String; 2]) -> io::Result<Kernel> {
        let heartbeats = [Heartbeat::new()?, Heartbeat::new()?];
        heartbeats.iter().for_each(|heartbeat| heartbeat.set_limit(LIMIT));
        let new = peer(&names[0])?.is_none() && peer(&names[1])?.is_none();
        Kernel::over(heartbeats, names, new)
    }

    /// What reads the heartbeats, with nothing laid or attached yet.
    fn over(heartbeats: [Heartbeat; 2], names: [String; 2], new: bool) -> io::Result<Kernel> {
        let filter = |heartbeat| {
            // A frame is kept whole, or not at all.
            let code =
                Assembler::default().note_processor(heartbeat).skip_if_dead_within(EARLIER, heartbeat, 2);
            code.set(0, -1).exit().set(0, 0).exit().into_program(Kind::SocketFilter, "weir_socket")
        };
        let hide =
            |heartbeat| hidden(heartbeat).set(0, NEXT).exit().into_program(Kind::Classifier, "weir_alive");
        let [left, right] = &heartbeats;
        let (filters, hides) = ([filter(left)?, filter(right)?], [hide(left)?, hide(right)?]);
        let (above, means) = (Mutex::new(Above::Nothing), OnceLock::new());
        Ok(Kernel { heartbeats, filters, hides, names, new, above, means })
    }

    /// The same as [`Kernel::attach`] where a worker carries the traffic already: its heart beats, and its
    /// sockets have the filter. The path comes last, so that no frame goes two ways.
    ///
    /// # Errors
    /// An interface that is gone, or a stranger's filter in our place.
    pub(crate) fn attach_below_worker(&self) -> io::Result<()> {
        self.attach()?;
        self.lay(&self.above())
    }

    /// What passes to the process that takes over: the two heartbeats, and the programs above the path if they
    /// end with their owner.
    pub(crate) fn pass(&self) -> io::Result<Vec<OwnedFd>> {
        let above = self.above();
        let links: &[OwnedFd] = if let Above::Links(links) = &*above { links } else { &[] };
        let links = links.iter().map(AsFd::as_fd);
        self.heartbeats.iter().map(AsFd::as_fd).chain(links).map(|fd| fd.try_clone_to_owned()).collect()
    }

    /// What another process has passed: heartbeats, programs and path go on as they are.
    fn taken(
        names: [String; 2],
        [left, right]: [OwnedFd; 2],
        links: Vec<OwnedFd>,
        way: Way,
    ) -> io::Result<Kernel> {
        let kernel = Kernel::over([Heartbeat::over(left)?, Heartbeat::over(right)?], names, false)?;
        let (above, means) = match <[OwnedFd; 2]>::try_from(links) {
            _ if way != Way::Packet => (Above::Nothing, BY_SOCKETS),
            Ok(links) => (Above::Links(links.map(bpf::above_sockets)), BY_LINKS),
            Err(_) => (Above::Path, BY_PATH),
        };
        *kernel.above() = above;
        let _ = kernel.means.set(means);
        Ok(kernel)
    }

    /// True if no earlier run had left the path.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// What a program reads that hides the path of what enters on a side (0: left).
    pub fn heartbeat(&self, side: usize) -> &Heartbeat {
        &self.heartbeats[side]
    }
    /// Notes that the sockets' own programs ([`weir_sys::xdp`]) take the frames before the path does.
    pub fn is_hidden_by_sockets(&self) {
        let _ = self.means.set(BY_SOCKETS);
    }

    /// The filter that the socket of a side (0: left) gets before it is bound.
    pub fn filter(&self, side: usize) -> BorrowedFd<'_> {
        self.filters[side].as_fd()
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        self.above.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts what hides the path above it. The sockets must be open by now.
    ///
    /// # Errors
    /// An interface that is gone.
    pub fn attach(&self) -> io::Result<()> {
        self.attach_links().or_else(|_| self.attach_in_path())
    }

    fn attach_links(&self) -> io::Result<()> {
        *self.above() = Above::Links([self.link(0)?, self.link(1)?]);
        let _ = self.means.set(BY_LINKS);
        Ok(())
    }

    fn attach_in_path(&self) -> io::Result<()> {
        self.lay(&Above::Path)?;
        *self.above() = Above::Path;
        let _ = self.means.set(BY_PATH);
        Ok(())
    }

    fn link(&self, side: usize) -> io::Result<OwnedFd> {
        bpf::attach_to_ingress(&self.hides[side], weir_sys::interface_index(&self.names[side])?)
    }

    /// The interface of a side (0: left) has a new device: what hung on the old one went with it.
    /// To be called before there is a socket on it.
    ///
    /// # Errors
    /// It is gone again.
    pub fn attach_again(&self, side: usize) -> io::Result<()> {
        let above = &mut *self.above();
        if let Above::Links(links) = above {
            links[side] = self.link(side)?;
        }
        match self.lay(above) {
            // The other one is away, too. When it is back, both ends of the path are laid.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            laid => laid,
        }
    }

    /// Lays both ends of the path, for what hides it, in the place of the one that is there.
    fn lay(&self, above: &Above) -> io::Result<()> {
        let [left, right] = &self.names;
        for stray in leading_to(&self.names)? {
            remove(&stray)?;
        }
        for ((name, other), heartbeat) in [(left, right), (right, left)].into_iter().zip(&self.heartbeats) {
            let towards = weir_sys::interface_index(other)?;
            let program = match above {
                Above::Path => redirect(hidden(heartbeat), towards, "weir_alive_path"),
                _ => redirect(Assembler::default().copy(6, 1), towards, "weir_path"),
            };
            lay_one(name, other, &program?)
                .map_err(|e| io::Error::new(e.kind(), format!("a filter on {name}: {e}")))?;
        }
        Ok(())
    }
}

impl FailOpen {
    /// A bridge of these interfaces whose worker runs already: [`Kernel::attach_below_worker`] is to
    /// follow, once the worker has it.
    ///
    /// # Errors
    /// What the kernel lacks.
    pub(crate) fn of_running(names: &[String; 2]) -> io::Result<FailOpen> {
        Kernel::new(names.clone()).map(FailOpen::new)
    }

    fn new(kernel: Kernel) -> FailOpen {
        FailOpen::of(Arc::new(kernel))
    }

    fn of(kernel: Arc<Kernel>) -> FailOpen {
        let (last, bypassed, lapses, stale_packets) = Default::default();
        FailOpen {
            kernel,
            directions: 0..2,
            beats: None,
            limit: LIMIT,
            last,
            bypassed,
            lapses,
            stale_packets,
        }
    }

    /// The same for two workers, of which each runs one direction. The counts go on with the first.
    pub(crate) fn halves(self) -> [FailOpen; 2] {
        let FailOpen { ref kernel, limit, last, bypassed, .. } = self;
        let second = FailOpen { limit, last, bypassed, directions: 1..2, ..FailOpen::of(kernel.clone()) };
        [FailOpen { directions: 0..1, ..self }, second]
    }

    /// A bridge that another process has passed: its heartbeats, and the programs above its path.
    ///
    /// # Errors
    /// The kernel refuses what reads the heartbeat.
    pub(crate) fn taken(
        names: &[String; 2],
        counts: FailCounts,
        heartbeats: [OwnedFd; 2],
        links: Vec<OwnedFd>,
        way: Way,
    ) -> io::Result<FailOpen> {
        let FailCounts { bypassed, lapses, stale_packets } = counts;
        let kernel = Kernel::taken(names.clone(), heartbeats, links, way)?;
        Ok(FailOpen { bypassed, lapses, stale_packets, ..FailOpen::new(kernel) })
    }

    /// What has happened, for the process that takes over.
    pub(crate) fn counts(&self) -> FailCounts {
        let FailOpen { bypassed, lapses, stale_packets, .. } = *self;
        FailCounts { bypassed, lapses, stale_packets }
    }

    /// What stands in the kernel.
    pub fn kernel(&self) -> Arc<Kernel> {
        self.kernel.clone()
    }

    /// How long the worker may be silent: less where the system runs it promptly.
    pub fn set_prompt(&mut self, prompt: bool) {
        // One heart of several workers has one limit, whatever the system granted to each.
        self.limit = if prompt && self.beats.is_none() { LIMIT_PROMPT } else { LIMIT };
        self.hearts().iter().for_each(|heart| heart.set_limit(self.limit));
    }

    fn hearts(&self) -> &[Heartbeat] {
        &self.kernel.heartbeats[self.directions.clone()]
    }

    /// The processors on which frames came for this worker alone since this was asked last.
    pub(crate) fn receiving(&self) -> [Option<usize>; 2] {
        let mut processors = [None; 2];
        if self.beats.is_none() {
            let all = self.hearts().iter().map(Heartbeat::take_processor);
            processors.iter_mut().zip(all).for_each(|(to, processor)| *to = processor);
        }
        processors
    }

    /// True if the worker was silent until `now` for so long that all that it finds in its sockets
    /// is older than the limit. To be asked before the beat: after it, fresh frames come in.
    pub fn is_stale(&mut self, now: Instant) -> bool {
        let silent = self.last.map_or(Duration::ZERO, |last| now.since(last));
        let lapsed = !self.bypassed && silent > self.limit;
        self.lapses += u64::from(lapsed);
        // The sockets took frames in for one limit after the last beat.
        lapsed && silent > self.limit + self.limit
    }

    /// The worker is alive at `now`.
    pub fn beat(&mut self, now: Instant) {
        self.last = Some(now);
        if self.bypassed {
            return;
        }
        match self.oldest(now) {
            Some(oldest) => self.hearts().iter().for_each(|heart| heart.beat(oldest)),
            // Another worker has the kernel carry the traffic.
            None => self.hearts().iter().for_each(Heartbeat::stop),
        }
    }

    /// Has the kernel carry the traffic, or the worker again. What the worker holds still leaves.
    pub fn bypass(&mut self, on: bool) {
        self.bypassed = on;
        if on {
            self.is_bypassed();
            self.hearts().iter().for_each(Heartbeat::stop);
        }
    }

    /// So many frames were thrown away because they were stale.
    pub fn count_stale(&mut self, packets: u64) {
        self.stale_packets += packets;
    }

    fn state(&self) -> FailState {
        let means = self.kernel.means.get().copied().unwrap_or("nothing above it yet");
        FailState {
            open: true,
            how: format!("redirect in the kernel, {means}, limit {} ms", self.limit.as_nanos() / 1_000_000),
            bypassed: self.bypassed,
            lapses: self.lapses,
            stale_packets: self.stale_packets,
        }
    }
}

/// The same for each of so many workers: all of it, one direction each of two, or a part of both each of more.
pub(crate) fn for_workers(failing: Failing, count: usize) -> Vec<Failing> {
    match failing {
        Ok(open) if count > 2 => open.parts(count).into_iter().map(Ok).collect(),
        Ok(open) if count > 1 => open.halves().map(Ok).into(),
        Ok(open) => vec![Ok(open)],
        Err(why) => (0..count).map(|_| Err(why.clone())).collect(),
    }
}

/// What is known of either.
pub fn state(failing: &Failing) -> FailState {
    match failing {
        Ok(open) => open.state(),
        Err(why) => FailState { how: why.clone(), ..FailState::default() },
    }
}

/// Begins a program with: while the heart beats, drop what is for others. What follows finds the
/// context in register 6.
fn hidden(heartbeat: &Heartbeat) -> Assembler {
    Assembler::default()
        .copy(6, 1)
        .skip_if_dead(heartbeat, 5)
        .load_half(7, 6, bpf::FRAME_IS_FOR)
        .set(0, PASS)
        .skip_unless(7, bpf::TO_ANOTHER_HOST, 1)
        .set(0, DROP)
        .exit()
}

/// Ends `code` with: send what is for others out of the interface with that index, and a copy of what
/// is for all.
fn redirect(code: Assembler, towards: u32, name: &str) -> io::Result<Program> {
    let towards = i32::try_from(towards).map_err(io::Error::other)?;
    let for_others = code
        .load_half(7, 6, bpf::FRAME_IS_FOR)
        .skip_unless(7, bpf::TO_ANOTHER_HOST, 4)
        .set(1, towards)
        .set(2, 0)
        .call(bpf::REDIRECT)
        .exit();
    let for_all = for_others
        .skip_if(7, bpf::TO_THIS_HOST, 4)
        .copy(1, 6)
        .set(2, towards)
        .set(3, 0)
        .call(bpf::CLONE_REDIRECT);
    for_all.set(0, PASS).exit().into_program(Kind::Classifier, name)
}

fn lay_one(name: &str, other: &str, program: &Program) -> io::Result<()> {
    let index = weir_sys::interface_index(name)?;
    let made = tc::make_clsact(index)?;
    let there = at_our_place(index)?;
    if let Some(theirs) = there.as_ref().filter(|f| !f.name.starts_with(TOWARDS)) {
        let what = format!(
            "a filter {:?} that is not Weir's stands there: `tc filter del dev {name} ingress pref {}`",
            theirs.name, PATH.priority
        );
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let made = made || there.is_some_and(|ours| ours.name.ends_with(WITH_CLSACT));
    let label = format!("{TOWARDS}{other}{}", if made { WITH_CLSACT } else { "" });
    tc::put_filter(index, PATH, &label, program.as_fd())
}

fn at_our_place(index: u32) -> io::Result<Option<tc::Filter>> {
    match tc::filters(index, Side::Ingress) {
        Ok(all) => Ok(all.into_iter().find(|f| f.place == PATH)),
        // A kernel without filters.
        Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

/// The other interface of the path that hangs on `interface`; none if none does.
pub fn peer(interface: &str) -> io::Result<Option<String>> {
    let ours = at_our_place(weir_sys::interface_index(interface)?)?;
    Ok(ours.and_then(|filter| towards(&filter).map(str::to_owned)))
}

/// Where a path of Weir's leads; none if that filter is somebody else's.
fn towards(filter: &tc::Filter) -> Option<&str> {
    Some(filter.name.strip_prefix(TOWARDS)?.trim_end_matches(WITH_CLSACT))
}

/// The same as [`remove`], unless a running Weir bridges `interface`.
///
/// # Errors
/// One does; it is named.
pub fn take_down(interface: &str) -> io::Result<bool> {
    let _claim = Claim::on(interface, weir_sys::interface_index(interface)?)?;
    remove(interface).map_err(|e| io::Error::new(e.kind(), format!("interface {interface}: {e}")))
}

/// Takes the path away that hangs on `interface`, and nobody else's filters; false if none does.
pub fn remove(interface: &str) -> io::Result<bool> {
    let index = weir_sys::interface_index(interface)?;
    let Some(ours) = at_our_place(index)?.filter(|f| f.name.starts_with(TOWARDS)) else { return Ok(false) };
    tc::remove_filter(index, PATH)?;
    let empty = tc::filters(index, Side::Ingress)?.is_empty() && tc::filters(index, Side::Egress)?.is_empty();
    if ours.name.ends_with(WITH_CLSACT) && empty {
        tc::remove_clsact(index)?;
    }
    Ok(true)
}

mod parts;
#[cfg(test)]
pub(crate) mod tests;

//! The threads that run a bridge: each tells its part the time, sleeps between what is due, survives a panic.

use crate::bridge::{Bridge, Step, WorkerEstate};
use crate::broker::{Back, Told};
use crate::control::{Control, Frozen, PATIENCE, Request};
use crate::direction::{Changed, Direction};
use crate::gather::{Gather, Part, egresses, heads};
use crate::line::{Inbox, Line};
use crate::placement::{Placement, Processor};
use crate::state::BridgeState;
use std::any::Any;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use weir_core::port::Port;
use weir_core::units::{Duration, Instant};
use weir_io::Io;
use weir_sys::{Granted, Priority};

/// How a worker spends the time between two events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// When something is due within this time the worker stays awake for it. Sleeping is late by
    /// some 20 us, spinning by none: at 100 Mbit/s, 60 us of spinning costs half a processor.
    pub spin: Duration,
    /// The processor that the thread runs on.
    pub processor: Processor,
    /// The priority that the thread asks for.
    pub priority: Priority,
}

impl Default for Pace {
    fn default() -> Self {
        let (processor, priority) = Default::default();
        Pace { spin: Duration::from_micros(60), processor, priority }
    }
}

/// The longest sleep, so that counters of a silent link still move.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// The longest sleep of a worker whose heart must beat.
const HEARTBEAT: Duration = Duration::from_millis(5);
/// How long what is inside may take to leave at its rate when a worker ends. The rest leaves at once.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a frame that another processor was receiving may take into the socket.
const SETTLE: Duration = Duration::from_millis(1);

/// A thread under `SCHED_FIFO` keeps ordinary threads of its processor waiting, those of the kernel
/// included. One that takes 95 % of a second is throttled for 50 ms. So one that was busy for 95 %
/// of so long or longer ...
const WINDOW: Duration = Duration::from_millis(2);
/// ... sleeps for this part of it, after which it was busy for 94 % at most. After 0.1 ms of 2 ms it was busy for 95.2 %.
const REST_PART: u64 = 16;

/// A worker that stands still for longer than this counts as dead: the kernel carries the traffic.
const FROZEN: Duration = Duration::from_millis(1_000);

/// A running bridge: its threads, one, one for each direction, or more that have each a part of both.
pub struct Worker {
    threads: Vec<JoinHandle<BridgeState>>,
    control: Control,
}

/// A part of a bridge that is to run in a thread of its own.
pub struct Task<L, R> {
    /// The directions, with their interfaces.
    pub bridge: Bridge<L, R>,
    /// How the thread paces itself.
    pub pace: Pace,
    /// If another process has run it before: the counters of its worker, which go on. The thread then does
    /// nothing before it is told to go, and ends if it never is.
    pub(crate) before: Option<(WorkerEstate, Receiver<()>)>,
}

impl<L, R> Task<L, R> {
    /// What nobody has run before.
    pub fn new(bridge: Bridge<L, R>, pace: Pace) -> Self {
        Task { bridge, pace, before: None }
    }
}

impl Worker {
    /// Starts a thread that runs `bridge` between interfaces of those names (left, right).
    pub fn start<L, R>(bridge: Bridge<L, R>, names: [String; 2], pace: Pace) -> io::Result<Worker>
    where
        L: Io + Send + 'static,
        R: Io + Send + 'static,
    {
        Self::start_each(vec![Task::new(bridge, pace)], &names)
    }

    /// Starts a thread for each part of a bridge, the part of the first direction first. All run, or none.
    pub fn start_each<L, R>(tasks: Vec<Task<L, R>>, names: &[String; 2]) -> io::Result<Worker>
    where
        L: Io + Send + 'static,
        R: Io + Send + 'static,
    {
        let lines = tasks.into_iter().map(|task| {
            let runs = task.bridge.directions().iter().map(Direction::index).collect();
            Line::new(runs).map(|(line, inbox)| {
                let back = line.back();
                (line, (task, inbox, back))
            })
        });
        let (lines, tasks): (Vec<Line>, Vec<_>) = lines.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let mut worker = Worker { threads: Vec::new(), control: Control::of(lines) };
        for (task, inbox, back) in tasks {
            match spawn(task, inbox, back, names.clone()) {
                Ok(thread) => worker.threads.push(thread),
                Err(e) => {
                    // Those that have started end by themselves.
                    worker.control.stop();
                    return Err(e);
                }
            }
        }
        Ok(worker)
    }

    /// The way to its threads from other ones.
    pub fn control(&self) -> Control {
        self.control.clone()
    }
    /// How many threads it has.
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }
    /// True once one of its threads has ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }
    /// Waits for the end of threads that were told to leave.
    pub(crate) fn join(self) {
        self.threads.into_iter().for_each(|thread| _ = thread.join());
    }
    /// Stops it: the last statistics.
    pub fn stop(self) -> io::Result<BridgeState> {
        self.control.stop();
        let last: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        let last: Result<Vec<_>, _> = last.into_iter().collect();
        let last = last.map_err(|_| io::Error::other("the worker panicked twice and has ended"))?;
        Ok(self.control.whole(last))
    }
}

fn spawn<L, R>(
    task: Task<L, R>,
    inbox: Inbox,
    back: Back,
    names: [String; 2],
) -> io::Result<JoinHandle<BridgeState>>
where
    L: Io + Send + 'static,
    R: Io + Send + 'static,
{
    let Task { mut bridge, pace, before } = task;
    std::thread::Builder::new().name("weir-worker".into()).spawn(move || {
        // None is vital: without them the worker is later, and what is late shows.
        let _ = weir_sys::sleep_precisely();
        let _ = match pace.processor {
            Processor::Best { .. } => Ok(()),
            Processor::First(cpu) => weir_sys::processors().and_then(|all| weir_sys::move_to(cpu, &all)),
            Processor::Only(cpu) => weir_sys::pin_to(cpu),
        };
        let priority = weir_sys::take_priority(pace.priority);
        if let Some(open) = bridge.failing() {
            open.set_prompt(priority.priority == Priority::Fifo);
        }
        // What reads the packets of strangers has no rights from here on that it can do without.
        let _ = weir_sys::rights::keep(&bridge.rights());
        let now = weir_sys::now();
        let fresh = WorkerEstate { started_ns: now.as_nanos(), ..WorkerEstate::default() };
        let before = match before {
            None => fresh,
            Some((before, go)) => match go.recv() {
                Ok(()) => before,
                Err(_) => return BridgeState::default(),
            },
        };
        Run {
            bridge,
            names,
            pace,
            priority,
            inbox,
            back,
            later: VecDeque::new(),
            started: Instant::from_nanos(before.started_ns),
            cpu_before: Duration::from_nanos(before.cpu_ns),
            window: (now, weir_sys::thread_cpu()),
            steps: before.steps,
            spun: Duration::from_nanos(before.spun_ns),
            failed: None,
            gathering: None,
            placement: match pace.processor {
                Processor::Best { turn } => Placement::of_this_thread(now, turn),
                Processor::First(_) | Processor::Only(_) => None,
            },
        }
        .run()
    })
}

struct Run<L, R> {
    bridge: Bridge<L, R>,
    names: [String; 2],
    pace: Pace,
    priority: Granted,
    inbox: Inbox,
    /// By which brokers answer.
    back: Back,
    /// What was asked while it stood still.
    later: VecDeque<Request>,
    started: Instant,
    /// Processor time of workers before it, in other processes.
    cpu_before: Duration,
    /// When the present window began, and the processor time that the thread had used then.
    window: (Instant, Duration),
    steps: u64,
    spun: Duration,
    failed: Option<String>,
    /// Who asked for statistics, and what is told already; `None` before the first part.
    gathering: Option<(Sender<Part>, Option<Gather>)>,
    /// Where it runs, if that is for it to decide.
    placement: Option<Placement>,
}

/// What comes after the answers.
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    /// It is time to stop.
    End,
    /// Another process has gone on with everything.
    Leave,
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

impl<L: Io, R: Io> Run<L, R> {
    fn run(mut self) -> BridgeState {
        let mut spinning_since = None;
        loop {
            let now = weir_sys::now();
            if let Some(since) = spinning_since.take() {
                self.spun += now.since(since);
            }
            let step = self.step(now);
            self.steps += 1;
            self.bridge.directions_mut().iter_mut().for_each(|direction| direction.ask(&self.back));
            match self.answer() {
                Then::GoOn => {}
                Then::End => return self.end(),
                Then::Leave => return self.head(),
            }
            self.gather();
            self.place(now);
            let busy = step.more || self.gathering.is_some();
            if !self.rest(now) && !busy && !self.pause(step.next) {
                spinning_since = Some(now);
            }
        }
    }

    /// The last steps: what is inside still leaves. Where the bridge fails open the kernel carries
    /// what comes from now on, and where it fails closed nothing more is taken in. What the packet filter
    /// hands over goes on at once, because only the end lets packets pass.
    fn end(mut self) -> BridgeState {
        let (began, mut last) = (weir_sys::now(), None);
        let passed = self.bridge.is_passed();
        if let Some(open) = self.bridge.failing() {
            open.bypass(true);
        } else if passed {
            last = Some(self.last());
            self.bridge.forward_plainly(began);
        }
        let takes_in = passed || self.bridge.fails_open();
        loop {
            let now = weir_sys::now();
            let waited = now.since(began);
            let step = if takes_in || waited < SETTLE { self.step(now) } else { self.leave(now) };
            let settled = !step.more && waited >= SETTLE;
            // Another worker may have something for this one, and wait for it to say that it has nothing more.
            let done = settled && self.bridge.is_handed_no_more() && self.bridge.is_empty();
            if done || waited >= DRAIN + DRAIN {
                return last.unwrap_or_else(|| self.last());
            }
            if last.is_none() && waited >= DRAIN {
                last = Some(self.last());
                self.bridge.forward_plainly(now);
            } else if !step.more {
                weir_sys::sleep_until(step.next.min(now + SETTLE));
            }
        }
    }

    fn leave(&mut self, now: Instant) -> Step {
        self.guarded(now, |bridge| bridge.leave(now)).unwrap_or(Step { next: now, more: true })
    }

    fn step(&mut self, now: Instant) -> Step {
        self.guarded(now, |bridge| bridge.step(now)).unwrap_or(Step { next: now, more: true })
    }

    /// Does something to the bridge. A panic in it is a bug of ours; traffic goes on without us.
    fn guarded<T>(&mut self, now: Instant, act: impl FnOnce(&mut Bridge<L, R>) -> T) -> Option<T> {
        let bridge = &mut self.bridge;
        match catch_unwind(AssertUnwindSafe(|| act(bridge))) {
            Ok(done) => Some(done),
            Err(panic) => {
                let what = message(&*panic);
                weir_sys::say(&format!(
                    "the worker panicked ({what}); forwarding goes on without any discipline"
                ));
                self.failed = Some(what);
                self.bridge.forward_plainly(now);
                None
            }
        }
    }

    /// Answers what was asked.
    fn answer(&mut self) -> Then {
        while let Some(request) = self.later.pop_front().or_else(|| self.inbox.requests.try_recv().ok()) {
            // Who asked may have gone: that is not our concern.
            match request {
                Request::Stop => return Then::End,
                Request::Freeze { done } => {
                    if self.freeze(&done) {
                        return Then::Leave;
                    }
                }
                // Whoever froze it had given up before it stood still.
                Request::Thaw => {}
                Request::Leave => return Then::Leave,
                Request::State(to) => self.gathering = Some((to, None)),
                Request::Bypass { on, done } => {
                    let open = self.bridge.failing();
                    let _ = done.send(open.map(|open| open.bypass(on)).is_some());
                }
                Request::Layout { direction, done } => {
                    let mut all = self.bridge.directions().iter();
                    let port = all.find(|one| one.index() == direction).and_then(Direction::port);
                    let _ = done.send(port.map(Port::layout));
                }
                Request::Change { direction, change, done } => {
                    let now = weir_sys::now();
                    if change.brings_port() {
                        // A port that is whole again.
                        self.failed = None;
                    }
                    let act = |bridge: &mut Bridge<L, R>| {
                        let mut all = bridge.directions_mut().iter_mut();
                        match all.find(|one| one.index() == direction) {
                            Some(direction) => direction.change(now, change),
                            None => Changed::NoPort,
                        }
                    };
                    let _ = done.send(self.guarded(now, act).unwrap_or(Changed::NoPort));
                    // Of a tree that is gone nothing more is to be told.
                    self.gathering.iter_mut().for_each(|(_, gather)| *gather = None);
                }
                Request::Pause { done } => {
                    if done.send(()).is_ok() && self.stand_still() {
                        return Then::Leave;
                    }
                }
                Request::Fail { mut failing, asked, done } => {
                    if let Ok(open) = &mut failing {
                        open.set_prompt(self.priority.priority == Priority::Fifo);
                    }
                    let now = weir_sys::now();
                    // Who asked waits no longer by now, and had the kernel carry the traffic.
                    let late = u128::from(now.since(asked).as_nanos()) >= PATIENCE.as_nanos();
                    let _ = done.send(self.bridge.change_fail(now, failing, late));
                }
                Request::Edge { direction, act } => {
                    let now = weir_sys::now();
                    self.guarded(now, |bridge| {
                        let mut all = bridge.directions_mut().iter_mut();
                        match all.find(|one| one.index() == direction) {
                            Some(one) => one.with_edge(now, act),
                            None => act(None, now),
                        }
                    });
                }
                Request::Told(Told { direction, edge, order }) => {
                    let now = weir_sys::now();
                    self.guarded(now, |bridge| {
                        let mut all = bridge.directions_mut().iter_mut();
                        if let Some(one) = all.find(|one| one.index() == direction) {
                            one.obey(now, edge, order);
                        }
                    });
                }
                Request::Exchange { side, socket, done } => {
                    self.bridge.exchange(side, socket);
                    let _ = done.send(());
                }
            }
        }
        Then::GoOn
    }

    /// Stands still for a process that takes over: true if it has.
    fn freeze(&mut self, done: &Sender<io::Result<Frozen>>) -> bool {
        let frozen = self.frozen();
        let possible = frozen.is_ok();
        done.send(frozen).is_ok() && possible && self.stand_still()
    }

    /// Stands still between two steps: true if it is to leave then. Frames wait in the sockets meanwhile, and the
    /// heart beats, so that the kernel leaves them there. After [`FROZEN`] it beats no more: whoever is to decide is dead.
    fn stand_still(&mut self) -> bool {
        let since = weir_sys::now();
        loop {
            let now = weir_sys::now();
            if let Some(open) = self.bridge.failing()
                && now.since(since) < FROZEN
            {
                open.beat(now);
            }
            match self.inbox.requests.recv_timeout(std::time::Duration::from_nanos(HEARTBEAT.as_nanos())) {
                Ok(Request::Thaw) => return false,
                Ok(Request::Leave) | Err(RecvTimeoutError::Disconnected) => return true,
                Ok(request) => self.later.push_back(request),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// What another process needs to go on. All of it stays here, too.
    fn frozen(&mut self) -> io::Result<Frozen> {
        let now = weir_sys::now();
        let worker = WorkerEstate {
            started_ns: self.started.as_nanos(),
            cpu_ns: self.cpu().as_nanos(),
            spun_ns: self.spun.as_nanos(),
            steps: self.steps,
        };
        let told = self.guarded(now, |bridge| bridge.estate(now));
        let panicked = || Err(io::Error::other("the worker panicked"));
        let (directions, failing) = told.unwrap_or_else(panicked)?;
        Ok(Frozen { worker, failing, directions })
    }

    /// Processor time of this worker and of those before it.
    fn cpu(&self) -> Duration {
        self.cpu_before + weir_sys::thread_cpu()
    }

    /// All, at the end of the run.
    fn last(&mut self) -> BridgeState {
        BridgeState { egresses: egresses(&mut self.bridge, &self.names), ..self.head() }
    }

    /// All but the egresses.
    fn head(&self) -> BridgeState {
        BridgeState {
            interfaces: self.names.clone(),
            silent: None,
            uptime_ns: weir_sys::now().since(self.started).as_nanos(),
            cpu_ns: self.cpu().as_nanos(),
            spun_ns: self.spun.as_nanos(),
            steps: self.steps,
            priority: self.priority.to_string(),
            way: self.bridge.way(),
            without: self.bridge.fail_state(),
            failed: self.failed.clone(),
            workers: Vec::new(),
            egresses: Vec::new(),
        }
    }

    /// Tells the next part of the statistics that somebody asked for. A panic in it costs the answer,
    /// because statistics change nothing.
    fn gather(&mut self) {
        let Some((to, gather)) = self.gathering.take() else { return };
        let head = gather.is_none().then(|| self.head());
        let (bridge, names) = (&mut self.bridge, &self.names);
        let mut gather = gather.unwrap_or_else(Gather::new);
        let mut reached = true;
        let mut tell = |part| reached &= to.send(part).is_ok();
        let told = catch_unwind(AssertUnwindSafe(|| {
            if let Some(head) = head {
                tell(Part::Head(Box::new(BridgeState { egresses: heads(bridge, names), ..head })));
            }
            gather.slice(bridge, &mut tell)
        }));
        match told {
            // Who asked may have gone: that is not our concern.
            Ok(more) if more && reached => self.gathering = Some((to, Some(gather))),
            Ok(_) => {}
            Err(panic) => _ = to.send(Part::Failed(message(&*panic))),
        }
    }

    /// Goes to another processor, if it serves better there. Where frames come only if they are asked for, they come
    /// on its own.
    fn place(&mut self, now: Instant) {
        if let Some(placement) = &mut self.placement
            && !self.bridge.is_polled()
            && let Some(open) = self.bridge.failing()
        {
            placement.look(now, || open.receiving());
        }
    }

    /// Lets ordinary threads run, if it is time to; false if not.
    fn rest(&mut self, now: Instant) -> bool {
        let (began, used) = self.window;
        let window = now.since(began);
        if self.priority.priority != Priority::Fifo || window < WINDOW {
            return false;
        }
        let busy = weir_sys::thread_cpu().saturating_sub(used);
        let due = busy.as_nanos() * 20 >= window.as_nanos() * 19;
        if due {
            weir_sys::sleep_until(weir_sys::now() + Duration::from_nanos(window.as_nanos() / REST_PART));
        }
        self.window = (weir_sys::now(), weir_sys::thread_cpu());
        due
    }

    /// Sleeps until a frame comes, somebody rings, or it is nearly `next`; false if it is nearly
    /// `next` already, or if frames do not come unless they are asked for.
    fn pause(&mut self, next: Instant) -> bool {
        let gap = next.since(weir_sys::now()).saturating_sub(self.pace.spin);
        if gap.is_zero() || self.bridge.is_polled() {
            // The next step looks at the interfaces anyway.
            return false;
        }
        if !self.bridge.lies_down() {
            self.bridge.gets_up();
            return true;
        }
        let bell = self.inbox.bell.as_fd();
        let mut descriptors: [BorrowedFd<'_>; 4] = [bell; 4];
        let (mut count, mut all) = (1, true);
        if let Some(bell) = self.bridge.bell() {
            (descriptors[count], count) = (bell, count + 1);
        }
        for descriptor in self.bridge.descriptors() {
            let Some(descriptor) = descriptor else {
                all = false;
                continue;
            };
            descriptors[count] = descriptor;
            count += 1;
        }
        // An interface without descriptor (in memory) is looked at by steps alone.
        let longest = match self.bridge.fails_open() {
            _ if !all => Duration::from_millis(1),
            true => HEARTBEAT,
            false => LONGEST_SLEEP,
        };
        let readable = weir_sys::wait_for(&descriptors[..count], Some(gap.min(longest)));
        self.bridge.gets_up();
        // The bell is the first.
        let rang = readable.is_ok_and(|which| which & 1 != 0);
        let mut rings = [0; 64];
        while rang && (&self.inbox.bell).read(&mut rings).is_ok_and(|n| n == rings.len()) {}
        true
    }
}

//! The cores: what each does next, in virtual time.
//!
//! A core takes a frame that has come, or asks its part for a packet, in turn. Either takes it a while. Where neither is
//! there it waits for the next frame, or for the time that the part has named by the core's own clock. A call of the link waits
//! until no other core is in it.

use super::books::Books;
use super::town::{Arrivals, Kind, OVERHEAD, Subscriber, Town};
use super::{Door, spread};
use std::collections::VecDeque;
use weir_core::Random;
use weir_core::packet::{FrameRef, Meta};
use weir_core::queue::{Cx, Link, Next};
use weir_core::sched::Tree;
use weir_core::spread::{Ask, Credit, Lend, Loan};
use weir_core::units::{Fine, Instant, Rate};

/// The longest frame.
const MTU: u32 = 1_518;
/// Frames that wait for a core before the next one is lost.
const RING: usize = 4_096;
/// Packets that one who always has some has.
const GREEDY: u32 = 4;
/// The virtual time that a part lies about is shifted by so many bits.
const LIE: u32 = 6;

/// What is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Nothing.
    Nothing,
    /// A part sends twice what it was lent.
    Double,
    /// Parts borrow ten quanta at a time.
    Tenfold,
    /// What a part does not need is not given back.
    Kept,
    /// The first part says that it has come a 64th as far as it has.
    Liar,
}

/// When cores stand still.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stalls {
    /// Each core stands still once in so many nanoseconds; 0: never.
    pub every_ns: u64,
    /// For so long at most, and a tenth of it at least.
    pub longest_ns: u64,
    /// The first core, besides: from when, and how long, ns.
    pub first: Option<(u64, u64)>,
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Everything random follows from it.
    pub seed: u64,
    /// Cores, and parts of the tree.
    pub cores: usize,
    /// The link.
    pub rate: Rate,
    /// A loan.
    pub quantum_bytes: u64,
    /// What the link may send at once after a rest.
    pub depth_bytes: u64,
    /// What a frame costs a core until it is queued, ns.
    pub in_ns: u64,
    /// And until it has left, ns.
    pub out_ns: u64,
    /// A call of the link, ns: the lock, its line of memory from another core, the scan of the parts.
    pub call_ns: u64,
    /// Clocks of cores differ by so much at most, ns.
    pub skew_ns: u64,
    /// A core that waits comes back so much later at most, ns.
    pub wake_ns: u64,
    /// When cores stand still.
    pub stalls: Stalls,
    /// Virtual time, ns.
    pub until_ns: u64,
    /// What is wrong.
    pub wrong: Wrong,
}

impl Setting {
    /// Cores that never stand still, with what frames and calls cost a core of today, and loans of 32 kB.
    pub fn usual(seed: u64, cores: usize, rate: Rate, until_ns: u64) -> Self {
        Setting {
            seed,
            cores,
            rate,
            quantum_bytes: 32_000,
            depth_bytes: 256_000,
            in_ns: 300,
            out_ns: 400,
            call_ns: 200,
            skew_ns: 1_000,
            wake_ns: 1_000,
            stalls: Stalls::default(),
            until_ns,
            wrong: Wrong::Nothing,
        }
    }
}

/// What came of it.
pub struct Run {
    /// Packets that left.
    pub packets: u64,
    /// Bytes that left, divided by what the link carries.
    pub used: f64,
    /// Bytes that left in any window above what the link carries, divided by the bound.
    pub above: f64,
    /// Bytes that did not leave in any window of what the link carries, divided by the bound. For a link that is overloaded.
    pub below: f64,
    /// How far two sites of different parts came apart, divided by the bound.
    pub sites: f64,
    /// The same, of parts whose core did not stand still (`Stalls::first`).
    pub other_sites: f64,
    /// The same of subscribers of an access node.
    pub subscribers: f64,
    /// Calls of the link per packet.
    pub calls: f64,
    /// The share of time that some core is in the lock of the link.
    pub lock: f64,
    /// Most time that a call has waited for the lock, ns.
    pub lock_wait_ns: u64,
    /// The share of time that the busiest core worked.
    pub busiest: f64,
    /// And all of them on average.
    pub busy: f64,
    /// Frames that found no room at a core.
    pub lost: u64,
}

/// A door with what is wrong on purpose.
struct Twisted(Door, Wrong, usize);

impl Lend for Twisted {
    fn ask(&mut self, now: Instant, mut ask: Ask) -> Loan {
        let lies = self.1 == Wrong::Liar && self.2 == 0;
        if lies {
            ask.virtual_time = Fine::from_raw(ask.virtual_time.raw() >> LIE);
        }
        let mut loan = self.0.ask(now, ask);
        if lies {
            loan.virtual_time = Fine::from_raw((loan.virtual_time.raw() + 1) << LIE);
        }
        if self.1 == Wrong::Double {
            loan.bytes *= 2;
        }
        loan
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        let bytes = match self.1 {
            Wrong::Kept => 0,
            Wrong::Double => bytes / 2,
            Wrong::Nothing | Wrong::Tenfold | Wrong::Liar => bytes,
        };
        self.0.give_back(now, bytes);
    }
}

/// The lock of the link.
#[derive(Default)]
struct Lock {
    free_at: u64,
    calls: u64,
    busy_ns: u64,
    longest_wait_ns: u64,
}

impl Lock {
    /// So many calls at `at`, each of `call_ns`: when the last one is done.
    fn call(&mut self, at: u64, calls: u64, call_ns: u64) -> u64 {
        if calls == 0 {
            return at;
        }
        let start = at.max(self.free_at);
        self.longest_wait_ns = self.longest_wait_ns.max(start - at);
        self.free_at = start + calls * call_ns;
        (self.calls, self.busy_ns) = (self.calls + calls, self.busy_ns + calls * call_ns);
        self.free_at
    }
}

/// One core, with its part.
struct Core {
    tree: Tree,
    cx: Cx,
    arrivals: Arrivals,
    ring: VecDeque<(u32, u32)>,
    /// By leaf: the subscriber.
    subscribers: Vec<usize>,
    random: Random,
    /// How far its clock is ahead, ns.
    ahead_ns: u64,
    /// When it does its next step.
    next_ns: u64,
    /// It takes a frame next, if one has come.
    takes: bool,
    stall_ns: u64,
    worked_ns: u64,
    lost: u64,
}

impl Core {
    fn new(number: usize, tree: Tree, town: &Town, link: Link, setting: &Setting) -> Core {
        let mut random = Random::new(setting.seed ^ (number as u64 + 1) << 32);
        let subscribers: Vec<usize> =
            tree.leaves.iter().map(|leaf| leaf.name.parse().unwrap_or(usize::MAX)).collect();
        let own: Vec<Subscriber> = subscribers.iter().map(|&number| town.subscribers[number]).collect();
        let room = (own.len() as u32 * 2 * GREEDY).next_power_of_two().max(1 << 14);
        let mut core = Core {
            tree,
            cx: Cx::new(room, link, setting.seed),
            arrivals: Arrivals::new(random.next_u64(), own.clone()),
            ring: VecDeque::with_capacity(RING),
            subscribers,
            ahead_ns: random.below(setting.skew_ns + 1),
            next_ns: random.below(setting.wake_ns + 1),
            takes: false,
            stall_ns: next_stall(&mut random, 0, setting.stalls.every_ns),
            worked_ns: 0,
            lost: 0,
            random,
        };
        for (leaf, _) in own.iter().enumerate().filter(|(_, s)| s.kind == Kind::Greedy) {
            for _ in 0..GREEDY {
                let len = core.arrivals.len();
                core.offer(leaf as u32, len);
            }
        }
        core
    }
    fn offer(&mut self, leaf: u32, len: u32) {
        let mut meta = Meta::new(len, self.cx.now, FrameRef(0));
        meta.leaf = leaf;
        match self.cx.packets.insert(meta) {
            Ok(id) => _ = self.tree.discipline.enqueue(&mut self.cx, id),
            Err(_) => self.lost += 1,
        }
        while let Some((id, _)) = self.cx.next_dropped() {
            self.cx.packets.remove(id);
        }
    }
    /// Frames that have come by `at` stand in the ring.
    fn receive(&mut self, at: u64) {
        while self.arrivals.next_ns() <= at {
            let Core { arrivals, ring, lost, .. } = self;
            arrivals.burst(|leaf, len| {
                if ring.len() < RING {
                    ring.push_back((leaf, len));
                } else {
                    *lost += 1;
                }
            });
        }
    }
    /// It stands still, if it is time.
    fn stalls(&mut self, number: usize, at: u64, stalls: &mut Stalls) -> bool {
        let mut for_ns = 0;
        if at >= self.stall_ns {
            for_ns = stalls.longest_ns / 10 + self.random.below(stalls.longest_ns * 9 / 10 + 1);
            self.stall_ns = next_stall(&mut self.random, at + for_ns, stalls.every_ns);
        }
        if number == 0
            && let Some((_, long_ns)) = stalls.first.take_if(|(from, _)| at >= *from)
        {
            for_ns += long_ns;
        }
        self.next_ns = at + for_ns;
        for_ns > 0
    }
    /// What it does at `at`, its `next_ns`.
    fn step(
        &mut self,
        at: u64,
        setting: &Setting,
        door: &Door,
        lock: &mut Lock,
        books: &mut Books,
        town: &Town,
    ) {
        self.receive(at);
        self.cx.now = Instant::from_nanos(at + self.ahead_ns);
        if self.takes
            && let Some((leaf, len)) = self.ring.pop_front()
        {
            self.offer(leaf, len);
            self.next_ns = at + setting.in_ns;
            self.worked_ns += setting.in_ns;
            self.takes = false;
            return;
        }
        let before = door.asked();
        let next = self.tree.discipline.dequeue(&mut self.cx);
        let called = lock.call(at, door.asked() - before, setting.call_ns);
        self.worked_ns += called - at;
        self.takes = true;
        if let Next::Packet(id) = next {
            let row = self.cx.packets.get(&id);
            let (leaf, len) = (row.leaf, row.len);
            self.cx.packets.remove(id);
            let number = self.subscribers[leaf as usize];
            let subscriber = town.subscribers[number];
            books.left(at, number, subscriber.site, f64::from(len + OVERHEAD));
            let mut cost_ns = setting.out_ns;
            if subscriber.kind == Kind::Greedy {
                let len = self.arrivals.len();
                self.offer(leaf, len);
                cost_ns += setting.in_ns;
            }
            self.worked_ns += cost_ns;
            self.next_ns = called + cost_ns;
            return;
        }
        // The next frame, or the time that the part named. A look at both takes a nanosecond at least.
        let wake = match next {
            Next::At(turn) => turn.as_nanos().saturating_sub(self.ahead_ns),
            _ => u64::MAX,
        };
        let late = self.random.below(setting.wake_ns + 1);
        let next_ns =
            if self.ring.is_empty() { wake.min(self.arrivals.next_ns()).saturating_add(late) } else { at };
        self.next_ns = next_ns.max(called + 1);
    }
}

fn next_stall(random: &mut Random, at: u64, every_ns: u64) -> u64 {
    if every_ns == 0 { u64::MAX } else { at + every_ns / 2 + random.below(every_ns) }
}

/// Runs the town's link on the cores of `setting`.
///
/// # Errors
/// Why its tree cannot be cut.
pub fn run(town: &Town, setting: &Setting) -> Result<Run, String> {
    let link = Link::new(setting.rate, OVERHEAD, MTU);
    let doors = Door::all(&link, setting.cores, setting.quantum_bytes, setting.depth_bytes);
    let twisted = doors
        .iter()
        .enumerate()
        .map(|(part, door)| -> Box<dyn Lend> { Box::new(Twisted(door.clone(), setting.wrong, part)) });
    let tenfold = if setting.wrong == Wrong::Tenfold { 10 } else { 1 };
    let trees = spread(&town.node, link, setting.quantum_bytes * tenfold, twisted.collect());
    let trees = trees.map_err(|error| error.to_string())?;
    let new = |(number, tree)| Core::new(number, tree, town, link, setting);
    let mut cores: Vec<Core> = trees.into_iter().enumerate().map(new).collect();
    let mut part_of_site = vec![0; town.sites as usize];
    for (part, core) in cores.iter().enumerate() {
        core.subscribers.iter().for_each(|&s| part_of_site[town.subscribers[s].site as usize] = part);
    }
    let mut books = Books::new(town, setting.rate.as_bps() as f64 / 8e9, &part_of_site);
    let (mut lock, mut stalls) = (Lock::default(), setting.stalls);
    loop {
        let next = cores.iter_mut().enumerate().min_by_key(|(_, core)| core.next_ns);
        let Some((number, core)) = next.filter(|(_, core)| core.next_ns < setting.until_ns) else { break };
        let at = core.next_ns;
        if !core.stalls(number, at, &mut stalls) {
            core.step(at, setting, &doors[0], &mut lock, &mut books, town);
        }
    }
    books.come_to(setting.until_ns);
    for core in &cores {
        core.tree
            .discipline
            .check(&core.cx)
            .map_err(|broken| format!("{}: {}", broken.discipline, broken.what))?;
    }
    Ok(setting.judge(town, &books, &part_of_site, &cores, &lock))
}

impl Setting {
    fn judge(&self, town: &Town, books: &Books, part_of_site: &[usize], cores: &[Core], lock: &Lock) -> Run {
        let link = Link::new(self.rate, OVERHEAD, MTU);
        let quantum = Credit::quantum_bytes(&link, self.quantum_bytes) as f64;
        let (held, parts) = (1.5 * quantum, self.cores as f64);
        let rate = self.rate.as_bps() as f64 / 8e9;
        let above_bytes =
            self.depth_bytes.max(quantum as u64) as f64 + parts * held + rate * self.skew_ns as f64;
        let longest = f64::from(MTU + OVERHEAD);
        // What others have while a core stands still.
        let missed = |part: usize| {
            let first = self.stalls.first.filter(|_| part == 0).map_or(0, |(_, for_ns)| for_ns);
            let late = if self.stalls.every_ns > 0 { self.stalls.longest_ns + first } else { first };
            if late > 0 { rate * late as f64 + above_bytes } else { 0.0 }
        };
        let (sites, other_sites) = books.sites_apart(town, part_of_site, held, longest, missed);
        let until = self.until_ns as f64;
        let worked = |core: &Core| core.worked_ns as f64 / until;
        Run {
            packets: books.packets,
            used: books.bytes / (rate * until),
            above: books.above / above_bytes,
            below: books.below / (above_bytes + quantum),
            sites,
            other_sites,
            subscribers: books.subscribers_apart(longest),
            calls: lock.calls as f64 / books.packets.max(1) as f64,
            lock: lock.busy_ns as f64 / until,
            lock_wait_ns: lock.longest_wait_ns,
            busiest: cores.iter().map(worked).fold(0.0, f64::max),
            busy: cores.iter().map(worked).sum::<f64>() / parts,
            lost: cores.iter().map(|core| core.lost).sum(),
        }
    }
}

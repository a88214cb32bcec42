//! A day in seconds: the bridge's own loop over interfaces in memory, told the time by the test.
//! Files change, ports come and go, the worker stalls, the device is full: nothing drifts, leaks or
//! runs over.

#[path = "../../../weir-engine/tests/frames/mod.rs"]
mod frames;

use crate::Size;
use crate::applies::{FORTH, Kind, STAY, file};
use crate::page::Row;
use crate::probes::Load;
use frames::frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::Random;
use weir_core::packet::Key;
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};
use weir_engine::{Bridge, Change, Changed, Delay, Direction, Observe};
use weir_io::PoolSize;
use weir_io::memory::Memory;
use weir_sys::allocations::live_bytes_on_this_thread;

const FRAME_BYTES: usize = 1_000;
/// On the wire, with what the link adds.
const COST_BYTES: u64 = FRAME_BYTES as u64 + 24;
/// Buffers of the bridge.
const FRAMES: u32 = 4_096;
const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_S: u64 = 60;
/// The first minutes of each hour are measured: the link is full, and nothing happens.
const FULL_MINUTES: u64 = 10;
/// The file of those minutes: 256 kbit/s, in a bucket of three frames.
const BASE: &str = "interface right0 bandwidth 256K tbrsize 4000 priq attach bridge left0\n\
    class priq right0 c0 NULL priority 0 default qlimit 100\n\
    class priq right0 c1 NULL priority 1 qlimit 100\nfilter right0 c1 0 0 0 6001 17\n\
    class priq right0 c2 NULL priority 2 qlimit 100\nfilter right0 c2 0 0 0 6002 17\n\
    class priq right0 c3 NULL priority 3 qlimit 100\nfilter right0 c3 0 0 0 6003 17\n";
const RATE_BPS: u64 = 256_000;
const BUCKET_BYTES: u64 = 4_000;

fn plan(text: &str) -> PortPlan {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", text, &registry)
        .into_result()
        .unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let view = plan.interface("right0").unwrap();
    let link = view.link(1_514);
    view.build(&registry, link).unwrap().port_plan(link)
}

fn port(text: &str) -> Port {
    let plan = plan(text);
    let (link, _) = plan.regulated.unwrap();
    Port::new(PortConfig::new(link, WireConfig::Open), plan)
}

/// Counts what ports drop, whichever port it is.
struct Drops(Arc<AtomicU64>);

impl Observe for Drops {
    fn arrived(&mut self, _: usize, _: Instant, _: &Key, _: u32, _: u32) {}
    fn told(&mut self, _: usize, event: &Event<'_>) {
        if matches!(event.kind, EventKind::Dropped(_)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The bridge, what was fed into it, and what is known of what came out.
struct Day {
    base: &'static str,
    bridge: Bridge<Memory, Memory>,
    now: Instant,
    drops: Arc<AtomicU64>,
    fed: u64,
    sent: u64,
    /// The last number of each flow that left.
    last: Vec<Option<u32>>,
    overtaken: u64,
    twice: u64,
    applies: u32,
    stalls: u32,
}

impl Day {
    /// Begins with a file, of which whatever else runs meanwhile is no more than an interlude.
    fn new(start: Instant, base: &'static str) -> Day {
        let size = PoolSize { frames: FRAMES, tails: 4 };
        let drops: Arc<AtomicU64> = Arc::default();
        let mut forth = Direction::new(0, Some(port(base)), size, Delay::default());
        forth.observe(Box::new(Drops(drops.clone())));
        let back = Direction::new(1, None, PoolSize { frames: 64, tails: 0 }, Delay::default());
        let flows = usize::from(FORTH.flows);
        let bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
        let (fed, sent, overtaken, twice) = (0, 0, 0, 0);
        Day {
            base,
            bridge,
            now: start,
            drops,
            fed,
            sent,
            last: vec![None; flows],
            overtaken,
            twice,
            applies: 0,
            stalls: 0,
        }
    }

    fn feed(&mut self, count: u64) {
        for _ in 0..count {
            let mut bytes = frame(self.fed as u32, FRAME_BYTES, 0);
            let flow = (self.fed % u64::from(FORTH.flows)) as u16;
            bytes[34..36].copy_from_slice(&(Load::SOURCE + flow).to_be_bytes());
            self.bridge.interfaces().0.arriving.push_back(bytes);
            self.fed += 1;
        }
    }

    /// Steps at every event for so long.
    fn run(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            let step = self.bridge.step(self.now);
            self.drain();
            if step.more {
                continue;
            }
            if step.next >= until {
                break;
            }
            assert!(step.next > self.now, "the worker would spin at {:?}", self.now);
            self.now = step.next;
        }
        self.now = until;
    }

    fn drain(&mut self) {
        let Day { bridge, last, sent, overtaken, twice, .. } = self;
        for bytes in bridge.interfaces().1.sent.drain(..) {
            let number = frames::number(&bytes);
            let flow = (u16::from_be_bytes([bytes[34], bytes[35]]) - Load::SOURCE) as usize;
            *twice += u64::from(last[flow] == Some(number));
            *overtaken += u64::from((flow as u64) < STAY && last[flow].is_some_and(|last| last > number));
            last[flow] = Some(number);
            *sent += 1;
        }
    }

    fn apply(&mut self, change: Change) {
        match self.bridge.directions_mut()[0].change(self.now, change) {
            Changed::NoPort | Changed::InPlace(_) | Changed::Edge(..) => panic!("nothing was exchanged"),
            Changed::Exchanged(_) => self.applies += 1,
        }
        self.drain();
    }

    fn port(&self) -> &Port {
        self.bridge.directions()[0].port().unwrap()
    }

    /// Frames that came in and are neither sent nor told to be lost.
    fn missing(&mut self) -> i64 {
        let stats = self.bridge.io_stats();
        let known = self.sent + self.drops.load(Ordering::Relaxed) + stats[0].rx_nobuf + stats[1].tx_errors;
        self.fed as i64 - known as i64
    }

    /// As much as there ever is stands on the way out: what grows once, grows now.
    fn fill(&mut self) {
        self.bridge.interfaces().1.room = Some(0);
        self.apply(Change::Port(None));
        self.feed(2 * u64::from(FRAMES));
        self.run(Duration::from_secs(1));
        self.bridge.interfaces().1.room = None;
        self.apply(Change::Port(Some(Box::new(port(self.base)))));
        self.rest();
    }

    /// A link that is full for so long: by how many bytes more or less than its rate left.
    fn full(&mut self, minutes: u64) -> i64 {
        self.feed(90);
        self.run(Duration::from_secs(1));
        let (before, seconds) = (self.sent, minutes * MINUTE_S);
        for _ in 0..seconds {
            self.feed(32);
            self.run(Duration::from_secs(1));
            assert!(self.port().backlog().packets > 10, "the link is full");
        }
        ((self.sent - before) * COST_BYTES) as i64 - (RATE_BPS * seconds / 8) as i64
    }

    /// A minute in which anything may happen.
    fn minute(&mut self, random: &mut Random) {
        let pps = [0, 5, 20, 80][random.below(4) as usize];
        match random.below(8) {
            0 => {
                self.stalls += 1;
                self.feed(random.below(2_000));
                self.now += Duration::from_millis(random.below(20_000));
            }
            1 => self.bridge.interfaces().1.room = Some(random.below(30) as usize),
            2 => self.bridge.interfaces().1.longest = Some(500),
            3 => {
                self.apply(Change::Port(None));
                self.feed(random.below(100));
                self.run(Duration::from_millis(random.below(3_000)));
                self.apply(Change::Port(Some(Box::new(port(self.base)))));
            }
            _ => {
                let kind = Kind { rate_bps: (100_000, 400_000), narrow: random.below(2) == 0, workers: 1 };
                let text = file(random, &kind, None);
                self.apply(Change::Plan(Box::new(plan(&text))));
            }
        }
        for second in 0..MINUTE_S {
            self.feed(pps);
            self.run(Duration::from_secs(1));
            if second == 5 {
                let device = self.bridge.interfaces().1;
                (device.room, device.longest) = (None, None);
            }
        }
        self.port().check().unwrap();
        assert!(self.port().is_broken().is_none(), "{:?}", self.port().is_broken());
    }

    /// Nothing comes, and what is inside leaves.
    fn rest(&mut self) {
        self.apply(Change::Plan(Box::new(plan(self.base))));
        self.run(Duration::from_secs(3_600));
        assert_eq!(self.port().backlog().packets, 0);
    }
}

/// So many rounds of an hour of work and one of rest; each leaves `leak` bytes behind.
fn rounds(rounds: u64, base: &'static str, leak: usize) -> Vec<Row> {
    let mut random = Random::new(weir_seed::seed());
    // Halfway the clock passes 2^63 ns, so that what takes it for a signed number shows.
    let start = Instant::from_nanos((1 << 63) - rounds * 3_600 * SECOND_NS);
    let mut day = Day::new(start, base);
    day.fill();
    let (mut drifts, mut held) = (Vec::with_capacity(rounds as usize), Vec::with_capacity(rounds as usize));
    for _ in 0..rounds {
        drifts.push(day.full(FULL_MINUTES));
        for _ in FULL_MINUTES..60 {
            day.minute(&mut random);
        }
        day.rest();
        std::mem::forget(Vec::<u8>::with_capacity(leak));
        held.push(live_bytes_on_this_thread());
    }
    let missing = day.missing();
    let hours = day.now.since(start).as_nanos() / SECOND_NS / 3_600;
    let what =
        |of: &str| format!("{hours} h by a fast clock, {} changes, {} stalls: {of}", day.applies, day.stalls);

    let mut fate = Row::new(what("frames"), "each sent or counted, 0 twice, 0 overtaken");
    let counted = day.fed - day.sent;
    fate.found = format!(
        "{} came, {} left, {counted} counted as lost, {missing} unexplained, {} twice, {} overtaken",
        day.fed, day.sent, day.twice, day.overtaken
    );
    fate.expect((missing, day.twice, day.overtaken) == (0, 0, 0), || "not so".into());
    fate.expect(day.sent > 1_000 * rounds && counted > 0, || "too little happened".into());

    let most = drifts.iter().map(|bytes| bytes.unsigned_abs()).max().unwrap_or(0);
    let mut drift =
        Row::new(what("rate of a full link"), "off by a bucket and a frame at most, in every round");
    let expected = RATE_BPS * FULL_MINUTES * MINUTE_S / 8;
    drift.found = format!("{most} of {expected} bytes in {FULL_MINUTES} min at most");
    drift.expect(most <= BUCKET_BYTES + COST_BYTES, || "drifted".into());

    let mut memory = Row::new(what("memory"), "no more at the end than in the first half, but for 4 KB");
    let early = held[..held.len().div_ceil(2)].iter().max().copied().unwrap_or(0);
    let grown = held.last().map_or(0, |last| last - early);
    memory.found = format!("{early} bytes, then {grown:+}");
    memory.expect(grown <= 4_096, || format!("grew: {held:?}"));
    vec![fate, drift, memory]
}

pub fn rows(size: &Size) -> Vec<Row> {
    rounds(size.hours, BASE, 0)
}

/// Reversed: a rate that is half a percent off, classes that change under a flow, memory that is not given
/// back. Each is seen, and nothing else.
#[test]
fn a_day_with_a_fault_is_seen() {
    let held = |base: &'static str, leak: usize| {
        let rows = rounds(4, base, leak);
        [rows[0].held(), rows[1].held(), rows[2].held()]
    };
    let faster = Box::leak(BASE.replace("256K", "257300").into_boxed_str());
    let moved = Box::leak(BASE.replace("6002", "6009").into_boxed_str());
    assert_eq!(held(BASE, 0), [true, true, true]);
    assert_eq!(held(faster, 0), [true, false, true]);
    assert_eq!(held(moved, 0), [false, true, true]);
    assert_eq!(held(BASE, 100_000), [true, true, false]);
}

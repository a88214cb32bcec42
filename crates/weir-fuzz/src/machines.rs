//! State machines under calls that the bytes choose.

use arbitrary::{Result, Unstructured};
use weir_core::Random;
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::meter::{Action, Conditioners, Meter, TokenBucket};
use weir_core::packet::{Dscp, Family, FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::{DropReason, Link, Params, Value};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant, Rate};
use weir_testkit::generate::{self, Below, Generator};
use weir_testkit::{conformance, model};

/// A time ahead: mostly short, seldom years.
fn ahead(input: &mut Unstructured<'_>) -> Result<u64> {
    let bits = input.int_in_range(0..=58)?;
    input.int_in_range(0..=1u64 << bits)
}

/// Drains, refills and changes of rate, beside the exact model where there are none.
pub fn bucket(bytes: &[u8]) {
    let _ = bucket_calls(&mut Unstructured::new(bytes));
}

fn bucket_calls(input: &mut Unstructured<'_>) -> Result<()> {
    let rate = input.int_in_range(1..=400_000_000_000)?;
    let depth = input.int_in_range(1..=1 << 30)?;
    let mut bucket = TokenBucket::new(Rate::from_bps(rate), depth);
    let mut exact = model::TokenBucket::new(rate, depth);
    let mut now = Instant::ZERO;
    while !input.is_empty() {
        now += Duration::from_nanos(ahead(input)?);
        let bytes = input.int_in_range(0..=70_000)?;
        assert_eq!(bucket.bytes(now), exact.bytes(now.as_nanos()), "at {now}");
        let passes = bucket.take(now, bytes);
        assert_eq!(passes, exact.take(now.as_nanos(), u64::from(bytes)), "{bytes} bytes at {now}");
    }
    Ok(())
}

/// One meter of every kind, over another.
pub fn conditioner(bytes: &[u8]) {
    let _ = conditioner_calls(&mut Unstructured::new(bytes));
}

fn meter(input: &mut Unstructured<'_>) -> Result<Meter> {
    let (low, high) = (input.int_in_range(1..=5_000_000_000)?, input.int_in_range(0..=5_000_000_000)?);
    let (rate, peak) = (Rate::from_bps(low), Rate::from_bps(low + high));
    let burst = input.int_in_range(1..=1_000_000)?;
    let more = input.int_in_range(1..=1_000_000)?;
    let aware = input.arbitrary()?;
    Ok(match input.int_in_range(0..=3)? {
        0 => Meter::TokenBucket { rate, depth: burst },
        1 => Meter::SingleRate { rate, burst, excess: more, aware },
        2 => Meter::TwoRate { rate, burst, peak, peak_burst: more, aware, rfc4115: input.arbitrary()? },
        _ => Meter::TimeWindow {
            rate,
            peak,
            window: Duration::from_nanos(1 + input.int_in_range(0..=1u64 << 40)?),
        },
    })
}

fn conditioner_calls(input: &mut Unstructured<'_>) -> Result<()> {
    let meter = meter(input)?;
    let ends = [Action::Pass, Action::Mark(Dscp::EF), Action::Drop];
    let actions = ends.into_iter().take(meter.results()).collect();
    let named = [("c".to_owned(), Action::Meter { meter, actions })];
    let filter = Filter::new(Family::V4, 0, 1).exactly(Field::Protocol, 17);
    let Ok(mut made) = Conditioners::new(Classifier::compile([filter]), &named) else {
        panic!("a meter with an action for each result is refused");
    };
    let mut random = Random::new(1);
    let mut now = Instant::ZERO;
    let link = Link::new(Rate::from_mbps(10), 24, 1_514);
    let (mut strangers, mut calls) = (0, 0);
    while !input.is_empty() && calls < 2_000 {
        calls += 1;
        now += Duration::from_nanos(ahead(input)?);
        let known = input.arbitrary()?;
        let key = Key { family: Family::V4, protocol: if known { 17 } else { 6 }, ..Key::default() };
        let judged = made.judge(now, input.int_in_range(0..=70_000)?, &link, &key, &mut random);
        strangers += u64::from(!known);
        assert!(judged.dscp < 64);
        assert!(known || judged.passes, "a packet that no filter names was policed");
        assert_eq!(made.unmatched(), strangers);
    }
    Ok(())
}

/// A discipline from the registry, over whatever else there is, for as many calls as there are bytes.
pub fn discipline(bytes: &[u8]) {
    let registry = Registry::builtin();
    let built: Vec<_> = registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
    let mut input = Unstructured::new(bytes);
    let Ok((name, seed)) = choose(&mut input, &built) else { return };
    let calls = 8 * bytes.len().clamp(25, 250) as u32;
    if let Err(failure) = conformance::tree(&registry, name, seed, calls) {
        panic!("{failure}");
    }
}

fn choose<'a>(input: &mut Unstructured<'_>, names: &[&'a str]) -> Result<(&'a str, u64)> {
    Ok((names[input.choose_index(names.len())?], input.arbitrary()?))
}

/// A port under receive, advance, swap, flush, reconfigure and fall back.
pub fn port(bytes: &[u8]) {
    let _ = port_calls(&mut Unstructured::new(bytes));
}

/// What became of every packet that was offered, by the number of its frame.
#[derive(Default)]
struct Ledger {
    ended: Vec<bool>,
    last: Instant,
}

impl Ledger {
    fn hear(&mut self, event: Event<'_>) {
        assert!(event.at >= self.last, "an event at {} after one at {}", event.at, self.last);
        self.last = event.at;
        if event.kind != EventKind::Taken {
            let ended = &mut self.ended[event.meta.frame.0 as usize];
            assert!(!*ended, "packet {} ended twice: {:?}", event.meta.frame.0, event.kind);
            *ended = true;
        }
    }
    fn inside(&self) -> u64 {
        self.ended.iter().filter(|ended| !**ended).count() as u64
    }
}

/// A tree of anything that is registered, with filters to its leaves.
fn plan(input: &mut Unstructured<'_>, registry: &Registry, link: Link) -> Result<Option<PortPlan>> {
    let names: Vec<_> = registry.iter().filter(|e| e.build.is_some()).map(|e| e.name).collect();
    let name = names[input.choose_index(names.len())?];
    let mut generator = Generator::new(registry, link, input.arbitrary()?);
    // Some disciplines have no configuration on some links.
    let Ok((_, tree)) = generator.tree(name, Below::Anything(1)) else { return Ok(None) };
    let leaves = tree.leaves.len() as u32;
    let filters = (0..leaves.min(15))
        .map(|leaf| Filter::new(Family::V4, leaf, leaf).exactly(Field::DstPort, u128::from(leaf) + 1));
    Ok(Some(PortPlan::new(tree, Classifier::compile(filters.collect::<Vec<_>>()))))
}

fn port_calls(input: &mut Unstructured<'_>) -> Result<()> {
    let registry = Registry::builtin();
    let link = generate::link(&mut Random::new(input.arbitrary()?));
    let wire = match input.int_in_range(0..=2)? {
        0 => WireConfig::Open,
        1 => WireConfig::Regulator { depth_bytes: input.int_in_range(0..=100_000)? },
        _ => WireConfig::Link { ring: input.int_in_range(1..=64)?, refill: Refill::Packet },
    };
    let mut config = PortConfig::new(link, wire);
    config.capacity = input.int_in_range(1..=300)?;
    let Some(first) = plan(input, &registry, link)? else { return Ok(()) };
    let mut port = Port::new(config, first);
    let mut ledger = Ledger::default();
    let mut now = Instant::ZERO;
    // At the end of the bytes all that is inside leaves.
    while let Ok(call) = input.int_in_range(0..=31) {
        if input.is_empty() {
            break;
        }
        let hear = &mut |event: Event<'_>| ledger.hear(event);
        match call {
            0 => {
                if let Some(plan) = plan(input, &registry, link)? {
                    port.swap(now, plan, hear);
                }
            }
            1 => port.flush(now, DropReason::Flush, hear),
            2 => port.fall_back(now, hear),
            3 => {
                let name = port.leaves().first().map(|l| l.name.clone()).unwrap_or_default();
                let mut params = Params::new();
                params.set("qlimit", Value::Count(input.int_in_range(0..=100)?));
                // Refused where the discipline has no such word: then nothing has changed.
                let _ = port.reconfigure(now, &name, &params, hear);
            }
            4..=9 => {
                now += Duration::from_nanos(ahead(input)? >> 20);
                port.advance(now, hear);
            }
            10..=13 => {
                now = now.max(port.next_wake_up().min(now + Duration::from_secs(3_600)));
                port.advance(now, hear);
            }
            _ => {
                let frame = FrameRef(ledger.ended.len() as u32);
                ledger.ended.push(false);
                let dst_port = input.int_in_range(0..=16)?;
                let tos = input.arbitrary()?;
                let key = Key { family: Family::V4, protocol: 17, dst_port, tos, ..Key::default() };
                let len = input.int_in_range(0..=9_014)?;
                port.receive(now, len, frame, &key, &mut |event| ledger.hear(event));
            }
        }
        assert_eq!(port.check(), Ok(()));
        assert_eq!(ledger.inside(), port.backlog().packets + u64::from(port.in_ring()), "at {now}");
    }
    drain(&mut port, now, &mut ledger);
    Ok(())
}

/// Whatever a clock can release leaves; what is held by a rate of 0 is flushed.
fn drain(port: &mut Port, mut now: Instant, ledger: &mut Ledger) {
    for _ in 0..100_000 {
        let next = port.next_wake_up();
        if next == Instant::NEVER {
            break;
        }
        now = now.max(next);
        port.advance(now, &mut |event| ledger.hear(event));
    }
    assert_eq!(port.in_ring(), 0, "a ring does not empty itself");
    port.flush(now, DropReason::Flush, &mut |event| ledger.hear(event));
    assert_eq!(ledger.inside(), 0, "packets that neither left nor were dropped");
}

//! The short ways of a packet against the plain ones.

use super::super::class::Settings;
use super::super::link_sharing::Rule;
use super::super::member::NONE;
use super::super::{Cbq, Options};
use crate::Random;
use crate::packet::{FrameRef, Meta};
use crate::queue::{Child, Cx, Discipline, Leaf, Link, Next, Params, Routes, Value, Verdict};
use crate::units::{Duration, Instant, Rate};
use alloc::vec::Vec;

/// Classes below a root or below one another, with whatever options.
fn draw(random: &mut Random, link: &Link) -> (Options, Vec<Settings>) {
    let rule = [Rule::TopLevel, Rule::Formal, Rule::AncestorOnly][random.below(3) as usize];
    let mut options = Options { rule, ..Options::DEFAULT };
    options.efficient = random.below(3) == 0;
    options.prr = random.below(4) == 0;
    options.callback = random.below(8) == 0;
    options.minidle = random.below(4) > 0;
    let mut settings = [Settings::new("root", NONE, link)].to_vec();
    let classes = 2 + random.below(8);
    for class in 1..=classes {
        let parent = if random.below(3) == 0 { random.below(class) as u32 } else { 0 };
        let share = Rate::from_bps(link.rate.as_bps() / classes / (1 + random.below(2)));
        let mut params = Params::new().with("exactbandwidth", Value::Rate(share));
        params.set("priority", Value::Count(random.below(2)));
        params.set("minburst", Value::Count(1 + random.below(2)));
        if random.below(3) > 0 {
            params.set("borrow", Value::Flag);
        }
        settings.push(Settings::new("c", parent, link).read(&params, link).expect("a class"));
    }
    (options, settings)
}

/// A scheduler with a packet table of its own.
struct Bed {
    cbq: Cbq,
    cx: Cx,
}

impl Bed {
    fn new(options: Options, settings: &[Settings], link: Link, plain: bool) -> Bed {
        let children: Vec<Child> = settings.iter().map(|_| Child::leaf(Leaf::tail_drop(9))).collect();
        let ranges: Vec<_> = (0..settings.len() as u32).map(|n| n..n + 1).collect();
        let mut cbq = Cbq::new(options, settings.to_vec(), children, Routes::new(&ranges), link);
        cbq.plain = plain;
        Bed { cbq, cx: Cx::new(128, link, 1) }
    }
    fn offer(&mut self, leaf: u32, len: u32) -> Verdict {
        let meta = Meta { leaf, ..Meta::new(len, self.cx.now, FrameRef(0)) };
        let id = self.cx.packets.insert(meta).expect("room");
        let verdict = self.cbq.enqueue(&mut self.cx, id);
        while let Some((id, _)) = self.cx.next_dropped() {
            self.cx.packets.remove(id);
        }
        verdict
    }
    /// The leaf and the length of the packet that goes, or what is waited for.
    fn take(&mut self) -> Result<(u32, u32), Next> {
        match self.cbq.dequeue(&mut self.cx) {
            Next::Packet(id) => {
                let row = self.cx.packets.get(&id);
                let (leaf, len, now) = (row.leaf, row.len, self.cx.now);
                self.cbq.on_sent(&mut self.cx, &id, now);
                self.cx.packets.remove(id);
                Ok((leaf, len))
            }
            next => Err(next),
        }
    }
}

/// A scheduler that chooses anew for each packet, and counts each against its class and all ancestors by the
/// plain way, decides the same and leaves the same. Reversed: one whose packets are a byte longer does not.
#[test]
fn the_short_ways_are_the_plain_ones() {
    let (mut again, mut alone, mut differs) = (0, 0, 0);
    for seed in weir_seed::seeds(200) {
        let mut random = Random::new(seed);
        let link =
            Link::new(Rate::from_bps([64_000, 10_000_000, 1_000_000_007][seed as usize % 3]), 20, 1_500);
        let (options, settings) = draw(&mut random, &link);
        let [mut short, mut plain, mut longer] =
            [false, true, false].map(|plain| Bed::new(options, &settings, link, plain));
        let (mut now, mut same) = (Instant::ZERO, true);
        for step in 0..600 {
            let (leaf, len) = (random.below(settings.len() as u64) as u32, 40 + random.below(1_400) as u32);
            let told = alloc::format!("seed {seed}, step {step}");
            if random.below(5) < 2 + step / 100 % 2 {
                assert_eq!(short.offer(leaf, len), plain.offer(leaf, len), "{told}");
                longer.offer(leaf, len + 1);
                continue;
            }
            plain.cbq.sharing.books.forget();
            again += u32::from(short.cbq.sharing.books.goes_on());
            let took = short.take();
            assert_eq!(took, plain.take(), "{told}");
            same &= took == longer.take().map(|(leaf, len)| (leaf, len - 1));
            let states = [&short, &plain].map(|bed| {
                let members = bed.cbq.sharing.members.iter();
                members.map(|m| (m.of.estimator, m.wake(), m.since(), m.is_queued())).collect::<Vec<_>>()
            });
            assert_eq!(states[0], states[1], "{told}");
            assert_eq!(short.cbq.check(&short.cx), Ok(()), "{told}");
            now += match took {
                Ok((leaf, len)) => {
                    alone += u32::from(short.cbq.sharing.members[leaf as usize].is_charged_alone());
                    Duration::from_nanos(link.time_for(len).ceil().as_nanos() * random.below(3))
                }
                Err(Next::At(at)) => at.since(now),
                Err(_) => link.time_for(100).ceil().since(Instant::ZERO),
            };
            for bed in [&mut short, &mut plain, &mut longer] {
                bed.cx.now = now;
            }
        }
        differs += u32::from(!same);
    }
    assert!(again > 1_000 && alone > 1_000, "{again} choices again, {alone} charged alone");
    assert!(differs > 100, "{differs} differ");
}

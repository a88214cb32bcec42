//! The discipline after every arrival against the formulas in floats: least rates, what classes give
//! one another, least rates that give way, the steps of the feedback, and the drops for bounds that
//! cannot hold. Rows J22 and J23.

use super::super::{Adjusted, Delegate, Sample, delegated};
use super::{jobs, real, values};
use crate::Random;
use crate::queue::Value;
use crate::sched::testing::Bench;
use crate::sched::{Build, Entry, Registry};
use crate::units::{Duration, Fraction, Rate};
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

/// A class as the formulas see it. Times are in nanoseconds, rates in parts of the link.
#[derive(Clone, Default, Debug)]
struct Plain {
    bound: Option<u64>,
    loss_bound: Option<Fraction>,
    floor: f64,
    factor: Option<f64>,
    /// When each of its packets came, and its bytes.
    packets: VecDeque<(u64, u64)>,
    last_delay: u64,
    rate: f64,
    /// Bytes of this busy period.
    arrived: u64,
    lost: u64,
    /// It has sent something in this busy period.
    served: bool,
}

impl Plain {
    fn is_bounded(&self) -> bool {
        self.bound.is_some() || self.floor > 0.0
    }
    fn waited(&self, now: u64) -> u64 {
        self.packets.front().map_or(0, |packet| now - packet.0)
    }
    /// Time until its oldest packet is late.
    fn left(&self, now: u64) -> Option<u64> {
        self.bound.map(|bound| bound.saturating_sub(self.waited(now)))
    }
    /// The loss with `more` bytes, in units of 2^-32.
    fn loss(&self, more: u64) -> u64 {
        let part = self.lost + more;
        if part > 0 && part >= self.arrived { 1 << 32 } else { (part << 32) / self.arrived.max(1) }
    }
    fn would_break(&self, more: u64) -> bool {
        let part = u128::from(self.lost + more) << 32;
        self.loss_bound.is_some_and(|bound| part > u128::from(bound.raw()) * u128::from(self.arrived))
    }
    /// Its last packet stays until it has sent something in this busy period.
    fn can_spare(&self) -> bool {
        self.packets.len() > 1 || self.served
    }
}

struct Model {
    classes: Vec<Plain>,
    /// Nanoseconds that a byte takes.
    per_byte: u64,
    exact: bool,
    loss_first: bool,
    drop_head: bool,
    rated: Vec<usize>,
    sample: u64,
    until: u64,
    adjusted: u64,
    /// 16 in the discipline: how many steps a delay has.
    gain: f64,
    /// What the last arrival cost: class, when it came, bytes.
    dropped: Vec<(usize, u64, u64)>,
    /// A decision was so close that rounding makes it.
    unsure: bool,
    /// How far rates may be off since the last reset: parts of great needs are exact to 2^-23 of these.
    error: f64,
}

impl Model {
    fn backlogged(&self) -> Vec<usize> {
        (0..self.classes.len()).filter(|&c| !self.classes[c].packets.is_empty()).collect()
    }
    fn bounded(&self) -> Vec<usize> {
        self.backlogged().into_iter().filter(|&c| self.classes[c].is_bounded()).collect()
    }
    fn work(&self, class: usize) -> f64 {
        self.classes[class].packets.iter().map(|packet| (packet.1 * self.per_byte) as f64).sum()
    }
    /// Whether what a class has is gone within that time at that rate.
    fn suffices(&mut self, class: usize, rate: f64, left: u64) -> bool {
        let ratio = rate * left as f64 / self.work(class);
        let close = 1e-5 + self.error / rate.max(1e-3);
        self.unsure |= (1.0 - close..1.0 - 1e-9).contains(&ratio);
        // The even part of a reset is rounded down there, and may be what is needed.
        let count = self.backlogged().len();
        let even = 1.0 / count as f64;
        self.unsure |= !count.is_power_of_two() && (rate - even).abs() < 1e-12 && (ratio - 1.0).abs() < 1e-9;
        // Where rates may be off, one that is just enough may be a little less there.
        self.unsure |= self.error > 0.0 && (ratio - 1.0).abs() < close;
        // So is what a class gets that lacks a part of its floor.
        self.unsure |= rate < self.classes[class].floor - 1e-9 && (ratio - 1.0).abs() < close;
        ratio > 1.0 - 1e-9
    }
    fn is_late(&mut self, class: usize, now: u64) -> bool {
        let Some(left) = self.classes[class].left(now) else { return false };
        left == 0 || !self.suffices(class, self.classes[class].rate, left)
    }
    /// B / (d - D), or more by right; the link for one that is overdue.
    fn least(&self, class: usize, now: u64) -> f64 {
        let floor = self.classes[class].floor;
        match self.classes[class].left(now) {
            None => floor,
            Some(0) => 1.0,
            // Nobody asks for more than 1,024 links.
            Some(left) => floor.max((self.work(class) / left as f64).min(1_024.0)),
        }
    }
    /// The same for all; those that are overdue ask for equal parts of the link.
    fn least_rates(&self, now: u64) -> Vec<f64> {
        let is_overdue = |c: usize| self.classes[c].left(now) == Some(0);
        let backlogged = self.backlogged();
        let overdue = backlogged.iter().filter(|&&c| is_overdue(c)).count();
        let of = |c: usize| match is_overdue(c) {
            _ if !backlogged.contains(&c) => 0.0,
            true => 1.0 / overdue as f64,
            false => self.least(c, now),
        };
        (0..self.classes.len()).map(of).collect()
    }
    fn arrive(&mut self, class: usize, now: u64, len: u64) {
        self.dropped.clear();
        if self.backlogged().is_empty() {
            self.rated.clear();
            for class in &mut self.classes {
                (class.rate, class.last_delay, class.arrived, class.lost) = (0.0, 0, 0, 0);
                class.served = false;
            }
        }
        self.classes[class].arrived += len;
        self.classes[class].packets.push_back((now, len));
        let backlogged = self.backlogged();
        let mut since = Some(now - self.adjusted);
        if self.rated != backlogged {
            self.classes.iter_mut().for_each(|class| class.rate = 0.0);
            self.error = 0.0;
            backlogged.iter().for_each(|&c| self.classes[c].rate = 1.0 / backlogged.len() as f64);
            (self.rated, self.until, since) = (backlogged, 0, None);
        }
        if self.until == 0 {
            self.until = self.sample;
            self.adjusted = now;
            self.keep_bounds(now);
            self.step(now, since);
        }
        self.until -= 1;
    }
    fn keep_bounds(&mut self, now: u64) {
        if self.exact {
            while self.drop_what_harms_least(now) {}
        }
        self.give(&self.least_rates(now));
        if !self.exact {
            for class in self.bounded() {
                while self.classes[class].can_spare()
                    && self.is_too_much(class, self.classes[class].rate, now)
                    && let Some(len) = self.victim(class)
                    && (self.loss_first || !self.classes[class].would_break(len))
                {
                    self.drop_one(class);
                }
            }
            self.give(&self.least_rates(now));
        }
        // Where a delay bound does not hold, least rates give way.
        if self.bounded().into_iter().any(|c| self.is_late(c, now)) {
            let mut least = self.least_rates(now);
            for (class, least) in self.classes.iter().zip(&mut least) {
                *least = if class.bound.is_some() { *least } else { 0.0 };
            }
            self.give(&least);
        }
    }
    /// True if what a class has is late at that rate, and a drop would help.
    fn is_too_much(&mut self, class: usize, rate: f64, now: u64) -> bool {
        let Some(left) = self.classes[class].left(now) else { return false };
        if left > 0 {
            return !self.suffices(class, rate, left);
        }
        let Some(newest) = self.classes[class].packets.back() else { return false };
        let bound = self.classes[class].bound.unwrap_or(0);
        let left = bound.saturating_sub(now - newest.0);
        self.drop_head || !self.suffices(class, rate, left)
    }
    /// The bytes of the packet that a class would lose.
    fn victim(&self, class: usize) -> Option<u64> {
        let packets = &self.classes[class].packets;
        let victim = if self.drop_head { packets.front() } else { packets.back() };
        victim.map(|packet| packet.1)
    }
    fn drop_one(&mut self, class: usize) {
        let packets = &mut self.classes[class].packets;
        let victim = if self.drop_head { packets.pop_front() } else { packets.pop_back() };
        let (came, len) = victim.expect("a victim was looked at");
        self.classes[class].lost += len;
        self.dropped.push((class, came, len));
    }
    /// Until the least rates fit, the class pays whose loss harms least of those that ask for too much.
    fn drop_what_harms_least(&mut self, now: u64) -> bool {
        let mut least = self.least_rates(now);
        // A packet that stays in any case asks for nothing beside the floor of its class.
        for (class, least) in self.classes.iter().zip(&mut least) {
            *least = if class.can_spare() { *least } else { least.min(class.floor) };
        }
        let sum: f64 = least.iter().sum();
        self.unsure |= (sum - 1.0).abs() < 1e-9 && sum != 1.0;
        let mut best: Option<((u8, u64), usize)> = None;
        for c in self.bounded() {
            // Whether it asks for more than its floor: a quotient is rounded up there.
            let quotient = |left: u64| self.work(c) / left as f64;
            let left = self.classes[c].left(now).filter(|&left| left > 0);
            self.unsure |= left.is_some_and(|left| (quotient(left) - self.classes[c].floor).abs() < 1e-9);
            let asks_for_too_much = match self.classes[c].left(now) {
                _ if !self.classes[c].can_spare() => false,
                None => false,
                Some(0) => self.is_too_much(c, 1.0, now),
                Some(_) => sum > 1.0 && least[c] > self.classes[c].floor,
            };
            let Some(victim) = self.victim(c).filter(|_| asks_for_too_much) else { continue };
            let class = &self.classes[c];
            let harm = match class.loss_bound {
                Some(bound) if class.would_break(victim) => (2, class.loss(victim) - bound.raw()),
                Some(_) => (1, class.loss(0)),
                None => (0, class.loss(0)),
            };
            if best.is_none_or(|(least, _)| harm <= least) {
                best = Some((harm, c));
            }
        }
        match best {
            Some(((kind, _), class)) if kind < 2 || self.loss_first => {
                self.drop_one(class);
                true
            }
            _ => false,
        }
    }
    /// From all that have more than their least rates, in proportion, to those that have less.
    fn give(&mut self, least: &[f64]) {
        let (mut need, mut have) = (0.0, 0.0);
        let backlogged = self.backlogged();
        for &c in &backlogged {
            need += (least[c] - self.classes[c].rate).max(0.0);
            have += (self.classes[c].rate - least[c]).max(0.0);
        }
        if need == 0.0 || have == 0.0 {
            return;
        }
        if need > have {
            self.error += need * 2f64.powi(-23);
        }
        let moved = need.min(have);
        for &c in &backlogged {
            let rate = self.classes[c].rate;
            self.classes[c].rate += (least[c] - rate).max(0.0) * (moved / need);
            self.classes[c].rate -= (rate - least[c]).max(0.0) * (moved / have);
        }
    }
    /// One step in every chain; a whole one after a reset.
    fn step(&mut self, now: u64, since: Option<u64>) {
        let (mut first, backlogged) = (0, self.backlogged());
        while first < self.classes.len() {
            let (mut last, mut products) = (first, vec![1.0]);
            while let Some(factor) = self.classes[last].factor.filter(|_| last + 1 < self.classes.len()) {
                products.push(products[last - first] * factor);
                last += 1;
            }
            let least = products.iter().copied().fold(f64::INFINITY, f64::min);
            let weighed = (first..=last).map(|c| (c, least / products[c - first]));
            let members: Vec<_> = weighed.filter(|member| backlogged.contains(&member.0)).collect();
            if members.len() > 1 {
                self.step_of(&members, now, since);
            }
            first = last + 1;
        }
    }
    fn step_of(&mut self, members: &[(usize, f64)], now: u64, since: Option<u64>) {
        let load = |&(c, weight): &(usize, f64)| {
            let class = &self.classes[c];
            let delay = class.waited(now).max(class.last_delay) as f64;
            match since {
                Some(_) => (c, weight * (self.work(c) + class.rate * delay) / 2.0),
                None => (c, weight * self.work(c)),
            }
        };
        let mut free: Vec<_> = members.iter().map(load).collect();
        let mut whole: f64 = members.iter().map(|member| self.classes[member.0].rate).sum();
        let x = free.iter().map(|member| member.1).sum::<f64>() / whole;
        let eta = since.map_or(1.0, |h| (self.gain * h as f64 / x).min(1.0));
        // A class that has waited long passes an error of its rate on: its load has the rate times the delay.
        let passed_on = |&(c, weight): &(usize, f64)| {
            let class = &self.classes[c];
            weight * class.waited(now).max(class.last_delay) as f64 / (2.0 * x)
        };
        let most = members.iter().map(passed_on).fold(0.0, f64::max);
        self.error *= if since.is_some() { (1.0 - eta + eta * most).max(1.0) } else { 1.0 };
        let mut targets = Vec::new();
        // Those that would have less than their least rates have these, until nobody else would.
        loop {
            let sum: f64 = free.iter().map(|member| member.1).sum();
            let part = |load: f64| if sum > 0.0 { whole * load / sum } else { 0.0 };
            let least = |c: usize| self.least(c, now).min(self.classes[c].rate);
            let (held, others): (Vec<_>, Vec<_>) = free.iter().partition(|&&(c, load)| part(load) < least(c));
            if held.is_empty() {
                targets.extend(free.iter().map(|&(c, load)| (c, part(load))));
                break;
            }
            targets.extend(held.iter().map(|&(c, _)| (c, least(c))));
            whole -= held.iter().map(|&(c, _)| least(c)).sum::<f64>();
            free = others;
        }
        for (c, target) in targets {
            self.classes[c].rate += eta * (target - self.classes[c].rate);
        }
    }
}

/// Adjusts at once and answers when asked.
struct InPlace(Option<Adjusted>);
impl Delegate for InPlace {
    fn start(&mut self, sample: Sample) {
        self.0 = Some(sample.adjust());
    }
    fn finished(&mut self) -> Option<Adjusted> {
        self.0.take()
    }
}

fn delegating() -> Registry {
    let mut registry = Registry::builtin();
    let entry = *registry.find("jobs").expect("it is built in");
    let build: Build = |node, builder| delegated(node, builder, Box::new(InPlace(None)));
    registry.register(Entry { build: Some(build), ..entry });
    registry
}

const NO_LOSS: Option<Fraction> = Some(Fraction::ZERO);

/// A drawn discipline over a drawn link, and its model. Without `drops` every class has a loss bound of
/// 0, which forbids all drops.
fn draw(registry: &Registry, random: &mut Random, drops: bool) -> (Bench, Model) {
    let flag = |random: &mut Random| random.below(2) == 0;
    let per_byte = [125_000, 1_000, 8][random.below(3) as usize];
    let bps = 8_000_000_000 / per_byte;
    let (mut classes, mut terms) = (Vec::new(), Vec::new());
    for _ in 0..1 + random.below(5) {
        let (mut class, mut given) = (Plain { loss_bound: NO_LOSS, ..Plain::default() }, Vec::new());
        if drops {
            class.loss_bound = flag(random).then(|| Fraction::ratio(random.below(60), 100));
        }
        given.extend(class.loss_bound.map(|bound| ("alc", Value::Fraction(bound))));
        if random.below(3) > 0 {
            let factor = [0.5, 1.0, 1.5, 2.0, 4.0][random.below(5) as usize];
            class.factor = Some(factor);
            given.push(("rdc", real(factor)));
        }
        if random.below(3) == 0 {
            let percent = 1 + random.below(60);
            class.floor = percent as f64 / 100.0;
            given.push(("arc", Value::Rate(Rate::from_bps(bps / 100 * percent))));
        }
        if random.below(if drops { 2 } else { 3 }) == 0 {
            let bound = per_byte * 1_000 * (1 + random.below(60));
            class.bound = Some(bound);
            given.push(("adc", Value::Time(Duration::from_nanos(bound))));
        }
        classes.push(class);
        terms.push(given);
    }
    let sample = if flag(random) { 1 } else { 1 + random.below(5) };
    let mut params = vec![("sample", Value::Count(sample)), ("qlimit", Value::Count(10_000))];
    let mut set = |word, value: Value, is_set: bool| params.extend(is_set.then_some((word, value)));
    let [exact, loss_first, drop_head] = [(); 3].map(|()| drops && flag(random));
    set("exact-drops", Value::Flag, exact);
    set("relax", Value::Word("loss-first"), loss_first);
    set("drop-head", Value::Flag, drop_head);
    let terms: Vec<&[_]> = terms.iter().map(|given| &given[..]).collect();
    let bench = Bench::of(registry, &jobs(&params, &terms), Rate::from_bps(bps), 1);
    let (rated, dropped) = (Vec::new(), Vec::new());
    let (until, adjusted, gain, unsure, error) = (0, 0, 16.0, false, 0.0);
    let model = Model {
        classes,
        per_byte,
        exact,
        loss_first,
        drop_head,
        rated,
        sample,
        until,
        adjusted,
        gain,
        dropped,
        unsure,
        error,
    };
    (bench, model)
}

/// Runs both. False from the first arrival after which a share is not that of the model, or other
/// packets were dropped. How many drops there were comes with it.
fn agree(mut bench: Bench, mut model: Model, random: &mut Random) -> (bool, usize) {
    let count = model.classes.len() as u64;
    for _ in 0..300 {
        let now = bench.cx.now.as_nanos();
        let known = bench.dropped.len();
        if random.below(9) < 5 {
            let (leaf, len) = (random.below(count) as usize, 40 + random.below(1_461));
            bench.offer(len as u32, |m| m.leaf = leaf as u32);
            model.arrive(leaf, now, len);
            if model.unsure {
                break;
            }
            let lost = bench.dropped[known..].iter();
            let lost = lost.map(|(m, _)| (m.leaf as usize, m.arrival.as_nanos(), u64::from(m.len)));
            let close = 5.0 + 1e6 * model.error;
            let same = |(share, class): (&i64, &Plain)| (*share as f64 - class.rate * 1e6).abs() < close;
            if !values(&bench, "share").iter().zip(&model.classes).all(same)
                || !lost.eq(model.dropped.clone())
            {
                return (false, bench.dropped.len());
            }
        } else {
            let sent = bench.serve();
            // Under `loss-first` a packet that is late when it could leave is dropped.
            for (meta, _) in &bench.dropped[known..] {
                let class = &mut model.classes[meta.leaf as usize];
                assert!(class.bound.is_some_and(|bound| class.waited(now) > bound) && model.loss_first);
                class.packets.pop_front();
                class.lost += u64::from(meta.len);
            }
            if let Some(sent) = sent {
                let class = &mut model.classes[sent.leaf as usize];
                class.packets.pop_front();
                (class.last_delay, class.served) = (now - sent.arrival.as_nanos(), true);
            }
        }
        let packet = 1_000 * model.per_byte;
        bench.cx.now += Duration::from_nanos(random.below(2 * packet) * random.below(3));
    }
    bench.check();
    (true, bench.dropped.len())
}

/// In place, and by a delegate. Reversed: with half the gain the rates are others.
#[test]
fn j23_rates_are_those_of_the_formulas_after_every_arrival() {
    for registry in [Registry::builtin(), delegating()] {
        let run = |seed: u64, gain: f64| {
            let random = &mut Random::new(seed);
            let (bench, model) = draw(&registry, random, false);
            agree(bench, Model { gain, ..model }, random)
        };
        for seed in weir_seed::seeds(400) {
            assert_eq!(run(seed, 16.0), (true, 0), "seed {seed}");
        }
        let differ = weir_seed::seeds(100).filter(|&seed| !run(seed, 8.0).0).count();
        assert!(differ > 20, "{differ} of 100 runs see another gain");
    }
}

/// What bounds cost, in every order in which they may give way. Reversed: where the model drops the
/// newest packet for the oldest, or the other way round, other packets are dropped.
#[test]
fn j22_drops_for_bounds_are_those_of_the_formulas() {
    let run = |seed: u64, reversed: bool| {
        let random = &mut Random::new(seed);
        let (bench, model) = draw(&Registry::builtin(), random, true);
        let drop_head = model.drop_head != reversed;
        agree(bench, Model { drop_head, ..model }, random)
    };
    let mut drops = 0;
    for seed in weir_seed::seeds(600) {
        let (same, dropped) = run(seed, false);
        assert!(same, "seed {seed}");
        drops += dropped;
    }
    assert!(drops > 5_000, "{drops} packets were dropped");
    let differ = weir_seed::seeds(100).filter(|&seed| !run(seed, true).0).count();
    assert!(differ > 20, "{differ} of 100 runs see other packets dropped");
}

//! JoBS's rates and drops against the exact model, and against one that is wrong on purpose.

use weir_core::Random;
use weir_core::packet::{FrameRef, Meta};
use weir_core::queue::{Cx, Link, Params, Value};
use weir_core::sched::{ClassConfig, Node, Registry, Tree};
use weir_core::units::{Duration, Fixed, Fraction, Instant, Rate};
use weir_testkit::model::{JobsClass, JobsDrops, Ratio, jobs_harm, jobs_rates};
use weir_testkit::values_of;

/// At 8 Mbit/s a byte takes a microsecond.
const LINK_BPS: u64 = 8_000_000;
/// The grain of times, so that the exact model's numbers fit.
const STEP_US: u64 = 100;
const FACTORS: [(i64, u64); 5] = [(1, 2), (1, 1), (3, 2), (2, 1), (4, 1)];

fn factor(random: &mut Random) -> (Ratio, Value) {
    let (n, d) = FACTORS[random.below(5) as usize];
    let value = Fixed::ratio(n, d).expect("a small number");
    (Ratio::new(i128::from(n), i128::from(d)), Value::Real(value))
}

struct Bed {
    cx: Cx,
    tree: Tree,
    offered: u32,
}

impl Bed {
    fn new(params: Params, classes: Vec<Params>) -> Self {
        let link = Link::new(Rate::from_bps(LINK_BPS), 0, 1_514);
        let class = |(n, params): (usize, Params)| ClassConfig {
            name: format!("c{n}"),
            params: params.with("priority", Value::Count(n as u64)),
            ..ClassConfig::default()
        };
        let node = Node {
            discipline: "jobs".into(),
            params,
            classes: classes.into_iter().enumerate().map(class).collect(),
        };
        let tree = Registry::builtin().build(&node, link).expect("a configuration that builds");
        Bed { cx: Cx::new(10_000, link, 1), tree, offered: 0 }
    }
    /// Offers a packet; answers the classes that lost one.
    fn offer(&mut self, class: usize, len: u64) -> Vec<usize> {
        let mut meta = Meta::new(len as u32, self.cx.now, FrameRef(self.offered));
        meta.leaf = class as u32;
        self.offered += 1;
        let id = self.cx.packets.insert(meta).expect("room in the table");
        let _ = self.tree.discipline.enqueue(&mut self.cx, id);
        let mut lost = Vec::new();
        while let Some((id, _)) = self.cx.next_dropped() {
            lost.push(self.cx.packets.get(&id).leaf as usize);
            self.cx.packets.remove(id);
        }
        lost
    }
    /// The share of each class, in millionths.
    fn shares(&self) -> Vec<i64> {
        values_of(self.tree.discipline.as_ref(), "share")
    }
}

/// How many of `cases` have the rates of the model, and how many could be compared.
fn agreeing_rates(cases: u64, distort: bool) -> (u32, u32) {
    let (mut agree, mut compared) = (0, 0);
    for seed in weir_seed::seeds(cases) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(5) as usize;
        let (mut model, mut params) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (mut class, mut given) = (JobsClass::default(), Params::new());
            if random.below(2) == 0 {
                let (exact, value) = factor(&mut random);
                class.delay_factor = Some(exact);
                given.set("rdc", value);
            }
            if random.below(3) == 0 {
                let percent = 1 + random.below(60 / count as u64);
                class.floor = Some(Ratio::new(i128::from(percent), 100));
                given.set("arc", Value::Rate(Rate::from_bps(LINK_BPS / 100 * percent)));
            }
            if random.below(3) == 0 {
                // In steps, as the gaps below: the model sums quotients by what is left of the bounds.
                let bound_us = STEP_US * (200 + random.below(2_000));
                class.delay_bound = Some(bound_us);
                given.set("adc", Value::Time(Duration::from_micros(bound_us)));
            }
            model.push(class);
            params.push(given);
        }
        let mut bed = Bed::new(Params::new().with("qlimit", Value::Count(1_000)), params);
        // The last class becomes backlogged last: then rates are reset, and whatever was before
        // does not count.
        let last = random.below(count as u64) as usize;
        let (mut now_us, mut lost) = (0, false);
        let mut came = vec![0; count];
        for n in 0..=40 {
            let class = if n == 40 { last } else { random.below(count as u64) as usize };
            if n < 40 && class == last {
                continue;
            }
            now_us += STEP_US * random.below(3);
            bed.cx.now = Instant::from_micros(now_us);
            let len = 40 + random.below(1_461);
            if model[class].packets.is_empty() {
                came[class] = now_us;
            }
            model[class].packets.push(len);
            lost |= !bed.offer(class, len).is_empty();
        }
        for (class, came) in model.iter_mut().zip(came) {
            class.age = now_us - came;
            if distort {
                class.delay_factor = class.delay_factor.map(|f| f + f);
            }
        }
        let (Some(rates), false) = (jobs_rates(&model), lost) else { continue };
        compared += 1;
        let close = |(share, rate): (&i64, &Ratio)| (*share as f64 - rate.to_f64() * 1e6).abs() <= 2.0;
        let same = bed.shares().iter().zip(&rates).all(close);
        assert!(distort || same, "seed {seed}: {:?} are not {rates:?} of {model:?}", bed.shares());
        agree += u32::from(same);
    }
    (agree, compared)
}

#[test]
fn jobs_rates_after_a_reset_are_those_of_the_model() {
    let (agree, compared) = agreeing_rates(4_000, false);
    assert!(agree == compared && compared > 2_000, "{agree} of {compared}");
    let (agree, compared) = agreeing_rates(1_000, true);
    assert!(agree < compared * 9 / 10, "other factors, the same rates: {agree} of {compared}");
}

/// How many drops of how many are as the model would have them.
fn agreeing_drops(cases: u64, distort: bool) -> (u32, u32) {
    let (mut agree, mut drops) = (0, 0);
    for seed in weir_seed::seeds(cases) {
        let mut random = Random::new(seed);
        let count = 2 + random.below(5) as usize;
        let (mut model, mut params) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (mut class, mut given) = (JobsClass::default(), Params::new());
            if random.below(2) == 0 {
                let (exact, value) = factor(&mut random);
                class.loss_factor = Some(if distort { exact + exact } else { exact });
                given.set("rlc", value);
            }
            if random.below(3) == 0 {
                // Exact in units of 2^-32.
                let of_64 = 1 + random.below(32);
                class.loss_bound = Some(Ratio::new(i128::from(of_64), 64));
                given.set("alc", Value::Fraction(Fraction::ratio(of_64, 64)));
            }
            model.push(class);
            params.push(given);
        }
        let way = JobsDrops { oldest: random.below(3) == 0, by_packets: random.below(3) == 0 };
        let mut words = Params::new().with("qlimit", Value::Count(12));
        if way.oldest {
            words.set("drop-head", Value::Flag);
        }
        if way.by_packets {
            words.set("counters", Value::Word("packets"));
        }
        let mut bed = Bed::new(words, params);
        for n in 0..200 {
            let class = random.below(count as u64) as usize;
            let len = 40 + random.below(1_461);
            let counted = |len: u64| if way.by_packets { 1 } else { len };
            model[class].arrived += counted(len);
            let lost = bed.offer(class, len);
            if n < 12 {
                assert!(lost.is_empty(), "seed {seed}: a drop without need");
                model[class].packets.push(len);
                continue;
            }
            let [victim] = lost[..] else { panic!("seed {seed}: {lost:?} made room for one") };
            let harms = jobs_harm(&model, class, len, way);
            let least = harms.iter().map(|(_, harm)| *harm).min().expect("somebody pays");
            let found = harms.iter().find(|(c, _)| *c == victim).map(|(_, harm)| *harm);
            // As good as the least, within 2^-20.
            let good = found.is_some_and(|(kind, harm)| {
                kind == least.0 && (harm.to_f64() - least.1.to_f64()).abs() < 1.0 / f64::from(1 << 20)
            });
            assert!(distort || good, "seed {seed}, offer {n}: class {victim} of {harms:?} in {model:?}");
            agree += u32::from(good);
            drops += 1;
            model[class].packets.push(len);
            let packets = &mut model[victim].packets;
            let gone = if way.oldest { packets.remove(0) } else { packets.pop().expect("it had packets") };
            model[victim].dropped += counted(gone);
        }
    }
    (agree, drops)
}

#[test]
fn jobs_drops_whom_the_model_drops() {
    let (agree, drops) = agreeing_drops(500, false);
    assert!(agree == drops && drops > 50_000, "{agree} of {drops}");
    let (agree, drops) = agreeing_drops(200, true);
    assert!(agree < drops * 99 / 100, "other factors, the same victims: {agree} of {drops}");
}

//! JoBS's decisions in exact numbers (Christin and Liebeherr, "The QoSbox", Computer Networks 50,
//! 2006, section 2.4): the rates that follow a change of the backlogged set, and whose packet
//! dies when the buffer is full. The rate feedback is Weir's; see the book's page.

use super::Ratio;

/// A class at the moment of a decision.
#[derive(Clone, Debug, Default)]
pub struct JobsClass {
    /// Lengths of its packets, the oldest first.
    pub packets: Vec<u64>,
    /// How long the oldest has waited, in transmission times of a byte.
    pub age: u64,
    /// Its delay bound, in the same unit.
    pub delay_bound: Option<u64>,
    /// Its least rate, a share of the link.
    pub floor: Option<Ratio>,
    /// Delay of the next class by its own.
    pub delay_factor: Option<Ratio>,
    /// Its loss bound.
    pub loss_bound: Option<Ratio>,
    /// Loss of the next class by its own.
    pub loss_factor: Option<Ratio>,
    /// Bytes that came in this busy period, or packets where these are counted.
    pub arrived: u64,
    /// Those of them that were dropped.
    pub dropped: u64,
}

fn one() -> Ratio {
    Ratio::whole(1)
}

/// For each class the members of its chain, and the product of the factors before it in there.
fn chains(factors: &[Option<Ratio>]) -> Vec<(Vec<usize>, Ratio)> {
    let mut all = Vec::new();
    let mut start = 0;
    while start < factors.len() {
        let mut end = start;
        while end + 1 < factors.len() && factors[end].is_some() {
            end += 1;
        }
        let mut product = one();
        for factor in &factors[start..=end] {
            all.push(((start..=end).collect(), product));
            product = factor.map_or(product, |factor| product * factor);
        }
        start = end + 1;
    }
    all
}

/// The rates, as shares of the link, just after the set of backlogged classes has changed; `None`
/// where not all bounds can hold, and packets must be dropped.
pub fn jobs_rates(classes: &[JobsClass]) -> Option<Vec<Ratio>> {
    let backlogged: Vec<usize> = (0..classes.len()).filter(|&c| !classes[c].packets.is_empty()).collect();
    let bytes = |c: usize| Ratio::whole(classes[c].packets.iter().sum::<u64>());
    let mut rates = vec![Ratio::ZERO; classes.len()];
    let mut least = rates.clone();
    for &c in &backlogged {
        rates[c] = Ratio::new(1, backlogged.len() as i128);
        least[c] = classes[c].floor.unwrap_or(Ratio::ZERO);
        if let Some(bound) = classes[c].delay_bound {
            if bound <= classes[c].age {
                return None;
            }
            least[c] = least[c].max(bytes(c) / Ratio::whole(bound - classes[c].age));
        }
    }
    let above = |c: usize, rates: &[Ratio]| (rates[c] - least[c]).max(Ratio::ZERO);
    let below = |c: usize, rates: &[Ratio]| (least[c] - rates[c]).max(Ratio::ZERO);
    let total = |of: &dyn Fn(usize) -> Ratio| backlogged.iter().fold(Ratio::ZERO, |sum, &c| sum + of(c));
    let (have, need) = (total(&|c| above(c, &rates)), total(&|c| below(c, &rates)));
    if need > have {
        return None;
    }
    if need > Ratio::ZERO {
        for &c in &backlogged {
            rates[c] = rates[c] - above(c, &rates) * need / have + below(c, &rates);
        }
    }
    let factors: Vec<_> = classes.iter().map(|class| class.delay_factor).collect();
    let chains = chains(&factors);
    for &c in &backlogged {
        let members: Vec<usize> =
            chains[c].0.iter().copied().filter(|m| !classes[*m].packets.is_empty()).collect();
        if members[0] == c && members.len() > 1 {
            step(&members, &mut rates, &least, &|m| bytes(m) / chains[m].1);
        }
    }
    Some(rates)
}

/// Shares what the members have by their weighted backlogs, each at least its least rate.
fn step(members: &[usize], rates: &mut [Ratio], least: &[Ratio], load: &dyn Fn(usize) -> Ratio) {
    let mut left = members.iter().fold(Ratio::ZERO, |sum, &m| sum + rates[m]);
    let mut free = members.to_vec();
    loop {
        let sum = free.iter().fold(Ratio::ZERO, |sum, &m| sum + load(m));
        let part = |m: usize, left: Ratio| left * load(m) / sum;
        let (held, others): (Vec<_>, Vec<_>) = free.iter().copied().partition(|&m| part(m, left) < least[m]);
        if held.is_empty() {
            free.iter().for_each(|&m| rates[m] = part(m, left));
            return;
        }
        for m in held {
            rates[m] = least[m];
            left = left - least[m];
        }
        free = others;
        if free.is_empty() {
            return;
        }
    }
}

/// Which packet a class loses, and what loss is counted in.
#[derive(Clone, Copy, Default, Debug)]
pub struct JobsDrops {
    /// Its oldest, not its newest.
    pub oldest: bool,
    /// Packets, not bytes.
    pub by_packets: bool,
}

/// How much it harms that a class loses a packet: the kind of harm, worst last, and how much.
pub type JobsHarm = (u8, Ratio);

/// The classes that may pay for a packet of `len` bytes of class `comes`, which counts as arrived
/// already, in a full shared buffer: each with the harm.
pub fn jobs_harm(classes: &[JobsClass], comes: usize, len: u64, drops: JobsDrops) -> Vec<(usize, JobsHarm)> {
    let factors: Vec<_> = classes.iter().map(|class| class.loss_factor).collect();
    let chains = chains(&factors);
    let chained = |c: usize| chains[c].0.len() > 1;
    let present = |c: &usize| *c == comes || !classes[*c].packets.is_empty();
    let harm = |c: usize| {
        let class = &classes[c];
        let oldest = class.packets.first().filter(|_| drops.oldest);
        let newest = if c == comes { Some(&len) } else { class.packets.last() };
        let victim = match drops.by_packets {
            true => 1,
            false => *oldest.or(newest).expect("it has packets"),
        };
        let share = |bytes: u64| Ratio::new(i128::from(bytes), i128::from(class.arrived.max(1)));
        let weight = chains[c].0.iter().fold(chains[c].1, |least, &m| least.min(chains[m].1)) / chains[c].1;
        match class.loss_bound {
            Some(bound) if share(class.dropped + victim) > bound => {
                (2, share(class.dropped + victim) - bound)
            }
            Some(_) if !chained(c) => (1, share(class.dropped)),
            _ => (0, share(class.dropped) * weight),
        }
    };
    let all: Vec<usize> = (0..classes.len()).filter(present).collect();
    // The group with most packets, the newcomer's own if equal.
    let mut largest: Option<(usize, bool, Vec<usize>)> = None;
    for &c in &all {
        if !chained(c) && classes[c].loss_bound.is_some() {
            continue;
        }
        let group: Vec<usize> = chains[c].0.iter().copied().filter(present).collect();
        let own = group.contains(&comes);
        let size = group.iter().map(|&m| classes[m].packets.len()).sum::<usize>() + usize::from(own);
        if largest.as_ref().is_none_or(|(most, of_own, _)| (size, own) > (*most, *of_own)) {
            largest = Some((size, own, group));
        }
    }
    let group = largest.map_or_else(|| all.clone(), |(_, _, group)| group);
    let weigh = |of: &[usize]| of.iter().map(|&c| (c, harm(c))).collect::<Vec<_>>();
    let inside = weigh(&group);
    if inside.iter().all(|(_, (kind, _))| *kind == 2) { weigh(&all) } else { inside }
}

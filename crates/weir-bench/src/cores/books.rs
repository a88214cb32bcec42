//! What has left, against the laws: how far the link's rate was exceeded, and how far apart classes that share came.

use super::town::Town;

/// Members of a group that share: what each has had, divided by its share, and how far apart two of them came.
pub struct Pairs {
    shares: Vec<f64>,
    had: Vec<f64>,
    /// By pair: the least and the most by which one was ahead of the other.
    apart: Vec<(f64, f64)>,
    /// Those of the same crowd are not compared.
    crowds: Option<Vec<usize>>,
}

impl Pairs {
    /// Members with these shares. `crowds`: only members of different ones are compared.
    pub fn new(shares: Vec<f64>, crowds: Option<Vec<usize>>) -> Pairs {
        let count = shares.len();
        Pairs { had: vec![0.0; count], apart: vec![(0.0, 0.0); count * count], shares, crowds }
    }
    fn is_compared(&self, one: usize, other: usize) -> bool {
        one != other && self.crowds.as_ref().is_none_or(|crowds| crowds[one] != crowds[other])
    }
    /// A member has had `bytes` more.
    pub fn charge(&mut self, member: usize, bytes: f64) {
        self.had[member] += bytes / self.shares[member];
        let count = self.shares.len();
        for other in 0..count {
            if self.is_compared(member, other) {
                let (low, high) = (member.min(other), member.max(other));
                let ahead = self.had[low] - self.had[high];
                let (least, most) = &mut self.apart[low * count + high];
                (*least, *most) = (least.min(ahead), most.max(ahead));
            }
        }
    }
    /// The most, over pairs, by which the two came apart in any window, divided by `bound` of the two.
    pub fn worst(&self, bound: impl Fn(usize, usize) -> f64) -> f64 {
        let count = self.shares.len();
        let pairs = (0..count).flat_map(|low| (low + 1..count).map(move |high| (low, high)));
        pairs.filter(|&(low, high)| self.is_compared(low, high)).fold(0.0, |worst: f64, (low, high)| {
            let (least, most) = self.apart[low * count + high];
            worst.max((most - least) / bound(low, high))
        })
    }
}

/// Where a subscriber stands in a group of those who always have packets.
#[derive(Clone, Copy)]
struct Place {
    group: usize,
    member: usize,
}

/// The accounts of the link.
pub struct Books {
    /// Bytes per nanosecond.
    rate: f64,
    /// Bytes on the wire.
    pub(super) bytes: f64,
    pub(super) packets: u64,
    /// What left less what the link carries: the least and the most so far.
    least: f64,
    most: f64,
    /// The most above a least before it, and below a most before it.
    pub(super) above: f64,
    pub(super) below: f64,
    /// Sites that always have packets.
    pub(super) sites: Pairs,
    /// By access node: its subscribers who always have packets.
    pub(super) subscribers: Vec<Pairs>,
    place_of_site: Vec<Option<usize>>,
    place_of: Vec<Option<Place>>,
}

impl Books {
    pub(super) fn new(town: &Town, rate: f64, part_of_site: &[usize]) -> Books {
        let mut units_of_site = vec![0.0; town.sites as usize];
        let mut of_access: Vec<Vec<f64>> = vec![Vec::new(); town.accesses as usize];
        let share = |units: u64| units as f64 / town.units as f64;
        let mut place_of = Vec::with_capacity(town.subscribers.len());
        for subscriber in &town.subscribers {
            units_of_site[subscriber.site as usize] += share(subscriber.units);
            place_of.push((subscriber.kind == super::town::Kind::Greedy).then(|| {
                let group = subscriber.access as usize;
                of_access[group].push(share(subscriber.units));
                Place { group, member: of_access[group].len() - 1 }
            }));
        }
        let (mut shares, mut parts) = (Vec::new(), Vec::new());
        let place_of_site = (0..town.sites).map(|site| {
            town.is_greedy(site).then(|| {
                shares.push(units_of_site[site as usize]);
                parts.push(part_of_site[site as usize]);
                shares.len() - 1
            })
        });
        let place_of_site = place_of_site.collect();
        Books {
            rate,
            bytes: 0.0,
            packets: 0,
            least: 0.0,
            most: 0.0,
            above: 0.0,
            below: 0.0,
            sites: Pairs::new(shares, Some(parts)),
            subscribers: of_access.into_iter().map(|shares| Pairs::new(shares, None)).collect(),
            place_of_site,
            place_of,
        }
    }
    /// Time has come to `at_ns`, before what leaves then has left.
    pub(super) fn come_to(&mut self, at_ns: u64) {
        let ahead = self.bytes - self.rate * at_ns as f64;
        self.least = self.least.min(ahead);
        self.below = self.below.max(self.most - ahead);
    }
    /// How far apart sites of different parts came, divided by the bound of the pair: all, and those of parts but the first.
    ///
    /// `held` is the most credit of a part, `longest` a packet, and `missed` what others have while the core of a part
    /// stands still, bytes.
    pub(super) fn sites_apart(
        &self,
        town: &Town,
        part_of_site: &[usize],
        held: f64,
        longest: f64,
        missed: impl Fn(usize) -> f64,
    ) -> (f64, f64) {
        let parts = part_of_site.iter().max().map_or(0, |most| most + 1);
        // By part: the shares of sites that always have packets, and the least share of any.
        let (mut busy, mut least) = (vec![0.0; parts], vec![f64::MAX; parts]);
        let mut of_site = vec![0.0; town.sites as usize];
        for subscriber in &town.subscribers {
            of_site[subscriber.site as usize] += subscriber.units as f64 / town.units as f64;
        }
        let mut part_of = Vec::new();
        for (site, &part) in part_of_site.iter().enumerate() {
            least[part] = least[part].min(of_site[site]);
            if self.place_of_site[site].is_some() {
                busy[part] += of_site[site];
                part_of.push(part);
            }
        }
        let of_part = |part: usize| {
            2.0 * held / busy[part] + 3.0 * longest / least[part] + missed(part) / (1.0 - busy[part])
        };
        let bound = |one: usize, other: usize| of_part(part_of[one]) + of_part(part_of[other]);
        let is_first = |one: usize, other: usize| part_of[one] == 0 || part_of[other] == 0;
        let beside = |one, other| if is_first(one, other) { f64::INFINITY } else { bound(one, other) };
        (self.sites.worst(bound), self.sites.worst(beside))
    }
    /// How far apart subscribers of an access node came, divided by a packet of each of the two.
    pub(super) fn subscribers_apart(&self, longest: f64) -> f64 {
        let of = |pairs: &Pairs| {
            pairs.worst(|one, other| longest / pairs.shares[one] + longest / pairs.shares[other])
        };
        self.subscribers.iter().map(of).fold(0.0, f64::max)
    }
    /// `bytes` of a subscriber have left at `at_ns`.
    pub(super) fn left(&mut self, at_ns: u64, subscriber: usize, site: u32, bytes: f64) {
        self.come_to(at_ns);
        self.bytes += bytes;
        self.packets += 1;
        let ahead = self.bytes - self.rate * at_ns as f64;
        self.most = self.most.max(ahead);
        self.above = self.above.max(ahead - self.least);
        if let Some(member) = self.place_of_site[site as usize] {
            self.sites.charge(member, bytes);
        }
        if let Some(Place { group, member }) = self.place_of[subscriber] {
            self.subscribers[group].charge(member, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_apart_by_what_one_has_had_more() {
        let mut pairs = Pairs::new(vec![0.5, 0.25, 0.25], Some(vec![0, 1, 1]));
        pairs.charge(0, 100.0);
        pairs.charge(1, 100.0);
        pairs.charge(2, 1_000.0);
        // 0 was 200 ahead of 1, and 200 behind it: 400. 2 is 3,800 ahead of 0, which was 200 ahead. 1 and 2 are of one crowd.
        assert!((pairs.worst(|_, _| 1.0) - 4_000.0).abs() < 1e-9);
        assert!(
            (pairs.worst(|low, high| if (low, high) == (0, 1) { 1.0 } else { 1e9 }) - 400.0).abs() < 1e-9
        );
    }
}

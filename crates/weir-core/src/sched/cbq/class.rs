//! A class: what its configuration says, checked, and what it counts.

use super::estimator::{Estimator, Shape, Transmission};
use super::link_sharing::{Rule, levels};
use super::member::{LEVELS, NONE, Pick};
use super::options::{Options, PARAMS};
use crate::queue::params::{self, default_of};
use crate::queue::{Child, Link, ParamError, Params, Scope, Value, Visit};
use crate::units::{Bounded, Duration, Instant, Rate};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Packets that a queue holds where nothing says otherwise; with RED, twice as many.
const QLIMIT: u32 = default_of(PARAMS, "qlimit") as u32;
/// The shortest queue that `maxdelay` makes, packets.
const LEAST_QLIMIT: u64 = 4;
/// Where a packet of a class outlasts this, `maxburst` is 4 by default instead of what is declared.
const SLOW_PACKET: Duration = Duration::from_millis(10);

/// The parameters of one class.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub name: String,
    pub parent: u32,
    pub rate: Rate,
    pub priority: u8,
    pub borrows: bool,
    maxburst: Option<u32>,
    minburst: u32,
    packet_bytes: u32,
    pub largest_bytes: u32,
    maxdelay: Duration,
    qlimit: Option<u32>,
    red: bool,
}

impl Settings {
    /// Those of a class before anything is said.
    pub fn new(name: &str, parent: u32, link: &Link) -> Self {
        let mtu = link.mtu.clamp(1, 65_535);
        Settings {
            name: name.to_string(),
            parent,
            // The root is the link, unless it says otherwise.
            rate: if parent == NONE { link.rate } else { Rate::ZERO },
            priority: default_of(PARAMS, "priority") as u8,
            borrows: false,
            maxburst: None,
            minburst: default_of(PARAMS, "minburst") as u32,
            packet_bytes: mtu,
            largest_bytes: mtu,
            maxdelay: Duration::from_nanos(default_of(PARAMS, "maxdelay")),
            qlimit: None,
            red: false,
        }
    }

    /// With what `params` say; what they do not say stays.
    pub fn read(&self, params: &Params, link: &Link) -> Result<Self, ParamError> {
        let mut new = self.clone();
        params::accept_declared(&[PARAMS], Scope::Class, &self.name, params)?;
        for (field, value) in params.iter() {
            match (field, value) {
                ("pbandwidth", Value::Fraction(share)) => {
                    new.rate = Rate::from_bps(share.of(link.rate.as_bps()))
                }
                ("exactbandwidth", Value::Rate(rate)) => new.rate = *rate,
                ("priority", Value::Count(n)) => new.priority = *n as u8,
                ("borrow", Value::Flag) => new.borrows = true,
                ("maxburst", Value::Count(n)) => new.maxburst = Some(*n as u32),
                ("minburst", Value::Count(n)) => new.minburst = *n as u32,
                ("packetsize", Value::Bytes(n)) => new.packet_bytes = *n as u32,
                ("maxpacketsize", Value::Bytes(n)) => new.largest_bytes = *n as u32,
                ("maxdelay", Value::Time(t)) => new.maxdelay = *t,
                ("qlimit", Value::Count(n)) => new.qlimit = Some(*n as u32),
                ("red" | "rio" | "ecn" | "flowvalve", _) => new.red = true,
                _ => {}
            }
        }
        Ok(new)
    }

    /// What the class's queue may expect to send at.
    pub fn expected(&self, link: &Link) -> Rate {
        if self.rate.is_zero() && self.borrows { link.rate } else { self.rate }
    }

    /// Packets that the queue holds: what `qlimit` says, else what leaves within `maxdelay`.
    pub fn queue_limit(&self) -> u32 {
        if let Some(limit) = self.qlimit {
            return limit;
        }
        if !self.maxdelay.is_zero() && !self.rate.is_zero() {
            let bytes = self.rate.bytes_in(self.maxdelay.as_nanos());
            return (bytes / u64::from(self.packet_bytes)).clamp(LEAST_QLIMIT, 1_000_000) as u32;
        }
        if self.red { 2 * QLIMIT } else { QLIMIT }
    }

    /// What the estimator is made from.
    /// `gives`: what the function of that name says.
    pub fn shape(&self, options: &Options, leaf: bool, gives: bool, link: &Link) -> Shape {
        let packet = self.rate.time_for(link.cost_bytes(self.packet_bytes));
        let own = packet.saturating_sub(link.time_for(self.packet_bytes));
        let maxburst = if own > SLOW_PACKET.into() { 4 } else { default_of(PARAMS, "maxburst") as u32 };
        let maxburst = self.maxburst.unwrap_or(maxburst.max(self.minburst));
        Shape {
            rate: self.rate,
            gain_log2: options.gain_log2,
            maxburst,
            minburst: self.minburst.min(maxburst),
            packet_bytes: self.packet_bytes,
            largest_bytes: self.largest_bytes.max(self.packet_bytes),
            minidle: options.minidle,
            // Bursts are for classes that wait by themselves. The root must lend nothing in between.
            waits: !self.borrows && self.parent != NONE,
            own_time: leaf && !(gives && self.borrows),
        }
    }
}

/// Checks what concerns several classes: the tree, and that no parent promises more than it has.
pub(super) fn check_tree(all: &[Settings]) -> Result<(), ParamError> {
    let parents: Vec<u32> = all.iter().map(|c| c.parent).collect();
    if let Some(class) = all.iter().filter(|c| c.parent == NONE).nth(1) {
        let expected = format!("a parent: the root of this interface is class {}", all[0].name);
        return Err(ParamError::new(&class.name, "parent", "NULL", expected));
    }
    if levels(&parents).first().is_some_and(|&depth| depth >= LEVELS) {
        let expected = format!("at most {} levels of classes", LEVELS - 1);
        return Err(ParamError::new(&all[0].name, "class", "a deeper tree", expected));
    }
    // Percentages round to 2^-32 of the link: a few of these more are not more.
    let rounding = (all.iter().map(|c| c.rate.as_bps()).max().unwrap_or(0) >> 28).saturating_add(8);
    let mut left: Vec<u64> = all.iter().map(|c| c.rate.as_bps()).collect();
    // Of several that are wrong the one is told whose parent stands first.
    let mut wrong: Option<(u32, ParamError)> = None;
    for child in all.iter().filter(|c| c.parent != NONE) {
        let (parent, wanted) = (&all[child.parent as usize], child.rate.as_bps());
        let has = &mut left[child.parent as usize];
        if wanted > has.saturating_add(rounding) && wrong.as_ref().is_none_or(|w| child.parent < w.0) {
            let expected = format!(
                "at most {}, which is what its parent {} ({}) has left: lower this share or raise that one",
                Rate::from_bps(*has),
                parent.name,
                parent.rate,
            );
            wrong = Some((child.parent, ParamError::new(&child.name, "bandwidth", child.rate, expected)));
        }
        *has = has.saturating_sub(wanted);
    }
    wrong.map_or(Ok(()), |(_, error)| Err(error))
}

/// True where a packet that goes although all were refused is charged to nobody, as in ns-2: under
/// ancestor-only below a root of less than the link, which never idles. Turns are those of ns-2 then, and so
/// are the estimators of classes that borrow.
pub(super) fn gives(options: &Options, root: Option<&Settings>, link: &Link) -> bool {
    options.rule == Rule::AncestorOnly && options.efficient && root.is_some_and(|root| root.rate < link.rate)
}

/// The classes depth first from the root, siblings in the order of the file, each with its depth.
pub(super) fn depth_first(parents: &[u32]) -> Vec<(u32, u32)> {
    let count = parents.len();
    // The first class below each, those without a parent below the last entry; and the next sibling.
    let (mut first, mut next) = (alloc::vec![NONE; count + 1], alloc::vec![NONE; count]);
    for (class, &parent) in parents.iter().enumerate().rev() {
        let first = &mut first[if parent == NONE { count } else { parent as usize }];
        next[class] = core::mem::replace(first, class as u32);
    }
    let (mut shown, mut stack) = (Vec::with_capacity(count), alloc::vec![(first[count], 1)]);
    while let Some((class, depth)) = stack.pop() {
        if class != NONE {
            shown.push((class, depth));
            stack.extend([(next[class as usize], depth), (first[class as usize], depth + 1)]);
        }
    }
    shown
}

/// Bytes that each class sends in a turn: in proportion to its rate, on average over the classes
/// of its priority the largest packet on the wire.
pub(super) fn quanta(all: &[Settings], link: &Link) -> Vec<i64> {
    let weight = |c: &Settings| c.rate.as_bps().max(link.rate.as_bps() / 10_000).max(1);
    let mut inner = alloc::vec![false; all.len()];
    for class in all.iter().filter(|c| c.parent != NONE) {
        inner[class.parent as usize] = true;
    }
    let (mut classes, mut sum, mut largest) = ([0u64; 8], [0u64; 8], [0u64; 8]);
    for (c, _) in all.iter().zip(&inner).filter(|(_, inner)| !**inner) {
        let p = usize::from(c.priority);
        classes[p] += 1;
        sum[p] = sum[p].saturating_add(weight(c));
        largest[p] = largest[p].max(link.cost_bytes(c.largest_bytes));
    }
    let quantum = |c: &Settings| {
        let p = usize::from(c.priority);
        if classes[p] == 0 {
            return link.cost_bytes(c.largest_bytes) as i64;
        }
        let round = classes[p].saturating_mul(largest[p]);
        // A packet is below 2^17 bytes on the wire, and a weight is 10^-4 of another at least.
        crate::units::mul_div(round, weight(c), sum[p]).max(1) as i64
    };
    all.iter().map(quantum).collect()
}

/// A class at run time, beside what link sharing knows of it.
pub(super) struct CbqClass {
    pub queue: Child,
    pub estimator: Estimator,
    pub count: Count,
}

/// What a class has done. All but the bytes are counted one by one: no machine comes to 2^64, nor, for eleven years
/// at 400 Gbit/s, do the bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub packets: u64,
    pub bytes: u64,
    /// Packets after which the class was overlimit.
    pub overs: u64,
    /// Packets sent on an ancestor's share.
    pub borrows: u64,
    /// Times that it had to wait with packets in its queue because nobody could lend.
    pub delays: u64,
    pub refused: u64,
    /// Packets on the link that are charged to nobody when they have left.
    pub uncharged: u64,
}

impl Count {
    /// A packet of `len` bytes has left.
    #[inline(always)]
    pub fn sent(&mut self, pick: Pick, len: u32) {
        self.packets = self.packets.plus(1);
        self.bytes = self.bytes.plus(len.into());
        self.borrows = self.borrows.plus((pick.lender != NONE).into());
    }
}

impl CbqClass {
    /// Counts a packet of a class that has had packets since `demand`. Answers from when on it is underlimit.
    #[inline(always)]
    pub fn charge(&mut self, packet: &Transmission, demand: Instant, starts: Instant) -> Instant {
        let wake = self.estimator.charge(packet, demand);
        self.count.overs = self.count.overs.plus((wake > starts).into());
        wake
    }

    /// Shows its counters.
    pub fn visit_stats(&self, settings: &Settings, quantum: i64, visit: &mut dyn Visit) {
        let Count { packets, bytes, overs, borrows, delays, refused, uncharged: _ } = self.count;
        let wake = self.estimator.wake();
        visit.value("packets", "packets", packets as i64);
        visit.value("bytes", "bytes", bytes as i64);
        visit.value("refused", "packets", refused as i64);
        visit.value("rate", "bit/s", settings.rate.as_bps() as i64);
        visit.value("priority", "", i64::from(settings.priority));
        visit.value("quantum", "bytes", quantum);
        visit.value("overs", "packets", overs as i64);
        visit.value("borrows", "packets", borrows as i64);
        visit.value("delays", "", delays as i64);
        visit.value("avgidle", "ns", self.estimator.average_ns());
        visit.value("maxidle", "ns", self.estimator.most_ns());
        visit.value("undertime", "ns", wake.as_nanos().min(i64::MAX as u64) as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Fraction;
    use alloc::vec;

    fn percent(name: &str, parent: u32, percent: u64, bps: u64) -> Settings {
        let rate = Rate::from_bps(Fraction::ratio(percent, 100).of(bps));
        Settings { rate, ..Settings::new(name, parent, &Link::new(Rate::from_bps(bps), 0, 1500)) }
    }

    /// Shares that add up to their parent's fit at every rate; a percent more does not.
    #[test]
    fn percentages_add_up() {
        for bps in [9600, 20_000_000, 45_000_000, 999_999_937, 400_000_000_000] {
            for part in 1..50 {
                let tree = |second| {
                    vec![
                        percent("root", NONE, 100, bps),
                        percent("parent", 0, 2 * part, bps),
                        percent("a", 1, part, bps),
                        percent("b", 1, second, bps),
                    ]
                };
                assert!(check_tree(&tree(part)).is_ok(), "{part} % of {bps}");
                assert!(check_tree(&tree(part + 1)).is_err(), "{} % of {bps}", part + 1);
            }
        }
        assert_eq!(percent("y", 0, 38, 20_000_000).rate.as_bps(), 7_600_000);
    }

    /// The bits of a word count the levels that have a class, and level 0 has none.
    #[test]
    fn a_tree_has_63_levels_at_most() {
        let chain = |classes: u32| -> Vec<Settings> {
            (0..classes).map(|n| percent("c", n.checked_sub(1).unwrap_or(NONE), 1, 1_000_000)).collect()
        };
        assert!(check_tree(&chain(63)).is_ok());
        assert!(check_tree(&chain(64)).is_err_and(|e| e.expected == "at most 63 levels of classes"));
    }
}

//! CHOKe: a packet that meets one of its own flow in the queue is dropped together with it.
//!
//! Principle: a flow that takes more than its share has more packets in the queue. While the
//! average queue is above `thmin`, each arrival is compared with a packet drawn at random. If both
//! are of one flow, both are dropped. Otherwise the arrival is treated as in RED.
//! Paper: Pan, Prabhakar and Psounis, "CHOKe: A Stateless Active Queue Management Scheme for
//! Approximating Fair Bandwidth Allocation", INFOCOM 2000, section II and figure 2.
//! Where we differ, and why: flows are told apart by the hash of the 5-tuple, which the port has
//! computed; between the thresholds drops are spaced as our RED spaces them.
//! Cost: above `thmin` a random draw and a walk to that packet of the queue.
//! Guarantees: `an_unresponsive_flow_is_held_down`; the laws, by the conformance suite.
//! Parameters: `qlimit` (packets, 60), `thmin`, `thmax` (packets, 10 and 30). All at run time.

use alloc::boxed::Box;
use weir_core::aqm::average::{Average, LENGTH_BITS, Ramp, Zone, early};
use weir_core::aqm::params::{count, in_class, qlimit};
use weir_core::aqm::{Aqm, AqmEntry, Built, Decision, Departures, QueueConfig};
use weir_core::packet::{List, PacketId};
use weir_core::queue::{Cx, DropReason, Kind, Link, ParamError, ParamSpec, Params, Visit};
use weir_core::units::Fraction;

const PACKETS: Kind = count(1, 1_000_000);
/// Words on an interface and on a class.
const TUNING: [ParamSpec; 2] = [
    ParamSpec::discipline("thmin", PACKETS, "10", "Average queue from which CHOKe compares, packets."),
    ParamSpec::discipline("thmax", PACKETS, "30", "Average queue from which all arrivals drop, packets."),
];

/// The line in the list of AQMs.
pub const ENTRY: AqmEntry = AqmEntry {
    name: "choke",
    source: include_str!("choke.rs"),
    params: &[&[qlimit("60")], &TUNING],
    class_params: &[
        &[ParamSpec::class("choke", Kind::Flag, "", "CHOKe: drops pairs of packets of one flow.")],
        &in_class(TUNING),
    ],
    usual_limit: 60,
    build,
    ..AqmEntry::PLAIN
};

struct Choke {
    average: Average,
    ramp: Ramp,
    thmin: u64,
    thmax: u64,
    /// Arrivals since the last early drop.
    count: u64,
    pairs: u64,
    early: u64,
}

/// The thresholds that `params` give, else those that were.
fn thresholds(class: &str, params: &Params, old: (u64, u64)) -> Result<(u64, u64), ParamError> {
    let thmin = params.count("thmin").unwrap_or(old.0);
    let thmax = params.count("thmax").unwrap_or(old.1);
    if thmin >= thmax {
        let expected = alloc::format!("less than thmax, which is {thmax} packets");
        return Err(ParamError::new(class, "thmin", thmin, expected));
    }
    Ok((thmin, thmax))
}

fn ramp((thmin, thmax): (u64, u64)) -> Ramp {
    Ramp::new(thmin, thmax, Fraction::ratio(1, 10), false)
}

fn build(queue: &QueueConfig<'_>) -> Built {
    let (thmin, thmax) = thresholds(queue.class, queue.params, (10, 30))?;
    let average = Average::new(0, u64::from(queue.link.mtu), queue.rate, queue.link);
    Ok(Box::new(Choke { average, ramp: ramp((thmin, thmax)), thmin, thmax, count: 0, pairs: 0, early: 0 }))
}

impl Aqm for Choke {
    fn arrive(&mut self, cx: &mut Cx, queue: &List, limit: u32, id: &PacketId) -> Decision {
        self.average.update(cx.now, queue.packets());
        if cx.adopting() {
            return Decision::Accept;
        }
        if queue.packets() >= limit {
            return Decision::Drop(DropReason::Tail);
        }
        let zone = self.ramp.zone(self.average.value());
        if zone == Zone::Pass {
            self.count = 0;
            return Decision::Accept;
        }
        let position = cx.random.below(u64::from(queue.packets())) as u32;
        let drawn = queue.iter(&cx.packets).nth(position as usize);
        if drawn.is_some_and(|drawn| drawn.flow == cx.packets.get(id).flow) {
            self.pairs += 1;
            return Decision::DropBoth(position, DropReason::Early);
        }
        self.count = self.count.saturating_add(1);
        let dropped = match zone {
            Zone::Pass => false,
            Zone::Early(half) => early(half, self.count, false, &mut cx.random),
            Zone::Forced => true,
        };
        if !dropped {
            return Decision::Accept;
        }
        (self.count, self.early) = (0, self.early + 1);
        Decision::Drop(DropReason::Early)
    }
    fn depart(&mut self, cx: &mut Cx, queue: &List, _: &PacketId) -> Decision {
        if queue.is_empty() {
            self.average.emptied(cx.now);
        }
        Decision::Accept
    }
    fn departures(&self) -> Departures {
        Departures::Last
    }
    fn name(&self) -> &'static str {
        ENTRY.name
    }
    fn params(&self) -> &'static [&'static [ParamSpec]] {
        ENTRY.params
    }
    fn reconfigure(&mut self, class: &str, params: &Params, _: &Link) -> Result<(), ParamError> {
        (self.thmin, self.thmax) = thresholds(class, params, (self.thmin, self.thmax))?;
        self.ramp = ramp((self.thmin, self.thmax));
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        visit.value("average", "packets/1000", ((self.average.value() * 1000) >> LENGTH_BITS) as i64);
        visit.value("dropped_pairs", "pairs", self.pairs as i64);
        visit.value("dropped_early", "packets", self.early as i64);
        visit.value("thmin", "packets", self.thmin as i64);
        visit.value("thmax", "packets", self.thmax as i64);
    }
}

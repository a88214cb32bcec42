//! Statistics in slices: a port may have 100,000 classes, and its worker a packet to send.
//!
//! The worker makes one slice of at most [`SLICE`] classes between two steps. It copies names and
//! numbers, and no more; who asked puts the slices together ([`Assembly`]). A port whose classes
//! fit into one slice is seen at one instant, a larger one over as many steps as it has slices.

use crate::bridge::Bridge;
use crate::direction::Direction;
use crate::edge_state::ContractState;
use crate::state::{BridgeState, ClassState, Egress, PacketCounts, PortState, WorkerState, by_reason};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use weir_core::port::{Account, Port};
use weir_core::queue::Visit;
use weir_io::Io;

/// Classes, leaves and conditioners of one slice.
const SLICE: usize = 256;

/// A part of the statistics of a worker.
pub(crate) enum Part {
    /// All but what the ports say of their classes. What came before counts no more.
    Head(Box<BridgeState>),
    /// Classes of an egress as its disciplines show them.
    Classes(usize, Shown),
    /// Accounts of an egress's leaves.
    Leaves(usize, Named<Account>),
    /// Conditioners of an egress.
    Conditioners(usize, Shown),
    /// Contracts of the edge of an egress.
    Contracts(usize, Vec<ContractState>),
    /// That was all.
    End,
    /// Gathering failed; why.
    Failed(String),
}

/// What a port says next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Classes,
    Leaves,
    Conditioners,
    Contracts,
}

/// How far the statistics of a worker are gathered.
pub(crate) struct Gather {
    egress: usize,
    stage: Stage,
    /// Places of this stage that are done.
    done: usize,
}

impl Gather {
    /// From the beginning.
    pub(crate) fn new() -> Self {
        Gather { egress: 0, stage: Stage::Classes, done: 0 }
    }

    /// The next slice; true if there is more.
    pub(crate) fn slice<L: Io, R: Io>(&mut self, bridge: &Bridge<L, R>, tell: &mut dyn FnMut(Part)) -> bool {
        let mut room = SLICE;
        while let Some(direction) = bridge.directions().get(self.egress) {
            let Some(port) = direction.port() else {
                *self = Gather { egress: self.egress + 1, ..Gather::new() };
                continue;
            };
            if room == 0 {
                return true;
            }
            let (part, places, used) = self.part(direction, port, self.done..self.done + room);
            tell(part);
            self.done += room;
            room -= used.min(room);
            if self.done >= places {
                self.next_stage();
            }
        }
        tell(Part::End);
        false
    }

    /// What stands in these places, how many there are in all, and how many were looked at.
    fn part(&self, direction: &Direction, port: &Port, wanted: Range<usize>) -> (Part, usize, usize) {
        let from = wanted.start;
        let used = |places: usize| places.saturating_sub(from);
        match self.stage {
            Stage::Leaves => {
                let places = port.leaves().len();
                let some = from.min(places)..wanted.end.min(places);
                let leaves = (from as u32..).zip(&port.leaves()[some]);
                let mut accounts = Named::default();
                leaves.for_each(|(leaf, info)| {
                    if let Some(account) = port.account(leaf) {
                        accounts.push(&info.name, *account);
                    }
                });
                (Part::Leaves(self.egress, accounts), places, used(places))
            }
            Stage::Contracts => {
                let places = direction.edge().map_or(0, |edge| edge.edge().config().contracts.len());
                let some = direction.edge().map(|edge| edge.contract_states(wanted)).unwrap_or_default();
                (Part::Contracts(self.egress, some), places, used(places))
            }
            stage => {
                let mut window = Window::new(wanted);
                let part = if stage == Stage::Classes {
                    port.visit_stats(&mut window);
                    Part::Classes
                } else {
                    port.conditioners().inspect(|all| all.visit_stats(&mut window));
                    Part::Conditioners
                };
                (part(self.egress, window.shown), window.position, used(window.position))
            }
        }
    }

    fn next_stage(&mut self) {
        (self.stage, self.done) = match self.stage {
            Stage::Classes => (Stage::Leaves, 0),
            Stage::Leaves => (Stage::Conditioners, 0),
            Stage::Conditioners => (Stage::Contracts, 0),
            Stage::Contracts => {
                self.egress += 1;
                (Stage::Classes, 0)
            }
        };
    }
}

/// Names with something to each. They stand in one piece, because many small ones would cost the
/// worker's allocator milliseconds at once when they are all freed elsewhere.
pub(crate) struct Named<T> {
    names: String,
    /// Where each name ends.
    ends: Vec<(usize, T)>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Named { names: String::new(), ends: Vec::new() }
    }
}

impl<T> Named<T> {
    fn push(&mut self, name: &str, of: T) {
        self.names.push_str(name);
        self.ends.push((self.names.len(), of));
    }
    fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let mut start = 0;
        self.ends.iter().map(move |(end, of)| {
            let name = self.names.get(start..*end).unwrap_or_default();
            start = *end;
            (name, of)
        })
    }
}

/// Classes with how many values each has, and the values one class behind the other.
#[derive(Default)]
pub(crate) struct Shown {
    classes: Named<usize>,
    values: Vec<(&'static str, i64)>,
}

impl Shown {
    fn states(&self) -> impl Iterator<Item = ClassState> {
        let mut values = self.values.iter();
        self.classes.iter().map(move |(name, &count)| ClassState {
            name: name.to_string(),
            counts: None,
            values: values.by_ref().take(count).map(|(n, v)| (n.to_string(), *v)).collect(),
        })
    }
}

/// Hears of the classes in these places. A node that does not ask for places is heard with the first.
struct Window {
    wanted: Range<usize>,
    position: usize,
    /// Classes that may still be named in the places last asked for.
    granted: usize,
    open: bool,
    shown: Shown,
}

impl Window {
    fn new(wanted: Range<usize>) -> Self {
        Window { wanted, position: 0, granted: 0, open: false, shown: Shown::default() }
    }
}

impl Visit for Window {
    fn class(&mut self, class: &str, _depth: u32) {
        self.open = self.granted > 0 || self.wanted.start == 0;
        self.granted = self.granted.saturating_sub(1);
        if self.open {
            self.shown.classes.push(class, 0);
        }
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        if self.open
            && let Some((_, values)) = self.shown.classes.ends.last_mut()
        {
            *values += 1;
            self.shown.values.push((name, value));
        }
    }
    fn places(&mut self, count: usize) -> Range<usize> {
        let within = |place: usize| place.saturating_sub(self.position).min(count);
        let wanted = within(self.wanted.start)..within(self.wanted.end);
        self.position += count;
        self.granted = wanted.len();
        self.open = false;
        wanted
    }
    fn listens(&self) -> bool {
        self.open
    }
}

/// Puts parts together as they come; `None` while some are missing.
#[derive(Default)]
pub(crate) struct Assembly {
    state: BridgeState,
    /// Accounts of the leaves of its egresses.
    leaves: [Vec<Named<Account>>; 2],
}

impl Assembly {
    /// Takes a part.
    ///
    /// # Errors
    /// Why gathering failed.
    pub(crate) fn take(&mut self, part: Part) -> Result<Option<BridgeState>, String> {
        match part {
            Part::Head(state) => *self = Assembly { state: *state, ..Assembly::default() },
            Part::Classes(egress, shown) => {
                if let Some(port) = self.port(egress) {
                    port.classes.extend(shown.states());
                }
            }
            Part::Conditioners(egress, shown) => {
                if let Some(port) = self.port(egress) {
                    port.conditioners.extend(shown.states());
                }
            }
            Part::Contracts(egress, contracts) => {
                let edge = self.state.egresses.get_mut(egress).and_then(|egress| egress.edge.as_mut());
                edge.into_iter().for_each(|edge| edge.contracts.extend_from_slice(&contracts));
            }
            Part::Leaves(egress, accounts) => {
                if let Some(leaves) = self.leaves.get_mut(egress) {
                    leaves.push(accounts);
                }
            }
            Part::Failed(why) => return Err(why),
            Part::End => {
                let mut done = std::mem::take(self);
                for (egress, accounts) in std::mem::take(&mut done.leaves).into_iter().enumerate() {
                    if let Some(port) = done.port(egress) {
                        account(port, &accounts);
                    }
                }
                return Ok(Some(done.state));
            }
        }
        Ok(None)
    }

    fn port(&mut self, egress: usize) -> Option<&mut PortState> {
        self.state.egresses.get_mut(egress)?.port.as_mut()
    }
}

/// Gives classes the accounts of the leaves of their names. A leaf of which the discipline says
/// nothing still has its account.
fn account(port: &mut PortState, accounts: &[Named<Account>]) {
    let mut by_name: HashMap<String, VecDeque<usize>> = HashMap::new();
    for (index, class) in port.classes.iter().enumerate().filter(|(_, class)| class.counts.is_none()) {
        by_name.entry(class.name.clone()).or_default().push_back(index);
    }
    for (name, account) in accounts.iter().flat_map(Named::iter) {
        let counts = PacketCounts::from(account);
        port.total.add(&counts);
        let counts = Some(counts);
        match by_name.get_mut(name).and_then(VecDeque::pop_front) {
            Some(index) => port.classes[index].counts = counts,
            None => port.classes.push(ClassState { name: name.to_string(), counts, values: BTreeMap::new() }),
        }
    }
}

/// Adds what another worker says that runs a part of the same direction. Its classes come behind.
fn add_part(whole: &mut Egress, part: Egress) {
    whole.received_packets += part.received_packets;
    whole.received_bytes += part.received_bytes;
    whole.overrun_packets += part.overrun_packets;
    whole.nobuf_packets += part.nobuf_packets;
    whole.segmented_packets += part.segmented_packets;
    whole.handed_packets += part.handed_packets;
    whole.unhanded_packets += part.unhanded_packets;
    whole.receive_errors += part.receive_errors;
    whole.sent_packets += part.sent_packets;
    whole.sent_bytes += part.sent_bytes;
    whole.refused_packets += part.refused_packets;
    for (reason, count) in part.refused {
        *whole.refused.entry(reason).or_default() += count;
    }
    whole.device_queue_bytes += part.device_queue_bytes;
    // At different times: so much stood there at most.
    whole.device_queue_most_bytes += part.device_queue_most_bytes;
    whole.rewritten_packets += part.rewritten_packets;
    whole.leaving_packets += part.leaving_packets;
    let (port, part) = match (&mut whole.port, part.port) {
        (Some(port), Some(part)) => (port, part),
        // That worker forwards plainly by now.
        (none @ None, port) => return *none = port,
        (Some(_), None) => return,
    };
    port.broken = port.broken.take().or(part.broken);
    port.backlog_packets += part.backlog_packets;
    port.backlog_bytes += part.backlog_bytes;
    port.refills += part.refills;
    port.wake_ups += part.wake_ups;
    port.reassigned_packets += part.reassigned_packets;
    port.lost_ns = port.lost_ns.max(part.lost_ns);
    if let (Some(protected), Some(part)) = (&mut port.protected, &part.protected) {
        protected.add(part);
    }
    port.total.add(&part.total);
    port.classes.extend(part.classes);
}

/// What all workers of a bridge say, each of the directions that it runs.
pub(crate) fn of_workers(said: Vec<BridgeState>) -> BridgeState {
    let state = |one: &BridgeState| {
        let BridgeState { cpu_ns, spun_ns, steps, .. } = *one;
        WorkerState { cpu_ns, spun_ns, steps, priority: one.priority.clone() }
    };
    let workers = if said.len() > 1 { said.iter().map(state).collect() } else { Vec::new() };
    let and = |mut whole: BridgeState, other: BridgeState| {
        whole.cpu_ns += other.cpu_ns;
        whole.spun_ns += other.spun_ns;
        whole.steps += other.steps;
        whole.without.bypassed |= other.without.bypassed;
        whole.without.lapses += other.without.lapses;
        whole.without.stale_packets += other.without.stale_packets;
        whole.failed = whole.failed.or(other.failed);
        for egress in other.egresses {
            match whole.egresses.iter_mut().find(|known| known.interface == egress.interface) {
                Some(known) => add_part(known, egress),
                None => whole.egresses.push(egress),
            }
        }
        whole
    };
    BridgeState { workers, ..said.into_iter().reduce(and).unwrap_or_default() }
}

/// A port without what it says of its classes; `total` is what no class has.
fn port_head(port: &Port) -> PortState {
    let backlog = port.backlog();
    PortState {
        rate_bps: port.link().rate.as_bps(),
        longest_bytes: port.link().mtu,
        seed: format!("{:#018x}", port.seed()),
        broken: port.is_broken().map(|b| format!("{}: {}", b.discipline, b.what)),
        backlog_packets: backlog.packets,
        backlog_bytes: backlog.bytes,
        ring_packets: u64::from(port.in_ring()),
        refills: port.refills(),
        wake_ups: port.wake_ups(),
        reassigned_packets: port.reassigned(),
        lost_ns: port.lost_time().as_nanos(),
        protected: (!port.protects().is_empty()).then(|| PacketCounts::from(port.protected())),
        total: PacketCounts::from(&port.beside_leaves()),
        classes: Vec::new(),
        conditioners: Vec::new(),
    }
}

/// The directions of a bridge between interfaces of those names (left, right), without what their
/// ports say of their classes.
pub(crate) fn heads<L: Io, R: Io>(bridge: &mut Bridge<L, R>, names: &[String; 2]) -> Vec<Egress> {
    let now = weir_sys::now();
    let stats = bridge.io_stats();
    let directions = bridge.directions_mut().iter_mut();
    directions
        .map(|direction| {
            let index = direction.index();
            let (input, output) = (stats[index], stats[1 - index]);
            Egress {
                interface: names[1 - index].clone(),
                link: None,
                received_packets: input.rx_frames,
                received_bytes: input.rx_bytes,
                overrun_packets: input.rx_overrun,
                nobuf_packets: input.rx_nobuf + direction.unsegmented(),
                segmented_packets: direction.segmented(),
                handed_packets: direction.handed().0,
                unhanded_packets: direction.handed().1,
                receive_errors: input.rx_errors,
                sent_packets: output.tx_frames,
                sent_bytes: output.tx_bytes,
                refused_packets: output.tx_errors,
                refused: by_reason(direction.refused()),
                device_queue_bytes: output.tx_queue_bytes,
                device_queue_most_bytes: output.tx_queue_most_bytes,
                rewritten_packets: direction.rewritten(),
                leaving_packets: direction.leaving() as u64,
                port: direction.port().map(port_head),
                edge: direction.edge_state(now),
            }
        })
        .collect()
}

/// The directions of a bridge between interfaces of those names (left, right), at once.
pub fn egresses<L: Io, R: Io>(bridge: &mut Bridge<L, R>, names: &[String; 2]) -> Vec<Egress> {
    let state = BridgeState { egresses: heads(bridge, names), ..BridgeState::default() };
    let (mut assembly, mut gather, mut whole) =
        (Assembly { state, ..Assembly::default() }, Gather::new(), None);
    while gather.slice(bridge, &mut |part| whole = assembly.take(part).ok().flatten()) {}
    whole.map_or_else(Vec::new, |state| state.egresses)
}

#[cfg(test)]
mod tests;

//! Counts what happens in a run into a `Report`: the simulator calls it per event, the lab with
//! counters that it samples. Cost per event: a few additions; nothing is allocated except when a
//! run enters a new cell of its series.

mod edge;

pub use edge::{AllocationNumbers, EdgeNumbers};

use crate::histogram::Histogram;
use crate::report::{
    ClassReport, ConditionerReport, Count, Delay, FlowReport, LinkReport, Meta, PortReport, Report, Series,
};
use std::collections::BTreeMap;

/// A run's series have at most this many cells; a finer grid is refused by `Scenario::read`.
pub const MAX_CELLS: u64 = 100_000;

/// Accumulates one run. Instants are nanoseconds since its start and must not decrease by class.
#[derive(Debug)]
pub struct Recorder {
    report: Report,
    ports: Vec<Vec<ClassTally>>,
    rtt: Vec<Histogram>,
    one_way: Vec<Histogram>,
    keep: Keep,
    /// The cell that was asked for last.
    here: Cell,
}

/// A cell of the series: its number, and when it begins and ends.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    number: usize,
    from: u64,
    to: u64,
}

/// Which series a recorder keeps besides those that every report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// The distribution of queue delays of every cell.
    pub delays: bool,
    /// What every flow delivered in every cell.
    pub flows: bool,
}

/// What is known of a class besides its report.
#[derive(Debug, Default)]
struct ClassTally {
    delay: Histogram,
    waiting: Count,
    /// When a packet last arrived, until what waits with it is held against the most: what the queue
    /// drops at that moment did not wait.
    arrived_at: Option<u64>,
    /// Up to here the backlog is summed into the series.
    summed_to: u64,
    /// Drop counts by reason: a handful, so a scan beats a tree.
    dropped: Vec<(&'static str, Count)>,
    /// What its edge allocates, if one does.
    edge: Option<Tracked>,
    /// The counters at the previous sample (lab).
    sampled: Counters,
    sampled_at: u64,
}

/// What an edge has for a class, and what it has counted since the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// B_d, bit/s.
    pub rate_bps: u64,
    /// B_m, bit/s.
    pub estimate_bps: u64,
    /// Bytes measured.
    pub measured_bytes: u64,
    /// Requests to a broker.
    pub requests: u64,
}

/// An allocation, with its integrals as far as they are in the series: bits in units of 10^-9.
#[derive(Debug, Default)]
struct Tracked {
    last: Allocated,
    to: u64,
    allocated: u128,
    estimated: u128,
}

/// A class's counters since the start of a run, as a live box reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived.
    pub offered: Count,
    /// Packets that left.
    pub sent: Count,
    /// Packets that were dropped, by reason.
    pub dropped: BTreeMap<String, Count>,
    /// Packets that were marked.
    pub marked: u64,
    /// Packets waiting now.
    pub backlog: Count,
}

impl Recorder {
    /// A recorder that fills `report`, in which only what was asked stands: `meta`, and the names of
    /// flows and links. Ports are added with `port`.
    pub fn new(mut report: Report, keep: Keep) -> Self {
        report.flows.iter_mut().for_each(FlowReport::begin);
        Recorder {
            rtt: vec![Histogram::default(); report.flows.len()],
            one_way: vec![Histogram::default(); report.flows.len()],
            report,
            ports: Vec::new(),
            keep,
            here: Cell::default(),
        }
    }

    /// Adds a managed port. Returns its index.
    pub fn port(&mut self, port: PortReport) -> usize {
        self.ports.push(port.classes.iter().map(|_| ClassTally::default()).collect());
        self.report.ports.push(port);
        self.ports.len() - 1
    }

    /// Index in the report of a link's direction, for `carried`: `forward` is from `a` to `b`.
    pub const fn direction(link: usize, forward: bool) -> usize {
        link * 2 + !forward as usize
    }

    /// A packet of a class arrived at a port.
    pub fn offered(&mut self, port: usize, class: usize, len_bytes: u64, at: u64) {
        let (cell, class, state) = self.class(port, class, at);
        state.waiting.add(len_bytes);
        state.arrived_at = Some(at);
        class.offered.add(len_bytes);
        let series = &mut class.series;
        series.offered_bytes[cell] += len_bytes;
        series.offered_packets[cell] += 1;
    }

    /// A packet left the discipline for the wire, `delay` nanoseconds after it arrived.
    pub fn sent(&mut self, port: usize, class: usize, len_bytes: u64, delay: u64, at: u64) {
        let keep_delays = self.keep.delays;
        let (cell, class, state) = self.class(port, class, at);
        state.leave(len_bytes);
        state.delay.record(delay);
        class.sent.add(len_bytes);
        let series = &mut class.series;
        series.sent_bytes[cell] += len_bytes;
        series.sent_packets[cell] += 1;
        series.delay_sum_ns[cell] = series.delay_sum_ns[cell].saturating_add(delay);
        series.delay_max_ns[cell] = series.delay_max_ns[cell].max(delay);
        if keep_delays {
            series.delays[cell].record(delay);
        }
    }

    /// A packet that had arrived was dropped.
    pub fn dropped(&mut self, port: usize, class: usize, len_bytes: u64, reason: &'static str, at: u64) {
        let arrived_now = self.ports[port][class].arrived_at.take_if(|arrived_at| *arrived_at == at);
        let (cell, class, state) = self.class(port, class, at);
        state.arrived_at = arrived_now;
        state.leave(len_bytes);
        match state.dropped.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => count.add(len_bytes),
            None => state.dropped.push((reason, Count { packets: 1, bytes: len_bytes })),
        }
        class.series.dropped_packets[cell] += 1;
    }

    /// A packet was marked by ECN.
    pub fn marked(&mut self, port: usize, class: usize, at: u64) {
        let (cell, class, _) = self.class(port, class, at);
        class.marked += 1;
        class.series.marked_packets[cell] += 1;
    }

    /// What an edge has for a class from `at` on, and has counted up to there.
    pub fn allocated(&mut self, port: usize, class: usize, now: Allocated, at: u64) {
        let cell = self.cell(at);
        let meta = &self.report.meta;
        let (cell_ns, at) = (meta.cell_ns, at.min(meta.duration_ns));
        let series = &mut self.report.ports[port].classes[class].series;
        let edge = self.ports[port][class].edge.get_or_insert_default();
        if edge.last != now {
            edge.sum(series, cell_ns, at);
            *grow(&mut series.measured_bytes, cell) += now.measured_bytes - edge.last.measured_bytes;
            *grow(&mut series.requests, cell) += now.requests - edge.last.requests;
            edge.last = now;
        }
    }

    /// The counters of a class at `at`: their growth since the last sample is spread evenly over
    /// the time in between. For hosts that cannot call the event functions; do not mix the two.
    pub fn sample(&mut self, port: usize, class: usize, counters: &Counters, at: u64) {
        let cell_ns = self.report.meta.cell_ns;
        let at = at.min(self.report.meta.duration_ns);
        let (last_cell, class, state) = self.class(port, class, at);
        let last = std::mem::replace(&mut state.sampled, counters.clone());
        let from = std::mem::replace(&mut state.sampled_at, at).min(at);
        let first_cell = ((from / cell_ns) as usize).min(last_cell);
        let packets = |count: &BTreeMap<String, Count>| count.values().map(|count| count.packets).sum();
        let grown = |now: u64, then: u64| now.saturating_sub(then);
        let series = &mut class.series;
        let spread = |list: &mut Vec<u64>, amount: u64| {
            let mut done = 0;
            for (cell, part) in list.iter_mut().enumerate().take(last_cell + 1).skip(first_cell) {
                let covered = at.min((cell as u64 + 1) * cell_ns).saturating_sub(from);
                let due = if cell == last_cell {
                    amount
                } else {
                    weir_core::units::mul_div(amount, covered, at - from)
                };
                *part += due - done;
                done = due;
            }
        };
        spread(&mut series.offered_bytes, grown(counters.offered.bytes, last.offered.bytes));
        spread(&mut series.offered_packets, grown(counters.offered.packets, last.offered.packets));
        spread(&mut series.sent_bytes, grown(counters.sent.bytes, last.sent.bytes));
        spread(&mut series.sent_packets, grown(counters.sent.packets, last.sent.packets));
        spread(&mut series.dropped_packets, grown(packets(&counters.dropped), packets(&last.dropped)));
        spread(&mut series.marked_packets, grown(counters.marked, last.marked));
        let most = &mut series.backlog_max_packets[last_cell];
        *most = (*most).max(counters.backlog.packets);
        state.waiting = counters.backlog;
        class.backlog_max.packets = class.backlog_max.packets.max(counters.backlog.packets);
        class.backlog_max.bytes = class.backlog_max.bytes.max(counters.backlog.bytes);
        class.offered = counters.offered;
        class.sent = counters.sent;
        class.marked = counters.marked;
        class.dropped = counters.dropped.clone();
    }

    /// Adds queue delays that another counted, over the whole run (lab).
    pub fn delays(&mut self, port: usize, class: usize, delays: &Histogram) {
        self.ports[port][class].delay.merge(delays);
    }

    /// A number that the discipline itself keeps.
    pub fn statistic(&mut self, port: usize, class: usize, name: &str, value: f64) {
        self.report.ports[port].classes[class].statistics.insert(name.to_string(), value);
    }

    /// What the conditioners of a port did, in their order.
    pub fn conditioners(&mut self, port: usize, conditioners: Vec<ConditionerReport>) {
        self.report.ports[port].conditioners = conditioners;
    }

    /// A frame's last bit left a link's direction (see `direction`).
    pub fn carried(&mut self, direction: usize, len_bytes: u64, at: u64) {
        let cell = self.cell(at);
        let link = &mut self.report.links[direction];
        link.carried.add(len_bytes);
        let wire = len_bytes + link.overhead_bytes;
        *grow(&mut link.wire_bytes, cell) += wire;
    }

    /// The report of a link's direction, for what only the caller counts: drops, ring, refills.
    pub fn link(&mut self, direction: usize) -> &mut LinkReport {
        &mut self.report.links[direction]
    }

    /// Payload was delivered in order to a flow's receiver.
    pub fn delivered(&mut self, flow: usize, bytes: u64, at: u64) {
        self.report.flows[flow].delivered_bytes += bytes;
        if self.keep.flows {
            let cell = self.cell(at);
            *grow(&mut self.report.flows[flow].delivered, cell) += bytes;
        }
    }

    /// A round-trip time of a flow was measured.
    pub fn rtt(&mut self, flow: usize, ns: u64) {
        self.rtt[flow].record(ns);
    }

    /// Round-trip times of a flow that another counted (lab).
    pub fn rtts(&mut self, flow: usize, times: &Histogram) {
        self.rtt[flow].merge(times);
    }

    /// One-way times of a flow that another counted (lab).
    pub fn one_ways(&mut self, flow: usize, times: &Histogram) {
        self.one_way[flow].merge(times);
    }

    /// A packet's time from its sender to its receiver was measured.
    pub fn one_way(&mut self, flow: usize, ns: u64) {
        self.one_way[flow].record(ns);
    }

    /// The report of a flow, for what only the caller counts: packets sent, retransmissions, losses.
    pub fn flow(&mut self, flow: usize) -> &mut FlowReport {
        &mut self.report.flows[flow]
    }

    /// What ran, for the event hash and notes.
    pub fn meta(&mut self) -> &mut Meta {
        &mut self.report.meta
    }

    /// The report, complete but for `checks`: see `evaluate`.
    pub fn finish(mut self) -> Report {
        let (cell_ns, end) = (self.report.meta.cell_ns, self.report.meta.duration_ns);
        for port in 0..self.ports.len() {
            for class in 0..self.ports[port].len() {
                if let Some(edge) = &mut self.ports[port][class].edge {
                    edge.sum(&mut self.report.ports[port].classes[class].series, cell_ns, end);
                }
                let (_, class, state) = self.class(port, class, end);
                class.left = state.waiting;
                class.delay = Delay::of(std::mem::take(&mut state.delay));
                for (reason, count) in state.dropped.drain(..) {
                    class.dropped.entry(reason.to_string()).or_default().merge(count);
                }
            }
        }
        let cells = self.cell(end) + 1;
        let seconds = end as f64 / 1e9;
        for link in &mut self.report.links {
            grow(&mut link.wire_bytes, cells - 1);
            let bits = link.wire_bytes.iter().sum::<u64>() as f64 * 8.0;
            link.utilisation = if link.rate_bps == 0 { 0.0 } else { bits / (link.rate_bps as f64 * seconds) };
        }
        for (index, flow) in self.report.flows.iter_mut().enumerate() {
            // Only what applies to the kind of flow is there to be filled in.
            for (delay, times) in [(&mut flow.rtt, &mut self.rtt), (&mut flow.one_way, &mut self.one_way)] {
                if let Some(delay) = delay {
                    *delay = Delay::of(std::mem::take(&mut times[index]));
                }
            }
            let active = flow.active_ns as f64 / 1e9;
            flow.goodput_bps = if active > 0.0 { flow.delivered_bytes as f64 * 8.0 / active } else { 0.0 };
            if self.keep.flows {
                grow(&mut flow.delivered, cells - 1);
            }
        }
        self.report
    }

    /// The cell of an instant; what happens at or after the end counts in the last cell. Nearly always it is
    /// the one that was asked for last.
    #[inline(always)]
    fn cell(&mut self, at: u64) -> usize {
        if !(self.here.from..self.here.to).contains(&at) {
            self.here = self.look_up(at);
        }
        self.here.number
    }

    #[cold]
    fn look_up(&self, at: u64) -> Cell {
        let Meta { duration_ns, cell_ns, .. } = self.report.meta;
        let number = at.min(duration_ns.saturating_sub(1)) / cell_ns;
        Cell { number: number as usize, from: number * cell_ns, to: (number + 1) * cell_ns }
    }

    /// A class with its series grown to `at` and its backlog summed up to there. The queue has decided on the
    /// packet that arrived last: what waits is held against the most.
    #[inline]
    fn class(&mut self, port: usize, class: usize, at: u64) -> (usize, &mut ClassReport, &mut ClassTally) {
        let cell = self.cell(at);
        let (cell_ns, end) = (self.report.meta.cell_ns, self.report.meta.duration_ns);
        let report = &mut self.report.ports[port].classes[class];
        let state = &mut self.ports[port][class];
        if report.series.sent_bytes.len() <= cell {
            report.series.extend_to(cell + 1, self.keep.delays);
        }
        if let Some(arrived_at) = state.arrived_at.take() {
            let waiting = state.waiting;
            report.backlog_max.packets = report.backlog_max.packets.max(waiting.packets);
            report.backlog_max.bytes = report.backlog_max.bytes.max(waiting.bytes);
            let then = if arrived_at >= self.here.from { cell } else { (arrived_at / cell_ns) as usize };
            let most = &mut report.series.backlog_max_packets[then];
            *most = (*most).max(waiting.packets);
        }
        state.sum_backlog(&mut report.series, self.here, cell_ns, at.min(end));
        (cell, report, state)
    }
}

impl ClassTally {
    fn leave(&mut self, len_bytes: u64) {
        self.waiting.packets = self.waiting.packets.saturating_sub(1);
        self.waiting.bytes = self.waiting.bytes.saturating_sub(len_bytes);
    }

    /// Adds the packets that have been waiting since the last event, cell by cell; `here` is the cell of `to`.
    #[inline]
    fn sum_backlog(&mut self, series: &mut Series, here: Cell, cell_ns: u64, to: u64) {
        while self.summed_to < here.from.min(to) {
            let cell = self.summed_to / cell_ns;
            self.wait(series, cell as usize, to.min((cell + 1) * cell_ns));
        }
        if self.summed_to < to {
            self.wait(series, here.number, to);
        }
    }

    #[inline(always)]
    fn wait(&mut self, series: &mut Series, cell: usize, to: u64) {
        series.backlog_packet_ns[cell] += self.waiting.packets * (to - self.summed_to);
        let most = &mut series.backlog_max_packets[cell];
        *most = (*most).max(self.waiting.packets);
        self.summed_to = to;
    }
}

impl Tracked {
    /// Adds what was allocated and estimated since the last change, cell by cell.
    fn sum(&mut self, series: &mut Series, cell_ns: u64, to: u64) {
        while self.to < to {
            let cell = self.to / cell_ns;
            let end = to.min((cell + 1) * cell_ns);
            let span = u128::from(end - self.to);
            let lists = [
                (&mut series.allocated_bits, &mut self.allocated, self.last.rate_bps),
                (&mut series.estimated_bits, &mut self.estimated, self.last.estimate_bps),
            ];
            for (list, sum, bps) in lists {
                let before = *sum / 1_000_000_000;
                *sum += u128::from(bps) * span;
                *grow(list, cell as usize) += (*sum / 1_000_000_000 - before) as u64;
            }
            grow(&mut series.measured_bytes, cell as usize);
            grow(&mut series.requests, cell as usize);
            self.to = end;
        }
    }
}

impl Series {
    fn extend_to(&mut self, cells: usize, delays: bool) {
        let lists = [
            &mut self.offered_bytes,
            &mut self.offered_packets,
            &mut self.sent_bytes,
            &mut self.sent_packets,
            &mut self.dropped_packets,
            &mut self.marked_packets,
            &mut self.delay_sum_ns,
            &mut self.delay_max_ns,
            &mut self.backlog_packet_ns,
            &mut self.backlog_max_packets,
        ];
        for list in lists {
            list.resize(cells, 0);
        }
        if delays {
            self.delays.resize(cells, Histogram::default());
        }
    }
}

/// Element `cell` of a list that grows on demand.
fn grow(list: &mut Vec<u64>, cell: usize) -> &mut u64 {
    if list.len() <= cell {
        list.resize(cell + 1, 0);
    }
    &mut list[cell]
}

#[cfg(test)]
mod tests;

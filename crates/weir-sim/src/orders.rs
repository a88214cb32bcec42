//! What the edges before ports have to be done in the network, and what the report has of them.

use crate::edge::EdgeHost;
use crate::network::{END, FlowWays, Managed, Network};
use weir_conf::said;
use weir_core::units::Instant;
use weir_edge::allocate::Action;
use weir_report::Recorder;
use weir_report::recorder::{Allocated, AllocationNumbers, EdgeNumbers};
use weir_report::report::Admission;

impl Network<'_> {
    /// The run begins: edges give their classes the first rates.
    pub fn begin(&mut self) {
        for number in 0..self.ports.len() as u32 {
            if let Some(host) = &self.ports[number as usize].edge {
                host.begin(number, &mut self.brokers);
                self.look_at(number);
            }
        }
    }

    /// The clock reached the next event of an edge.
    pub fn edge_timer(&mut self, port: u32) {
        if let Some(host) = &mut self.ports[port as usize].edge {
            host.timer(self.now);
        }
        self.look_at(port);
    }

    /// A flow sends another rate from now on: the edges hear of it that have a class of its name.
    pub fn sends(&mut self, flow: u32, before_bps: u64, after_bps: u64) {
        for port in 0..self.ports.len() as u32 {
            let managed = &mut self.ports[port as usize];
            let leaf = managed.asserted[flow as usize];
            if let Some(host) = managed.edge.as_mut().filter(|_| leaf != END) {
                host.sends(self.now, leaf, before_bps, after_bps);
                self.look_at(port);
            }
        }
    }

    /// Carries out what the edge before a port has to be done: rates, and requests.
    pub(crate) fn orders(&mut self, number: u32) {
        let now = self.now;
        while let Some(host) = &mut self.ports[number as usize].edge
            && let Some((leaf, action)) = host.edge.poll()
        {
            match action {
                Action::Shape(rate) => {
                    let class = host.classes.iter().find(|(own, _)| *own == leaf);
                    let Some((_, class)) = class else { continue };
                    let (name, params) = (class.name.clone(), class.shape(rate));
                    let (port, mut host) = self.port_and_host(number);
                    // The reader has seen that the class has such a rate. A discipline that refuses
                    // the value keeps the old one; the next request sets another.
                    let _ = port.reconfigure(now, &name, &params, &mut |event| host.hear(event));
                }
                Action::Ask(request) => host.ask(now, number, leaf, request, &mut self.brokers),
            }
        }
        let Managed { edge, report, .. } = &mut self.ports[number as usize];
        if let Some(host) = edge {
            let next = host.next().max(now);
            self.queue.set(self.first_edge + number, next);
            for ((leaf, allocator), sources) in host.edge.allocators().zip(&mut host.sources) {
                sources.estimate(now, allocator.estimate_bps());
                if let Some(report) = *report {
                    let allocated = Allocated {
                        rate_bps: allocator.allocated_bps(),
                        estimate_bps: allocator.estimate_bps(),
                        measured_bytes: allocator.measured_bytes(),
                        requests: allocator.requests(),
                    };
                    self.recorder.allocated(report, leaf as usize, allocated, now.as_nanos());
                }
            }
        }
    }
}

/// Puts what an edge did into the report, among its classes' own numbers.
pub fn statistics(recorder: &mut Recorder, port: usize, host: &mut EdgeHost, now: Instant) {
    for (leaf, stats) in host.edge.class_stats().collect::<Vec<_>>() {
        // A class that the edge made for itself is none of the port's.
        let Some(class) = host.classes.iter().position(|(own, _)| *own == leaf) else { continue };
        let allocation = host.edge.allocator_mut(leaf).map(|allocator| {
            let stats = allocator.stats(now);
            AllocationNumbers {
                allocated: stats.allocated,
                measured_bytes: stats.measured_bytes,
                requests: stats.up + stats.down,
                refused: stats.refused,
                congestions: stats.congestions,
            }
        });
        let numbers = EdgeNumbers {
            admitted: stats.flows.admitted,
            refused: stats.flows.refused,
            evicted: stats.flows.evicted,
            windows: stats.windows,
            windows_above: stats.windows_above,
            allocation,
        };
        recorder.edge(port, leaf as usize, &numbers, now.as_nanos());
        if let Some((excess, above)) = host.sources[class].compare() {
            recorder.statistic(port, leaf as usize, "edge-estimate-excess", excess);
            recorder.statistic(port, leaf as usize, "edge-estimate-above", above);
        }
    }
}

/// Puts what became of the flows that an edge found into the report. `ways` are those of the flows.
pub fn admissions(recorder: &mut Recorder, ways: &[FlowWays], host: &EdgeHost, now: Instant) {
    for flow in host.edge.flows(now).filter(|flow| flow.kind().is_some()) {
        let (key, explained) = (flow.key(), host.edge.explain_flow(flow));
        let is_its = |ways: &FlowWays| (ways.keys[1].src, ways.keys[1].src_port) == (key.src, key.src_port);
        // A flow's source port is its own, and they are in the order of the flows.
        let Some(first) = ways.first() else { return };
        let index = usize::from(key.src_port.wrapping_sub(first.keys[1].src_port));
        if ways.get(index).is_some_and(is_its) {
            let (why, ..) = said::why(&explained.why, now);
            let state = said::state(explained.state).to_owned();
            recorder.flow(index).admission = Some(Admission { state, why });
        }
    }
}

//! What the edges before ports have to be done in the network, and what the report has of them.

use crate::edge::EdgeHost;
use crate::network::{END, Managed, Network};
use weir_core::units::Instant;
use weir_edge::allocate::Action;
use weir_report::Recorder;
use weir_report::recorder::Allocated;

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
    let minutes = (now.as_nanos() as f64 / 60e9).max(f64::MIN_POSITIVE);
    for (leaf, stats) in host.edge.class_stats().collect::<Vec<_>>() {
        // A class that the edge made for itself is none of the port's.
        if host.classes.iter().all(|(own, _)| *own != leaf) {
            continue;
        }
        let mut say = |name: &str, value: f64| recorder.statistic(port, leaf as usize, name, value);
        let flows = stats.flows;
        let came = (flows.admitted + flows.refused) as f64;
        say("edge-admitted", flows.admitted as f64);
        if came > 0.0 {
            say("edge-refused", flows.refused as f64 / came);
        }
        if flows.admitted > 0 {
            say("edge-evicted", flows.evicted as f64 / flows.admitted as f64);
        }
        if stats.windows > 0 {
            say("edge-windows-above", stats.windows_above as f64 / stats.windows as f64);
        }
        let class = host.classes.iter().position(|(own, _)| *own == leaf);
        if let Some((excess, above)) = class.and_then(|class| host.sources[class].compare()) {
            say("edge-estimate-excess", excess);
            say("edge-estimate-above", above);
        }
        let Some(allocator) = host.edge.allocator_mut(leaf) else { continue };
        let stats = allocator.stats(now);
        // Bit/s times ns, over ns.
        let allocated = stats.allocated as f64 / (now.as_nanos() as f64).max(1.0);
        let measured = stats.measured_bytes as f64 * 8e9 / (now.as_nanos() as f64).max(1.0);
        say("edge-allocated", allocated);
        if allocated > 0.0 {
            say("edge-efficiency", measured / allocated);
        }
        say("edge-requests", (stats.up + stats.down) as f64 / minutes);
        say("edge-requests-refused", stats.refused as f64);
        say("edge-congestions", stats.congestions as f64);
    }
}

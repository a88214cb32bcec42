//! The edge before a managed port of the box: when it begins to look, what it says while it runs, and its numbers
//! of the whole run.

use super::BoxRecording;
use crate::configure::Built;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use weir_conf::said;
use weir_core::queue::Link;
use weir_core::units::{Duration, Instant};
use weir_edge::allocate::Stats;
use weir_edge::edge::{ClassStats, Edge};
use weir_edge::flow::Flow;
use weir_engine::broker::Kind;
use weir_engine::{Control, Desk, EdgeClass, EdgePlan, LiveEdge};
use weir_report::recorder::{Allocated, AllocationNumbers, EdgeNumbers};
use weir_report::report::Admission;
use weir_sys::{now, sleep_until};

/// How often allocations are read.
const EVERY: Duration = Duration::from_millis(50);

/// The edge of a port that a configuration gives one, with brokers of its own. `overhead` bytes are charged per
/// packet beyond its frame, as by the port.
pub(super) fn edge(
    built: &mut Built,
    interface: &str,
    link: &Link,
    seed: u64,
) -> Result<Option<Box<LiveEdge>>, String> {
    let Some(weir_conf::EdgePlan { mut config, classes }) = built.edge.take() else { return Ok(None) };
    (config.seed, config.overhead) = (seed, link.overhead);
    let desk = Desk::open().map_err(|e| format!("a thread for the brokers: {e}"))?;
    let local = |(name, capacity_bps)| (name, Kind::Local { capacity_bps });
    desk.declare(built.brokers.drain(..).map(local).collect());
    let class = |class: weir_conf::EdgeClass| EdgeClass {
        name: class.name.clone(),
        broker: class.broker.as_ref().map(|(name, _)| name.clone()),
        shape: Box::new(move |rate_bps| class.shape(rate_bps)),
    };
    let classes = classes.into_iter().map(class).collect();
    let plan = EdgePlan { interface: interface.to_owned(), config, classes };
    Ok(Some(Box::new(LiveEdge::new(plan, desk, now()))))
}

/// An edge to be watched.
pub(super) struct Watched {
    /// The way to its worker, and its direction there.
    pub(super) control: Control,
    pub(super) direction: usize,
    /// Its port in the report.
    pub(super) port: usize,
    /// The leaves of its classes in the report, in their order; none for a class that the edge has for itself.
    pub(super) leaves: Vec<Option<usize>>,
    /// When it begins to look at packets.
    pub(super) from: Option<Instant>,
    /// The run.
    pub(super) t0: Instant,
    pub(super) end: Instant,
}

/// What an edge has done with its classes so far.
type Counts = Vec<(ClassStats, Option<Stats>)>;

fn counts(edge: &mut Edge, now: Instant) -> Counts {
    let classes: Vec<(u32, ClassStats)> = edge.class_stats().collect();
    let of = |(leaf, stats)| (stats, edge.allocator_mut(leaf).map(|allocator| allocator.stats(now)));
    classes.into_iter().map(of).collect()
}

fn allocated(edge: &mut Edge, _: Instant) -> Vec<(u32, Allocated)> {
    let read = |(place, allocator): (u32, &weir_edge::allocate::Allocator)| {
        let now = Allocated {
            rate_bps: allocator.allocated_bps(),
            estimate_bps: allocator.estimate_bps(),
            measured_bytes: allocator.measured_bytes(),
            requests: allocator.requests(),
        };
        (place, now)
    };
    edge.allocators().map(read).collect()
}

/// What became of the flows that were found, by their source ports.
fn admissions(edge: &mut Edge, now: Instant) -> Vec<(u16, Admission)> {
    let found = edge.flows(now).filter(|flow| flow.kind().is_some());
    let said = |flow: &Flow| {
        let explained = edge.explain_flow(flow);
        let (why, ..) = said::why(&explained.why, now);
        (flow.key().src_port, Admission { state: said::state(explained.state).to_owned(), why })
    };
    found.map(said).collect()
}

impl Watched {
    fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Edge, Instant) -> T + Send + 'static,
    ) -> Option<T> {
        self.control.with_edge(self.direction, act).ok().flatten()
    }

    /// Watches it up to the end of the run, and writes down what it says.
    pub(super) fn start(self, recording: Arc<Mutex<BoxRecording>>) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name("weir-lab-edge".into()).spawn(move || self.run(&recording))
    }

    fn run(&self, recording: &Mutex<BoxRecording>) {
        let mut waits = self.from;
        if waits.is_some() {
            self.ask(|edge, now| edge.recognise(now, false));
        }
        sleep_until(self.t0);
        let before = self.ask(counts).unwrap_or_default();
        let mut at = self.t0;
        while at < self.end {
            if waits.is_some_and(|from| from <= at) {
                waits = None;
                self.ask(|edge, now| edge.recognise(now, true));
            }
            let classes = self.ask(allocated).unwrap_or_default();
            let since = now().since(self.t0).as_nanos();
            if let Ok(mut recording) = recording.lock() {
                for (place, allocated) in classes {
                    if let Some(Some(leaf)) = self.leaves.get(place as usize) {
                        recording.recorder.allocated(self.port, *leaf, allocated, since);
                    }
                }
            }
            at += EVERY;
            let wake = waits.map_or(at, |from| at.min(from)).min(self.end);
            sleep_until(wake);
            at = wake;
        }
        let after = self.ask(counts).unwrap_or_default();
        let flows = self.ask(admissions).unwrap_or_default();
        let Ok(mut recording) = recording.lock() else { return };
        for (source_port, admission) in flows {
            if let Some(flow) = super::sender(source_port, recording.admissions.len()) {
                recording.admissions[flow] = Some(admission);
            }
        }
        for ((leaf, before), after) in self.leaves.iter().zip(&before).zip(&after) {
            if let Some(leaf) = leaf {
                recording.recorder.edge(
                    self.port,
                    *leaf,
                    &numbers(before, after),
                    self.end.since(self.t0).as_nanos(),
                );
            }
        }
    }
}

/// What came between two readings.
fn numbers(before: &(ClassStats, Option<Stats>), after: &(ClassStats, Option<Stats>)) -> EdgeNumbers {
    let flows = after.0;
    EdgeNumbers {
        admitted: flows.flows.admitted,
        refused: flows.flows.refused,
        evicted: flows.flows.evicted,
        windows: flows.windows,
        windows_above: flows.windows_above,
        allocation: before.1.zip(after.1).map(|(before, after)| AllocationNumbers {
            allocated: after.allocated - before.allocated,
            measured_bytes: after.measured_bytes - before.measured_bytes,
            requests: after.up + after.down - before.up - before.down,
            refused: after.refused - before.refused,
            congestions: after.congestions - before.congestions,
        }),
    }
}

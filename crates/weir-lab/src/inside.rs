//! The box: the same data plane as `weir up`, between the interfaces of the testbed, with a
//! recorder that hears every packet.

mod edges;

use crate::bed::BRIDGES;
use crate::configure::{Built, configure, fifo};
use edges::Watched;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use weir_core::packet::{Family, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, Refill, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};
use weir_engine::LiveEdge;
use weir_engine::state::{BridgeState, ClassState};
use weir_engine::up::{Pair, Side, Up, Way, up};
use weir_engine::{Delay, Observe, Pace, Processor};
use weir_io::PoolSize;
use weir_report::report::{Admission, ConditionerReport};
use weir_report::{Recorder, Report, RunKind};
use weir_scenario::lab::{LabLayout, lab_layout};
use weir_scenario::scenario::LinkSpec;
use weir_scenario::{Scenario, scenario};

/// Packets that a port without a configuration has room for.
const CAPACITY: u32 = 1 << 15;
/// Length of the layer-2 header.
const ETHERNET: u32 = 14;

/// What the box must know to start.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) scenario: Scenario,
    /// The file that the scenario was read from, for messages about places in it.
    pub(crate) file: PathBuf,
    /// For each port: what to call its configuration in messages, and its text.
    pub(crate) configurations: Vec<(String, String)>,
    pub(crate) seed: u64,
    pub(crate) t0_ns: u64,
    pub(crate) inputs: u64,
}

/// What the box saw.
#[derive(Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Ports and links are meant; flows are empty.
    pub(crate) report: Report,
    pub(crate) bridges: Vec<BridgeState>,
    /// Packets outside their asserted class, for each copy of a flow.
    pub(crate) misclassified: Vec<u64>,
    /// Packets of the sender that a port dropped, for each copy of a flow.
    pub(crate) dropped: Vec<u64>,
    /// The packet, from 1, with which an edge found it to be real-time, for each copy of a flow.
    pub(crate) recognised: Vec<Option<u64>>,
    /// What an edge made of it by the end of the run, likewise.
    pub(crate) admissions: Vec<Option<Admission>>,
}

/// A running box.
pub(crate) struct Running {
    up: Up,
    recording: Arc<Mutex<BoxRecording>>,
    /// Of each bridge: towards the right, towards the left.
    egresses: Vec<[Known; 2]>,
    /// Who watches the edges, until the run is over.
    watching: Vec<JoinHandle<()>>,
}

/// What the observers share. They run in one thread; who watches edges reads now and then.
struct BoxRecording {
    recorder: Recorder,
    misclassified: Vec<u64>,
    dropped: Vec<u64>,
    /// Packets of the sender that came, for each copy of a flow.
    came: Vec<u64>,
    /// With which of these an edge found it to be real-time.
    found: Vec<Option<u64>>,
    /// What an edge made of it.
    admissions: Vec<Option<Admission>>,
    t0: Instant,
    end: Instant,
}

impl BoxRecording {
    /// A port dropped a packet with that source port.
    fn count_dropped(&mut self, source_port: u16) {
        if let Some(flow) = sender(source_port, self.dropped.len()) {
            self.dropped[flow] += 1;
        }
    }
}

/// What is known of an egress.
#[derive(Clone)]
struct Known {
    /// Number of the managed port in the report.
    port: Option<usize>,
    /// Direction of its link in the report.
    direction: usize,
    /// For each copy of a flow, the leaf that its class is here.
    asserted: Vec<Option<u32>>,
    /// The names of its leaves.
    leaves: Vec<String>,
    /// The names of the classes of its edge, if it has one.
    edge: Option<Vec<String>>,
    /// When, after the start of the run, its edge begins to look at packets.
    looks_from: Option<Duration>,
}

fn link_of(link: &LinkSpec) -> Link {
    // Validated: an overhead of at most 1000 and an MTU of at most 65535.
    Link::new(link.rate.rate(), link.overhead.as_bytes() as u32, link.mtu.as_bytes() as u32 + ETHERNET)
}

pub(crate) fn start(with: Value, registry: &Registry) -> Result<Running, String> {
    let mut start: Start = serde_json::from_value(with).map_err(|e| e.to_string())?;
    start.scenario.file = std::mem::take(&mut start.file);
    let scenario = &start.scenario;
    let layout = lab_layout(scenario).map_err(|e| e.to_string())?;
    let mut recorder = scenario.recorder(RunKind::Lab, start.inputs);
    // The report lists ports in the order of the scenario.
    let mut ports: Vec<Option<(usize, Built)>> = Vec::new();
    let mut names_of_ports = Vec::new();
    for (index, port) in scenario.ports.iter().enumerate() {
        let (link, _) = scenario.link_between(&port.at, &port.to).ok_or("a port without a link")?;
        let (name, text) = start.configurations.get(index).ok_or("a port without a configuration")?;
        let built =
            configure(name, text, port.interface.as_deref(), link_of(&scenario.links[link]), registry)?;
        let names: Vec<String> = built.plan.tree.leaves.iter().map(|l| l.name.clone()).collect();
        let number = recorder.port(scenario.port_report(index, &built.discipline, &names));
        names_of_ports.push(names);
        ports.push(Some((number, built)));
    }
    scenario.fits(&names_of_ports).map_err(|all| all.to_string())?;
    let classes = ports.iter().flatten().map(|(_, built)| built.plan.tree.leaves.len() as u64);
    if let Some((what, mend)) = scenario.too_large(classes.sum()) {
        return Err(format!("{what}; {mend}"));
    }
    let recording = Arc::new(Mutex::new(BoxRecording {
        recorder,
        misclassified: vec![0; scenario.flow_copies().len()],
        dropped: vec![0; scenario.flow_copies().len()],
        came: vec![0; scenario.flow_copies().len()],
        found: vec![None; scenario.flow_copies().len()],
        admissions: vec![None; scenario.flow_copies().len()],
        t0: Instant::from_nanos(start.t0_ns),
        end: Instant::from_nanos(start.t0_ns + scenario.duration.as_nanos()),
    }));
    let observer = |known: &Known| -> Option<Box<dyn Observe>> {
        Some(Box::new(EgressObserver { known: known.clone(), recording: recording.clone() }))
    };
    let (mut pairs, mut egresses) = (Vec::new(), Vec::new());
    for (at, pair) in layout.boxes.iter().enumerate() {
        let mut manage = |side: usize| {
            let built = pair[side].port.and_then(|p| ports.get_mut(p).and_then(Option::take));
            manage(scenario, &layout, [at, side], built, start.seed + (2 * at + side) as u64)
        };
        let Managed { side: left, known: to_left, edge: edge_left } = manage(0)?;
        let Managed { side: right, known: to_right, edge: edge_right } = manage(1)?;
        if layout.boxes.len() > 1 && (edge_left.is_some() || edge_right.is_some()) {
            return Err(
                "in the lab an edge is in the only box: two boxes in line would find each flow twice".into(),
            );
        }
        pairs.push(Pair {
            way: Way::Packet,
            fails_closed: false,
            pool: PoolSize { frames: CAPACITY * 2, tails: 256 },
            workers: vec![Pace {
                processor: Processor::of_worker(at, layout.boxes.len(), false),
                ..Pace::default()
            }],
            parts: Vec::new(),
            observers: [observer(&to_right), observer(&to_left)],
            edges: [edge_right, edge_left],
            force: false,
            left,
            right,
        });
        egresses.push([to_right, to_left]);
    }
    let up = up(pairs).map_err(|e| e.to_string())?;
    let mut watching = Vec::new();
    let controls = up.bridges().map(|(_, control)| control);
    let all = controls.zip(&egresses).flat_map(|(control, both)| {
        both.iter().enumerate().map(move |(direction, known)| (control.clone(), direction, known))
    });
    for (control, direction, known) in all {
        let (Some(port), Some(classes)) = (known.port, &known.edge) else { continue };
        let (t0, end) =
            recording.lock().map(|recording| (recording.t0, recording.end)).map_err(|e| e.to_string())?;
        let leaf = |class: &String| known.leaves.iter().position(|leaf| leaf == class);
        let from = known.looks_from;
        let watched = Watched {
            control,
            direction,
            port,
            leaves: classes.iter().map(leaf).collect(),
            from: from.map(|from| t0 + from),
            t0,
            end,
        };
        watching.push(watched.start(recording.clone()).map_err(|e| e.to_string())?);
    }
    Ok(Running { up, recording, egresses, watching })
}

/// The egress of one side, as it is to run.
struct Managed {
    side: Side,
    known: Known,
    edge: Option<Box<LiveEdge>>,
}

/// The egress of one side: its port, its link below, its delay behind.
fn manage(
    scenario: &Scenario,
    layout: &LabLayout,
    [at, side]: [usize; 2],
    built: Option<(usize, Built)>,
    seed: u64,
) -> Result<Managed, String> {
    let egress = layout.boxes[at][side];
    let written = &scenario.links[egress.link];
    let refill = match written.refill {
        scenario::Refill::Packet => Refill::Packet,
        scenario::Refill::Batch => Refill::Batch,
    };
    let (port, mut built) = match built {
        Some((number, built)) => (Some(number), built),
        None => (None, fifo(written.queue)),
    };
    let config = PortConfig {
        capacity: CAPACITY,
        seed,
        tick: written.tick.duration(),
        packet_events: written.packet_events,
        ..PortConfig::new(link_of(written), WireConfig::Link { ring: written.ring, refill })
    };
    let forward = match egress.port.map(|p| &scenario.ports[p]) {
        Some(port) => scenario.link_between(&port.at, &port.to).is_none_or(|(_, forward)| forward),
        // An egress without a port is the other direction of the link that a port manages.
        None => {
            let port = layout.boxes[at][1].port.and_then(|port| scenario.ports.get(port));
            let port = port.ok_or("a box without a managed port")?;
            scenario.link_between(&port.at, &port.to).is_some_and(|(_, forward)| !forward)
        }
    };
    let parts = layout.sides.iter().flatten().flat_map(|host| {
        let delay = Duration::from_nanos(host.delays[at].as_nanos());
        let (v4, v6) = (scenario.address(host.host), scenario.address6(host.host));
        [(u128::from(v4.to_bits()), delay), (v6.to_bits(), delay)]
    });
    let classes = |edge: &weir_conf::EdgePlan| edge.classes.iter().map(|class| class.name.clone()).collect();
    let from = egress.port.and_then(|port| scenario.ports[port].recognise_from);
    let known = Known {
        edge: built.edge.as_ref().map(classes),
        looks_from: from.map(|from| Duration::from_nanos(from.as_nanos())),
        port,
        direction: Recorder::direction(egress.link, forward),
        asserted: scenario
            .flow_copies()
            .iter()
            .map(|copy| scenario.flows[copy.flow].class.as_deref().and_then(|c| built.plan.tree.leaf(c)))
            .collect(),
        leaves: built.plan.tree.leaves.iter().map(|l| l.name.clone()).collect(),
    };
    let edge = edges::edge(&mut built, BRIDGES[at][side], &config.link, seed)?;
    let side = Side {
        interface: BRIDGES[at][side].into(),
        port: Some(Port::new(config, built.plan)),
        delay: Delay { otherwise: Duration::ZERO, parts: parts.collect() },
    };
    Ok(Managed { side, known, edge })
}

/// Writes down what happens at one egress.
struct EgressObserver {
    known: Known,
    recording: Arc<Mutex<BoxRecording>>,
}

/// Source ports of flows begin here.
const FIRST_PORT: u16 = 20_000;

/// The copy of a flow whose sender uses this source port, of so many copies.
fn sender(source_port: u16, copies: usize) -> Option<usize> {
    source_port.checked_sub(FIRST_PORT).map(usize::from).filter(|&index| index < copies)
}

impl EgressObserver {
    /// Runs `write` with the recording and the time since the start, if the run is on.
    fn note(&self, at: Instant, write: impl FnOnce(&mut BoxRecording, u64)) {
        let Ok(mut recording) = self.recording.lock() else { return };
        if at >= recording.t0 && at < recording.end {
            let since = at.since(recording.t0).as_nanos();
            write(&mut recording, since);
        }
    }
}

impl Observe for EgressObserver {
    fn arrived(&mut self, _index: usize, now: Instant, key: &Key, leaf: u32, len: u32) {
        let Some(port) = self.known.port else { return };
        self.note(now, |recording, at| {
            recording.recorder.offered(port, leaf as usize, u64::from(len), at);
            if key.family == Family::Other {
                return;
            }
            // Only packets of the flow's own direction: what comes back is another class's affair.
            let asserted = &self.known.asserted;
            if let Some(flow) = sender(key.src_port, asserted.len()) {
                recording.came[flow] += 1;
                recording.misclassified[flow] += u64::from(asserted[flow].is_some_and(|l| l != leaf));
            }
        });
    }

    fn found(&mut self, _index: usize, key: &Key) {
        self.note(weir_sys::now(), |recording, _| {
            if let Some(flow) = sender(key.src_port, self.known.asserted.len()) {
                let packet = recording.came[flow] + 1;
                recording.found[flow].get_or_insert(packet);
            }
        });
    }

    fn told(&mut self, _index: usize, event: &Event<'_>) {
        let (known, direction) = (self.known.port, self.known.direction);
        let Event { at, meta, kind } = *event;
        let (class, len) = (meta.leaf as usize, u64::from(meta.len));
        self.note(at, |recording, since| match (kind, known) {
            (EventKind::Taken, Some(port)) => {
                if meta.is_marked() {
                    recording.recorder.marked(port, class, since);
                }
                recording.recorder.sent(port, class, len, at.since(meta.arrival).as_nanos(), since);
            }
            (EventKind::Taken, None) => {}
            (EventKind::Sent, _) => recording.recorder.carried(direction, len, since),
            (EventKind::Dropped(reason), Some(port)) => {
                recording.count_dropped(meta.src_port);
                recording.recorder.dropped(port, class, len, reason.name(), since);
            }
            (EventKind::Dropped(_), None) => {
                recording.count_dropped(meta.src_port);
                recording.recorder.link(direction).dropped.add(len);
            }
        });
    }
}

impl Running {
    /// Ends the run.
    pub(crate) fn stop(self) -> Result<Value, String> {
        for watch in self.watching {
            let _ = watch.join();
        }
        let bridges = self.up.stop().bridges;
        if let Some(why) = bridges.iter().find_map(|bridge| bridge.silent.clone()) {
            return Err(why);
        }
        let recording = Arc::into_inner(self.recording).ok_or("the worker still holds the recording")?;
        let mut recording = recording.into_inner().map_err(|_| "the worker panicked over its recording")?;
        let states = bridges.iter().flat_map(|bridge| &bridge.egresses);
        for (egress, known) in states.zip(self.egresses.iter().flatten()) {
            let Some(state) = &egress.port else { continue };
            recording.recorder.link(known.direction).refills = state.refills;
            let Some(port) = known.port else { continue };
            let report = |e: &ClassState| {
                ConditionerReport::of(&e.name, e.values.iter().map(|(n, v)| (n.as_str(), *v)))
            };
            recording.recorder.conditioners(port, state.conditioners.iter().map(report).collect());
            for state in &state.classes {
                let Some(class) = known.leaves.iter().position(|l| *l == state.name) else { continue };
                for (name, value) in &state.values {
                    recording.recorder.statistic(port, class, name, *value as f64);
                }
            }
        }
        let BoxRecording { recorder, misclassified, dropped, found, admissions, .. } = recording;
        let seen = Seen {
            report: recorder.finish(),
            bridges,
            misclassified,
            dropped,
            recognised: found,
            admissions,
        };
        serde_json::to_value(seen).map_err(|e| e.to_string())
    }
}

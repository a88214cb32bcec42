//! From a scenario to a world that can run.

use crate::edge::{Broker, EdgeHost};
use crate::event::EventQueue;
use crate::link::{Fifo, Pipe};
use crate::media::Content;
use crate::network::{Direction, END, Egress, FlowWays, Managed, Network};
use crate::packet::{ETHERNET, SHORTEST, Slab, frame, ip_header};
use crate::rng::Stream;
use crate::source::{Requester, Schedule, TcpFlow, UdpSource};
use crate::tcp::Config;
use crate::trace::Trace;
use crate::world::{Application, World};
use crate::{Built, Error, Options};
use std::collections::BTreeMap;
use weir_core::packet::Key;
use weir_core::packet::key::protocol;
use weir_core::port::{Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue;
use weir_core::units::{Duration, Instant};
use weir_report::report::Count;
use weir_report::{FlowKind, Recorder, RunKind};
use weir_scenario::FlowCopy;
use weir_scenario::scenario::{self, Flow, Scenario};
use weir_scenario::topology::Topology;

/// Timestamps and the fixed header.
const TCP_HEADER: u32 = 32;
/// "As much as the path takes": more than any queue here holds.
const WINDOW: u64 = 1 << 30;
/// Packets that a port without a configuration has room for; memory is used as they come.
const CAPACITY: u32 = 1 << 18;
/// Streams of brokers are numbered from here.
const BROKER_STREAMS: u64 = 1 << 33;
/// Streams of payloads are numbered from here.
const PAYLOAD_STREAMS: u64 = 1 << 34;
/// Streams of ports are numbered from here, those of flows from 0.
const PORT_STREAMS: u64 = 1 << 32;

/// Builds everything.
pub fn world<'a>(
    scenario: &Scenario,
    options: Options<'a>,
    inputs: u64,
    build: &mut dyn FnMut(usize, queue::Link) -> Result<Built, Error>,
) -> Result<World<'a>, Error> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let copies = scenario.flow_copies();
    let mut recorder = scenario.recorder(RunKind::Sim, inputs);
    recorder.meta().seed = seed;
    let cell = Duration::from_nanos(scenario.cell().as_nanos());
    let mut directions = directions(scenario);
    let ports = ports(scenario, seed, &copies, &mut directions, &mut recorder, build)?;
    let managed = ports.iter().filter(|managed| managed.report.is_some());
    if let Some((what, mend)) = scenario.too_large(managed.map(|m| m.port.leaves().len() as u64).sum()) {
        return Err(Error::Input(format!("{what}; {mend}")));
    }
    weir_scenario::congestion(scenario, RunKind::Sim).map_err(|why| Error::Unsupported(why.0))?;
    let mut routes = Routes { topology: Topology::of(scenario), entries: Vec::new(), known: BTreeMap::new() };
    let (mut flows, mut applications) = (Vec::new(), Vec::new());
    for (index, copy) in copies.iter().enumerate() {
        let ways = ways(scenario, copy, index, seed, &mut routes)?;
        let streams = [2 * index as u64, 2 * index as u64 + 1].map(|i| Stream::new(seed, i));
        let told = ports.iter().any(|m| m.edge.is_some() && m.asserted[index] != END);
        applications.push(application(scenario, copy, &routes.path(&ways), streams, told)?);
        flows.push(ways);
    }
    let names = |forward: fn(&scenario::LinkSpec) -> String, back: fn(&scenario::LinkSpec) -> String| {
        scenario.links.iter().flat_map(move |l| [forward(l), back(l)]).collect::<Vec<_>>()
    };
    let links = names(|l| format!("{}>{}", l.a, l.b), |l| format!("{}>{}", l.b, l.a));
    let trace = Trace::new(options.packets, links, copies.into_iter().map(|copy| copy.name).collect());
    let first_flow = directions.len() as u32;
    let first_port = first_flow + 2 * flows.len() as u32;
    let first_edge = first_port + ports.len() as u32;
    let brokers = brokers(scenario, seed, &ports);
    let mut queue = EventQueue::new(first_edge as usize + ports.len());
    for (flow, application) in applications.iter().enumerate() {
        queue.set(first_flow + 2 * flow as u32, application.next(0));
    }
    let network = Network {
        now: Instant::ZERO,
        queue,
        directions,
        ports,
        first_port,
        first_edge,
        brokers,
        packets: Slab::default(),
        routes: routes.entries,
        flows,
        recorder,
        trace,
        cell,
        made: 0,
    };
    let end = scenario.duration.instant();
    Ok(World { network, applications, first_flow, end, progress: options.progress })
}

/// The brokers of the scenario, and those of the configurations that it does not describe: they answer
/// at once.
fn brokers(scenario: &Scenario, seed: u64, ports: &[Managed]) -> Vec<Broker> {
    let asked = ports.iter().filter_map(|managed| managed.edge.as_ref());
    let asked = asked.flat_map(|host| host.classes.iter().filter_map(|(_, class)| class.broker.as_ref()));
    let mut brokers: Vec<Broker> = Vec::new();
    for (name, capacity) in asked {
        if brokers.iter().all(|broker| broker.name() != name) {
            let spec = scenario.brokers.iter().find(|spec| spec.name == *name).cloned();
            let spec =
                spec.unwrap_or_else(|| scenario::BrokerSpec { name: name.clone(), ..Default::default() });
            let stream = Stream::new(seed, BROKER_STREAMS + brokers.len() as u64);
            brokers.push(Broker::new(spec, capacity.as_bps(), stream));
        }
    }
    brokers
}

fn core_link(link: &scenario::LinkSpec) -> queue::Link {
    // Validated: an overhead of at most 1000 and an MTU of at most 65535.
    let mtu = link.mtu.as_bytes() as u32 + ETHERNET;
    queue::Link::new(link.rate.rate(), link.overhead.as_bytes() as u32, mtu)
}

/// Both directions of every link, unmanaged.
fn directions(scenario: &Scenario) -> Vec<Direction> {
    let both = scenario.links.iter().flat_map(|link| [link, link]);
    both.map(|link| Direction {
        pipe: Pipe::default(),
        egress: Egress::Fifo(Fifo::new(core_link(link), link.delay.duration(), link.queue, link.ring)),
        delay: link.delay.duration(),
        overhead: link.overhead.as_bytes() as u32,
        carried: Count::default(),
        dropped: Count::default(),
        wire_bytes: Vec::new(),
        cell_end: Instant::ZERO,
    })
    .collect()
}

/// The ports that the scenario manages, and FIFO ports where a ring is refilled in batches.
fn ports(
    scenario: &Scenario,
    seed: u64,
    copies: &[FlowCopy],
    directions: &mut [Direction],
    recorder: &mut Recorder,
    build: &mut dyn FnMut(usize, queue::Link) -> Result<Built, Error>,
) -> Result<Vec<Managed>, Error> {
    let mut ports: Vec<Managed> = Vec::new();
    let mut add = |direction: usize, link: &scenario::LinkSpec, built: Built, report: Option<usize>| {
        let refill = match link.refill {
            scenario::Refill::Packet => Refill::Packet,
            scenario::Refill::Batch => Refill::Batch,
        };
        let wire = WireConfig::Link { ring: link.ring, refill };
        let asserted = copies.iter().map(|copy| {
            let class = scenario.flows[copy.flow].class.as_deref();
            class.and_then(|class| built.plan.tree.leaf(class)).unwrap_or(END)
        });
        let asserted = asserted.collect();
        let config = PortConfig {
            capacity: CAPACITY,
            seed: Stream::new(seed, PORT_STREAMS + ports.len() as u64).next_u64(),
            tick: link.tick.duration(),
            packet_events: link.packet_events,
            ..PortConfig::new(core_link(link), wire)
        };
        directions[direction].egress = Egress::Port(ports.len() as u32);
        ports.push(Managed {
            edge: built.edge.map(|mut edge| {
                edge.config.overhead = link.overhead.as_bytes() as u32;
                let ideal = scenario.ports.get(ports.len()).is_some_and(|port| port.ideal);
                let from = scenario.ports.get(ports.len()).and_then(|port| port.recognise_from);
                let from = from.map_or(Instant::ZERO, |from| from.instant());
                let mut host = EdgeHost::new(edge, ideal);
                host.from = from;
                host
            }),
            port: Port::new(config, built.plan),
            report,
            direction: direction as u32,
            asserted,
            ring_max: 0,
        });
    };
    let (mut managed, mut classes, mut settings) = (Vec::new(), Vec::new(), Vec::new());
    for (index, port) in scenario.ports.iter().enumerate() {
        let Some((link, forward)) = scenario.link_between(&port.at, &port.to) else {
            return Err(Error::Input(format!(
                "port {}: no link leads from `{}` to `{}`; add a [[link]] between them",
                port.name(),
                port.at,
                port.to
            )));
        };
        let written = &scenario.links[link];
        let built = build(index, core_link(written))?;
        settings.push(crate::edge::settings(port, built.edge.as_ref()).map_err(Error::Input)?);
        let names: Vec<String> = built.plan.tree.leaves.iter().map(|leaf| leaf.name.clone()).collect();
        let report = recorder.port(scenario.port_report(index, &built.discipline, &names));
        classes.push(names);
        let direction = Recorder::direction(link, forward);
        managed.push(direction);
        add(direction, written, built, Some(report));
    }
    scenario.fits(&classes).map_err(|all| Error::Input(all.to_string()))?;
    for (index, link) in scenario.links.iter().enumerate() {
        for direction in [2 * index, 2 * index + 1] {
            if link.refill == scenario::Refill::Batch && !managed.contains(&direction) {
                add(
                    direction,
                    link,
                    Built { plan: PortPlan::fifo(link.queue), discipline: "fifo".into(), edge: None },
                    None,
                );
            }
        }
    }
    // Ports with a configuration come first, in the order of the scenario.
    for (port, settings) in ports.iter_mut().zip(settings) {
        port.edge.iter_mut().for_each(|host| host.settings = settings.clone());
    }
    Ok(ports)
}

/// Routes of directions, each kept once.
struct Routes {
    topology: Topology,
    entries: Vec<u32>,
    known: BTreeMap<(usize, usize), u32>,
}

impl Routes {
    fn between(&mut self, scenario: &Scenario, from: usize, to: usize) -> Option<u32> {
        if let Some(&known) = self.known.get(&(from, to)) {
            return Some(known);
        }
        let first = self.entries.len() as u32;
        let mut node = from;
        for hop in self.topology.path(from, to)? {
            let forward = scenario.links[hop.link].a == self.topology.name(node);
            self.entries.push(Recorder::direction(hop.link, forward) as u32);
            node = hop.to;
        }
        self.entries.push(END);
        self.known.insert((from, to), first);
        Some(first)
    }

    /// The links of both ways of a flow.
    fn path(&self, ways: &FlowWays) -> Vec<usize> {
        let route = |first: u32| self.entries[first as usize..].iter().take_while(|&&d| d != END);
        ways.routes.iter().flat_map(|&first| route(first)).map(|&d| d as usize / 2).collect()
    }
}

fn ways(
    scenario: &Scenario,
    copy: &FlowCopy,
    index: usize,
    seed: u64,
    routes: &mut Routes,
) -> Result<FlowWays, Error> {
    let flow = &scenario.flows[copy.flow];
    let host = |name: &str| {
        scenario.host(name).ok_or_else(|| {
            Error::Input(format!("flow {}: `{name}` is not a host; declare it with [[host]]", copy.name))
        })
    };
    let (from, to) = (host(&flow.from)?, host(&flow.to)?);
    let number = match flow.kind {
        FlowKind::Tcp => protocol::TCP,
        FlowKind::Udp | FlowKind::Rr | FlowKind::Rtp => protocol::UDP,
    };
    let key = |from: usize, to: usize, src: u16, dst: u16| {
        let key = match flow.ipv6 {
            false => Key::ipv4(scenario.address(from), scenario.address(to), number),
            true => Key::ipv6(scenario.address6(from), scenario.address6(to), number),
        };
        key.with_ports(src, dst).with_tos(flow.dscp.code() << 2)
    };
    let keys = [key(to, from, flow.port, copy.source_port), key(from, to, copy.source_port, flow.port)];
    let mut route = |a: usize, b: usize| {
        routes.between(scenario, a, b).ok_or_else(|| {
            let (a, b) = (&scenario.hosts[a].name, &scenario.hosts[b].name);
            Error::Input(format!(
                "flow {}: no way leads from `{a}` to `{b}`; add the missing [[link]]",
                copy.name
            ))
        })
    };
    let routes = [route(to, from)?, route(from, to)?];
    let seed = Stream::new(seed, PAYLOAD_STREAMS + index as u64).next_u64();
    let content = Content::new(flow, copy.number, seed);
    Ok(FlowWays { keys, routes, content, transactions: flow.kind == FlowKind::Rr })
}

/// The application of a flow: `path` are the links of both its ways, `streams` its own draws; `told` if
/// an edge on its way is to know what it sends.
fn application(
    scenario: &Scenario,
    copy: &FlowCopy,
    path: &[usize],
    streams: [Stream; 2],
    told: bool,
) -> Result<Application, Error> {
    let flow = &scenario.flows[copy.flow];
    let links = || path.iter().map(|&link| &scenario.links[link]);
    let [mut offsets, draws] = streams;
    let round_trip_ns: u64 = links().map(|link| link.delay.as_nanos()).sum();
    let offset_ns = offsets.below(round_trip_ns);
    let active = flow.active(scenario.duration);
    let schedule = Schedule::new(active.iter().map(|(a, b)| (a.as_nanos(), b.as_nanos())), offset_ns);
    Ok(match flow.kind {
        FlowKind::Udp => {
            let size = flow.size.map_or(SHORTEST, |s| s.as_bytes() as u32);
            let payload = size.saturating_sub(ETHERNET + ip_header(flow.ipv6) + 8);
            let source = UdpSource::new(flow, schedule, draws, told);
            Application::Udp { source, size, payload, ecn: flow.ecn, sent: 0 }
        }
        FlowKind::Rtp => {
            let payload = flow.media_octets();
            let size = frame(payload + 8 + ip_header(flow.ipv6));
            let source = UdpSource::new(flow, schedule, draws, told);
            Application::Udp { source, size, payload, ecn: flow.ecn, sent: 0 }
        }
        FlowKind::Rr => {
            let payload = |size: Option<weir_text::Size>| size.map_or(1, |s| s.as_bytes() as u32);
            let size = |payload: u32| frame(payload + 8 + ip_header(flow.ipv6));
            let payloads = [payload(flow.request), payload(flow.response)];
            let pause = flow.pause.map_or(Duration::ZERO, |pause| pause.duration());
            let requester = Requester::new(schedule, pause);
            Application::Rr { requester, sizes: payloads.map(size), payloads }
        }
        FlowKind::Tcp => {
            let mtu = links().map(|link| link.mtu.as_bytes()).min().unwrap_or(1500) as u32;
            Application::Tcp(Box::new(tcp(flow, mtu, schedule)))
        }
    })
}

fn tcp(flow: &Flow, mtu: u32, schedule: Schedule) -> TcpFlow {
    let ip_header = ip_header(flow.ipv6);
    let full = flow.size.map_or(mtu + ETHERNET, |size| size.as_bytes() as u32);
    let config = Config {
        mss: full.saturating_sub(ETHERNET + ip_header + TCP_HEADER).max(1),
        window: flow.window.map_or(WINDOW, |window| window.as_bytes()),
        sack: flow.sack,
        ecn: flow.ecn,
        slow_start: flow.slow_start,
        delayed_ack: flow.delayed_ack,
        ..Config::default()
    };
    let chunk = flow.chunk.map(|chunk| (chunk.as_bytes(), flow.pause.map(|pause| pause.duration())));
    TcpFlow::new(&config, ip_header, schedule, chunk)
}

//! The network between the hosts: links, ports, the packets on them, and who hears of it.

use crate::edge::{Broker, EdgeHost};
use crate::event::EventQueue;
use crate::link::{Fifo, Flight, Parcel, Pipe, arrival};
use crate::media::Content;
use crate::orders;
use crate::packet::{Body, Packet, PacketIndex, Slab};
use crate::trace::{self, Trace};
use weir_core::packet::{FrameRef, Key};
use weir_core::port::{Event, EventKind, Port};
use weir_core::queue::DropReason;
use weir_core::queue::Visit;
use weir_core::sched::LeafInfo;
use weir_core::units::{Duration, Instant};
use weir_edge::recognise::{Payload, SEEN};
use weir_report::Recorder;
use weir_report::report::{ConditionerReport, Count};

/// The end of a route.
pub const END: u32 = u32::MAX;

/// One direction of a link.
#[derive(Debug)]
pub struct Direction {
    /// What is on its way.
    pub pipe: Pipe,
    /// What stands at its near end.
    pub egress: Egress,
    /// Propagation.
    pub delay: Duration,
    /// Bytes of wire time a frame takes besides its length.
    pub overhead: u32,
    /// Frames carried whole.
    pub carried: Count,
    /// Frames that an unmanaged egress dropped.
    pub dropped: Count,
    /// Wire bytes in cells of the report's series, and where the last of them ends.
    pub wire_bytes: Vec<u64>,
    /// Where the last cell ends.
    pub cell_end: Instant,
}

/// What stands at the near end of a direction.
#[derive(Debug)]
pub enum Egress {
    /// A FIFO that needs no port.
    Fifo(Fifo),
    /// The port of that number.
    Port(u32),
}

impl Direction {
    /// Counts a frame whose last bit left.
    fn carry(&mut self, flight: &Flight, cell: Duration) {
        while flight.left >= self.cell_end {
            self.wire_bytes.push(0);
            self.cell_end += cell;
        }
        self.carried.add(u64::from(flight.parcel.len));
        if let Some(last) = self.wire_bytes.last_mut() {
            *last += u64::from(flight.parcel.len + self.overhead);
        }
    }
}

/// A port of weir-core at the near end of a direction.
pub struct Managed {
    /// The edge before it, if it has one.
    pub edge: Option<EdgeHost>,
    /// The port.
    pub port: Port,
    /// Its number in the report; `None` if the scenario does not manage it.
    pub report: Option<usize>,
    /// The direction whose near end it is.
    pub direction: u32,
    /// The leaf asserted for each flow; `END` for none.
    pub asserted: Vec<u32>,
    /// Most packets that its ring held.
    pub ring_max: u32,
}

/// What the network knows of a flow. Arrays are by the side that receives.
#[derive(Clone, Debug)]
pub struct FlowWays {
    /// Header fields of its packets.
    pub keys: [Key; 2],
    /// First entry of its routes.
    pub routes: [u32; 2],
    /// What its payloads are made from.
    pub content: Content,
    /// Whether it is made of transactions, whose ends themselves say what was lost.
    pub transactions: bool,
}

impl FlowWays {
    /// True if the flow's report counts this packet as lost when it is dropped: one that its sender
    /// sent, not an acknowledgement.
    fn counts_lost(&self, packet: &Packet) -> bool {
        packet.to_side == 1 && !self.transactions
    }
}

/// The network.
pub struct Network<'a> {
    /// The present.
    pub now: Instant,
    /// Who acts when.
    pub queue: EventQueue,
    /// Every direction of every link.
    pub directions: Vec<Direction>,
    /// The ports.
    pub ports: Vec<Managed>,
    /// The entity number of the first port.
    pub first_port: u32,
    /// The entity number of the edge before the first port.
    pub first_edge: u32,
    /// Whom edges ask.
    pub brokers: Vec<Broker>,
    /// The packets.
    pub packets: Slab,
    /// Directions to take, one route after the other, each with `END` behind it.
    pub routes: Vec<u32>,
    /// The flows.
    pub flows: Vec<FlowWays>,
    /// The report in the making.
    pub recorder: Recorder,
    /// Hash and packets.csv.
    pub trace: Trace<'a>,
    /// Length of a cell of the series.
    pub cell: Duration,
    /// Packets made so far.
    pub made: u64,
}

impl<'w> Network<'w> {
    /// A host sends a packet of a flow to its other side.
    pub fn send(&mut self, flow: u32, to_side: u8, len: u32, ect: bool, body: Body) {
        let ways = &self.flows[flow as usize];
        let side = usize::from(to_side & 1);
        let tos = ways.keys[side].tos | if ect { 2 } else { 0 };
        let route = ways.routes[side];
        let number = self.made;
        self.made += 1;
        let packet = Packet { number, sent_at: self.now, flow, route, len, tos, to_side };
        if to_side == 1 {
            self.recorder.flow(flow as usize).sent.add(u64::from(len));
        }
        let index = self.packets.insert(packet, body);
        self.forward(Parcel { packet: index, route, number, len });
    }

    /// The first packet on its way along `direction` is there. If that is its end, answers its row, which can be
    /// read until the next packet is sent.
    pub fn arrive(&mut self, direction: u32) -> Option<PacketIndex> {
        let there = &mut self.directions[direction as usize];
        let flight = there.pipe.pop()?;
        there.carry(&flight, self.cell);
        if let Egress::Fifo(fifo) = &mut there.egress {
            fifo.arrived();
        }
        let next = there.pipe.next_arrival();
        self.queue.set(direction, next);
        let parcel = flight.parcel;
        let event =
            trace::Event { at: self.now, kind: trace::Kind::Delivered, direction, packet: parcel.number };
        self.trace.note(event, || detail(self.packets.get(parcel.packet), ""));
        if self.routes[parcel.route as usize] == END {
            self.packets.remove(parcel.packet);
            return Some(parcel.packet);
        }
        self.forward(parcel);
        None
    }

    /// Offers a packet to the next direction of its route.
    fn forward(&mut self, mut parcel: Parcel) {
        let direction = self.routes[parcel.route as usize];
        parcel.route += 1;
        let index = parcel.packet;
        let there = &mut self.directions[direction as usize];
        let port = match &mut there.egress {
            Egress::Port(port) => *port,
            Egress::Fifo(fifo) => {
                match fifo.offer(self.now, parcel, &there.pipe) {
                    Some(flight) => {
                        if there.pipe.push(flight) {
                            self.queue.set(direction, flight.arrives);
                        }
                    }
                    None => {
                        there.dropped.add(u64::from(parcel.len));
                        self.bury(index, direction, "tail");
                    }
                }
                return;
            }
        };
        self.packets.get_mut(index).route = parcel.route;
        self.offer(port, index);
    }

    fn bury(&mut self, index: PacketIndex, direction: u32, reason: &'static str) {
        let packet = self.packets.remove(index);
        if self.flows[packet.flow as usize].counts_lost(packet) {
            self.recorder.flow(packet.flow as usize).lost += 1;
        }
        note(&mut self.trace, packet, self.now, trace::Kind::Dropped, direction, reason);
    }

    fn offer(&mut self, port: u32, index: PacketIndex) {
        if !self.examine(port, index) {
            return;
        }
        let packet = *self.packets.get(index);
        let managed = &mut self.ports[port as usize];
        let key = self.flows[packet.flow as usize].keys[usize::from(packet.to_side & 1)].with_tos(packet.tos);
        let now = self.now;
        let conditioned = managed.port.condition(now, packet.len, FrameRef(index), &key);
        let leaf = conditioned.leaf();
        if let Some(host) = managed.edge.as_mut().filter(|_| !conditioned.is_policed()) {
            host.edge.entered(now, leaf, packet.len);
        }
        if let Some(report) = managed.report {
            let asserted = managed.asserted[packet.flow as usize];
            if packet.to_side == 1 && asserted != END && asserted != leaf {
                self.recorder.flow(packet.flow as usize).misclassified += 1;
            }
            let at = self.now.as_nanos();
            self.recorder.offered(report, leaf as usize, u64::from(packet.len), at);
        }
        let (port_here, mut host) = self.port_and_host(port);
        port_here.offer(now, conditioned, &mut |event| host.hear(event));
        self.look_at(port);
    }

    /// The edge before a port looks at a packet. False if it drops it.
    fn examine(&mut self, port: u32, index: PacketIndex) -> bool {
        let managed = &mut self.ports[port as usize];
        let now = self.now;
        let Some(host) = managed.edge.as_mut().filter(|host| host.from <= now) else { return true };
        let body = *self.packets.body(index);
        let packet = self.packets.get_mut(index);
        let ways = &self.flows[packet.flow as usize];
        let key = ways.keys[usize::from(packet.to_side & 1)].with_tos(packet.tos);
        let (head, number, len) = match body {
            Body::Datagram { number, payload } => {
                (ways.content.head(number, packet.sent_at), number, payload)
            }
            Body::Tcp(_) => ([0; SEEN], 0, 0),
        };
        let payload = Payload { head: &head[..SEEN.min(len as usize)], len };
        let verdict = host.edge.packet(now, &key, payload, packet.len);
        if verdict.flow_found().is_some() && packet.to_side == 1 {
            self.recorder.flow(packet.flow as usize).recognised.get_or_insert(number + 1);
        }
        packet.tos = verdict.tos;
        let direction = managed.direction;
        if verdict.drop {
            self.bury(index, direction, DropReason::Policed.name());
            self.orders(port);
        }
        !verdict.drop
    }

    /// The clock reached the next event of a port.
    pub fn advance(&mut self, port: u32) {
        let now = self.now;
        let (port_here, mut host) = self.port_and_host(port);
        port_here.advance(now, &mut |event| host.hear(event));
        self.look_at(port);
    }

    /// A port, and what hears its events.
    pub(crate) fn port_and_host(&mut self, number: u32) -> (&mut Port, Host<'_, 'w>) {
        let Network { ports, directions, packets, flows, recorder, trace, queue, now, .. } = self;
        let Managed { port, report, direction, edge, .. } = &mut ports[number as usize];
        let (report, direction) = (*report, *direction);
        let there = &mut directions[direction as usize];
        let edge = edge.as_mut();
        (port, Host { now: *now, edge, report, direction, there, packets, flows, recorder, trace, queue })
    }

    /// After a call to a port: how full its ring is, and when it is to be called next.
    pub(crate) fn look_at(&mut self, number: u32) {
        if self.ports[number as usize].edge.is_some() {
            self.orders(number);
        }
        let managed = &mut self.ports[number as usize];
        managed.ring_max = managed.ring_max.max(managed.port.in_ring());
        self.queue.set(self.first_port + number, managed.port.next_wake_up());
    }

    /// The run is over: writes the disciplines' own counters into the report.
    pub fn statistics(&mut self) {
        let now = self.now;
        for managed in &mut self.ports {
            if let (Some(port), Some(host)) = (managed.report, &mut managed.edge) {
                orders::statistics(&mut self.recorder, port, host, now);
                orders::admissions(&mut self.recorder, &self.flows, host, now);
            }
        }
        for managed in &self.ports {
            if let Some(port) = managed.report {
                let (recorder, leaves) = (&mut self.recorder, managed.port.leaves());
                let class = (leaves.len() == 1).then_some(0);
                managed.port.visit_stats(&mut IntoReport { recorder, port, leaves, class });
                if let Some(conditioners) = managed.port.conditioners() {
                    let mut elements = Elements::default();
                    conditioners.visit_stats(&mut elements);
                    self.recorder.conditioners(port, elements.reports());
                }
            }
        }
    }

    /// The run is over: writes what the network counted into the report.
    pub fn close(&mut self, end: Instant) {
        for (number, there) in self.directions.iter_mut().enumerate() {
            let flights: Vec<Flight> = there.pipe.iter().filter(|f| f.left <= end).copied().collect();
            for flight in &flights {
                there.carry(flight, self.cell);
            }
            let report = self.recorder.link(number);
            (report.carried, report.dropped) = (there.carried, there.dropped);
            report.wire_bytes = std::mem::take(&mut there.wire_bytes);
            match &there.egress {
                Egress::Fifo(fifo) => {
                    report.ring_max = fifo.ring_max as u64;
                    report.refills = there.carried.packets;
                }
                Egress::Port(port) => {
                    let managed = &self.ports[*port as usize];
                    report.ring_max = u64::from(managed.ring_max);
                    report.refills = managed.port.refills();
                }
            }
        }
    }
}

/// What a port's events change: everything of the network but its ports.
pub(crate) struct Host<'a, 'w> {
    now: Instant,
    /// The edge before the port.
    edge: Option<&'a mut EdgeHost>,
    /// The port's number in the report.
    report: Option<usize>,
    direction: u32,
    there: &'a mut Direction,
    packets: &'a mut Slab,
    flows: &'a [FlowWays],
    recorder: &'a mut Recorder,
    trace: &'a mut Trace<'w>,
    queue: &'a mut EventQueue,
}

impl Host<'_, '_> {
    /// Does what an event asks for. What was due a part of a nanosecond before `now` is done within
    /// the same call: the report has the event's own time, the trace, which is in order, has `now`.
    pub(crate) fn hear(&mut self, Event { at, meta, kind }: Event<'_>) {
        let (now, direction, class, len) =
            (self.now, self.direction, meta.leaf as usize, u64::from(meta.len));
        if let Some(host) = &mut self.edge {
            host.hear(now, kind, meta.leaf, meta.len);
        }
        match kind {
            EventKind::Taken => {
                if meta.tos_out() != meta.tos_in {
                    self.packets.get_mut(meta.frame.0).tos = meta.tos_out();
                }
                if meta.is_marked() {
                    let packet = self.packets.get(meta.frame.0);
                    note(self.trace, packet, now, trace::Kind::Marked, direction, "");
                }
                if let Some(report) = self.report {
                    let delay = at.since(meta.arrival).as_nanos();
                    if meta.is_marked() {
                        self.recorder.marked(report, class, at.as_nanos());
                    }
                    self.recorder.sent(report, class, len, delay, at.as_nanos());
                }
            }
            EventKind::Sent => {
                let arrives = arrival(at.into(), self.there.delay).max(now);
                let Packet { route, number, .. } = *self.packets.get(meta.frame.0);
                let parcel = Parcel { packet: meta.frame.0, route, number, len: meta.len };
                let flight = Flight { left: at, arrives, parcel };
                if self.there.pipe.push(flight) {
                    self.queue.set(direction, arrives);
                }
            }
            EventKind::Dropped(reason) => {
                let packet = self.packets.remove(meta.frame.0);
                let flow = packet.flow as usize;
                note(self.trace, packet, now, trace::Kind::Dropped, direction, reason.name());
                if self.flows[flow].counts_lost(packet) {
                    self.recorder.flow(flow).lost += 1;
                }
                match self.report {
                    Some(report) => self.recorder.dropped(report, class, len, reason.name(), at.as_nanos()),
                    None => self.there.dropped.add(len),
                }
            }
        }
    }
}

/// Puts what a discipline says of its classes into the report.
struct IntoReport<'a> {
    recorder: &'a mut Recorder,
    port: usize,
    leaves: &'a [LeafInfo],
    class: Option<usize>,
}

impl Visit for IntoReport<'_> {
    fn class(&mut self, class: &str, _depth: u32) {
        // A discipline without classes has one leaf, whatever it calls itself.
        let only = (self.leaves.len() == 1).then_some(0);
        self.class = self.leaves.iter().position(|leaf| leaf.name == class).or(only);
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        if let Some(class) = self.class {
            self.recorder.statistic(self.port, class, name, value as f64);
        }
    }
}

/// What conditioners and meters say of themselves.
#[derive(Default)]
struct Elements(Vec<(String, Vec<(&'static str, i64)>)>);

impl Visit for Elements {
    fn class(&mut self, name: &str, _depth: u32) {
        self.0.push((name.to_string(), Vec::new()));
    }
    fn value(&mut self, name: &'static str, _unit: &'static str, value: i64) {
        if let Some((_, values)) = self.0.last_mut() {
            values.push((name, value));
        }
    }
}

impl Elements {
    fn reports(self) -> Vec<ConditionerReport> {
        let report = |(name, values): &(String, Vec<_>)| ConditionerReport::of(name, values.iter().copied());
        self.0.iter().map(report).collect()
    }
}

fn note(
    trace: &mut Trace<'_>,
    packet: &Packet,
    at: Instant,
    kind: trace::Kind,
    direction: u32,
    reason: &'static str,
) {
    trace.note(trace::Event { at, kind, direction, packet: packet.number }, || detail(packet, reason));
}

fn detail(packet: &Packet, reason: &'static str) -> trace::Detail {
    let Packet { flow, to_side, len, .. } = *packet;
    trace::Detail { flow, to_side, len, reason }
}

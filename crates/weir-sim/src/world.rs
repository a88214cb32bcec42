//! The hosts on top of the network, and the loop that runs both.

use crate::Error;
use crate::network::Network;
use crate::packet::{Body, PacketIndex, frame};
use crate::source::{Requester, Step, TcpFlow, UdpSource};
use weir_core::units::Instant;
use weir_report::Report;
use weir_text::Time;

/// Events between two calls of the progress callback.
const PROGRESS_EVERY: u32 = 1 << 18;

/// What a flow's hosts do.
pub enum Application {
    /// A connection.
    Tcp(Box<TcpFlow>),
    /// Datagrams one way.
    Udp {
        /// When they are sent.
        source: UdpSource,
        /// Bytes of a frame.
        size: u32,
        /// Octets of payload in it.
        payload: u32,
        /// Whether they may be marked.
        ecn: bool,
        /// Datagrams sent.
        sent: u64,
    },
    /// Transactions; frames and payloads of request and response.
    Rr {
        /// The requesting side.
        requester: Requester,
        /// Bytes of the frames.
        sizes: [u32; 2],
        /// Octets of payload.
        payloads: [u32; 2],
    },
}

impl Application {
    /// When a side has something to do though nothing arrives.
    pub fn next(&self, side: usize) -> Instant {
        match (self, side) {
            (Application::Tcp(flow), _) => flow.next(side),
            (Application::Udp { source, .. }, 0) => source.next(),
            (Application::Rr { requester, .. }, 0) => requester.next(),
            _ => Instant::NEVER,
        }
    }
}

/// A scenario that runs.
pub struct World<'a> {
    /// Links, ports and packets.
    pub network: Network<'a>,
    /// One for each copy of a flow.
    pub applications: Vec<Application>,
    /// The entity number of side 0 of the first flow; side 1 is the next.
    pub first_flow: u32,
    /// When the run ends.
    pub end: Instant,
    /// Whom to tell how far the run is.
    pub progress: Option<&'a mut dyn FnMut(Time, Time)>,
}

impl World<'_> {
    /// Runs to the end.
    pub fn run(mut self) -> Result<Report, Error> {
        let mut countdown = PROGRESS_EVERY;
        self.network.begin();
        while let Some((at, entity)) = self.network.queue.first()
            && at < self.end
        {
            self.network.now = at;
            self.step(entity);
            countdown -= 1;
            if countdown == 0 {
                countdown = PROGRESS_EVERY;
                if let Some(progress) = &mut self.progress {
                    let time = |t: Instant| Time::from_nanos(t.as_nanos());
                    progress(time(at), time(self.end));
                }
            }
        }
        self.finish()
    }

    fn step(&mut self, entity: u32) {
        if entity < self.first_flow {
            if let Some(index) = self.network.arrive(entity) {
                self.receive(index);
            }
        } else if entity < self.network.first_port {
            let number = entity - self.first_flow;
            let (flow, side) = (number / 2, (number % 2) as usize);
            self.on_timer(flow, side);
            let next = self.applications[flow as usize].next(side);
            self.network.queue.set(entity, next);
        } else if entity < self.network.first_edge {
            self.network.advance(entity - self.network.first_port);
        } else {
            self.network.edge_timer(entity - self.network.first_edge);
        }
    }

    /// A time that is later than the one in the queue is looked at when that one comes: moving
    /// the retransmission timer with every acknowledgement would cost more than it is worth.
    fn wake(&mut self, flow: u32, side: usize) {
        let entity = self.first_flow + 2 * flow + side as u32;
        let next = self.applications[flow as usize].next(side);
        if next < self.network.queue.time_of(entity) {
            self.network.queue.set(entity, next);
        }
    }

    fn on_timer(&mut self, flow: u32, side: usize) {
        let (now, network) = (self.network.now, &mut self.network);
        match &mut self.applications[flow as usize] {
            Application::Tcp(connection) => {
                connection.on_timer(side, now);
                transmit(network, flow, connection, side);
            }
            Application::Udp { source, size, payload, ecn, sent } => {
                let packets = source.fire(now);
                if let Some((before, after)) = source.sends(now) {
                    network.sends(flow, before, after);
                }
                for _ in 0..packets {
                    let body = Body::Datagram { number: *sent, payload: *payload };
                    *sent += 1;
                    network.send(flow, 1, *size, *ecn, body);
                }
            }
            Application::Rr { requester, sizes, payloads } => {
                let step = requester.on_timer(now);
                request(network, flow, step, sizes[0], payloads[0]);
            }
        }
    }

    /// A packet is at its end.
    fn receive(&mut self, index: PacketIndex) {
        let network = &mut self.network;
        let (now, packet) = (network.now, *network.packets.get(index));
        let (flow, side) = (packet.flow, usize::from(packet.to_side & 1));
        let ce = packet.tos & 3 == 3;
        if ce && side == 1 {
            network.recorder.flow(flow as usize).marked += 1;
        }
        match (&mut self.applications[flow as usize], network.packets.body(index)) {
            (Application::Tcp(connection), Body::Tcp(segment)) => {
                let delivered = connection.ends[side].on_segment(now, segment, ce);
                if side == 1 && delivered > 0 {
                    network.recorder.delivered(flow as usize, delivered, now.as_nanos());
                }
                if side == 0 {
                    connection.on_acknowledged(now);
                    let stats = connection.ends[0].sender.stats();
                    if stats.rtt_samples != connection.rtt_reported {
                        connection.rtt_reported = stats.rtt_samples;
                        network.recorder.rtt(flow as usize, stats.rtt_last_ns);
                    }
                }
                transmit(network, flow, connection, side);
                self.wake(flow, side);
            }
            (Application::Udp { .. }, &Body::Datagram { payload, .. }) => {
                let age = now.since(packet.sent_at).as_nanos();
                network.recorder.delivered(flow as usize, u64::from(payload), now.as_nanos());
                network.recorder.one_way(flow as usize, age);
            }
            (Application::Rr { sizes, payloads, .. }, &Body::Datagram { number, payload }) if side == 1 => {
                network.recorder.delivered(flow as usize, u64::from(payload), now.as_nanos());
                network.send(flow, 0, sizes[1], false, Body::Datagram { number, payload: payloads[1] });
            }
            (Application::Rr { requester, sizes, payloads }, &Body::Datagram { number, .. }) => {
                let step = requester.on_response(now, number);
                request(network, flow, step, sizes[0], payloads[0]);
                self.wake(flow, 0);
            }
            // A flow carries only what its own sender made.
            _ => {}
        }
    }

    fn finish(mut self) -> Result<Report, Error> {
        self.network.now = self.end;
        self.network.close(self.end);
        for (flow, application) in self.applications.iter().enumerate() {
            if let Application::Tcp(connection) = application {
                let report = self.network.recorder.flow(flow);
                report.retransmits = Some(connection.ends[0].retransmits());
                report.timeouts = Some(connection.ends[0].sender.stats().timeouts);
            }
        }
        self.network.statistics();
        let broken = self.network.ports.iter().filter_map(|m| m.port.is_broken().map(|b| (m.report, b)));
        let notes =
            broken.map(|(port, b)| format!("port {port:?}: {} fell back to FIFO: {}", b.discipline, b.what));
        let notes: Vec<String> = notes.collect();
        let hash = self.network.trace.finish().map_err(Error::Io)?;
        let meta = self.network.recorder.meta();
        meta.notes.extend(notes);
        meta.events = Some(format!("{hash:016x}"));
        Ok(self.network.recorder.finish())
    }
}

/// Sends what a side of a connection has to send.
fn transmit(network: &mut Network<'_>, flow: u32, connection: &mut TcpFlow, side: usize) {
    while let Some(segment) = connection.ends[side].poll_send(network.now) {
        let len = frame(segment.ip_len(connection.ip_header));
        network.send(flow, 1 - side as u8, len, segment.ect, Body::Tcp(segment));
    }
}

fn request(network: &mut Network<'_>, flow: u32, step: Step, size: u32, payload: u32) {
    let report = network.recorder.flow(flow as usize);
    report.lost += u64::from(step.lost);
    *report.transactions.get_or_insert(0) += u64::from(step.done.is_some());
    if let Some(time) = step.done {
        network.recorder.rtt(flow as usize, time.as_nanos());
    }
    if let Some(number) = step.send {
        network.send(flow, 1, size, false, Body::Datagram { number, payload });
    }
}

//! The lab's own senders and receivers: small programs over the kernel's TCP and UDP.
//!
//! Times are nanoseconds on the machine's monotonic clock, which all namespaces share; so a
//! sender in one and a receiver in another agree on when the run began, and one-way delays can be
//! measured. Every loop ends at `end_ns`, whatever the network does.

mod rr;
mod tcp;
mod udp;

use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};
use weir_report::Histogram;
use weir_scenario::media::Headers;
use weir_sys::now;

/// A flow's sending end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SenderSpec {
    /// Where to.
    pub to: SocketAddr,
    /// Source port; it names the flow at both ends.
    pub from_port: u16,
    /// The whole `tos` byte.
    pub tos: u8,
    /// When it may send: (from, to), in order.
    pub active: Vec<(u64, u64)>,
    /// When everything ends.
    pub end_ns: u64,
    /// What it sends.
    pub traffic: Traffic,
}

/// What a flow sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// A byte stream.
    Tcp {
        /// The kernel's name of its congestion control.
        congestion: String,
        /// Largest segment, if not the path's.
        mss_bytes: Option<u32>,
        /// Bytes offered at once, and the pause after they were acknowledged.
        chunk: Option<(u64, Option<u64>)>,
        /// Bytes that may wait in the kernel unsent; `None` leaves it to the kernel (for speed).
        unsent_bytes: Option<u32>,
    },
    /// Packets.
    Udp {
        /// Bytes of payload of each.
        payload_bytes: u32,
        /// Packets sent back to back.
        burst: u32,
        /// From the start of a burst to the start of the next.
        period_ns: u64,
        /// Times on and off, drawn beforehand; empty: always on. Ends before `active` does: off.
        on: Vec<(u64, u64)>,
        /// What stands at the beginning of each, if it is media.
        media: Option<Headers>,
    },
    /// Requests, the next one when the response is there.
    Rr {
        /// Payload of a request.
        request_bytes: u32,
        /// Payload of a response.
        response_bytes: u32,
        /// From a response to the next request.
        pause_ns: u64,
    },
}

/// A host's receiving end of one port: of one flow, or of several that share the port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReceiverSpec {
    /// What arrives.
    pub kind: ReceiverKind,
    /// The port.
    pub port: u16,
    /// Of IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Source ports of the flows, with the window that each may have in flight.
    pub flows: Vec<(u16, Option<u32>)>,
    /// The `tos` byte of what goes back.
    pub tos: u8,
    /// When the run begins: cell 0 of the counts.
    pub t0_ns: u64,
    /// Length of a cell.
    pub cell_ns: u64,
    /// When everything ends.
    pub end_ns: u64,
    /// Acknowledge every segment (TCP).
    pub quick_ack: bool,
}

/// What a receiver does with what arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverKind {
    /// Read and count.
    Tcp,
    /// Count, see gaps, and measure delay.
    Udp,
    /// The same, of media.
    Rtp,
    /// Answer.
    Rr,
}

/// What one end saw of a flow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow's source port.
    pub port: u16,
    /// True for the sending end.
    pub sender: bool,
    /// Packets sent (TCP: segments, retransmissions included).
    pub sent_packets: u64,
    /// Bytes sent: payload, retransmissions included.
    pub sent_bytes: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Bytes of payload received.
    pub delivered_bytes: u64,
    /// Packets received (UDP).
    pub delivered_packets: u64,
    /// The same, cell by cell.
    pub delivered: Vec<u64>,
    /// Packets that did not come (UDP), or transactions given up (rr).
    pub lost: u64,
    /// Packets that came marked (ECN).
    pub marked: u64,
    /// Responses received (rr).
    pub transactions: u64,
    /// Round-trip times, ns.
    pub rtt: Histogram,
    /// From sending to receipt, ns (UDP).
    pub one_way: Histogram,
    /// What went wrong.
    pub errors: Vec<String>,
}

/// A sender or receiver at work in a thread, or in several.
pub(crate) struct Running {
    thread: JoinHandle<Vec<FlowReport>>,
}

impl Running {
    /// Waits for its end, which `end_ns` bounds, and answers what it saw.
    pub(crate) fn join(self) -> FlowReports {
        self.thread.join().unwrap_or_else(|_| {
            vec![FlowReport { errors: vec!["a thread of the lab panicked".into()], ..FlowReport::default() }]
        })
    }
}

pub(crate) type FlowReports = Vec<FlowReport>;

impl SenderSpec {
    /// Starts the sender.
    pub(crate) fn start(self) -> Running {
        let port = self.from_port;
        let run = move || {
            let done = match &self.traffic {
                Traffic::Tcp { .. } => tcp::send(&self),
                Traffic::Udp { .. } => udp::send(&self),
                Traffic::Rr { .. } => rr::ask(&self),
            };
            let mut report = done.unwrap_or_else(|e| FlowReport {
                errors: vec![format!("sending to {}: {e}", self.to)],
                ..FlowReport::default()
            });
            (report.port, report.sender) = (port, true);
            vec![report]
        };
        Running { thread: std::thread::spawn(run) }
    }
}

impl ReceiverSpec {
    /// Opens the receiver: when this returns, senders find it.
    pub(crate) fn start(self) -> io::Result<Running> {
        let thread = match self.kind {
            ReceiverKind::Tcp => tcp::receive(self)?,
            ReceiverKind::Udp | ReceiverKind::Rtp => udp::receive(self)?,
            ReceiverKind::Rr => rr::answer(self)?,
        };
        Ok(Running { thread })
    }

    /// Counts `bytes` that arrived at `at`.
    fn count(&self, report: &mut FlowReport, at: Instant, bytes: u64) {
        let at = at.as_nanos();
        if at >= self.end_ns {
            return;
        }
        report.delivered_bytes += bytes;
        let cell = (at.saturating_sub(self.t0_ns) / self.cell_ns.max(1)) as usize;
        if cell >= report.delivered.len() {
            report.delivered.resize(cell + 1, 0);
        }
        report.delivered[cell] += bytes;
    }
}

/// The address that stands for all of this host's.
fn any(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// Time left until `end_ns`, but at least `least` so that timeouts are never zero.
fn left(end_ns: u64, least: Duration) -> std::time::Duration {
    let left = Instant::from_nanos(end_ns).since(now()).max(least);
    std::time::Duration::from_nanos(left.as_nanos())
}

fn over(end_ns: u64) -> bool {
    now().as_nanos() >= end_ns
}

/// Errors that mean "not now".
fn not_now(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

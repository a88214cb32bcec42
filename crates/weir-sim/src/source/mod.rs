//! What makes applications send: when they are active, and how much they offer.

mod rr;
mod schedule;
mod tcp;
mod udp;

pub use rr::{Requester, Step};
pub use schedule::Schedule;
pub use tcp::TcpFlow;
pub use udp::UdpSource;

//! Packets at a rate, on and off, or in bursts, each with a number and the time it was sent.

use super::{FlowReport, FlowReports, ReceiverKind, ReceiverSpec, SenderSpec, Traffic, any, left, not_now};
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};
use weir_sys::socket;
use weir_sys::{now, sleep_until};

/// Number and time of a packet. They stand in the first bytes of the payload; of media in the last, behind
/// what a recogniser reads. Shorter packets carry neither.
const STAMP_BYTES: usize = 16;
/// Behind by more than this, a sender lets packets go unsent rather than send a flood.
const HOPELESS: Duration = Duration::from_millis(200);

pub(super) fn send(spec: &SenderSpec) -> io::Result<FlowReport> {
    let Traffic::Udp { payload_bytes, burst, period_ns, on, media } = &spec.traffic else {
        return Err(io::Error::other("not a UDP flow"));
    };
    let socket = UdpSocket::bind((any(spec.to.is_ipv6()), spec.from_port))?;
    socket::set_tos(socket.as_fd(), spec.tos)?;
    socket.connect(spec.to)?;
    let mut payload = vec![0u8; *payload_bytes as usize];
    let (mut report, mut number) = (FlowReport::default(), 0u64);
    for (from, to) in overlap(&spec.active, on) {
        // Deadlines are absolute: a late packet does not make the next ones late.
        let (mut deadline, period) = (Instant::from_nanos(from), Duration::from_nanos((*period_ns).max(1)));
        while deadline.as_nanos() < to.min(spec.end_ns) {
            sleep_until(deadline);
            let at = now();
            if at.since(deadline) > HOPELESS {
                report.errors.push(format!("the sender fell {} behind", at.since(deadline)));
                deadline = at;
            }
            for _ in 0..*burst {
                let at = now().as_nanos();
                let place = if media.is_some() { payload.len().saturating_sub(STAMP_BYTES) } else { 0 };
                if let Some(stamp) = payload.get_mut(place..place + STAMP_BYTES) {
                    stamp[..8].copy_from_slice(&number.to_be_bytes());
                    stamp[8..].copy_from_slice(&at.to_be_bytes());
                }
                if let Some(media) = media {
                    media.write(number, deadline.as_nanos(), &mut payload);
                }
                number += 1;
                match socket.send(&payload) {
                    Ok(_) => {
                        report.sent_packets += 1;
                        report.sent_bytes += payload.len() as u64;
                    }
                    // Nobody listens yet, or a full queue of our own: the packet is lost.
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused || not_now(&e) => {}
                    Err(e) => return Err(e),
                }
            }
            deadline += period;
        }
    }
    report.errors.truncate(3);
    Ok(report)
}

/// The times that lie in both lists; an empty second list means always.
fn overlap(active: &[(u64, u64)], on: &[(u64, u64)]) -> Vec<(u64, u64)> {
    if on.is_empty() {
        return active.to_vec();
    }
    let mut both = Vec::new();
    for &(a, b) in active {
        both.extend(on.iter().map(|&(c, d)| (a.max(c), b.min(d))).filter(|(from, to)| from < to));
    }
    both
}

pub(super) fn receive(spec: ReceiverSpec) -> io::Result<JoinHandle<FlowReports>> {
    let socket = UdpSocket::bind((any(spec.ipv6), spec.port))?;
    socket::set_receive_buffer(socket.as_fd(), 4 << 20)?;
    socket::tell_tos(socket.as_fd())?;
    Ok(std::thread::spawn(move || {
        // By source port; `next` is the number expected next, to see gaps.
        let mut flows: BTreeMap<u16, (FlowReport, u64)> = BTreeMap::new();
        for &(port, _) in &spec.flows {
            flows.insert(port, (FlowReport { port, ..FlowReport::default() }, 0));
        }
        let mut buffer = vec![0; 1 << 16];
        while !super::over(spec.end_ns) {
            let patience =
                left(spec.end_ns, Duration::from_millis(1)).min(std::time::Duration::from_millis(50));
            let _ = socket.set_read_timeout(Some(patience));
            let Ok((len, from, tos)) = socket::receive_with_tos(&socket, &mut buffer) else {
                continue;
            };
            let at = now();
            let Some((report, next)) = flows.get_mut(&from.port()) else { continue };
            report.delivered_packets += 1;
            report.marked += u64::from(tos & 3 == 3);
            spec.count(report, at, len as u64);
            let place = if spec.kind == ReceiverKind::Rtp { len.saturating_sub(STAMP_BYTES) } else { 0 };
            if let Some(stamp) = buffer[..len].get(place..place + STAMP_BYTES) {
                let word = |bytes: &[u8]| bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
                report.one_way.record(at.as_nanos().saturating_sub(word(&stamp[8..])));
                *next = (*next).max(word(&stamp[..8]) + 1);
            }
        }
        flows
            .into_values()
            .map(|(mut report, next)| {
                report.lost = next.saturating_sub(report.delivered_packets);
                report
            })
            .collect()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_times_and_active_times_overlap() {
        let active = [(10, 20), (30, 40)];
        assert_eq!(overlap(&active, &[]), active);
        assert_eq!(overlap(&active, &[(0, 12), (15, 32), (50, 60)]), [(10, 12), (15, 20), (30, 32)]);
        assert_eq!(overlap(&active, &[(20, 30)]), []);
    }
}

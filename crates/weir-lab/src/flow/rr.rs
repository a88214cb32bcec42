//! Requests and responses over UDP: one request at a time, the next when the response is there.

use super::{FlowReport, FlowReports, ReceiverSpec, SenderSpec, Traffic, any, left, not_now, over};
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};
use weir_sys::socket;
use weir_sys::{now, sleep_until};

/// A transaction without a response is given up after this.
const GIVE_UP: Duration = Duration::from_secs(1);

pub(super) fn ask(spec: &SenderSpec) -> io::Result<FlowReport> {
    let Traffic::Rr { request_bytes, response_bytes, pause_ns } = spec.traffic else {
        return Err(io::Error::other("not a request-response flow"));
    };
    let socket = UdpSocket::bind((any(spec.to.is_ipv6()), spec.from_port))?;
    socket::set_tos(socket.as_fd(), spec.tos)?;
    socket.connect(spec.to)?;
    // A request says in its last byte which one it is, and its response repeats that: so a late
    // response is not taken for the next one's. The response's length is the responder's setting.
    let mut request = vec![0u8; request_bytes.max(1) as usize];
    let (mut report, mut buffer) = (FlowReport::default(), vec![0; 1 << 16]);
    for &(from, to) in &spec.active {
        sleep_until(Instant::from_nanos(from));
        let to = to.min(spec.end_ns);
        while !over(to) {
            if let Some(last) = request.last_mut() {
                *last = last.wrapping_add(1);
            }
            let start = now();
            match socket.send(&request) {
                Ok(_) => {
                    report.sent_packets += 1;
                    report.sent_bytes += request.len() as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused || not_now(&e) => {}
                Err(e) => return Err(e),
            }
            if await_response(&socket, &request, response_bytes, start, to, &mut buffer)? {
                report.transactions += 1;
                report.rtt.record(now().since(start).as_nanos());
                sleep_until((now() + Duration::from_nanos(pause_ns)).min(Instant::from_nanos(to)));
            } else if !over(to) {
                report.lost += 1;
            }
        }
    }
    Ok(report)
}

fn await_response(
    socket: &UdpSocket,
    request: &[u8],
    response_bytes: u32,
    start: Instant,
    to: u64,
    buffer: &mut [u8],
) -> io::Result<bool> {
    let deadline = (start + GIVE_UP).min(Instant::from_nanos(to));
    while now() < deadline {
        socket.set_read_timeout(Some(left(deadline.as_nanos(), Duration::from_micros(10))))?;
        match socket.recv(buffer) {
            Ok(n) if n == response_bytes.max(1) as usize && buffer[n - 1] == request[request.len() - 1] => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(e) if not_now(&e) || e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// The `window` of each flow holds the length of its responses.
pub(super) fn answer(spec: ReceiverSpec) -> io::Result<JoinHandle<FlowReports>> {
    let socket = UdpSocket::bind((any(spec.ipv6), spec.port))?;
    socket::set_tos(socket.as_fd(), spec.tos)?;
    Ok(std::thread::spawn(move || {
        let mut flows: BTreeMap<u16, (FlowReport, usize)> = BTreeMap::new();
        for &(port, len) in &spec.flows {
            let len = len.unwrap_or(1).clamp(1, 65_507) as usize;
            flows.insert(port, (FlowReport { port, ..FlowReport::default() }, len));
        }
        let (mut buffer, mut response) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        while !over(spec.end_ns) {
            let patience =
                left(spec.end_ns, Duration::from_millis(1)).min(std::time::Duration::from_millis(50));
            let _ = socket.set_read_timeout(Some(patience));
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            let Some((report, response_len)) = flows.get_mut(&from.port()).filter(|_| len > 0) else {
                continue;
            };
            report.delivered_packets += 1;
            spec.count(report, now(), len as u64);
            response[*response_len - 1] = buffer[len - 1];
            let _ = socket.send_to(&response[..*response_len], from);
            response[*response_len - 1] = 0;
        }
        flows.into_values().map(|(report, _)| report).collect()
    }))
}

//! Byte streams: greedy, timed or in chunks, over the kernel's TCP.

use super::{FlowReport, FlowReports, ReceiverSpec, SenderSpec, Traffic, any, left, not_now, over};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use weir_core::units::{Duration, Instant};
use weir_sys::socket::{self, TcpOptions};
use weir_sys::{now, sleep_until, wait};

/// How long a blocked write may hide that its time is over.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);
/// How often the connection is asked about itself.
const SAMPLE: Duration = Duration::from_millis(100);

struct Sender<'a> {
    spec: &'a SenderSpec,
    stream: TcpStream,
    report: FlowReport,
    next_sample: Instant,
}

pub(super) fn send(spec: &SenderSpec) -> io::Result<FlowReport> {
    let Traffic::Tcp { congestion, mss_bytes, chunk, unsent_bytes } = &spec.traffic else {
        return Err(io::Error::other("not a TCP flow"));
    };
    let Some(&(first, _)) = spec.active.first() else { return Ok(FlowReport::default()) };
    sleep_until(Instant::from_nanos(first));
    let options = TcpOptions {
        congestion: Some(congestion.clone()),
        tos: spec.tos,
        mss_bytes: *mss_bytes,
        unsent_bytes: *unsent_bytes,
        // The kernel gives up a connection that does not open in this time.
        patience: Some(left(spec.end_ns, Duration::from_millis(1))),
        ..TcpOptions::default()
    };
    let stream = match socket::connect(spec.to, spec.from_port, &options) {
        Err(e) if over(spec.end_ns) && not_now(&e) => {
            let errors = vec!["no connection within the run".into()];
            return Ok(FlowReport { errors, ..FlowReport::default() });
        }
        other => other?,
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut sender = Sender { spec, stream, report: FlowReport::default(), next_sample: now() };
    let outcome = match *chunk {
        None => sender.greedy(),
        Some((bytes, pause)) => sender.chunks(bytes, pause),
    };
    // At the end the receiver goes its way; that it was a moment earlier is no error.
    let outcome = outcome.or_else(|e| if over(spec.end_ns) { Ok(()) } else { Err(e) });
    // The connection stays open to the end: what was written before an idle time still drains.
    if outcome.is_ok() {
        sleep_until(Instant::from_nanos(spec.end_ns));
    }
    sender.sample(true);
    let mut report = sender.report;
    report.errors.extend(outcome.err().map(|e| format!("sending to {}: {e}", spec.to)));
    Ok(report)
}

impl Sender<'_> {
    /// Notes round-trip time and retransmissions now and then.
    fn sample(&mut self, last: bool) {
        let at = now();
        if at < self.next_sample && !last {
            return;
        }
        self.next_sample = at + SAMPLE;
        if let Ok(info) = socket::tcp_info(self.stream.as_fd()) {
            self.report.rtt.record(u64::from(info.rtt_us) * 1000);
            self.report.retransmits = u64::from(info.retransmits);
            self.report.timeouts = u64::from(info.timeouts);
            self.report.sent_packets = u64::from(info.segments_sent);
            self.report.sent_bytes = info.bytes_sent;
        }
    }

    /// One write of at most `most` bytes; 0 if nothing could be taken for a while.
    fn write(&mut self, most: u64) -> io::Result<u64> {
        // 16 KB of zeroes: what is sent does not matter, how much at once does, a little.
        static ZEROES: [u8; 1 << 16] = [0; 1 << 16];
        let unit = if self.unlimited() { 1 << 16 } else { 1 << 14 };
        self.sample(false);
        match self.stream.write(&ZEROES[..most.min(unit) as usize]) {
            Ok(n) => Ok(n as u64),
            Err(e) if not_now(&e) => Ok(0),
            Err(e) => Err(e),
        }
    }

    fn unlimited(&self) -> bool {
        matches!(self.spec.traffic, Traffic::Tcp { unsent_bytes: None, .. })
    }

    fn greedy(&mut self) -> io::Result<()> {
        for &(from, to) in &self.spec.active {
            sleep_until(Instant::from_nanos(from));
            let to = to.min(self.spec.end_ns);
            while !over(to) {
                self.write(u64::MAX)?;
            }
        }
        Ok(())
    }

    fn chunks(&mut self, bytes: u64, pause: Option<u64>) -> io::Result<()> {
        for &(from, to) in &self.spec.active {
            sleep_until(Instant::from_nanos(from));
            let to = to.min(self.spec.end_ns);
            while !over(to) {
                let mut rest = bytes;
                while rest > 0 && !over(to) {
                    rest -= self.write(rest)?;
                }
                self.drain(to)?;
                match pause {
                    // Said once, so done.
                    None => return Ok(()),
                    Some(pause) => {
                        sleep_until((now() + Duration::from_nanos(pause)).min(Instant::from_nanos(to)))
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until everything written was acknowledged. The kernel has no event for that, so it
    /// is asked, eight times a round trip.
    fn drain(&mut self, to: u64) -> io::Result<()> {
        while !over(to) {
            let info = socket::tcp_info(self.stream.as_fd())?;
            if info.unacknowledged_segments == 0 && info.unsent_bytes == 0 {
                return Ok(());
            }
            let step = Duration::from_micros((u64::from(info.rtt_us) / 8).clamp(250, 5_000));
            sleep_until(now() + step);
            self.sample(false);
        }
        Ok(())
    }
}

pub(super) fn receive(spec: ReceiverSpec) -> io::Result<JoinHandle<FlowReports>> {
    let at = SocketAddr::new(any(spec.ipv6), spec.port);
    // Where all flows of the port agree on a window, the handshake already announces it.
    let window = spec.flows.first().and_then(|f| f.1);
    let agreed = spec.flows.iter().all(|f| f.1 == window);
    let options = TcpOptions {
        window_bytes: if agreed { window } else { None },
        tos: spec.tos,
        ..TcpOptions::default()
    };
    let listener = socket::listen(at, &options)?;
    listener.set_nonblocking(true)?;
    Ok(std::thread::spawn(move || {
        let mut readers = Vec::new();
        while !over(spec.end_ns) {
            let patience = left(spec.end_ns, Duration::from_millis(1)).min(PATIENCE);
            let _ = wait(&[listener.as_fd()], Some(Duration::from_nanos(patience.as_nanos() as u64)));
            while let Ok((stream, from)) = listener.accept() {
                let spec = spec.clone();
                readers.push(std::thread::spawn(move || read(&spec, stream, from.port())));
            }
        }
        let failed = || FlowReport { errors: vec!["a reader panicked".into()], ..FlowReport::default() };
        readers.into_iter().map(|r| r.join().unwrap_or_else(|_| failed())).collect()
    }))
}

fn read(spec: &ReceiverSpec, mut stream: TcpStream, port: u16) -> FlowReport {
    let mut report = FlowReport { port, ..FlowReport::default() };
    let window = spec.flows.iter().find(|f| f.0 == port).and_then(|f| f.1);
    let prepared = stream
        .set_nonblocking(false)
        .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
        .and_then(|()| window.map_or(Ok(()), |w| socket::set_window(stream.as_fd(), w)));
    report.errors.extend(prepared.err().map(|e| e.to_string()));
    let mut buffer = vec![0; 1 << 18];
    while !over(spec.end_ns) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                spec.count(&mut report, now(), n as u64);
                if let Some(window) = window {
                    let _ = socket::clamp_window(stream.as_fd(), window);
                }
                if spec.quick_ack {
                    let _ = socket::acknowledge_quickly(stream.as_fd());
                }
            }
            Err(e) if not_now(&e) => {}
            Err(e) => {
                report.errors.push(format!("receiving from port {port}: {e}"));
                break;
            }
        }
    }
    report
}

//! What a node does for the suite: as the box, run what stands there; beside it, listen.

use super::judge::{Passed, excess_bytes, worst_second};
use super::{STEP_NS, WINDOWS_NS};
use crate::bed::SIDES;
use crate::namespace;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use weir_core::units::{Duration, Instant};
use weir_sys::capture::{Capture, Stamped, Way};
use weir_sys::{now, sleep_until};

/// What shall stand in the box.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stand {
    /// `weir up`.
    Weir {
        /// The program.
        program: PathBuf,
        /// The text of its altq.conf.
        conf: String,
    },
    /// The kernel's bridge, with these lines of `tc` for its egress.
    Kernel(Vec<String>),
}

/// What stands in the box.
pub(crate) enum Standing {
    /// A running `weir up`.
    Weir(Child),
    /// The kernel's bridge.
    Kernel,
}

/// How long `weir up` may take to begin, and to end.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// What nodes do for this suite, by name.
pub(crate) fn call(
    name: &str,
    with: Value,
    standing: &mut Option<Standing>,
) -> Option<Result<Value, String>> {
    Some(match name {
        "accuracy-begin" => serde_json::from_value(with).map_err(|e| e.to_string()).and_then(|stand| {
            let (stands, said) = begin(stand)?;
            *standing = Some(stands);
            Ok(said.into())
        }),
        "accuracy-end" => {
            if let Some(stands) = standing.take() {
                end(stands);
            }
            Ok(Value::Null)
        }
        "accuracy-listen" => {
            serde_json::from_value(with).map_err(|e| e.to_string()).and_then(|listen: Listen| {
                let heard = listen.run().map_err(|e| format!("{}: {e}", listen.interface))?;
                serde_json::to_value(heard).map_err(|e| e.to_string())
            })
        }
        _ => return None,
    })
}

/// Sets up what stands in the box: it, and what it said of itself.
fn begin(stand: Stand) -> Result<(Standing, String), String> {
    match stand {
        Stand::Kernel(lines) => {
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                crate::bench::node::tc(&words)?;
            }
            crate::bench::node::kernel_bridge()?;
            Ok((Standing::Kernel, String::new()))
        }
        Stand::Weir { program, conf } => weir_up(program, &conf),
    }
}

/// Starts `weir up` with files in a mount namespace of its own, so that they are gone with it. It
/// ends with this process.
fn weir_up(program: PathBuf, conf: &str) -> Result<(Standing, String), String> {
    let script = "mount --make-rprivate / && mount -t tmpfs weir /run && cat > /run/weir.altq && exec \"$@\"";
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "-m", "sh", "-c", script, "sh"]).arg(program);
    command.args(["up", "/run/weir.altq", "--socket", "/run/weir.sock", "--state", "/run/state.altq"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("setpriv (Debian package util-linux): {e}"))?;
    let written = child.stdin.take().map(|mut input| input.write_all(conf.as_bytes()));
    let Some(errors) = child.stderr.take() else { return Err("no standard error".into()) };
    let (say, hear) = std::sync::mpsc::channel();
    // Reads on to the end, so that nothing waits for a reader.
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let _ = say.send(line);
        }
    });
    let mut said = Vec::new();
    while let Ok(line) = hear.recv_timeout(PATIENCE) {
        let begun = line.contains("bridging ");
        said.push(line);
        if begun && matches!(written, Some(Ok(()))) {
            return Ok((Standing::Weir(child), said.pop().unwrap_or_default()));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("`weir up` did not begin: {}", said.join("; ")))
}

fn end(standing: Standing) {
    match standing {
        Standing::Weir(mut child) => {
            let _ = weir_sys::kill(child.id(), false);
            let began = std::time::Instant::now();
            while child.try_wait().is_ok_and(|status| status.is_none()) && began.elapsed() < PATIENCE {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        Standing::Kernel => {
            let _ = namespace::ip("link del dev k\n");
            let _ = crate::bench::node::tc(&["qdisc", "del", "dev", SIDES[1], "root"]);
        }
    }
}

/// An order to listen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Listen {
    pub(crate) interface: String,
    /// To what goes out, instead of what comes in.
    pub(crate) out: bool,
    /// What counts, on the monotonic clock.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Rate of the whole: 0 if nothing is to be judged.
    pub(crate) rate_bps: u64,
    /// Classes: destination port, rate, and longest packet.
    pub(crate) classes: Vec<(u16, u64, u32)>,
    /// Numbered packets go to this port.
    pub(crate) numbered: u16,
}

/// What was heard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Heard {
    /// Frames that counted.
    pub(crate) frames: u64,
    /// Frames that were missed.
    pub(crate) missed: u64,
    /// For each class, how far its worst second was off.
    pub(crate) seconds: Vec<f64>,
    /// For each of `WINDOWS_NS`, bytes beyond the rate in the fullest one.
    pub(crate) excess_bytes: Vec<f64>,
    /// Number and time of each numbered packet.
    pub(crate) numbers: Vec<(u64, u64)>,
}

/// How often a listener reads: the capture has room for more than that.
const READ_EACH: Duration = Duration::from_millis(2);
/// How long after the end it goes on reading.
const LINGER: Duration = Duration::from_millis(50);

impl Listen {
    fn run(&self) -> std::io::Result<Heard> {
        let mut capture = Capture::open(&self.interface, if self.out { Way::Out } else { Way::In })?;
        let mut all: Vec<Passed> = Vec::new();
        let mut classes: Vec<Vec<Passed>> = vec![Vec::new(); self.classes.len()];
        let mut heard = Heard::default();
        let end = Instant::from_nanos(self.to_ns) + LINGER;
        let mut hear = |frame: Stamped<'_>| {
            let at = frame.at.as_nanos();
            if at < self.from_ns || at >= self.to_ns {
                return;
            }
            let Packet { bytes, port, number } = Packet::of(&frame);
            heard.frames += 1;
            all.push((at, bytes));
            if let Some(class) = self.classes.iter().position(|class| class.0 == port) {
                classes[class].push((at, bytes));
            }
            if port == self.numbered && self.numbered != 0 {
                heard.numbers.push((number, at));
            }
        };
        while now() < end {
            while capture.read(&mut hear)? {}
            sleep_until(now() + READ_EACH);
        }
        heard.missed = u64::from(capture.take_lost());
        let span = [self.from_ns, self.to_ns];
        // Processors do not write in turn: times of two may be some microseconds out of order.
        all.sort_unstable();
        for ((_, rate, packet), frames) in self.classes.iter().zip(&mut classes) {
            frames.sort_unstable();
            heard.seconds.push(worst_second(frames, *rate, *packet, span, STEP_NS));
        }
        if self.rate_bps > 0 {
            heard.excess_bytes = WINDOWS_NS.map(|w| excess_bytes(&all, self.rate_bps, w)).to_vec();
        }
        Ok(heard)
    }
}

/// What a frame over IPv4 is: the bytes that its packets are on the wire, its destination port, and
/// the number that a datagram begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Packet {
    bytes: u32,
    port: u16,
    number: u64,
}

impl Packet {
    fn of(frame: &Stamped<'_>) -> Packet {
        Packet::read(frame).unwrap_or(Packet { bytes: frame.len_bytes, ..Packet::default() })
    }
    fn read(frame: &Stamped<'_>) -> Option<Packet> {
        const ETHERNET: usize = 14;
        let head = frame.head;
        let l4 = ETHERNET + usize::from(head.get(ETHERNET)? & 0xf) * 4;
        let port = u16::from_be_bytes(head.get(l4 + 2..l4 + 4)?.try_into().ok()?);
        let tcp = head.get(ETHERNET + 9)? == &6;
        let headers = l4 + if tcp { usize::from(head.get(l4 + 12)? >> 4) * 4 } else { 8 };
        let payload = u64::from(frame.len_bytes).saturating_sub(headers as u64);
        // Each further segment repeats the headers.
        let more = match u64::from(frame.segment_bytes) {
            0 => 0,
            each => payload.div_ceil(each).saturating_sub(1),
        };
        let number = head.get(headers..headers + 8).filter(|_| !tcp);
        Some(Packet {
            bytes: frame.len_bytes + (more * headers as u64) as u32,
            port,
            number: number.map_or(0, |bytes| bytes.iter().fold(0, |sum, &b| sum << 8 | u64::from(b))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_is_what_its_packets_are_on_the_wire() {
        let mut head = vec![0u8; 96];
        head[14] = 0x45;
        head[23] = 6;
        head[36..38].copy_from_slice(&5001u16.to_be_bytes());
        head[46] = 0x80;
        let frame = |len_bytes, segment_bytes, head: &[u8]| {
            Packet::of(&Stamped { at: Instant::ZERO, len_bytes, segment_bytes, head })
        };
        assert_eq!(frame(1514, 0, &head), Packet { bytes: 1514, port: 5001, number: 0 });
        // Headers of 66 bytes; three segments, the last one of 100 bytes.
        assert_eq!(frame(66 + 2 * 1448 + 100, 1448, &head).bytes, 3 * 66 + 2 * 1448 + 100);
        assert_eq!(frame(66 + 1448, 1448, &head).bytes, 1514);
        head[23] = 17;
        head[42..50].copy_from_slice(&77u64.to_be_bytes());
        assert_eq!(frame(200, 0, &head), Packet { bytes: 200, port: 5001, number: 77 });
        // What is too short to be read counts as it is.
        assert_eq!(frame(60, 0, &head[..20]), Packet { bytes: 60, port: 0, number: 0 });
    }
}

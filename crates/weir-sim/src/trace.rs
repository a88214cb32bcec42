//! What a run leaves behind of every packet: the event hash, and packets.csv on request.
//!
//! packets.csv has a line for each event, in order of time:
//! `time_ns,event,link,flow,direction,packet,size_bytes,reason`. `event` is `delivered` (the last
//! bit is at the far end of the link), `dropped` (for `reason`, at its near end) or `marked` (by
//! ECN, as it leaves the queue); `link` is `from>to`; `direction` is `forward` for what the
//! flow's sender sends and `back` for what comes back; `packet` counts the packets of the run;
//! `size_bytes` is the frame, layer-2 header included.

use std::io::{self, Write};
use weir_core::units::Instant;

/// What happened to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It crossed a link whole.
    Delivered,
    /// It was dropped.
    Dropped,
    /// It was marked by ECN in a managed port.
    Marked,
}

/// One event of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// What.
    pub kind: Kind,
    /// On which direction of a link.
    pub direction: u32,
    /// The packet's number in the run.
    pub packet: u64,
}

/// What only packets.csv has of an event.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// The packet's flow.
    pub flow: u32,
    /// 1 for the flow's receiver, 0 for its sender.
    pub to_side: u8,
    /// Bytes of its frame.
    pub len: u32,
    /// Why it was dropped; empty otherwise.
    pub reason: &'static str,
}

/// Hash and file.
pub struct Trace<'a> {
    hash: u64,
    file: Option<Csv<'a>>,
}

struct Csv<'a> {
    to: &'a mut dyn Write,
    links: Vec<String>,
    flows: Vec<String>,
    failed: Option<io::Error>,
}

impl<'a> Trace<'a> {
    /// A trace; with a file, `links` and `flows` are their names by number.
    pub fn new(file: Option<&'a mut dyn Write>, links: Vec<String>, flows: Vec<String>) -> Self {
        let mut file = file.map(|to| Csv { to, links, flows, failed: None });
        if let Some(csv) = &mut file {
            csv.keep(|to| writeln!(to, "time_ns,event,link,flow,direction,packet,size_bytes,reason"));
        }
        Trace { hash: 0xcbf2_9ce4_8422_2325, file }
    }

    /// Notes an event. The order of calls counts. `detail` is asked for where there is a file.
    #[inline]
    pub fn note(&mut self, event: Event, detail: impl FnOnce() -> Detail) {
        // FNV-1a's step, a word at a time and folded, so that high bits come down as well.
        let mut step = |word: u64| {
            let product = u128::from(self.hash ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
            self.hash = (product as u64) ^ ((product >> 64) as u64) ^ 0x0100_0000_01b3;
        };
        step(event.at.as_nanos());
        step(event.packet ^ (u64::from(event.direction) << 40) ^ ((event.kind as u64) << 62));
        if let Some(csv) = &mut self.file {
            csv.line(&event, &detail());
        }
    }

    /// The hash, or why the file could not be written.
    pub fn finish(self) -> io::Result<u64> {
        match self.file.and_then(|csv| csv.failed) {
            Some(error) => Err(error),
            None => Ok(self.hash),
        }
    }
}

impl Csv<'_> {
    fn keep(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) {
        if self.failed.is_none()
            && let Err(error) = write(self.to)
        {
            self.failed = Some(error);
        }
    }

    #[cold]
    fn line(&mut self, event: &Event, detail: &Detail) {
        let kind = match event.kind {
            Kind::Delivered => "delivered",
            Kind::Dropped => "dropped",
            Kind::Marked => "marked",
        };
        let way = if detail.to_side == 1 { "forward" } else { "back" };
        let link = self.links.get(event.direction as usize).map_or("", String::as_str).to_owned();
        let flow = self.flows.get(detail.flow as usize).map_or("", String::as_str).to_owned();
        let (packet, Detail { len, reason, .. }) = (event.packet, detail);
        let at = event.at.as_nanos();
        self.keep(|to| writeln!(to, "{at},{kind},{link},{flow},{way},{packet},{len},{reason}"));
    }
}

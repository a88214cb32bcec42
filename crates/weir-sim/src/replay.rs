//! Replay: what a configuration does to recorded packets.
//!
//! One packet at a time on a wire of the trace's rate, no device ring, until the queue is empty.
//! Output, one line per packet in the order of the events: `D,time_ns,class,size,index` when its
//! last bit leaves (rounded down), `X,time_ns,class,size,index,reason` when it is dropped (rounded
//! up); `index` counts the input's packets from 0. What an edge before the port drops is of class `edge`.

mod watch;

pub use watch::{FoundFlow, Recognised, Watch};

use std::collections::HashMap;
use std::io::{self, Write};
use weir_core::packet::{FragmentCache, FrameRef, Meta, dissect, look_inside};
use weir_core::port::{Conditioned, Event, EventKind, Port};
use weir_core::queue::DropReason;
use weir_core::units::Instant;

/// One recorded packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When it arrived; not before the one before it.
    pub at: Instant,
    /// Length in bytes, layer-2 header included, even where less was captured.
    pub len_bytes: u32,
    /// What is known of it.
    pub content: Content<'a>,
}

/// What a recording says of a packet besides time and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// The captured bytes, an Ethernet frame from its first byte on, perhaps cut short.
    Frame(&'a [u8]),
    /// Its class, and its DSCP where the recording has it.
    Class {
        /// A class's name, or its index from 1.
        class: &'a str,
        /// Differentiated services code point, 0 to 63.
        dscp: Option<u8>,
    },
}

/// Packets in order of time, from wherever they were recorded.
pub trait Recording {
    /// Why the next packet cannot be read.
    type Error;
    /// The next packet, or `None` at the end.
    ///
    /// # Errors
    /// A recording that is damaged.
    fn next(&mut self) -> Result<Option<Record<'_>>, Self::Error>;
}

/// What happened, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Packets in the trace.
    pub packets: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// When the last packet left, ns.
    pub end_ns: u64,
    /// By class, in the order of their first packet.
    pub classes: Vec<ClassSummary>,
    /// Real-time flows, where an edge looked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recognised: Option<Recognised>,
}

/// One class of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClassSummary {
    /// As the trace names it; for captures, as the configuration does.
    pub class: String,
    /// Packets that came.
    pub offered_packets: u64,
    /// Packets that left.
    pub sent_packets: u64,
    /// Bytes that left.
    pub sent_bytes: u64,
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Longest time from arrival to the last bit's leaving, ns.
    pub delay_max_ns: u64,
    /// Sum of those times, ns: divide by `sent_packets` for the mean.
    pub delay_sum_ns: u128,
}

/// Why a replay stopped.
#[derive(Debug)]
pub enum ReplayError<E> {
    /// The trace could not be read.
    Trace(E),
    /// The output could not be written.
    Output(io::Error),
    /// Time ended before these packets left.
    Endless(u64),
    /// A class of the trace is not in the configuration.
    Class {
        /// Index of the packet.
        packet: u64,
        /// What the trace says.
        found: String,
        /// What the configuration has.
        classes: String,
    },
}

impl<E: std::fmt::Display> std::fmt::Display for ReplayError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Trace(e) => write!(f, "{e}"),
            ReplayError::Output(e) => write!(f, "output: {e}"),
            ReplayError::Endless(packets) => write!(
                f,
                "{packets} packets had not left after 584 years, where time ends: their arrivals are too late, or their queue never sends"
            ),
            ReplayError::Class { packet, found, classes } => write!(
                f,
                "packet {packet}: no class `{found}` in the configuration; expected one of {classes}, or a number from 1"
            ),
        }
    }
}
impl<E: std::fmt::Debug + std::fmt::Display> std::error::Error for ReplayError<E> {}

/// Where the packets of a class of the trace go.
struct Labels {
    /// Leaf by name, and by index from 1 among the leaves of the file.
    by_name: HashMap<String, usize>,
    /// Terminal leaves in the order of the file.
    leaves: Vec<(u32, String)>,
    /// Name of each label, and the leaf if the discipline has classes.
    labels: Vec<(String, Option<u32>)>,
    classless: bool,
}

impl Labels {
    fn new(port: &Port) -> Self {
        let terminal =
            |(i, l): (usize, &weir_core::sched::LeafInfo)| l.terminal.then(|| (i as u32, l.name.clone()));
        let leaves: Vec<_> = port.leaves().iter().enumerate().filter_map(terminal).collect();
        let classless = leaves.len() == 1 && leaves[0].1 == "all";
        Labels { by_name: HashMap::new(), leaves, labels: Vec::new(), classless }
    }
    fn find(&mut self, class: &str) -> Option<usize> {
        if let Some(&label) = self.by_name.get(class) {
            return Some(label);
        }
        let leaf = if self.classless {
            None
        } else {
            let by_name = self.leaves.iter().find(|(_, name)| name == class);
            let by_index = || class.parse::<usize>().ok().and_then(|n| self.leaves.get(n.checked_sub(1)?));
            Some(by_name.or_else(by_index)?.0)
        };
        self.labels.push((class.to_owned(), leaf));
        self.by_name.insert(class.to_owned(), self.labels.len() - 1);
        Some(self.labels.len() - 1)
    }
    fn of_leaf(&mut self, port: &Port, leaf: u32) -> usize {
        self.named(&port.leaves()[leaf as usize].name, Some(leaf))
    }
    fn named(&mut self, name: &str, leaf: Option<u32>) -> usize {
        if let Some(&label) = self.by_name.get(name) {
            return label;
        }
        self.labels.push((name.to_owned(), leaf));
        self.by_name.insert(name.to_owned(), self.labels.len() - 1);
        self.labels.len() - 1
    }
}

/// Writes the lines and keeps the sums.
struct Writer<W> {
    out: W,
    /// Label of every packet, by index.
    label_of: Vec<u32>,
    summary: Summary,
    error: Option<io::Error>,
    /// The time of the call to the port: lines of drops have it.
    now: Instant,
}

impl<W: Write> Writer<W> {
    fn record(&mut self, event: Event<'_>) {
        let meta = event.meta;
        let (at, reason) = match event.kind {
            EventKind::Taken => return,
            EventKind::Sent => (event.at, None),
            EventKind::Dropped(reason) => (self.now, Some(reason)),
        };
        let (index, len, ns) = (meta.frame.0, meta.len, at.as_nanos());
        let class = &mut self.summary.classes[self.label_of[index as usize] as usize];
        let result = match reason {
            None => {
                let delay_ns = at.since(meta.arrival).as_nanos();
                class.sent_packets += 1;
                class.sent_bytes += u64::from(len);
                class.delay_max_ns = class.delay_max_ns.max(delay_ns);
                class.delay_sum_ns += u128::from(delay_ns);
                self.summary.sent += 1;
                self.summary.end_ns = ns;
                writeln!(self.out, "D,{ns},{},{len},{index}", class.class)
            }
            Some(reason) => return self.dropped(index, ns, len, reason),
        };
        if let Err(e) = result {
            self.error.get_or_insert(e);
        }
    }

    fn dropped(&mut self, index: u32, ns: u64, len: u32, reason: DropReason) {
        let class = &mut self.summary.classes[self.label_of[index as usize] as usize];
        class.dropped_packets += 1;
        self.summary.dropped += 1;
        if let Err(e) = writeln!(self.out, "X,{ns},{},{len},{index},{}", class.class, reason.name()) {
            self.error.get_or_insert(e);
        }
    }
}

/// A port, and the edge before it if it has one.
struct Chain<'a, W> {
    port: &'a mut Port,
    watch: Option<Watch>,
    writer: Writer<W>,
}

impl<W: Write> Chain<'_, W> {
    /// When one of them has something to do though no packet comes.
    fn next(&self) -> Instant {
        let watch = self.watch.as_ref().map_or(Instant::NEVER, Watch::next);
        watch.min(self.port.next_wake_up())
    }
    /// The next of what is to be done without a packet.
    fn step(&mut self) {
        let now = self.next();
        self.writer.now = now;
        let Chain { port, watch, writer } = self;
        if port.next_wake_up() <= now {
            port.advance(now, &mut |event| hear(watch, writer, now, event));
        } else if let Some(watch) = watch {
            watch.timer(now);
        }
        self.orders(now);
    }
    /// A packet comes, in a class.
    fn offer(&mut self, now: Instant, packet: Conditioned, len: u32) {
        let Chain { port, watch, writer } = self;
        if let Some(watch) = watch.as_mut().filter(|_| !packet.is_policed()) {
            watch.entered(now, packet.leaf(), len);
        }
        port.offer(now, packet, &mut |event| hear(watch, writer, now, event));
        self.orders(now);
    }
    fn orders(&mut self, now: Instant) {
        let Chain { port, watch, writer } = self;
        if let Some(watch) = watch {
            watch.orders(now, port, &mut |event| writer.record(event));
        }
    }
}

fn hear<W: Write>(watch: &mut Option<Watch>, writer: &mut Writer<W>, now: Instant, event: Event<'_>) {
    if let Some(watch) = watch {
        watch.hear(now, &event);
    }
    writer.record(event);
}

/// Runs `trace` through `port`, whose wire is the trace's rate with a ring of one. An edge before it
/// sees the packets of captures, of which there are bytes.
///
/// # Errors
/// A damaged trace, a class that the configuration does not have, a full disk.
pub fn replay<R: Recording>(
    trace: &mut R,
    port: &mut Port,
    watch: Option<Watch>,
    out: impl Write,
) -> Result<Summary, ReplayError<R::Error>> {
    let mut labels = Labels::new(port);
    let mut fragments = FragmentCache::new();
    let writer =
        Writer { out, label_of: Vec::new(), summary: Summary::default(), error: None, now: Instant::ZERO };
    let mut chain = Chain { port, watch, writer };
    chain.orders(Instant::ZERO);
    while let Some(record) = trace.next().map_err(ReplayError::Trace)? {
        let index = chain.writer.summary.packets;
        // Completions before this arrival first, each at its own time.
        while chain.next() < record.at {
            chain.step();
        }
        chain.writer.now = record.at;
        let (len, frame) = (record.len_bytes, FrameRef(index as u32));
        let (packet, label): (Option<Conditioned>, usize) = match record.content {
            Content::Class { class, dscp } => {
                let label = labels.find(class).ok_or_else(|| ReplayError::Class {
                    packet: index,
                    found: class.to_owned(),
                    classes: labels.leaves.iter().map(|l| l.1.as_str()).collect::<Vec<_>>().join(", "),
                })?;
                let mut meta = Meta::new(len, record.at, frame);
                // Without classes the trace's class is the flow.
                let flow = label as u32 + 1;
                (meta.flow, meta.src_hash, meta.dst_hash, meta.src_port) = (flow, flow, flow, flow as u16);
                meta.leaf = labels.labels[label].1.unwrap_or(0);
                meta.dscp = dscp.unwrap_or(0);
                (Some(meta.into()), label)
            }
            Content::Frame(bytes) => {
                let mut read = dissect(bytes);
                fragments.fill(&mut read);
                let control = chain.port.protects().holds(bytes, &read);
                let watch = chain.watch.as_mut().filter(|_| !control);
                let verdict = watch.map(|watch| watch.examine(record.at, bytes, &read, len));
                if let Some(verdict) = verdict {
                    read.key.tos = verdict.tos;
                }
                if verdict.is_some_and(|verdict| verdict.drop) {
                    (None, labels.named("edge", None))
                } else {
                    if chain.port.looks_inside() {
                        look_inside(bytes, &mut read);
                    }
                    let packet = chain.port.condition(record.at, len, frame, &read.key);
                    let packet = if control { packet.protected() } else { packet };
                    let label = labels.of_leaf(chain.port, packet.leaf());
                    (Some(packet), label)
                }
            }
        };
        let writer = &mut chain.writer;
        for (name, _) in &labels.labels[writer.summary.classes.len()..] {
            writer.summary.classes.push(ClassSummary { class: name.clone(), ..ClassSummary::default() });
        }
        writer.label_of.push(label as u32);
        writer.summary.packets += 1;
        writer.summary.classes[label].offered_packets += 1;
        match packet {
            Some(packet) => chain.offer(record.at, packet, len),
            None => {
                writer.dropped(index as u32, record.at.as_nanos(), len, DropReason::Policed);
                chain.orders(record.at);
            }
        }
        if let Some(e) = chain.writer.error.take() {
            return Err(ReplayError::Output(e));
        }
    }
    while chain.port.next_wake_up() != Instant::NEVER {
        chain.step();
    }
    let Chain { watch, mut writer, .. } = chain;
    writer.out.flush().map_err(ReplayError::Output)?;
    if let Some(e) = writer.error {
        return Err(ReplayError::Output(e));
    }
    let summary = Summary { recognised: watch.map(Watch::report), ..writer.summary };
    match summary.packets - summary.sent - summary.dropped {
        0 => Ok(summary),
        left => Err(ReplayError::Endless(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::port::{PortConfig, PortPlan, Refill, WireConfig};
    use weir_core::queue::Link;
    use weir_core::units::Rate;

    /// Packets of 1000 bytes at these microseconds; the recording breaks after the last.
    struct Times(Vec<u64>, bool);
    impl Recording for Times {
        type Error = &'static str;
        fn next(&mut self) -> Result<Option<Record<'_>>, &'static str> {
            let Some(us) = (!self.0.is_empty()).then(|| self.0.remove(0)) else {
                return if self.1 { Err("torn off") } else { Ok(None) };
            };
            let content = Content::Class { class: "voice", dscp: None };
            Ok(Some(Record { at: Instant::from_micros(us), len_bytes: 1_000, content }))
        }
    }

    /// 8 Mbit/s, a packet a millisecond; room for one packet behind the one on the wire.
    fn port() -> Port {
        let link = Link::new(Rate::from_mbps(8), 0, 1_514);
        let wire = WireConfig::Link { ring: 1, refill: Refill::Packet };
        Port::new(PortConfig::new(link, wire), PortPlan::fifo(1))
    }

    #[test]
    fn lines_and_sums() {
        let mut out = Vec::new();
        let times = Times(vec![0, 100, 200, 1_500], false);
        let summary = replay(&mut { times }, &mut port(), None, &mut out).unwrap();
        let expected = "X,200000,voice,1000,2,tail\nD,1000000,voice,1000,0\n\
                        D,2000000,voice,1000,1\nD,3000000,voice,1000,3\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let class = ClassSummary {
            class: "voice".into(),
            offered_packets: 4,
            sent_packets: 3,
            sent_bytes: 3_000,
            dropped_packets: 1,
            delay_max_ns: 1_900_000,
            delay_sum_ns: 1_000_000 + 1_900_000 + 1_500_000,
        };
        let classes = vec![class];
        assert_eq!(
            summary,
            Summary { packets: 4, sent: 3, dropped: 1, end_ns: 3_000_000, classes, recognised: None }
        );
    }

    #[test]
    fn a_damaged_recording_says_why() {
        let error = replay(&mut Times(vec![0], true), &mut port(), None, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "torn off");
    }
}

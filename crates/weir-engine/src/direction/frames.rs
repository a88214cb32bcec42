//! The frames of a direction, wherever they are: what hears of the port's events.

use super::delay::DelayLine;
use super::{LiveEdge, Observe};
use weir_core::packet::dissect::Dissected;
use weir_core::packet::{FrameRef, set_tos};
use weir_core::port::{Event, EventKind, Port};
use weir_core::units::{Duration, Instant};
use weir_io::Pool;

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whereabouts {
    /// Free, or waiting in an interface to be filled.
    Elsewhere,
    /// Received, or in the port.
    Port,
    /// On its way out: in the delay line or waiting to be sent.
    DelayLine,
}

/// This side's own book about a frame.
#[derive(Clone, Copy)]
pub(super) struct FrameRecord {
    /// Which frame it was of those that came, and which piece of it.
    pub(super) order: (u64, u32),
    pub(super) l3_offset: u16,
    /// The TOS byte in its header.
    pub(super) tos: u8,
    pub(super) place: Whereabouts,
    pub(super) delay: Duration,
    /// As what the port counted it when it left: leaf, and bytes.
    pub(super) sent_as: (u32, u32),
}

/// The leaf of a frame whose class is no longer there.
pub(super) const NO_LEAF: u32 = u32::MAX;

/// The frames of a direction, wherever they are: what hears the port's events.
pub(super) struct Frames {
    pub(super) index: usize,
    pub(super) pool: Pool,
    pub(super) records: Vec<FrameRecord>,
    /// Frames that have come so far.
    pub(super) order: u64,
    pub(super) line: DelayLine,
    pub(super) observer: Option<Box<dyn Observe>>,
    /// What stands before the port.
    pub(super) edge: Option<Box<LiveEdge>>,
    /// Frames that the edge dropped.
    pub(super) policed: u64,
    /// Frames whose ECN or DSCP was written on the way out.
    pub(super) rewritten: u64,
    /// Frames that the port dropped, of which the way out is yet to be told.
    pub(super) dropped: Vec<FrameRef>,
}

impl Frames {
    /// Writes a frame that came just now into the books.
    pub(super) fn enter(&mut self, frame: FrameRef, delay: Duration) {
        self.records[frame.0 as usize] = FrameRecord {
            order: (self.order, 0),
            l3_offset: 0,
            tos: 0,
            place: Whereabouts::Port,
            delay,
            sent_as: (NO_LEAF, 0),
        };
        self.order += 1;
    }
    /// A frame is here no more: another worker has a copy.
    pub(super) fn forget(&mut self, frame: FrameRef) {
        self.records[frame.0 as usize].place = Whereabouts::Elsewhere;
        self.pool.free(frame);
    }
    /// Writes the pieces of a frame into the books, of which the first is the frame itself. What came
    /// behind the frame comes behind them.
    pub(super) fn enter_pieces(&mut self, pieces: &[FrameRef]) {
        let Some((first, others)) = pieces.split_first() else { return };
        let whole = self.records[first.0 as usize];
        for (index, piece) in (1..).zip(others) {
            self.records[piece.0 as usize] = FrameRecord { order: (whole.order.0, index), ..whole };
        }
    }
    pub(super) fn hear(&mut self, event: Event<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.told(self.index, &event);
        }
        if let Some(edge) = &mut self.edge {
            edge.hear(&event);
        }
        let Event { at, meta, kind } = event;
        let frame = meta.frame;
        match kind {
            EventKind::Taken => {}
            EventKind::Sent => {
                let record = &mut self.records[frame.0 as usize];
                record.sent_as = (if meta.is_control() { Port::CONTROL } else { meta.leaf }, meta.len);
                let (tos, l3_offset) = (meta.tos_out(), record.l3_offset);
                if tos != record.tos && set_tos(self.pool.head_mut(frame), usize::from(l3_offset), tos) {
                    self.rewritten += 1;
                }
                self.put_on_the_line(at, frame);
            }
            EventKind::Dropped(_) => {
                self.records[frame.0 as usize].place = Whereabouts::Elsewhere;
                self.dropped.push(frame);
            }
        }
    }
    /// The edge looks at a packet: the TOS byte that it has from here on; none if it is dropped.
    pub(super) fn examine(
        &mut self,
        now: Instant,
        frame: FrameRef,
        len: u32,
        read: &Dissected,
    ) -> Option<u8> {
        let Frames { edge: Some(edge), pool, .. } = self else { return Some(read.key.tos) };
        let verdict = edge.packet(now, pool.head(frame), read, len);
        if let Some(observer) = self.observer.as_mut().filter(|_| verdict.flow_found().is_some()) {
            observer.found(self.index, &read.key);
        }
        if verdict.drop {
            self.policed += 1;
            self.records[frame.0 as usize].place = Whereabouts::Elsewhere;
            self.dropped.push(frame);
            return None;
        }
        Some(verdict.tos)
    }
    /// A frame whose last bit left at `left` is on its way to the far end.
    pub(super) fn put_on_the_line(&mut self, left: Instant, frame: FrameRef) {
        let record = &mut self.records[frame.0 as usize];
        record.place = Whereabouts::DelayLine;
        self.line.push(left, record.delay, frame);
    }
}

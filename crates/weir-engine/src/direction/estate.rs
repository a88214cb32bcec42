//! What a direction leaves to the process that takes over: packets with their bytes, and counters.

use super::edge::EdgeEstate;
use super::{Direction, NO_LEAF, Whereabouts};
use crate::state::{PacketCounts, by_reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use weir_core::packet::{Colour, FrameRef, Meta, dissect};
use weir_core::port::Estate;
use weir_core::queue::DropReason;
use weir_core::units::Instant;
use weir_io::pool::OFFLOAD_BYTES;
use weir_io::{Held, Io, IoStats, Place};
use weir_sys::xdp;

/// A direction, without the bytes of its packets. Those stand one after the other elsewhere, each behind
/// as what the system holds it and its offload header: first what is on its way out, then what waits in the port. Before
/// them are the numbers of its edge.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct DirectionEstate {
    /// What the socket is that its frames come in by. Its bridge knows.
    #[serde(with = "SocketPlace")]
    pub(crate) place: Place,
    /// Counters of the interface that its frames come by, which its bridge knows ...
    #[serde(with = "Counts")]
    pub(crate) received: IoStats,
    /// ... and of the one that they leave by.
    #[serde(with = "Counts")]
    pub(crate) sent: IoStats,
    segmented: u64,
    unsegmented: u64,
    rewritten: u64,
    policed: u64,
    refused: BTreeMap<String, u64>,
    /// Bytes of each frame that is on its way out.
    leaving: Vec<u32>,
    port: Option<PortEstate>,
    /// The edge, whose numbers stand before the bytes of the packets.
    edge: Option<EdgeEstate>,
}

/// How a [`Place`] is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Place")]
enum SocketPlace {
    Plain,
    Ring { slots: u32, next: u32 },
    Xdp(#[serde(with = "XdpPlace")] xdp::Place),
}

/// Likewise.
#[derive(Serialize, Deserialize)]
#[serde(remote = "xdp::Place")]
struct XdpPlace {
    index: u32,
    queues: u32,
    chunk_bytes: u32,
    native: bool,
    busy_poll: bool,
    overruns: u64,
    leaving: Vec<(u32, u32)>,
}

/// How [`IoStats`] are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IoStats")]
struct Counts {
    rx_frames: u64,
    rx_bytes: u64,
    rx_overrun: u64,
    rx_nobuf: u64,
    rx_errors: u64,
    tx_frames: u64,
    tx_bytes: u64,
    tx_errors: u64,
    tx_queue_bytes: u64,
    tx_queue_most_bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct PortEstate {
    leaves: Vec<(String, PacketCounts)>,
    control: PacketCounts,
    gone: PacketCounts,
    tokens_bytes: Option<i64>,
    counts: [u64; 3],
    waiting: Vec<Waiting>,
}

/// A packet in the port, as a row of numbers: there may be a hundred thousand. What the names do not
/// say: bytes of the frame, and where its IP header begins; bytes that count for the port, and its leaf.
#[derive(Serialize, Deserialize)]
struct Waiting {
    #[serde(rename = "f")]
    frame: (u32, u16),
    #[serde(rename = "l")]
    len_leaf: (u32, u32),
    #[serde(rename = "t")]
    arrival_ns: u64,
    #[serde(rename = "h")]
    hashes: [u32; 3],
    #[serde(rename = "p")]
    ports: [u16; 2],
    #[serde(rename = "b")]
    protocol_dscp_ecn_tos: [u8; 4],
    #[serde(rename = "c")]
    colour_control: (u8, bool),
}

const COLOURS: [Colour; 3] = [Colour::Green, Colour::Yellow, Colour::Red];

impl Waiting {
    fn of(meta: &Meta, frame: (u32, u16)) -> Waiting {
        Waiting {
            frame,
            len_leaf: (meta.len, meta.leaf),
            arrival_ns: meta.arrival.as_nanos(),
            hashes: [meta.flow, meta.src_hash, meta.dst_hash],
            ports: [meta.src_port, meta.dst_port],
            protocol_dscp_ecn_tos: [meta.protocol, meta.dscp, meta.ecn, meta.tos_in],
            colour_control: (meta.colour as u8, meta.is_control()),
        }
    }
    fn meta(&self, frame: FrameRef) -> Meta {
        let ((len, leaf), (colour, control)) = (self.len_leaf, self.colour_control);
        let mut meta = Meta::new(len, Instant::from_nanos(self.arrival_ns), frame).with_control(control);
        meta.leaf = leaf;
        [meta.flow, meta.src_hash, meta.dst_hash] = self.hashes;
        [meta.src_port, meta.dst_port] = self.ports;
        [meta.protocol, meta.dscp, meta.ecn, meta.tos_in] = self.protocol_dscp_ecn_tos;
        meta.colour = COLOURS.get(usize::from(colour)).copied().unwrap_or_default();
        meta
    }
}

fn no_room(packets: usize) -> io::Error {
    let what =
        format!("the new file has less room than the {packets} packets that wait: `weir apply` it later");
    io::Error::new(io::ErrorKind::StorageFull, what)
}

impl Direction {
    /// What it has once it is [settled](Direction::settle), to be sent by `to`, the bytes of its packets appended to
    /// `bytes`. All of it stays here, too.
    pub(crate) fn estate(&mut self, now: Instant, to: &impl Io, bytes: &mut Vec<u8>) -> DirectionEstate {
        let edge = self.edge_mut().map(|edge| edge.estate(now, bytes));
        let Direction { frames, port, .. } = &*self;
        let mut put = |frame: FrameRef| {
            bytes.extend_from_slice(&to.held_as(frame));
            bytes.extend_from_slice(&frames.pool.offload(frame));
            frames.pool.copy_to(frame, bytes);
            frames.pool.len_bytes(frame)
        };
        let on_the_line = frames.line.frames();
        let leaving = self.outbox.iter().copied().chain(on_the_line).map(&mut put).collect();
        let port = port.as_ref().map(|port| {
            let Estate { leaves, control, gone, packets, tokens_bytes, counts } = port.estate(now);
            let mut waiting = |meta: &Meta| {
                let l3_offset = frames.records[meta.frame.0 as usize].l3_offset;
                Waiting::of(meta, (put(meta.frame), l3_offset))
            };
            PortEstate {
                waiting: packets.iter().map(&mut waiting).collect(),
                leaves: leaves.iter().map(|(name, account)| (name.clone(), account.into())).collect(),
                control: (&control).into(),
                gone: (&gone).into(),
                tokens_bytes,
                counts,
            }
        });
        DirectionEstate {
            segmented: self.segmented,
            unsegmented: self.unsegmented,
            rewritten: frames.rewritten,
            policed: frames.policed,
            refused: by_reason(&self.refused),
            leaving,
            port,
            edge,
            ..DirectionEstate::default()
        }
    }

    /// Goes on with what another one had, to be sent by `to`, before anything has come here. `bytes` are moved behind
    /// what is taken of them.
    ///
    /// # Errors
    /// It has no room for all packets, or bytes are missing.
    pub(crate) fn inherit(
        &mut self,
        now: Instant,
        estate: DirectionEstate,
        to: &mut impl Io,
        bytes: &mut &[u8],
    ) -> io::Result<()> {
        let DirectionEstate {
            segmented, unsegmented, rewritten, policed, refused, leaving, port, edge, ..
        } = estate;
        (self.segmented, self.unsegmented) = (segmented, unsegmented);
        (self.frames.rewritten, self.frames.policed) = (rewritten, policed);
        for reason in DropReason::ALL {
            self.refused[reason as usize] = refused.get(reason.name()).copied().unwrap_or(0);
        }
        if let Some(edge) = edge {
            let (numbers, rest) = edge.split(bytes).ok_or(io::ErrorKind::UnexpectedEof)?;
            *bytes = rest;
            if let Some(live) = self.edge_mut() {
                live.inherit(now, &edge, &numbers)?;
            }
        }
        let waiting = port.as_ref().map_or(0, |port| port.waiting.len());
        let packets = leaving.len() + waiting;
        if self.port.as_ref().is_some_and(|mine| (mine.capacity() as usize) < waiting) {
            return Err(no_room(packets));
        }
        for len in leaving {
            let frame = self.take_frame(to, bytes, len, packets)?;
            self.frames.put_on_the_line(now, frame);
        }
        let Some(PortEstate { leaves, control, gone, tokens_bytes, counts, waiting }) = port else {
            return Ok(());
        };
        let mut metas = Vec::with_capacity(waiting.len());
        for packet in waiting {
            let (len, l3_offset) = packet.frame;
            let frame = self.take_frame(to, bytes, len, packets)?;
            let tos = dissect(self.frames.pool.head(frame)).key.tos;
            let record = &mut self.frames.records[frame.0 as usize];
            (record.l3_offset, record.tos) = (l3_offset, tos);
            metas.push(packet.meta(frame));
        }
        let Direction { port: Some(port), frames, .. } = self else {
            // The new file manages nothing here: what waits leaves, in order.
            for meta in metas {
                self.frames.put_on_the_line(now, meta.frame);
            }
            return Ok(());
        };
        let estate = Estate {
            leaves: leaves.into_iter().map(|(name, counts)| (name, counts.account())).collect(),
            control: control.account(),
            gone: gone.account(),
            packets: metas,
            tokens_bytes,
            counts,
        };
        port.inherit(now, estate, &mut |event| frames.hear(event));
        // Its classes have their rates, and what waits in them counts.
        self.fit_edge(now);
        Ok(())
    }

    /// A frame of the next bytes, entered into the books.
    fn take_frame(
        &mut self,
        to: &mut impl Io,
        bytes: &mut &[u8],
        len: u32,
        packets: usize,
    ) -> io::Result<FrameRef> {
        let whole = size_of::<Held>() + OFFLOAD_BYTES + len as usize;
        let (mine, rest) = bytes.split_at_checked(whole).ok_or(io::ErrorKind::UnexpectedEof)?;
        *bytes = rest;
        let pool = &mut self.frames.pool;
        let frame = pool.alloc().ok_or_else(|| no_room(packets))?;
        let (held, mine) = mine.split_first_chunk().ok_or(io::ErrorKind::UnexpectedEof)?;
        to.hold(frame, *held);
        let (offload, contents) = mine.split_at(OFFLOAD_BYTES);
        if !pool.fill(frame, contents) {
            return Err(no_room(packets));
        }
        pool.set_offload(frame, std::array::from_fn(|i| offload[i]));
        self.frames.enter(frame, self.delay.otherwise);
        debug_assert!(self.frames.records[frame.0 as usize].place == Whereabouts::Port);
        self.frames.records[frame.0 as usize].sent_as = (NO_LEAF, 0);
        Ok(frame)
    }
}

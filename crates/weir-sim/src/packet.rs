//! The packets under way: their sizes, and a slab of records that is reused, so that a run in its
//! stride allocates nothing. What a port reads of a packet is 32 bytes; what only its ends read stands apart.

use crate::tcp::Segment;
use weir_core::units::Instant;

/// Layer-2 header of every frame.
pub const ETHERNET: u32 = 14;
/// The shortest frame, checksum not counted.
pub const SHORTEST: u32 = 60;

/// Bytes of the frame that carries an IP packet.
pub fn frame(ip_len: u32) -> u32 {
    (ip_len + ETHERNET).max(SHORTEST)
}

/// Bytes of the IP header.
pub fn ip_header(ipv6: bool) -> u32 {
    if ipv6 { 40 } else { 20 }
}

/// Number of a packet in the slab.
pub type PacketIndex = u32;

/// A packet from its sender to its end, but for what it carries.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Unique in the run: what the event hash and packets.csv call it.
    pub number: u64,
    /// When its sender handed it to its host's link.
    pub sent_at: Instant,
    /// The copy of a flow that it belongs to.
    pub flow: u32,
    /// Where the next entry of its route stands, as far as a managed port has seen it: links have it from the packet's
    /// [`Parcel`](crate::link::Parcel).
    pub route: u32,
    /// Bytes of the frame, layer-2 header included.
    pub len: u32,
    /// DSCP and ECN.
    pub tos: u8,
    /// The side of the flow that receives it: 1 the flow's receiver, 0 its sender.
    pub to_side: u8,
}

const _: () = assert!(size_of::<Packet>() == 32, "half a line of memory: each managed port reads it");

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A datagram: its number in its flow, and its octets of payload.
    Datagram {
        /// From 0.
        number: u64,
        /// Octets.
        payload: u32,
    },
}

/// All packets under way.
#[derive(Debug, Default)]
pub struct Slab {
    rows: Vec<Packet>,
    bodies: Vec<Body>,
    free: Vec<PacketIndex>,
}

impl Slab {
    /// Takes a row.
    pub fn insert(&mut self, packet: Packet, body: Body) -> PacketIndex {
        match self.free.pop() {
            Some(index) => {
                self.rows[index as usize] = packet;
                self.bodies[index as usize] = body;
                index
            }
            None => {
                self.rows.push(packet);
                self.bodies.push(body);
                (self.rows.len() - 1) as PacketIndex
            }
        }
    }
    /// Gives the row back; what was in it can be read until the next `insert`.
    pub fn remove(&mut self, index: PacketIndex) -> &Packet {
        self.free.push(index);
        &self.rows[index as usize]
    }
    /// The packet in a row.
    pub fn get(&self, index: PacketIndex) -> &Packet {
        &self.rows[index as usize]
    }
    /// The packet in a row, to change.
    pub fn get_mut(&mut self, index: PacketIndex) -> &mut Packet {
        &mut self.rows[index as usize]
    }
    /// What the packet in a row carries.
    pub fn body(&self, index: PacketIndex) -> &Body {
        &self.bodies[index as usize]
    }
}

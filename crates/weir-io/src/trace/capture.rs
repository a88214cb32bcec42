//! pcap (the format of libpcap's `savefile`) and pcapng (draft-ietf-opsawg-pcapng).

use super::{Content, Record, Source, TraceError};
use std::io::{self, BufRead, Read};
use weir_core::units::Instant;

/// No block or packet of a capture is longer.
const LARGEST: u32 = 1 << 20;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// What the first four bytes of a file say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Classic, with its byte order and the nanoseconds of a unit of its fraction.
    Pcap {
        big: bool,
        unit_ns: u64,
    },
    Pcapng,
}

impl Kind {
    pub(super) fn of_magic(magic: &[u8]) -> Option<Kind> {
        match u32::from_be_bytes(magic.try_into().ok()?) {
            0xa1b2_c3d4 => Some(Kind::Pcap { big: true, unit_ns: 1000 }),
            0xd4c3_b2a1 => Some(Kind::Pcap { big: false, unit_ns: 1000 }),
            0xa1b2_3c4d => Some(Kind::Pcap { big: true, unit_ns: 1 }),
            0x4d3c_b2a1 => Some(Kind::Pcap { big: false, unit_ns: 1 }),
            SECTION => Some(Kind::Pcapng),
            _ => None,
        }
    }
}

/// The layer-2 header that packets of an interface begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkLayer {
    Ethernet,
    /// None: the packet begins with IP.
    Raw,
    /// Linux' "cooked" header of 16 bytes, whose last two are the EtherType.
    Cooked,
    /// BSD's loopback: four bytes of address family, and IP.
    Loopback,
    /// PPP, with address and control or without.
    Ppp,
    /// Cisco's HDLC: address, control, and the EtherType.
    CiscoHdlc,
}

#[derive(Clone, Copy)]
struct Interface {
    link: LinkLayer,
    /// Units of its time stamps a second.
    units_per_second: u64,
}

pub(super) struct Capture {
    source: Source,
    kind: Kind,
    big: bool,
    interfaces: Vec<Interface>,
    offset: u64,
    block: Vec<u8>,
    frame: Vec<u8>,
    first_ns: Option<u64>,
    last: Instant,
    set_right: u64,
}

/// Where in `block` a packet's bytes lie, and what is known of it.
struct Found {
    interface: Interface,
    at_ns: u64,
    data: (usize, usize),
    len: u32,
}

/// Two bytes; zeros past the end.
fn two(data: &[u8], at: usize) -> [u8; 2] {
    data.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 2])
}

/// The Ethernet type of a packet of IP, by its version.
fn of_ip(data: &[u8]) -> [u8; 2] {
    if data.first().is_some_and(|byte| byte >> 4 == 6) { [0x86, 0xdd] } else { [0x08, 0x00] }
}

/// The Ethernet type of what PPP carries, and where that begins. [RFC 1661 section 2, RFC 1662 section 3.1] Address and
/// control may have been left away, and the first byte of the protocol.
fn of_ppp(data: &[u8]) -> ([u8; 2], usize) {
    let at = if two(data, 0) == [0xff, 0x03] { 2 } else { 0 };
    let (protocol, skip) = match data.get(at) {
        Some(&byte) if byte & 1 == 1 => (u16::from(byte), at + 1),
        _ => (u16::from_be_bytes(two(data, at)), at + 2),
    };
    match protocol {
        0x0021 => ([0x08, 0x00], skip),
        0x0057 => ([0x86, 0xdd], skip),
        // What negotiates the link is no IP. Its type is that of PPP itself.
        _ => ([0x88, 0x0b], at),
    }
}

impl Capture {
    pub(super) fn new(source: Source, kind: Kind) -> Result<Self, TraceError> {
        let mut capture = Capture {
            source,
            kind,
            big: false,
            interfaces: Vec::new(),
            offset: 0,
            block: Vec::new(),
            frame: Vec::new(),
            first_ns: None,
            last: Instant::ZERO,
            set_right: 0,
        };
        if let Kind::Pcap { big, unit_ns } = kind {
            capture.big = big;
            capture.read_block(24)?;
            // The upper bits of the link type hold the length of a frame check sequence.
            let link = capture.link(capture.number(20) & 0xffff)?;
            capture.interfaces.push(Interface { link, units_per_second: 1_000_000_000 / unit_ns });
        }
        Ok(capture)
    }

    pub(super) fn set_right(&self) -> u64 {
        self.set_right
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::Malformed { at: format!("byte {}", self.offset), what: what.into() }
    }

    fn link(&self, number: u32) -> Result<LinkLayer, TraceError> {
        match number {
            1 => Ok(LinkLayer::Ethernet),
            12 | 101 | 228 | 229 => Ok(LinkLayer::Raw),
            113 => Ok(LinkLayer::Cooked),
            // The family stands in the byte order of the machine, or of networks. The packet says the same.
            0 | 108 => Ok(LinkLayer::Loopback),
            9 => Ok(LinkLayer::Ppp),
            104 => Ok(LinkLayer::CiscoHdlc),
            n => Err(self.wrong(format!(
                "packets of link type {n}: only Ethernet (1), raw IP (101), Linux cooked (113), BSD loopback (0), PPP (9) \
                 and Cisco HDLC (104) are read; \
                 capture on one Ethernet interface, as in `tcpdump -i eth0 -w FILE`"
            ))),
        }
    }

    /// Reads `count` more bytes into the block; the caller has bounded `count`.
    fn extend_block(&mut self, count: usize) -> Result<(), TraceError> {
        let from = self.block.len();
        self.block.resize(from + count, 0);
        self.source.read_exact(&mut self.block[from..]).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.wrong("the file ends in the middle of a packet: it was cut short")
            }
            _ => TraceError::Io(e),
        })
    }

    fn read_block(&mut self, count: usize) -> Result<(), TraceError> {
        self.block.clear();
        self.extend_block(count)
    }

    fn at_end(&mut self) -> Result<bool, TraceError> {
        Ok(self.source.fill_buf()?.is_empty())
    }

    /// The number at `at` of the block; 0 past its end.
    fn number(&self, at: usize) -> u32 {
        let bytes = self.block.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]);
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }
    fn short(&self, at: usize) -> u16 {
        let bytes = self.block.get(at..at + 2).and_then(|b| b.try_into().ok()).unwrap_or([0; 2]);
        if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        let found = match self.kind {
            Kind::Pcap { .. } => self.next_pcap()?,
            Kind::Pcapng => self.next_pcapng()?,
        };
        let Some(found) = found else { return Ok(None) };
        let first = *self.first_ns.get_or_insert(found.at_ns);
        let before = first.saturating_add(self.last.as_nanos());
        self.set_right += u64::from(found.at_ns < before);
        self.last = Instant::from_nanos(found.at_ns.max(before) - first);
        let at = self.last;
        let (len_bytes, content) = self.as_ethernet(&found);
        Ok(Some(Record { at, len_bytes, content }))
    }

    /// The packet as an Ethernet frame: where it came without such a header, one with zero
    /// addresses is put in front.
    fn as_ethernet(&mut self, found: &Found) -> (u32, Content<'_>) {
        let data = &self.block[found.data.0..found.data.1];
        let (ether_type, skip) = match found.interface.link {
            LinkLayer::Ethernet => return (found.len, Content::Frame(data)),
            LinkLayer::Raw => (of_ip(data), 0),
            LinkLayer::Loopback => (of_ip(data.get(4..).unwrap_or(&[])), 4),
            LinkLayer::Cooked => (two(data, 14), 16),
            LinkLayer::CiscoHdlc => (two(data, 2), 4),
            LinkLayer::Ppp => of_ppp(data),
        };
        self.frame.clear();
        self.frame.extend_from_slice(&[0; 12]);
        self.frame.extend_from_slice(&ether_type);
        self.frame.extend_from_slice(data.get(skip..).unwrap_or(&[]));
        (found.len.saturating_sub(skip as u32) + 14, Content::Frame(&self.frame))
    }

    fn next_pcap(&mut self) -> Result<Option<Found>, TraceError> {
        if self.at_end()? {
            return Ok(None);
        }
        self.read_block(16)?;
        let (seconds, units) = (self.number(0), self.number(4));
        let (captured, len) = (self.number(8), self.number(12));
        if captured > LARGEST {
            return Err(self.wrong(format!("a packet of {captured} bytes: the file is damaged here")));
        }
        self.extend_block(captured as usize)?;
        self.offset += 16 + u64::from(captured);
        let interface = self.interfaces[0];
        let unit_ns = 1_000_000_000 / interface.units_per_second;
        let at_ns = u64::from(seconds) * 1_000_000_000 + u64::from(units) * unit_ns;
        Ok(Some(Found {
            interface,
            at_ns,
            data: (16, 16 + captured as usize),
            len: len.max(captured).min(LARGEST),
        }))
    }

    /// Reads blocks until one holds a packet.
    fn next_pcapng(&mut self) -> Result<Option<Found>, TraceError> {
        while !self.at_end()? {
            self.read_block(8)?;
            if self.block[..4] == SECTION.to_be_bytes() {
                // A section may change the byte order; its own says which.
                self.extend_block(4)?;
                self.big = match &self.block[8..12] {
                    [0x1a, 0x2b, 0x3c, 0x4d] => true,
                    [0x4d, 0x3c, 0x2b, 0x1a] => false,
                    _ => {
                        return Err(
                            self.wrong("a section without its byte-order mark: the file is damaged here")
                        );
                    }
                };
                self.interfaces.clear();
            }
            let (kind, length) = (self.number(0), self.number(4));
            let read = self.block.len();
            if !(12..=LARGEST).contains(&length) || length % 4 != 0 || (length as usize) < read {
                return Err(self.wrong(format!("a block of {length} bytes: the file is damaged here")));
            }
            self.extend_block(length as usize - read)?;
            let found = match kind {
                INTERFACE => {
                    self.describe_interface()?;
                    None
                }
                ENHANCED_PACKET | OLD_PACKET => Some(self.packet(kind)?),
                SIMPLE_PACKET => Some(self.simple_packet()?),
                // Names, statistics, decryption secrets: nothing that a packet needs.
                _ => None,
            };
            self.offset += u64::from(length);
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn describe_interface(&mut self) -> Result<(), TraceError> {
        if self.interfaces.len() >= 4096 {
            return Err(self.wrong("more than 4096 interfaces: the file is damaged"));
        }
        let link = self.link(u32::from(self.short(8)))?;
        let (mut units_per_second, mut at) = (1_000_000, 16);
        let end = self.block.len() - 4;
        while at + 4 <= end {
            let (code, length) = (self.short(at), usize::from(self.short(at + 2)));
            const END: u16 = 0;
            const RESOLUTION: u16 = 9;
            match (code, self.block.get(at + 4)) {
                (END, _) => break,
                // [pcapng 4.2] if_tsresol: a power of ten, or of two with the top bit set.
                (RESOLUTION, Some(&value)) if length == 1 => {
                    let base = if value & 0x80 == 0 { 10u64 } else { 2 };
                    units_per_second = base.checked_pow(u32::from(value & 0x7f)).ok_or_else(|| {
                        self.wrong(format!(
                            "a time unit of {base}^-{} s is too fine to be real",
                            value & 0x7f
                        ))
                    })?;
                }
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        self.interfaces.push(Interface { link, units_per_second });
        Ok(())
    }

    fn interface(&self, index: u32) -> Result<Interface, TraceError> {
        let missing =
            || self.wrong(format!("a packet of interface {index}, which the file does not describe"));
        self.interfaces.get(index as usize).copied().ok_or_else(missing)
    }

    fn packet(&self, kind: u32) -> Result<Found, TraceError> {
        let index = if kind == OLD_PACKET { u32::from(self.short(8)) } else { self.number(8) };
        let interface = self.interface(index)?;
        let units = u64::from(self.number(12)) << 32 | u64::from(self.number(16));
        let at_ns = u128::from(units) * 1_000_000_000 / u128::from(interface.units_per_second);
        let (captured, len) = (self.number(20), self.number(24));
        let end = 28 + captured as usize;
        if captured > LARGEST || end > self.block.len() - 4 {
            return Err(self.wrong(format!(
                "a packet of {captured} bytes in a shorter block: the file is damaged here"
            )));
        }
        let at_ns = at_ns.min(u128::from(u64::MAX)) as u64;
        Ok(Found { interface, at_ns, data: (28, end), len: len.max(captured).min(LARGEST) })
    }

    /// A packet without a time: it gets the time of the one before.
    fn simple_packet(&self) -> Result<Found, TraceError> {
        let interface = self.interface(0)?;
        if self.block.len() < 16 {
            return Err(self.wrong("a packet block without a length: the file is damaged here"));
        }
        let len = self.number(8).min(LARGEST);
        let end = (12 + len as usize).min(self.block.len() - 4);
        let at_ns = self.first_ns.unwrap_or(0).saturating_add(self.last.as_nanos());
        Ok(Found { interface, at_ns, data: (12, end), len })
    }
}

//! The fields that a filter can ask for.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::packet::key::{Family, Key};

/// One field of a packet's headers, the family apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Field {
    /// Destination address.
    Dst,
    /// Destination port.
    DstPort,
    /// Source address.
    Src,
    /// Source port.
    SrcPort,
    /// Upper-layer protocol.
    Protocol,
    /// The whole tos byte or traffic class.
    Tos,
    /// IPv6 flow label.
    FlowLabel,
    /// Security parameters index, `gpi` in altq.conf.
    Spi,
}

impl Field {
    /// All of them, in the order of a `filter` line.
    pub const ALL: [Field; 8] = [
        Field::Dst,
        Field::DstPort,
        Field::Src,
        Field::SrcPort,
        Field::Protocol,
        Field::Tos,
        Field::FlowLabel,
        Field::Spi,
    ];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Field::Dst => "destination address",
            Field::DstPort => "destination port",
            Field::Src => "source address",
            Field::SrcPort => "source port",
            Field::Protocol => "protocol",
            Field::Tos => "tos",
            Field::FlowLabel => "flow label",
            Field::Spi => "gpi",
        }
    }

    /// Every bit that the field has in this family.
    pub const fn full_mask(self, family: Family) -> u128 {
        match (self, family) {
            (Field::Dst | Field::Src, Family::V4) => 0xffff_ffff,
            (Field::Dst | Field::Src, _) => u128::MAX,
            (Field::DstPort | Field::SrcPort, _) => 0xffff,
            (Field::Protocol | Field::Tos, _) => 0xff,
            (Field::FlowLabel, Family::V6) => 0x000f_ffff,
            (Field::FlowLabel, _) => 0,
            (Field::Spi, _) => 0xffff_ffff,
        }
    }

    /// A value of this field as people write it.
    pub const fn display(self, family: Family, value: u128) -> FieldValue {
        FieldValue { field: self, family, value }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A field's value, for printing: addresses as addresses, tos and labels in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct FieldValue {
    field: Field,
    family: Family,
    value: u128,
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.field, self.family) {
            (Field::Dst | Field::Src, Family::V4) => write!(f, "{}", Ipv4Addr::from_bits(self.value as u32)),
            (Field::Dst | Field::Src, _) => write!(f, "{}", Ipv6Addr::from_bits(self.value)),
            (Field::Tos | Field::FlowLabel | Field::Spi, _) => write!(f, "{:#x}", self.value),
            _ => write!(f, "{}", self.value),
        }
    }
}

/// A value, or a mask, for every field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Fields {
    dst: u128,
    src: u128,
    flow_label: u32,
    spi: u32,
    dst_port: u16,
    src_port: u16,
    protocol: u8,
    tos: u8,
}

impl Fields {
    /// The fields of a packet.
    pub const fn of_key(key: &Key) -> Self {
        Fields {
            dst: key.dst,
            src: key.src,
            flow_label: key.flow_label,
            spi: key.spi,
            dst_port: key.dst_port,
            src_port: key.src_port,
            protocol: key.protocol,
            tos: key.tos,
        }
    }
    /// A packet with these fields.
    pub const fn to_key(self, family: Family) -> Key {
        Key {
            src: self.src,
            dst: self.dst,
            flow_label: self.flow_label,
            spi: self.spi,
            src_port: self.src_port,
            dst_port: self.dst_port,
            family,
            protocol: self.protocol,
            tos: self.tos,
            later_fragment: false,
        }
    }
    /// One of them.
    pub const fn get(&self, field: Field) -> u128 {
        match field {
            Field::Dst => self.dst,
            Field::DstPort => self.dst_port as u128,
            Field::Src => self.src,
            Field::SrcPort => self.src_port as u128,
            Field::Protocol => self.protocol as u128,
            Field::Tos => self.tos as u128,
            Field::FlowLabel => self.flow_label as u128,
            Field::Spi => self.spi as u128,
        }
    }
    /// Sets one of them; bits beyond the field's width are lost.
    pub const fn set(&mut self, field: Field, value: u128) {
        match field {
            Field::Dst => self.dst = value,
            Field::DstPort => self.dst_port = value as u16,
            Field::Src => self.src = value,
            Field::SrcPort => self.src_port = value as u16,
            Field::Protocol => self.protocol = value as u8,
            Field::Tos => self.tos = value as u8,
            Field::FlowLabel => self.flow_label = value as u32,
            Field::Spi => self.spi = value as u32,
        }
    }
}

//! One filter: what it asks for, what it precedes, and how two of them relate.

use alloc::string::String;

use super::field::{Field, Fields};
use crate::packet::dscp::Dscp;
use crate::packet::key::{Family, Key};

/// A line `filter` or `filter6` of altq.conf.
///
/// The builder follows ALTQ: **a value of 0 asks for nothing**, whatever its mask, so a tos of 0,
/// protocol 0 or port 0 cannot be asked for; only [`Filter::dscp`] can ask for best effort.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// `name`, empty if not given.
    pub name: String,
    /// The class that matching packets go to; the classifier only hands it back.
    pub class: u32,
    /// `ruleno`: higher is matched first.
    pub ruleno: i32,
    /// Line number, up to 2^31 - 1: among equals the later one is matched first.
    pub order: u32,
    family: Family,
    value: Fields,
    mask: Fields,
}

impl Filter {
    /// A filter of this family that asks for nothing else yet. One of [`Family::Other`] matches nothing.
    pub fn new(family: Family, class: u32, order: u32) -> Self {
        let (value, mask) = (Fields::default(), Fields::default());
        Filter { name: String::new(), class, ruleno: 0, order, family, value, mask }
    }
    /// With this `ruleno`.
    pub fn ruleno(mut self, ruleno: i32) -> Self {
        self.ruleno = ruleno;
        self
    }
    /// With this name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = String::from(name);
        self
    }
    /// Asks that `field` equals `value` under `mask`, of which only the bits that the field has in
    /// this family count. Nothing is asked if the value is 0 under the mask.
    pub fn with(mut self, field: Field, value: u128, mask: u128) -> Self {
        let mask = mask & field.full_mask(self.family);
        let wanted = value & mask;
        self.value.set(field, wanted);
        self.mask.set(field, if wanted == 0 { 0 } else { mask });
        self
    }
    /// Asks for all bits of a field; nothing if the value is 0.
    pub fn exactly(self, field: Field, value: u128) -> Self {
        self.with(field, value, u128::MAX)
    }
    /// Asks for the first `bits` bits of an address; nothing if those are all 0.
    pub fn prefix(self, field: Field, value: u128, bits: u32) -> Self {
        let full = field.full_mask(self.family);
        let mask = full & !full.checked_shr(bits).unwrap_or(0);
        self.with(field, value, mask)
    }
    /// Asks for a codepoint whatever the ECN bits are; also for codepoint 0.
    pub fn dscp(mut self, dscp: Dscp) -> Self {
        self.value.set(Field::Tos, u128::from(dscp.on_tos(0)));
        self.mask.set(Field::Tos, 0xfc);
        self
    }

    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        self.family
    }
    /// The bits asked for; 0 where the mask is.
    pub fn value(&self) -> &Fields {
        &self.value
    }
    /// Which bits are asked for.
    pub fn mask(&self) -> &Fields {
        &self.mask
    }
    /// Whether a packet fits.
    pub fn matches(&self, key: &Key) -> bool {
        let found = Fields::of_key(key);
        self.family != Family::Other
            && self.family == key.family
            && Field::ALL.iter().all(|&field| self.field_matches(field, &found))
    }
    /// Whether one field of a packet fits.
    pub fn field_matches(&self, field: Field, found: &Fields) -> bool {
        (found.get(field) ^ self.value.get(field)) & self.mask.get(field) == 0
    }
    /// An IPv4 filter on a single destination host: in the original, on a hashed list.
    pub fn is_host(&self) -> bool {
        self.family == Family::V4 && self.mask.get(Field::Dst) == 0xffff_ffff
    }
    /// Why no packet can ever match it, if so: an impossible combination of fields.
    pub fn impossible(&self) -> Option<&'static str> {
        let asks = |field| self.mask.get(field) != 0;
        let protocol = self.value.get(Field::Protocol);
        let has_ports = matches!(protocol, 6 | 17);
        if self.family == Family::Other {
            return Some("it is neither IPv4 nor IPv6");
        }
        if (asks(Field::SrcPort) || asks(Field::DstPort)) && asks(Field::Protocol) && !has_ports {
            return Some("only TCP and UDP have ports");
        }
        None
    }

    /// Its place in the order of precedence; `sequence` decides among filters of one line.
    ///
    /// ```text
    /// 63            32  31   30           0
    /// | ruleno + 2^31 | host | order        |
    /// ```
    pub(super) fn rank(&self, sequence: u64) -> Rank {
        let ruleno = (self.ruleno as u32) ^ 0x8000_0000;
        let order = self.order.min(u32::MAX >> 1);
        let key = (u64::from(ruleno) << 32) | (u64::from(self.is_host()) << 31) | u64::from(order);
        Rank { key, sequence }
    }
    /// Whether this filter is asked before `other`: the precedence without the sequence.
    pub fn precedes(&self, other: &Filter) -> bool {
        self.rank(0) > other.rank(0)
    }
}

/// A filter's place in the order of precedence: the greater is matched first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Rank {
    /// `ruleno`, then single host, then line.
    pub key: u64,
    /// When it was added: no two are equal.
    pub sequence: u64,
}

/// How the packets that two filters match overlap.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Relation {
    /// No packet matches both.
    Disjoint,
    /// They match the same packets.
    Equal,
    /// All that the first matches, the second matches too, and more.
    Subset,
    /// All that the second matches, the first matches too, and more.
    Superset,
    /// Some packets match both, others only one.
    Intersect,
    /// As `Intersect`, and one gives only a source port, the other only a destination port: a
    /// usual way to catch both directions, not worth a warning.
    PortIntersect,
}

/// How `a` relates to `b`.
pub fn relation(a: &Filter, b: &Filter) -> Relation {
    if a.family != b.family || a.family == Family::Other {
        return Relation::Disjoint;
    }
    let (mut a_is_wider, mut b_is_wider) = (false, false);
    for field in Field::ALL {
        let (mask_a, mask_b) = (a.mask.get(field), b.mask.get(field));
        if (a.value.get(field) ^ b.value.get(field)) & mask_a & mask_b != 0 {
            return Relation::Disjoint;
        }
        a_is_wider |= mask_b & !mask_a != 0;
        b_is_wider |= mask_a & !mask_b != 0;
    }
    match (a_is_wider, b_is_wider) {
        (false, false) => Relation::Equal,
        (false, true) => Relation::Subset,
        (true, false) => Relation::Superset,
        (true, true) if ports_cross(a, b) || ports_cross(b, a) => Relation::PortIntersect,
        (true, true) => Relation::Intersect,
    }
}

/// Whether `a` gives only a source port and `b` only a destination port.
fn ports_cross(a: &Filter, b: &Filter) -> bool {
    let ports = |f: &Filter| (f.mask.get(Field::SrcPort) != 0, f.mask.get(Field::DstPort) != 0);
    ports(a) == (true, false) && ports(b) == (false, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(order: u32) -> Filter {
        Filter::new(Family::V4, 1, order)
    }

    #[test]
    fn zero_asks_for_nothing() {
        let f = v4(1).with(Field::Tos, 0, 0xff).exactly(Field::Dst, 0).prefix(Field::Src, 0x7f, 24);
        assert_eq!(f.mask(), &Fields::default());
        let packet = Key { family: Family::V4, tos: 0x55, src: 9, dst: 9, ..Key::default() };
        assert!(f.matches(&packet));
        assert!(!f.matches(&Key { family: Family::V6, ..packet }));
        let best_effort = v4(1).dscp(Dscp::CS0);
        assert!(best_effort.matches(&packet.with_tos(3)) && !best_effort.matches(&packet));
    }

    #[test]
    fn prefixes_of_every_length() {
        for (family, width) in [(Family::V4, 32), (Family::V6, 128)] {
            let ones = Field::Dst.full_mask(family);
            for bits in 0..=width {
                let f = Filter::new(family, 0, 0).prefix(Field::Dst, ones, bits);
                assert_eq!(f.mask().get(Field::Dst).count_ones(), bits);
                let mut key = Key { family, dst: ones, ..Key::default() };
                assert!(f.matches(&key));
                if bits > 0 {
                    key.dst ^= 1 << (width - bits);
                    assert!(!f.matches(&key), "the last bit of /{bits} counts");
                }
                if bits < width {
                    key.dst = ones ^ (1 << (width - bits - 1));
                    assert!(f.matches(&key), "the first bit after /{bits} does not");
                }
            }
        }
    }

    #[test]
    fn flow_label_means_nothing_in_ipv4() {
        assert_eq!(v4(1).exactly(Field::FlowLabel, 7).mask(), &Fields::default());
        let six = Filter::new(Family::V6, 0, 0).exactly(Field::FlowLabel, 0xfff_ffff);
        assert_eq!(six.value().get(Field::FlowLabel), 0xf_ffff);
    }

    #[test]
    fn precedence() {
        let host = |order| v4(order).exactly(Field::Dst, 0x0a000001);
        // Higher ruleno, then host, then line. Each pair also reversed.
        for (first, second) in [
            (v4(1).ruleno(2), v4(9).ruleno(1)),
            (v4(1).ruleno(2), host(9).ruleno(1)),
            (v4(1).ruleno(0), v4(9).ruleno(-1)),
            (host(1), v4(9)),
            (host(2), host(1)),
            (v4(2), v4(1)),
            (Filter::new(Family::V6, 0, 2).exactly(Field::Dst, 1), Filter::new(Family::V6, 0, 1)),
            (Filter::new(Family::V6, 0, 2), Filter::new(Family::V6, 0, 1).exactly(Field::Dst, 1)),
        ] {
            assert!(first.precedes(&second) && !second.precedes(&first), "{first:?} {second:?}");
            assert!(!first.precedes(&first), "{first:?} precedes itself");
        }
        assert!(v4(1).rank(2) > v4(1).rank(1), "on one line, the one added later");
        assert!(v4(u32::MAX).ruleno(i32::MIN).rank(9) < host(0).ruleno(i32::MIN).rank(1));
    }

    #[test]
    fn relations() {
        use Relation::*;
        let net = v4(1).prefix(Field::Dst, 0x0a000000, 8);
        let host = v4(2).exactly(Field::Dst, 0x0a000001);
        let web = v4(3).exactly(Field::DstPort, 80);
        let from_web = v4(4).exactly(Field::SrcPort, 80);
        let other = v4(5).prefix(Field::Dst, 0x0b000000, 8);
        let to_one = v4(6).exactly(Field::DstPort, 80).exactly(Field::Dst, 0x0a000001);
        for (a, b, expected, reversed) in [
            (&net, &net, Equal, Equal),
            (&host, &net, Subset, Superset),
            (&net, &web, Intersect, Intersect),
            (&web, &from_web, PortIntersect, PortIntersect),
            (&net, &from_web, Intersect, Intersect),
            (&web, &to_one, Superset, Subset),
            (&net, &other, Disjoint, Disjoint),
            (&net, &v4(9), Subset, Superset),
            (&net, &Filter::new(Family::V6, 0, 0), Disjoint, Disjoint),
        ] {
            assert_eq!((relation(a, b), relation(b, a)), (expected, reversed), "{a:?} {b:?}");
        }
    }

    #[test]
    fn what_can_never_match() {
        for port in [Field::SrcPort, Field::DstPort] {
            assert!(v4(1).exactly(Field::Protocol, 1).exactly(port, 80).impossible().is_some());
        }
        assert!(v4(1).exactly(Field::Protocol, 17).exactly(Field::DstPort, 80).impossible().is_none());
        assert!(v4(1).exactly(Field::DstPort, 80).impossible().is_none());
    }
}

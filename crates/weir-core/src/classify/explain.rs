//! Why a packet goes where it goes, and which filters do nothing.
//!
//! For people, not for packets: lists are allocated, and near misses are found by walking all
//! filters.

use alloc::vec::Vec;

use super::compile::{Classifier, FilterId, Match};
use super::field::{Field, Fields};
use super::filter::{Filter, Relation, relation};
use super::overlap;
use crate::packet::key::{Family, Key};

/// What [`explain`] found out about a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The filter that takes the packet; `None` sends it to the default class.
    pub matched: Option<Match>,
    /// Filters that match too and come later, first things first.
    pub also: Vec<FilterId>,
    /// Filters that fail in exactly one field, in the order of precedence.
    pub near: Vec<Near>,
    /// How many more near misses there are than were asked for.
    pub near_left_out: usize,
    /// The filter that the original would have taken, if another.
    pub altq: Option<FilterId>,
}

/// A filter that all but matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Near {
    /// The filter.
    pub filter: FilterId,
    /// The only field that does not fit.
    pub field: Field,
    /// What the filter asks for,
    pub wanted: u128,
    /// under this mask.
    pub mask: u128,
    /// What the packet has.
    pub found: u128,
}

/// Explains the fate of a packet, with at most `near_limit` near misses among the filters that
/// `shown` lets through.
pub fn explain(
    classifier: &Classifier,
    key: &Key,
    near_limit: usize,
    shown: impl Fn(FilterId) -> bool,
) -> Explanation {
    let matched = classifier.classify(key);
    let mut also = classifier.all_matches(key);
    let original = first_in_altq(classifier, &also);
    also.retain(|&id| Some(id) != matched.map(|m| m.filter));
    let mut near: Vec<Near> = classifier
        .filters()
        .filter(|&(id, _)| shown(id))
        .filter_map(|(id, f)| near_miss(id, f, key))
        .collect();
    let near_left_out = near.len().saturating_sub(near_limit);
    near.truncate(near_limit);
    let altq = original.filter(|&id| Some(id) != matched.map(|m| m.filter));
    Explanation { matched, also, near, near_left_out, altq }
}

fn near_miss(id: FilterId, filter: &Filter, key: &Key) -> Option<Near> {
    if filter.family() != key.family || key.family == Family::Other {
        return None;
    }
    let found = Fields::of_key(key);
    let mut misses = Field::ALL.into_iter().filter(|&field| !filter.field_matches(field, &found));
    let (field, None) = (misses.next()?, misses.next()) else { return None };
    let (wanted, mask) = (filter.value().get(field), filter.mask().get(field));
    Some(Near { filter: id, field, wanted, mask, found: found.get(field) })
}

/// A filter that never takes a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// The filter.
    pub filter: FilterId,
    /// Why.
    pub cause: Cause,
}

/// Why a filter is unreachable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// This filter comes before it and matches all that it would match.
    Shadowed(FilterId),
    /// What it asks for cannot be, and this is why.
    Impossible(&'static str),
}

/// The filters that can never take a packet, in the order of precedence. Each is held against
/// single filters before it: several that cover it only together are not found.
pub fn unreachable(classifier: &Classifier) -> Vec<Unreachable> {
    let mut found = Vec::new();
    for (id, filter) in classifier.filters() {
        let cause = match filter.impossible() {
            Some(why) => Some(Cause::Impossible(why)),
            None => shadow(classifier, id, filter).map(Cause::Shadowed),
        };
        found.extend(cause.map(|cause| Unreachable { filter: id, cause }));
    }
    found
}

/// The first filter before `filter` that is as wide or wider. Such a one matches the packet made of
/// the filter's own values, so the classifier itself names the few that need to be compared.
fn shadow(classifier: &Classifier, id: FilterId, filter: &Filter) -> Option<FilterId> {
    let own_packet = filter.value().to_key(filter.family());
    let covers = |other: &FilterId| {
        let wider = classifier.filter(*other).map(|other| relation(filter, other));
        matches!(wider, Some(Relation::Equal | Relation::Subset))
    };
    let before = |other: &FilterId| classifier.rank(*other) > classifier.rank(id);
    classifier.all_matches(&own_packet).into_iter().take_while(before).find(covers)
}

/// Two filters of different classes that ALTQ would have asked in the other order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Comes first here, because of its `ruleno` (or, in IPv6, its line).
    pub ours: FilterId,
    /// Came first there: it is on a hashed list.
    pub altq: FilterId,
}

/// Where our order differs from the original's, for packets that both filters match: for each
/// filter that it kept on a hashed list, the first one of another class that now precedes it.
///
/// The original asked the hashed list first (IPv4: filters on a single destination host; IPv6:
/// filters on a flow label) and then all others, each list by `ruleno`. So a host filter beat any
/// other, whatever their `ruleno`. With one `ruleno` throughout there are no differences in IPv4. Of very
/// large sets not all are found (see [`super::overlap`]).
pub fn differences_from_altq(classifier: &Classifier) -> Vec<Difference> {
    let found = overlap::first_before(classifier, &is_hashed_in_altq);
    found.into_iter().map(|(altq, ours)| Difference { ours, altq }).collect()
}

fn is_hashed_in_altq(filter: &Filter) -> bool {
    match filter.family() {
        Family::V4 => filter.is_host(),
        _ => filter.mask().get(Field::FlowLabel) != 0,
    }
}

/// The original's choice among matches in our order.
fn first_in_altq(classifier: &Classifier, matches: &[FilterId]) -> Option<FilterId> {
    let hashed = |id: &&FilterId| classifier.filter(**id).is_some_and(is_hashed_in_altq);
    matches.iter().find(hashed).or(matches.first()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::key::protocol;
    use core::net::Ipv4Addr;

    const NET: u128 = 0x0a00_0000;
    const HOST: u128 = 0x0a00_0001;

    fn v4(class: u32, order: u32) -> Filter {
        Filter::new(Family::V4, class, order)
    }
    fn packet() -> Key {
        let (src, dst) = (Ipv4Addr::new(192, 168, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
        Key::ipv4(src, dst, protocol::TCP).with_ports(5000, 80).with_tos(0x10)
    }

    #[test]
    fn says_what_matched_what_also_and_what_nearly() {
        let mut c = Classifier::empty();
        let all = c.insert(v4(9, 1));
        let host = c.insert(v4(1, 2).exactly(Field::Dst, HOST));
        let wrong_port = c.insert(v4(2, 3).exactly(Field::Dst, HOST).exactly(Field::DstPort, 443));
        let wrong_net = c.insert(v4(3, 4).prefix(Field::Dst, 0x0b00_0000, 8).exactly(Field::DstPort, 80));
        c.insert(v4(4, 5).exactly(Field::DstPort, 443).exactly(Field::Protocol, 17));
        c.insert(Filter::new(Family::V6, 5, 6).exactly(Field::DstPort, 81));
        let e = explain(&c, &packet(), 10, |_| true);
        assert_eq!(e.matched, Some(Match { class: 1, filter: host }));
        assert_eq!(e.also, [all]);
        assert_eq!(
            e.near,
            [
                Near { filter: wrong_port, field: Field::DstPort, wanted: 443, mask: 0xffff, found: 80 },
                Near {
                    filter: wrong_net,
                    field: Field::Dst,
                    wanted: 0x0b00_0000,
                    mask: 0xff00_0000,
                    found: HOST
                },
            ]
        );
        assert_eq!((e.near_left_out, e.altq), (0, None));
        let e = explain(&c, &packet(), 1, |_| true);
        assert_eq!((e.near.len(), e.near_left_out), (1, 1));
        let nothing = explain(&c, &Key::default(), 10, |_| true);
        assert_eq!((nothing.matched, nothing.also.len(), nothing.near.len()), (None, 0, 0));
    }

    #[test]
    fn names_what_is_unreachable_and_by_which_filter() {
        let mut c = Classifier::empty();
        let lost = c.insert(v4(1, 1).prefix(Field::Dst, HOST, 24).exactly(Field::DstPort, 80));
        let net = c.insert(v4(2, 2).prefix(Field::Dst, NET, 8));
        let host = c.insert(v4(3, 1).exactly(Field::Dst, HOST));
        let twin = c.insert(v4(4, 3).exactly(Field::Dst, HOST));
        let saved = c.insert(v4(5, 1).ruleno(1).exactly(Field::Dst, HOST).exactly(Field::SrcPort, 7));
        let never = c.insert(v4(6, 9).exactly(Field::Protocol, 1).exactly(Field::SrcPort, 7));
        let found = unreachable(&c);
        assert_eq!(
            found,
            [
                Unreachable { filter: host, cause: Cause::Shadowed(twin) },
                Unreachable { filter: never, cause: Cause::Impossible("only TCP and UDP have ports") },
                Unreachable { filter: lost, cause: Cause::Shadowed(net) },
            ]
        );
        assert!(c.filter(saved).is_some());
        // Reversed: without the later net and twin, nothing is shadowed.
        c.remove(net);
        c.remove(twin);
        assert_eq!(unreachable(&c).len(), 1);
    }

    #[test]
    fn tells_where_the_original_would_have_chosen_otherwise() {
        let mut c = Classifier::empty();
        let host = c.insert(v4(1, 1).exactly(Field::Dst, HOST));
        let web = c.insert(v4(2, 2).ruleno(5).exactly(Field::DstPort, 80));
        let same_class = c.insert(v4(1, 3).ruleno(9).exactly(Field::Dst, 0).exactly(Field::SrcPort, 5000));
        assert_eq!(differences_from_altq(&c), [Difference { ours: web, altq: host }]);
        let e = explain(&c, &packet(), 0, |_| true);
        assert_eq!(e.matched.map(|m| m.filter), Some(same_class));
        assert_eq!(e.altq, Some(host));
        // With one ruleno throughout there is no difference in IPv4.
        c.remove(web);
        c.remove(same_class);
        c.insert(v4(2, 2).exactly(Field::DstPort, 80));
        assert_eq!(differences_from_altq(&c), []);
        assert_eq!(explain(&c, &packet(), 0, |_| true).altq, None);
    }

    #[test]
    fn ipv6_flow_labels_came_first_in_the_original() {
        let mut c = Classifier::empty();
        let label = c.insert(Filter::new(Family::V6, 1, 1).exactly(Field::FlowLabel, 7));
        let later = c.insert(Filter::new(Family::V6, 2, 2).exactly(Field::DstPort, 80));
        assert_eq!(differences_from_altq(&c), [Difference { ours: later, altq: label }]);
    }
}

//! Sessions of a broker elsewhere, as the edges of this box take them.

use weir_broker::wire::{End, SessionNow};
use weir_edge::edge::{Place, Session};
use weir_engine::broker::{Booked, Who};
use weir_text::Prefix;

fn places(ends: &[End]) -> Option<Vec<Place>> {
    let place = |end: &End| {
        let ports = end.ports.iter().map(|[first, last]| (*first, *last)).collect();
        Some(Place { prefix: weir_conf::prefix_of(Prefix::read_around(&end.prefix).ok()?), ports })
    };
    ends.iter().map(place).collect()
}

/// The number of a session: a UUID.
fn number(id: &str) -> Option<u128> {
    u128::from_str_radix(&id.replace('-', ""), 16).ok()
}

/// A session, as a broker tells of it. None: a later version means something else by it.
pub(super) fn booked(now: &SessionNow) -> Option<Booked> {
    let class = |resource: &str| -> Option<Who> {
        let (interface, class) = resource.split_once(':')?;
        Some((interface.into(), class.into()))
    };
    let session = Session {
        id: number(&now.session)?,
        leaf: 0,
        rate_bps: now.rate_bps,
        device: places(&now.device)?,
        server: places(&now.server)?,
    };
    Some(Booked { classes: now.path.iter().filter_map(|resource| class(resource)).collect(), session })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(prefix: &str, ports: &[[u16; 2]]) -> End {
        End { prefix: prefix.into(), ports: ports.to_vec() }
    }

    #[test]
    fn what_a_broker_tells_is_taken_or_left_whole() {
        let id = "3f2a9c1e-7b64-4d0a-9c55-0a1b2c3d4e5f";
        let told = SessionNow {
            session: id.into(),
            path: vec!["wan0:rt".into(), "peer:rt".into()],
            rate_bps: 512_000,
            left_ms: 1,
            device: vec![end("203.0.113.7/32", &[[5, 9]]), end("2001:db8::/64", &[])],
            server: vec![end("198.51.100.9/24", &[])],
        };
        let booked = booked(&told).unwrap();
        assert_eq!(booked.classes, [("wan0".into(), "rt".into()), ("peer".into(), "rt".into())]);
        assert_eq!(weir_conf::said::session(booked.session.id), id);
        assert_eq!(weir_conf::prefix_text(&booked.session.server[0].prefix), "198.51.100.0/24");
        assert_eq!(booked.session.device[0].ports, [(5, 9)]);
        assert_eq!(weir_conf::prefix_text(&booked.session.device[1].prefix), "2001:db8::/64");
        for bad in ["x", "10.0.0.0/33", "10.0.0.0/x", "2001:db8::/129"] {
            let told = SessionNow { server: vec![end(bad, &[])], ..told.clone() };
            assert_eq!(super::booked(&told), None, "{bad}");
        }
        assert_eq!(super::booked(&SessionNow { session: "a".repeat(40).into(), ..told }), None);
    }
}

//! An edge before a port, and what brokers answer it.

use super::super::{Delay, Direction, with_edge};
use super::*;
use crate::broker::{NotTaken, Order};
use crate::line::Line;
use weir_core::port::{PortConfig, Refill, WireConfig};
use weir_core::queue::{Link, Value};
use weir_core::sched::Registry;
use weir_edge::edge::Session;
use weir_io::PoolSize;

/// Tells the edge of that number its sessions: those that it does not take.
fn told(one: &mut Direction, at: Instant, number: u64, sessions: Vec<Session>) -> Vec<NotTaken> {
    let (done, not_taken) = std::sync::mpsc::channel();
    one.obey(at, number, Order::Sessions { sessions, done: Some(done) });
    not_taken.iter().collect()
}

const CONF: &str = "broker core local 8M\n\
                    interface out0 bandwidth 3M hfsc\n\
                    class hfsc out0 rt root [ls 0 0 1M] [ul 0 0 64K]\n\
                    class hfsc out0 be root [ls 0 0 1M] default\n\
                    allocate out0 rt law log gain 200K step 10K window 200ms 5 congestion 20ms guard 400ms \
                    from 64K to 600K broker core\n";

/// Classes that share 3 Mbit/s: the edge's has 5 % to begin with, and the other one 70 %.
const FULL: &str = "broker core local 8M\n\
                    interface out0 bandwidth 3M cbq\n\
                    class cbq out0 root NULL pbandwidth 100\n\
                    class cbq out0 rt root pbandwidth 5\n\
                    class cbq out0 be root pbandwidth 70 default\n\
                    allocate out0 rt law fixed from 100K to 600K broker core\n";

/// The direction by `out0`. Its edge asks where nobody answers.
fn direction(conf: &str) -> Direction {
    at_desk(conf, Desk::closed())
}

fn at_desk(conf: &str, desk: Desk) -> Direction {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", conf, &registry).into_result().unwrap();
    let view = plan.interface("out0").unwrap();
    let link = Link::new(view.rate(), 0, 1514);
    let built = view.build(&registry, link).unwrap();
    let plan = view.edge(&registry, &built.tree.leaves, 1).unwrap().unwrap();
    let config = PortConfig::new(link, WireConfig::Link { ring: 1, refill: Refill::Packet });
    let port = Port::new(config, built.port_plan(link));
    let class = |class: weir_conf::EdgeClass| EdgeClass {
        name: class.name.clone(),
        broker: class.broker.as_ref().map(|(name, _)| name.clone()),
        shape: Box::new(move |rate| class.shape(rate)),
    };
    let classes = plan.classes.into_iter().map(class).collect();
    let plan = EdgePlan { interface: "out0".into(), config: plan.config, classes };
    let mut direction = Direction::new(0, Some(port), PoolSize { frames: 64, tails: 4 }, Delay::default());
    direction.set_edge(Instant::ZERO, Some(Box::new(LiveEdge::new(plan, desk, Instant::ZERO))));
    direction
}

/// Number of the edge, its open request, and what its class has.
fn now(direction: &Direction) -> (u64, Option<Request>, u64) {
    let live = direction.edge().unwrap();
    let (_, allocator) = live.edge.allocators().next().unwrap();
    (live.number, allocator.outstanding(), allocator.allocated_bps())
}

/// Between the request and its answer the edge has said anew what it has: the broker counted by something else.
#[test]
fn an_answer_to_what_was_known_before_is_not_heeded() {
    let (line, _inbox) = Line::new(vec![0]).unwrap();
    let at = Instant::from_millis(1);
    for says_again in [false, true] {
        let mut one = direction(CONF);
        one.ask(&line.back());
        let waits = Backlog { bytes: 20_000, packets: 20 };
        one.with_edge(at, |edge, at| edge.unwrap().set_backlog(at, 0, waits));
        one.ask(&line.back());
        let (number, request, has) = now(&one);
        let request = request.expect("it is congested");
        assert!(has == 64_000 && request.rate_bps > has, "{request:?}");
        if says_again {
            one.obey(at, number, Order::SayHolds);
            one.ask(&line.back());
        }
        let answer = Answer::Granted(request.rate_bps);
        one.obey(at, number, Order::Answer { class: 0, version: request.version, answer });
        assert_eq!(now(&one).2 > has, !says_again);
        // The law repeats its request, and that answer counts.
        let (number, ..) = now(&one);
        one.obey(at, number, Order::Answer { class: 0, version: request.version, answer });
        assert_eq!(now(&one).2, request.rate_bps);
    }
}

/// A file is applied while a request is under way: it is asked again at once behind what the class has, because the answer to the first
/// one may be for another class by now, and half a second is long for a class that is congested.
#[test]
fn a_request_is_asked_again_behind_an_apply() {
    let (line, inbox) = Line::new(vec![0]).unwrap();
    let desk = Desk::open().unwrap();
    desk.declare(vec![("core".into(), crate::broker::Kind::Local { capacity_bps: 8_000_000 })]);
    let (at, mut one) = (Instant::from_millis(1), at_desk(CONF, desk.clone()));
    one.ask(&line.back());
    let waits = Backlog { bytes: 20_000, packets: 20 };
    one.with_edge(at, |edge, at| edge.unwrap().set_backlog(at, 0, waits));
    one.ask(&line.back());
    let mut other = at_desk(CONF, desk.clone());
    let edge = other.set_edge(at, None);
    one.set_edge(at, edge);
    one.ask(&line.back());
    let wanted = now(&one).1.expect("it is not answered").rate_bps;
    desk.state();
    for request in inbox.requests.try_iter() {
        let crate::control::Request::Told(told) = request else { panic!("another request") };
        one.obey(at, told.edge, told.order);
    }
    assert_eq!(now(&one), (now(&one).0, None, wanted));
}

/// A class whose parent has no room for a rate is named once, and each refusal counts.
#[test]
fn a_class_whose_rate_is_refused_is_named_once() {
    let mut one = direction(CONF);
    let live = one.edge_mut().unwrap();
    let said = live.refused("rt", &"no room").expect("it is new");
    assert!(said.starts_with("interface out0: class rt keeps") && said.contains("no room"), "{said}");
    assert_eq!((live.refused("rt", &"no room"), live.refused("be", &"no room")), (None, None));
    assert_eq!(live.unshaped(), 3);
}

/// What the discipline refuses comes there.
#[test]
fn a_rate_that_is_refused_counts() {
    let mut one = direction(CONF);
    let Direction { port: Some(port), frames, .. } = &mut one else { panic!("it has a port") };
    with_edge::shape(port, frames, Instant::ZERO, "rt", &Params::new().with("nonsense", Value::Count(1)));
    let live = one.edge().unwrap();
    assert_eq!((live.unshaped(), live.classes[0].is_refused), (1, true));
}

fn session(id: u128, rate_bps: u64) -> Session {
    let prefix = weir_edge::sla::Prefix::new(false, id, 32);
    let place = || vec![weir_edge::edge::Place { prefix, ports: Vec::new() }];
    Session { id, leaf: 0, rate_bps, device: place(), server: place() }
}

/// Which sessions are in effect, and what the class has.
fn in_effect(direction: &Direction) -> (Vec<u128>, u64) {
    let edge = direction.edge().unwrap().edge();
    let mut ids: Vec<u128> = edge.sessions().map(|(session, _)| session.id).collect();
    ids.sort_unstable();
    (ids, edge.allocators().next().unwrap().1.rate_bps())
}

/// A session that its class has no room for is not in effect, and says why. It takes nothing from the others, whatever order they
/// come in. Once one of these ends there is room.
#[test]
fn a_session_without_room_is_not_in_effect() {
    let mut one = direction(FULL);
    let number = now(&one).0;
    // 900 kbit/s are left to the class, of which it has 100.
    let mut set = |ms: u64, ids: &[u128]| {
        let sessions = ids.iter().map(|&id| session(id, 390_000)).collect();
        let left_out = told(&mut one, Instant::from_millis(ms), number, sessions);
        let said = one.edge().unwrap().left_out(0);
        assert_eq!(said.as_ref().map(|(count, _)| *count as usize).unwrap_or(0), left_out.len(), "{said:?}");
        (left_out, in_effect(&one))
    };
    assert_eq!(set(1, &[7]), (vec![], (vec![7], 490_000)));
    assert_eq!(set(2, &[8, 7]), (vec![], (vec![7, 8], 880_000)));
    let why = "class rt of interface out0 has no room for its rate".to_owned();
    for (ms, order) in [(3, [6, 7, 8]), (4, [8, 7, 9])] {
        let other = if ms == 3 { 6 } else { 9 };
        assert_eq!(set(ms, &order), (vec![(other, why.clone())], (vec![7, 8], 880_000)));
    }
    assert_eq!(set(5, &[9, 7]), (vec![], (vec![7, 9], 880_000)));
    // Another edge was meant.
    assert_eq!(told(&mut one, Instant::from_millis(6), number + 1, Vec::new()), vec![]);
    assert_eq!(in_effect(&one).0, [7, 9]);
}

/// An edge takes 256 sessions. The others are named, and those that are there stay.
#[test]
fn sessions_beyond_what_an_edge_takes_are_named() {
    let mut one = direction(CONF);
    let number = now(&one).0;
    let mut set = |ms: u64, ids: std::ops::Range<u128>| {
        let sessions = ids.map(|id| session(id, 10)).collect();
        told(&mut one, Instant::from_millis(ms), number, sessions)
    };
    assert_eq!(set(1, 100..300), vec![]);
    let left_out = set(2, 0..300);
    let why = "interface out0 has 256 sessions, the most that it takes";
    assert!(left_out.iter().all(|(_, said)| said == why), "{left_out:?}");
    let ids: Vec<u128> = left_out.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (56..100).collect::<Vec<_>>());
    assert_eq!(in_effect(&one).0.len(), 256);
    assert_eq!(one.edge().unwrap().left_out(0), Some((44, why.into())));
}

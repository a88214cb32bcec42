//! An edge before a port, and what brokers answer it.

use super::super::{Delay, Direction};
use super::*;
use crate::line::Line;
use weir_core::port::{PortConfig, Refill, WireConfig};
use weir_core::queue::{Link, Value};
use weir_core::sched::Registry;
use weir_io::PoolSize;

const CONF: &str = "broker core local 8M\n\
                    interface out0 bandwidth 3M hfsc\n\
                    class hfsc out0 rt root [ls 0 0 1M] [ul 0 0 64K]\n\
                    class hfsc out0 be root [ls 0 0 1M] default\n\
                    allocate out0 rt law log gain 200K step 10K window 200ms 5 congestion 20ms guard 400ms \
                    from 64K to 600K broker core\n";

/// The direction by `out0`. Its edge asks where nobody answers.
fn direction() -> Direction {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", CONF, &registry).into_result().unwrap();
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
    direction.set_edge(Instant::ZERO, Some(Box::new(LiveEdge::new(plan, Desk::closed(), Instant::ZERO))));
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
        let mut one = direction();
        one.ask(&line.back());
        let waits = Backlog { bytes: 20_000, packets: 20 };
        one.with_edge(at, |edge, at| edge.unwrap().set_backlog(at, 0, waits));
        one.ask(&line.back());
        let (number, request, has) = now(&one);
        let request = request.expect("it is congested");
        assert!(has == 64_000 && request.rate_bps > has, "{request:?}");
        if says_again {
            one.say_holds(number);
            one.ask(&line.back());
        }
        let answer = Answer::Granted(request.rate_bps);
        one.answered(at, number, 0, request.version, answer);
        assert_eq!(now(&one).2 > has, !says_again);
        // The law repeats its request, and that answer counts.
        let (number, ..) = now(&one);
        one.answered(at, number, 0, request.version, answer);
        assert_eq!(now(&one).2, request.rate_bps);
    }
}

/// A class whose parent has no room for a rate is named once, and each refusal counts.
#[test]
fn a_class_whose_rate_is_refused_is_named_once() {
    let mut one = direction();
    let live = one.edge_mut().unwrap();
    let said = live.refused("rt", &"no room").expect("it is new");
    assert!(said.starts_with("interface out0: class rt keeps") && said.contains("no room"), "{said}");
    assert_eq!((live.refused("rt", &"no room"), live.refused("be", &"no room")), (None, None));
    assert_eq!(live.unshaped(), 3);
}

/// What the discipline refuses comes there.
#[test]
fn a_rate_that_is_refused_counts() {
    let mut one = direction();
    let Direction { port: Some(port), frames, .. } = &mut one else { panic!("it has a port") };
    shape(port, frames, Instant::ZERO, "rt", &Params::new().with("nonsense", Value::Count(1)));
    let live = one.edge().unwrap();
    assert_eq!((live.unshaped(), live.classes[0].is_refused), (1, true));
}

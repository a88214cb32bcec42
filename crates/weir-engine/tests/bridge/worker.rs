//! Workers, in real time: a discipline that panics costs nothing but itself; changes, and the end.

use super::*;
use weir_engine::{Change, Changed, Pace, Processor, Task, Worker};
use weir_seed::{in_time, timed};

// Claim L39.
#[test]
fn a_panicking_discipline_costs_nothing_but_itself() {
    let mut bridge = bridge(wilful(|n, _, _| assert!(n != 30, "the thirtieth packet")), Duration::ZERO);
    let sent: Vec<_> = (0..60).map(|n| frame(n, 125, 0)).collect();
    bridge.interfaces().0.arriving = sent.clone().into();
    let names = ["left".to_string(), "right".to_string()];
    let worker = Worker::start(bridge, names, Pace::default()).unwrap();
    let control = worker.control();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    let snapshot = loop {
        let snapshot = control.state().unwrap();
        if snapshot.egresses[0].sent_packets == 60 || std::time::Instant::now() > deadline {
            break snapshot;
        }
    };
    assert_eq!(snapshot.egresses[0].sent_packets, 60, "{snapshot:?}");
    assert_eq!(snapshot.failed.as_deref(), Some("the thirtieth packet"));
    assert!(snapshot.egresses[0].port.is_none(), "plain from now on");
    // Until somebody gives it another port.
    let port = Change::Port(managed(fifo(50)).map(Box::new));
    assert!(matches!(control.change(0, port).unwrap(), Changed::Exchanged(None)));
    let state = control.state().unwrap();
    assert!(state.failed.is_none() && state.egresses[0].port.is_some(), "{state:?}");
    worker.stop().unwrap();
}

/// A worker gives up its own port only: the other worker, and its port, go on.
// Claim L52.
#[test]
fn a_panic_in_one_of_two_workers_leaves_the_other_one_alone() {
    let names = ["left".to_string(), "right".to_string()];
    let sent: Vec<_> = (0..60).map(|n| frame(n, 125, 0)).collect();
    let trees = [wilful(|n, _, _| assert!(n != 30, "the thirtieth packet")), fifo(100)];
    let tasks = trees.into_iter().enumerate().map(|(index, tree)| {
        let direction = Direction::new(index, managed(tree), SIZE, Delay::default());
        let mut bridge = Bridge::new(Memory::new(), Memory::new(), [direction]);
        let (left, right) = bridge.interfaces();
        [left, right][index].arriving = sent.clone().into();
        Task::new(bridge, Pace::default())
    });
    let worker = Worker::start_each(tasks.collect(), &names).unwrap();
    let control = worker.control();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    let state = loop {
        let state = control.state().unwrap();
        let done = state.egresses.iter().all(|egress| egress.sent_packets == 60);
        if done || std::time::Instant::now() > deadline {
            break state;
        }
    };
    let told: Vec<_> = state
        .egresses
        .iter()
        .map(|egress| (egress.interface.as_str(), egress.sent_packets, egress.port.is_some()))
        .collect();
    assert_eq!(told, [("right", 60, false), ("left", 60, true)], "{state:?}");
    assert_eq!(state.failed.as_deref(), Some("the thirtieth packet"));
    assert_eq!((state.workers.len(), state.steps), (2, state.workers.iter().map(|w| w.steps).sum()));
    assert!(control.swap(1, PortPlan::new(fifo(50), Classifier::empty())).unwrap());
    assert!(!control.swap(7, PortPlan::new(fifo(50), Classifier::empty())).unwrap());
    let port = Change::Port(managed(fifo(50)).map(Box::new));
    assert!(matches!(control.change(0, port).unwrap(), Changed::Exchanged(None)));
    let state = control.state().unwrap();
    assert!(state.failed.is_none() && state.egresses.iter().all(|e| e.port.is_some()), "{state:?}");
    let last = worker.stop().unwrap();
    assert_eq!(last.egresses.len(), 2);
    assert!(control.swap(1, PortPlan::new(fifo(5), Classifier::empty())).is_err(), "nobody answers any more");
}

/// A panic in the statistics costs their answer; the discipline goes on, and so do later answers.
// Claim L15.
#[test]
fn a_panic_in_the_statistics_stops_nothing_else() {
    let mut bridge = bridge(wilful(|_, _, _| {}), Duration::ZERO);
    let sent: Vec<_> = (0..13).map(|n| frame(n, 125, 0)).collect();
    bridge.interfaces().0.arriving = sent.into();
    let worker = Worker::start(bridge, ["left".into(), "right".into()], Pace::default()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let refused = worker.control().state().unwrap_err().to_string();
    assert!(refused.contains("statistics of thirteen packets"), "{refused}");
    assert!(worker.control().swap(0, PortPlan::new(fifo(50), Classifier::empty())).unwrap(), "still managed");
    let state = worker.control().state().unwrap();
    assert_eq!((state.failed.clone(), state.egresses[0].sent_packets), (None, 13), "{state:?}");
    worker.stop().unwrap();
}

/// A worker that ends takes nothing more in where it fails closed, and all that it has leaves at its rate.
#[test]
fn what_a_worker_holds_leaves_before_it_ends() {
    let mut bridge = bridge(fifo(100), Duration::from_millis(5));
    // 30 ms of the link.
    bridge.interfaces().0.arriving = (0..30).map(|n| frame(n, 1250, 0)).collect();
    let names = ["left".to_string(), "right".to_string()];
    let worker = Worker::start(bridge, names, Pace::default()).unwrap();
    assert!(worker.control().state().unwrap().egresses[0].sent_packets < 20);
    let last = worker.stop().unwrap();
    assert_eq!((last.egresses[0].sent_packets, last.egresses[0].leaving_packets), (30, 0));
}

#[test]
fn a_worker_answers_swaps_and_stops_while_it_works() {
    timed(|| {
        let mut bridge = bridge(fifo(500), Duration::ZERO);
        bridge.interfaces().0.arriving = (0..30).map(|n| frame(n, 125, 0)).collect();
        let worker = Worker::start(bridge, ["left".into(), "right".into()], Pace::default()).unwrap();
        let control = worker.control();
        assert!(control.swap(0, PortPlan::new(fifo(50), Classifier::empty())).unwrap());
        assert!(!control.swap(1, PortPlan::new(fifo(50), Classifier::empty())).unwrap());
        assert!(!control.swap(7, PortPlan::new(fifo(50), Classifier::empty())).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let state = control.state().unwrap();
        in_time!(state.egresses[0].sent_packets == 30, "{state:?}");
        assert_eq!(state.egresses[0].port.as_ref().unwrap().classes[0].name, "all");
        let last = worker.stop().unwrap();
        in_time!(last.cpu_ns > 0 && last.uptime_ns > 30_000_000);
        assert!(
            control.swap(0, PortPlan::new(fifo(5), Classifier::empty())).is_err(),
            "nobody answers any more"
        );
    });
}

/// A worker that spins without end, on the processor of an ordinary thread: that thread runs every
/// few milliseconds, and is not kept out for most of a second.
// Claim L38.
#[test]
fn a_worker_under_sched_fifo_leaves_room_for_ordinary_threads() {
    timed(|| {
        let spin = Duration::from_secs(1 << 40);
        let pace = Pace { spin, processor: Processor::Only(0), priority: weir_sys::Priority::Fifo };
        let worker = Worker::start(bridge(fifo(5), Duration::ZERO), ["l".into(), "r".into()], pace).unwrap();
        let priority = worker.control().state().unwrap().priority;
        if priority != "SCHED_FIFO 10" {
            eprintln!("SKIPPED: needs CAP_SYS_NICE: {priority}");
            return;
        }
        let ordinary = std::thread::spawn(|| {
            weir_sys::pin_to(0).unwrap();
            let (start, mut last, mut turns) = (weir_sys::now(), weir_sys::now(), 0);
            while last.since(start) < Duration::from_millis(500) {
                let now = weir_sys::now();
                turns += u32::from(now.since(last) > Duration::from_micros(500));
                last = now;
            }
            turns
        });
        let turns = ordinary.join().unwrap();
        let last = worker.stop().unwrap();
        in_time!(last.cpu_ns > last.uptime_ns / 4, "the worker spins: {last:?}");
        in_time!(turns > 25, "an ordinary thread had {turns} turns in 0.5 s");
    });
}

//! Room for everybody: a flood of one class takes no room from another.

use weir_conf::{Diagnostic, judge, read};
use weir_core::packet::{Family, FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, WireConfig};
use weir_core::queue::DropReason;
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};

/// 1 Mbit/s of small packets of the guaranteed class, and ten times the link of the default class, for
/// 0.2 s. Answers the packets of the guaranteed class, how many of them were lost, and how
/// many of the default class the full table cost.
fn flood(text: &str, change: impl FnOnce(&mut PortPlan)) -> (u64, u64, u64) {
    let registry = Registry::builtin();
    let outcome = read("test.altq", text, &registry);
    let plan = outcome.plan.unwrap_or_else(|| panic!("{:?}", outcome.diagnostics));
    let view = plan.interface("em0").expect("an interface em0");
    let link = view.link(1_514);
    let mut plan = view.build(&registry, link).expect("it builds").port_plan(link);
    change(&mut plan);
    let gold = plan.tree.leaf("gold").expect("a class gold");
    let mut port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
    let (mut came, mut lost, mut nobuf) = (0, 0, 0);
    for step in 0..2_000u64 {
        let now = Instant::ZERO + Duration::from_micros(100 * step);
        let mut hear = |event: Event<'_>| match event.kind {
            EventKind::Dropped(_) if event.meta.leaf == gold => lost += 1,
            EventKind::Dropped(DropReason::Nobuf) => nobuf += 1,
            _ => {}
        };
        let key = |src_port| Key { family: Family::V4, protocol: 17, src_port, ..Key::default() };
        // 60 bytes and 24 of overhead every 0.7 ms are 1 Mbit/s; 150 such packets in 0.1 ms are 1 Gbit/s.
        for flow in 0..150 {
            port.receive(now, 60, FrameRef(0), &key(1_000 + flow), &mut hear);
        }
        if step % 7 == 0 {
            came += 1;
            port.receive(now, 60, FrameRef(0), &key(1), &mut hear);
            assert!(port.check().is_ok());
        }
        port.advance(now, &mut hear);
    }
    (came, lost, nobuf)
}

const GOLD: &str = "class hfsc em0 gold root grate 10M\nfilter em0 gold 0 0 0 1 17\n";

#[test]
fn a_flood_of_the_default_class_costs_a_guaranteed_class_nothing() {
    for rest in [
        "class hfsc em0 rest root pshare 50 default fqcodel\n",
        "class hfsc em0 rest root pshare 50 default qlimit 5000\n",
        "class hfsc em0 rest root pshare 50 default qlimit 1000000\n",
        "class hfsc em0 rest root pshare 50 default wfq qsize 64M\n",
    ] {
        let text = format!("interface em0 bandwidth 100M hfsc\n{GOLD}{rest}");
        let (came, lost, _) = flood(&text, |_| {});
        assert_eq!((came, lost), (286, 0), "{rest}");
        // A table that is too small for the limits: the class beyond its part pays.
        let (_, lost, nobuf) = flood(&text, |plan| plan.capacity = Some(1_000));
        assert!(lost == 0 && nobuf > 1_000, "{rest}: {lost} lost, {nobuf} refused for want of room");
        // Reversed: the same table without parts.
        let (_, lost, _) = flood(&text, |plan| {
            plan.capacity = Some(1_000);
            plan.tree.leaves.iter_mut().for_each(|leaf| leaf.limit = 0);
        });
        assert!(lost > 100, "{rest}: reversed, {lost} lost");
    }
}

fn said(text: &str) -> Vec<Diagnostic> {
    let registry = Registry::builtin();
    let plan = read("test.altq", text, &registry).plan.expect("it reads");
    assert_eq!(judge(&plan, &registry), []);
    plan.check(&registry, 1_514, &|| 0).into_iter().filter_map(Result::err).collect()
}

/// `weir check` refuses what does not fit, and its mend fits.
#[test]
fn a_capacity_that_is_too_small_is_refused() {
    let text = |words: &str| {
        format!(
            "interface em0 bandwidth 100M {words} hfsc\n{GOLD}class hfsc em0 rest root pshare 50 default fqcodel\n"
        )
    };
    let refused = said(&text("capacity 4096"));
    assert_eq!(refused[0].message, "the queues of `em0` may hold 10358 packets together");
    assert!(refused[0].help.contains("write `capacity 10358`"), "{}", refused[0].help);
    assert_eq!(said(&text("capacity 10358")), []);
    let huge = text("capacity 1048576").replace("fqcodel", "qlimit 1000000");
    assert_eq!(said(&huge), []);
    let huge = huge.replace("class hfsc em0 gold root", "class hfsc em0 gold root qlimit 900000");
    assert!(said(&huge)[0].help.ends_with("write smaller `qlimit`s"), "{}", said(&huge)[0].help);
}

/// The room of a file is that of the port, and it is said what it takes.
#[test]
fn the_room_follows_the_queues() {
    let registry = Registry::builtin();
    let room = |text: &str| {
        let plan = read("test.altq", text, &registry).plan.expect("it reads");
        let view = plan.interface("em0").expect("an interface em0");
        let link = view.link(1_514);
        let room = view.check(&registry, link).expect("it checks").room;
        let built = view.build(&registry, link).expect("it builds");
        assert_eq!(built.room, room);
        let port = Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link));
        assert_eq!(port.capacity(), room.packets);
        room
    };
    let usual = room("interface em0 bandwidth 10M fifoq\n");
    assert_eq!(usual.to_string(), "room for 4096 packets: 263 kB, and up to 8389 kB of frames live");
    assert_eq!(room("interface em0 bandwidth 10M fqcodel\n").packets, 10_240 + 2 + 64);
    assert_eq!(room("interface em0 bandwidth 10M capacity 500 fifoq\n").packets, 500);
    // Each class of JoBS may have the whole shared buffer.
    let jobs = "interface em0 bandwidth 10M jobs qlimit 3000
class jobs em0 a NULL priority 0
class jobs em0 b NULL priority 1 default\n";
    assert_eq!(room(jobs).wanted, 2 * 3_002 + 64);
}

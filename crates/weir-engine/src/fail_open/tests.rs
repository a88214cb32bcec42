use super::*;
use std::io::{IoSlice, IoSliceMut};
use weir_sys::packet::{OFFLOAD_BYTES, PacketSocket};

/// A box with the interfaces `left` and `right`, and sockets on the hosts behind them.
pub(crate) fn on_a_box(test: impl FnOnce([String; 2], PacketSocket, PacketSocket) + Send + 'static) {
    if !weir_sys::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let ip = |arguments: &str| {
        let done = std::process::Command::new("ip").args(arguments.split(' ')).output().unwrap();
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let run = move || {
        weir_sys::enter_new_network().unwrap();
        for side in ["left", "right"] {
            ip(&format!("link add name {side} type veth peer name host-{side}"));
            for name in [side.to_owned(), format!("host-{side}")] {
                // No packets of the kernel's own: only what the test sends.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
                ip(&format!("link set {name} up"));
            }
        }
        let host = |side: &str| PacketSocket::open(&format!("host-{side}"), 0).unwrap();
        test(["left".into(), "right".into()], host("left"), host("right"));
    };
    std::thread::spawn(run).join().unwrap();
}

/// True if a frame of the one host reaches the other, be it for that one or for all.
fn passes(from: &mut PacketSocket, to: &mut PacketSocket) -> bool {
    let [one, all] = [2, 0xff].map(|address| passes_for(address, from, to));
    assert_eq!(one, all);
    one
}

pub(crate) fn passes_for(address: u8, from: &mut PacketSocket, to: &mut PacketSocket) -> bool {
    let mut frame = vec![0u8; OFFLOAD_BYTES + 60];
    frame[OFFLOAD_BYTES..OFFLOAD_BYTES + 6].fill(address);
    frame[OFFLOAD_BYTES + 12..OFFLOAD_BYTES + 14].copy_from_slice(&[0x88, 0xb5]);
    let Ok(1) = from.send(&[[IoSlice::new(&frame), IoSlice::new(&[])]]) else { panic!("not sent") };
    receives(to)
}

/// True if a frame comes.
pub(crate) fn receives(to: &mut PacketSocket) -> bool {
    let mut room = [0u8; 200];
    let mut receive =
        || to.receive(&mut [[IoSliceMut::new(&mut room), IoSliceMut::new(&mut [])]]).is_ok_and(|n| n > 0);
    // In this namespace a frame arrives before its sender goes on, or never.
    let until = weir_sys::now() + Duration::from_millis(30);
    while weir_sys::now() < until {
        if receive() {
            return true;
        }
    }
    false
}

type Attach = fn(&Kernel) -> io::Result<()>;

#[test]
fn the_path_carries_both_ways_except_while_the_heart_beats() {
    let ways: [(&str, Attach); 2] =
        [("a TCX program", Kernel::attach_links), ("this kernel has no TCX", Kernel::attach_in_path)];
    for (means, attach) in ways {
        on_a_box(move |names, mut left, mut right| {
            let open = match begin(&names, false).unwrap() {
                Ok(open) => open,
                Err(why) => return eprintln!("SKIPPED: {why}"),
            };
            // The kernel needs a while to see that a link is up.
            let start = weir_sys::now();
            while !passes_for(2, &mut left, &mut right) {
                assert!(weir_sys::now().since(start) < Duration::from_secs(10), "no frame passes");
            }
            if let Err(e) = attach(&open.kernel) {
                return eprintln!("SKIPPED: {means}: {e}");
            }
            assert!(state(&Ok(open)).how.contains(means));
            let Ok(mut open) = begin(&names, false).unwrap() else { panic!("it worked a moment ago") };
            assert!(!open.kernel.is_new(), "taken over");
            attach(&open.kernel).unwrap();
            open.set_prompt(true);
            assert!(passes(&mut left, &mut right) && passes(&mut right, &mut left), "no beat yet");
            let beat = weir_sys::now();
            // Long enough for the machine to be busy elsewhere.
            open.hearts().iter().for_each(|heart| heart.set_limit(Duration::from_secs(100)));
            open.beat(beat);
            assert!(!passes(&mut left, &mut right) && !passes(&mut right, &mut left), "hidden: {means}");
            open.bypass(true);
            open.set_prompt(true);
            assert!(passes(&mut left, &mut right) && passes(&mut right, &mut left), "bypassed");
            open.bypass(false);
            open.beat(beat);
            weir_sys::sleep_until(beat + LIMIT_PROMPT + Duration::from_millis(1));
            assert!(passes(&mut left, &mut right) && passes(&mut right, &mut left), "silent too long");
            drop(open);
            assert!(passes(&mut left, &mut right), "the path outlives the run");
            assert_eq!(peer("left").unwrap().as_deref(), Some("right"));
            assert!(begin(&names, true).unwrap().is_err());
            assert!(!passes(&mut left, &mut right), "`fail closed` leaves no path");
        });
    }
}

/// Each of two workers is alive by itself: the kernel carries the direction of the one that is silent.
// Claim L51.
#[test]
fn the_kernel_carries_the_direction_whose_worker_is_silent() {
    let ways: [Attach; 2] = [Kernel::attach_links, Kernel::attach_in_path];
    for attach in ways {
        on_a_box(move |names, mut left, mut right| {
            let Ok(open) = begin(&names, false).unwrap() else { return eprintln!("SKIPPED: no bpf(2)") };
            let start = weir_sys::now();
            while !passes_for(2, &mut left, &mut right) || !passes_for(2, &mut right, &mut left) {
                assert!(weir_sys::now().since(start) < Duration::from_secs(10), "no frame passes");
            }
            if let Err(e) = attach(&open.kernel) {
                return eprintln!("SKIPPED: {e}");
            }
            let [mut forth, mut back] = open.halves();
            for worker in [&forth, &back] {
                worker.hearts()[0].set_limit(Duration::from_secs(100));
            }
            let mut carried = || (passes(&mut left, &mut right), passes(&mut right, &mut left));
            forth.beat(weir_sys::now());
            assert_eq!(carried(), (false, true));
            back.beat(weir_sys::now());
            assert_eq!(carried(), (false, false));
            forth.bypass(true);
            assert_eq!(carried(), (true, false));
            back.bypass(true);
            assert_eq!(carried(), (true, true));
        });
    }
}

/// More than two workers run both directions: the kernel carries both as soon as one of them is silent or bypassed.
// Claim L97.
#[test]
fn the_kernel_carries_all_if_one_of_several_workers_is_silent() {
    on_a_box(move |names, mut left, mut right| {
        let Ok(open) = begin(&names, false).unwrap() else { return eprintln!("SKIPPED: no bpf(2)") };
        let start = weir_sys::now();
        while !passes_for(2, &mut left, &mut right) || !passes_for(2, &mut right, &mut left) {
            assert!(weir_sys::now().since(start) < Duration::from_secs(10), "no frame passes");
        }
        open.kernel.attach().unwrap();
        let mut all = open.parts(3);
        all[0].hearts().iter().for_each(|heart| heart.set_limit(Duration::from_secs(100)));
        let mut carried = || (passes(&mut left, &mut right), passes(&mut right, &mut left));
        assert_eq!(carried(), (true, true), "no beat yet");
        all[1].beat(weir_sys::now());
        assert_eq!(carried(), (false, false), "who has not begun counts as alive for one limit");
        let silent_since = weir_sys::now() - Duration::from_secs(101);
        all[2].beat(silent_since);
        all[0].beat(weir_sys::now());
        all[1].beat(weir_sys::now());
        assert_eq!(carried(), (true, true));
        all[2].beat(weir_sys::now());
        assert_eq!(carried(), (false, false));
        all[1].bypass(true);
        all[0].beat(weir_sys::now());
        assert_eq!(carried(), (true, true), "one is bypassed");
        all[1].bypass(false);
        all[1].beat(weir_sys::now());
        assert_eq!(carried(), (false, false));
        // One limit for the heart that they share, whatever the system granted to each.
        all.iter_mut().for_each(|one| one.set_prompt(true));
        assert!(all.iter().all(|one| one.limit == LIMIT));
    });
}

/// A path leads to the other interface of the bridge of now. One on an interface that was renamed since, or
/// that had a part in the bridge before, goes.
#[test]
fn no_path_of_an_earlier_bridge_stays() {
    on_a_box(|_, _, _| {
        let ip = |line: &str| {
            let done = std::process::Command::new("ip").args(line.split(' ')).status().unwrap();
            assert!(done.success(), "ip {line}");
        };
        ip("link add name third type veth peer name host-third");
        let pair = |left: &str, right: &str| [left.to_owned(), right.to_owned()];
        let Ok(_) = begin(&pair("left", "right"), false).unwrap() else {
            return eprintln!("SKIPPED: no bpf(2)");
        };
        assert!(begin(&pair("left", "third"), false).unwrap().is_ok());
        assert_eq!(peer("right").unwrap(), None, "the old peer sends nothing to left any more");
        assert_eq!(peer("third").unwrap().as_deref(), Some("left"));
        ip("link set third down");
        ip("link set third name other");
        assert_eq!(leading_to(&pair("left", "third")).unwrap(), ["other"]);
        assert!(begin(&pair("left", "third"), true).unwrap().is_err());
        assert_eq!((peer("left").unwrap(), peer("other").unwrap()), (None, None));
    });
}

#[test]
fn a_place_that_a_stranger_took_is_not_taken_from_him() {
    on_a_box(|names, _, _| {
        let index = weir_sys::interface_index("right").unwrap();
        let program = Assembler::default().set(0, NEXT).exit().into_program(Kind::Classifier, "strange");
        let Ok(program) = program else { return eprintln!("SKIPPED: needs bpf(2)") };
        tc::make_clsact(index).unwrap();
        tc::put_filter(index, PATH, "strange", program.as_fd()).unwrap();
        let why = begin(&names, false).unwrap().err().unwrap();
        assert!(why.contains("right") && why.contains("tc filter del dev right ingress pref 65000"), "{why}");
        assert_eq!(tc::filters(index, Side::Ingress).unwrap()[0].name, "strange");
        assert!(tc::filters(weir_sys::interface_index("left").unwrap(), Side::Ingress).unwrap().is_empty());
    });
}

/// What the sockets took in during one limit after the last beat is stale after a second one.
#[test]
fn only_what_is_older_than_the_limit_is_stale() {
    on_a_box(|names, _, _| {
        let Ok(mut open) = begin(&names, false).unwrap() else { return eprintln!("SKIPPED: no bpf(2)") };
        let at = |ms: u64| Instant::from_millis(10_000 + ms);
        assert!(!open.is_stale(at(0)), "the first step is no lapse");
        for (silent, stale, lapses) in [(99, false, 0), (101, false, 1), (199, false, 2), (201, true, 3)] {
            open.beat(at(0));
            assert_eq!((open.is_stale(at(silent)), open.lapses), (stale, lapses), "{silent} ms");
        }
        open.bypass(true);
        open.beat(at(600));
        assert!(!open.is_stale(at(10_000)), "no worker is missed while it is bypassed");
    });
}

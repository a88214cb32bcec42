use super::*;
use crate::control::Request;
use crate::line::{Inbox, Line};

fn device(index: u32, name: &str) -> Link {
    Link { index, name: name.into(), mtu: 1500, up: true, carrier: true, ..Link::default() }
}

/// What is said when the devices are these.
fn said(side: &mut Side, devices: &[Link]) -> Vec<String> {
    let devices = devices.iter().map(|link| (link.index, link.clone())).collect();
    side.look(&devices).iter().map(ToString::to_string).collect()
}

#[test]
fn each_thing_that_happens_is_said_and_counted_once() {
    let mut side = Side::new("eth0".into(), 3);
    let well = device(3, "eth0");
    let neighbour = device(4, "eth1");
    assert!(said(&mut side, &[well.clone(), neighbour.clone()]).is_empty());
    let mut steps = vec![
        (Link { carrier: false, ..well.clone() }, "has no carrier"),
        (Link { up: false, carrier: false, ..well.clone() }, "is down"),
        (well.clone(), "is up"),
        (Link { mtu: 9000, ..well.clone() }, "has an MTU of 9000 bytes"),
        (well.clone(), "has an MTU of 1500 bytes"),
        (device(3, "old0"), "is now called old0, and stays bridged"),
        (well.clone(), "is now called eth0, and stays bridged"),
    ];
    for (link, words) in steps.drain(..) {
        assert_eq!(said(&mut side, &[neighbour.clone(), link.clone()]), [words]);
        assert!(said(&mut side, &[neighbour.clone(), link]).is_empty(), "again");
    }
    assert!(said(&mut side, std::slice::from_ref(&neighbour))[0].starts_with("is gone"));
    assert_eq!(side.attached, None);
    // Its number does not bring it back, its name does.
    assert!(said(&mut side, &[device(3, "other")]).is_empty());
    let back = Link { mtu: 1400, ..device(9, "eth0") };
    let words = ["is back as device 9, and bridged again", "has an MTU of 1400 bytes", "is up"];
    assert_eq!(said(&mut side, &[back]), words);
    assert_eq!((side.attached, side.state.mtu, side.state.state.as_str()), (Some(9), 1400, "up"));
    let count = |name: &str| side.state.changes.get(name).copied();
    assert_eq!(["up", "mtu", "renamed", "gone", "back", "down"].map(count), [2, 3, 2, 1, 1, 1].map(Some));
}

#[test]
fn what_happened_before_the_first_look_is_not_missed() {
    let mut side = Side::new("eth0".into(), 3);
    let words = said(&mut side, &[device(7, "eth0")]);
    assert_eq!(words, ["is back as device 7, and bridged again"]);
    let mut side = Side::new("eth0".into(), 3);
    assert!(said(&mut side, &[])[0].starts_with("is gone"));
    // A name of the file that is a second one of the device's.
    let mut side = Side::new("uplink".into(), 3);
    let named = Link { altnames: vec!["uplink".into()], ..device(3, "eth0") };
    assert!(said(&mut side, std::slice::from_ref(&named)).is_empty());
    said(&mut side, &[]);
    assert_eq!(said(&mut side, &[Link { index: 5, ..named }]).len(), 2);
}

/// The name in the file decides: another device that gets it is bridged instead of the one that had it.
#[test]
fn another_device_of_the_name_takes_the_place() {
    let mut side = Side::new("eth0".into(), 3);
    said(&mut side, &[device(3, "eth0")]);
    said(&mut side, &[device(3, "old0")]);
    let words = said(&mut side, &[device(3, "old0"), device(5, "eth0")]);
    assert_eq!(words, ["is back as device 5, and bridged again"]);
    assert!(said(&mut side, &[device(3, "old1"), device(5, "eth0")]).is_empty());
}

/// A bridge whose left side, `lo` of a network namespace of its own, is back, and what its one worker is asked.
fn back(test: impl FnOnce(Run, u32, Inbox) + Send + 'static) {
    if !weir_sys::is_root() {
        eprintln!("SKIPPED: needs root for a network namespace");
        return;
    }
    let test = || {
        weir_sys::enter_new_network().unwrap();
        let device = weir_sys::interface_index("lo").unwrap();
        let (line, inbox) = Line::new(vec![0, 1]).unwrap();
        let attach: Attach = Box::new(move |_, name| {
            let claim = Some(Claim::on(name, device)?);
            let socket = weir_io::PacketSocket::open(name, 0)?;
            Ok(Attached { claim, sockets: vec![Socket::Packet(socket)] })
        });
        let run = Run {
            news: LinkWatch::open().unwrap(),
            devices: BTreeMap::new(),
            sides: [Side::new("lo".into(), device), Side::new("none".into(), device + 1)],
            control: Control::of(vec![line]),
            claims: Claims::default(),
            attach,
            missing: [Some(Missing { device, said: false }), None],
            given: [None, None],
            seen: weir_sys::now(),
            changed: false,
        };
        test(run, device, inbox);
    };
    std::thread::spawn(test).join().unwrap();
}

/// An interface is back, and its worker has ended: the claim goes with the attempt, so that the next one is
/// not refused because of it.
#[test]
fn an_attempt_that_fails_leaves_no_claim() {
    back(|mut run, device, inbox| {
        drop(inbox);
        run.attach(0);
        assert!(run.missing[0].is_some() && lock(&run.claims)[0].is_none());
        drop(Claim::on("lo", device).unwrap());
    });
}

/// A worker that hangs gets one socket, however often it is tried, and the interface stays claimed for it.
#[test]
fn a_worker_that_hangs_gets_one_socket() {
    back(|mut run, device, inbox| {
        (0..3).for_each(|_| run.attach(0));
        // It goes, and is back as another device.
        run.missing[0] = Some(Missing { device: device + 7, said: false });
        (0..3).for_each(|_| run.attach(0));
        assert!(Claim::on("lo", device).is_err());
        let mut asked: Vec<Request> = inbox.requests.try_iter().collect();
        assert!(lock(&run.claims)[0].is_none());
        let Some(Request::Exchange { side: 0, done, .. }) = asked.pop() else { panic!("no socket") };
        assert!(asked.is_empty(), "{} sockets more", asked.len());
        done.send(()).unwrap();
        // It has taken that of the device before: another one is opened.
        run.attach(0);
        assert!(run.missing[0].is_some());
        run.missing[0] = Some(Missing { device, said: false });
        run.attach(0);
        let Ok(Request::Exchange { side: 0, done, .. }) = inbox.requests.try_recv() else { panic!("none") };
        done.send(()).unwrap();
        run.attach(0);
        assert!(run.missing[0].is_none() && lock(&run.claims)[0].is_some());
    });
}

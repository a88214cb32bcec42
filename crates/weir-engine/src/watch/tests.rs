use super::*;

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

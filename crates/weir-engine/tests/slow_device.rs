//! A device that is slower than the `bandwidth` of its port.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod frames;

use frames::{frame, number};
use weir_core::port::{Port, PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::Instant;
use weir_engine::{Bridge, Delay, Direction};
use weir_io::PoolSize;
use weir_io::memory::Memory;

const SIZE: PoolSize = PoolSize { frames: 2048, tails: 0 };
/// TOS of the premium packets.
const EF: u8 = 46 << 2;

/// The longest delay of premium packets in milliseconds, and packets of the rest that left, in 2 s.
/// The device takes a frame of 1,250 bytes each millisecond, 10 Mbit/s; 20 Mbit/s of the rest and 2 of
/// premium come.
fn longest_delay(conf: &str) -> (u64, usize) {
    let registry = Registry::builtin();
    let plan = weir_conf::read("altq.conf", conf, &registry).into_result().unwrap();
    let view = plan.interface("").unwrap();
    let link = view.link(1514);
    let plan = view.build(&registry, link).unwrap().port_plan(link);
    let port = Port::new(PortConfig::new(link, WireConfig::Open), plan);
    let forth = Direction::new(0, Some(port), SIZE, Delay::default());
    let back = Direction::new(1, None, SIZE, Delay::default());
    let mut bridge = Bridge::new(Memory::new(), Memory::new(), [forth, back]);
    bridge.interfaces().1.room = Some(0);
    let (mut longest, mut rest) = (0, 0);
    for ms in 0..2_000u64 {
        *bridge.interfaces().1.room.as_mut().unwrap() += 1;
        let mut come = vec![frame(ms as u32, 1250, 0), frame(ms as u32, 1250, 0)];
        if ms % 5 == 0 {
            come.push(frame(ms as u32, 1250, EF));
        }
        bridge.interfaces().0.arriving.extend(come);
        for part in 0..10 {
            bridge.step(Instant::from_micros(ms * 1_000 + part * 100));
        }
        for sent in std::mem::take(&mut bridge.interfaces().1.sent) {
            match sent[15] {
                EF => longest = longest.max(ms - u64::from(number(&sent))),
                _ => rest += 1,
            }
        }
    }
    bridge.directions()[0].port().unwrap().check().unwrap();
    (longest, rest)
}

/// What the device does not take waits in its class: premium packets wait for what one bucket lets out, and
/// the rest has what is left. Reversed: in the class of the rest they wait for its queue.
// Claim L49.
#[test]
fn classes_count_above_a_device_that_is_slower_than_its_bandwidth() {
    let conf = |wire: &str, class: &str| {
        format!(
            "interface e0 {wire} priq\nclass priq e0 premium NULL priority 2\n\
             class priq e0 rest NULL priority 1 default\nfilter e0 {class} 0 0 0 0 17 dscp EF\n"
        )
    };
    for wire in ["bandwidth 20M overhead 0", "bandwidth 40M overhead 0"] {
        let (premium, rest) = longest_delay(&conf(wire, "premium"));
        assert!(premium <= 5 && rest >= 1_590, "{wire}: {premium} ms, {rest} of the rest");
        let (reversed, _) = longest_delay(&conf(wire, "rest"));
        assert!(reversed > 30, "{wire}: {reversed} ms");
    }
}

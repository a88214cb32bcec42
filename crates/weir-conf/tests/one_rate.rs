//! A rate means the same wherever it stands: bytes on the wire, link overhead included.

use weir_core::packet::{Family, FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, WireConfig};
use weir_core::sched::Registry;
use weir_core::units::{Duration, Instant};

const OVERHEAD: u32 = 24;
const RUN_NS: u64 = 8_000_000_000;
/// Flow by flow, the length of its packets. Flow n comes from port n + 1.
const LENGTHS: [u32; 3] = [200, 1_500, 700];

/// What became of each flow's packets.
#[derive(Default)]
struct Seen {
    inside: [u64; 3],
    packets: [u64; 3],
}

impl Seen {
    fn hear(&mut self, event: Event<'_>) {
        let flow = event.meta.src_port as usize - 1;
        self.inside[flow] -= u64::from(event.kind != EventKind::Taken);
        self.packets[flow] += u64::from(event.kind == EventKind::Sent);
    }
    /// Mbit/s of each flow, when a packet counts `more` bytes than its length.
    fn rates(&self, more: u32) -> [f64; 3] {
        [0, 1, 2].map(|n| (self.packets[n] * u64::from(LENGTHS[n] + more)) as f64 * 8e3 / RUN_NS as f64)
    }
}

/// Keeps packets of every flow waiting before the interface `em0` of a file.
fn run(text: &str) -> Seen {
    let registry = Registry::builtin();
    let outcome = weir_conf::read("test.altq", text, &registry);
    let plan = outcome.plan.unwrap_or_else(|| panic!("{:?}", outcome.diagnostics));
    let view = plan.interface("em0").expect("an interface em0");
    let link = view.link(1_514);
    assert_eq!(link.overhead, OVERHEAD, "the default");
    let built = view.build(&registry, link).expect("it builds");
    let mut port = Port::new(PortConfig::new(link, WireConfig::Open), built.port_plan(link));
    let (mut now, mut seen) = (Instant::ZERO, Seen::default());
    while now.as_nanos() < RUN_NS {
        port.advance(now, &mut |event| seen.hear(event));
        for (flow, len) in LENGTHS.into_iter().enumerate() {
            for _ in seen.inside[flow]..25 {
                let src_port = flow as u16 + 1;
                let key = Key { family: Family::V4, protocol: 17, src_port, ..Key::default() };
                seen.inside[flow] += 1;
                port.receive(now, len, FrameRef(0), &key, &mut |event| seen.hear(event));
            }
        }
        now = port.next_wake_up().min(now + Duration::from_millis(1));
    }
    seen
}

const FILTERS: &str = "filter em0 a 0 0 0 1 17\nfilter em0 b 0 0 0 2 17\n";

#[test]
fn every_rate_counts_what_the_link_counts() {
    // The control class that CBQ adds takes 2 % of the default class, and lends them to all.
    let lent = 10.0 / 9.8;
    let files = [
        (
            1.0,
            "interface em0 bandwidth 10M hfsc
class hfsc em0 a root grate 3M
class hfsc em0 b root grate 4M
class hfsc em0 c root pshare 50 default\n",
        ),
        (
            1.0,
            "interface em0 bandwidth 10M hfsc
class hfsc em0 a root [ls 3M 0 3M] [ul 3M 0 3M]
class hfsc em0 b root [ls 4M 0 4M] [ul 4M 0 4M]
class hfsc em0 c root pshare 10 default ulimit 1M\n",
        ),
        (
            1.0,
            "interface em0 bandwidth 10M hfsc
class hfsc em0 a root pshare 30
class hfsc em0 b root pshare 40
class hfsc em0 c root pshare 30 default\n",
        ),
        (
            1.0,
            "interface em0 bandwidth 10M cbq
class cbq em0 root NULL pbandwidth 100
class cbq em0 a root pbandwidth 30 packetsize 200
class cbq em0 b root pbandwidth 40
class cbq em0 c root pbandwidth 10 packetsize 700 default\n",
        ),
        (
            lent,
            "interface em0 bandwidth 10M cbq link-sharing formal
class cbq em0 root NULL pbandwidth 100
class cbq em0 a root borrow pbandwidth 30
class cbq em0 b root borrow pbandwidth 40
class cbq em0 c root borrow pbandwidth 30 default\n",
        ),
        (
            1.0,
            "interface em0 bandwidth 10M jobs
class jobs em0 a NULL priority 0 arc 3M
class jobs em0 b NULL priority 1 arc 4M
class jobs em0 c NULL priority 2 arc 3M default\n",
        ),
        (
            1.0,
            "interface em0
conditioner em0 a <tbmeter 3M 4K <pass><drop>>
conditioner em0 b <tbmeter 4M 4K <pass><drop>>\n",
        ),
        (
            1.0,
            "interface em0
conditioner em0 a <srtcm 3M 4K 0 <pass><drop><drop>>
conditioner em0 b <trtcm 4M 4K 5M 4K <pass><drop><drop>>\n",
        ),
    ];
    for (more, file) in files {
        let seen = run(&format!("{file}{FILTERS}"));
        let (wire, frames) = (seen.rates(OVERHEAD), seen.rates(0));
        assert!((wire[0] / 3.0 / more - 1.0).abs() < 0.005, "{wire:?}: {file}");
        assert!((wire[1] / 4.0 / more - 1.0).abs() < 0.005, "{wire:?}: {file}");
        // Reversed: counted in frames the same numbers are other rates.
        assert!((frames[0] / 3.0 / more - 1.0).abs() > 0.05, "{frames:?}: {file}");
    }
}

/// The interface itself.
#[test]
fn the_interface_counts_so_too() {
    let seen = run("interface em0 bandwidth 10M fifoq qlimit 1000\n");
    let all: f64 = seen.rates(OVERHEAD).iter().sum();
    assert!((all / 10.0 - 1.0).abs() < 0.005, "{all}");
}

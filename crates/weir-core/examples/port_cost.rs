//! What a port costs per packet, from headers to the last bit, in instructions:
//! `valgrind --tool=callgrind --toggle-collect='*run_packets*' port_cost [link|bucket|open] PACKETS`.
use weir_core::classify::{Classifier, Field, Filter};
use weir_core::packet::{Family, FrameRef, Key};
use weir_core::port::{Event, EventKind, Port, PortConfig, PortPlan, Refill, WireConfig};
use weir_core::queue::Link;
use weir_core::sched::{Node, Registry};
use weir_core::units::{Instant, Rate};

#[derive(Default)]
struct Host {
    left_bytes: u64,
    last_ns: u64,
    dropped: u64,
    spare: Vec<u32>,
}
impl Host {
    fn hear(&mut self, event: Event<'_>) {
        let Event { at, meta, kind } = event;
        match kind {
            EventKind::Taken => self.last_ns = at.as_nanos(),
            EventKind::Sent => {
                self.left_bytes += u64::from(meta.len);
                self.last_ns = at.as_nanos();
                self.spare.push(meta.frame.0);
            }
            EventKind::Dropped(_) => {
                self.dropped += 1;
                self.spare.push(meta.frame.0);
            }
        }
    }
}

#[inline(never)]
fn run_packets(port: &mut Port, host: &mut Host, keys: &[Key], packets: u32) {
    for n in 0..packets {
        let now = Instant::from_nanos(u64::from(n) * 1_000);
        port.advance(now, &mut |event| host.hear(event));
        let frame = FrameRef(host.spare.pop().unwrap_or(0));
        let key = &keys[n as usize % keys.len()];
        port.receive(now, 1_000, frame, key, &mut |event| host.hear(event));
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let wire = match args.next().as_deref() {
        Some("bucket") => WireConfig::Regulator { depth_bytes: 10_000 },
        Some("open") => WireConfig::Open,
        _ => WireConfig::Link { ring: 4, refill: Refill::Packet },
    };
    let packets = args.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let link = Link::new(Rate::from_bps(7_900_000_000), 24, 1_514);
    let node = Node { discipline: "fifoq".into(), ..Node::default() };
    let tree = Registry::builtin().build(&node, link).expect("fifoq needs no parameter");
    let rule = Filter::new(Family::V4, 0, 0).exactly(Field::Protocol, 17);
    let keys: Vec<Key> = (0..64)
        .map(|n| Key {
            src: n,
            dst: 9,
            family: Family::V4,
            protocol: 17,
            src_port: n as u16,
            ..Key::default()
        })
        .collect();
    let mut port = Port::new(PortConfig::new(link, wire), PortPlan::new(tree, Classifier::compile([rule])));
    let mut host = Host { spare: (0..4096).collect(), ..Host::default() };
    run_packets(&mut port, &mut host, &keys, packets);
    println!(
        "{} bytes left, the last at {} ns, {} packets dropped",
        host.left_bytes, host.last_ns, host.dropped
    );
}

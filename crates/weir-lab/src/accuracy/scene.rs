//! What is measured: link, traffic, and how each of the two in the box is told.

use super::node::Stand;
use crate::bed::SIDES;
use crate::flow::Traffic;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_core::queue::Link;
use weir_core::units::{Duration, Rate};

/// Rates of the link unless others are asked for, bit/s.
pub const RATES: [u64; 5] = [64_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

/// Ports of the TCP streams, of paced UDP, of premium packets, and the first of the flood.
pub(super) const STREAM: u16 = 5001;
const PACED: u16 = 5002;
pub(super) const PREMIUM: u16 = 5003;
const FLOOD: u16 = 6000;
/// A full-size frame, layer-2 header included.
pub(super) const FULL_BYTES: u32 = 1514;
/// Parts of the link that the two classes have, percent.
const SHARES: [u64; 2] = [60, 40];

/// What stands in the box.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stands {
    /// `weir up` with HFSC; with PRIQ where premium is asked for.
    Weir,
    /// `weir up` with CBQ.
    WeirCbq,
    /// `weir up` with one FIFO, which keeps neither shares nor delays: a control for tests.
    WeirFifo,
    /// The kernel's bridge with `tc htb`.
    Htb,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The rates of two classes, and bursts of the whole.
    Shares,
    /// The delay of a class that goes first.
    Premium,
}

/// One cell of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scene {
    /// What stands in the box.
    pub stands: Stands,
    /// What is asked.
    pub what: What,
    /// Rate of the link, bit/s.
    pub rate_bps: u64,
    /// Segmentation and aggregation offloads of all devices.
    pub offloads: bool,
}

/// All scenes of these rates, what stands in the box taking turns. Premium is asked for from 5 to 200
/// Mbit/s. CBQ stands beside HFSC at 10 and 100 Mbit/s.
pub fn scenes(rates: &[u64]) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for what in [What::Shares, What::Premium] {
        for &rate_bps in rates {
            let middle = (5_000_000..=200_000_000).contains(&rate_bps);
            for offloads in [false, true] {
                for stands in [Stands::Weir, Stands::WeirCbq, Stands::Htb] {
                    let cbq = stands == Stands::WeirCbq;
                    let asked = match what {
                        What::Shares => !cbq || middle && !offloads,
                        What::Premium => !cbq && middle,
                    };
                    if asked {
                        scenes.push(Scene { stands, what, rate_bps, offloads });
                    }
                }
            }
        }
    }
    scenes
}

/// A rate as the tables show it.
pub(super) fn rate(bps: u64) -> String {
    weir_text::BitRate::from_bps(bps).to_string()
}

impl std::fmt::Display for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.what == What::Shares { "shares" } else { "premium" };
        let offloads = if self.offloads { "on" } else { "off" };
        write!(f, "{what} at {}, offloads {offloads}, {}", rate(self.rate_bps), self.stands_name())
    }
}

impl Scene {
    /// As the table calls what stands in the box.
    pub fn stands_name(&self) -> &'static str {
        match (self.stands, self.what) {
            (Stands::Htb, _) => "htb",
            (Stands::Weir, What::Shares) => "weir, HFSC",
            (Stands::Weir, What::Premium) => "weir, PRIQ",
            (Stands::WeirCbq, _) => "weir, CBQ",
            (Stands::WeirFifo, _) => "weir, FIFO",
        }
    }
    /// The longest frame that is sent: short ones on a slow link, where a full one lasts 190 ms.
    pub(super) fn frame_bytes(&self) -> u32 {
        if self.rate_bps < 500_000 { 200 } else { FULL_BYTES }
    }
    /// The token bucket: Weir's automatic one, and htb is given the same.
    pub(super) fn bucket_bytes(&self) -> u64 {
        let link = Link::new(Rate::from_bps(self.rate_bps), 0, FULL_BYTES);
        weir_conf::Regulator::new(link.rate, &link, None).depth_bytes
    }
    /// Rates of the two classes, bit/s.
    fn shares(&self) -> [u64; 2] {
        let [stream, paced] = SHARES;
        // A CBQ has a control class of 2 %, from its default class if the file names none.
        let control = if self.stands == Stands::WeirCbq { 2 } else { 0 };
        [stream - control, paced].map(|percent| self.rate_bps * percent / 100)
    }
    /// Packets that each class queues: 100 ms of the link, so that a stream that is late keeps it full.
    fn queue_packets(&self) -> u64 {
        (self.rate_bps / 80 / u64::from(self.frame_bytes())).clamp(20, 2500)
    }
    /// How long traffic runs before anything counts, and how long it counts.
    pub(super) fn warm_up(&self) -> Duration {
        Duration::from_millis(if self.rate_bps < 500_000 { 2_000 } else { 600 })
    }
    pub(super) fn counted(&self) -> Duration {
        match self.what {
            What::Shares => Duration::from_millis(2_500),
            What::Premium => Duration::from_millis(2_000),
        }
    }
    /// Classes whose rates are judged: port, rate, longest packet.
    pub(super) fn classes(&self) -> Vec<(u16, u64, u32)> {
        if self.what == What::Premium {
            return Vec::new();
        }
        let [stream, paced] = self.shares();
        vec![(STREAM, stream, self.frame_bytes()), (PACED, paced, self.frame_bytes())]
    }
    pub(super) fn streams(&self) -> u16 {
        if self.what == What::Premium { 4 } else { 1 }
    }
    /// Payload of a segment: what leaves 66 bytes of headers in a frame.
    pub(super) fn mss_bytes(&self) -> Option<u32> {
        (self.frame_bytes() < FULL_BYTES).then(|| self.frame_bytes() - 54)
    }
    /// Flows of UDP: port, length of frames, bit/s.
    pub(super) fn datagrams(&self) -> Vec<(u16, u32, u64)> {
        if self.what == What::Shares {
            return vec![(PACED, self.frame_bytes(), self.shares()[1] * 5 / 4)];
        }
        // Small frames are dear to make: a tenth of the link, and at most 10 Mbit/s of them.
        let flood = [(64, 10), (300, 20), (900, 50), (FULL_BYTES, 120)];
        let flows = flood.iter().enumerate().map(|(n, &(frame, percent))| {
            (FLOOD + n as u16, frame, (self.rate_bps * percent / 100).min(u64::from(frame) * 160_000))
        });
        flows.chain([(PREMIUM, 200, 500 * 200 * 8)]).collect()
    }
    /// How long a premium packet may be in the box, ns: one full-size packet and 0.3 ms.
    pub(super) fn premium_ns(&self) -> u64 {
        u64::from(FULL_BYTES) * 8 * 1_000_000_000 / self.rate_bps + 300_000
    }

    /// How what stands in the box is told.
    pub(super) fn stand(&self, weir: &Path) -> Stand {
        match self.stands {
            Stands::Htb => Stand::Kernel(self.htb()),
            _ => Stand::Weir { program: weir.to_path_buf(), conf: self.conf() },
        }
    }

    /// The file of `weir up`. It fails closed: nothing passes that it did not shape.
    fn conf(&self) -> String {
        let ([left, right], rate, queue) = (SIDES, self.rate_bps, self.queue_packets());
        let line = format!("interface {right} bandwidth {rate} overhead 0 attach bridge {left} fail closed");
        let [stream, paced] = self.shares();
        match (self.stands, self.what) {
            (Stands::WeirFifo, _) => format!("{line} fifoq qlimit {queue}\n"),
            (Stands::WeirCbq, _) => format!(
                "{line} cbq\n\
                 class cbq {right} root NULL pbandwidth 100\n\
                 class cbq {right} ctl root pbandwidth 2 control\n\
                 class cbq {right} stream root exactbandwidth {stream} qlimit {queue} default\n\
                 class cbq {right} paced root exactbandwidth {paced} qlimit {queue}\n\
                 filter {right} paced 0 {PACED} 0 0 17\n"
            ),
            (_, What::Shares) => format!(
                "{line} hfsc\n\
                 class hfsc {right} stream root pshare {} ulimit {stream} qlimit {queue} default\n\
                 class hfsc {right} paced root pshare {} ulimit {paced} qlimit {queue}\n\
                 filter {right} paced 0 {PACED} 0 0 17\n",
                SHARES[0], SHARES[1]
            ),
            (_, What::Premium) => format!(
                "{line} priq\n\
                 class priq {right} premium NULL priority 1 qlimit {queue}\n\
                 class priq {right} rest NULL priority 0 qlimit {queue} default\n\
                 filter {right} premium 0 {PREMIUM} 0 0 17\n"
            ),
        }
    }

    /// Lines of `tc` for the same.
    fn htb(&self) -> Vec<String> {
        let (dev, rate, queue, bucket) = (SIDES[1], self.rate_bps, self.queue_packets(), self.bucket_bytes());
        // Two packets for a class, where the link's bucket holds more of them.
        let own = if self.frame_bytes() < FULL_BYTES { 2 * u64::from(self.frame_bytes()) } else { bucket };
        let class = |parent: &str, id: &str, bps: u64, ceil: u64, prio: u32| {
            let burst = if parent == "1:" { bucket } else { own };
            format!(
                "class add dev {dev} parent {parent} classid {id} htb rate {bps}bit ceil {ceil}bit \
                 burst {burst}b cburst {burst}b quantum {FULL_BYTES} prio {prio}"
            )
        };
        let leaf = |id: u32| format!("qdisc add dev {dev} parent 1:{id} handle {id}: pfifo limit {queue}");
        let [stream, paced] = self.shares();
        // The first takes what no filter leads to the second.
        let (first, second, port) = match self.what {
            What::Shares => ((stream, stream, 1), (paced, paced, 1), PACED),
            What::Premium => ((rate * 4 / 5, rate, 1), (rate / 5, rate, 0), PREMIUM),
        };
        vec![
            format!("qdisc add dev {dev} root handle 1: htb default 10"),
            class("1:", "1:1", rate, rate, 1),
            class("1:1", "1:10", first.0, first.1, first.2),
            class("1:1", "1:20", second.0, second.1, second.2),
            leaf(10),
            leaf(20),
            format!(
                "filter add dev {dev} parent 1: protocol ip prio 1 u32 match ip protocol 17 0xff \
                 match ip dport {port} 0xffff flowid 1:20"
            ),
        ]
    }
}

/// Frames of `frame_bytes` evenly at `bps`; several together where one would come each 50 us.
pub(super) fn paced(frame_bytes: u32, bps: u64) -> Traffic {
    const HEADERS: u32 = 14 + 20 + 8;
    let one_ns = u64::from(frame_bytes) * 8 * 1_000_000_000 / bps.max(1);
    let burst = 100_000u64.div_ceil(one_ns.max(1)).clamp(1, 64);
    Traffic::Udp {
        payload_bytes: frame_bytes - HEADERS,
        burst: burst as u32,
        period_ns: one_ns * burst,
        on: Vec::new(),
        media: None,
    }
}

//! From the flows of a scenario to senders and receivers in the hosts.

use crate::flow::{ReceiverKind, ReceiverSpec, SenderSpec, Traffic};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_report::FlowKind;
use weir_scenario::FlowCopy;
use weir_scenario::Scenario;
use weir_scenario::lab::LabLayout;
use weir_scenario::media::{Headers, SILENCE_NS, TALK_NS};
use weir_scenario::scenario::{Distribution, Flow};
use weir_text::Size;

/// Headers of a frame up to and with IP's.
pub(crate) fn ip_headers(flow: &Flow) -> u64 {
    if flow.ipv6 { 14 + 40 } else { 14 + 20 }
}
/// Headers of UDP.
pub(crate) const UDP_HEADER: u64 = 8;
/// Headers of TCP without options: the kernel takes those from the segment by itself.
const TCP_HEADER: u64 = 20;
/// From this rate on a sender may fill the kernel's buffers: waking it every 16 KB would cost more
/// than a flow that ends late is worth.
const FAST_BPS: u64 = 200_000_000;

/// Senders by index of their host, receivers likewise.
pub(crate) struct Plan {
    pub(crate) senders: Vec<(usize, SenderSpec)>,
    pub(crate) receivers: Vec<(usize, ReceiverSpec)>,
}

/// When a run takes place, on the machine's monotonic clock.
#[derive(Clone, Copy)]
pub(crate) struct When {
    pub(crate) t0_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) cell_ns: u64,
}

type Sharer<'a> = (FlowCopy, &'a Flow);
/// What makes a receiver: host, port, kind, and whether it is of IPv6.
type Shared = (usize, u16, ReceiverKind, bool);

pub(crate) fn plan(scenario: &Scenario, layout: &LabLayout, seed: u64, when: When) -> Result<Plan, String> {
    let mut plan = Plan { senders: Vec::new(), receivers: Vec::new() };
    // Flows to one port of one host share a receiver.
    let mut shared: BTreeMap<Shared, Vec<Sharer<'_>>> = BTreeMap::new();
    for (index, copy) in scenario.flow_copies().into_iter().enumerate() {
        let flow = &scenario.flows[copy.flow];
        let host = |name: &str| scenario.host(name).ok_or_else(|| format!("`{name}` is not a host"));
        let (from, to) = (host(&flow.from)?, host(&flow.to)?);
        let mut random = Random::new(seed, index as u64);
        let round_trip = 2 * layout.delay(from, to).unwrap_or_default().as_nanos();
        let offset = random.below(round_trip);
        plan.senders.push((from, sender(scenario, flow, &copy, to, offset, &mut random, when)));
        let kind = match flow.kind {
            FlowKind::Tcp => ReceiverKind::Tcp,
            FlowKind::Udp => ReceiverKind::Udp,
            FlowKind::Rtp => ReceiverKind::Rtp,
            FlowKind::Rr => ReceiverKind::Rr,
        };
        shared.entry((to, flow.port, kind, flow.ipv6)).or_default().push((copy, flow));
    }
    for ((host, port, kind, ipv6), flows) in shared {
        // Its flows agree on `dscp` and `delayed_ack`: the layout has seen to that.
        let first = flows[0].1;
        let limit = |flow: &Flow| match kind {
            ReceiverKind::Rr => Some(bytes(flow.response)),
            _ => flow.window.map(|w| w.as_bytes().min(1 << 30) as u32),
        };
        let spec = ReceiverSpec {
            kind,
            port,
            ipv6,
            flows: flows.iter().map(|(copy, flow)| (copy.source_port, limit(flow))).collect(),
            tos: first.dscp.code() << 2,
            t0_ns: when.t0_ns,
            cell_ns: when.cell_ns,
            end_ns: when.end_ns,
            quick_ack: !first.delayed_ack,
        };
        plan.receivers.push((host, spec));
    }
    Ok(plan)
}

/// A size that the scenario may leave out: one byte.
fn bytes(size: Option<Size>) -> u32 {
    size.map_or(1, |s| s.as_bytes().min(65_507) as u32)
}

fn sender(
    scenario: &Scenario,
    flow: &Flow,
    copy: &FlowCopy,
    to: usize,
    offset: u64,
    random: &mut Random,
    when: When,
) -> SenderSpec {
    let active: Vec<(u64, u64)> = flow
        .active(scenario.duration)
        .iter()
        .map(|(a, b)| (when.t0_ns + a.as_nanos() + offset, when.t0_ns + b.as_nanos()))
        .filter(|(a, b)| a < b)
        .collect();
    let ecn_of_datagrams = u8::from(flow.ecn && flow.kind == FlowKind::Udp) * 2;
    let traffic = match flow.kind {
        FlowKind::Tcp => Traffic::Tcp {
            congestion: flow.cc.name().into(),
            mss_bytes: flow
                .size
                .map(|s| s.as_bytes().saturating_sub(ip_headers(flow) + TCP_HEADER).max(88) as u32),
            chunk: flow.chunk.map(|c| (c.as_bytes(), flow.pause.map(|p| p.as_nanos()))),
            unsent_bytes: (slowest(scenario) < FAST_BPS).then_some(1 << 14),
        },
        FlowKind::Udp => {
            let size = flow.size.map_or(60, |s| s.as_bytes());
            let (burst, period_ns) = match (flow.burst, flow.period, flow.rate) {
                (Some(burst), Some(period), _) => (burst, period.as_nanos()),
                (_, _, rate) => pace(size, rate.map_or(0, |r| r.as_bps())),
            };
            let on = on_times(flow, &active, random);
            Traffic::Udp {
                payload_bytes: size.saturating_sub(ip_headers(flow) + UDP_HEADER) as u32,
                burst,
                period_ns,
                on,
                media: None,
            }
        }
        FlowKind::Rtp => {
            let media = flow.codec.media(flow.frames);
            let drawn = random.next();
            Traffic::Udp {
                payload_bytes: flow.media_octets(),
                burst: media.burst,
                period_ns: media.interval_ns,
                on: talk(flow, &active, random),
                media: Some(Headers::new(flow, copy.number, drawn)),
            }
        }
        FlowKind::Rr => Traffic::Rr {
            request_bytes: bytes(flow.request),
            response_bytes: bytes(flow.response),
            pause_ns: flow.pause.map_or(0, |p| p.as_nanos()),
        },
    };
    SenderSpec {
        to: SocketAddr::new(address(scenario, flow, to), flow.port),
        from_port: copy.source_port,
        tos: flow.dscp.code() << 2 | ecn_of_datagrams,
        active,
        end_ns: when.end_ns,
        traffic,
    }
}

fn address(scenario: &Scenario, flow: &Flow, host: usize) -> IpAddr {
    if flow.ipv6 { scenario.address6(host).into() } else { scenario.address(host).into() }
}

fn slowest(scenario: &Scenario) -> u64 {
    scenario.links.iter().map(|l| l.rate.as_bps()).min().unwrap_or(0)
}

/// Packets of `size` bytes at `rate_bps`: how many at once, how often. More than 10,000 wake-ups a
/// second are not to be had, so faster flows send a few packets at a time.
fn pace(size: u64, rate_bps: u64) -> (u32, u64) {
    let packet_ns = (size * 8_000_000_000).checked_div(rate_bps).unwrap_or(1_000_000_000).max(1);
    let burst = 100_000u64.div_ceil(packet_ns).max(1);
    if packet_ns >= 100_000 { (1, packet_ns) } else { (burst as u32, burst * packet_ns) }
}

/// The times on of an on/off flow, from its first active moment to its last.
fn on_times(flow: &Flow, active: &[(u64, u64)], random: &mut Random) -> Vec<(u64, u64)> {
    let (Some(on), Some(off)) = (flow.on, flow.off) else { return Vec::new() };
    periods(active, || (random.time(flow, on.as_nanos()), random.time(flow, off.as_nanos())))
}

/// The times of talk of a media flow that sends no silence.
fn talk(flow: &Flow, active: &[(u64, u64)], random: &mut Random) -> Vec<(u64, u64)> {
    if !flow.suppression {
        return Vec::new();
    }
    periods(active, || (random.exponential(TALK_NS), random.exponential(SILENCE_NS)))
}

/// Times on, each drawn with the time off behind it.
fn periods(active: &[(u64, u64)], mut draw: impl FnMut() -> (u64, u64)) -> Vec<(u64, u64)> {
    let (Some(&(mut at, _)), Some(&(_, end))) = (active.first(), active.last()) else { return Vec::new() };
    let mut times = Vec::new();
    // No draw is shorter than a microsecond, so this ends.
    while at < end {
        let (on, off) = draw();
        times.push((at, at + on));
        at += on + off;
    }
    times
}

/// A stream of random numbers for each flow: SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
    /// An exponential time of that mean.
    fn exponential(&mut self, mean_ns: u64) -> u64 {
        ((-self.unit().ln() * mean_ns as f64) as u64).max(1_000)
    }
    /// A time of that mean, by the flow's distribution.
    fn time(&mut self, flow: &Flow, mean_ns: u64) -> u64 {
        let mean = mean_ns as f64;
        let ns = match flow.distribution {
            Distribution::Constant => mean,
            Distribution::Uniform => 2.0 * self.unit() * mean,
            Distribution::Exponential => return self.exponential(mean_ns),
            Distribution::Pareto => {
                let shape = flow.shape.unwrap_or(1.5);
                mean * (shape - 1.0) / shape / self.unit().powf(1.0 / shape)
            }
        };
        (ns as u64).max(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_flows_send_few_packets_at_a_time_and_keep_their_rate() {
        for (size, rate) in [(1000, 1_000_000), (60, 10_000_000), (1514, 1_000_000_000), (1514, 64_000)] {
            let (burst, period) = pace(size, rate);
            let got = f64::from(burst) * size as f64 * 8e9 / period as f64;
            assert!((got / rate as f64 - 1.0).abs() < 1e-3, "{size} {rate} {got}");
            assert!(period >= 100_000);
        }
    }

    #[test]
    fn drawn_times_have_their_mean() {
        let mut flow: Flow = serde_json::from_str(r#"{"from":"a","to":"b"}"#).unwrap();
        flow.shape = Some(3.0);
        use Distribution::{Constant, Exponential, Pareto, Uniform};
        for distribution in [Constant, Uniform, Exponential, Pareto] {
            flow.distribution = distribution;
            let mut random = Random::new(weir_seed::seed(), 1);
            let sum: u64 = (0..100_000).map(|_| random.time(&flow, 2_000_000)).sum();
            assert!((195_000_000_000..205_000_000_000).contains(&sum), "{distribution:?} {sum}");
        }
    }
}

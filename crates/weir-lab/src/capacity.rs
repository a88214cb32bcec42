//! Whether the testbed itself is fast enough: what it carries when nothing shapes.
//!
//! A live figure says something about a configuration only if the link that the box emulates is
//! what limits it. So before a run each direction that the scenario manages is flooded for a
//! fraction of a second through the box without a discipline, and must carry twice the rate of
//! its link; a run on less is marked as not valid. It costs some 0.3 s a direction.

use crate::bed::{Bed, BedPlan};
use crate::bench::Mode;
use crate::node::{NodeError, Order};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use weir_core::units::Duration;
use weir_report::report::NOT_VALID;
use weir_sys::{now, sleep_until};

/// An address that is routed to a host and not its own, from the block for benchmarks (RFC 2544):
/// the host drops what comes for it at the earliest point.
const NOBODY: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
/// Left out at the beginning.
const WARM_UP: Duration = Duration::from_millis(50);
const COUNTED: Duration = Duration::from_millis(150);
/// The sender goes on for so long beyond what is counted, for orders take their time.
const REST: Duration = Duration::from_millis(50);
/// Where nothing passed it is tried again: a machine with much else to do may have had no time.
const TRIES: usize = 3;
/// How many times the link's rate the way must carry.
pub(crate) const FACTOR: f64 = 2.0;

/// What the way from a side to the next one carries, bit/s of the longest frames, with what
/// `overhead_bytes` a frame takes on a wire. The box must be idle.
pub(crate) fn measure(
    bed: &mut Bed,
    plan: &BedPlan,
    [from, to]: [usize; 2],
    overhead_bytes: u64,
) -> Result<f64, NodeError> {
    let (Some(sender), Some(receiver)) = (plan.sides[from].first(), plan.sides[to].first()) else {
        let what = "a side without hosts".to_string();
        return Err(NodeError { node: "box".into(), what });
    };
    let mac = plan.mac_of(&receiver.name);
    let lines = |verb: &str| {
        format!(
            "route {verb} {NOBODY}/32 dev eth0 scope link\nneigh {verb} {NOBODY} lladdr {mac} dev eth0 nud permanent\n"
        )
    };
    bed.host(&sender.name)?.tell(&Order::Ip(lines("add")))?;
    bed.call_box("bench-begin", json!({ "mode": Mode::WeirPlain, "bridge": from.min(to) }))?;
    let frame_bytes = u64::from(plan.mtu) + 14;
    let mut measured = Ok(0.0);
    for _ in 0..TRIES {
        measured = flood(bed, [&sender.name, &receiver.name], &mac, frame_bytes, overhead_bytes);
        if !matches!(measured, Ok(0.0)) {
            break;
        }
    }
    bed.call_box("bench-end", Value::Null)?;
    bed.host(&sender.name)?.tell(&Order::Ip(lines("del")))?;
    measured
}

fn flood(
    bed: &mut Bed,
    [sender, receiver]: [&str; 2],
    mac: &str,
    frame_bytes: u64,
    overhead_bytes: u64,
) -> Result<f64, NodeError> {
    let size = frame_bytes.clamp(60, 1514);
    let length_ns = (WARM_UP + COUNTED + REST).as_nanos();
    let call = |name: &str, with: Value| Order::Call { name: name.into(), with };
    let blast = json!({ "size": size, "length_ns": length_ns, "to": NOBODY, "mac": mac });
    bed.host(sender)?.ask(&call("bench-blast", blast))?;
    let count = |bed: &mut Bed| -> Result<(u64, u64), NodeError> {
        let answer = bed.host(receiver)?.tell(&call("bench-received", Value::Null))?;
        Ok((answer["packets"].as_u64().unwrap_or(0), answer["at_ns"].as_u64().unwrap_or(0)))
    };
    sleep_until(now() + WARM_UP);
    let first = count(bed)?;
    sleep_until(now() + COUNTED);
    let last = count(bed)?;
    bed.host(sender)?.answer(std::time::Duration::from_secs(10))?;
    let packets = last.0.saturating_sub(first.0) as f64;
    let seconds = last.1.saturating_sub(first.1).max(1) as f64 / 1e9;
    Ok(packets * (size + overhead_bytes) as f64 * 8.0 / seconds)
}

/// What a report says of it.
pub(crate) fn note(towards: &str, measured: Result<f64, String>, link_bps: u64) -> String {
    let link = link_bps.max(1) as f64;
    match measured {
        Err(why) => {
            format!("doubtful: what the testbed carries towards {towards} could not be measured: {why}")
        }
        Ok(0.0) => format!(
            "{NOT_VALID}nothing passed towards {towards} in {} ms of flooding without shaping: the testbed does not \
             carry frames there; look for firewall rules of bridges or of namespaces on this machine",
            COUNTED.as_nanos() / 1_000_000
        ),
        Ok(bps) if bps < FACTOR * link => format!(
            "{NOT_VALID}without shaping the testbed carries {:.0} Mbit/s towards {towards}, less than {FACTOR:.0} \
             times the link's {:.0} Mbit/s: the machine limits these results, not the configuration; \
             scale the scenario down",
            bps / 1e6,
            link / 1e6
        ),
        Ok(bps) => format!(
            "without shaping the testbed carries {:.0} Mbit/s towards {towards}, {:.0} times the link's rate",
            bps / 1e6,
            bps / link
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_twice_the_link_is_not_valid() {
        let said = |bps: f64| note("right", Ok(bps), 100_000_000);
        assert_eq!(
            said(7.6e9),
            "without shaping the testbed carries 7600 Mbit/s towards right, 76 times the link's rate"
        );
        assert!(!said(2.0e8).contains("not valid"), "twice is enough");
        assert!(
            said(1.99e8)
                .starts_with("not valid: without shaping the testbed carries 199 Mbit/s towards right")
        );
        // Where nothing passes, a smaller scenario does not help.
        assert!(said(0.0).starts_with("not valid: nothing passed towards right in 150 ms"));
        assert!(!said(0.0).contains("scale") && said(1.0).contains("scale"));
        assert!(note("left", Err("no answer".into()), 1).starts_with("doubtful"));
    }
}

//! What an expectation can measure.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use weir_text::Unit;

/// What is measured, over an interval, for a set of classes of one port or a set of flows.
///
/// | word | subject | value | unit |
/// |---|---|---|---|
/// | `rate` | classes | bytes of frames that left the discipline | bit/s |
/// | `offered` | classes | bytes of frames that arrived | bit/s |
/// | `share` | classes | time on the wire, overhead included, of the link's | share |
/// | `utilisation` | a direction of a link | time on the wire that was used | share |
/// | `drops` | classes | packets that were dropped | count |
/// | `loss` | classes | packets that were dropped of those that arrived | share |
/// | `marks` | classes | packets marked by ECN | count |
/// | `delay-mean`, `delay-max`, `delay-p99` … | classes | time in the queue of packets that left | time |
/// | `backlog-mean`, `backlog-max` | classes | packets waiting, over time | count |
/// | `requests` | classes | requests of their edge to a broker | per minute |
/// | `allocated` | classes | allocation B_d, on average over time | bit/s |
/// | `estimate` | classes | estimate B_m of the bandwidth in use, on average over time | bit/s |
/// | `efficiency` | classes | bandwidth in use of the allocation | share |
/// | `estimate-excess` | one class, whole run | estimate beyond what the sources send, of the latter | share |
/// | `estimate-above` | one class, whole run | time in which the estimate is not below what the sources send | share |
/// | `refused` | one class, whole run | new real-time flows that were refused, of all new ones | share |
/// | `evicted` | one class, whole run | admitted flows that had to go, of all admitted | share |
/// | `windows-above` | one class, whole run | windows in which admitted flows sent more than the class may get | share |
/// | `goodput` | flows | payload delivered in order | bit/s |
/// | `jain` | flows | Jain's fairness index of their goodputs | number |
/// | `retransmits` | flows, whole run | segments sent again | count |
/// | `transactions` | flows, whole run | responses received | per second |
/// | `recognised` | flows, whole run | those that an edge found to be real-time, of all of them | share |
/// | `recognised-after` | flows, whole run | the packet with which that was, the greatest of them, from 1 | count |
/// | `false` | flows, whole run | those that are not of kind rtp, and were found all the same | count |
/// | `rtt-mean`, `rtt-max`, `rtt-p99` … | tcp and rr flows, whole run | round-trip times (TCP samples, transactions) | time |
/// | `one-way-mean`, `one-way-max`, `one-way-p99` … | udp and rtp flows, whole run | from the sending host to the receiving one | time |
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// `rate`.
    Rate,
    /// `offered`.
    Offered,
    /// `share`.
    Share,
    /// `utilisation`.
    Utilisation,
    /// `drops`.
    Drops,
    /// `loss`.
    Loss,
    /// `marks`.
    Marks,
    /// `delay-…`.
    Delay(Statistic),
    /// `backlog-mean`.
    BacklogMean,
    /// `backlog-max`.
    BacklogMax,
    /// `requests`.
    Requests,
    /// `allocated`.
    Allocated,
    /// `estimate`.
    Estimate,
    /// `efficiency`.
    Efficiency,
    /// `estimate-excess`.
    EstimateExcess,
    /// `estimate-above`.
    EstimateAbove,
    /// `refused`.
    Refused,
    /// `evicted`.
    Evicted,
    /// `windows-above`.
    WindowsAbove,
    /// `goodput`.
    Goodput,
    /// `jain`.
    Jain,
    /// `retransmits`.
    Retransmits,
    /// `transactions`.
    Transactions,
    /// `recognised`.
    Recognised,
    /// `recognised-after`.
    RecognisedAfter,
    /// `false`.
    False,
    /// `rtt-…`.
    Rtt(Statistic),
    /// `one-way-…`.
    OneWay(Statistic),
}

/// One number of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The greatest.
    Max,
    /// `pN`: the value that N per cent do not exceed; 0 < N < 100, decimals allowed.
    Percentile(f64),
}

const PLAIN: [(&str, Measure); 25] = [
    ("rate", Measure::Rate),
    ("offered", Measure::Offered),
    ("share", Measure::Share),
    ("utilisation", Measure::Utilisation),
    ("drops", Measure::Drops),
    ("loss", Measure::Loss),
    ("marks", Measure::Marks),
    ("backlog-mean", Measure::BacklogMean),
    ("backlog-max", Measure::BacklogMax),
    ("requests", Measure::Requests),
    ("allocated", Measure::Allocated),
    ("estimate", Measure::Estimate),
    ("efficiency", Measure::Efficiency),
    ("estimate-excess", Measure::EstimateExcess),
    ("estimate-above", Measure::EstimateAbove),
    ("refused", Measure::Refused),
    ("evicted", Measure::Evicted),
    ("windows-above", Measure::WindowsAbove),
    ("goodput", Measure::Goodput),
    ("jain", Measure::Jain),
    ("retransmits", Measure::Retransmits),
    ("transactions", Measure::Transactions),
    ("recognised", Measure::Recognised),
    ("recognised-after", Measure::RecognisedAfter),
    ("false", Measure::False),
];

impl Measure {
    /// True if it speaks of flows, false if of classes or a link.
    pub const fn of_flows(self) -> bool {
        matches!(
            self,
            Measure::Goodput
                | Measure::Jain
                | Measure::Retransmits
                | Measure::Transactions
                | Measure::Recognised
                | Measure::RecognisedAfter
                | Measure::False
                | Measure::Rtt(_)
                | Measure::OneWay(_)
        )
    }
    /// True if it is only known for the whole run.
    pub const fn whole_run_only(self) -> bool {
        let of_flows = matches!(
            self,
            Measure::Retransmits
                | Measure::Transactions
                | Measure::Recognised
                | Measure::RecognisedAfter
                | Measure::False
                | Measure::Rtt(_)
                | Measure::OneWay(_)
        );
        of_flows || self.of_edge().is_some()
    }
    /// The number of an edge that it is, as a class's statistics call it.
    pub const fn of_edge(self) -> Option<&'static str> {
        Some(match self {
            Measure::EstimateExcess => "edge-estimate-excess",
            Measure::EstimateAbove => "edge-estimate-above",
            Measure::Refused => "edge-refused",
            Measure::Evicted => "edge-evicted",
            Measure::WindowsAbove => "edge-windows-above",
            _ => return None,
        })
    }
    /// The unit of its value.
    pub const fn unit(self) -> Unit {
        match self {
            Measure::Rate | Measure::Offered | Measure::Goodput | Measure::Allocated | Measure::Estimate => {
                Unit::Rate
            }
            Measure::Share
            | Measure::Utilisation
            | Measure::Loss
            | Measure::Efficiency
            | Measure::EstimateExcess
            | Measure::EstimateAbove
            | Measure::Refused
            | Measure::Evicted
            | Measure::WindowsAbove
            | Measure::Recognised => Unit::Share,
            Measure::Delay(_) | Measure::Rtt(_) | Measure::OneWay(_) => Unit::Time,
            Measure::Drops
            | Measure::Marks
            | Measure::Requests
            | Measure::BacklogMean
            | Measure::BacklogMax
            | Measure::Jain
            | Measure::Retransmits
            | Measure::Transactions
            | Measure::RecognisedAfter
            | Measure::False => Unit::Number,
        }
    }
    /// From its word.
    pub fn parse(word: &str) -> Result<Self, String> {
        if let Some((_, measure)) = PLAIN.iter().find(|(name, _)| *name == word) {
            return Ok(*measure);
        }
        let statistic = |text: &str| match (text, text.strip_prefix('p').map(str::parse::<f64>)) {
            ("mean", _) => Some(Statistic::Mean),
            ("max", _) => Some(Statistic::Max),
            (_, Some(Ok(p))) if p > 0.0 && p < 100.0 => Some(Statistic::Percentile(p)),
            _ => None,
        };
        let known = match word.rsplit_once('-') {
            Some(("delay", rest)) => statistic(rest).map(Measure::Delay),
            Some(("rtt", rest)) => statistic(rest).map(Measure::Rtt),
            Some(("one-way", rest)) => statistic(rest).map(Measure::OneWay),
            _ => None,
        };
        known.ok_or_else(|| {
            let words: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
            format!(
                "`{word}` is nothing that can be measured\nwrite one of: {}, delay-mean, delay-max, delay-p99 (any percentile), rtt-mean, rtt-max, rtt-p99, one-way-mean, one-way-max, one-way-p99",
                words.join(", ")
            )
        })
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Mean => f.write_str("mean"),
            Statistic::Max => f.write_str("max"),
            Statistic::Percentile(p) => write!(f, "p{p}"),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Measure::Delay(statistic) => write!(f, "delay-{statistic}"),
            Measure::Rtt(statistic) => write!(f, "rtt-{statistic}"),
            Measure::OneWay(statistic) => write!(f, "one-way-{statistic}"),
            other => {
                let name = PLAIN.iter().find(|(_, measure)| measure == other);
                f.write_str(name.expect("every measure without a statistic is in PLAIN").0)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Measure::parse(&word).map_err(serde::de::Error::custom)
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

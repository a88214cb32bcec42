//! The mean of several runs of one scenario: what a tolerance "on the mean over seeds" speaks of.

use crate::report::{ClassReport, Count, Delay, FlowReport, LinkReport, Report};

/// The mean run: counts, series and statistics are means, distributions are merged, maxima are the
/// greatest.
/// Checks are not kept: evaluate the scenario's expectations on the result. `None` of no runs;
/// the runs must be of one scenario, so that their ports, classes, links and flows pair up.
pub fn mean(runs: &[Report]) -> Option<Report> {
    let mut result = runs.first()?.clone();
    result.checks.clear();
    result.meta.events = None;
    for (p, port) in result.ports.iter_mut().enumerate() {
        for (c, class) in port.classes.iter_mut().enumerate() {
            let all: Vec<&ClassReport> = runs.iter().map(|run| &run.ports[p].classes[c]).collect();
            *class = mean_class(&all);
        }
        for (c, conditioner) in port.conditioners.iter_mut().enumerate() {
            for (name, count) in &mut conditioner.counts {
                let of = |run: &Report| run.ports[p].conditioners[c].counts[name];
                *count = mean_count(runs.iter().map(of));
            }
        }
    }
    for (l, link) in result.links.iter_mut().enumerate() {
        let all: Vec<&LinkReport> = runs.iter().map(|run| &run.links[l]).collect();
        link.carried = mean_count(all.iter().map(|l| l.carried));
        link.dropped = mean_count(all.iter().map(|l| l.dropped));
        link.utilisation = mean_f64(all.iter().map(|l| l.utilisation));
        link.ring_max = all.iter().map(|l| l.ring_max).max().unwrap_or(0);
        link.refills = mean_u64(all.iter().map(|l| l.refills));
        link.wire_bytes = mean_series(all.iter().map(|l| &l.wire_bytes));
    }
    for (f, flow) in result.flows.iter_mut().enumerate() {
        let all: Vec<&FlowReport> = runs.iter().map(|run| &run.flows[f]).collect();
        flow.misclassified = all.iter().map(|f| f.misclassified).sum();
        flow.sent = mean_count(all.iter().map(|f| f.sent));
        flow.delivered_bytes = mean_u64(all.iter().map(|f| f.delivered_bytes));
        flow.active_ns = mean_u64(all.iter().map(|f| f.active_ns));
        flow.goodput_bps = mean_f64(all.iter().map(|f| f.goodput_bps));
        flow.retransmits = mean_of_known(all.iter().map(|f| f.retransmits));
        flow.timeouts = mean_of_known(all.iter().map(|f| f.timeouts));
        flow.lost = mean_u64(all.iter().map(|f| f.lost));
        flow.marked = mean_u64(all.iter().map(|f| f.marked));
        flow.transactions = mean_of_known(all.iter().map(|f| f.transactions));
        flow.rtt = flow.rtt.as_ref().map(|_| merged(all.iter().filter_map(|f| f.rtt.as_ref())));
        flow.one_way = flow.one_way.as_ref().map(|_| merged(all.iter().filter_map(|f| f.one_way.as_ref())));
        flow.delivered = mean_series(all.iter().map(|f| &f.delivered));
    }
    Some(result)
}

fn mean_class(all: &[&ClassReport]) -> ClassReport {
    let mut class = all[0].clone();
    class.offered = mean_count(all.iter().map(|c| c.offered));
    class.sent = mean_count(all.iter().map(|c| c.sent));
    class.left = mean_count(all.iter().map(|c| c.left));
    class.marked = mean_u64(all.iter().map(|c| c.marked));
    let reasons: std::collections::BTreeSet<&String> = all.iter().flat_map(|c| c.dropped.keys()).collect();
    class.dropped = reasons
        .into_iter()
        .map(|reason| {
            let counts = all.iter().map(|c| c.dropped.get(reason).copied().unwrap_or_default());
            (reason.clone(), mean_count(counts))
        })
        .collect();
    let names: std::collections::BTreeSet<&String> = all.iter().flat_map(|c| c.statistics.keys()).collect();
    class.statistics = names
        .into_iter()
        .map(|name| (name.clone(), mean_f64(all.iter().filter_map(|c| c.statistics.get(name).copied()))))
        .collect();
    class.backlog_max.packets = all.iter().map(|c| c.backlog_max.packets).max().unwrap_or(0);
    class.backlog_max.bytes = all.iter().map(|c| c.backlog_max.bytes).max().unwrap_or(0);
    class.delay = merged(all.iter().map(|c| &c.delay));
    let series = &mut class.series;
    series.offered_bytes = mean_series(all.iter().map(|c| &c.series.offered_bytes));
    series.offered_packets = mean_series(all.iter().map(|c| &c.series.offered_packets));
    series.sent_bytes = mean_series(all.iter().map(|c| &c.series.sent_bytes));
    series.sent_packets = mean_series(all.iter().map(|c| &c.series.sent_packets));
    series.dropped_packets = mean_series(all.iter().map(|c| &c.series.dropped_packets));
    series.marked_packets = mean_series(all.iter().map(|c| &c.series.marked_packets));
    series.delay_sum_ns = mean_series(all.iter().map(|c| &c.series.delay_sum_ns));
    series.backlog_packet_ns = mean_series(all.iter().map(|c| &c.series.backlog_packet_ns));
    series.measured_bytes = mean_series(all.iter().map(|c| &c.series.measured_bytes));
    series.allocated_bits = mean_series(all.iter().map(|c| &c.series.allocated_bits));
    series.estimated_bits = mean_series(all.iter().map(|c| &c.series.estimated_bits));
    series.requests = mean_series(all.iter().map(|c| &c.series.requests));
    series.delay_max_ns = max_series(all.iter().map(|c| &c.series.delay_max_ns));
    series.backlog_max_packets = max_series(all.iter().map(|c| &c.series.backlog_max_packets));
    for run in &all[1..] {
        for (sum, one) in series.delays.iter_mut().zip(&run.series.delays) {
            sum.merge(one);
        }
    }
    class
}

fn merged<'a>(delays: impl Iterator<Item = &'a Delay>) -> Delay {
    let mut sum = crate::Histogram::default();
    delays.for_each(|delay| sum.merge(&delay.histogram));
    Delay::of(sum)
}

fn mean_u64(values: impl Iterator<Item = u64>) -> u64 {
    let (sum, n) = values.fold((0u128, 0u128), |(sum, n), v| (sum + u128::from(v), n + 1));
    ((sum + n / 2) / n.max(1)) as u64
}

/// The mean of a number that does not apply to every kind of flow.
fn mean_of_known(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.collect::<Option<Vec<u64>>>().map(|known| mean_u64(known.into_iter()))
}

fn mean_f64(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    sum / f64::max(n, 1.0)
}

fn mean_count(counts: impl Iterator<Item = Count> + Clone) -> Count {
    Count { packets: mean_u64(counts.clone().map(|c| c.packets)), bytes: mean_u64(counts.map(|c| c.bytes)) }
}

/// Cell by cell, with what is rounded off carried into the next: few drops in a cell must not
/// vanish from the sum over many.
fn mean_series<'a>(lists: impl Iterator<Item = &'a Vec<u64>> + Clone) -> Vec<u64> {
    let longest = lists.clone().map(Vec::len).max().unwrap_or(0);
    let runs = lists.clone().count().max(1) as u128;
    let (mut sum, mut given) = (0u128, 0u128);
    (0..longest)
        .map(|i| {
            sum += lists.clone().map(|list| u128::from(list.get(i).copied().unwrap_or(0))).sum::<u128>();
            let cell = (sum + runs / 2) / runs - given;
            given += cell;
            cell as u64
        })
        .collect()
}

fn max_series<'a>(lists: impl Iterator<Item = &'a Vec<u64>> + Clone) -> Vec<u64> {
    let longest = lists.clone().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .map(|i| lists.clone().map(|list| list.get(i).copied().unwrap_or(0)).max().unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_round_to_the_nearest() {
        assert_eq!(mean_u64([1, 2].into_iter()), 2);
        assert_eq!(mean_u64([1, 1, 2].into_iter()), 1);
        assert_eq!(mean_series([&vec![2, 4], &vec![4]].into_iter()), [3, 2]);
        // One event in one of five runs, in every cell: a fifth of them, not none.
        let (some, none) = (vec![1; 100], vec![0; 100]);
        let mean = mean_series([&some, &none, &none, &none, &none].into_iter());
        assert_eq!(mean.iter().sum::<u64>(), 20);
        assert_eq!(max_series([&vec![2, 4], &vec![3]].into_iter()), [3, 4]);
        assert!(super::mean(&[]).is_none());
    }

    /// A number that a discipline or an edge keeps is judged over all seeds, not the first alone.
    #[test]
    fn statistics_are_means_of_those_that_have_them() {
        let class = |values: &[(&str, f64)]| ClassReport {
            statistics: values.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            ..ClassReport::default()
        };
        let (one, two) = (class(&[("x", 1.0)]), class(&[("x", 4.0), ("y", 3.0)]));
        let mean = mean_class(&[&one, &two]);
        assert_eq!((mean.statistics["x"], mean.statistics["y"]), (2.5, 3.0));
    }
}

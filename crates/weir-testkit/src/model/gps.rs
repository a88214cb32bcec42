//! Generalised processor sharing (Parekh and Gallager, IEEE/ACM Transactions on Networking 1(3),
//! 1993): all backlogged flows are served at once, in proportion to their weights.

use super::Ratio;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it comes.
    pub at_ns: u64,
    /// Which flow it belongs to.
    pub flow: usize,
    /// Its length in bits.
    pub bits: u64,
}

/// A fluid server.
#[derive(Clone, Debug)]
pub struct Gps {
    rate_bps: u64,
    weights: Vec<u64>,
}

impl Gps {
    /// A server of `rate_bps` with a flow for each weight.
    pub fn new(rate_bps: u64, weights: &[u64]) -> Self {
        Gps { rate_bps, weights: weights.to_vec() }
    }
    /// When each of `jobs`, which are in order of time, is done: exact, in nanoseconds.
    pub fn finish_times_ns(&self, jobs: &[Job]) -> Vec<Ratio> {
        let bits_per_ns = Ratio::new(i128::from(self.rate_bps), 1_000_000_000);
        let mut finished = vec![Ratio::ZERO; jobs.len()];
        // What is left of the oldest job of each flow, and the jobs behind it.
        let mut waiting: Vec<std::collections::VecDeque<(usize, Ratio)>> =
            vec![Default::default(); self.weights.len()];
        let mut now = Ratio::ZERO;
        let mut next = 0;
        loop {
            let arrival = jobs.get(next).map(|job| Ratio::whole(job.at_ns));
            let active: u64 =
                self.weights.iter().zip(&waiting).filter(|(_, w)| !w.is_empty()).map(|(w, _)| w).sum();
            let speed =
                |flow: usize| bits_per_ns * Ratio::new(i128::from(self.weights[flow]), i128::from(active));
            // The first of the jobs in service that would be done, if nothing came.
            let done = (0..waiting.len())
                .filter_map(|flow| waiting[flow].front().map(|&(_, left)| (now + left / speed(flow), flow)))
                .min();
            let (until, completes) = match (done, arrival) {
                (None, None) => return finished,
                (Some((at, flow)), Some(arrival)) if at <= arrival => (at, Some(flow)),
                (Some((at, flow)), None) => (at, Some(flow)),
                (_, Some(arrival)) => (arrival, None),
            };
            for (flow, jobs) in waiting.iter_mut().enumerate() {
                if let Some((_, left)) = jobs.front_mut() {
                    *left = *left - (until - now) * speed(flow);
                }
            }
            now = until;
            match completes {
                Some(flow) => {
                    if let Some((job, _)) = waiting[flow].pop_front() {
                        finished[job] = now;
                    }
                }
                None => {
                    let job = jobs[next];
                    waiting[job.flow].push_back((next, Ratio::whole(job.bits)));
                    next += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_at_every_moment() {
        // 1 bit a nanosecond. Flow 0 (weight 3) has 300 bits, flow 1 (weight 1) 200, from the start;
        // flow 0 is done at 400, having left 100 to flow 1, which then has the server to itself.
        let gps = Gps::new(1_000_000_000, &[3, 1]);
        let job = |at_ns, flow, bits| Job { at_ns, flow, bits };
        let done = gps.finish_times_ns(&[job(0, 0, 300), job(0, 1, 200), job(1_000, 1, 7)]);
        assert_eq!(done, [Ratio::whole(400), Ratio::whole(500), Ratio::whole(1_007)]);
    }

    #[test]
    fn serves_a_flow_in_order_and_all_that_came() {
        let gps = Gps::new(3_000_000_000, &[1, 2, 3]);
        let jobs: Vec<Job> =
            (0..60).map(|n| Job { at_ns: n * 7, flow: (n % 3) as usize, bits: 10 + n % 11 }).collect();
        let done = gps.finish_times_ns(&jobs);
        for flow in 0..3 {
            let times: Vec<Ratio> = (0..60).filter(|n| n % 3 == flow).map(|n| done[n]).collect();
            assert!(times.is_sorted());
        }
        assert!(jobs.iter().zip(&done).all(|(job, &done)| done > Ratio::whole(job.at_ns)));
    }
}

//! What an edge did for a class in a run, among the class's own numbers.

use super::Recorder;

/// What became of the flows of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeNumbers {
    /// New real-time flows that got in.
    pub admitted: u64,
    /// New real-time flows that did not.
    pub refused: u64,
    /// Admitted flows that had to go.
    pub evicted: u64,
    /// Windows that ended.
    pub windows: u64,
    /// Of these, those in which admitted flows sent more than the limit.
    pub windows_above: u64,
    /// How it asked for bandwidth, if it did.
    pub allocation: Option<AllocationNumbers>,
}

/// How a class asked for bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationNumbers {
    /// The integral of the allocation over the run, bit/s ns.
    pub allocated: u128,
    /// Bytes measured.
    pub measured_bytes: u64,
    /// Requests, up and down.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Times that congestion began.
    pub congestions: u64,
}

impl Recorder {
    /// What an edge did for a class in a run of that length.
    pub fn edge(&mut self, port: usize, class: usize, numbers: &EdgeNumbers, run_ns: u64) {
        let (run, minutes) = ((run_ns as f64).max(1.0), (run_ns as f64 / 60e9).max(f64::MIN_POSITIVE));
        let mut say = |name: &str, value: f64| self.statistic(port, class, name, value);
        let came = (numbers.admitted + numbers.refused) as f64;
        say("edge-admitted", numbers.admitted as f64);
        if came > 0.0 {
            say("edge-refused", numbers.refused as f64 / came);
        }
        if numbers.admitted > 0 {
            say("edge-evicted", numbers.evicted as f64 / numbers.admitted as f64);
        }
        if numbers.windows > 0 {
            say("edge-windows-above", numbers.windows_above as f64 / numbers.windows as f64);
        }
        let Some(allocation) = &numbers.allocation else { return };
        // Bit/s times ns, over ns.
        let allocated = allocation.allocated as f64 / run;
        let measured = allocation.measured_bytes as f64 * 8e9 / run;
        say("edge-allocated", allocated);
        if allocated > 0.0 {
            say("edge-efficiency", measured / allocated);
        }
        say("edge-requests", allocation.requests as f64 / minutes);
        say("edge-requests-refused", allocation.refused as f64);
        say("edge-congestions", allocation.congestions as f64);
    }
}

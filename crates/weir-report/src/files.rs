//! The files of a run: `report.json`, `samples.csv`, `flows.csv`.

use crate::disk;
use crate::recorder::MAX_CELLS;
use crate::report::{ClassReport, Report, VERSION};
use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

/// The files that a run may write into its folder, plots apart.
pub const FILES: [&str; 4] = ["report.json", "samples.csv", "flows.csv", "packets.csv"];

impl Report {
    /// Writes `report.json`, `samples.csv` (classes over time) and, where flows were sampled,
    /// `flows.csv` into a folder, which is made if need be.
    pub fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        disk::write(&folder.join("report.json"), self.to_json())?;
        disk::write(&folder.join("samples.csv"), self.samples_csv())?;
        match self.flows_csv() {
            Some(csv) => disk::write(&folder.join("flows.csv"), csv),
            None => Ok(()),
        }
    }

    /// The report as JSON, for programs.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a report has string keys and numbers only");
        text.push('\n');
        text
    }

    /// Reads a `report.json`, or the one in a folder.
    pub fn read(path: &Path) -> Result<Report> {
        let path = if path.is_dir() { path.join("report.json") } else { path.to_path_buf() };
        let refuse = |why: String| Error::new(ErrorKind::InvalidData, format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Report::from_json(&text).map_err(refuse)
    }

    /// Reads a report from JSON, or says why it is none.
    pub fn from_json(text: &str) -> std::result::Result<Report, String> {
        // Editors of some systems put a mark before all text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let report: Report = serde_json::from_str(text).map_err(|error| {
            format!(
                "is not a report of weir ({error}): name the report.json that `weir sim --out DIR` writes"
            )
        })?;
        let meta = &report.meta;
        if meta.version > VERSION {
            return Err(format!("has version {}; this program reads up to {VERSION}", meta.version));
        }
        let whole = meta.cell_ns > 0 && meta.probe_ns > 0 && meta.probe_ns.is_multiple_of(meta.cell_ns);
        let whole = whole && meta.window_ns.is_none_or(|w| w > 0 && w.is_multiple_of(meta.cell_ns));
        if !whole || meta.duration_ns == 0 || meta.duration_ns / meta.cell_ns > MAX_CELLS {
            return Err("is broken: cell_ns, probe_ns and duration_ns do not fit each other".into());
        }
        Ok(report)
    }

    /// Every class of every managed port, per interval of the probe: one line each.
    pub fn samples_csv(&self) -> String {
        let mut csv = String::from(
            "time_ns,port,class,offered_bytes,offered_packets,sent_bytes,sent_packets,dropped_packets,marked_packets,\
             delay_mean_ns,delay_max_ns,backlog_mean_packets,backlog_max_packets\n",
        );
        for n in 0..self.intervals() {
            for (port, class) in
                self.ports.iter().flat_map(|port| port.classes.iter().map(move |class| (port, class)))
            {
                self.sample(&mut csv, n, &port.name, class);
            }
        }
        csv
    }

    /// How many intervals of the probe the run has; the last may be shorter.
    pub fn intervals(&self) -> u64 {
        self.meta.duration_ns.div_ceil(self.meta.probe_ns)
    }

    /// The cells of interval `n` of the probe in one of the lists of a series.
    pub fn interval<'a>(&self, list: &'a [u64], n: u64) -> &'a [u64] {
        let per_interval = (self.meta.probe_ns / self.meta.cell_ns) as usize;
        let from = (n as usize).saturating_mul(per_interval).min(list.len());
        &list[from..from.saturating_add(per_interval).min(list.len())]
    }

    /// The sum of a list over interval `n` of the probe.
    pub fn interval_sum(&self, list: &[u64], n: u64) -> u64 {
        self.interval(list, n).iter().fold(0, |sum, value| sum.saturating_add(*value))
    }

    fn sample(&self, csv: &mut String, n: u64, port: &str, class: &ClassReport) {
        let series = &class.series;
        let sum = |list: &[u64]| self.interval_sum(list, n);
        let most = |list: &[u64]| self.interval(list, n).iter().copied().max().unwrap_or(0);
        let time = n * self.meta.probe_ns;
        let length = self.meta.probe_ns.min(self.meta.duration_ns - time);
        let sent = sum(&series.sent_packets);
        // Writing to a String cannot fail.
        let _ = writeln!(
            csv,
            "{time},{},{},{},{},{},{sent},{},{},{},{},{:.3},{}",
            field(port),
            field(&class.name),
            sum(&series.offered_bytes),
            sum(&series.offered_packets),
            sum(&series.sent_bytes),
            sum(&series.dropped_packets),
            sum(&series.marked_packets),
            sum(&series.delay_sum_ns).checked_div(sent).unwrap_or(0),
            most(&series.delay_max_ns),
            sum(&series.backlog_packet_ns) as f64 / length as f64,
            most(&series.backlog_max_packets),
        );
    }

    /// Every flow per interval of the probe of classes, if flows were sampled.
    pub fn flows_csv(&self) -> Option<String> {
        self.flows.iter().any(|flow| !flow.delivered.is_empty()).then(|| {
            let mut csv = String::from("time_ns,flow,delivered_bytes\n");
            for n in 0..self.intervals() {
                for flow in &self.flows {
                    let bytes = self.interval_sum(&flow.delivered, n);
                    let _ = writeln!(csv, "{},{},{bytes}", n * self.meta.probe_ns, field(&flow.name));
                }
            }
            csv
        })
    }
}

/// A field of a CSV file, quoted where it must be (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests;

//! The metrics of a broker, in the text form of Prometheus.

use super::keeper::Kept;
use std::fmt::Write;

/// One value for each resource, none for each lease: their number has no bound that a monitor likes.
pub(super) fn text(kept: &Kept) -> String {
    let (book, effort) = (kept.journal.book(), &kept.effort);
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
        let _ = writeln!(text, "# HELP weir_broker_{name} {help}\n# TYPE weir_broker_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "weir_broker_{name}{labels} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    metric("leases", "gauge", "Leases that hold something or wait.", one(book.leases().count() as f64));
    let of = |value: fn(&crate::book::Shown<'_>) -> u64| {
        book.resources().map(|r| (format!("{{resource={:?}}}", r.resource), value(&r) as f64)).collect()
    };
    metric("capacity_bps", "gauge", "What the domain has of a resource, in bit/s.", of(|r| r.capacity));
    metric("taken_bps", "gauge", "What is granted of a resource, in bit/s.", of(|r| r.taken));
    let verdicts = vec![
        ("{verdict=\"granted\"}".to_owned(), effort.granted as f64),
        ("{verdict=\"refused\"}".to_owned(), effort.refused as f64),
    ];
    metric("decisions_total", "counter", "Requests decided since the broker began.", verdicts);
    metric("commits_total", "counter", "Groups of commands written.", one(effort.groups as f64));
    metric(
        "commit_seconds_total",
        "counter",
        "Time spent deciding and writing.",
        one(effort.busy.as_secs_f64()),
    );
    metric(
        "audit_lines",
        "counter",
        "Number of the last line of the audit.",
        one(kept.journal.chain().line as f64),
    );
    metric("listeners", "gauge", "Connections that hear of events.", one(kept.listeners.len() as f64));
    text
}

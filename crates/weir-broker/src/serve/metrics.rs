//! The metrics of a broker, in the text form of Prometheus.

use super::keeper::Kept;
use crate::book::Shown;
use weir_text::metrics::Kind::{Counter, Gauge};
use weir_text::metrics::Metrics;

/// One value for each resource, none for each lease: their number has no bound that a monitor likes.
pub(super) fn text(kept: &Kept) -> String {
    let (book, effort) = (kept.journal.book(), &kept.effort);
    let mut page = Metrics::default();
    let leases = book.leases().count();
    page.family("weir_broker_leases", Gauge, "Leases that hold something or wait.", [(vec![], leases)]);
    let mut of = |name: &str, help: &str, value: fn(&Shown<'_>) -> u64| {
        let resources = book.resources().map(|r| (vec![("resource", r.resource.to_string())], value(&r)));
        page.family(name, Gauge, help, resources);
    };
    of("weir_broker_capacity_bps", "What the domain has of a resource, in bit/s.", |r| r.capacity);
    of("weir_broker_taken_bps", "What is granted of a resource, in bit/s.", |r| r.taken);
    let decided = [("granted", effort.granted), ("refused", effort.refused)];
    let decided = decided.map(|(verdict, count)| (vec![("verdict", verdict.to_owned())], count));
    page.family("weir_broker_decisions_total", Counter, "Requests decided since the broker began.", decided);
    page.family(
        "weir_broker_commits_total",
        Counter,
        "Groups of commands written.",
        [(vec![], effort.groups)],
    );
    let busy = effort.busy.as_secs_f64();
    page.family(
        "weir_broker_commit_seconds_total",
        Counter,
        "Time spent deciding and writing.",
        [(vec![], busy)],
    );
    let line = kept.journal.chain().line;
    page.family(
        "weir_broker_audit_lines_total",
        Counter,
        "Number of the last line of the audit.",
        [(vec![], line)],
    );
    let listeners = kept.listeners.len();
    page.family("weir_broker_listeners", Gauge, "Connections that hear of events.", [(vec![], listeners)]);
    page.into_text()
}

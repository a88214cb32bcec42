//! The text form of Prometheus: families of values with labels.
//!
//! Source: Prometheus, "Exposition formats", text-based format, version 0.0.4.

use std::fmt::{Display, Write};

/// What the values of a family are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// They only grow, until the process starts again. The name of the family ends in `_total`.
    Counter,
    /// They go up and down.
    Gauge,
}

/// A page of metrics.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Adds a family with all its values, each with its labels. One without values is left out. `help` is one line.
    pub fn family<'a, V: Display>(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        values: impl IntoIterator<Item = (Vec<(&'a str, String)>, V)>,
    ) {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string never fails.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let braced = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.text, "{name}{braced} {value}");
        }
    }
    /// The page.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// The value of a label as it stands between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::{Kind, Metrics};

    #[test]
    fn a_page_has_families_with_labels() {
        let mut page = Metrics::default();
        let labels = |class: &str| vec![("interface", "eth0".to_owned()), ("class", class.to_owned())];
        page.family(
            "sent_total",
            Kind::Counter,
            "Packets.",
            [(labels("a"), 3), (labels("b\"\\\n"), u64::MAX as i128)],
        );
        page.family("up_seconds", Kind::Gauge, "Time.", [(vec![], 1.5)]);
        page.family("none_total", Kind::Counter, "Nothing.", Vec::<(_, u64)>::new());
        let expected = "# HELP sent_total Packets.\n# TYPE sent_total counter\n\
                        sent_total{interface=\"eth0\",class=\"a\"} 3\n\
                        sent_total{interface=\"eth0\",class=\"b\\\"\\\\\\n\"} 18446744073709551615\n\
                        # HELP up_seconds Time.\n# TYPE up_seconds gauge\nup_seconds 1.5\n";
        assert_eq!(page.into_text(), expected);
    }
}

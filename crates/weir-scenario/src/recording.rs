//! The recorder of a run: the report's flows and links as the scenario names them, and what it is to keep.

use crate::scenario::{LinkSpec, ProbeWhat, Scenario, probe_interval};
use weir_report::report::{FlowReport, LinkReport, Meta, PortReport, VERSION};
use weir_report::{Keep, Recorder, Report, RunKind};

impl Scenario {
    /// A recorder of a run of this scenario, with its flows and links; ports are added with
    /// `port_report`. `inputs` is `inputs_hash`.
    pub fn recorder(&self, kind: RunKind, inputs: u64) -> Recorder {
        let probe = |what| self.probes.iter().find(move |probe| probe.what == what);
        let classes = probe(ProbeWhat::Classes);
        let meta = Meta {
            version: VERSION,
            kind,
            scenario: self.name.clone(),
            seed: self.seed,
            inputs: format!("{inputs:016x}"),
            events: None,
            duration_ns: self.duration.as_nanos(),
            cell_ns: self.cell().as_nanos(),
            probe_ns: classes.map_or(probe_interval(), |probe| probe.every).as_nanos(),
            window_ns: classes.and_then(|probe| probe.over).map(|over| over.as_nanos()),
            notes: Vec::new(),
        };
        let keep = Keep { delays: self.keeps_delays(), flows: self.keeps_flows() };
        let (links, flows) = (self.link_reports(), self.flow_reports());
        Recorder::new(Report { meta, ports: Vec::new(), links, flows, checks: Vec::new() }, keep)
    }

    /// What a report says of the managed port `index` before anything has happened.
    pub fn port_report(&self, index: usize, discipline: &str, classes: &[String]) -> PortReport {
        let port = &self.ports[index];
        let link = self.link_between(&port.at, &port.to).map(|(link, _)| &self.links[link]);
        let rate_bps = link.map_or(0, |link| link.rate.as_bps());
        let overhead_bytes = link.map_or(0, |link| link.overhead.as_bytes());
        PortReport::new(port.name(), discipline, rate_bps, overhead_bytes, classes)
    }

    fn flow_reports(&self) -> Vec<FlowReport> {
        let report = |copy: crate::FlowCopy| {
            let flow = &self.flows[copy.flow];
            let active = flow.active(self.duration);
            FlowReport {
                name: copy.name,
                from: flow.from.clone(),
                to: flow.to.clone(),
                kind: flow.kind,
                class: flow.class.clone(),
                active_ns: active.iter().map(|(from, to)| to.as_nanos() - from.as_nanos()).sum(),
                ..FlowReport::default()
            }
        };
        self.flow_copies().into_iter().map(report).collect()
    }

    fn link_reports(&self) -> Vec<LinkReport> {
        let report = |from: &str, to: &str, link: &LinkSpec| LinkReport {
            name: format!("{from}>{to}"),
            rate_bps: link.rate.as_bps(),
            overhead_bytes: link.overhead.as_bytes(),
            ..LinkReport::default()
        };
        let both = |link: &LinkSpec| [report(&link.a, &link.b, link), report(&link.b, &link.a, link)];
        self.links.iter().flat_map(both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorder of a scenario of 1 s with one managed port, and `more`.
    fn report(more: &str) -> Report {
        let text = format!(
            "duration = \"1s\"\nseed = 7\n[[host]]\nname = \"s\"\n[[host]]\nname = \"k\"\n\
             [[link]]\na = \"s\"\nb = \"box\"\nrate = \"10M\"\n[[link]]\na = \"box\"\nb = \"k\"\nrate = \"1M\"\n\
             [[port]]\nat = \"box\"\nto = \"k\"\ntext = \"\"\n\
             [[flow]]\nfrom = \"s\"\nto = \"k\"\nstop = \"500ms\"\nidle = [[\"100ms\", \"200ms\"]]\n{more}"
        );
        let scenario = Scenario::from_toml("x.toml", &text).unwrap();
        let mut recorder = scenario.recorder(RunKind::Sim, 0xab);
        recorder.port(scenario.port_report(0, "cbq", &["a".into(), "b".into()]));
        recorder.finish()
    }

    #[test]
    fn a_report_begins_with_what_was_asked() {
        let report = report("");
        let meta = &report.meta;
        assert_eq!((meta.kind, meta.seed, meta.inputs.as_str()), (RunKind::Sim, 7, "00000000000000ab"));
        assert_eq!(
            (meta.duration_ns, meta.cell_ns, meta.probe_ns),
            (1_000_000_000, 100_000_000, 100_000_000)
        );
        let links: Vec<&str> = report.links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(links, ["s>box", "box>s", "box>k", "k>box"]);
        let port = &report.ports[0];
        assert_eq!((port.name.as_str(), port.rate_bps, port.overhead_bytes), ("box>k", 1_000_000, 24));
        assert_eq!((report.flows[0].name.as_str(), report.flows[0].active_ns), ("f1", 400_000_000));
    }

    /// Histograms per cell are kept only if a percentile of an interval is asked for, and flows
    /// only if a probe or an expectation speaks of them.
    #[test]
    fn what_is_kept_follows_from_what_is_asked() {
        for (more, delays, flows) in [
            ("", 0, 0),
            ("[[expect]]\nwhat = \"delay-p99\"\nmax = \"1s\"\n", 0, 0),
            ("[[expect]]\nwhat = \"delay-max\"\nfrom = \"500ms\"\nmax = \"1s\"\n", 0, 0),
            ("[[expect]]\nwhat = \"delay-p99\"\nfrom = \"500ms\"\nmax = \"1s\"\n", 10, 0),
            ("[[probe]]\nwhat = \"flows\"\n", 0, 10),
            ("[[expect]]\nwhat = \"goodput\"\nmin = 0\n", 0, 10),
        ] {
            let report = report(more);
            assert_eq!(report.ports[0].classes[0].series.delays.len(), delays, "{more}");
            assert_eq!(report.flows[0].delivered.len(), flows, "{more}");
        }
    }
}

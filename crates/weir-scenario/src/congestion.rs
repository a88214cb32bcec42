//! Which congestion control a TCP flow has, and whose it is: the simulator has its own, the lab the kernel's.

use crate::lab::WhyNot;
use crate::scenario::{CongestionControl, Scenario};
use std::collections::BTreeMap;
use weir_report::{FlowKind, RunKind};

/// Which congestion control the TCP flows have in the simulator or in the lab, in a sentence; none
/// without TCP flows. Whether the kernel offers it shows on the machine of the lab.
///
/// # Errors
/// The simulator's TCP does not have what a flow asks for.
pub fn congestion(scenario: &Scenario, at: RunKind) -> Result<Option<String>, WhyNot> {
    let mut by_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (index, flow) in scenario.flows.iter().enumerate().filter(|(_, flow)| flow.kind == FlowKind::Tcp) {
        if at == RunKind::Sim && flow.cc != CongestionControl::Reno {
            return Err(WhyNot(format!(
                "flow {}: the simulator's TCP has no {} yet; write cc = \"reno\", or run the scenario with `weir lab`",
                scenario.flow_name(index),
                flow.cc.name()
            )));
        }
        by_name.entry(flow.cc.name()).or_default().push(scenario.flow_name(index));
    }
    if by_name.is_empty() {
        return Ok(None);
    }
    let several = by_name.len() > 1;
    let each = by_name.iter().map(|(name, flows)| match several {
        true => format!("{name} ({})", flows.join(", ")),
        false => (*name).to_string(),
    });
    let each: Vec<String> = each.collect();
    let (place, whose) = match at {
        RunKind::Sim => ("the simulator", "its own"),
        RunKind::Lab => ("the lab", "the kernel's"),
    };
    Ok(Some(format!("TCP in {place}: {whose} {}", each.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_says_which_congestion_control_it_runs() {
        let head = "duration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                    [[link]]\na = \"a\"\nb = \"b\"\nrate = \"1M\"\n";
        let read = |more: &str| Scenario::from_toml("x.toml", &format!("{head}{more}")).unwrap();
        let (reno, cubic) =
            ("[[flow]]\nfrom = \"a\"\nto = \"b\"\n", "[[flow]]\nfrom = \"a\"\nto = \"b\"\ncc = \"cubic\"\n");
        let said = |more: &str, at| congestion(&read(more), at).map_err(|why| why.0);
        assert_eq!(said("", RunKind::Sim), Ok(None));
        assert_eq!(said(reno, RunKind::Sim).unwrap().unwrap(), "TCP in the simulator: its own reno");
        assert_eq!(said(reno, RunKind::Lab).unwrap().unwrap(), "TCP in the lab: the kernel's reno");
        let both = format!("{reno}{cubic}");
        assert_eq!(
            said(&both, RunKind::Lab).unwrap().unwrap(),
            "TCP in the lab: the kernel's cubic (f2), reno (f1)"
        );
        assert!(
            said(&both, RunKind::Sim).unwrap_err().starts_with("flow f2: the simulator's TCP has no cubic")
        );
    }
}

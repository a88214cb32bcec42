//! Whether a scenario fits the configurations of its ports: the classes that it names are there.

use crate::read::{nearest, of_problems};
use crate::scenario::Scenario;
use crate::validate::Problem;
use std::collections::HashSet;
use weir_report::Measure;
use weir_text::Diagnostics;

impl Scenario {
    /// What configurations decide: whether every class that the scenario names is one. `classes` are
    /// those of each port, in the order of the file.
    ///
    /// # Errors
    /// Each name that is none, with its place and the nearest one.
    pub fn fits(&self, classes: &[Vec<String>]) -> Result<(), Diagnostics> {
        let mut problems = Vec::new();
        let sets: Vec<HashSet<&str>> =
            classes.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
        let mut unknown = |table, index, key, name: &str, ports: &[usize]| {
            if ports.iter().any(|&port| sets.get(port).is_some_and(|set| set.contains(name))) {
                return;
            }
            let of: Vec<&str> = ports.iter().flat_map(|&p| classes[p].iter().map(String::as_str)).collect();
            let at = match ports {
                [] => " because there is no managed port".to_string(),
                [port] => format!(" at port {}", self.ports[*port].name()),
                _ => " at any port".to_string(),
            };
            let message = format!("there is no class `{name}`{at}");
            problems.push(Problem { table, index, key, message, help: nearest(name, &of) });
        };
        let every: Vec<usize> = (0..classes.len()).collect();
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some(class) = &flow.class {
                unknown("flow", index, "class", class, &every);
            }
        }
        for (index, expect) in self.expects.iter().enumerate() {
            if expect.what.of_flows() || expect.what == Measure::Utilisation {
                continue;
            }
            let named = expect.port.as_ref();
            let port = named.map_or(Some(0), |name| self.ports.iter().position(|port| port.name() == *name));
            let Some(port) = port.filter(|port| *port < classes.len()) else { continue };
            let names = expect.class.iter().map(|name| ("class", name));
            let names = names.chain(expect.classes.iter().map(|name| ("classes", name)));
            for (key, name) in names.chain(expect.per.iter().map(|name| ("per", name))) {
                unknown("expect", index, key, name, &[port]);
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(of_problems(self, problems)) }
    }

    /// True if `name` means a flow: all copies of it, or one copy.
    pub(crate) fn is_flow(&self, name: &str) -> bool {
        let called = |name: &str| {
            let unnamed = name.strip_prefix('f').and_then(|n| n.parse::<usize>().ok());
            self.flows.iter().enumerate().find(|(index, flow)| match flow.name.is_empty() {
                false => flow.name == name,
                true => unnamed == Some(index + 1) && self.flow_name(*index) == name,
            })
        };
        let copy = |(base, number): (&str, &str)| {
            let number = number.parse::<u32>().ok().filter(|n| n.to_string() == number)?;
            let (_, flow) = called(base)?;
            (flow.count > 1 && (1..=flow.count).contains(&number)).then_some(())
        };
        called(name).is_some() || name.rsplit_once('.').and_then(copy).is_some()
    }
}

//! Ports as their configurations describe them.

use crate::{Built, Error, Options, run_with};
use weir_conf::Plan;
use weir_core::queue::Link;
use weir_core::sched::Registry;
use weir_report::Report;
use weir_scenario::Scenario;

/// Edges draw from streams of their own.
const EDGE_SEED: u64 = 0x6564_6765;

/// Runs a scenario.
///
/// # Errors
/// What is wrong with a configuration, with its place; flows that have no way; features that
/// the simulator does not have.
pub fn run(scenario: &Scenario, options: Options<'_>) -> Result<Report, Error> {
    run_registered(scenario, options, &Registry::builtin())
}

/// Runs a scenario with disciplines of one's own.
///
/// # Errors
/// As `run`.
pub fn run_registered(
    scenario: &Scenario,
    options: Options<'_>,
    registry: &Registry,
) -> Result<Report, Error> {
    let mut notes = Vec::new();
    let mut build = |index, link| port(scenario, index, link, registry, &mut notes);
    let mut report = run_with(scenario, options, &mut build)?;
    report.meta.notes.extend(notes);
    Ok(report)
}

fn port(
    scenario: &Scenario,
    index: usize,
    link: Link,
    registry: &Registry,
    notes: &mut Vec<String>,
) -> Result<Built, Error> {
    let port = &scenario.ports[index];
    let (file, text) = scenario.configuration(index).map_err(|error| {
        Error::Input(format!("port {}: its configuration cannot be read: {error}", port.name()))
    })?;
    let plan = plan(&file, &text, registry, notes)?;
    let view = plan
        .interface(port.interface.as_deref().unwrap_or_default())
        .map_err(|error| Error::Input(error.to_string()))?;
    let built = view.build(registry, link).map_err(|error| Error::Input(error.to_string()))?;
    notes.extend(built.warnings.iter().map(ToString::to_string));
    if let Some(bandwidth) = view.bandwidth
        && bandwidth != link.rate
    {
        notes.push(format!(
            "port {}: {file} says bandwidth {bandwidth}, the scenario's link has {}; the link is what is simulated",
            port.name(),
            link.rate
        ));
    }
    let discipline = view.discipline.as_ref().map_or("fifoq", |queue| &queue.name);
    let edge = view
        .edge(registry, &built.tree.leaves, EDGE_SEED ^ scenario.seed.wrapping_add(index as u64))
        .map_err(|error| Error::Input(error.to_string()))?;
    Ok(Built { plan: built.port_plan(link), discipline: discipline.to_string(), edge })
}

fn plan(file: &str, text: &str, registry: &Registry, notes: &mut Vec<String>) -> Result<Plan, Error> {
    let outcome = weir_conf::read(file, text, registry);
    let said = |all: &[weir_conf::Diagnostic]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    match outcome.plan {
        Some(plan) => {
            notes.extend(said(&outcome.diagnostics));
            Ok(plan)
        }
        None => Err(Error::Input(said(&outcome.diagnostics).join("\n"))),
    }
}

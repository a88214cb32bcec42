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
    let mut build = builder(scenario, options.seed, registry, &mut notes);
    let mut report = run_with(scenario, options, &mut build)?;
    drop(build);
    report.meta.notes.extend(notes);
    Ok(report)
}

/// What builds the ports of a run, perhaps with another seed than the scenario's.
fn builder<'a>(
    scenario: &'a Scenario,
    seed: Option<u64>,
    registry: &'a Registry,
    notes: &'a mut Vec<String>,
) -> impl FnMut(usize, Link) -> Result<Built, Error> {
    let seed = seed.unwrap_or(scenario.seed);
    move |index, link| port(scenario, seed, index, link, registry, notes)
}

fn port(
    scenario: &Scenario,
    seed: u64,
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
        .edge(registry, &built.tree.leaves, EDGE_SEED ^ seed.wrapping_add(index as u64))
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::units::Rate;

    /// The edge of a port draws by the seed of the run, and so differs with `--seed`.
    #[test]
    fn an_edge_draws_by_the_seed_of_the_run() {
        let text = "interface lan0\ninterface em0 bandwidth 10M attach bridge lan0 priq\n\
                    class priq em0 rest NULL default\nrecognise lan0 rtp 4/2s\n\
                    sla lan0 17 10.0.0.1/32 bw 600K policy be\n";
        let scenario = Scenario::from_toml(
            "x.toml",
            &format!(
                "duration = \"1s\"\nseed = 7\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
                 [[link]]\na = \"a\"\nb = \"box\"\nrate = \"1G\"\n[[link]]\na = \"box\"\nb = \"b\"\nrate = \"10M\"\n\
                 [[port]]\nat = \"box\"\nto = \"b\"\ninterface = \"em0\"\ntext = \"\"\"\n{text}\"\"\"\n"
            ),
        )
        .unwrap();
        let seen = |seed: Option<u64>| {
            let (registry, mut notes) = (Registry::builtin(), Vec::new());
            let link = Link::new(Rate::from_mbps(10), 0, 1514);
            let built = builder(&scenario, seed, &registry, &mut notes)(0, link).unwrap();
            built.edge.unwrap().config.seed
        };
        assert_eq!(seen(None), EDGE_SEED ^ 7, "as it was");
        assert_eq!(seen(Some(7)), seen(None));
        assert_eq!(seen(Some(8)), EDGE_SEED ^ 8);
    }
}

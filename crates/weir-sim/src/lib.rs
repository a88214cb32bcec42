//! Virtual time: event queue, links, hosts, TCP, traffic sources, recorder.
//!
//! [`run`] takes a scenario and gives its report. The way of a packet: an application (`source`)
//! makes it, with `tcp` as a pure state machine between; `network` offers it to the egress of
//! each link on its route, which is a [`weir_core::port::Port`] where the scenario manages it
//! and a plain FIFO (`link`) where not; `event` says who acts next. What is simulated is the
//! discipline code that runs live: nothing of it is written a second time here.
//!
//! **Determinism.** A run is a function of (scenario, configurations, seed): times are integers,
//! random draws come from one seeded stream per flow, no iteration order depends on addresses
//! or hashes. The report carries a hash over the time, kind and packet of every delivery, drop
//! and mark; equal input gives an equal hash on every machine.
//!
//! **At one instant** packets that arrive come first, by the number of the link, then end
//! points and sources by the number of the flow, then completions of ports.

pub mod bench;
mod build;
mod edge;
pub mod event;
pub mod link;
mod managed;
mod media;
mod network;
mod orders;
pub mod packet;
pub mod replay;
pub mod rng;
pub mod source;
pub mod tcp;
mod trace;
mod world;

#[cfg(test)]
mod managed_tests;
#[cfg(test)]
mod port_tests;
#[cfg(test)]
mod tests;

pub use managed::{run, run_registered};

use std::fmt;
use std::io;
use weir_core::port::PortPlan;
use weir_core::queue::Link;
use weir_report::Report;
use weir_scenario::Scenario;
use weir_text::Time;

/// What a run is asked for besides its scenario.
#[derive(Default)]
pub struct Options<'a> {
    /// Instead of the scenario's seed.
    pub seed: Option<u64>,
    /// Where to write packets.csv: a line for every delivery over a link, drop and mark.
    pub packets: Option<&'a mut dyn io::Write>,
    /// Called now and then with the time reached and the run's duration.
    pub progress: Option<&'a mut dyn FnMut(Time, Time)>,
}

/// Why there is no report.
#[derive(Debug)]
pub enum Error {
    /// The scenario cannot be run as it stands: what is wrong, and how to mend it.
    Input(String),
    /// The simulator does not have what the scenario asks for.
    Unsupported(String),
    /// packets.csv could not be written.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Input(what) | Error::Unsupported(what) => f.write_str(what),
            Error::Io(error) => write!(f, "packets.csv: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// What a managed port is built from.
pub struct Built {
    /// What the port runs. The link and its ring are the scenario's.
    pub plan: PortPlan,
    /// The discipline's name, for the report.
    pub discipline: String,
    /// The edge before it, if it has one.
    pub edge: Option<weir_conf::EdgePlan>,
}

/// Runs a scenario whose managed ports are built by `build`, which gets the number of the
/// `[[port]]` and its link: for disciplines that no configuration file describes.
///
/// # Errors
/// What `build` refuses; flows that have no way; features that the simulator does not have.
pub fn run_with(
    scenario: &Scenario,
    options: Options<'_>,
    build: &mut dyn FnMut(usize, Link) -> Result<Built, Error>,
) -> Result<Report, Error> {
    let inputs = scenario.inputs_hash(&configurations(scenario)?);
    let report = build::world(scenario, options, inputs, build)?.run()?;
    let checks = weir_report::evaluate(&scenario.expects, &report);
    Ok(Report { checks, ..report })
}

fn configurations(scenario: &Scenario) -> Result<Vec<String>, Error> {
    let texts = (0..scenario.ports.len()).map(|port| {
        if scenario.ports[port].conf.is_none() && scenario.ports[port].text.is_none() {
            return Ok(String::new()); // Built by the caller.
        }
        scenario.configuration(port).map(|(_, text)| text).map_err(|error| {
            let port = &scenario.ports[port];
            let path = port.conf.clone().unwrap_or_default();
            let folder = scenario.folder.join(path);
            Error::Input(format!("port {}: cannot read {}: {error}", port.name(), folder.display()))
        })
    });
    texts.collect()
}

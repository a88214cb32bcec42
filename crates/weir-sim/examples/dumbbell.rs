//! Times the simulator: `cargo run --release -p weir-sim --example dumbbell [NAME]`.

use std::time::Instant;
use weir_sim::{Error, Options, bench};

fn main() -> Result<(), Error> {
    let wanted = std::env::args().nth(1);
    for name in bench::NAMES.iter().filter(|name| wanted.as_ref().is_none_or(|w| w == *name)) {
        let Some(scenario) = bench::scenario(name) else { continue };
        let start = Instant::now();
        let report = weir_sim::run_with(&scenario, Options::default(), &mut |_, _| {
            Err(Error::Unsupported("the dumbbell has no managed port".into()))
        })?;
        let (seconds, deliveries) = (start.elapsed().as_secs_f64(), bench::deliveries(&report));
        let goodput: f64 = report.flows.iter().map(|flow| flow.goodput_bps).sum();
        println!(
            "{name}: {deliveries} deliveries in {seconds:.3} s = {:.2} million/s; goodput {:.2} Mbit/s, hash {}",
            deliveries as f64 / seconds / 1e6,
            goodput / 1e6,
            report.meta.events.unwrap_or_default(),
        );
    }
    Ok(())
}

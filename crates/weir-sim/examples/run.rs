//! Runs a scenario file and prints its classes and checks:
//! `cargo run -p weir-sim --example run FILE [SEED]`.

use std::path::Path;
use weir_scenario::Scenario;
use weir_sim::{Options, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a scenario file")?;
    let seed = arguments.next().map(|seed| seed.parse()).transpose()?;
    let scenario = Scenario::read(Path::new(&file))?;
    let report = run(&scenario, Options { seed, ..Options::default() })?;
    let seconds = report.meta.duration_ns as f64 / 1e9;
    for port in &report.ports {
        println!("{} ({})", port.name, port.discipline);
        for class in &port.classes {
            println!(
                "  {:10} {:>8.3} Mbit/s, {} dropped, delay mean {:.3} ms, p99 {:.3} ms",
                class.name,
                class.sent.bytes as f64 * 8.0 / seconds / 1e6,
                class.dropped_in_all().packets,
                class.delay.mean_ns / 1e6,
                class.delay.p99_ns as f64 / 1e6
            );
        }
    }
    for check in &report.checks {
        let verdict = if check.pass { "pass" } else { "FAIL" };
        println!(
            "{verdict} {}: {} (expected {})",
            check.what,
            check.measured.unwrap_or(f64::NAN),
            check.expected
        );
    }
    for note in &report.meta.notes {
        println!("note: {note}");
    }
    Ok(())
}

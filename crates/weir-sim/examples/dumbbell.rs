//! Times the simulator: `cargo run --release -p weir-sim --example dumbbell [NAME]`.

use weir_sim::{Error, bench};

fn main() -> Result<(), Error> {
    let wanted = std::env::args().nth(1);
    for name in bench::NAMES.iter().filter(|name| wanted.as_ref().is_none_or(|w| w == *name)) {
        let got = bench::measure(name)?;
        let goodput: f64 = got.report.flows.iter().map(|flow| flow.goodput_bps).sum();
        println!(
            "{name}: {} deliveries in {:.3} s = {:.2} million/s, {:.1} MB, goodput {:.2} Mbit/s, hash {}",
            got.deliveries,
            got.cpu_seconds,
            got.deliveries as f64 / got.cpu_seconds / 1e6,
            got.peak_rss_bytes as f64 / 1e6,
            goodput / 1e6,
            got.report.meta.events.unwrap_or_default(),
        );
    }
    Ok(())
}

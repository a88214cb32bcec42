//! 100,000 subscribers on a link of 40 Gbit/s that 16 cores share, in virtual time.
//!
//! `cargo run --release -p weir-bench --example many_cores [SEED]`

use std::process::ExitCode;
use weir_bench::cores::{Run, Setting, Stalls, Town, Wrong, run};
use weir_core::units::Rate;

const RATE: Rate = Rate::from_mbps(40_000);
const SUBSCRIBERS: u32 = 100_000;
const SITES: u32 = 100;
const MS: u64 = 1_000_000;

fn line(name: &str, run: &Run) {
    println!(
        "{name:28} {:5.2} {:6.1} {:5.2} {:5.2} {:5.2} {:5.2} {:5.2} {:6.3} {:5.2} {:6} {:5.2} {:5.2} {:6}",
        run.packets as f64 / 1e6,
        100.0 * run.used,
        run.above,
        run.below,
        run.sites,
        run.other_sites,
        run.subscribers,
        run.calls,
        run.lock,
        run.lock_wait_ns,
        run.busy,
        run.busiest,
        run.lost
    );
}

fn measure(seed: u64) -> Result<(), String> {
    let usual = Setting::usual(seed, 16, RATE, 30 * MS);
    println!(
        "seed {seed}. Packets in millions, the link used in %. Then the most that was seen, of the bound: above the rate,"
    );
    println!(
        "below it, sites, sites without the first core's, subscribers. Then calls of the link per packet, the share of"
    );
    println!(
        "time that its lock is taken, the longest wait for it (ns), how busy cores are, the busiest, and frames lost."
    );
    println!(
        "{:28} {:>5} {:>6} {:>5} {:>5} {:>5} {:>5} {:>5} {:>6} {:>5} {:>6} {:>5} {:>5} {:>6}",
        "",
        "Mpkt",
        "used %",
        "above",
        "below",
        "sites",
        "other",
        "subs",
        "calls",
        "lock",
        "waitns",
        "busy",
        "most",
        "lost"
    );
    let overload = Town::new(seed, RATE, SUBSCRIBERS, SITES, None);
    let stalls = Stalls { every_ns: 2 * MS, longest_ns: 200_000, first: None };
    let stands = Stalls { first: Some((5 * MS, 5 * MS)), ..Stalls::default() };
    let settings = [
        ("16 cores", usual.clone()),
        ("quantum 8 kB", Setting { quantum_bytes: 8_000, ..usual.clone() }),
        ("quantum 128 kB", Setting { quantum_bytes: 128_000, depth_bytes: 1_024_000, ..usual.clone() }),
        ("all stand still at times", Setting { stalls, ..usual.clone() }),
        ("the first stands 5 ms", Setting { stalls: stands, ..usual.clone() }),
        ("wrong: twice what is lent", Setting { wrong: Wrong::Double, ..usual.clone() }),
        ("wrong: ten quanta", Setting { wrong: Wrong::Tenfold, ..usual.clone() }),
        ("wrong: a liar", Setting { wrong: Wrong::Liar, ..usual.clone() }),
        ("wrong: nothing back", Setting { wrong: Wrong::Kept, ..usual.clone() }),
    ];
    for (name, setting) in settings {
        line(name, &run(&overload, &setting)?);
    }
    let modest = Town::new(seed, RATE, SUBSCRIBERS, SITES, Some(90));
    line("load of 0.9", &run(&modest, &usual)?);
    Ok(())
}

fn main() -> ExitCode {
    let seed = std::env::args().nth(1).map_or(Ok(20), |word| word.parse::<u64>());
    match seed.map_err(|_| "SEED: a whole number".to_owned()).and_then(measure) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

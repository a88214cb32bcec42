//! The lab's nodes by themselves, for this crate's own tests; elsewhere they are `weir lab-node`.
//!
//! `hold` builds a small testbed, prints the processes of its nodes, and waits to be killed.
//! `bench ROUNDS [ROW...]` measures the data plane beside the kernel's.
//! `run SCENARIO` runs one live and prints its report as JSON.

use std::process::ExitCode;
use weir_lab::Program;
use weir_lab::bed::{Bed, BedHost, BedPlan};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "hold") {
        return hold();
    }
    if let [run, path] = arguments.as_slice()
        && run == "run"
    {
        return report(path);
    }
    if let [bench_, rounds, rows @ ..] = arguments.as_slice()
        && bench_ == "bench"
    {
        return bench(rounds, rows);
    }
    match weir_lab::node(&weir_core::sched::Registry::builtin(), &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn bench(rounds: &str, rows: &[String]) -> ExitCode {
    let rounds = rounds.parse().unwrap_or(3);
    let done = this().and_then(|program| {
        let rows = weir_lab::bench::Rows::of(rows)?;
        let mut say = |what: &str| eprintln!("{what}");
        weir_lab::bench::bench(&rows, rounds, &program, &mut say).map_err(|e| e.to_string())
    });
    match done {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn this() -> Result<Program, String> {
    Program::this().map(|p| Program { arguments: Vec::new(), ..p }).map_err(|e| e.to_string())
}

fn report(path: &str) -> ExitCode {
    let done = weir_scenario::Scenario::read(path.as_ref()).map_err(|e| e.to_string()).and_then(|scenario| {
        let options = weir_lab::Options { program: Some(this()?), ..weir_lab::Options::default() };
        let report = weir_lab::run(&scenario, &options).map_err(|e| e.to_string())?;
        serde_json::to_string(&report).map_err(|e| e.to_string())
    });
    match done {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn hold() -> ExitCode {
    let host = |name: &str, last| BedHost {
        name: name.into(),
        address: [10, 0, 0, last].into(),
        address6: None,
        settings: Vec::new(),
    };
    let plan = BedPlan {
        sides: vec![vec![host("a", 1)], vec![host("b", 2)]],
        mtu: 1500,
        offloads: false,
        hosts_cpu: None,
    };
    let built = this().and_then(|p| Bed::build(&plan, &p).map_err(|e| e.to_string()));
    let mut bed = match built {
        Ok(bed) => bed,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::FAILURE;
        }
    };
    let pids: Vec<String> = bed.pids().iter().map(u32::to_string).collect();
    println!("{}", pids.join(" "));
    std::thread::sleep(std::time::Duration::from_secs(20));
    ExitCode::SUCCESS
}

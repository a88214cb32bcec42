//! Weir's rows beside DPDK's on the same work, in turns: processor time, so that a busy machine does not count. `make bench-peers` builds the other program (`scripts/peers.c`)
//! and runs this on one processor.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use weir_bench::{Bed, Row, bed};
use weir_core::sched::Registry;
use weir_sys::thread_cpu;

/// Weir's row, DPDK's, and packets of a round. As many go before them that do not count, because the other program has had the caches.
const ROWS: &[(&str, &str, u32)] = &[
    ("tree-4096x4/random", "sched", 16_384),
    ("tree-4096x4/random", "sched-16", 16_384),
    ("tree-4096x4-red/random", "sched-red", 16_384),
    ("meter-trtcm", "meter", 131_072),
    ("classify-1000", "acl", 131_072),
];
const ROUNDS: usize = 201;
/// Rounds before those that count: queues settle.
const WARM: usize = 10;

/// The other program.
struct Peer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(program: &str) -> Result<Peer, String> {
        let mut command = Command::new(program);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{program} does not start: {error}"))?;
        let out = child.stdout.take().ok_or("it has no output")?;
        Ok(Peer { child, answers: BufReader::new(out) })
    }
    /// Nanoseconds per packet of `row`, the second time.
    fn run(&mut self, row: &str, packets: u32) -> Result<f64, String> {
        self.ask(row, packets)?;
        self.ask(row, packets)
    }
    fn ask(&mut self, row: &str, packets: u32) -> Result<f64, String> {
        let words = |error: std::io::Error| format!("the other program has ended: {error}");
        let to = self.child.stdin.as_mut().ok_or("it has no input")?;
        writeln!(to, "{row} {packets}").and_then(|()| to.flush()).map_err(words)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(words)?;
        answer.trim().parse().map_err(|_| format!("{row}: {}", answer.trim()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // At the end of its input it ends by itself.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the other program does not end: {error}");
        }
    }
}

fn own_ns(bed: &mut dyn Bed, packets: u32) -> Result<f64, String> {
    bed.pairs(packets)?;
    let start = thread_cpu();
    bed.pairs(packets)?;
    Ok(thread_cpu().saturating_sub(start).as_nanos() as f64 / f64::from(packets))
}

/// Median and quartiles.
fn spread(mut list: Vec<f64>) -> String {
    list.sort_by(f64::total_cmp);
    let at = |quarters: usize| list[(list.len() - 1) * quarters / 4];
    format!("{:>7.2} ({:.2} to {:.2})", at(2), at(1), at(3))
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn measure(program: &str) -> Result<(), String> {
    let registry = Registry::builtin();
    let mut peer = Peer::start(program)?;
    println!(
        "nanoseconds of processor time per packet: median of {ROUNDS} rounds, and quartiles. Load at the start: {}",
        load()
    );
    println!("| Weir | ns | DPDK | ns | Weir / DPDK |\n|---|---|---|---|---|");
    for &(own, other, packets) in ROWS {
        let mut bed = bed(&registry, &own.parse::<Row>()?)?;
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..WARM + ROUNDS {
            // Who is first in a round is second in the next one.
            let first = if round % 2 == 0 { None } else { Some(peer.run(other, packets)?) };
            let mine = own_ns(&mut *bed, packets)?;
            let their = first.map_or_else(|| peer.run(other, packets), Ok)?;
            if round >= WARM {
                ours.push(mine);
                theirs.push(their);
                ratios.push(mine / their);
            }
        }
        println!("| {own} | {} | {other} | {} | {} |", spread(ours), spread(theirs), spread(ratios));
    }
    println!("Load at the end: {}", load());
    Ok(())
}

fn main() -> ExitCode {
    let program = std::env::args().nth(1);
    match program
        .ok_or("the path of the other program: run it by `make bench-peers`".into())
        .and_then(|p| measure(&p))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

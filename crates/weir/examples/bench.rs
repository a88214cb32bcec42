//! `weir bench` by itself: `cargo run --release -p weir --example bench -- fifo cbq-20`.

#[path = "../src/bench/mod.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod bench;

#[global_allocator]
static ALLOCATOR: weir_io::allocations::Counting = weir_io::allocations::Counting;

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (json, names): (Vec<String>, Vec<String>) =
        args.into_iter().partition(|a| a == "-j" || a == "--json");
    bench::run(&names, !json.is_empty())
}

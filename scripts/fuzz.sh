#!/bin/sh
# Runs every fuzz target, or those that are named, under libFuzzer: SECONDS_EACH (60) seconds each.
# What it finds to be new goes to target/fuzz/TARGET, what breaks a law to target/fuzz/found.
set -eu
cd "$(dirname "$0")/.."

seconds=${SECONDS_EACH:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
# What cargo-fuzz passes: counters at every edge, and the operands of comparisons.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-inline-8bit-counters"
coverage="$coverage -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="--cfg fuzzing $coverage" cargo build --quiet --release \
    --manifest-path fuzz/Cargo.toml --target "$host" --target-dir target/fuzz/build
fuzzer=$PWD/target/fuzz/build/$host/release/weir-libfuzzer
mkdir -p target/fuzz/found

targets=${*:-$(ls crates/weir-fuzz/corpus)}
failed=
for target in $targets; do
    mkdir -p "target/fuzz/$target"
    echo "fuzz: $target for $seconds s"
    log=target/fuzz/$target.log
    if WEIR_TARGET=$target "$fuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=16384 \
        -artifact_prefix="target/fuzz/found/$target-" "target/fuzz/$target" "crates/weir-fuzz/corpus/$target" \
        >"$log" 2>&1; then
        grep -E '^Done|stat::number_of_executed' "$log" | tail -1
    else
        failed="$failed $target"
        grep -vE '^#|^INFO|^==|^ *#' "$log" | tail -20
    fi
done
if [ -n "$failed" ]; then
    echo "fuzz: broke a law:$failed; inputs in target/fuzz/found: put each into crates/weir-fuzz/corpus/TARGET" >&2
    exit 1
fi

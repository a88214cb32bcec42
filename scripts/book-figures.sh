#!/bin/sh
# Draws the book's figures: each scenario of book/figures, whose first line names the plot to keep.
set -eu
cd "$(dirname "$0")/.."
weir=$1
mkdir -p book/src/figures
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for scenario in book/figures/*.toml; do
    name=$(basename "$scenario" .toml)
    plot=$(sed -n '1s/^# plot: //p' "$scenario")
    "$weir" sim "$scenario" --out "$out/$name" >"$out/$name.txt" || { cat "$out/$name.txt"; exit 1; }
    cp "$out/$name/$plot.svg" "book/src/figures/$name.svg"
done
echo "$(ls book/src/figures | wc -l) figures in book/src/figures"

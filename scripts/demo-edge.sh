#!/bin/sh
# Calls on a full link: simulated, then live with real packets. For ten seconds nobody looks; then the edge does.
set -eu
cd "$(dirname "$0")/.."
weir=$1
scenario=examples/calls.toml
out=out/demo-edge
mkdir -p "$out"

echo "== the configuration: examples/calls.altq"
cat examples/calls.altq
echo
echo "== simulated: five calls, a sixth, a liar, four uploads and 16 Mbit/s of best effort on 10 Mbit/s"
"$weir" sim "$scenario" --out "$out/sim" --all
if [ "$(id -u)" != 0 ]; then
    echo
    echo "== not root: the live half needs network namespaces; run 'sudo make demo-edge' to see it"
    exit 0
fi
echo
echo "== live: network namespaces, real packets, headers of RTP (about 45 seconds)"
"$weir" lab "$scenario" --out "$out/lab" --all
echo
echo "== live beside simulated"
"$weir" compare "$out/sim/report.json" "$out/lab/report.json" --out "$out"
echo
echo "Plots of both runs on top of each other: $out/*.svg; of each alone: $out/sim/*.svg, $out/lab/*.svg"
echo "rate.svg shows the calls' class grow from the tenth second on; allocation.svg what it uses of what it has"

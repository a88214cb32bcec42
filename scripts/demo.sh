#!/bin/sh
# Four TCP flows of two agencies share a link: live with the kernel's TCP, and simulated.
set -eu
cd "$(dirname "$0")/.."
weir=$1
scenario=examples/two-agencies.toml
out=out/demo
mkdir -p "$out"

echo "== the configuration: examples/two-agencies.altq"
cat examples/two-agencies.altq
echo
echo "== simulated"
"$weir" sim "$scenario" --out "$out/sim"
if [ "$(id -u)" != 0 ]; then
    echo
    echo "== not root: the live half needs network namespaces; run 'sudo make demo' to see it"
    exit 0
fi
echo
echo "== live: network namespaces, real packets, the kernel's own TCP (about 50 seconds)"
"$weir" lab "$scenario" --out "$out/lab"
echo
echo "== live beside simulated"
"$weir" compare "$out/sim/report.json" "$out/lab/report.json" --out "$out"
echo
echo "Plots of both runs on top of each other: $out/*.svg; of each alone: $out/sim/*.svg, $out/lab/*.svg"

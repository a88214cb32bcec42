#!/bin/sh
# Cargo's runner of test binaries in `make test`: runs BINARY if it belongs to the lane, and passes over it otherwise.
# Usage: scripts/lane.sh timed|computed|randomised BINARY [ARGUMENT...]
set -eu
lane=$1
shift
name=$(basename "$1")
name=${name%-*} # without cargo's hash

# Crates whose tests measure time, on links and sockets.
case $CARGO_PKG_NAME in
weir | weir-sys | weir-io | weir-engine | weir-lab | weir-broker) of=timed ;;
*) of=computed ;;
esac

# Every test that draws from weir-seed, and the others of the same binaries. They hold for any seed.
if [ "$lane" = randomised ]; then
    case $name in
    own_discipline | weir_core | weir_edge | weir_testkit | weir_conf | weir_scenario | weir_report | weir_sim | weir_io | weir_broker | weir_fuzz) of=$lane ;;
    conformance | jobs_promises | jobs_elsewhere | jobs_model | child | conditioned | allocations | models) of=$lane ;;
    mutants | spread | late | statistics | bucket | allocator | laws | damaged | generated | two_bit | targets | by_hand | recognise | aggregate | strangers) of=$lane ;;
    esac
    case $CARGO_PKG_NAME/$name in weir-edge/edge) of=$lane ;; esac
fi

[ $of = "$lane" ] || exit 0
# An etcd of three nodes measures time, and is fed by no seed.
[ "$lane" = randomised ] && [ "$name" = weir_broker ] && set -- "$@" --skip etcd::
# Live tests of the command wait most of their time, so four at once.
[ "$lane" = timed ] && [ "$CARGO_PKG_NAME" = weir ] && set -- "$@" --test-threads=4
exec "$@"

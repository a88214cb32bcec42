#!/bin/sh
# Installs what is missing and says so first. Usage: scripts/setup.sh build|demo|media|fuzz|peers|features
# build: a C linker, protoc with its own types for the broker's store on etcd, and the Rust toolchain. demo: besides, iproute2 and iptables for the
# live part, tshark, which reads what is written for others, faketime, which steps the clock of a process, valgrind, which
# counts instructions, and etcd, on which brokers are killed.
# media: besides, programs that make calls and streams, and aiortc in target/media.
# fuzz: besides, a C++ compiler, because libFuzzer is built from source.
# peers: besides, DPDK with its headers, some 230 small packages.
# features: installs nothing, and prints what cargo is to build besides.
set -eu
cd "$(dirname "$0")/.."

has_protoc() { # protoc with its own types, which are a package that Debian only recommends beside it
    at=$(command -v protoc 2>/dev/null) && [ -e "$(dirname "$(dirname "$(readlink -f "$at")")")/include/google/protobuf/descriptor.proto" ]
}
if [ "${1:-build}" = features ]; then
    has_protoc && echo "--features weir/etcd"
    exit 0
fi

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo "$@"; else return 1; fi
}

updated=no
debian() { # debian COMMAND|FILE PACKAGE: install PACKAGE if COMMAND or FILE is not there
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] && return 0
    command -v apt-get >/dev/null 2>&1 || { echo "setup: please install $1 (no apt-get here)" >&2; return 1; }
    echo "setup: installing $2 (for $1) with apt-get" >&2
    [ $updated = yes ] || { as_root apt-get update -qq && updated=yes; }
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >&2
}

debian cc gcc
has_protoc || { debian protoc protobuf-compiler && debian /usr/include/google/protobuf/descriptor.proto libprotobuf-dev && has_protoc; } ||
    echo "setup: going on without protoc: the broker is built without its store on etcd" >&2
debian /usr/include/stdio.h libc6-dev

PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null 2>&1; then
    if apt-cache show rustup >/dev/null 2>&1 || { as_root apt-get update -qq && apt-cache show rustup >/dev/null 2>&1; }; then
        echo "setup: installing rustup with apt-get; it fetches the toolchain that rust-toolchain.toml names" >&2
        as_root apt-get install -y -qq rustup >&2
    else
        debian curl curl
        dpkg -s ca-certificates >/dev/null 2>&1 || as_root apt-get install -y -qq ca-certificates >&2
        echo "setup: installing rustup with its own installer into ~/.cargo; it fetches the toolchain that rust-toolchain.toml names" >&2
        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain none >&2
    fi
fi
cargo --version >/dev/null # rustup fetches the pinned toolchain here

if [ "${1:-build}" = demo ] && [ "$(id -u)" = 0 ]; then
    debian ip iproute2
    debian iptables iptables
    debian tshark tshark || echo "setup: going on without tshark" >&2
    debian faketime faketime || echo "setup: going on without faketime" >&2
    debian etcd etcd-server || echo "setup: going on without etcd: the tests of the broker's store on it skip themselves" >&2
    debian valgrind valgrind || echo "setup: going on without valgrind: the test of instructions skips itself" >&2
fi
if [ "${1:-build}" = media ]; then
    debian ip iproute2
    debian tcpdump tcpdump
    debian baresip baresip-core
    debian sipp sip-tester
    debian ffmpeg ffmpeg
    debian gst-launch-1.0 gstreamer1.0-tools
    for set in base good; do
        dpkg -s gstreamer1.0-plugins-$set >/dev/null 2>&1 || debian gstreamer1.0-plugins-$set gstreamer1.0-plugins-$set
    done
    if ! [ -x target/media/bin/pip ]; then
        dpkg -s python3-venv >/dev/null 2>&1 || debian python3-venv python3-venv
        python3 -m venv target/media
    fi
    target/media/bin/python -c 'import aiortc' 2>/dev/null || target/media/bin/pip --quiet install aiortc
fi
if [ "${1:-build}" = peers ]; then
    debian pkg-config pkgconf
    debian taskset util-linux
    debian /usr/include/dpdk/rte_sched.h libdpdk-dev
fi
if [ "${1:-build}" = fuzz ]; then
    debian c++ g++
fi

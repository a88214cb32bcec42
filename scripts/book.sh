#!/bin/sh
# Renders the book into target/book with mdBook, and checks every link of what came out.
# mdBook is built once, without optimisation, into target/: less than a minute on two processors.
set -eu
cd "$(dirname "$0")/.."
version=0.5.4
tools=target/mdbook-$version
if ! [ -x $tools/bin/mdbook ]; then
    echo "book: building mdBook $version into $tools, once" >&2
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$tools/build \
        cargo install mdbook --version $version --locked --debug --no-default-features --features search --quiet --root $tools
    rm -rf $tools/build
fi
# A missing include is only a line in mdBook's log.
log=$($tools/bin/mdbook build book 2>&1) || { echo "$log" >&2; exit 1; }
if echo "$log" | grep -E 'WARN|ERROR' >&2; then exit 1; fi
cargo xtask links target/book

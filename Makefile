# make demo        install what is missing, build, share a link live and simulated, print both
# make demo-edge   calls on a full link: lost among the rest, then found, admitted and kept apart
# make test        everything that must hold, as CI runs it
# make mutants     small mistakes in weir-core: which do the tests notice? (SAMPLE=300 SEED=1)
# make bench       nanoseconds per packet of every discipline, and the simulator's speed
# make bench-peers Weir's rows beside DPDK's rte_sched, rte_meter and rte_acl on the same work, in turns (installs libdpdk-dev)
# make bench-live  the live bridge beside the kernel's own forwarding (root)
# make accuracy    rates, bursts and delay of `weir up` beside htb, some 8 minutes (root)
# make soak        faults under load on `weir up` in namespaces, and the book's page of them (root; MINUTES=15 SEED=20)
# make corpus      nDPI's test captures, fetched: which flows are found to be real-time, beside tshark and ndpiReader
# make media       calls and streams of baresip, sipp, ffmpeg, GStreamer and aiortc through `weir up` (root)
# make histories   a million random histories of edges and brokers: no invariant breaks, wherever a broker stops (TIMES=300, by 3,500)
# make failover    a broker or a node of etcd is killed 100 times under load: no grant is lost or given twice (TIMES=20, by 5)
# make fuzz        every way in under libFuzzer, a minute each (SECONDS_EACH=60)
# make book        pages of disciplines from their sources, the book's figures, and its HTML in target/book

SHELL := /bin/sh
# Cargo would look for make's job server, which a recipe has only by `+`.
unexport MAKEFLAGS MFLAGS
export PATH := $(HOME)/.cargo/bin:$(PATH)
WEIR := $(or $(CARGO_TARGET_DIR),target)/release/weir

# The broker's store on etcd is a cargo feature, because it needs protoc to build.
ETCD := $$(scripts/setup.sh features)

# One choice of packages and features for all that `make test` builds: another choice would build most of it again.
ALL := --workspace $(ETCD)
BUILT := $(or $(CARGO_TARGET_DIR),target)/debug

# The tests of one lane: scripts/lane.sh runs those binaries that belong to it and passes over the others.
lane = cargo test $(ALL) --tests --quiet --config "target.'cfg(unix)'.runner=['$(CURDIR)/scripts/lane.sh','$(1)']"

.PHONY: demo demo-edge test test-timed test-computed test-randomised failover histories mutants fuzz corpus media soak bench bench-peers bench-live accuracy book build setup

setup:
	@scripts/setup.sh build

build: setup
	cargo build --release --quiet --package weir $(ETCD)

demo:
	@scripts/setup.sh demo
	cargo build --release --package weir $(ETCD)
	@scripts/demo.sh $(WEIR)

demo-edge:
	@scripts/setup.sh demo
	cargo build --release --package weir $(ETCD)
	@scripts/demo-edge.sh $(WEIR)

# First everything is compiled. Then two lanes run side by side: what measures time, on links and sockets, and waits most of
# it; and what computes, at a lower priority, so that it takes only the time that the other waits. The figures of experiments
# are those of a release, which would take longer to build than it saves.
test:
	@scripts/setup.sh demo
	cargo fmt --all --check
	cargo xtask tidy
	cargo clippy $(ALL) --all-targets --quiet -- -D warnings
	cargo clippy --package weir-broker --quiet -- -D warnings
	cargo test $(ALL) --quiet --no-run
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line test-timed test-computed

test-timed:
	$(call lane,timed)

test-computed:
	nice $(call lane,computed)
	nice cargo test $(ALL) --doc --quiet
	@seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "the randomised tests again with a fresh seed: $$seed"; \
	nice $(MAKE) --no-print-directory test-randomised WEIR_SEED=$$seed || { echo "repeat it: make test-randomised WEIR_SEED=$$seed"; exit 1; }
	RUSTDOCFLAGS="-D warnings" nice cargo doc $(ALL) --no-deps --quiet
	nice "$(BUILT)/weir" experiment run --all --no-bench
	@nice scripts/book.sh

test-randomised: export WEIR_SEED := $(or $(WEIR_SEED),20)
test-randomised:
	$(call lane,randomised)

corpus: build
	@scripts/corpus.sh $(WEIR)

soak:
	@scripts/setup.sh demo
	WEIR_SOAK=$(or $(MINUTES),15) WEIR_SEED=$(or $(SEED),20) WEIR_SOAK_PAGE=$(CURDIR)/book/src/soak.md \
	cargo test -p weir --test soak -- --nocapture traffic_survives

media:
	@scripts/setup.sh media
	cargo test -p weir --test command -- --nocapture media_of_other

fuzz:
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh

failover:
	@scripts/setup.sh demo
	WEIR_EFFORT=$(or $(TIMES),20) cargo test -p weir-broker --features etcd --lib -- --nocapture --test-threads=1 failover

histories:
	WEIR_EFFORT=$(or $(TIMES),300) cargo test --release -p weir-broker --lib -- --nocapture --test-threads=1 the_invariants_hold

mutants: setup
	cargo xtask mutants --sample $(or $(SAMPLE),300) --seed $(or $(SEED),1)

bench: build
	$(WEIR) bench
	$(WEIR) bench sim

# The two programs take turns on one processor. Everything is as fast as it can be built for this machine.
PEERS := $(or $(CARGO_TARGET_DIR),target)/peers
bench-peers:
	@scripts/setup.sh peers
	@mkdir -p $(PEERS)
	cc -D_GNU_SOURCE -std=gnu11 -O3 $$(pkg-config --cflags libdpdk) -march=native -Wno-deprecated-declarations -o $(PEERS)/dpdk scripts/peers.c $$(pkg-config --libs libdpdk)
	RUSTFLAGS="-C target-cpu=native" cargo build --release --quiet --package weir-bench --example peers --target-dir $(PEERS)
	taskset -c $$(($$(nproc) - 1)) $(PEERS)/release/examples/peers $(PEERS)/dpdk

bench-live: build
	@scripts/setup.sh demo
	$(WEIR) bench live

accuracy: build
	@scripts/setup.sh demo
	$(WEIR) bench accuracy

book: build
	cargo xtask book
	@scripts/book-figures.sh $(WEIR)
	@scripts/book.sh

//! The suite tested: each mutant breaks one law, and must be caught for it.

mod bands;

use bands::{Mutation, Mutation as M, registry};
use weir_core::queue::Link;
use weir_core::sched::{ClassConfig, Node, Registry};
use weir_core::units::Rate;
use weir_testkit::{conformance, hostile};

/// A draw that no seed decides shows in the first run that it leads elsewhere, or breaks a promise at once.
const COINS: &[&str] = &[
    "led elsewhere",
    "head and take differ",
    "changed what came after",
    "neither gave nor dropped",
    "liveness: packet",
];

/// What the report must contain; several where the order of discovery depends on the calls.
const CASES: &[(Mutation, &[&str])] = &[
    (M::LosesPacket, &["the ledger"]),
    (
        M::LosesPacketAndSaysSo,
        &["the ledger", "answered Idle with", "asked again", "neither gave nor dropped"],
    ),
    (M::Reorders, &["left after packet"]),
    (M::AtInThePast, &["already"]),
    (M::AtForEmptyQueue, &["for an empty queue"]),
    (M::AtNever, &["which is not a cause"]),
    (M::HeldWhenEmpty, &["Held(Rate) with no packet waiting"]),
    (M::AtMovesByItself, &["asked again"]),
    (M::NeverReady, &["neither gave nor dropped", "liveness: packet"]),
    (M::IdleWithBacklog, &["answered Idle with"]),
    (M::SaysQueuedAndDrops, &["the verdict is Queued"]),
    (M::SaysDroppedAndQueues, &["the verdict is Dropped"]),
    (M::FlushLeavesOne, &["outlived a flush"]),
    (M::FlushForAnotherReason, &["flushed for"]),
    (M::FreesByItself, &["was not given to `Cx::drop`"]),
    (M::Undetermined, COINS),
    (M::RefusesByHalves, &["was refused"]),
    (M::AcceptsStrangers, &["does not exist"]),
    (M::WrongBytes, &["the ledger"]),
    (M::WrongEmptiness, &["is_empty says"]),
    (M::ReportsBroken, &["is broken: on purpose"]),
    (M::ChecksBroken, &["check: mutant"]),
    (M::Panics, &["panicked: on purpose"]),
    (M::ReconfigureDropsSilently, &["the ledger"]),
    (M::TakesUnknownWords, &["accepted"]),
    (M::TakesOtherKinds, &["accepted"]),
    (M::TakesAnyNumber, &["accepted"]),
    (M::RefusesWithoutAWord, &["does not say what is wrong"]),
    (M::RefusesTooLate, &["changed what came after"]),
    (M::NeverSends, &["liveness: packet", "neither the rate"]),
    (M::HeldForAChild, &["no children that are disciplines"]),
    (M::OnlyFirst, &["neither gave nor dropped", "liveness: packet"]),
    (M::OnlyFirstAndHeld, &["liveness: packet", "neither gave nor dropped"]),
    (M::RoutesToFirst, &["routing: class"]),
    (M::RoutesToNext, &["routing: class"]),
    (M::RoutesOddToLast, &["routing: class"]),
    (M::ForgetsOnSent, &["on_sent: packet"]),
    (M::OnSentToFirst, &["on_sent: packet", "by on_sent to leaf"]),
    (M::WaitsForTheLast, &["work conservation: told"]),
    (M::WaitsTwoYears, &["over a year"]),
    (M::HeldWhileTimeHelps, &["liveness: packet", "law 2: asked again"]),
    (M::SkipsATurn, &["work conservation: told"]),
    (M::HeldForATurn, &["work conservation: told"]),
    (M::FurtherAndFurther, &["neither gave nor dropped"]),
    (M::WakesTooEarly, &["neither gave nor dropped"]),
    (M::FlushLosesHandles, &["outlived a flush", "the table holds"]),
    (M::FreesOnTheWayOut, &["law 1: ", "answered Idle with", "asked again"]),
    (M::IgnoresAdoption, &["a swap to"]),
    (M::ChangesLength, &["no such packet waits", "law 1: it says"]),
    (M::ChangesLeaf, &["left as a packet of leaf"]),
    (M::ShowsNoClass, &["shows no `backlog`"]),
    (M::ShowsOtherNames, &["routing: class"]),
    (M::WrongPackets, &["law 1: it says"]),
    (M::AlwaysEmpty, &["is_empty says true"]),
    (M::CoinAtDequeue, COINS),
    (M::LastInFirstOut, &["law 3: packet"]),
    (M::PushesOutAndSaysDropped, &["law 1: the verdict is Dropped"]),
    (M::PanicsAtStrangers, &["panicked: on purpose"]),
    (M::PanicsLate, &["panicked: on purpose"]),
    (M::SkipsTheSecond, &["neither gave nor dropped", "liveness: packet"]),
    (M::KeepsTheLast, &["liveness: packet", "law 2: asked again"]),
    (M::CountsByItself, &["law 1: it says"]),
    (M::StopsAtFirstIdle, &["law 2: answered Idle"]),
    (M::StopsAtFirstWait, &["work conservation: told"]),
    (M::DropsAndSaysIdle, &["law 2: answered Idle", "law 2: asked again"]),
    (M::RefusesTheSecond, &["progress: class"]),
    (M::DropsBothOfTwo, &["progress: class"]),
    (M::DropsAtItsTurn, &["progress: class"]),
];

#[test]
fn the_original_is_lawful() {
    let seed = weir_seed::seed();
    for mutation in [M::None, M::NothingAndConserving] {
        let registry = registry(mutation);
        let seen =
            conformance::discipline(&registry, "mutant", seed, 60_000).unwrap_or_else(|f| panic!("{f}"));
        assert!(seen.sent > 10_000 && seen.interleaved > 100, "{seen:?}");
        assert!(seen.waits > 1_000 || mutation.conserving(), "{seen:?}");
        for child in hostile::NAMES.into_iter().chain(["fifoq"]) {
            conformance::pair(&registry, "mutant", child, seed, 20_000).unwrap_or_else(|f| panic!("{f}"));
        }
        conformance::tree(&registry, "mutant", seed, 20_000).unwrap_or_else(|f| panic!("{f}"));
        conformance::port(&registry, "mutant", seed, 20_000).unwrap_or_else(|f| panic!("{f}"));
    }
}

/// What an author runs: over leaves and spies, over a child that drops everything, in a port.
fn judge(registry: &Registry, seed: u64) -> Result<conformance::Summary, Box<conformance::Failure>> {
    let mut seen = conformance::discipline(registry, "mutant", seed, 60_000)?;
    seen += conformance::pair(registry, "mutant", "test-drops-all", seed, 20_000)?;
    seen += conformance::port(registry, "mutant", seed, 20_000)?;
    Ok(seen)
}

#[test]
fn every_mutant_is_caught_for_its_fault() {
    let seed = weir_seed::seed();
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    let mut wrong = Vec::new();
    for &(mutation, signs) in CASES {
        let failure = match judge(&registry(mutation), seed) {
            Err(failure) => failure,
            Ok(seen) => {
                wrong.push(format!("{mutation:?} was not caught: {seen:?}"));
                continue;
            }
        };
        let text = failure.to_string();
        if !signs.iter().any(|s| failure.what.contains(s)) {
            wrong.push(format!("{mutation:?} was caught for another fault: {}", failure.what));
        }
        assert!(text.contains("seed") && text.contains("mutant") && !failure.last.is_empty(), "{text}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What its leaves never show, a child that drops everything at its dequeue does.
#[test]
fn a_parent_that_caches_emptiness_is_caught_by_a_hostile_child() {
    let seed = weir_seed::seed();
    let caught = conformance::pair(&registry(M::CachesEmptiness), "mutant", "test-drops-all", seed, 60_000);
    assert!(caught.is_err(), "not caught: {caught:?}");
}

/// A class that is held for ever keeps no other from being judged, whether it comes before it or after it.
#[test]
fn a_class_without_a_rate_hides_no_other() {
    let queue = |name: &str| Node { discipline: name.into(), ..Node::default() };
    let class = |name: &str, child: Option<&str>| ClassConfig {
        name: name.into(),
        queue: child.map(queue),
        ..ClassConfig::default()
    };
    let node = |children: [Option<&str>; 3]| {
        let classes = ["a", "b", "c"].into_iter().zip(children).map(|(name, child)| class(name, child));
        Node { classes: classes.collect(), ..queue("mutant") }
    };
    let link = Link::new(Rate::from_mbps(10), 0, 1_514);
    let run = |mutation, node: &Node, seed| conformance::run(&registry(mutation), node, link, seed, 500);
    for seed in weir_seed::seeds(20) {
        for children in [[Some(hostile::NEVER), None, None], [None, None, Some(hostile::NEVER)]] {
            let node = node(children);
            let seen = run(M::None, &node, seed).unwrap_or_else(|f| panic!("{f}"));
            assert_eq!(seen.progressed, 2, "seed {seed}");
            let failure =
                run(M::RefusesTheSecond, &node, seed).expect_err("a class that is refused everything");
            assert!(failure.what.contains("progress: class b"), "seed {seed}: {failure}");
        }
    }
}

//! The lawful original, and what may be wrong with it: two bands in strict priority over `Child`ren,
//! with a pause after each packet, so that every law applies to it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use weir_core::packet::PacketId;
use weir_core::queue::{
    Backlog, Broken, Cause, Child, Cx, Discipline, DropReason, Kind, Leaf, Next, ParamError, ParamSpec,
    Params, Routes, Scope, Value, Verdict, Visit, Wait, params,
};
use weir_core::sched::{Builder, Classes, Entry, Node, Registry};
use weir_core::units::{Duration, Instant};
use weir_testkit::hostile;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    None,
    NothingAndConserving,
    LosesPacket,
    LosesPacketAndSaysSo,
    Reorders,
    AtInThePast,
    AtForEmptyQueue,
    AtNever,
    HeldWhenEmpty,
    AtMovesByItself,
    NeverReady,
    IdleWithBacklog,
    SaysQueuedAndDrops,
    SaysDroppedAndQueues,
    FlushLeavesOne,
    FlushForAnotherReason,
    FreesByItself,
    Undetermined,
    RefusesByHalves,
    AcceptsStrangers,
    WrongBytes,
    WrongEmptiness,
    ReportsBroken,
    ChecksBroken,
    Panics,
    CachesEmptiness,
    ReconfigureDropsSilently,
    TakesUnknownWords,
    TakesOtherKinds,
    TakesAnyNumber,
    RefusesWithoutAWord,
    RefusesTooLate,
    NeverSends,
    HeldForAChild,
    OnlyFirst,
    OnlyFirstAndHeld,
    RoutesToFirst,
    RoutesToNext,
    RoutesOddToLast,
    ForgetsOnSent,
    OnSentToFirst,
    WaitsForTheLast,
    WaitsTwoYears,
    HeldWhileTimeHelps,
    SkipsATurn,
    HeldForATurn,
    FurtherAndFurther,
    WakesTooEarly,
    FlushLosesHandles,
    FreesOnTheWayOut,
    IgnoresAdoption,
    ChangesLength,
    ChangesLeaf,
    ShowsNoClass,
    ShowsOtherNames,
    WrongPackets,
    AlwaysEmpty,
    CoinAtDequeue,
    LastInFirstOut,
    PushesOutAndSaysDropped,
    PanicsAtStrangers,
    PanicsLate,
    SkipsTheSecond,
    KeepsTheLast,
    CountsByItself,
    StopsAtFirstIdle,
    StopsAtFirstWait,
    DropsAndSaysIdle,
    RefusesTheSecond,
    DropsBothOfTwo,
    DropsAtItsTurn,
}
use Mutation as M;

impl Mutation {
    /// True if the mutant has no pause and says that it is work conserving.
    pub fn conserving(self) -> bool {
        matches!(
            self,
            M::NothingAndConserving
                | M::WaitsForTheLast
                | M::SkipsATurn
                | M::HeldForATurn
                | M::StopsAtFirstWait
        )
    }
}

/// Two bands in strict priority, and what is wrong with them.
struct Bands {
    mutation: Mutation,
    children: Vec<Child>,
    names: Vec<String>,
    routes: Routes,
    due: Instant,
    /// What `dequeue` said last, until another call.
    told: Option<Instant>,
    calls: u64,
    pause_ns: u64,
    was_empty: Vec<bool>,
    /// Packets that `enqueue` saw come and `dequeue` saw go, and nobody else.
    counted: i64,
}

/// Draws that no seed decides.
static COIN: AtomicU32 = AtomicU32::new(0);

impl Bands {
    /// True once in a while for the mutation that is on.
    fn strikes(&mut self, mutation: Mutation) -> bool {
        self.calls += u64::from(self.mutation == mutation);
        self.mutation == mutation && self.calls.is_multiple_of(17)
    }
    fn is(&self, mutation: Mutation) -> bool {
        self.mutation == mutation
    }
    /// Refuses what is wrong, but for what the mutation lets pass.
    fn accept(&self, params: &Params) -> Result<(), ParamError> {
        let mut judged = Params::new();
        for (name, value) in params.iter() {
            let let_pass = match (params::find(&[PARAMS], Scope::Discipline, name), value) {
                (None, _) => self.is(M::TakesUnknownWords),
                (Some(_), Value::Count(_)) => self.is(M::TakesAnyNumber),
                (Some(_), _) => self.is(M::TakesOtherKinds),
            };
            if !let_pass {
                judged.set(name, value.clone());
            }
        }
        let silent = |e: ParamError| ParamError::new("", &e.field, "", "");
        let result = params::accept(&[PARAMS], Scope::Discipline, "", &judged);
        if self.is(M::RefusesWithoutAWord) { result.map_err(silent) } else { result }
    }
    fn all_empty(&self) -> bool {
        self.children.iter().all(Child::is_empty)
    }
    /// When the first of the bands has a packet, which may be later than this node's own pause
    /// lasts; `Idle` if the bands turn out to be empty.
    fn ready_at(&mut self, cx: &mut Cx) -> Wait {
        self.children.iter_mut().map(|child| child.head(cx).wait()).min().unwrap_or(Wait::Idle)
    }
    /// The next packet of the first band that has one; a band that drops all is passed over.
    fn pull(&mut self, cx: &mut Cx) -> Next {
        let mut wait = Wait::Idle;
        for (index, child) in self.children.iter_mut().enumerate() {
            if self.mutation == M::CachesEmptiness && self.was_empty[index] {
                continue;
            }
            let child_was_empty = child.is_empty();
            let skipped = match self.mutation {
                M::OnlyFirst | M::OnlyFirstAndHeld => index > 0,
                M::SkipsTheSecond => index == 1,
                _ => false,
            };
            if skipped {
                continue;
            }
            let mut next = child.take(cx);
            while self.mutation == M::DropsAtItsTurn
                && index == 1
                && let Next::Packet(id) = next
            {
                cx.drop(id, DropReason::Deadline);
                next = child.take(cx);
            }
            match next {
                Next::Packet(id) => {
                    self.was_empty[index] = child.is_empty();
                    self.counted -= 1;
                    if self.mutation == M::ChangesLeaf {
                        cx.packets.get_mut(&id).leaf = 0;
                    }
                    return Next::Packet(id);
                }
                // A cached emptiness is not corrected here: the bug of many parents.
                Next::Idle if self.mutation == M::StopsAtFirstIdle && !child_was_empty => return Next::Idle,
                Next::At(at) if self.mutation == M::StopsAtFirstWait => return Next::At(at),
                Next::At(at) if self.mutation == M::WaitsForTheLast => {
                    wait = Wait::At(if let Wait::At(other) = wait { at.max(other) } else { at });
                }
                Next::At(_) if self.mutation == M::WakesTooEarly => {
                    wait = Wait::At(cx.now + Duration::from_nanos(1));
                }
                other => wait = wait.min(other.wait()),
            }
        }
        match (self.mutation, wait) {
            (M::OnlyFirst | M::SkipsTheSecond, Wait::Idle) => {
                return Next::At(cx.now + Duration::from_nanos(1));
            }
            (M::OnlyFirstAndHeld, Wait::Idle) => return Next::Held(Cause::Rate),
            _ => {}
        }
        if wait == Wait::Idle && self.mutation == M::CachesEmptiness && self.was_empty.contains(&false) {
            return Next::At(cx.now + Duration::from_nanos(1));
        }
        wait.into()
    }
    /// What is refused must change nothing: `told` stays.
    fn change(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        if self.is(M::RefusesByHalves)
            && let Some(leaf) = self.children[0].as_leaf_mut()
        {
            let limit = leaf.limit();
            leaf.set_limit(limit + 1);
        }
        if class.is_empty() {
            let longest = if self.mutation.conserving() { 0 } else { 1_000 };
            let pause = params.count("pause").map(|us| us.min(longest) * 1_000);
            if self.is(M::RefusesTooLate) {
                // Only the decisions to come show it.
                self.pause_ns = pause.unwrap_or(self.pause_ns);
            }
            self.accept(params)?;
            self.pause_ns = pause.unwrap_or(self.pause_ns);
            if self.is(M::ReconfigureDropsSilently)
                && let Some(leaf) = self.children[0].as_leaf_mut()
                && let Some(id) = leaf.pop_front(cx)
            {
                cx.packets.remove(id);
            }
            return Ok(());
        }
        if let Some(index) = self.names.iter().position(|n| n == class) {
            return self.children[index].reconfigure_queue(cx, class, params, &[PARAMS]);
        }
        let refused = Err(ParamError::new(class, "class", class, "a class of this interface"));
        assert!(!(self.is(M::PanicsAtStrangers) && class == "nobody"), "on purpose");
        if self.is(M::AcceptsStrangers) {
            return Ok(());
        }
        self.children.iter_mut().fold(refused, |r, c| r.or_else(|_| c.reconfigure_below(cx, class, params)))
    }
}

impl Discipline for Bands {
    fn enqueue(&mut self, cx: &mut Cx, id: PacketId) -> Verdict {
        self.told = None;
        if self.strikes(M::LosesPacket) {
            return Verdict::Queued;
        }
        if self.strikes(M::SaysQueuedAndDrops) {
            cx.drop(id, DropReason::Early);
            return Verdict::Queued;
        }
        if self.strikes(M::FreesByItself) {
            cx.packets.remove(id);
            return Verdict::Dropped;
        }
        if self.is(M::Undetermined) && COIN.fetch_add(1, Ordering::Relaxed).is_multiple_of(977) {
            cx.drop(id, DropReason::Early);
            return Verdict::Dropped;
        }
        if self.strikes(M::ReportsBroken) {
            cx.broken("mutant", "on purpose");
        }
        assert!(!self.strikes(M::Panics), "on purpose");
        let band = self.routes.child(cx.packets.get(&id).leaf).expect("the port routes to leaves below");
        let band = match self.mutation {
            M::RoutesToFirst => 0,
            M::RoutesToNext => (band + 1) % self.children.len(),
            M::RoutesOddToLast if cx.packets.get(&id).protocol == 17 => self.children.len() - 1,
            _ => band,
        };
        assert!(!(self.is(M::PanicsLate) && cx.now.as_nanos() > u64::MAX / 2), "on purpose");
        if self.is(M::IgnoresAdoption) && cx.adopting() {
            cx.drop(id, DropReason::Tail);
            return Verdict::Dropped;
        }
        if self.strikes(M::ChangesLength) {
            cx.packets.get_mut(&id).len += 1;
        }
        if self.strikes(M::PushesOutAndSaysDropped)
            && let Some(leaf) = self.children[band].as_leaf_mut()
            && let Some(old) = leaf.pop_front(cx)
        {
            cx.drop(old, DropReason::Pushout);
            self.children[band].enqueue(cx, id);
            return Verdict::Dropped;
        }
        // As a bound that two packets cannot keep: the newcomer goes, and what waits just before its turn.
        let both = self.is(M::DropsBothOfTwo) && !self.children[band].is_empty();
        if (both || self.is(M::RefusesTheSecond) && band == 1) && !cx.adopting() {
            cx.drop(id, DropReason::Deadline);
            while let Some(old) = self.children[band].as_leaf_mut().and_then(|leaf| leaf.pop_back(cx)) {
                cx.drop(old, DropReason::Deadline);
            }
            return Verdict::Dropped;
        }
        self.was_empty[band] = false;
        let verdict = self.children[band].enqueue(cx, id);
        self.counted += i64::from(verdict == Verdict::Queued);
        if self.strikes(M::SaysDroppedAndQueues) { Verdict::Dropped } else { verdict }
    }
    fn dequeue(&mut self, cx: &mut Cx) -> Next {
        if self.all_empty() && !self.is(M::CachesEmptiness) {
            if self.strikes(M::HeldWhenEmpty) {
                return Next::Held(Cause::Rate);
            }
            return if self.strikes(M::AtForEmptyQueue) {
                Next::At(cx.now + Duration::from_nanos(1))
            } else {
                Next::Idle
            };
        }
        if self.is(M::NeverSends) || (self.is(M::KeepsTheLast) && self.backlog().packets == 1) {
            return Next::Held(Cause::Rate);
        }
        if self.is(M::HeldForAChild) {
            return Next::Held(Cause::Child);
        }
        if self.is(M::HeldWhileTimeHelps) && cx.now < self.due {
            return Next::Held(Cause::Rate);
        }
        if self.strikes(M::SkipsATurn) {
            return Next::At(cx.now + Duration::from_nanos(1));
        }
        if self.strikes(M::HeldForATurn) {
            return Next::Held(Cause::Child);
        }
        if self.strikes(M::FreesOnTheWayOut)
            && let Next::Packet(id) = self.pull(cx)
        {
            cx.packets.remove(id);
            return self.pull(cx);
        }
        if self.strikes(M::DropsAndSaysIdle)
            && let Next::Packet(id) = self.pull(cx)
        {
            cx.drop(id, DropReason::Head);
            return Next::Idle;
        }
        if self.is(M::CoinAtDequeue) && COIN.fetch_add(1, Ordering::Relaxed).is_multiple_of(977) {
            self.due = cx.now + Duration::from_nanos(5);
        }
        if self.strikes(M::AtNever) {
            return Next::At(Instant::NEVER);
        }
        if self.strikes(M::IdleWithBacklog) {
            return Next::Idle;
        }
        // Whoever has said when to come back says so again without asking anybody: a child that is
        // asked twice may drop in between and change its mind.
        if let Some(at) = self.told.filter(|&at| cx.now < at) {
            self.told = Some(if self.is(M::AtMovesByItself) { at + Duration::from_nanos(1) } else { at });
            return Next::At(at);
        }
        if cx.now < self.due {
            let Wait::At(ready) = self.ready_at(cx) else { return self.ready_at(cx).into() };
            let at = ready.max(self.due);
            self.told = Some(at);
            return Next::At(if self.strikes(M::AtInThePast) { cx.now } else { at });
        }
        if self.strikes(M::NeverReady) || self.is(M::FurtherAndFurther) {
            self.due = cx.now + Duration::from_nanos(1_000);
            return Next::At(self.due);
        }
        if (self.strikes(M::Reorders) || self.is(M::LastInFirstOut))
            && let Some(leaf) = self.children[0].as_leaf_mut()
            && let Some(id) = leaf.pop_back(cx)
        {
            return Next::Packet(id);
        }
        let next = self.pull(cx);
        if let Next::Packet(id) = next {
            // Some pass back to back, so that several leave at one instant.
            if cx.packets.get(&id).len.is_multiple_of(3) {
                self.due = cx.now + Duration::from_nanos(self.pause_ns);
            }
            if self.strikes(M::LosesPacketAndSaysSo) {
                return if self.all_empty() {
                    Next::Idle
                } else {
                    Next::At(self.due.max(cx.now + Duration::from_nanos(1)))
                };
            }
            return Next::Packet(id);
        }
        next
    }
    fn backlog(&self) -> Backlog {
        let sum = self.children.iter().fold(Backlog::default(), |sum, c| sum + c.backlog());
        if self.is(M::WrongPackets) && sum.packets > 7 {
            return Backlog { packets: sum.packets - 1, ..sum };
        }
        if self.is(M::CountsByItself) {
            return Backlog { packets: self.counted.max(0) as u64, ..sum };
        }
        if self.is(M::WrongBytes) && sum.packets > 7 {
            return Backlog { bytes: sum.bytes - 1, ..sum };
        }
        sum
    }
    fn is_empty(&self) -> bool {
        if self.is(M::AlwaysEmpty) {
            return true;
        }
        if self.is(M::WrongEmptiness) { self.backlog().packets < 2 } else { self.all_empty() }
    }
    fn flush(&mut self, cx: &mut Cx, reason: DropReason) {
        self.told = None;
        let reason = if self.is(M::FlushForAnotherReason) { DropReason::Tail } else { reason };
        let skip = usize::from(self.is(M::FlushLeavesOne));
        self.counted = 0;
        if self.is(M::FlushLosesHandles) {
            while let Some(id) = self.children[0].as_leaf_mut().and_then(|leaf| leaf.pop_front(cx)) {
                drop(id);
            }
        }
        for child in self.children.iter_mut().skip(skip) {
            child.flush(cx, reason);
        }
    }
    fn reconfigure(&mut self, cx: &mut Cx, class: &str, params: &Params) -> Result<(), ParamError> {
        self.change(cx, class, params)?;
        self.told = None;
        Ok(())
    }
    fn visit_stats(&self, visit: &mut dyn Visit) {
        let shift = usize::from(self.is(M::ShowsOtherNames));
        let names = self.names.iter().cycle().skip(shift);
        for (name, child) in names.zip(&self.children) {
            if !self.is(M::ShowsNoClass) {
                visit.class(name, 1);
            }
            child.visit_stats(visit);
        }
    }
    fn check(&self, cx: &Cx) -> Result<(), Broken> {
        if self.is(M::ChecksBroken) && self.backlog().packets > 5 {
            return Err(Broken { discipline: "mutant", what: "on purpose" });
        }
        self.children.iter().try_for_each(|c| c.check(cx))
    }
    fn on_sent(&mut self, cx: &mut Cx, id: &PacketId, at: Instant) {
        self.told = None;
        let band = self.routes.child(cx.packets.get(id).leaf).expect("the port routes to leaves below");
        match self.mutation {
            M::ForgetsOnSent => {}
            M::OnSentToFirst => self.children[0].on_sent(cx, id, at),
            _ => self.children[band].on_sent(cx, id, at),
        }
    }
}

const PARAMS: &[ParamSpec] = &[
    ParamSpec::discipline("pause", Kind::Count { min: 1, max: 1_000 }, "20", "Pause, us."),
    ParamSpec::class("qlimit", Kind::Count { min: 1, max: 1_000 }, "20", "Queue length, packets."),
];

fn build_as(
    mutation: Mutation,
    node: &Node,
    builder: &mut Builder<'_>,
) -> Result<Box<dyn Discipline>, ParamError> {
    let (mut children, mut ranges, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (index, class) in node.classes.iter().enumerate() {
        let first = builder.next_leaf();
        let child = match class.queue {
            Some(_) => builder.child(node, index, builder.link.rate, 20)?,
            None => {
                drop(builder.child(node, index, builder.link.rate, 20)?);
                Child::leaf(Leaf::tail_drop(20))
            }
        };
        children.push(child);
        ranges.push(first..builder.next_leaf());
        names.push(class.name.clone());
    }
    let was_empty = vec![true; children.len()];
    let pause_ns = match mutation {
        M::WaitsTwoYears => 2 * 365 * 86_400 * 1_000_000_000,
        _ if mutation.conserving() => 0,
        _ => node.params.count("pause").unwrap_or(20) * 1_000,
    };
    let (routes, due) = (Routes::new(&ranges), Instant::ZERO);
    Ok(Box::new(Bands {
        mutation,
        children,
        names,
        routes,
        due,
        told: None,
        calls: 0,
        pause_ns,
        was_empty,
        counted: 0,
    }))
}

thread_local! {
    /// What is wrong with the mutants that this thread builds.
    static MUTATION: Cell<Mutation> = const { Cell::new(M::None) };
}

/// A registry whose `mutant` has that fault, for this thread.
pub fn registry(mutation: Mutation) -> Registry {
    MUTATION.set(mutation);
    let mut registry = Registry::builtin();
    hostile::register(&mut registry);
    registry.register(Entry {
        name: "mutant",
        source: "//! For tests: one law broken.",
        params: &[PARAMS],
        classes: Classes::Flat,
        work_conserving: mutation.conserving(),
        build: Some(|node, builder| build_as(MUTATION.get(), node, builder)),
        ..Entry::PLAIN
    });
    registry
}

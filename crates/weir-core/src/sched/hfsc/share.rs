//! Link sharing: the tree that divides what the guarantees leave over [HFSC97 section 4.2].
//!
//! Each node has a virtual time: the inverse of its link-share curve at the bytes that it has
//! had. The child with the least virtual time goes, level by level from the root, if its upper
//! limit allows (it *fits*). A node's fit time is the later of its own limit's and the earliest
//! of its active children's.
//!
//! Virtual times are words in units of 2^-8 ns. Active siblings lie a packet's time at the slowest
//! rate apart at most, three days for 64 KB at 2 bit/s, unless real time brings one far ahead; a
//! word has room for two years, and what a group has behind it is taken off before it is full.

use super::curve::{CLOCK, Runtime, Slopes, VIRTUAL};
use crate::queue::Curve;
use crate::sched::tournament::Tournament;
use crate::units::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub(super) const ROOT: usize = 0;
/// The group of a node without children.
const NONE: u32 = u32::MAX;

/// A group in which a virtual time reaches this is moved back.
const FAR: u64 = 1 << 62;
/// To here.
const NEAR: u64 = 1 << 32;

/// The upper limit of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    slopes: Slopes<CLOCK>,
    of: Curve,
    curve: Runtime<CLOCK>,
    /// A class that was late may catch up on so many ns; the rest is given up for good.
    slack_ns: u64,
    /// When it lets its node go on.
    fit: Instant,
}

impl Limit {
    /// To be started by `ShareTree::set`.
    pub(super) fn new(of: Curve, max_packet: u64) -> Self {
        let slopes = Slopes::of(of);
        let slack_ns = slopes.time_for(2 * max_packet);
        Limit { slopes, of, curve: Runtime::NOTHING, slack_ns, fit: Instant::ZERO }
    }
    /// Its node, which has had `total` bytes, joins in.
    #[inline(never)]
    fn join(&mut self, total: u64, now: Instant) {
        self.curve.min_with(&self.slopes, &self.of, now.as_nanos(), total);
        self.fit = Instant::from_nanos(self.curve.time_at(&self.slopes, total));
    }
    /// Its node has had `total` bytes.
    #[inline(never)]
    fn charge(&mut self, total: u64, now: Instant) {
        let at = self.curve.time_at(&self.slopes, total);
        let earliest = now.as_nanos().saturating_sub(self.slack_ns);
        if at < earliest {
            self.curve.delay(earliest - at);
        }
        self.fit = Instant::from_nanos(at.max(earliest));
    }
}

/// A key of `unfit`: the greatest stands for the end of time.
pub(super) fn as_instant(key: u64) -> Instant {
    if key >= u64::MAX - 1 { Instant::NEVER } else { Instant::from_nanos(key) }
}

/// One node of the tree: two cache lines.
#[repr(align(64))]
pub(super) struct Node {
    /// The group that it is a member of: its parent's.
    group: u32,
    /// Its place there.
    slot: u32,
    parent: u32,
    /// The group of its children.
    children: u32,
    /// Active children; for a leaf 1 while it is active.
    active: u32,
    /// It waits for its fit time.
    waits: bool,
    /// It has an upper limit, or its queue makes it wait.
    constrained: bool,
    /// False for a node that has left, and of which nothing has moved since: its curve reached `total` at
    /// `virtual_time`.
    astray: bool,
    slopes: Option<Slopes<VIRTUAL>>,
    curve: Runtime<VIRTUAL>,
    virtual_time: u64,
    /// Bytes on the wire that it has had in all.
    pub(super) total: u64,
    /// When its queue, a discipline of its own, lets it go on.
    queue_fit: Instant,
    limit: Option<Box<Limit>>,
}

const _: () = assert!(size_of::<Node>() == 128, "a node is two cache lines");

impl Node {
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }
    /// When its queue lets it go on.
    #[inline(always)]
    pub(super) fn queue_fit(&self) -> Instant {
        self.queue_fit
    }
    pub(super) fn set_queue_fit(&mut self, at: Instant) {
        self.queue_fit = at;
        self.constrained = at != Instant::ZERO || self.limit.is_some();
    }
    /// When its own limit and its queue let it go on.
    #[inline(always)]
    fn own_fit(&self) -> Instant {
        if !self.constrained {
            return Instant::ZERO;
        }
        self.limit.as_ref().map_or(Instant::ZERO, |limit| limit.fit).max(self.queue_fit)
    }
    /// Starts anew at its virtual time, as far as its curve is not below that already. `of` is the curve's rates.
    #[inline(always)]
    fn restart(&mut self, of: impl FnOnce() -> Curve) {
        let Some(slopes) = &self.slopes else { return };
        if self.astray || slopes.is_concave() {
            self.astray = false;
            return self.curve.min_with(slopes, &of(), self.virtual_time, self.total);
        }
        // What `min_with` comes to where the curve reached `total` when its node left, or earlier.
        debug_assert!(
            self.curve.time_at(slopes, self.total) <= self.virtual_time,
            "a curve is ahead of its node"
        );
        self.curve = Runtime::new(slopes, self.virtual_time, self.total);
    }
}

/// The children of one node.
struct Group {
    members: Vec<u32>,
    /// Active ones that fit, by virtual time, and that do not, by fit time.
    fit: Tournament,
    unfit: Tournament,
    /// Children in either tournament.
    active: u32,
    /// Least virtual time at the last choice; 0 if none was made in this period.
    least: u64,
    /// Greatest virtual time in this period to which a turn has led; real time takes no turns. It
    /// may be that of a child gone passive: it then still bounds the distance between any two,
    /// since the others only catch up.
    greatest: u64,
    /// Where the next period starts.
    next_start: u64,
}

impl Group {
    /// When one of them may go.
    #[inline]
    fn fit_time(&self) -> Instant {
        if !self.fit.is_empty() {
            return Instant::ZERO;
        }
        self.unfit.least().map_or(Instant::NEVER, as_instant)
    }

    /// The virtual time with which a member joins its active siblings, or begins a new period.
    #[inline(always)]
    fn join(&mut self, n: &mut Node, of: impl FnOnce() -> Curve, now: Instant) {
        if self.active == 0 {
            // A period of the parent begins, where the one before it ended.
            self.least = 0;
            self.greatest = self.next_start;
        }
        self.active += 1;
        // The middle between the least and the greatest keeps any two within a constant of
        // each other, however many there are [HFSC97 section 4.2]. A class that real time has
        // brought ahead does not count, unless it has brought all of them there.
        let first = self.fit.min_finite().map_or(0, |(_, virtual_time)| virtual_time);
        let greatest = self.greatest.max(first);
        let virtual_time = if self.least > 0 { (self.least + greatest) >> 1 } else { greatest };
        // What it had in this same period still counts: it may be ahead. What it had in another is
        // behind where this one began.
        n.virtual_time = n.virtual_time.max(virtual_time);
        n.restart(of);
        if n.constrained
            && let Some(limit) = &mut n.limit
        {
            limit.join(n.total, now);
        }
    }

    /// Puts a member where it belongs: among those that fit, by virtual time, or among those that
    /// wait, by fit time. None of its children fits before `below`.
    #[inline(always)]
    fn place(&mut self, n: &mut Node, below: Instant, now: Instant) {
        let at = n.own_fit().max(below);
        if at > now {
            if !n.waits {
                n.waits = true;
                self.fit.remove(n.slot);
            }
            return self.unfit.set(n.slot, at.as_nanos());
        }
        if n.waits {
            n.waits = false;
            self.unfit.remove(n.slot);
        }
        self.fit.set(n.slot, n.virtual_time);
    }

    /// The same for a member that has just joined.
    #[inline(always)]
    fn enter(&mut self, n: &mut Node, below: Instant, now: Instant) {
        debug_assert!(!n.waits, "a node that is not active waits");
        let at = n.own_fit().max(below);
        n.waits = at > now;
        match n.waits {
            true => self.unfit.insert(n.slot, at.as_nanos()),
            false => self.fit.insert(n.slot, n.virtual_time),
        }
    }

    /// A member has nothing more to send.
    #[inline(always)]
    fn leave(&mut self, n: &mut Node) {
        self.next_start = self.next_start.max(n.virtual_time);
        self.active -= 1;
        if n.waits {
            n.waits = false;
            self.unfit.remove(n.slot);
        } else {
            self.fit.remove(n.slot);
        }
    }
}

/// The tree; node 0 is the root.
pub(super) struct ShareTree {
    pub(super) nodes: Vec<Node>,
    /// The link-share curve of each node, for where a rate itself is asked for.
    curves: Vec<Curve>,
    groups: Vec<Group>,
}

impl ShareTree {
    /// Nodes whose parents are `parents[i]`, a node's number being its place plus one.
    pub(super) fn new(parents: &[usize]) -> Self {
        let node = || Node {
            group: NONE,
            slot: 0,
            parent: ROOT as u32,
            children: NONE,
            active: 0,
            waits: false,
            constrained: false,
            astray: true,
            slopes: None,
            curve: Runtime::NOTHING,
            virtual_time: 0,
            total: 0,
            queue_fit: Instant::ZERO,
            limit: None,
        };
        let mut nodes: Vec<Node> = (0..=parents.len()).map(|_| node()).collect();
        let mut members: Vec<Vec<u32>> = alloc::vec![Vec::new()];
        nodes[ROOT].children = 0;
        for (index, &parent) in parents.iter().enumerate() {
            if nodes[parent].children == NONE {
                nodes[parent].children = members.len() as u32;
                members.push(Vec::new());
            }
            let group = nodes[parent].children;
            let siblings = &mut members[group as usize];
            let node = &mut nodes[index + 1];
            (node.group, node.slot, node.parent) = (group, siblings.len() as u32, parent as u32);
            siblings.push(index as u32 + 1);
        }
        let group = |members: Vec<u32>| Group {
            fit: Tournament::new(members.len()),
            unfit: Tournament::new(members.len()),
            members,
            active: 0,
            least: 0,
            greatest: 0,
            next_start: 0,
        };
        let curves = alloc::vec![Curve::default(); nodes.len()];
        ShareTree { nodes, curves, groups: members.into_iter().map(group).collect() }
    }

    /// True if the node has a link-share curve.
    #[inline]
    pub(super) fn takes_part(&self, node: usize) -> bool {
        self.nodes[node].slopes.is_some()
    }

    fn parent(&self, node: usize) -> usize {
        self.nodes[node].parent as usize
    }

    /// Gives a node its curves. An active node starts anew from where it is.
    pub(super) fn set(&mut self, node: usize, curve: Option<Curve>, limit: Option<Limit>, now: Instant) {
        self.curves[node] = curve.unwrap_or_default();
        let n = &mut self.nodes[node];
        let slopes = curve.map(Slopes::of);
        n.curve = slopes.map_or(Runtime::NOTHING, |s| Runtime::new(&s, n.virtual_time, n.total));
        (n.slopes, n.astray) = (slopes, true);
        n.limit = limit.map(|mut limit| {
            limit.curve = Runtime::new(&limit.slopes, now.as_nanos(), n.total);
            Box::new(limit)
        });
        n.set_queue_fit(n.queue_fit);
        self.place_upwards(node, now);
    }

    /// The queue of a leaf gives nothing before `at`.
    #[inline]
    pub(super) fn set_queue_fit(&mut self, leaf: usize, at: Instant, now: Instant) {
        if self.nodes[leaf].queue_fit != at {
            self.nodes[leaf].set_queue_fit(at);
            self.place_upwards(leaf, now);
        }
    }

    fn place_upwards(&mut self, mut node: usize, now: Instant) {
        while node != ROOT && self.nodes[node].is_active() {
            self.place(node, now);
            node = self.parent(node);
        }
    }

    fn place(&mut self, node: usize, now: Instant) {
        let below = self.below(node);
        let n = &mut self.nodes[node];
        self.groups[n.group as usize].place(n, below, now);
    }

    /// When one of a node's children fits, or its queue may be asked.
    #[inline(always)]
    fn below(&self, node: usize) -> Instant {
        match self.nodes[node].children {
            NONE => Instant::ZERO,
            group => self.groups[group as usize].fit_time(),
        }
    }

    /// A leaf has something to send: it, and the ancestors that had not, join in. One without a
    /// link-share curve does not.
    #[inline(always)]
    pub(super) fn activate(&mut self, leaf: usize, now: Instant) {
        let n = &mut self.nodes[leaf];
        if n.slopes.is_none() {
            return;
        }
        debug_assert_eq!(n.active, 0, "a leaf that is active becomes active");
        n.active = 1;
        let group = &mut self.groups[n.group as usize];
        group.join(n, || self.curves[leaf], now);
        group.enter(n, Instant::ZERO, now);
        let above = n.parent as usize;
        if above != ROOT {
            self.activate_upwards(above, now);
        }
    }

    // Apart, because most leaves are children of the root.
    #[inline(never)]
    fn activate_upwards(&mut self, mut node: usize, now: Instant) {
        let mut joins = true;
        while node != ROOT {
            let below = self.below(node);
            let n = &mut self.nodes[node];
            let group = &mut self.groups[n.group as usize];
            n.active += u32::from(joins);
            joins &= n.active == 1;
            if joins {
                group.join(n, || self.curves[node], now);
                group.enter(n, below, now);
            } else {
                group.place(n, below, now);
            }
            node = n.parent as usize;
        }
    }

    /// Takes off the virtual times of a group what all its active members have behind them.
    #[cold]
    fn move_back(&mut self, group: usize) {
        let group = &mut self.groups[group];
        let members = group.members.iter().map(|&member| &self.nodes[member as usize]);
        let least = members.filter(|n| n.is_active()).map(|n| n.virtual_time).min();
        // Those below the least time of the last choice are lifted to it in any case.
        let by = least.unwrap_or(group.next_start).max(group.least).saturating_sub(NEAR);
        // Somebody whom real time has brought 104 days ahead is not kept back for longer, and as
        // much must pass until this is done again.
        let back = |virtual_time: u64| virtual_time.saturating_sub(by).min(FAR / 2);
        for &member in &group.members {
            let n = &mut self.nodes[member as usize];
            n.virtual_time = back(n.virtual_time);
            n.curve.advance(by, n.virtual_time, n.total);
            n.astray = true;
            if group.fit.get(n.slot).is_some() {
                group.fit.set(n.slot, n.virtual_time);
            }
        }
        if group.least > 0 {
            group.least = back(group.least).max(1);
        }
        group.greatest = back(group.greatest);
        group.next_start = back(group.next_start);
    }

    /// A leaf has had `bytes`, `in_turn` if it was chosen here; `leaves` if it has nothing more to
    /// send.
    #[inline(always)]
    pub(super) fn charge(&mut self, leaf: usize, bytes: u64, in_turn: bool, leaves: bool, now: Instant) {
        let (above, leaves) = self.charge_node(leaf, Instant::ZERO, bytes, in_turn, leaves, now);
        if above != ROOT {
            self.charge_upwards(above, bytes, in_turn, leaves, now);
        }
    }

    // Apart, as `activate_upwards`.
    #[inline(never)]
    fn charge_upwards(&mut self, mut node: usize, bytes: u64, in_turn: bool, mut leaves: bool, now: Instant) {
        while node != ROOT {
            let below = self.below(node);
            let n = &mut self.nodes[node];
            if leaves && n.active > 1 {
                // Others of its children go on.
                n.active -= 1;
                leaves = false;
            }
            (node, leaves) = self.charge_node(node, below, bytes, in_turn, leaves, now);
        }
    }

    /// One step of `charge`: the parent of the node, and whether the node has left.
    #[inline(always)]
    fn charge_node(
        &mut self,
        node: usize,
        below: Instant,
        bytes: u64,
        in_turn: bool,
        leaves: bool,
        now: Instant,
    ) -> (usize, bool) {
        let n = &mut self.nodes[node];
        n.total += bytes;
        if n.active == 0 {
            // It has no share, and so does not leave those who have one.
            n.astray = true;
            return (n.parent as usize, false);
        }
        let group_of = n.group as usize;
        let group = &mut self.groups[group_of];
        if let Some(slopes) = &n.slopes {
            n.virtual_time = n.curve.time_at(slopes, n.total);
        }
        if n.virtual_time < group.least {
            // It did not fit for a while.
            n.curve.delay(group.least - n.virtual_time);
            n.virtual_time = group.least;
        }
        if n.constrained
            && let Some(limit) = &mut n.limit
        {
            limit.charge(n.total, now);
        }
        if in_turn {
            group.greatest = group.greatest.max(n.virtual_time);
        }
        if leaves {
            n.active = 0;
            group.leave(n);
        } else {
            group.place(n, below, now);
        }
        let (above, far) = (n.parent as usize, n.virtual_time >= FAR);
        if far {
            self.move_back(group_of);
        }
        (above, leaves)
    }

    /// The leaf whose turn it is: from the root down to the least virtual time that fits.
    #[inline(always)]
    pub(super) fn choose(&mut self, now: Instant) -> Option<usize> {
        let (node, children) = self.choose_among(0, now)?;
        if children == NONE { Some(node) } else { self.choose_below(children, now) }
    }

    #[inline(never)]
    fn choose_below(&mut self, mut group: u32, now: Instant) -> Option<usize> {
        loop {
            let (node, children) = self.choose_among(group as usize, now)?;
            if children == NONE {
                return Some(node);
            }
            group = children;
        }
    }

    /// The member of a group whose turn it is, and the group of its children.
    #[inline(always)]
    fn choose_among(&mut self, group: usize, now: Instant) -> Option<(usize, u32)> {
        if !self.groups[group].unfit.is_empty() {
            self.admit(group, now);
        }
        let g = &mut self.groups[group];
        let (slot, _) = g.fit.min_finite()?;
        let node = g.members[slot as usize] as usize;
        let n = &self.nodes[node];
        g.least = g.least.max(n.virtual_time);
        Some((node, n.children))
    }

    /// Moves children whose fit time has come.
    #[inline(never)]
    fn admit(&mut self, group: usize, now: Instant) {
        while let Some((slot, at)) = self.groups[group].unfit.min()
            && as_instant(at) <= now
        {
            let node = self.groups[group].members[slot as usize] as usize;
            self.place(node, now);
        }
    }

    /// When something in the tree fits next; `NEVER` if nothing is active.
    pub(super) fn next_fit(&self) -> Instant {
        self.groups[0].fit_time()
    }

    /// Whether members, tournaments and activity agree, and virtual times keep within their word.
    pub(super) fn is_sound(&self) -> bool {
        self.groups.iter().all(|group| {
            let mut active = 0;
            let agree = group.members.iter().all(|&node| {
                let n = &self.nodes[node as usize];
                let (fits, waits) = (group.fit.get(n.slot).is_some(), group.unfit.get(n.slot).is_some());
                active += u32::from(n.is_active());
                let in_order = group.fit.get(n.slot).is_none_or(|key| key == n.virtual_time);
                in_order
                    && n.virtual_time < FAR
                    && waits == n.waits
                    && !(fits && waits)
                    && (fits || waits) == n.is_active()
            });
            agree && active == group.active
        })
    }
}

//! Link sharing: the tree that divides what the guarantees leave over [HFSC97 section 4.2].
//!
//! Each node has a virtual time: the inverse of its link-share curve at the bytes that it has
//! had. The child with the least virtual time goes, level by level from the root, if its upper
//! limit allows (it *fits*). A node's fit time is the later of its own limit's and the earliest
//! of its active children's.

use super::curve::{Runtime, Slopes};
use super::tournament::Tournament;
use crate::units::{Fine, Instant};
use alloc::vec::Vec;

pub(super) const ROOT: usize = 0;

/// Keys that reach this are counted from a later base.
const FAR: u64 = 1 << 62;

/// The upper limit of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) slopes: Slopes,
    curve: Runtime,
    /// Time given up for good: a class that was late may catch up on `slack` only.
    forgiven: u128,
    slack: u128,
}

impl Limit {
    pub(super) fn new(slopes: Slopes, max_packet: u32) -> Self {
        let slack = slopes.time_for(2 * u64::from(max_packet));
        Limit { slopes, curve: Runtime::new(&slopes, 0, 0), forgiven: 0, slack }
    }
}

/// A key of `unfit`: the greatest stands for the end of time.
pub(super) fn as_instant(key: u64) -> Instant {
    if key >= u64::MAX - 1 { Instant::NEVER } else { Instant::from_nanos(key) }
}

/// One node of the tree.
pub(super) struct Node {
    pub(super) parent: usize,
    /// Place among its siblings.
    slot: u32,
    pub(super) slopes: Option<Slopes>,
    curve: Option<Runtime>,
    pub(super) limit: Option<Limit>,
    /// Bytes that it has had in all.
    pub(super) total: u64,
    pub(super) virtual_time: u128,
    /// What a class that did not fit for a while is moved forward by.
    adjustment: u128,
    /// Number of its own active periods, and of its parent's when it became active.
    period: u64,
    parent_period: u64,
    /// Active children; for a leaf 1 while it is active.
    active: u32,
    /// When its own limit lets it go on.
    own_fit: Instant,
    /// When its queue, a discipline of its own, lets it go on.
    pub(super) queue_fit: Instant,
    // What it knows as a parent:
    children: Vec<usize>,
    fit: Tournament,
    unfit: Tournament,
    /// What the keys in `fit` count from.
    base: u128,
    /// Children in either tournament.
    members: u32,
    /// Least virtual time at the last choice; 0 if none was made in this period.
    least: u128,
    /// Greatest virtual time in this period. It may be that of a child gone passive: it then
    /// still bounds the distance between any two, since the others only catch up.
    greatest: u128,
    /// Where the next period starts.
    next_start: u128,
}

impl Node {
    fn new(parent: usize) -> Self {
        Node {
            parent,
            slot: 0,
            slopes: None,
            curve: None,
            limit: None,
            total: 0,
            virtual_time: 0,
            adjustment: 0,
            period: 0,
            parent_period: 0,
            active: 0,
            own_fit: Instant::ZERO,
            queue_fit: Instant::ZERO,
            children: Vec::new(),
            fit: Tournament::new(0),
            unfit: Tournament::new(0),
            base: 0,
            members: 0,
            least: 0,
            greatest: 0,
            next_start: 0,
        }
    }
    pub(super) fn is_active(&self) -> bool {
        self.active > 0
    }
    /// When it or something below may go.
    fn fit_time(&self) -> Instant {
        self.own_fit.max(self.queue_fit).max(self.children_fit_time())
    }
    fn children_fit_time(&self) -> Instant {
        if self.children.is_empty() || self.fit.least().is_some() {
            return Instant::ZERO;
        }
        self.unfit.least().map_or(Instant::NEVER, as_instant)
    }
}

/// The tree; node 0 is the root.
pub(super) struct ShareTree {
    pub(super) nodes: Vec<Node>,
}

impl ShareTree {
    /// Nodes whose parents are `parents[i]`, a node's number being its place plus one.
    pub(super) fn new(parents: &[usize]) -> Self {
        let mut nodes = alloc::vec![Node::new(ROOT)];
        nodes.extend(parents.iter().map(|&parent| Node::new(parent)));
        for node in 1..nodes.len() {
            let parent = nodes[node].parent;
            nodes[node].slot = nodes[parent].children.len() as u32;
            nodes[parent].children.push(node);
        }
        for node in &mut nodes {
            node.fit = Tournament::new(node.children.len());
            node.unfit = Tournament::new(node.children.len());
        }
        ShareTree { nodes }
    }

    /// Gives a node its curves. An active node starts anew from where it is.
    pub(super) fn set(&mut self, node: usize, slopes: Option<Slopes>, limit: Option<Limit>, now: Instant) {
        let n = &mut self.nodes[node];
        n.curve = slopes.map(|s| Runtime::new(&s, n.virtual_time, n.total));
        n.slopes = slopes;
        n.limit = limit.map(|mut limit| {
            limit.curve = Runtime::new(&limit.slopes, Fine::from(now).raw(), n.total);
            limit
        });
        n.own_fit = Instant::ZERO;
        self.place_upwards(node, now);
    }

    /// The queue of a leaf gives nothing before `at`.
    pub(super) fn set_queue_fit(&mut self, leaf: usize, at: Instant, now: Instant) {
        if self.nodes[leaf].queue_fit != at {
            self.nodes[leaf].queue_fit = at;
            self.place_upwards(leaf, now);
        }
    }

    fn place_upwards(&mut self, mut node: usize, now: Instant) {
        while node != ROOT && self.nodes[node].is_active() {
            self.place(node, now);
            node = self.nodes[node].parent;
        }
    }

    /// A leaf has something to send: it, and the ancestors that had not, join in.
    pub(super) fn activate(&mut self, leaf: usize, now: Instant) {
        let (mut node, mut joins) = (leaf, true);
        while node != ROOT {
            let parent = self.nodes[node].parent;
            if joins {
                self.nodes[node].active += 1;
                joins = self.nodes[node].active == 1;
            }
            if joins {
                self.join(node, parent, now);
            }
            self.place(node, now);
            node = parent;
        }
        if joins {
            self.nodes[ROOT].active += 1;
        }
    }

    /// The virtual time with which a node joins its active siblings, or begins a new period.
    fn join(&mut self, node: usize, parent: usize, now: Instant) {
        let p = &mut self.nodes[parent];
        let virtual_time = if p.members > 0 {
            // The middle between the least and the greatest keeps any two within a constant of
            // each other, however many there are [HFSC97 section 4.2].
            if p.least > 0 { (p.least + p.greatest) / 2 } else { p.greatest }
        } else {
            p.least = 0;
            p.greatest = p.next_start;
            p.next_start
        };
        let fresh = p.members == 0;
        let (parent_period, parent_active) = (p.period, p.active > 0 || parent == ROOT);
        p.members += 1;
        let n = &mut self.nodes[node];
        // What it had in this same period of its parent still counts: it may be ahead.
        if fresh || parent_period != n.parent_period || virtual_time > n.virtual_time {
            n.virtual_time = virtual_time;
        }
        if let (Some(slopes), Some(curve)) = (&n.slopes, &mut n.curve) {
            curve.min_with(slopes, n.virtual_time, n.total);
        }
        n.adjustment = 0;
        n.period += 1;
        // The parent, if it joins too, begins its next period after this.
        n.parent_period = parent_period + u64::from(!parent_active);
        n.own_fit = Instant::ZERO;
        if let Some(limit) = &mut n.limit {
            limit.curve.min_with(&limit.slopes, Fine::from(now).raw(), n.total);
            limit.forgiven = 0;
            n.own_fit = Fine::from_raw(limit.curve.time_at(&limit.slopes, n.total)).ceil();
        }
        let virtual_time = n.virtual_time;
        let p = &mut self.nodes[parent];
        p.greatest = p.greatest.max(virtual_time);
    }

    /// Puts a member where it belongs: among those that fit, by virtual time, or among those that
    /// wait, by fit time.
    fn place(&mut self, node: usize, now: Instant) {
        let n = &self.nodes[node];
        let (slot, at, key, parent) = (n.slot, n.fit_time(), n.virtual_time, n.parent);
        let p = &mut self.nodes[parent];
        if at <= now {
            p.unfit.remove(slot);
            self.admit_child(parent, slot, key);
        } else {
            p.fit.remove(slot);
            p.unfit.set(slot, at.as_nanos());
        }
    }

    /// Puts a child among those that fit. Its key is its virtual time in units of 2^-8 ns from a
    /// base that moves on: active siblings lie a packet's time at the slowest rate apart at most, three days
    /// for 64 KB at 2 bit/s, and a key has room for 200.
    fn admit_child(&mut self, parent: usize, slot: u32, virtual_time: u128) {
        let p = &mut self.nodes[parent];
        let key = (virtual_time.saturating_sub(p.base) >> 24).min(u128::from(u64::MAX)) as u64;
        p.fit.set(slot, key);
        if key >= FAR {
            self.rebase(parent);
        }
    }

    /// Counts the keys of a node's children from the least virtual time among them.
    #[cold]
    fn rebase(&mut self, parent: usize) {
        let time_of = |tree: &ShareTree, index: usize| {
            let child = &tree.nodes[tree.nodes[parent].children[index]];
            tree.nodes[parent].fit.get(child.slot).map(|_| child.virtual_time)
        };
        let children = 0..self.nodes[parent].children.len();
        let base = children.clone().filter_map(|index| time_of(self, index)).min().unwrap_or(0);
        self.nodes[parent].base = base;
        for index in children {
            if let Some(time) = time_of(self, index) {
                let key = ((time - base) >> 24).min(u128::from(u64::MAX)) as u64;
                self.nodes[parent].fit.set(index as u32, key);
            }
        }
    }

    /// A leaf has had `bytes`; `leaves` if it has nothing more to send.
    pub(super) fn charge(&mut self, leaf: usize, bytes: u64, mut leaves: bool, now: Instant) {
        let mut node = leaf;
        while node != ROOT {
            let parent = self.nodes[node].parent;
            let least = self.nodes[parent].least;
            let n = &mut self.nodes[node];
            n.total += bytes;
            if n.active == 0 {
                node = parent;
                continue;
            }
            if leaves {
                n.active -= 1;
                leaves = n.active == 0;
            }
            if let (Some(slopes), Some(curve)) = (&n.slopes, &n.curve) {
                n.virtual_time = curve.time_at(slopes, n.total).saturating_add(n.adjustment);
            }
            if n.virtual_time < least {
                n.adjustment += least - n.virtual_time;
                n.virtual_time = least;
            }
            if let Some(limit) = &mut n.limit {
                let mut at = limit.curve.time_at(&limit.slopes, n.total).saturating_add(limit.forgiven);
                let earliest = Fine::from(now).raw().saturating_sub(limit.slack);
                if at < earliest {
                    limit.forgiven += earliest - at;
                    at = earliest;
                }
                n.own_fit = Fine::from_raw(at).ceil();
            }
            let (virtual_time, slot) = (n.virtual_time, n.slot);
            let p = &mut self.nodes[parent];
            p.greatest = p.greatest.max(virtual_time);
            if leaves {
                p.next_start = p.next_start.max(virtual_time);
                p.fit.remove(slot);
                p.unfit.remove(slot);
                p.members -= 1;
            } else {
                self.place(node, now);
            }
            node = parent;
        }
        self.nodes[ROOT].total += bytes;
        if leaves {
            self.nodes[ROOT].active -= 1;
        }
    }

    /// The leaf whose turn it is: from the root down to the least virtual time that fits.
    pub(super) fn choose(&mut self, now: Instant) -> Option<usize> {
        let mut node = ROOT;
        loop {
            self.admit(node, now);
            let n = &mut self.nodes[node];
            let (slot, _) = n.fit.min()?;
            let child = n.children[slot as usize];
            let virtual_time = self.nodes[child].virtual_time;
            let n = &mut self.nodes[node];
            n.least = n.least.max(virtual_time);
            node = child;
            if self.nodes[node].children.is_empty() {
                return Some(node);
            }
        }
    }

    /// Moves children whose fit time has come.
    fn admit(&mut self, node: usize, now: Instant) {
        while self.nodes[node].unfit.least().is_some_and(|at| as_instant(at) <= now) {
            let Some((slot, _)) = self.nodes[node].unfit.min() else { return };
            let child = self.nodes[node].children[slot as usize];
            let key = self.nodes[child].virtual_time;
            self.nodes[node].unfit.remove(slot);
            self.admit_child(node, slot, key);
        }
    }

    /// When something in the tree fits next; `NEVER` if nothing is active.
    pub(super) fn next_fit(&self) -> Instant {
        self.nodes[ROOT].children_fit_time()
    }

    /// Whether members, tournaments and activity agree.
    pub(super) fn is_sound(&self) -> bool {
        self.nodes.iter().all(|n| {
            let mut members = 0;
            let agree = n.children.iter().all(|&child| {
                let c = &self.nodes[child];
                let places =
                    u32::from(n.fit.get(c.slot).is_some()) + u32::from(n.unfit.get(c.slot).is_some());
                members += places;
                places == u32::from(c.is_active())
            });
            agree && members == n.members
        })
    }
}

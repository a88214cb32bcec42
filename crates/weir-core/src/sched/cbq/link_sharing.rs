//! Link sharing: which classes are underlimit, which have demand, and who may lend to whom.
//!
//! [CBQ95 section III] calls a class *unsatisfied* if it is underlimit and has backlog below it.
//! A leaf is at level 1, any other class one level above its highest child. A class may send
//! if it is not overlimit, or if it may borrow from an ancestor that is not overlimit and that
//! ancestor's level is at most
//!
//! * *formal*: the lowest level at which any class is unsatisfied,
//! * *top-level*: the Top-Level variable, which packets' arrivals and departures move, and 1 while
//!   a leaf is unsatisfied,
//! * *ancestor-only*: any level.
//!
//! Backlog counts for a class only where the borrow flags lead from the backlogged class to it:
//! what no lending could serve must not hold others back. It follows that, whatever the rule,
//! somebody may send if and only if some class with demand is underlimit, so the time at which
//! to come back is the least wake-up time of the classes with demand.
//!
//! A class with demand is either in the count of its level (underlimit) or in the tree of
//! wake-up times (overlimit), never polled, and moves by itself when its time has come.

use super::books::{Again, Books, Levels, PRIORITIES, Rings};
use super::member::{LEVELS, Member, NONE, Pick};
use super::wakes::Wakes;
use super::wrr::{HeldBack, Ring, Standing};
use crate::units::Instant;
use alloc::vec;
use alloc::vec::Vec;

/// Which ancestors may lend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    Formal,
    TopLevel,
    AncestorOnly,
}

/// Where a class stands in the tree, to build from.
pub(super) struct Position {
    pub parent: u32,
    pub borrows: bool,
    pub priority: u8,
    pub quantum: i64,
    pub wake: Instant,
}

/// No choice.
const NOBODY: Pick = Pick { class: NONE, lender: NONE };

pub(super) struct LinkSharing<T> {
    pub members: Vec<Member<T>>,
    pub books: Books,
    /// The Top-Level variable.
    top_level: u8,
    /// The last choice went by right ahead of a class that Top-Level would have let go first.
    ahead: bool,
    pub rule: Rule,
    /// As ns-2: where all are refused, the first that was looked at sends and is charged to nobody.
    pub gives: bool,
}

/// The level of each class: 1 without children, else one above the highest child. Parents come
/// before children in `parents`.
pub(super) fn levels(parents: &[u32]) -> Vec<usize> {
    let mut levels = vec![1; parents.len()];
    for class in (0..parents.len()).rev() {
        if let Some(level) = levels.get(parents[class] as usize) {
            let above = (levels[class] + 1).max(*level);
            levels[parents[class] as usize] = above;
        }
    }
    levels
}

/// Who lends to `class` if ancestors above the level `ceiling` do not: `NONE` if it need not borrow.
#[inline(always)]
fn lender<T>(members: &[Member<T>], class: u32, ceiling: u8) -> Option<u32> {
    let member = &members[class as usize];
    if member.under {
        return Some(NONE);
    }
    let mut lender = member.lender;
    while lender != NONE {
        let above = &members[lender as usize];
        if above.level > ceiling {
            return None;
        }
        if above.under {
            return Some(lender);
        }
        lender = above.lender;
    }
    None
}

impl<T> LinkSharing<T> {
    /// `positions` in the order of the file, parents before children, fewer than `LEVELS` levels; and what
    /// the scheduler keeps of each.
    pub fn new(
        positions: &[Position],
        of: impl IntoIterator<Item = T>,
        rule: Rule,
        packet_by_packet: bool,
        gives: bool,
    ) -> Self {
        let held_back = match rule {
            _ if gives => HeldBack::LosesCredit,
            Rule::TopLevel => HeldBack::LosesTurn,
            Rule::Formal | Rule::AncestorOnly => HeldBack::KeepsTurn,
        };
        let parents: Vec<u32> = positions.iter().map(|p| p.parent).collect();
        let levels = levels(&parents);
        let mut places = vec![Vec::new(); PRIORITIES];
        let mut members: Vec<Member<T>> = Vec::with_capacity(positions.len());
        for ((class, p), of) in positions.iter().enumerate().zip(of) {
            let ring = &mut places[usize::from(p.priority)];
            members.push(Member {
                of,
                above: p.parent,
                lender: if p.borrows { p.parent } else { NONE },
                demand: 0,
                place: ring.len() as u32,
                since: Instant::ZERO,
                level: levels[class].min(LEVELS - 1) as u8,
                priority: p.priority,
                counts: p.parent != NONE || rule == Rule::AncestorOnly,
                under: false,
                queued: false,
                standing: Standing::Out,
                wake: p.wake,
            });
            ring.push((class as u32, p.quantum));
        }
        for class in 0..members.len() {
            if members.get(parents[class] as usize).is_some_and(|parent| !parent.counts) {
                members[class].above = NONE;
            }
        }
        LinkSharing {
            books: Books {
                wakes: Wakes::new(members.len()),
                rings: Rings {
                    of: core::array::from_fn(|p| Ring::new(&places[p], packet_by_packet, held_back)),
                    ready: 0,
                    queued: 0,
                },
                levels: Levels { unsatisfied: [0; LEVELS], any: 0 },
                again: Again::No,
                last: NOBODY,
            },
            members,
            top_level: u8::MAX,
            ahead: false,
            rule,
            gives,
        }
    }

    /// The class's own queue has packets that could go, and they would start at `starts`.
    pub fn enter(&mut self, class: usize, now: Instant, starts: Instant) {
        self.books.again = Again::No;
        let mut at = class;
        loop {
            let member = &mut self.members[at];
            member.demand += 1;
            let lender = member.lender;
            if member.demand == 1 {
                member.since = now;
                member.under = member.wake <= starts;
                let (under, level, wake) = (member.under, member.level, member.wake);
                if under {
                    self.books.levels.count(level, true);
                } else {
                    self.books.wakes.set(at, wake);
                }
            }
            if lender == NONE {
                break;
            }
            at = lender as usize;
        }
        let member = &mut self.members[class];
        member.queued = true;
        self.books.rings.stand(member);
    }

    /// The class's own queue has no more packets that could go.
    pub fn leave(&mut self, class: usize) {
        self.books.again = Again::No;
        let member = &mut self.members[class];
        member.queued = false;
        self.books.rings.stand(member);
        let mut at = class;
        loop {
            let member = &mut self.members[at];
            member.demand -= 1;
            let (demand, under, level, lender) = (member.demand, member.under, member.level, member.lender);
            if demand == 0 {
                if under {
                    self.books.levels.count(level, false);
                } else {
                    self.books.wakes.set(at, Instant::NEVER);
                }
            }
            if lender == NONE {
                break;
            }
            at = lender as usize;
        }
    }

    /// Moves every class whose waiting has ended. Answers how many.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> u32 {
        let mut moved = 0;
        while let Some(class) = self.books.wakes.take_due(now) {
            let member = &mut self.members[class];
            member.under = true;
            self.books.again = Again::No;
            self.books.levels.count(member.level, true);
            self.books.rings.stand(member);
            moved += 1;
        }
        moved
    }

    /// When the next class with demand becomes underlimit.
    pub fn next_wake(&self) -> Instant {
        self.books.wakes.least()
    }

    /// From when on some class on the way of `class` to its lenders is underlimit.
    pub fn wake_of_chain(&self, class: usize) -> Instant {
        let mut at = class as u32;
        let mut least = Instant::NEVER;
        while at != NONE {
            least = least.min(self.members[at as usize].wake);
            at = self.members[at as usize].lender;
        }
        least
    }

    /// Top-Level on an arrival for `class`: who waits while it is underlimit, or has a parent
    /// that is, must not be passed over by borrowing from higher up [CBQ95 section III.C].
    #[inline(always)]
    pub fn arrived(&mut self, class: usize, now: Instant) {
        if self.rule != Rule::TopLevel {
            return;
        }
        let mut member = &self.members[class];
        if !member.queued {
            return;
        }
        while member.level < self.top_level {
            if member.wake <= now {
                self.top_level = member.level;
                self.books.again = Again::No;
                return;
            }
            if member.lender == NONE {
                return;
            }
            member = &self.members[member.lender as usize];
        }
    }

    /// Top-Level after `pick` has sent: if its queue is empty, or who lent is overlimit now,
    /// there is no more reason to hold others back. A class that went only because it has a right
    /// to its share says nothing about them.
    #[inline]
    pub fn departed(&mut self, pick: Pick, now: Instant) {
        if self.books.again == Again::Maybe {
            self.books.again = Again::Yes;
        }
        if self.rule != Rule::TopLevel || self.ahead {
            return;
        }
        let used = &self.members[(if pick.lender == NONE { pick.class } else { pick.lender }) as usize];
        if self.top_level >= used.level {
            let on = self.members[pick.class as usize].queued && used.wake <= now;
            let level = if on { used.level } else { u8::MAX };
            if level != self.top_level {
                (self.top_level, self.books.again) = (level, Again::No);
            }
        }
    }

    /// The next class that may send under the rule, with a packet that starts at `starts`; `None`
    /// if every class with demand is overlimit.
    #[inline(always)]
    pub fn pick(&mut self, starts: Instant) -> Option<Pick> {
        if !self.books.goes_on() {
            self.books.last = self.choose(starts);
            // Whether the root lends under ancestor-only is a matter of time.
            self.books.again = if self.rule == Rule::AncestorOnly { Again::No } else { Again::Maybe };
        }
        let pick = self.books.last;
        if pick.class == NONE { None } else { Some(pick) }
    }

    /// The plain form: asked again before anything changes, it says and leaves the same.
    #[inline(never)]
    fn choose(&mut self, starts: Instant) -> Pick {
        if self.books.levels.any == 0 {
            return NOBODY;
        }
        let lowest = self.books.levels.any.trailing_zeros() as u8;
        let right_ahead = self.rule == Rule::TopLevel && lowest == 1;
        let ceiling = match self.rule {
            Rule::Formal => lowest,
            // A class that is underlimit and has packets goes before all borrowers, whether or not
            // an arrival told of it.
            Rule::TopLevel if right_ahead => 1,
            Rule::TopLevel => {
                // Nobody at or below Top-Level may send: it rises to where somebody may.
                self.top_level = self.top_level.max(lowest);
                self.top_level
            }
            Rule::AncestorOnly => {
                // A root that is just at its limit, as that of a whole busy link is, lends only
                // where the link would idle otherwise. Hosts count whole nanoseconds.
                let root = &self.members[0];
                let lends = root.wake.as_nanos().saturating_add(1) < starts.as_nanos();
                if lends { root.level } else { root.level - 1 }
            }
        };
        let pick = self.pick_below(ceiling);
        self.ahead = match pick {
            Some(pick) if right_ahead => self.borrower_above(self.members[pick.class as usize].priority),
            None if self.rule == Rule::AncestorOnly => return self.pick_of_any().unwrap_or(NOBODY),
            _ => false,
        };
        pick.unwrap_or(NOBODY)
    }

    /// The next class that has anybody to borrow from.
    #[cold]
    fn pick_of_any(&mut self) -> Option<Pick> {
        self.pick_below(u8::MAX)
    }

    /// The next class that may send if ancestors above the level `ceiling` do not lend.
    #[inline(always)]
    fn pick_below(&mut self, ceiling: u8) -> Option<Pick> {
        let (members, borrowers) = (&self.members, ceiling > 1);
        let mut priorities = if borrowers { self.books.rings.queued } else { self.books.rings.ready };
        while priorities != 0 {
            let priority = priorities.ilog2();
            priorities &= !(1 << priority);
            let ring = self.books.rings.of_mut(priority as u8);
            if let Some((class, lender)) = ring.pick(borrowers, |class| lender(members, class, ceiling)) {
                return Some(Pick { class, lender });
            }
        }
        None
    }

    /// True if Top-Level lets a class of a priority above `priority` borrow.
    #[inline]
    fn borrower_above(&self, priority: u8) -> bool {
        let mut priorities = self.books.rings.queued & (0xfe << (priority % PRIORITIES as u8));
        while priorities != 0 {
            let above = priorities.ilog2();
            priorities &= !(1 << above);
            let may = |class: u32| lender(&self.members, class, self.top_level).is_some();
            if self.books.rings.of(above as u8).has_borrower(may) {
                return true;
            }
        }
        false
    }

    /// When every class is overlimit: the next that has somebody to borrow from. In ns-2 it is the first
    /// that was looked at.
    pub fn pick_any_borrower(&mut self) -> Option<Pick> {
        self.books.again = Again::No;
        let mut rings = self.books.rings.of.iter_mut().rev().filter(|ring| ring.any(true));
        let class = match self.gives {
            true => rings.find_map(Ring::pass_first)?,
            false => rings.find_map(|ring| ring.pick(true, |_| Some(())))?.0,
        };
        Some(Pick { class, lender: self.members[class as usize].lender })
    }

    /// True if the class's own queue has packets that could go.
    pub fn is_queued(&self, class: usize) -> bool {
        self.members[class].queued
    }

    /// The class's share of a round, bytes.
    pub fn quantum(&self, class: usize) -> i64 {
        let member = &self.members[class];
        self.books.rings.of(member.priority).quantum(member.place as usize)
    }

    /// Classes that the scheduler has looked at.
    #[cfg(test)]
    pub fn looks(&self) -> u64 {
        self.books.rings.of.iter().map(|ring| ring.looks).sum()
    }

    /// Counts everything anew and compares: for tests.
    pub fn check(&self, now: Instant) -> Result<(), &'static str> {
        let mut demand = vec![0; self.members.len()];
        let mut unsatisfied = [0; LEVELS];
        for (class, member) in self.members.iter().enumerate() {
            let mut at = if member.queued { class as u32 } else { NONE };
            while at != NONE {
                demand[at as usize] += 1;
                at = self.members[at as usize].lender;
            }
            if self.books.rings.of(member.priority).standing(member.place as usize) != member.standing {
                return Err("a ring disagrees with a class about its standing");
            }
            if (member.standing == Standing::Ready) != (member.queued && member.under && member.demand > 0) {
                return Err("ready without being underlimit with packets, or the reverse");
            }
        }
        for (class, member) in self.members.iter().enumerate() {
            let waits = member.demand > 0 && !member.under;
            if member.demand != demand[class] {
                return Err("a class miscounts the demand below it");
            }
            if self.books.wakes.get(class) != if waits { member.wake } else { Instant::NEVER } {
                return Err("an overlimit class with demand has no wake-up, or another class has one");
            }
            if member.demand > 0 && member.under {
                unsatisfied[usize::from(member.level)] += 1;
                if member.wake > now {
                    return Err("a class counts as underlimit before its time");
                }
            }
        }
        if unsatisfied != self.books.levels.unsatisfied {
            return Err("a level miscounts its unsatisfied classes");
        }
        match (0..LEVELS).all(|l| (self.books.levels.any >> l & 1 == 1) == (unsatisfied[l] > 0)) {
            true => Ok(()),
            false => Err("the levels with unsatisfied classes are miscounted"),
        }
    }
}

#[cfg(test)]
mod tests;

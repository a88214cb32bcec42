//! Sessions before a port: which are in effect, and why others are not.

use super::LiveEdge;
use crate::broker::NotTaken;
use weir_core::units::Instant;
use weir_edge::edge::{SESSIONS, Session, SessionNow};

/// A session that is not in effect here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftOut {
    id: u128,
    /// The place of its class.
    class: u32,
    why: Why,
}

/// Why a session is not in effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    /// There are as many as an edge takes.
    TooMany,
    /// The discipline refuses the rate that its class would need.
    NoRoom,
}

impl LiveEdge {
    /// These are its sessions. Those that are there already come first.
    pub(in crate::direction) fn take(&mut self, now: Instant, mut sessions: Vec<Session>) {
        self.now = self.now.max(now);
        let has: Vec<Session> = self.edge.sessions().map(|(session, _)| session.clone()).collect();
        sessions.sort_by_key(|session| !has.contains(session));
        let beyond = self.edge.set_sessions(now, sessions).into_iter();
        self.left_out =
            beyond.map(|Session { id, leaf, .. }| LeftOut { id, class: leaf, why: Why::TooMany }).collect();
    }

    /// The newest session of a class whose rate was refused, of those that may be left out.
    pub(in crate::direction) fn without_room(&self, may: impl Fn(&SessionNow) -> bool) -> Option<SessionNow> {
        let lacks_room = |class: u32| self.classes.get(class as usize).is_some_and(|class| class.lacks_room);
        let all = self.edge.sessions().map(|(_, seen)| seen);
        all.filter(|seen| lacks_room(seen.leaf) && may(seen)).max_by_key(|seen| seen.since)
    }

    /// A session is in effect no longer, because there is no room for its rate.
    pub(in crate::direction) fn leave_out(&mut self, now: Instant, gone: SessionNow) {
        let others = self.edge.sessions().filter(|(_, seen)| (seen.id, seen.leaf) != (gone.id, gone.leaf));
        let others = others.map(|(session, _)| session.clone()).collect();
        self.edge.set_sessions(now, others);
        self.left_out.push(LeftOut { id: gone.id, class: gone.leaf, why: Why::NoRoom });
    }

    /// Those that are not in effect, and why.
    pub(in crate::direction) fn not_taken(&self) -> impl Iterator<Item = NotTaken> {
        self.left_out.iter().map(|one| (one.id, self.why(one)))
    }

    /// Why a session is not in effect, for people.
    fn why(&self, one: &LeftOut) -> String {
        let (interface, class) =
            (&self.interface, self.classes.get(one.class as usize).map_or("", |class| &class.name));
        match one.why {
            Why::TooMany => format!("interface {interface} has {SESSIONS} sessions, the most that it takes"),
            Why::NoRoom => format!("class {class} of interface {interface} has no room for its rate"),
        }
    }

    /// How many sessions of a class are not in effect, and why the first of them is not.
    pub(crate) fn left_out(&self, class: u32) -> Option<(u64, String)> {
        let own = || self.left_out.iter().filter(|one| one.class == class);
        Some((own().count() as u64, self.why(own().next()?)))
    }
}

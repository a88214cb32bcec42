//! Which sessions an edge has: as its broker says, and for no longer than it said.
//!
//! One question is under way at a time, and says which sessions are in effect. The next one follows when the broker says that
//! something has changed, once what it answered is in effect, and otherwise after a third of the time that the answer
//! holds. That time counts from before the question was sent. So a broker that hears nothing knows when nothing is left.

use super::Shaper;
use crate::book::Name;
use crate::http::HttpError;
use crate::wire::{SessionNow, SessionsNow};
use crate::{MILLISECOND, Nanos, SECOND};

/// What is not in effect yet is tried again so often.
const AGAIN: Nanos = SECOND;
/// How long a broker is left alone that knows no sessions.
const UNKNOWN: Nanos = 60 * SECOND;

/// The sessions of one edge.
pub(super) struct Sessions {
    /// Its name.
    pub edge: Name,
    /// Each with when it ends.
    all: Vec<(SessionNow, Nanos)>,
    in_effect: Vec<Name>,
    /// When the question under way was asked.
    asked: Option<Nanos>,
    /// When the next one is due.
    next: Nanos,
    /// That the broker does not say now which there are was said.
    is_said: bool,
}

impl Sessions {
    pub fn of(edge: Name) -> Sessions {
        Sessions { edge, all: Vec::new(), in_effect: Vec::new(), asked: None, next: 0, is_said: false }
    }

    /// Something has changed.
    pub fn changed(&mut self) {
        self.next = 0;
    }

    /// The broker is another one, or there is another way to it: what was asked is not answered any more.
    pub fn lost(&mut self) {
        (self.asked, self.next) = (None, 0);
    }

    /// When there is something to do by itself: to ask, if that can be said now, or a session ends.
    pub fn poll_at(&self, can_ask: bool) -> Option<Nanos> {
        let asks = (can_ask && self.asked.is_none()).then_some(self.next);
        self.all.iter().map(|(_, until)| *until).chain(asks).min()
    }

    /// The question that is due at `now`: what is in effect.
    pub fn ask(&mut self, now: Nanos) -> Option<Vec<Name>> {
        if self.asked.is_some() || now < self.next {
            return None;
        }
        (self.asked, self.next) = (Some(now), Nanos::MAX);
        Some(self.in_effect.clone())
    }

    /// Sessions whose time is over at `now` end.
    pub fn pass(&mut self, now: Nanos, shaper: &mut impl Shaper) {
        let before = self.all.len();
        self.all.retain(|(_, until)| now < *until);
        if self.all.len() < before {
            self.put(shaper);
            self.next = 0;
        }
    }

    /// The answer. None: the broker knows no sessions.
    pub fn answered(&mut self, now: Nanos, answer: Option<SessionsNow>, shaper: &mut impl Shaper) {
        let Some(asked) = self.asked.take() else { return };
        self.is_said = false;
        let Some(SessionsNow { holds_ms, sessions }) = answer else {
            self.next = self.next.min(now + UNKNOWN);
            return;
        };
        let holds = u64::from(holds_ms) * MILLISECOND;
        let until = |session: &SessionNow| {
            asked.saturating_add(holds.min(session.left_ms.saturating_mul(MILLISECOND)))
        };
        let all = sessions.into_iter().map(|session| {
            let until = until(&session);
            (session, until)
        });
        self.all = all.filter(|(_, until)| now < *until).collect();
        let said = std::mem::take(&mut self.in_effect);
        self.put(shaper);
        let next = if self.in_effect != said {
            now
        } else if self.in_effect.len() < self.all.len() {
            now + AGAIN
        } else {
            now + holds / 3
        };
        // It may have been said meanwhile that something has changed.
        self.next = self.next.min(next);
    }

    /// The broker does not say now: those that are there stay until their time is over, and it is asked again.
    pub fn not_now(&mut self, now: Nanos, why: &HttpError, shaper: &mut impl Shaper) {
        if self.asked.take().is_some() {
            self.next = self.next.min(now + AGAIN);
            if !std::mem::replace(&mut self.is_said, true) {
                shaper.no_sessions(why);
            }
        }
    }

    /// Puts them into effect, and no others.
    fn put(&mut self, shaper: &mut impl Shaper) {
        let sessions: Vec<SessionNow> = self.all.iter().map(|(session, _)| session.clone()).collect();
        self.in_effect = shaper.sessions(&sessions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::book::Refusal;
    use crate::holder::State;

    /// What was put into effect last. It can have but some.
    struct Has(Vec<Name>, usize);

    impl Shaper for Has {
        fn shape(&mut self, _: &str, _: Rate, _: State, _: Option<&Refusal>) {}
        fn broker(&mut self, _: Result<(), &HttpError>) {}
        fn sessions(&mut self, all: &[SessionNow]) -> Vec<Name> {
            self.0 = all.iter().map(|session| session.session.clone()).take(self.1).collect();
            self.0.clone()
        }
    }

    fn answer(sessions: &[(&str, u64)]) -> Option<SessionsNow> {
        let of = |&(session, left_ms): &(&str, u64)| SessionNow {
            session: session.into(),
            path: vec!["wan0:rt".into()],
            rate_bps: 1,
            left_ms,
            device: Vec::new(),
            server: Vec::new(),
        };
        Some(SessionsNow { holds_ms: 30_000, sessions: sessions.iter().map(of).collect() })
    }

    fn names(all: &[&str]) -> Vec<Name> {
        all.iter().map(|&name| name.into()).collect()
    }

    /// What is in effect is said at once, and then after a third of the time.
    #[test]
    fn what_is_in_effect_is_said_at_once() {
        let (mut sessions, mut has) = (Sessions::of("e0".into()), Has(Vec::new(), 9));
        assert_eq!(sessions.ask(5), Some(names(&[])));
        assert_eq!((sessions.ask(6), sessions.poll_at(true)), (None, None), "one question at a time");
        sessions.answered(7, answer(&[("a", 60_000), ("b", 60_000)]), &mut has);
        assert_eq!(sessions.ask(7), Some(names(&["a", "b"])));
        sessions.answered(8, answer(&[("a", 60_000), ("b", 60_000)]), &mut has);
        assert_eq!((sessions.ask(9), sessions.poll_at(true)), (None, Some(8 + 10 * SECOND)));
        sessions.changed();
        assert_eq!(sessions.ask(9), Some(names(&["a", "b"])));
        // It changes again while the question is under way.
        sessions.changed();
        sessions.answered(10, answer(&[("b", 60_000)]), &mut has);
        assert_eq!((sessions.ask(10), &has.0), (Some(names(&["b"])), &names(&["b"])));
    }

    /// Counted from the question, whatever the answer took: a session has its time, and no more than the answer holds.
    #[test]
    fn sessions_end_without_the_broker() {
        let (mut sessions, mut has) = (Sessions::of("e0".into()), Has(Vec::new(), 9));
        sessions.ask(0);
        sessions.answered(2 * SECOND, answer(&[("a", 60_000), ("b", 3_000), ("c", 1_000)]), &mut has);
        assert_eq!(has.0, names(&["a", "b"]), "c has ended on the way");
        assert_eq!(sessions.poll_at(false), Some(3 * SECOND));
        sessions.pass(3 * SECOND, &mut has);
        assert_eq!(has.0, names(&["a"]));
        sessions.ask(3 * SECOND);
        sessions.lost();
        assert_eq!(sessions.poll_at(false), Some(30 * SECOND));
        sessions.pass(30 * SECOND - 1, &mut has);
        assert_eq!(has.0, names(&["a"]), "the broker may be away for a while");
        sessions.pass(30 * SECOND, &mut has);
        assert_eq!(has.0, names(&[]));
    }

    /// A busy broker is no broker without sessions: nothing changes, and it is asked again soon.
    #[test]
    fn a_busy_broker_is_asked_again() {
        let (mut sessions, mut has) = (Sessions::of("e0".into()), Has(Vec::new(), 9));
        sessions.ask(0);
        sessions.answered(0, answer(&[("a", 60_000)]), &mut has);
        assert_eq!(sessions.ask(0), Some(names(&["a"])));
        sessions.not_now(SECOND, &HttpError::Unreadable("busy".into()), &mut has);
        assert_eq!((sessions.ask(SECOND + AGAIN - 1), &has.0), (None, &names(&["a"])));
        assert_eq!(sessions.ask(SECOND + AGAIN), Some(names(&["a"])));
    }

    /// A class may come later than its sessions. A broker that knows none is left alone.
    #[test]
    fn what_is_not_in_effect_is_tried_again() {
        let (mut sessions, mut has) = (Sessions::of("e0".into()), Has(Vec::new(), 0));
        sessions.ask(0);
        sessions.answered(0, answer(&[("a", 60_000)]), &mut has);
        assert_eq!((has.0.len(), sessions.poll_at(true)), (0, Some(AGAIN)));
        has.1 = 1;
        sessions.ask(AGAIN);
        sessions.answered(AGAIN, answer(&[("a", 60_000)]), &mut has);
        assert_eq!(sessions.ask(AGAIN), Some(names(&["a"])));
        sessions.answered(AGAIN, None, &mut has);
        assert_eq!(sessions.ask(AGAIN + UNKNOWN - 1), None);
        assert!(sessions.ask(AGAIN + UNKNOWN).is_some());
        sessions.answered(0, None, &mut has);
        sessions.lost();
        assert!(sessions.ask(0).is_some(), "another broker may know some");
    }
}

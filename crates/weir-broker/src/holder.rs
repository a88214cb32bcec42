//! The half of an edge, and of a broker towards its neighbour: what may be used now, and what to ask next.
//!
//! Pure like the [book](crate::book): times come in, requests go out as values. It keeps the rules that the
//! book counts on: it shapes down before it asks for less, heeds the answer to its newest version alone, and
//! counts a grant from when it sent the request *first*.

use crate::book::{Name, Refusal, Request, Verdict};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use serde::{Deserialize, Serialize};
use weir_core::Random;

/// The shortest time between two requests for one lease, unless set: the allocator's window.
pub const GAP: Nanos = 800 * MILLISECOND;
/// After a refusal nothing more is asked for this long, unless set.
pub const RETRY: Nanos = 10 * SECOND;
/// The first time after which an unanswered request is sent again. It doubles up to [`SLOWEST`].
pub const FIRST: Nanos = SECOND / 2;
/// The longest time after which an unanswered request is sent again.
pub const SLOWEST: Nanos = 30 * SECOND;

/// What does not change about a lease.
#[derive(Clone, Debug)]
pub struct Terms {
    /// `OWNER/REST`.
    pub lease: Name,
    /// The resources, each `LINK:CLASS`.
    pub path: Vec<Name>,
    /// How long a grant is to hold, in milliseconds.
    pub ttl_ms: u32,
    /// Counts the lives of the holder: its versions begin at `epoch` 2^32. A broker that takes over asks its
    /// neighbours in a later epoch, and the one before it falls silent. An edge uses 0.
    pub epoch: u32,
    /// The shortest time between two requests.
    pub gap: Nanos,
    /// How long nothing more is asked after a refusal.
    pub retry: Nanos,
}

/// How a lease stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is wanted or held: what the edge has without a broker is in use.
    Idle,
    /// A grant is in use, or the first one is asked for.
    Leased,
    /// The broker refused to give more. What was granted before is in use.
    Refused,
    /// The last grant ended because the broker did not answer.
    Orphaned,
    /// Another speaks for this lease, in a later epoch or by the same name. Nothing is asked any more.
    Replaced,
}

impl State {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            State::Idle => "STATIC",
            State::Leased => "LEASED",
            State::Refused => "REFUSED",
            State::Orphaned => "ORPHANED",
            State::Replaced => "REPLACED",
        }
    }
}

/// A lease as `weir leases` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// `OWNER/REST`.
    pub lease: Name,
    /// The resources, each `LINK:CLASS`.
    pub path: Vec<Name>,
    /// What is wanted, in bit/s.
    pub wanted: Rate,
    /// What may be used now, in bit/s.
    pub held: Rate,
    /// How long that lasts if the broker says nothing more.
    pub left: Nanos,
    /// How it stands.
    pub state: State,
    /// Why the last request was refused.
    pub refusal: Option<Refusal>,
}

/// What is held of a lease, for another holder that goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// `OWNER/REST`.
    pub lease: String,
    /// The newest that was asked for.
    pub version: u64,
    /// What may be used, in bit/s.
    pub held_bps: Rate,
    /// When that ends, in nanoseconds on the clock of the holder.
    pub until: Nanos,
}

/// A request on its way.
#[derive(Clone, Debug)]
struct Sent {
    rate: Rate,
    min: Rate,
    first: Nanos,
    again: Nanos,
    pause: Nanos,
}

/// One lease, seen by who uses it.
#[derive(Clone, Debug)]
pub struct Holder {
    terms: Terms,
    version: u64,
    wish: Rate,
    min: Rate,
    domains: Vec<Name>,
    held: Rate,
    held_until: Nanos,
    /// What others use by this lease, who come down later than it does.
    lent: Rate,
    /// The most that the broker may count.
    counted: Rate,
    renew_at: Nanos,
    /// No rise is asked for before.
    rise_at: Nanos,
    /// No request is sent before.
    quiet_until: Nanos,
    sent: Option<Sent>,
    /// The broker must hear what is in use.
    tell: bool,
    /// What the newest version was called back to before its answer came.
    called: Rate,
    state: State,
    refusal: Option<Refusal>,
    /// A grant to one of its own versions was heeded, or a refusal for want of room.
    heard: bool,
    /// Rises by 2 with each version that somebody else has used already, and falls by 1 with each grant.
    overtaken: u8,
}

impl Holder {
    /// Nothing wanted, nothing held.
    pub fn new(terms: Terms) -> Self {
        Holder {
            version: u64::from(terms.epoch) << 32,
            terms,
            wish: 0,
            min: 0,
            domains: Vec::new(),
            held: 0,
            held_until: 0,
            lent: 0,
            counted: 0,
            renew_at: Nanos::MAX,
            rise_at: 0,
            quiet_until: 0,
            sent: None,
            tell: false,
            called: Rate::MAX,
            state: State::Idle,
            refusal: None,
            heard: false,
            overtaken: 0,
        }
    }

    /// Goes on with what another holder held at `now`: that is wanted, and the broker hears of it at once. What has ended
    /// meanwhile is not held.
    pub fn resume(terms: Terms, carried: &Carried, now: Nanos) -> Self {
        let mut holder = Holder::new(terms);
        let Carried { version, held_bps, until, .. } = *carried;
        holder.version = holder.version.max(version);
        if now < until {
            (holder.held, holder.held_until, holder.wish) = (held_bps, until, held_bps);
            (holder.counted, holder.renew_at, holder.tell) = (held_bps, now, true);
            holder.state = State::Leased;
        }
        holder
    }

    /// What another holder needs to go on.
    pub fn carry(&self, now: Nanos) -> Option<Carried> {
        let (lease, until) = (self.terms.lease.to_string(), self.held_until);
        let held_bps = self.rate(now);
        (self.version > 0).then_some(Carried { lease, version: self.version, held_bps, until })
    }

    /// True if nothing is wanted or held, and the broker has heard that.
    pub fn is_given_back(&self) -> bool {
        self.state == State::Replaced || self.wish == 0 && self.held == 0 && self.sent.is_none() && !self.tell
    }

    /// Wants `rate`, and nothing below `min`. The newest wish replaces those before. Wanting less than
    /// what is held takes effect at once.
    pub fn want(&mut self, rate: Rate, min: Rate, domains: &[Name]) {
        if rate > self.wish && rate > self.held && self.state != State::Refused {
            self.rise_at = 0;
        }
        (self.wish, self.min) = (rate, min.min(rate));
        self.domains = domains.to_vec();
        // The broker keeps room for a rise that waits for its neighbour.
        let rises = self.sent.as_ref().is_some_and(|sent| sent.rate > self.held.max(self.lent));
        if self.held > rate {
            (self.held, self.tell) = (rate, true);
        } else if rises && rate <= self.held {
            self.tell = true;
        }
    }

    /// A broker has lent so much of it to its edges. No request names less, until they have come down.
    pub fn lend(&mut self, rate: Rate) {
        self.lent = rate;
        if rate <= self.held && self.counted > self.held && self.sent.is_none() {
            self.tell = true;
        }
    }

    /// What may be used at `now`, in bit/s.
    pub fn rate(&self, now: Nanos) -> Rate {
        if now < self.held_until { self.held } else { 0 }
    }

    /// When the grant in use ends.
    pub fn until(&self) -> Nanos {
        self.held_until
    }

    /// How the lease stands, and why the last request was refused.
    pub fn state(&self) -> (State, Option<&Refusal>) {
        (self.state, self.refusal.as_ref())
    }

    /// What is held at `now`, until when, and how it stands.
    pub fn standing(&self, now: Nanos) -> Standing {
        let held = self.rate(now);
        Standing {
            lease: self.terms.lease.clone(),
            path: self.terms.path.clone(),
            wanted: self.wish,
            held,
            left: if held > 0 { self.held_until - now } else { 0 },
            state: self.state,
            refusal: self.refusal.clone(),
        }
    }

    /// The broker can be reached again, and may have forgotten: what is in use is said at once.
    pub fn reconnected(&mut self) {
        if self.state != State::Replaced && (self.held > 0 || self.wish > 0) {
            (self.tell, self.quiet_until) = (true, 0);
        }
    }

    /// When [`poll`](Self::poll) has something to do, if ever.
    pub fn poll_at(&self) -> Option<Nanos> {
        if self.state == State::Replaced {
            return None;
        }
        let end = (self.held > 0).then_some(self.held_until);
        let next = match &self.sent {
            Some(sent) if !self.tell => Some(sent.again.min(self.outdated(sent))),
            Some(_) => Some(0),
            None if self.tell => Some(0),
            None if self.wish > self.held && self.held == 0 => Some(self.rise_at),
            None if self.wish > self.held => Some(self.rise_at.min(self.renew_at)),
            None if self.held > 0 => Some(self.renew_at),
            None => None,
        };
        end.into_iter().chain(next.map(|at| at.max(self.quiet_until))).min()
    }

    /// After this, the answer to a request would be of no use.
    fn outdated(&self, sent: &Sent) -> Nanos {
        sent.first + u64::from(self.terms.ttl_ms) * MILLISECOND / 3
    }

    /// What time alone does: a grant that was not renewed ends.
    pub fn pass(&mut self, now: Nanos) {
        if self.held > 0 && now >= self.held_until {
            (self.held, self.state) = (0, State::Orphaned);
        }
    }

    /// What to send at `now`, if anything.
    pub fn poll(&mut self, now: Nanos, random: &mut Random) -> Option<Request> {
        self.pass(now);
        if now < self.quiet_until || self.state == State::Replaced {
            return None;
        }
        // An older request that is of no use any more is forgotten here.
        if let Some(mut sent) = self.sent.take()
            && !self.tell
            && now < self.outdated(&sent)
        {
            let send = now >= sent.again;
            if send {
                sent.pause = (2 * sent.pause).min(SLOWEST);
                sent.again = now + jitter(sent.pause, random);
                self.quiet_until = now + self.terms.gap.min(FIRST);
            }
            let request = send.then(|| self.request(&sent));
            self.sent = Some(sent);
            return request;
        }
        let rise = self.wish > self.held && now >= self.rise_at;
        let renew = self.held > 0 && now >= self.renew_at;
        if !rise && !renew && !self.tell {
            return None;
        }
        let rate = if rise { self.wish } else { self.held }.max(self.lent);
        self.tell = false;
        (self.version, self.called) = (self.version.saturating_add(1), Rate::MAX);
        let sent = Sent {
            rate,
            min: self.min.min(rate),
            first: now,
            again: now + jitter(FIRST, random),
            pause: FIRST,
        };
        self.quiet_until = now + self.terms.gap;
        let request = self.request(&sent);
        self.sent = Some(sent);
        Some(request)
    }

    fn request(&self, sent: &Sent) -> Request {
        Request {
            lease: self.terms.lease.clone(),
            version: self.version,
            path: self.terms.path.clone(),
            rate: sent.rate,
            min: sent.min,
            ttl_ms: self.terms.ttl_ms,
            domains: self.domains.clone(),
        }
    }

    /// The broker answered `version`. True if that decides about the wish: an answer to any version but the newest is not
    /// heeded, and who only learns that its version was used already asks again.
    pub fn answer(&mut self, now: Nanos, version: u64, verdict: &Verdict, random: &mut Random) -> bool {
        if version != self.version {
            return false;
        }
        let Some(sent) = self.sent.take() else { return false };
        let is_own = matches!(verdict, Verdict::Granted { .. } | Verdict::Refused(Refusal::Full { .. }));
        match verdict {
            Verdict::Granted { rate, ttl_ms } => {
                let ttl = u64::from(*ttl_ms) * MILLISECOND;
                self.counted = self.counted.min(sent.rate).max(*rate);
                (self.held_until, self.renew_at) = (sent.first + ttl, sent.first + jitter(ttl / 3, random));
                // Called back, or no more wanted in the meantime: come down first, then say so.
                let usable = (*rate).min(self.called);
                self.held = usable.min(self.wish);
                self.tell = self.counted > self.held.max(self.lent);
                self.state = if *rate > 0 { State::Leased } else { State::Idle };
                self.refusal = None;
                self.overtaken = self.overtaken.saturating_sub(1);
                if usable < sent.rate {
                    self.rise_at = now + self.terms.retry;
                    self.state = State::Refused;
                }
                if self.held == 0 {
                    self.renew_at = Nanos::MAX;
                }
            }
            Verdict::Refused(Refusal::Stale { newest }) if newest >> 32 > u64::from(self.terms.epoch) => {
                self.state = State::Replaced;
            }
            // It alone counts its versions. An operator may give the lease back once; who does so again and again speaks
            // by the same name.
            Verdict::Refused(Refusal::Stale { .. } | Refusal::Differs)
                if self.heard && self.overtaken >= 2 =>
            {
                (self.state, self.held, self.tell) = (State::Replaced, 0, false);
            }
            Verdict::Refused(Refusal::Differs) if self.heard => {
                (self.overtaken, self.tell) = (self.overtaken + 2, true);
                return false;
            }
            Verdict::Refused(Refusal::Stale { newest }) => {
                self.overtaken += if self.heard { 2 } else { 0 };
                (self.version, self.tell) = (self.version.max(*newest), true);
                return false;
            }
            Verdict::Refused(why) => {
                self.rise_at = now + self.terms.retry;
                // What is held goes on to its end, and is asked for again before.
                let left = self.held_until.saturating_sub(now);
                let renew = now + jitter(self.terms.retry.min(left / 2), random);
                self.renew_at = if self.held > 0 { renew } else { Nanos::MAX };
                (self.state, self.refusal) = (State::Refused, Some(why.clone()));
            }
        }
        self.heard |= is_own;
        true
    }

    /// The broker wants the lease to come down to `rate`, after it decided about `version`. The answer to
    /// that version may come later, and then grants no more than this.
    pub fn called_back(&mut self, now: Nanos, version: u64, rate: Rate) {
        if version == self.version && self.sent.is_some() {
            self.called = self.called.min(rate);
        }
        if self.rate(now) > rate {
            (self.held, self.tell) = (rate, true);
            self.rise_at = now + self.terms.retry;
            self.state = State::Refused;
        }
    }
}

/// Within a tenth of `span`.
fn jitter(span: Nanos, random: &mut Random) -> Nanos {
    span - span / 10 + random.below(span / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A holder that has 10 bit/s and has just asked for 100 by the version that is answered.
    fn rising(random: &mut Random) -> (Holder, u64) {
        let (lease, path) = ("e/1".into(), vec!["wan:rt".into()]);
        let terms = Terms { lease, path, ttl_ms: 30_000, epoch: 0, gap: GAP, retry: RETRY };
        let mut holder = Holder::new(terms);
        holder.want(10, 0, &[]);
        let first = holder.poll(0, random).expect("it wants something");
        assert!(holder.answer(0, first.version, &Verdict::Granted { rate: 10, ttl_ms: 30_000 }, random));
        holder.want(100, 0, &[]);
        let second = holder.poll(SECOND, random).expect("it wants more");
        (holder, second.version)
    }

    const GRANTED: Verdict = Verdict::Granted { rate: 100, ttl_ms: 30_000 };

    /// The broker may hold room for it at a neighbour's, for seconds.
    #[test]
    fn a_rise_that_is_no_longer_wanted_is_taken_back_at_once() {
        let mut random = Random::new(weir_seed::seed());
        let (_, asked) = rising(&mut random);
        // What is still a rise is asked for as before, and comes down after its answer.
        for (wish, said) in [(0, (asked + 1, 0)), (10, (asked + 1, 10)), (50, (asked, 100))] {
            let (mut holder, _) = rising(&mut random);
            holder.want(wish, 0, &[]);
            let told = holder.poll(SECOND + GAP, &mut random).map(|told| (told.version, told.rate));
            assert_eq!(told, Some(said), "{wish}");
            assert!(!holder.is_given_back());
        }
    }

    #[test]
    fn a_call_back_that_overtakes_its_answer_is_kept() {
        let mut random = Random::new(weir_seed::seed());
        let (mut holder, version) = rising(&mut random);
        holder.called_back(SECOND, version, 50);
        assert_eq!(holder.rate(SECOND), 10, "it has no more yet");
        assert!(holder.answer(SECOND, version, &GRANTED, &mut random));
        assert_eq!((holder.rate(SECOND), holder.state().0), (50, State::Refused));
        // The broker hears of it at once, and counts what is used from then on.
        let told = holder.poll(SECOND + GAP, &mut random).expect("it says that it came down");
        assert_eq!((told.version, told.rate), (version + 1, 50));
    }

    #[test]
    fn the_last_version_of_the_last_epoch_is_not_followed_by_the_first() {
        let mut random = Random::new(weir_seed::seed());
        let (lease, path) = ("e/1".into(), vec!["wan:rt".into()]);
        let mut holder =
            Holder::new(Terms { lease, path, ttl_ms: 30_000, epoch: u32::MAX, gap: GAP, retry: RETRY });
        holder.want(10, 0, &[]);
        let first = holder.poll(0, &mut random).expect("it wants something");
        let last = Verdict::Refused(Refusal::Stale { newest: u64::MAX });
        assert!(!holder.answer(0, first.version, &last, &mut random), "it asks again");
        let next = holder.poll(SECOND, &mut random).expect("it says what it wants");
        assert_eq!(next.version, u64::MAX);
    }

    /// The broker has decided about the newer version in knowledge of the older call.
    #[test]
    fn a_call_back_of_an_older_version_does_not_bind_the_newer_one() {
        let mut random = Random::new(weir_seed::seed());
        let (mut holder, version) = rising(&mut random);
        holder.called_back(SECOND, version - 1, 50);
        assert!(holder.answer(SECOND, version, &GRANTED, &mut random));
        assert_eq!(holder.rate(SECOND), 100);
    }

    #[test]
    fn another_holder_goes_on_until_the_end_of_what_is_held() {
        let mut random = Random::new(weir_seed::seed());
        let (holder, version) = rising(&mut random);
        let carried = holder.carry(SECOND).expect("it has asked for something");
        assert_eq!((carried.version, carried.held_bps, carried.until), (version, 10, 30 * SECOND));
        let terms = holder.terms.clone();
        let mut next = Holder::resume(terms.clone(), &carried, 2 * SECOND);
        assert_eq!((next.rate(29 * SECOND), next.state().0), (10, State::Leased));
        // What the one before asked for may have been granted: the broker hears what is used, in a newer version.
        let told = next.poll(2 * SECOND, &mut random).expect("it says what it holds");
        assert_eq!((told.version, told.rate), (version + 1, 10));
        assert!(next.answer(
            3 * SECOND,
            version + 1,
            &Verdict::Granted { rate: 10, ttl_ms: 30_000 },
            &mut random
        ));
        assert_eq!(next.rate(31 * SECOND), 10);
        // Too late: its versions go on all the same.
        let mut late = Holder::resume(terms, &carried, 30 * SECOND);
        assert_eq!((late.rate(30 * SECOND), late.poll_at()), (0, None));
        assert!(late.is_given_back());
        late.want(5, 0, &[]);
        let asked = late.poll(31 * SECOND, &mut random).expect("it wants something");
        assert_eq!((asked.version, asked.rate), (version + 1, 5));
        assert!(!late.is_given_back());
    }

    /// Two boxes of one name: the one that was there first falls silent, and uses nothing any more.
    #[test]
    fn who_is_overtaken_by_its_own_name_falls_silent() {
        let mut random = Random::new(weir_seed::seed());
        for why in [Refusal::Stale { newest: 9 }, Refusal::Differs] {
            let (mut first, mut version) = rising(&mut random);
            let mut now = SECOND;
            // The first time somebody may just have given the lease back: it says again what it holds.
            for grants in [1, 1, 0] {
                let decides = first.answer(now, version, &Verdict::Refused(why.clone()), &mut random);
                assert_eq!(decides, grants == 0, "it asks again, until it falls silent");
                for _ in 0..grants {
                    now += SECOND;
                    let told = first.poll(now, &mut random).expect("it says what it holds");
                    assert!(told.version > version && told.rate >= 10);
                    let granted = Verdict::Granted { rate: told.rate, ttl_ms: 30_000 };
                    assert!(first.answer(now, told.version, &granted, &mut random));
                    first.want(told.rate + 1, 0, &[]);
                    now += SECOND;
                    version = first.poll(now, &mut random).expect("it wants more").version;
                }
            }
            assert_eq!((first.rate(now), first.state().0, first.poll_at()), (0, State::Replaced, None));
            first.reconnected();
            assert!(first.poll_at().is_none() && first.is_given_back());
        }
        // One that has just started only learns how far its versions were.
        let terms = rising(&mut random).0.terms;
        let mut second = Holder::new(terms);
        second.want(10, 0, &[]);
        let asked = second.poll(0, &mut random).expect("it wants something");
        assert!(!second.answer(
            0,
            asked.version,
            &Verdict::Refused(Refusal::Stale { newest: 9 }),
            &mut random
        ));
        assert_eq!(second.poll(SECOND, &mut random).map(|asked| asked.version), Some(10));
    }

    #[test]
    fn a_lease_is_given_back_once_the_broker_has_heard_it() {
        let mut random = Random::new(weir_seed::seed());
        let (mut holder, version) = rising(&mut random);
        holder.want(0, 0, &[]);
        assert_eq!(
            (holder.rate(SECOND), holder.is_given_back()),
            (0, false),
            "10 bit/s may still be counted"
        );
        let told = holder.poll(SECOND + GAP, &mut random).expect("it says so");
        assert_eq!((told.version, told.rate), (version + 1, 0));
        assert!(!holder.is_given_back());
        assert!(holder.answer(
            2 * SECOND,
            version + 1,
            &Verdict::Granted { rate: 0, ttl_ms: 30_000 },
            &mut random
        ));
        assert!(holder.is_given_back());
    }
}

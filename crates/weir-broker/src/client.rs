//! The half of an edge: it keeps its leases at the broker over REST or COPS, and says what may be used now.
//!
//! One thread with a [holder](crate::holder) for each lease. It is a part of the control of an edge, never of the path of
//! packets. What it says goes to a [`Shaper`], before any request goes out that counts on it.
//!
//! A session at the broker is a task beside it. REST has two connections: one asks, one hears of what is called back. COPS
//! has one. If the session ends, another is begun, every 0.25 to 2 s, and then all that is held is said at once. Until then
//! each lease goes on to its end. A broker that asks its neighbour answers later, and holds up no other lease meanwhile.
//!
//! Leases come and go with [`Client::keep`]. One that is kept no longer is given back first. [`Client::stop`] says what is
//! held, for another client that goes on with it.

pub(crate) mod link;
pub(crate) mod rest;
mod sessions;
#[cfg(test)]
mod tests;

use crate::book::{Name, Refusal, Request};
use crate::cops::pep;
use crate::holder::{Carried, Holder, Standing, State, Terms};
use crate::http::{HttpError, Target};
use crate::wire::{Answer, SessionNow, SessionsNow};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use link::Link;
use sessions::Sessions;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use weir_core::Random;

/// How long a broker may take to read a request. After that another session is begun.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// What is due within this time goes together: a name may send 100 requests a second.
const TOGETHER_FOR: Nanos = 20 * MILLISECOND;
/// Leases in one request, so that it stays below 64 KiB.
const TOGETHER: usize = 64;

/// Who shapes the traffic of the leases.
pub trait Shaper: Send {
    /// From now on at most `rate` bit/s may be used of `lease`. It is said when a lease is new, after each decision of the
    /// broker, and when a lease ends.
    fn shape(&mut self, lease: &str, rate: Rate, state: State, refusal: Option<&Refusal>);

    /// When this returns, no more is used of any lease than was said before.
    fn settle(&mut self) {}

    /// These sessions are in effect when this returns, as far as they concern traffic here, and no others: those that are.
    fn sessions(&mut self, all: &[SessionNow]) -> Vec<Name> {
        let _ = all;
        Vec::new()
    }

    /// The broker does not say which sessions there are, and why: said once, until it says so again. For people: those that
    /// are there go on to their ends.
    fn no_sessions(&mut self, why: &HttpError) {
        let _ = why;
    }

    /// The broker can be reached again, or no longer, and why. For people: leases go on meanwhile.
    fn broker(&mut self, reached: Result<(), &HttpError>);
}

/// Where a broker is, and how it is spoken to.
#[derive(Clone, Debug)]
pub enum Broker {
    /// JSON over HTTP.
    Rest(Target),
    /// COPS.
    Cops(pep::Target),
}

/// What the leases of an edge are, and where its broker is.
pub struct Edge {
    /// Where the broker is.
    pub broker: Broker,
    /// A token, for who has no certificate.
    pub token: Option<String>,
    /// The leases.
    pub leases: Vec<Terms>,
    /// The name by which it has sessions; none: it has none.
    pub sessions: Option<Name>,
    /// Of the jitter.
    pub seed: u64,
}

/// What the owner of a client wants.
enum Order {
    Keep(Vec<(Terms, Option<Carried>)>),
    Want {
        lease: Name,
        rate: Rate,
        min: Rate,
    },
    Show(SyncSender<Vec<Standing>>),
    /// Wants nothing any more of any lease, and says when the broker has heard it.
    GiveBack(SyncSender<()>),
    Stop(SyncSender<Vec<Carried>>),
}

/// What a session is to say.
pub(crate) enum Word {
    /// These wishes, together.
    Ask(Vec<Request>),
    /// The traffic of this lease is shaped as was decided.
    Shaped(Name),
    /// All that was held when the session began has been said.
    AllSaid,
    /// The lease was given back, and is forgotten.
    Forgotten(Name),
    /// This edge has these sessions in effect, and asks which it is to have.
    Sessions(Name, Vec<Name>),
}

/// What a session has heard.
pub(crate) enum Said {
    /// The broker is there.
    Reached,
    /// It decided.
    Answers(Vec<Answer>),
    /// It does not carry out what it was asked now: the holders send it again.
    NotNow(HttpError),
    /// It has read what it was asked last, and what it could decide at once has been told. What waits for its neighbour
    /// follows.
    Heard,
    /// It wants a lease to come down.
    CalledBack { lease: Name, version: u64, rate: Rate },
    /// The sessions of this edge are others.
    SessionsChanged(Name),
    /// The sessions that it is to have; none: the broker knows none.
    Sessions(Option<SessionsNow>),
    /// It does not say now which sessions there are.
    NoSessionsNow(HttpError),
    /// It wants to hear of all that is held.
    Sync,
    /// The session has ended.
    Lost(HttpError),
}

/// The way to the thread that keeps the leases.
pub struct Client {
    orders: UnboundedSender<Order>,
    thread: Option<JoinHandle<()>>,
}

struct Kept {
    name: Name,
    holder: Holder,
    /// What the shaper was told last; none: it is to be told again.
    told: Option<(Rate, State)>,
    /// It is given back, and then forgotten.
    goes: bool,
}

impl Kept {
    fn new(terms: Terms, carried: Option<Carried>) -> Kept {
        let name = terms.lease.clone();
        let holder = match carried {
            None => Holder::new(terms),
            Some(carried) => Holder::resume(terms, &carried, now()),
        };
        Kept { name, holder, told: None, goes: false }
    }
}

struct Keeping<S> {
    edge: Edge,
    shaper: S,
    leases: Vec<Kept>,
    random: Random,
    link: Link,
    /// What is due until then is said together.
    quiet_until: Nanos,
    sessions: Option<Sessions>,
    /// Not all that is held has been said in this session.
    sync: bool,
    /// Who waits until all is given back.
    giving: Option<SyncSender<()>>,
}

/// Nanoseconds on a clock that nobody sets, and that goes on while the machine sleeps: a lease does not sleep.
fn now() -> Nanos {
    weir_sys::since_boot().as_nanos()
}

impl Client {
    /// Begins to keep the leases of `edge`. Nothing is wanted of them yet.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start(edge: Edge, shaper: impl Shaper + 'static) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // They look up names, and each try leaves one behind where nobody answers.
            .max_blocking_threads(2)
            .build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let (orders, heard) = unbounded_channel();
        let leases = edge.leases.iter().map(|terms| Kept::new(terms.clone(), None)).collect();
        let (random, link) = (Random::new(edge.seed), Link::new(edge.seed));
        let sessions = edge.sessions.clone().map(Sessions::of);
        let (quiet_until, sync, giving) = (0, false, None);
        let mut keeping = Keeping { edge, shaper, leases, random, link, quiet_until, sessions, sync, giving };
        let builder = std::thread::Builder::new().name("leases".into());
        let thread = builder.spawn(move || {
            runtime.block_on(keeping.run(heard));
            // A name that is being looked up may take as long as it takes.
            runtime.shutdown_background();
        });
        Ok(Client { orders, thread: Some(thread.map_err(|e| e.to_string())?) })
    }

    /// These are the leases from now on. Those that are there go on, one that was `carried` from another client goes on
    /// from there, and those that are not named are given back.
    pub fn keep(&self, leases: Vec<(Terms, Option<Carried>)>) {
        let _ = self.orders.send(Order::Keep(leases));
    }

    /// Wants `rate` bit/s of `lease`, and nothing below `min`. The newest wish replaces those before. Wanting less takes
    /// effect before anybody is asked.
    pub fn want(&self, lease: &str, rate: Rate, min: Rate) {
        // Its thread ends when this does, so it hears.
        let _ = self.orders.send(Order::Want { lease: lease.into(), rate, min });
    }

    /// How each lease stands now; none if that is not said in time.
    pub fn leases(&self) -> Vec<Standing> {
        let (answer, heard) = sync_channel(1);
        // Nothing is there of a thread that has panicked, which was said.
        let _ = self.orders.send(Order::Show(answer));
        heard.recv_timeout(PATIENCE).unwrap_or_default()
    }

    /// Gives all leases back. True if the broker has heard it within `patience`; otherwise they go on to their end.
    pub fn give_back(&self, patience: Duration) -> bool {
        let (done, heard) = sync_channel(1);
        let _ = self.orders.send(Order::GiveBack(done));
        heard.recv_timeout(patience).is_ok()
    }

    /// Ends, and says what is held: leases go on to their end, or with another client.
    pub fn stop(mut self) -> Vec<Carried> {
        let carried = self.end();
        carried.recv().unwrap_or_default()
    }

    fn end(&mut self) -> std::sync::mpsc::Receiver<Vec<Carried>> {
        let (to, carried) = sync_channel(1);
        let _ = self.orders.send(Order::Stop(to));
        if let Some(thread) = self.thread.take() {
            // It was told to end; if it has panicked, that was said.
            let _ = thread.join();
        }
        carried
    }
}

impl Drop for Client {
    /// Leases go on to their end: an edge that starts again has them.
    fn drop(&mut self) {
        self.end();
    }
}

impl<S: Shaper> Keeping<S> {
    async fn run(&mut self, mut orders: UnboundedReceiver<Order>) {
        loop {
            // One time for both: what is said to be used is what the shaper was told.
            let at = now();
            self.shape(at);
            self.ask(at);
            self.ask_sessions(at);
            self.reach();
            self.part_with();
            let wait = self.wait(at);
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Want { lease, rate, min }) => self.want(&lease, rate, min),
                    Some(Order::Show(answer)) => {
                        let at = now();
                        // Who asked may have gone.
                        let _ = answer.send(self.leases.iter().map(|kept| kept.holder.standing(at)).collect());
                    }
                    Some(Order::Keep(leases)) => self.keep(leases),
                    Some(Order::GiveBack(done)) => {
                        self.leases.iter_mut().for_each(|kept| kept.holder.want(0, 0, &[]));
                        self.giving = Some(done);
                    }
                    Some(Order::Stop(carried)) => {
                        let at = now();
                        self.link.part().await;
                        // Who stopped it may not want to know.
                        let _ = carried.send(self.leases.iter().filter_map(|kept| kept.holder.carry(at)).collect());
                        return;
                    }
                    None => return self.link.part().await,
                },
                said = self.link.next() => self.hear(said),
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// How long nothing happens by itself.
    fn wait(&self, at: Nanos) -> Duration {
        let ends = self.leases.iter().map(|kept| kept.holder.until()).filter(|&until| until > at);
        let due = self.leases.iter().filter_map(|kept| kept.holder.poll_at());
        let sessions = self.sessions.as_ref().and_then(|sessions| sessions.poll_at(self.link.is_free()));
        let ends = ends.chain(sessions);
        let next = match self.link.begins_in() {
            None if self.link.is_free() => ends.chain(due.map(|due| due.max(self.quiet_until))).min(),
            begins_in => ends.chain(begins_in.map(|pause| at + pause)).min(),
        };
        // A timer has a resolution of a millisecond.
        Duration::from_nanos(next.map_or(SECOND, |next| next.saturating_sub(at)).clamp(MILLISECOND, SECOND))
    }

    fn keep(&mut self, leases: Vec<(Terms, Option<Carried>)>) {
        for kept in &mut self.leases {
            let went =
                std::mem::replace(&mut kept.goes, !leases.iter().any(|(terms, _)| terms.lease == kept.name));
            if kept.goes {
                kept.holder.want(0, 0, &[]);
            } else if went {
                // Who uses it may be another one.
                kept.told = None;
            }
        }
        for (terms, carried) in leases {
            if !self.leases.iter().any(|kept| kept.name == terms.lease) {
                self.leases.push(Kept::new(terms, carried));
            }
        }
    }

    /// Forgets the leases that have been given back, and says so to who waits for all of them.
    fn part_with(&mut self) {
        let link = &self.link;
        self.leases.retain(|kept| {
            let gone = kept.goes && kept.holder.is_given_back();
            // A lease that another speaks for is that one's to give back.
            if gone && kept.holder.state().0 != State::Replaced {
                link.say(Word::Forgotten(kept.name.clone()));
            }
            !gone
        });
        if self.leases.iter().all(|kept| kept.holder.is_given_back())
            && let Some(done) = self.giving.take()
        {
            // It may wait no longer.
            let _ = done.send(());
        }
    }

    fn want(&mut self, lease: &str, rate: Rate, min: Rate) {
        if let Some(kept) = self.leases.iter_mut().find(|kept| *kept.name == *lease && !kept.goes) {
            kept.holder.want(rate, min, &[]);
            if kept.holder.state().0 == State::Replaced {
                // Nobody is asked any more. Who wants it hears so.
                kept.told = None;
            }
        }
    }

    /// Tells the shaper what has changed.
    fn shape(&mut self, at: Nanos) {
        let mut shaped = Vec::new();
        for kept in &mut self.leases {
            kept.holder.pass(at);
            let (state, refusal) = kept.holder.state();
            let told = (kept.holder.rate(at), state);
            if kept.told != Some(told) {
                kept.told = Some(told);
                self.shaper.shape(&kept.name, told.0, state, refusal);
                shaped.push(kept.name.clone());
            }
        }
        if !shaped.is_empty() {
            self.shaper.settle();
        }
        shaped.into_iter().for_each(|lease| self.link.say(Word::Shaped(lease)));
    }

    /// Says what is due, together.
    fn ask(&mut self, at: Nanos) {
        if !self.link.is_free() || at < self.quiet_until {
            return;
        }
        let random = &mut self.random;
        let due = self.leases.iter_mut().filter_map(|kept| kept.holder.poll(at, random));
        let wishes: Vec<Request> = due.take(TOGETHER).collect();
        if !wishes.is_empty() {
            self.quiet_until = at + TOGETHER_FOR;
            self.link.ask(wishes);
        } else if std::mem::take(&mut self.sync) {
            self.link.say(Word::AllSaid);
        }
    }

    /// Ends the sessions of traffic whose time is over, and asks which there are, if that is due.
    fn ask_sessions(&mut self, at: Nanos) {
        let Some(sessions) = &mut self.sessions else { return };
        sessions.pass(at, &mut self.shaper);
        if self.link.is_free()
            && let Some(in_effect) = sessions.ask(at)
        {
            self.link.say(Word::Sessions(sessions.edge.clone(), in_effect));
        }
    }

    /// Begins a session, if it is time to.
    fn reach(&mut self) {
        if self.link.begins_in() != Some(0) {
            return;
        }
        (self.quiet_until, self.sync) = (0, false);
        let (token, seed) = (self.edge.token.clone(), self.random.below(u64::MAX));
        match self.edge.broker.clone() {
            Broker::Rest(target) => self.link.begin(|words, said| rest::session(target, token, words, said)),
            Broker::Cops(target) => {
                self.link.begin(|words, said| pep::session(target, token, seed, words, said));
            }
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Reached => {
                self.shaper.broker(Ok(()));
                self.say_all();
                self.sessions.iter_mut().for_each(Sessions::lost);
            }
            Said::SessionsChanged(edge) => {
                self.sessions.iter_mut().filter(|sessions| sessions.edge == edge).for_each(Sessions::changed);
            }
            Said::Sessions(answer) => {
                if let Some(sessions) = &mut self.sessions {
                    sessions.answered(now(), answer, &mut self.shaper);
                }
            }
            Said::NoSessionsNow(why) => {
                if let Some(sessions) = &mut self.sessions {
                    sessions.not_now(now(), &why, &mut self.shaper);
                }
            }
            Said::Sync => self.say_all(),
            Said::CalledBack { lease, version, rate } => {
                if let Some(kept) = self.leases.iter_mut().find(|kept| kept.name == lease) {
                    kept.holder.called_back(now(), version, rate);
                }
            }
            Said::Answers(answers) => {
                self.shaper.broker(Ok(()));
                self.answered(answers);
            }
            Said::Heard => {}
            Said::NotNow(why) | Said::Lost(why) => self.shaper.broker(Err(&why)),
        }
    }

    /// The broker may have forgotten, or be another one: it hears of all that is in use, once.
    fn say_all(&mut self) {
        if !std::mem::replace(&mut self.sync, true) {
            self.leases.iter_mut().for_each(|kept| kept.holder.reconnected());
        }
    }

    fn answered(&mut self, answers: Vec<Answer>) {
        for answer in answers {
            if let Some(kept) = self.leases.iter_mut().find(|kept| kept.name == answer.lease)
                && kept.holder.answer(now(), answer.version, &answer.verdict, &mut self.random)
            {
                kept.told = None;
            }
        }
    }
}

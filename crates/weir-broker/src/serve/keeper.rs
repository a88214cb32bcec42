//! The thread that has the journal. All that changes the book passes here, a group at a time: while one group is being
//! written, the next one gathers. So the disk sees some hundred writes a second, however many requests come.

use super::clock::{Clock, time_of_day_ms};
use super::who::{BROKER, OPERATOR};
use crate::book::{Book, Command, Event, HOLD, Name, Refusal, Verdict};
use crate::journal::{Given, Journal, JournalError};
use crate::store::Store;
use crate::wire::Told;
use crate::{Nanos, Rate, SECOND};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use weir_sys::Priority;

/// Commands that one group has at most.
pub const GROUP: usize = 512;
/// Jobs that wait at most. Whoever comes then is told to come again.
const QUEUE: usize = 4_096;
/// How long a request has no answer, at most: the book holds what it needs as long as that while a neighbour is asked.
const WAIT: Duration = Duration::from_nanos(HOLD + SECOND);
/// Messages that a listener may be behind. Then it is let go, and asks anew.
pub(super) const BEHIND: usize = 1_024;

type Events = Vec<(usize, Event)>;
/// Looks between two commits.
type Look = Box<dyn FnOnce(&Kept) + Send>;

pub(super) enum Job {
    /// To be committed. The answer is what came of it at once.
    Commit(Vec<Given>, oneshot::Sender<Events>),
    Wait(Waiting),
    Look(Look),
    Listen(Listener),
    /// What listeners are to hear, and the book knows nothing of.
    Tell(Told),
    Stop,
}

/// Who hears of leases that are called back or end.
pub(super) struct Listener {
    /// Only of its leases, if set.
    pub owner: Option<Name>,
    pub to: mpsc::Sender<Told>,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Too many wait.
    Full,
    /// The broker has stopped.
    Stopped,
}

/// How many groups there were, and how long they took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effort {
    pub groups: u64,
    pub commands: u64,
    pub granted: u64,
    pub refused: u64,
    pub busy: Duration,
}

/// The way to the thread.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    jobs: SyncSender<Job>,
    clock: Clock,
}

/// What the book says about an agreement.
pub(super) enum News {
    /// The neighbour is to be asked for `rate` in all, for a request that has come through `domains`.
    Want { serial: u64, rate: Rate, domains: Vec<Name> },
    /// The edges of this domain have so much of it.
    Lent(Rate),
}

/// Where the news about an agreement go.
pub(super) struct Agreed {
    news: UnboundedSender<News>,
    /// What it heard last of what is in use.
    lent: Rate,
    /// The newest want that it heard.
    serial: u64,
    /// How much that was.
    wanted: Rate,
    /// A want of this group waits until it is written, and so do those after it.
    waits: bool,
}

impl Agreed {
    /// News go there from now on.
    pub fn new(news: UnboundedSender<News>) -> Self {
        Agreed { news, lent: 0, serial: 0, wanted: 0, waits: false }
    }

    /// A neighbour is asked for more while that is being written: nothing depends on the answer to what a broker that
    /// crashes has forgotten, and so an answer over two brokers does not wait for one more write. For less it is asked
    /// after that, because whoever forgets it would use what the neighbour has given to others.
    fn ask(&mut self, serial: u64, rate: Rate, domains: &[Name], is_written: bool) {
        if !is_written {
            self.waits |= rate < self.wanted;
        }
        if serial > self.serial && (is_written || !self.waits) {
            (self.serial, self.wanted) = (serial, rate);
            // Its task ends after this thread.
            let _ = self.news.send(News::Want { serial, rate, domains: domains.to_vec() });
        }
    }
}

/// Who waits for what is decided about a version of a lease. If a newer one replaces it, it hears that.
pub(super) struct Waiting {
    lease: Name,
    version: u64,
    answer: oneshot::Sender<Verdict>,
}

/// What the thread has.
pub(super) struct Kept {
    pub journal: Journal<Box<dyn Store>>,
    pub clock: Clock,
    pub listeners: Vec<Listener>,
    pub effort: Effort,
    agreements: HashMap<Name, Agreed>,
    /// By lease: the version, and who waits for it.
    waiting: HashMap<Name, Vec<(u64, oneshot::Sender<Verdict>)>>,
}

impl Keeper {
    /// Begins to serve: `first` is committed after [`Command::Begin`]. The thread ends when it is told to, or
    /// with the error of its store.
    ///
    /// # Errors
    /// The first commit failed, or no thread could be made.
    pub(super) fn start(
        mut journal: Journal<Box<dyn Store>>,
        first: Vec<Command>,
        agreements: HashMap<Name, Agreed>,
        priority: Priority,
    ) -> Result<(Keeper, JoinHandle<Result<(), JournalError>>), String> {
        let clock = Clock::start();
        let operator = |command| Given { who: OPERATOR.into(), command };
        let given: Vec<Given> = std::iter::once(Command::Begin).chain(first).map(operator).collect();
        let events = journal.commit(clock.now(), time_of_day_ms(), &given).map_err(|e| e.to_string())?;
        let (jobs, taken) = sync_channel(QUEUE);
        let (listeners, effort, waiting) = (Vec::new(), Effort::default(), HashMap::new());
        let mut kept = Kept { journal, clock, listeners, effort, agreements, waiting };
        // Nobody listens yet, but for the agreements.
        kept.tell(&given, &events);
        let builder = std::thread::Builder::new().name("keeper".into());
        let run = move || {
            weir_sys::take_priority(priority);
            kept.run(&taken)
        };
        let thread = builder.spawn(run).map_err(|e| format!("no thread: {e}"))?;
        Ok((Keeper { jobs, clock }, thread))
    }

    /// The time by which the book decides.
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(super) fn take(&self, job: Job) -> Result<(), Busy> {
        self.jobs.try_send(job).map_err(|e| match e {
            TrySendError::Full(_) => Busy::Full,
            TrySendError::Disconnected(_) => Busy::Stopped,
        })
    }

    /// Commits, and answers what came of it at once. Of a request that waits for a neighbour nothing came yet: see
    /// [`decided`](Self::decided). Listeners hear of it, too.
    pub(crate) async fn commit(&self, given: Vec<Given>) -> Result<Events, Busy> {
        let (answer, heard) = oneshot::channel();
        self.take(Job::Commit(given, answer))?;
        match timeout(WAIT, heard).await {
            Ok(heard) => heard.map_err(|_| Busy::Stopped),
            Err(_) => Err(Busy::Full),
        }
    }

    /// What is decided about a version of a lease, once that is known: [`Refusal::Stale`] if a newer one has replaced it.
    /// [`Busy::Full`] if nothing is known of it any more.
    pub(super) async fn decided(&self, lease: Name, version: u64) -> Result<Verdict, Busy> {
        let (answer, heard) = oneshot::channel();
        self.take(Job::Wait(Waiting { lease, version, answer }))?;
        match timeout(WAIT, heard).await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(_)) | Err(_) => Err(Busy::Full),
        }
    }

    /// What `look` sees.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Kept) -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let (answer, heard) = oneshot::channel();
        let look = move |kept: &Kept| {
            // Who asked may have gone.
            let _ = answer.send(look(kept));
        };
        self.take(Job::Look(Box::new(look)))?;
        heard.await.map_err(|_| Busy::Stopped)
    }

    /// Ends the thread after what it is at.
    pub(super) fn stop(&self) {
        // If it has ended, it need not be told.
        let _ = self.jobs.send(Job::Stop);
    }
}

/// One group, while it gathers.
#[derive(Default)]
struct Group {
    given: Vec<Given>,
    /// For each job, where its commands end, and who waits for them.
    ends: Vec<(usize, oneshot::Sender<Events>)>,
    stop: bool,
}

impl Kept {
    fn run(&mut self, jobs: &Receiver<Job>) -> Result<(), JournalError> {
        loop {
            let due = self.journal.book().due();
            let wait = due.map_or(Duration::from_secs(3_600), |due| {
                Duration::from_nanos(due.saturating_sub(self.clock.now()))
            });
            let mut group = Group::default();
            match jobs.recv_timeout(wait) {
                Ok(job) => self.gather(job, &mut group),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            while group.given.len() < GROUP
                && !group.stop
                && let Ok(job) = jobs.try_recv()
            {
                self.gather(job, &mut group);
            }
            let now = self.clock.now();
            if group.given.is_empty() && self.journal.book().due().is_some_and(|due| due <= now) {
                group.given.push(Given { who: BROKER.into(), command: Command::Tick });
            }
            if !group.given.is_empty() {
                self.commit(now, &mut group)?;
            }
            if group.stop {
                return Ok(());
            }
        }
    }

    fn gather(&mut self, job: Job, group: &mut Group) {
        match job {
            Job::Commit(given, answer) if given.is_empty() => {
                let _ = answer.send(Events::new());
            }
            Job::Commit(mut given, answer) => {
                group.given.append(&mut given);
                group.ends.push((group.given.len(), answer));
            }
            Job::Wait(Waiting { lease, version, answer }) => {
                match known(self.journal.book(), &lease, version) {
                    // Who asked may have gone.
                    Some(Some(verdict)) => _ = answer.send(verdict),
                    Some(None) => {
                        let waiting = self.waiting.entry(lease).or_default();
                        // Those that have gone make room.
                        waiting.retain(|(_, answer)| !answer.is_closed());
                        waiting.push((version, answer));
                    }
                    None => {}
                }
            }
            Job::Look(look) => look(self),
            Job::Listen(listener) => {
                // Those that have gone make room.
                self.listeners.retain(|listener| !listener.to.is_closed());
                self.listeners.push(listener);
            }
            Job::Tell(told) => self.spread(&told),
            Job::Stop => group.stop = true,
        }
    }

    fn commit(&mut self, now: Nanos, group: &mut Group) -> Result<(), JournalError> {
        let began = Instant::now();
        let agreements = &mut self.agreements;
        agreements.values_mut().for_each(|agreed| agreed.waits = false);
        let asks = |event: &Event| ask(agreements, event, false);
        let events = self.journal.commit_telling(now, time_of_day_ms(), &group.given, asks)?;
        self.effort.groups += 1;
        self.effort.commands += group.given.len() as u64;
        self.tell(&group.given, &events);
        let (mut from, mut rest) = (0, &events[..]);
        for (end, answer) in group.ends.drain(..) {
            let (own, later) = rest.split_at(rest.partition_point(|(place, _)| *place < end));
            // Who asked may have gone: then it asks again, and hears the same.
            let _ = answer.send(own.iter().map(|(place, event)| (place - from, event.clone())).collect());
            (from, rest) = (end, later);
        }
        self.effort.busy += began.elapsed();
        Ok(())
    }

    /// Says what came of these commands to all but those who gave them.
    fn tell(&mut self, given: &[Given], events: &Events) {
        for (place, event) in events {
            if let Event::Answer { lease, version, verdict } = event {
                match verdict {
                    Verdict::Granted { .. } => self.effort.granted += 1,
                    Verdict::Refused(_) => self.effort.refused += 1,
                }
                self.answer(lease, *version, verdict);
                match &given[*place].command {
                    Command::Ask(request) if request.lease == *lease && request.version == *version => {
                        continue;
                    }
                    _ => {}
                }
            }
            ask(&mut self.agreements, event, true);
            if let Some(told) = Told::of(event) {
                self.spread(&told);
            }
        }
        self.tell_lent();
    }

    /// Tells it to those who listen.
    fn spread(&mut self, told: &Told) {
        let owner = told.owner();
        self.listeners.retain(|listener| {
            let its_own = listener.owner.as_deref().is_none_or(|wanted| wanted == owner);
            if its_own { listener.to.try_send(told.clone()).is_ok() } else { !listener.to.is_closed() }
        });
    }

    /// Those who wait for what is decided about a lease hear it, and those whose version a newer one has replaced hear that.
    /// `verdict` is about `version`: the book may know neither any more.
    fn answer(&mut self, lease: &Name, version: u64, verdict: &Verdict) {
        let Some(waiting) = self.waiting.get_mut(lease) else { return };
        let book = self.journal.book();
        for (waits_for, answer) in waiting.extract_if(.., |(v, _)| known(book, lease, *v) != Some(None)) {
            let same = || (waits_for == version).then(|| verdict.clone());
            if let Some(verdict) = known(book, lease, waits_for).flatten().or_else(same) {
                // Who asked may have gone.
                let _ = answer.send(verdict);
            }
        }
        if waiting.is_empty() {
            self.waiting.remove(lease);
        }
    }

    /// Each agreement hears how much of it is in use.
    fn tell_lent(&mut self) {
        for (resource, agreed) in &mut self.agreements {
            let lent = self.journal.book().on(resource).map_or(0, |shown| shown.taken);
            if std::mem::replace(&mut agreed.lent, lent) != lent {
                // Its task ends after this thread.
                let _ = agreed.news.send(News::Lent(lent));
            }
        }
    }
}

/// Tells an agreement what the book wants of it.
fn ask(agreements: &mut HashMap<Name, Agreed>, event: &Event, is_written: bool) {
    if let Event::Want { resource, serial, rate, domains } = event
        && let Some(agreed) = agreements.get_mut(resource)
    {
        agreed.ask(*serial, *rate, domains, is_written);
    }
}

/// What was decided about a version of a lease: nothing yet while a neighbour is asked, [`Refusal::Stale`] if a newer one
/// has replaced it. None if nothing is known of it.
fn known(book: &Book, lease: &str, version: u64) -> Option<Option<Verdict>> {
    let stale = || {
        let newest = book.wish(lease)?.version;
        (newest > version).then_some(Some(Verdict::Refused(Refusal::Stale { newest })))
    };
    book.verdict(lease, version).map(Option::<&Verdict>::cloned).or_else(stale)
}

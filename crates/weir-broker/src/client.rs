//! The half of an edge: it keeps its leases at the broker over REST, and says what may be used now.
//!
//! One thread with a [holder](crate::holder) for each lease. It is a part of the control of an edge, never of the path of
//! packets. What it says goes to a [`Shaper`], before any request goes out that counts on it.
//!
//! It has two connections: one asks, one hears of what is called back. If either fails, both are made anew, every 0.25 to
//! 2 s, and then it says all that it holds at once. Until then each lease goes on to its end.

use crate::book::{Name, Refusal};
use crate::holder::{Holder, State, Terms};
use crate::http::{Connection, Events, HttpError, Target};
use crate::serve::SILENCE;
use crate::wire::{Answers, Entry, Told, Wishes};
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use hyper::Method;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle as Task;
use weir_core::Random;

/// How long a request may take. After that the connections are made anew.
const PATIENCE: Duration = Duration::from_secs(2);
/// The first pause before the broker is tried again. It doubles up to [`LONGEST`].
const SHORTEST: Nanos = SECOND / 4;
/// The longest pause: a broker that is back hears of every lease within 5 s.
const LONGEST: Nanos = 2 * SECOND;
/// Leases in one request, so that it stays below 64 KiB.
const TOGETHER: usize = 64;

/// Who shapes the traffic of the leases.
pub trait Shaper: Send {
    /// From now on at most `rate` bit/s may be used of `lease`. When this returns, no more is.
    fn shape(&mut self, lease: &str, rate: Rate, state: State, refusal: Option<&Refusal>);

    /// The broker can be reached again, or no longer, and why. For people: leases go on meanwhile.
    fn broker(&mut self, reached: Result<(), &HttpError>);
}

/// What the leases of an edge are, and where its broker is.
pub struct Edge {
    /// Where the broker is.
    pub broker: Target,
    /// A token, for who has no certificate.
    pub token: Option<String>,
    /// The leases.
    pub leases: Vec<Terms>,
    /// Of the jitter.
    pub seed: u64,
}

enum Word {
    Want { lease: Name, rate: Rate, min: Rate },
    Stop,
}

/// The way to the thread that keeps the leases.
pub struct Client {
    words: UnboundedSender<Word>,
    thread: Option<JoinHandle<()>>,
}

struct Kept {
    name: Name,
    holder: Holder,
    /// What the shaper was told last.
    told: (Rate, State),
}

struct Keeping<S> {
    edge: Edge,
    shaper: S,
    leases: Vec<Kept>,
    random: Random,
    link: Link,
}

type Connected = Result<(Connection, Events), HttpError>;
type Answered = (Connection, Result<Answers, HttpError>);

/// Whether the broker can be reached. What takes time runs beside the thread's loop: a lease that ends must be seen.
enum Link {
    Down { again: Nanos, pause: Nanos },
    Reaching { task: Task<Connected>, pause: Nanos },
    Up { ask: Ask, events: Box<Events> },
}

/// The connection that asks.
enum Ask {
    Free(Connection),
    Busy(Task<Answered>),
}

/// What a link has to say.
enum Said {
    Reached(Connected),
    Answered(Answered),
    Told(String),
    Lost(HttpError),
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let (words, heard) = unbounded_channel();
        let leases = edge.leases.iter().map(|terms| Kept {
            name: terms.lease.clone(),
            holder: Holder::new(terms.clone()),
            told: (0, State::Idle),
        });
        let random = Random::new(edge.seed);
        let link = Link::Down { again: 0, pause: SHORTEST };
        let mut keeping = Keeping { leases: leases.collect(), edge, shaper, random, link };
        let builder = std::thread::Builder::new().name("leases".into());
        let thread = builder.spawn(move || runtime.block_on(keeping.run(heard)));
        Ok(Client { words, thread: Some(thread.map_err(|e| e.to_string())?) })
    }

    /// Wants `rate` bit/s of `lease`, and nothing below `min`. The newest wish replaces those before. Wanting less takes
    /// effect before anybody is asked.
    pub fn want(&self, lease: &str, rate: Rate, min: Rate) {
        // Its thread ends when this does, so it hears.
        let _ = self.words.send(Word::Want { lease: lease.into(), rate, min });
    }
}

impl Drop for Client {
    /// Leases go on to their end: an edge that starts again has them.
    fn drop(&mut self) {
        let _ = self.words.send(Word::Stop);
        if let Some(thread) = self.thread.take() {
            // It was told to end; if it has panicked, that was said.
            let _ = thread.join();
        }
    }
}

impl Link {
    /// The next thing that it has to say. May be dropped and called again at any time.
    async fn next(&mut self) -> Said {
        let ended = |e: tokio::task::JoinError| HttpError::Unreachable(format!("a defect: {e}"));
        match self {
            Link::Down { .. } => std::future::pending().await,
            Link::Reaching { task, .. } => Said::Reached(task.await.unwrap_or_else(|e| Err(ended(e)))),
            Link::Up { ask: Ask::Free(_), events } => hear(events).await,
            Link::Up { ask: Ask::Busy(task), events } => tokio::select! {
                answered = task => answered.map_or_else(|e| Said::Lost(ended(e)), Said::Answered),
                said = hear(events) => said,
            },
        }
    }
}

async fn hear(events: &mut Events) -> Said {
    let lost = || Said::Lost(HttpError::Unreachable("the broker is silent".into()));
    events.next(3 * SILENCE).await.map_or_else(lost, Said::Told)
}

impl<S: Shaper> Keeping<S> {
    async fn run(&mut self, mut words: UnboundedReceiver<Word>) {
        loop {
            // One time for both: what is said to be used is what the shaper was told.
            let at = now();
            self.shape(at);
            self.ask(at);
            self.reach(at);
            let wait = self.wait(at);
            tokio::select! {
                word = words.recv() => match word {
                    Some(Word::Want { lease, rate, min }) => self.want(&lease, rate, min),
                    Some(Word::Stop) | None => return,
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
        let next = match &self.link {
            Link::Up { ask: Ask::Free(_), .. } => ends.chain(due).min(),
            Link::Up { .. } | Link::Reaching { .. } => ends.min(),
            Link::Down { again, .. } => ends.chain([*again]).min(),
        };
        // A timer has a resolution of a millisecond.
        Duration::from_nanos(next.map_or(SECOND, |next| next.saturating_sub(at)).clamp(MILLISECOND, SECOND))
    }

    fn want(&mut self, lease: &str, rate: Rate, min: Rate) {
        if let Some(kept) = self.leases.iter_mut().find(|kept| *kept.name == *lease) {
            kept.holder.want(rate, min, &[]);
        }
    }

    /// Tells the shaper what has changed.
    fn shape(&mut self, at: Nanos) {
        for kept in &mut self.leases {
            kept.holder.pass(at);
            let (state, refusal) = kept.holder.state();
            let told = (kept.holder.rate(at), state);
            if told != kept.told {
                kept.told = told;
                self.shaper.shape(&kept.name, told.0, state, refusal);
            }
        }
    }

    /// Sends what is due, in one request.
    fn ask(&mut self, at: Nanos) {
        if !matches!(self.link, Link::Up { ask: Ask::Free(_), .. }) {
            return;
        }
        let random = &mut self.random;
        let due = self.leases.iter_mut().filter_map(|kept| kept.holder.poll(at, random));
        let leases: Vec<Entry> = due.take(TOGETHER).map(|request| Entry::from(&request)).collect();
        if leases.is_empty() {
            return;
        }
        let down = Link::Down { again: at, pause: SHORTEST };
        if let Link::Up { ask: Ask::Free(mut connection), events } = std::mem::replace(&mut self.link, down) {
            let task = tokio::spawn(async move {
                let answers = connection.json(Method::POST, "/v1/batch", Some(&Wishes { leases })).await;
                (connection, answers)
            });
            self.link = Link::Up { ask: Ask::Busy(task), events };
        }
    }

    /// Connects, if it is time to.
    fn reach(&mut self, at: Nanos) {
        if let Link::Down { again, pause } = self.link
            && at >= again
        {
            let (broker, token) = (self.edge.broker.clone(), self.edge.token.clone());
            let task = tokio::spawn(async move {
                let connected = tokio::time::timeout(PATIENCE, connect(&broker, token.as_deref())).await;
                connected.unwrap_or_else(|_| Err(HttpError::Unreachable(format!("{broker}: no answer"))))
            });
            self.link = Link::Reaching { task, pause };
        }
    }

    fn hear(&mut self, said: Said) {
        match said {
            Said::Told(text) => self.heard(&text),
            Said::Lost(why) => self.lost(&why, SHORTEST),
            Said::Reached(Ok((connection, events))) => {
                self.link = Link::Up { ask: Ask::Free(connection), events: Box::new(events) };
                self.shaper.broker(Ok(()));
                self.leases.iter_mut().for_each(|kept| kept.holder.reconnected());
            }
            Said::Reached(Err(why)) => {
                let pause = if let Link::Reaching { pause, .. } = self.link { pause } else { SHORTEST };
                self.lost(&why, pause);
            }
            Said::Answered((connection, answers)) => {
                if let Link::Up { ask, .. } = &mut self.link {
                    *ask = Ask::Free(connection);
                }
                match answers {
                    Ok(answers) => self.answered(answers),
                    // It is there, and does not carry this out now: the holders send it again.
                    Err(why @ HttpError::Refused { .. }) => self.shaper.broker(Err(&why)),
                    Err(why) => self.lost(&why, SHORTEST),
                }
            }
        }
    }

    fn lost(&mut self, why: &HttpError, pause: Nanos) {
        self.shaper.broker(Err(why));
        let jitter = self.random.below(pause / 5 + 1);
        self.link = Link::Down { again: now() + pause - jitter, pause: (2 * pause).min(LONGEST) };
    }

    fn heard(&mut self, text: &str) {
        // What a later version tells beyond this is not for this one.
        let Ok(Told::CalledBack { lease, version, rate_bps }) = serde_json::from_str(text) else { return };
        if let Some(kept) = self.leases.iter_mut().find(|kept| kept.name == lease) {
            kept.holder.called_back(now(), version, rate_bps);
        }
    }

    fn answered(&mut self, answers: Answers) {
        for answer in answers.leases {
            if let Some(kept) = self.leases.iter_mut().find(|kept| kept.name == answer.lease) {
                kept.holder.answer(now(), answer.version, &answer.verdict, &mut self.random);
            }
        }
    }
}

async fn connect(broker: &Target, token: Option<&str>) -> Connected {
    let events = Connection::open(broker, token, PATIENCE).await?.listen("/v1/events").await?;
    let ask = Connection::open(broker, token, PATIENCE).await?;
    Ok((ask, events))
}

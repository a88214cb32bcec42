//! What this domain leases from its neighbours. For each agreement a task is to the neighbour's broker what an edge is to its
//! own: it keeps one lease there.
//!
//! The book says what it [wants](crate::book::Event::Want), and how much of that its edges use. What the neighbour decides
//! becomes part of the book by [`Command::Leased`]. Between them is a [`Holder`], so what holds of an edge holds here: older
//! answers are not heeded, a lost one is asked for again, and what is granted ends by this broker's clock before it does
//! by the neighbour's.

use super::config::Agreement;
use super::keeper::{Busy, Keeper};
use super::log::Log;
use super::rest::Desk;
use super::who::BROKER;
use crate::book::{Command, Name};
use crate::client::{Said, Word, rest};
use crate::holder::{GAP, Holder, RETRY, State, Terms};
use crate::http::Target;
use crate::journal::Given;
use crate::{MILLISECOND, Nanos, Rate, SECOND};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_core::Random;

/// The first pause before a neighbour is tried again. It doubles up to [`LONGEST`].
const SHORTEST: Nanos = SECOND / 4;
/// The longest pause.
const LONGEST: Nanos = 2 * SECOND;
/// After so long it is tried again to write down what a neighbour has said.
const BUSY: Duration = Duration::from_millis(50);

/// What the book says about an agreement.
pub(super) enum News {
    /// The neighbour is to be asked for `rate` in all, for a request that has come through `domains`.
    Want { serial: u64, rate: Rate, domains: Vec<Name> },
    /// The edges of this domain have so much of it.
    Lent(Rate),
}

/// One agreement.
pub(super) struct Task {
    resource: Name,
    /// What is kept at the neighbour.
    lease: Name,
    domain: Name,
    target: Target,
    keeper: Keeper,
    desk: Arc<Desk>,
    holder: Holder,
    /// The newest want, and the domains that it came through.
    wanted: u64,
    domains: Vec<Name>,
    /// The newest version that was asked, and the want that it was for.
    asked: (u64, u64),
    /// What the book was told last, in bit/s.
    written: Rate,
    random: Random,
    link: Link,
}

/// Whether the neighbour can be reached.
enum Link {
    Down { again: Nanos, pause: Nanos },
    Up(Up),
}

/// A session at the neighbour's broker.
struct Up {
    words: UnboundedSender<Word>,
    said: UnboundedReceiver<Said>,
    task: JoinHandle<()>,
    /// If it is lost before it has begun, this long passes before the next one.
    pause: Nanos,
    reached: bool,
    /// A wish has no answer.
    open: bool,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Task {
    /// The task of `agreement`. `life` counts the lives of the brokers of this domain: the neighbour hears the latest alone.
    pub fn new(
        agreement: &Agreement,
        domain: &str,
        life: u32,
        keeper: Keeper,
        desk: Arc<Desk>,
    ) -> Result<Self, String> {
        let terms = Terms {
            lease: agreement.lease(domain),
            path: agreement.path.clone(),
            ttl_ms: agreement.ttl_ms(),
            epoch: life,
            gap: GAP / 8,
            retry: RETRY / 10,
        };
        Ok(Task {
            resource: agreement.resource.clone(),
            lease: terms.lease.clone(),
            domain: domain.into(),
            target: agreement.target()?,
            keeper,
            desk,
            holder: Holder::new(terms),
            wanted: 0,
            asked: (0, 0),
            written: 0,
            domains: Vec::new(),
            random: Random::new(u64::from(life)),
            link: Link::Down { again: 0, pause: SHORTEST },
        })
    }

    /// Keeps the lease until the keeper has gone.
    pub async fn run(mut self, mut news: UnboundedReceiver<News>) {
        loop {
            let now = self.keeper.now();
            self.holder.pass(now);
            self.reach(now);
            self.ask(now);
            let wait = self.wait(now);
            tokio::select! {
                news = news.recv() => match news {
                    Some(News::Want { serial, rate, mut domains }) => {
                        domains.push(self.domain.clone());
                        (self.wanted, self.domains) = (serial, domains);
                        self.holder.want(rate, 0, &self.domains);
                        // It is leased already, and the book does not know.
                        if self.written < rate && rate <= self.holder.rate(now) {
                            self.asked.1 = serial;
                            self.write(now).await;
                        }
                    }
                    Some(News::Lent(rate)) => self.holder.lend(rate),
                    None => return,
                },
                said = self.link.next() => self.hear(said).await,
                () = sleep(wait) => {}
            }
        }
    }

    /// How long nothing happens by itself.
    fn wait(&self, now: Nanos) -> Duration {
        let next = match &self.link {
            Link::Up(Up { reached: true, open: false, .. }) => self.holder.poll_at(),
            Link::Up(_) => None,
            // Without a lease there is nothing to say.
            Link::Down { again, .. } => self.holder.poll_at().map(|_| *again),
        };
        // A timer has a resolution of a millisecond.
        Duration::from_nanos(next.map_or(SECOND, |next| next.saturating_sub(now)).clamp(MILLISECOND, SECOND))
    }

    /// Begins a session, if it is time to and something is wanted or held.
    fn reach(&mut self, now: Nanos) {
        let Link::Down { again, pause } = self.link else { return };
        if now < again || self.holder.poll_at().is_none() {
            return;
        }
        let ((words, to), (from, said)) = (unbounded_channel(), unbounded_channel());
        let task = tokio::spawn(rest::session(self.target.clone(), None, to, from));
        self.link = Link::Up(Up { words, said, task, pause, reached: false, open: false });
    }

    fn ask(&mut self, now: Nanos) {
        let Link::Up(up @ Up { reached: true, open: false, .. }) = &mut self.link else { return };
        if let Some(request) = self.holder.poll(now, &mut self.random) {
            up.open = true;
            // A request that is sent again is the one of then.
            if request.version != self.asked.0 {
                self.asked = (request.version, self.wanted);
            }
            // If the session has ended, that is heard next.
            let _ = up.words.send(Word::Ask(vec![request]));
        }
    }

    async fn hear(&mut self, said: Said) {
        let Link::Up(up) = &mut self.link else { return };
        let now = self.keeper.now();
        match said {
            Said::Reached => {
                (up.reached, up.pause) = (true, SHORTEST);
                self.holder.reconnected();
            }
            Said::Answers(answers) => {
                up.open = false;
                for answer in answers {
                    if self.holder.answer(now, answer.version, &answer.verdict, &mut self.random) {
                        self.answered(now).await;
                    }
                }
            }
            // By a Unix socket all leases are heard of.
            Said::CalledBack { lease, .. } if lease != self.lease => {}
            Said::CalledBack { version, rate, .. } => {
                self.holder.called_back(now, version, rate);
                if self.holder.rate(now) < self.written {
                    self.write(now).await;
                }
            }
            Said::NotNow(_, why) => {
                up.open = false;
                self.log().refused(&format!("agreement {}: {why}", self.resource));
            }
            Said::Sync => self.holder.reconnected(),
            Said::Lost(why) => {
                let pause = up.pause;
                let again = now + pause - self.random.below(pause / 5 + 1);
                self.link = Link::Down { again, pause: (2 * pause).min(LONGEST) };
                self.log().refused(&format!("agreement {}: {why}", self.resource));
            }
        }
    }

    fn log(&self) -> &Log {
        &self.desk.log
    }

    /// The neighbour has answered. An answer to less than is wanted by now raises nothing: the next one follows.
    async fn answered(&mut self, now: Nanos) {
        let held = self.holder.rate(now);
        let is_newest = self.asked.1 == self.wanted;
        if is_newest || held < self.written {
            self.write(now).await;
        }
        if is_newest && self.holder.state().0 == State::Refused {
            // The book wants no more than this until somebody asks again.
            self.holder.want(held, 0, &self.domains);
        }
    }

    /// What the neighbour grants becomes part of the book.
    async fn write(&mut self, now: Nanos) {
        self.written = self.holder.rate(now);
        let command = Command::Leased {
            resource: self.resource.clone(),
            serial: self.asked.1,
            rate: self.written,
            until: self.holder.until(),
        };
        let given = || vec![Given { who: BROKER.into(), command: command.clone() }];
        while let Err(Busy::Full) = self.keeper.commit(given()).await {
            sleep(BUSY).await;
        }
    }
}

impl Link {
    /// The next thing that was heard. May be dropped and called again at any time.
    async fn next(&mut self) -> Said {
        match self {
            Link::Down { .. } => std::future::pending().await,
            Link::Up(up) => up.said.recv().await.unwrap_or_else(|| {
                let why = "the session has ended without a word: a defect";
                Said::Lost(crate::http::HttpError::Unreachable(why.into()))
            }),
        }
    }
}

#[cfg(test)]
mod tests;

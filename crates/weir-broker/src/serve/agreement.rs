//! What this domain leases from its neighbours. For each agreement a task is to the neighbour's broker what an edge is to its
//! own: it keeps one lease there.
//!
//! The book says what it [wants](crate::book::Event::Want), and how much of that its edges use. What the neighbour decides
//! becomes part of the book by [`Command::Leased`]. Between them is a [`Holder`], so what holds of an edge holds here: older
//! answers are not heeded, a lost one is asked for again, and what is granted ends by this broker's clock before it does
//! by the neighbour's.

use super::config::Agreement;
use super::desk::Desk;
use super::keeper::{Busy, Keeper, News};
use super::log::Log;
use super::who::BROKER;
use crate::agreement::{Leased, Rules};
use crate::book::Name;
use crate::client::link::Link;
use crate::client::{Said, rest};
use crate::holder::{GAP, Holder, RETRY, Terms};
use crate::http::Target;
use crate::journal::Given;
use crate::{MILLISECOND, Nanos, SECOND};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::sleep;
use weir_core::Random;

/// After so long it is tried again to write down what a neighbour has said.
const BUSY: Duration = Duration::from_millis(50);

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
    rules: Rules,
    random: Random,
    link: Link,
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
            rules: Rules::default(),
            random: Random::new(u64::from(life)),
            link: Link::new(u64::from(life)),
        })
    }

    /// Keeps the lease until the keeper has gone.
    pub async fn run(mut self, mut news: UnboundedReceiver<News>) {
        loop {
            // First what the book has said so far: what it lent before it heard of a fall is in use, and no request may
            // name less.
            loop {
                match news.try_recv() {
                    Ok(news) => {
                        if !self.take(news).await {
                            return;
                        }
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let now = self.keeper.now();
            self.holder.pass(now);
            self.reach();
            self.ask(now);
            let wait = self.wait(now);
            let kept = tokio::select! {
                news = news.recv() => match news {
                    Some(news) => self.take(news).await,
                    None => false,
                },
                said = self.link.next() => self.hear(said).await,
                () = sleep(wait) => true,
            };
            if !kept {
                return;
            }
        }
    }

    /// False as [`Task::write`] is.
    async fn take(&mut self, news: News) -> bool {
        match news {
            News::Want { serial, rate, mut domains } => {
                let now = self.keeper.now();
                domains.push(self.domain.clone());
                let leased = self.rules.want(&mut self.holder, now, serial, rate, domains);
                self.write(leased).await
            }
            News::Lent(rate) => {
                self.holder.lend(rate);
                true
            }
        }
    }

    /// How long nothing happens by itself.
    fn wait(&self, now: Nanos) -> Duration {
        // Without a lease there is nothing to say.
        let next = self.holder.poll_at().and_then(|due| match self.link.begins_in() {
            Some(pause) => Some(now + pause),
            None => self.link.is_free().then_some(due),
        });
        // A timer has a resolution of a millisecond.
        Duration::from_nanos(next.map_or(SECOND, |next| next.saturating_sub(now)).clamp(MILLISECOND, SECOND))
    }

    /// Begins a session, if it is time to and something is wanted or held.
    fn reach(&mut self) {
        if self.link.begins_in() == Some(0) && self.holder.poll_at().is_some() {
            let target = self.target.clone();
            self.link.begin(|words, said| rest::session(target, None, words, said));
        }
    }

    fn ask(&mut self, now: Nanos) {
        if !self.link.is_free() {
            return;
        }
        if let Some(request) = self.holder.poll(now, &mut self.random) {
            self.rules.asks(request.version);
            self.link.ask(vec![request]);
        }
    }

    /// False as [`Task::write`] is.
    async fn hear(&mut self, said: Said) -> bool {
        let now = self.keeper.now();
        match said {
            Said::Reached | Said::Sync => self.holder.reconnected(),
            Said::Answers(answers) => {
                // By a Unix socket the answers to others are heard, too.
                for answer in answers {
                    if answer.lease == self.lease
                        && self.holder.answer(now, answer.version, &answer.verdict, &mut self.random)
                    {
                        let leased = self.rules.answered(&mut self.holder, now);
                        if !self.write(leased).await {
                            return false;
                        }
                    }
                }
            }
            // By a Unix socket all leases are heard of.
            Said::CalledBack { lease, .. } if lease != self.lease => {}
            Said::CalledBack { version, rate, .. } => {
                self.holder.called_back(now, version, rate);
                let leased = self.rules.called_back(&self.holder, now);
                return self.write(leased).await;
            }
            Said::NotNow(why) | Said::Lost(why) => {
                self.log().refused(&format!("agreement {}: {why}", self.resource));
            }
            // A broker has leases alone at its neighbour's.
            Said::Heard | Said::SessionsChanged(_) | Said::Sessions(_) | Said::NoSessionsNow(_) => {}
        }
        true
    }

    fn log(&self) -> &Log {
        &self.desk.log
    }

    /// What the neighbour grants becomes part of the book. False if nobody keeps the book any more: then the neighbour may
    /// hear nothing more either.
    async fn write(&mut self, leased: Option<Leased>) -> bool {
        let Some(leased) = leased else { return true };
        let command = leased.of(self.resource.clone());
        let given = || vec![Given { who: BROKER.into(), command: command.clone() }];
        loop {
            match self.keeper.commit(given()).await {
                Ok(_) => return true,
                Err(Busy::Full) => sleep(BUSY).await,
                Err(Busy::Stopped) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! A session at a broker over REST: one connection asks, one hears of what is called back.

use super::{PATIENCE, Said, Word};
use crate::http::{Connection, Events, HttpError, Target};
use crate::serve::SILENCE;
use crate::wire::{Answers, Entry, Told, Wishes};
use hyper::Method;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

struct Session {
    ask: Connection,
    events: Events,
    said: UnboundedSender<Said>,
}

/// Speaks with the broker at `target` until one of both ends it.
pub(crate) async fn session(
    target: Target,
    token: Option<String>,
    words: UnboundedReceiver<Word>,
    said: UnboundedSender<Said>,
) {
    let ended = match tokio::time::timeout(PATIENCE, connect(&target, token.as_deref())).await {
        Err(_) => Err(HttpError::Unreachable(format!("{target}: no answer"))),
        Ok(Err(why)) => Err(why),
        Ok(Ok((ask, events))) => {
            let _ = said.send(Said::Reached);
            Session { ask, events, said: said.clone() }.run(words).await
        }
    };
    if let Err(why) = ended {
        // Whoever keeps the leases may have ended first.
        let _ = said.send(Said::Lost(why));
    }
}

async fn connect(broker: &Target, token: Option<&str>) -> Result<(Connection, Events), HttpError> {
    let events = Connection::open(broker, token, PATIENCE).await?.listen("/v1/events").await?;
    let ask = Connection::open(broker, token, PATIENCE).await?;
    Ok((ask, events))
}

impl Session {
    async fn run(mut self, mut words: UnboundedReceiver<Word>) -> Result<(), HttpError> {
        loop {
            tokio::select! {
                word = words.recv() => match word {
                    Some(Word::Ask(wishes)) => {
                        let leases: Vec<Entry> = wishes.iter().map(Entry::from).collect();
                        self.ask(Wishes { leases }).await?;
                    }
                    // A batch says all of it.
                    Some(Word::Shaped(_) | Word::AllSaid | Word::Forgotten(_)) => {}
                    None => return Ok(()),
                },
                told = self.events.next(3 * SILENCE) => hear(told, &self.said)?,
            }
        }
    }

    /// Sends the wishes, and hears of what is called back until their answers are there.
    async fn ask(&mut self, wishes: Wishes) -> Result<(), HttpError> {
        let answers = self.ask.json::<Answers>(Method::POST, "/v1/batch", Some(&wishes));
        tokio::pin!(answers);
        let answers = loop {
            tokio::select! {
                answers = &mut answers => break answers,
                told = self.events.next(3 * SILENCE) => hear(told, &self.said)?,
            }
        };
        let said = match answers {
            Ok(Answers { leases, waiting }) => {
                let (asked, told) = (wishes.leases.len(), leases.len() + waiting.len());
                if asked != told {
                    return Err(HttpError::Unreadable(format!("{told} answers to {asked} wishes")));
                }
                Said::Answers(leases)
            }
            // It is there, and does not carry this out now.
            Err(why @ HttpError::Refused { .. }) => Said::NotNow(why),
            Err(why) => return Err(why),
        };
        // Whoever keeps the leases may have ended first.
        let _ = self.said.send(said);
        let _ = self.said.send(Said::Heard);
        Ok(())
    }
}

fn hear(told: Option<String>, said: &UnboundedSender<Said>) -> Result<(), HttpError> {
    let told = told.ok_or_else(|| HttpError::Unreachable("the broker is silent".into()))?;
    // What a later version tells beyond this is not for this one.
    let heard = match serde_json::from_str(&told) {
        Ok(Told::CalledBack { lease, version, rate_bps: rate }) => Said::CalledBack { lease, version, rate },
        Ok(Told::Answered(answer)) => Said::Answers(vec![answer]),
        Ok(Told::Ended { .. }) | Err(_) => return Ok(()),
    };
    let _ = said.send(heard);
    Ok(())
}

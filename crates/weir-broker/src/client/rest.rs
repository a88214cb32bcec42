//! A session at a broker over REST: one connection asks, one hears of what is called back.

use super::{PATIENCE, Said, Word};
use crate::http::{Connection, Events, HttpError, Target};
use crate::serve::SILENCE;
use crate::wire::{Answers, Entry, InEffect, SessionsNow, Told, Wishes};
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
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
                    Some(Word::Sessions(edge, sessions)) => self.sessions(&edge, InEffect { sessions }).await?,
                    // A batch says all of it.
                    Some(Word::Shaped(_) | Word::AllSaid | Word::Forgotten(_)) => {}
                    None => return Ok(()),
                },
                told = self.events.next(3 * SILENCE) => hear(told, &self.said)?,
            }
        }
    }

    /// Sends something, and hears of what is called back until its answer is there.
    async fn call<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Result<T, HttpError>, HttpError> {
        let answer = self.ask.json::<T>(method, path, Some(body));
        tokio::pin!(answer);
        loop {
            tokio::select! {
                answer = &mut answer => return Ok(answer),
                told = self.events.next(3 * SILENCE) => hear(told, &self.said)?,
            }
        }
    }

    /// Says which sessions an edge has in effect, and hears which it is to have.
    async fn sessions(&mut self, edge: &str, in_effect: InEffect) -> Result<(), HttpError> {
        let answer = self.call(Method::PUT, &format!("/v1/sessions/{edge}"), &in_effect).await?;
        let _ = self.said.send(told_sessions(answer)?);
        Ok(())
    }

    /// Sends the wishes.
    async fn ask(&mut self, wishes: Wishes) -> Result<(), HttpError> {
        let answers = self.call(Method::POST, "/v1/batch", &wishes).await?;
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

/// What an answer says of sessions.
fn told_sessions(answer: Result<SessionsNow, HttpError>) -> Result<Said, HttpError> {
    match answer {
        Ok(answer) => Ok(Said::Sessions(Some(answer))),
        // It is of a version before there were any.
        Err(HttpError::Refused { status: 404 | 405, .. }) => Ok(Said::Sessions(None)),
        // It is there, and does not say now.
        Err(why @ HttpError::Refused { .. }) => Ok(Said::NoSessionsNow(why)),
        Err(why) => Err(why),
    }
}

fn hear(told: Option<String>, said: &UnboundedSender<Said>) -> Result<(), HttpError> {
    let told = told.ok_or_else(|| HttpError::Unreachable("the broker is silent".into()))?;
    // What a later version tells beyond this is not for this one.
    let heard = match serde_json::from_str(&told) {
        Ok(Told::CalledBack { lease, version, rate_bps: rate }) => Said::CalledBack { lease, version, rate },
        Ok(Told::Answered(answer)) => Said::Answers(vec![answer]),
        Ok(Told::Sessions { edge }) => Said::SessionsChanged(edge),
        Ok(Told::Ended { .. }) | Err(_) => return Ok(()),
    };
    let _ = said.send(heard);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Problem;

    /// A broker that is busy, or refuses for another reason, may know sessions all the same.
    #[test]
    fn only_a_broker_without_the_path_knows_no_sessions() {
        for (status, is_unknown) in
            [(404, true), (405, true), (401, false), (403, false), (429, false), (500, false), (503, false)]
        {
            let problem = Problem { error: "e".into(), help: "h".into() };
            let said = told_sessions(Err(HttpError::Refused { status, problem }));
            let is_right = match said {
                Ok(Said::Sessions(None)) => is_unknown,
                Ok(Said::NoSessionsNow(_)) => !is_unknown,
                _ => false,
            };
            assert!(is_right, "{status}");
        }
        assert!(told_sessions(Err(HttpError::Unreachable("x".into()))).is_err(), "the connection has ended");
    }
}

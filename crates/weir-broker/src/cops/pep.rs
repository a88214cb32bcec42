//! The half of an edge that speaks COPS (RFC 2748, a policy enforcement point): one session at a broker.
//!
//! [`client`](crate::client) runs it and keeps the leases.

use super::codec::{Message, Report};
use super::field::Decided;
use super::line::Line;
use super::object::{Code, Fault};
use super::{CLIENT_TYPE, MALFORMED_DECISION, STOPPING, TEAR, UNKNOWN, UNKNOWN_OBJECT};
use crate::book::{Name, Refusal, Request, Verdict};
use crate::client::{PATIENCE, Said, Word};
use crate::http::{HttpError, host_of, tcp};
use crate::wire::{Answer, Problem};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_core::Random;

/// Where a broker is, and who comes.
#[derive(Clone, Debug)]
pub struct Target {
    /// `HOST:PORT`.
    pub at: String,
    /// The name of the edge: that of its certificate, if it has one.
    pub edge: Name,
    /// TLS from the first byte.
    pub tls: Option<Arc<ClientConfig>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cops://{}", self.at)
    }
}

struct Session<S> {
    line: Line<S>,
    keep_alive: Duration,
    random: Random,
    /// The handle of each lease, and the reverse.
    handles: HashMap<Name, u32>,
    leases: HashMap<u32, Name>,
    newest: u32,
    /// Keep-alives that were sent, and those that came back.
    sent: u64,
    back: u64,
    /// The keep-alive behind the last wishes, and when it was sent. Once it is back, they have been read.
    behind: Option<(u64, Instant)>,
    /// The broker wants to hear when all was said.
    sync: bool,
    said: UnboundedSender<Said>,
}

/// Speaks with the broker at `target` until one of both ends it.
pub(crate) async fn session(
    target: Target,
    token: Option<String>,
    seed: u64,
    words: UnboundedReceiver<Word>,
    said: UnboundedSender<Said>,
) {
    let told = |why: &dyn fmt::Display| HttpError::Unreachable(format!("{target}: {why}"));
    let ended = match timeout(PATIENCE, tcp(&target.at)).await {
        Err(_) => Err(told(&"no answer")),
        Ok(Err(e)) => Err(told(&e)),
        Ok(Ok(stream)) => match &target.tls {
            None => speak(stream, &target, token, seed, words, &said).await,
            Some(config) => match shake_hands(stream, &target, config).await {
                Ok(stream) => speak(stream, &target, token, seed, words, &said).await,
                Err(e) => Err(told(&e)),
            },
        },
    };
    if let Err(why) = ended {
        // Whoever keeps the leases may have ended first.
        let _ = said.send(Said::Lost(why));
    }
}

async fn shake_hands(
    stream: tokio::net::TcpStream,
    target: &Target,
    config: &Arc<ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<tokio::net::TcpStream>> {
    let name = ServerName::try_from(host_of(&target.at).to_owned()).map_err(std::io::Error::other)?;
    let shaken = timeout(PATIENCE, TlsConnector::from(config.clone()).connect(name, stream)).await;
    shaken.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut)))
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    target: &Target,
    token: Option<String>,
    seed: u64,
    words: UnboundedReceiver<Word>,
    said: &UnboundedSender<Said>,
) -> Result<(), HttpError> {
    let told = |why: &dyn fmt::Display| HttpError::Unreachable(format!("{target}: {why}"));
    let mut line = Line::new(stream, CLIENT_TYPE);
    line.say(&Message::Open { pep: target.edge.clone(), token: token.map(Into::into) });
    line.send().await.map_err(|e| told(&e))?;
    let answer = timeout(PATIENCE, line.message()).await.map_err(|_| told(&"no answer"))?;
    let keep_alive = match answer.map_err(|e| told(&e))? {
        // 0 is for ever: then a silence of an hour is long enough.
        (CLIENT_TYPE, Message::Accept { keep_alive_s: 0 }) => Duration::from_secs(3_600),
        (CLIENT_TYPE, Message::Accept { keep_alive_s }) => Duration::from_secs(keep_alive_s.into()),
        (_, Message::Close { error }) => return Err(closed(target, error)),
        (_, other) => return Err(told(&format!("it answers OPN by {other:?}"))),
    };
    let (handles, leases) = (HashMap::new(), HashMap::new());
    let (random, said, newest) = (Random::new(seed), said.clone(), 0);
    let (sent, back, behind, sync) = (0, 0, None, false);
    let _ = said.send(Said::Reached);
    let mut session =
        Session { line, keep_alive, random, handles, leases, newest, sent, back, behind, sync, said };
    session.run(words).await.map_err(|why| match why {
        Ended::Error(e) => told(&e),
        Ended::Closed(error) => closed(target, error),
    })
}

fn closed(target: &Target, error: Code) -> HttpError {
    let problem = problem(error);
    HttpError::Unreachable(format!("{target}: {}; {}", problem.error, problem.help))
}

fn problem(Code { code, sub }: Code) -> Problem {
    let (error, help) = match code {
        super::UNABLE => ("the broker cannot do it now", "nothing: it is asked again"),
        super::UNSUPPORTED => ("the broker knows no leases by COPS", "name a broker of this version"),
        STOPPING => ("the broker stops", "nothing: it is tried again"),
        super::SILENT => ("the broker has heard nothing", "look at the network between both"),
        super::NOT_ALLOWED => {
            ("the broker does not allow it", "take the certificate or token of the lease's owner")
        }
        super::NOBODY => ("the broker asks who this is", "give a certificate or a token"),
        _ => ("the broker does not understand", "this is a defect: report it"),
    };
    Problem { error: format!("{error} (COPS error {code}, {sub})"), help: help.into() }
}

enum Ended {
    Error(std::io::Error),
    Closed(Code),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Ended::Error(error)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn run(&mut self, mut words: UnboundedReceiver<Word>) -> Result<(), Ended> {
        let mut heard = Instant::now();
        let mut next = heard + self.pause();
        loop {
            // What came with the answer to OPN is read first.
            while let Some(message) = self.line.next() {
                match message {
                    Ok((_, message)) => self.message(message)?,
                    Err(fault) => self.fault(fault)?,
                }
            }
            self.line.send().await?;
            let silent = heard + self.keep_alive;
            let lost = self.behind.map_or(silent, |(_, since)| silent.min(since + PATIENCE));
            tokio::select! {
                come = self.line.hear() => {
                    come?;
                    heard = Instant::now();
                }
                word = words.recv() => match word {
                    Some(word) => self.word(word),
                    None => {
                        self.line.say(&Message::Close { error: Code { code: STOPPING, sub: 0 } });
                        return Ok(self.line.send().await?);
                    }
                },
                () = sleep_until(next) => {
                    self.keep_alive();
                    next = Instant::now() + self.pause();
                }
                () = sleep_until(lost) => {
                    return Err(std::io::Error::other("the broker is silent").into());
                }
            }
        }
    }

    /// From a quarter to three quarters of the time of a keep-alive (RFC 2748, section 3.9).
    fn pause(&mut self) -> Duration {
        let whole = self.keep_alive.as_nanos() as u64;
        Duration::from_nanos(whole / 4 + self.random.below(whole / 2 + 1))
    }

    fn keep_alive(&mut self) {
        self.line.say(&Message::KeepAlive);
        self.sent += 1;
    }

    fn word(&mut self, word: Word) {
        match word {
            Word::Ask(wishes) => {
                wishes.into_iter().for_each(|wish| self.ask(wish));
                self.keep_alive();
                self.behind = Some((self.sent, Instant::now()));
            }
            Word::Forgotten(lease) => {
                if let Some(handle) = self.handles.remove(&lease) {
                    self.leases.remove(&handle);
                    self.line.say(&Message::Delete { handle, reason: Code { code: TEAR, sub: 0 } });
                }
            }
            Word::Shaped(lease) => {
                if let Some(&handle) = self.handles.get(&lease) {
                    self.line.say(&Message::Report { handle, report: Report::Success });
                }
            }
            // Sessions are told by REST alone.
            Word::Sessions(..) => self.tell(Said::Sessions(None)),
            Word::AllSaid => {
                if std::mem::take(&mut self.sync) {
                    self.line.say(&Message::SyncDone { handle: None });
                }
            }
        }
    }

    fn ask(&mut self, wish: Request) {
        if let Err(field) = wish.check() {
            // It could not even be written.
            let verdict = Verdict::Refused(Refusal::Bad { field });
            self.tell(Said::Answers(vec![Answer::new(wish.lease, wish.version, verdict)]));
            return;
        }
        let handle = *self.handles.entry(wish.lease.clone()).or_insert_with(|| {
            self.newest += 1;
            self.newest
        });
        self.leases.insert(handle, wish.lease.clone());
        self.line.say(&Message::Request { handle, wish });
    }

    fn tell(&self, said: Said) {
        // Whoever keeps the leases may have ended first: then this ends, too.
        let _ = self.said.send(said);
    }

    fn message(&mut self, message: Message) -> Result<(), Ended> {
        match message {
            Message::Decision { decided: Ok(Decided::Answer { lease, version, verdict }), .. } => {
                self.tell(Said::Answers(vec![Answer::new(lease, version, verdict)]));
            }
            Message::Decision { decided: Ok(Decided::CalledBack { lease, version, rate }), .. } => {
                self.tell(Said::CalledBack { lease, version, rate });
            }
            // Whoever holds it has counted its time, too.
            Message::Decision { decided: Ok(Decided::Ended { .. }), .. } => {}
            Message::Decision { decided: Err(error), .. } => {
                let why = HttpError::Refused { status: error.code, problem: problem(error) };
                self.tell(Said::NotNow(why));
            }
            Message::SyncRequest { .. } => {
                self.sync = true;
                self.tell(Said::Sync);
            }
            Message::KeepAlive => {
                self.back += 1;
                if self.behind.is_some_and(|(behind, _)| behind <= self.back) {
                    self.behind = None;
                    self.tell(Said::Heard);
                }
            }
            Message::Close { error } => return Err(Ended::Closed(error)),
            other => return Err(std::io::Error::other(format!("it sends {other:?}")).into()),
        }
        Ok(())
    }

    /// What cannot be read about one lease ends its handle. The holder asks again, by another one.
    fn fault(&mut self, fault: Fault) -> Result<(), Ended> {
        let Some((handle, lease)) =
            fault.handle.and_then(|handle| Some((handle, self.leases.remove(&handle)?)))
        else {
            return Err(std::io::Error::other(fault).into());
        };
        self.handles.remove(&lease);
        let unknown = fault.code.code == UNKNOWN;
        let reason = if unknown {
            Code { code: UNKNOWN_OBJECT, ..fault.code }
        } else {
            Code { code: MALFORMED_DECISION, sub: 0 }
        };
        self.line.say(&Message::Delete { handle, reason });
        self.tell(Said::NotNow(HttpError::Unreadable(fault.to_string())));
        Ok(())
    }
}

#[cfg(test)]
mod tests;

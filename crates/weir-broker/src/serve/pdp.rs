//! The COPS door (RFC 2748): each connection is one edge, whose wishes go to the same keeper as those of REST.

use super::desk::{Desk, Peer};
use super::keeper::{BEHIND, Job, Listener};
use super::who::{Role, Who};
use crate::book::{LEASES_PER_OWNER, MAX_VERSION, Name, Request};
use crate::cops::codec::Message;
use crate::cops::field::Decided;
use crate::cops::line::Line;
use crate::cops::object::{Code, Fault};
use crate::cops::{self, BAD_HANDLE, CLIENT_TYPE, KEEP_ALIVE_S, MALFORMED, NOT_ALLOWED, UNABLE};
use crate::wire::{Answer, Told};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

/// How long the other side may be silent, unless a test is less patient.
pub(super) const SILENCE: Duration = Duration::from_secs(KEEP_ALIVE_S as u64);
/// After so long it is seen again whether who sends too much may send more.
const PAUSE: Duration = Duration::from_millis(20);

struct Session<S> {
    desk: Arc<Desk>,
    line: Line<S>,
    who: Who,
    /// The lease of each handle, and the newest version of it that came by this session.
    leases: HashMap<u32, (Name, u64)>,
    /// The handle of each lease.
    handles: HashMap<Name, u32>,
    /// How long the other side may be silent.
    silence: Duration,
    /// Wishes that have come together.
    wishes: Vec<(u32, Request)>,
}

/// Why a session ends. What is to be said of it has been said.
enum End {
    Gone,
    Closed,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Gone
    }
}

const fn code(code: u16) -> Code {
    Code { code, sub: 0 }
}

/// Serves one connection until it ends. Leases go on.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    desk: Arc<Desk>,
    stream: S,
    peer: Peer,
    head: Duration,
    silence: Duration,
) {
    let mut line = Line::new(stream, CLIENT_TYPE);
    let from = match &peer {
        Peer::Local => "the socket".into(),
        Peer::Edge(name) | Peer::Nobody(name) => name.clone(),
    };
    let who = match timeout(head, line.message()).await {
        Ok(Ok(opened)) => welcome(&desk, &peer, opened),
        Ok(Err(why)) => Err((MALFORMED, CLIENT_TYPE, why.to_string())),
        Err(_) => return,
    };
    match who {
        Ok(who) => {
            let (leases, handles) = (HashMap::new(), HashMap::new());
            let mut session = Session { desk, line, who, leases, handles, silence, wishes: Vec::new() };
            // However it ends, nothing was changed that was not written down.
            let _ = session.run().await;
        }
        Err((error, client_type, why)) => {
            desk.log.refused(&format!("{from}: COPS: {why}"));
            line.speak(client_type);
            line.say(&Message::Close { error: code(error) });
            // It may have gone before.
            let _ = line.send().await;
        }
    }
}

/// Who opens a session, or the error that it hears, with its client-type.
fn welcome(desk: &Desk, peer: &Peer, opened: (u16, Message)) -> Result<Who, (u16, u16, String)> {
    let (client_type, Message::Open { pep, token }) = opened else {
        return Err((MALFORMED, CLIENT_TYPE, "expected OPN first".into()));
    };
    if client_type != CLIENT_TYPE {
        let why = format!("client-type {client_type:#06x}: expected {CLIENT_TYPE:#06x}");
        return Err((cops::UNSUPPORTED, client_type, why));
    }
    let error = if token.is_some() { NOT_ALLOWED } else { cops::NOBODY };
    let who = desk.who(peer, token.as_deref()).map_err(|why| (error, CLIENT_TYPE, why))?;
    match peer {
        Peer::Edge(name) if *name != pep => {
            Err((NOT_ALLOWED, CLIENT_TYPE, format!("its certificate does not name it {pep}")))
        }
        _ if who.role < Role::Operate => {
            Err((NOT_ALLOWED, CLIENT_TYPE, format!("{} has the role {}", who.name, who.role.word())))
        }
        _ => Ok(who),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn run(&mut self) -> Result<(), End> {
        let (to, mut told) = mpsc::channel(BEHIND);
        let owner = self.who.owner.clone();
        if self.desk.keeper.take(Job::Listen(Listener { owner, to })).is_err() {
            return self.close(code(UNABLE)).await;
        }
        self.line.say(&Message::Accept { keep_alive_s: KEEP_ALIVE_S });
        self.line.say(&Message::SyncRequest { handle: None });
        self.line.send().await?;
        // Some may have come with OPN.
        self.messages().await?;
        self.line.send().await?;
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                come = self.line.hear() => {
                    come?;
                    heard = Instant::now();
                    self.messages().await?;
                }
                told = told.recv() => match told {
                    Some(told) => self.tell(told),
                    // It was too far behind. A new session hears all.
                    None => return self.close(code(UNABLE)).await,
                },
                () = tokio::time::sleep_until(heard + self.silence) => return self.close(code(cops::SILENT)).await,
            }
            self.line.send().await?;
        }
    }

    async fn close(&mut self, error: Code) -> Result<(), End> {
        self.line.say(&Message::Close { error });
        self.line.send().await?;
        Err(End::Closed)
    }

    /// Carries out what has come. Wishes that came together are decided together.
    async fn messages(&mut self) -> Result<(), End> {
        while let Some(message) = self.line.next() {
            while !self.desk.limits.allow_lease(&self.who.name, std::time::Instant::now()) {
                self.decide().await;
                self.line.send().await?;
                sleep(PAUSE).await;
            }
            match message {
                Ok((_, Message::Request { handle, wish })) => match self.may_ask(handle, &wish) {
                    Ok(()) => self.wishes.push((handle, wish)),
                    Err(error) => self.line.say(&Message::Decision { handle, decided: Err(code(error)) }),
                },
                Ok((_, message)) => {
                    self.decide().await;
                    self.message(message).await?;
                }
                Err(fault) => self.fault(&fault).await?,
            }
        }
        self.decide().await;
        Ok(())
    }

    async fn message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::KeepAlive => self.line.say(&Message::KeepAlive),
            Message::Delete { handle, reason } => self.delete(handle, reason).await,
            // What an edge shapes by is what it said by its wishes.
            Message::Report { .. } | Message::SyncDone { .. } => {}
            Message::Close { .. } => return Err(End::Closed),
            _ => {
                self.desk.log.refused(&format!("{}: COPS: a message of a broker", self.who.name));
                return self.close(code(MALFORMED)).await;
            }
        }
        Ok(())
    }

    /// An object that is not known concerns one handle. After anything else nothing can be relied on.
    async fn fault(&mut self, fault: &Fault) -> Result<(), End> {
        self.desk.log.refused(&format!("{}: {fault}", self.who.name));
        match fault.handle {
            Some(handle) if fault.code.code == cops::UNKNOWN => {
                self.line.say(&Message::Decision { handle, decided: Err(fault.code) });
                Ok(())
            }
            _ => self.close(fault.code).await,
        }
    }

    /// Whether this wish may come by this handle. If so, they belong together from now on.
    fn may_ask(&mut self, handle: u32, wish: &Request) -> Result<(), u16> {
        // Another wish for the same lease may name another path.
        self.desk.goes_through(&wish.lease, &wish.path).map_err(|_| NOT_ALLOWED)?;
        match (self.leases.get_mut(&handle), self.handles.get(&wish.lease)) {
            (Some((lease, newest)), Some(of)) if *lease == wish.lease && *of == handle => {
                *newest = wish.version.max(*newest);
                return Ok(());
            }
            (None, None) => {}
            _ => return Err(BAD_HANDLE),
        }
        if self.leases.len() >= LEASES_PER_OWNER as usize {
            return Err(UNABLE);
        }
        self.desk.owns(&self.who, &wish.lease).map_err(|_| NOT_ALLOWED)?;
        self.leases.insert(handle, (wish.lease.clone(), wish.version));
        self.handles.insert(wish.lease.clone(), handle);
        Ok(())
    }

    async fn decide(&mut self) {
        if self.wishes.is_empty() {
            return;
        }
        let (handles, wishes): (Vec<u32>, Vec<Request>) =
            std::mem::take(&mut self.wishes).into_iter().unzip();
        match self.desk.decide(&self.who, wishes).await {
            Ok(answers) => {
                for (handle, answer) in handles.into_iter().zip(answers) {
                    // What waits for a neighbour is told later.
                    if let Ok(Answer { lease, version, verdict, .. }) = answer {
                        let decided = Ok(Decided::Answer { lease, version, verdict });
                        self.line.say(&Message::Decision { handle, decided });
                    }
                }
            }
            Err(_) => handles.into_iter().for_each(|handle| {
                self.line.say(&Message::Decision { handle, decided: Err(code(UNABLE)) });
            }),
        }
    }

    /// DRQ has no answer: if it is not carried out, the lease ends by itself. So does one whose edge could not read
    /// what was decided: nobody knows what it uses.
    async fn delete(&mut self, handle: u32, reason: Code) {
        let Some((lease, newest)) = self.leases.remove(&handle) else { return };
        self.handles.remove(&lease);
        if matches!(reason.code, cops::MALFORMED_DECISION | cops::UNKNOWN_OBJECT) {
            return;
        }
        let wish = self.desk.keeper.look(move |kept| kept.journal.book().wish(&lease)).await;
        if let Ok(Some(wish)) = wish
            && wish.rate > 0
            // What another session has asked for since then is in use.
            && wish.version <= newest
        {
            let nothing = Request { version: (wish.version + 1).min(MAX_VERSION), rate: 0, min: 0, ..wish };
            let _ = self.desk.decide(&self.who, vec![nothing]).await;
        }
    }

    fn tell(&mut self, told: Told) {
        let Some(&handle) = self.handles.get(told.lease()) else { return };
        let decided = match told {
            Told::Answered(Answer { lease, version, verdict, .. }) => {
                Decided::Answer { lease, version, verdict }
            }
            Told::CalledBack { lease, version, rate_bps: rate } => {
                Decided::CalledBack { lease, version, rate }
            }
            Told::Ended { lease, .. } => Decided::Ended { lease },
            // It is about no lease.
            Told::Sessions { .. } => return,
        };
        self.line.say(&Message::Decision { handle, decided: Ok(decided) });
    }
}

#[cfg(test)]
mod tests;

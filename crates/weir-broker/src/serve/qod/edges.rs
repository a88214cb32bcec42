//! The boxes at the edge hear which sessions are theirs, and say which are in effect.
//!
//! A box asks by `PUT /v1/sessions/EDGE` with the sessions that it has in effect, and is told which it is to have, how long each
//! lasts, and what traffic it is. It asks when it comes, when an event says that something has changed, once it has put
//! that into effect, and every few seconds. So either side may start again at any time.
//!
//! **A session takes its bandwidth with it only once its box has come down.** Whoever ends one marks it, and its lease goes on. It
//! is given back when the box no longer names it, or after [`COMES_DOWN`]: a box has no session longer than [`HOLDS`] after
//! the question whose answer named it.

use super::session::{Session, Why};
use super::{Desk, Error, back};
use crate::book::{Command, Name, Request};
use crate::journal::Given;
use crate::serve::clock::time_of_day_ms;
use crate::serve::desk::{Refused, Shared, body, reply};
use crate::serve::keeper::{Busy, Job};
use crate::serve::who::{BROKER, Who};
use crate::wire::{InEffect, SessionsNow, Told};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sessions that a box has at most.
pub(super) const SESSIONS: usize = 256;
/// How long a box has a session without hearing of it again.
pub(super) const HOLDS: Duration = Duration::from_secs(30);
/// When a box that says nothing has come down: a thousandth and a second later, as where a lease ends.
pub(super) const COMES_DOWN: Duration = Duration::from_millis(31_030);
/// When a session ends that its box has had, and does not name any more. A test is less patient.
pub(super) const SILENT: Duration = if cfg!(test) { Duration::from_secs(5) } else { COMES_DOWN };
/// How long whoever ends a session waits for its box.
const PATIENCE: Duration = Duration::from_secs(1);

/// A session of a box, with its lease and what is asked for that.
type Found = (Name, Session, Request);

/// `PUT /v1/sessions/{edge}`.
pub(in crate::serve) async fn in_effect(
    who: Who,
    State(desk): State<Shared>,
    Path(edge): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    desk.owns(&who, &edge)?;
    let InEffect { sessions: held } = body(bytes)?;
    let _alone = desk.sessions.changing.lock().await;
    let now = time_of_day_ms();
    let mut sessions = Vec::new();
    for (lease, mut session, wish) in desk.sessions_at(&edge).await? {
        let id = lease.split('/').next_back().unwrap_or("");
        let is_held = held.iter().any(|held| **held == *id);
        if session.ended.is_some() {
            if !is_held && wish.rate > 0 {
                desk.release(&session, wish).await?;
            }
            continue;
        }
        if !session.is_available(now) {
            // It is about to be marked.
            continue;
        }
        if is_held {
            desk.sessions.named().insert(lease.clone(), Instant::now());
        }
        if is_held && !session.taken {
            session.taken = true;
            desk.remember(&lease, &session).await?;
            desk.notify(&lease, &session, now);
            // From now on it is waited for in another way.
            desk.sessions.news.notify_one();
        }
        sessions.push(session.at_edge(id, &wish, now));
    }
    Ok(reply(StatusCode::OK, &SessionsNow { holds_ms: HOLDS.as_millis() as u32, sessions }))
}

impl Desk {
    /// The sessions that a box carries, those that are over and not given back among them.
    pub(super) async fn sessions_at(&self, edge: &str) -> Result<Vec<Found>, Busy> {
        let is_its = |session: &Session| session.edge.as_deref() == Some(edge);
        let of = |(lease, text): (Name, Box<str>)| Some((lease, Session::of(&text).filter(is_its)?));
        let all: Vec<(Name, Session)> = self.notes("").await?.into_iter().filter_map(of).collect();
        let leases: Vec<Name> = all.iter().map(|(lease, _)| lease.clone()).collect();
        let look = self.keeper.look(move |kept| -> Vec<Option<Request>> {
            leases.iter().map(|lease| kept.journal.book().wish(lease)).collect()
        });
        let wishes = look.await?;
        // One may have ended in between.
        Ok(all
            .into_iter()
            .zip(wishes)
            .filter_map(|((lease, session), wish)| Some((lease, session, wish?)))
            .collect())
    }

    /// Another note of a session, whose lease stays what it is.
    async fn remember(&self, lease: &Name, session: &Session) -> Result<(), Busy> {
        let command = Command::Note { lease: lease.clone(), text: Some(session.text()) };
        self.keeper.commit(vec![Given { who: BROKER.into(), command }]).await.map(drop)
    }

    /// Tells the box of a session that something has changed.
    pub(super) fn nudge(&self, session: &Session) {
        if let Some(edge) = &session.edge {
            // A broker that is too busy for this is asked by the box within seconds.
            let _ = self.keeper.take(Job::Tell(Told::Sessions { edge: edge.clone() }));
        }
    }

    /// The session is over: its box is to come down, and then its lease is given back. It is remembered for a while, unless
    /// somebody has deleted it.
    pub(super) async fn over(
        self: &Arc<Self>,
        who: &str,
        lease: &Name,
        session: &mut Session,
        wish: Request,
        why: Why,
    ) -> Result<(), Busy> {
        let now = time_of_day_ms();
        session.ended = Some((now.clamp(session.began_ms, session.ends_ms()), why));
        if session.edge.is_none() {
            self.release(session, wish).await?;
            self.notify(lease, session, now);
            return Ok(());
        }
        // Until then it is counted.
        let ttl_ms = COMES_DOWN.as_millis() as u32;
        self.note(who, Request { version: wish.version + 1, ttl_ms, ..wish }, Some(session)).await?;
        self.nudge(session);
        self.notify(lease, session, now);
        Ok(())
    }

    /// Gives the lease of a session back that is over.
    pub(super) async fn release(&self, session: &Session, wish: Request) -> Result<(), Busy> {
        let is_deleted = session.ended.is_some_and(|(_, why)| why == Why::DeleteRequested);
        let (note, ttl_ms) =
            if is_deleted { (None, wish.ttl_ms) } else { (Some(session), super::REMEMBERED_MS) };
        self.note(BROKER, Request { ttl_ms, ..back(wish) }, note).await.map(drop)
    }

    /// Waits until the lease of a session that is over is given back, but not for long.
    pub(super) async fn settled(&self, lease: &Name) -> Result<(), Error> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let name = lease.clone();
            let holds = self
                .keeper
                .look(move |kept| kept.journal.book().lease(&name).is_some_and(|held| held.granted > 0));
            if !holds.await? {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

//! A door for applications: CAMARA's Quality-on-Demand API v1 (github.com/camaraproject/QualityOnDemand). `qod.json` beside
//! this file describes it; a test holds both to each other.
//!
//! A session is a lease `OWNER/ID` with a [`Note`](Command::Note), which the book keeps as long as the lease: what traffic
//! is meant, by what profile, since when and for how long. Both are written together. There is nothing else to keep, so
//! a broker that starts again has its sessions. A profile of the broker's file says what lease it is.

mod edges;
mod hook;
mod notifier;
mod notify;
mod session;
mod sessions;
#[cfg(test)]
mod tests;

pub(super) use edges::in_effect;
pub(super) use notifier::Notifier;
pub(super) use sessions::Sessions;

use super::clock::time_of_day_ms;
use super::desk::{Desk, Refused, Shared, body, reply, verdict};
use super::keeper::{BEHIND, Busy, Job, Listener};
use super::who::{BROKER, Who};
use crate::book::{Command, MAX_VERSION, Name, Refusal, Request, Verdict};
use crate::journal::Given;
use crate::wire::Told;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use session::{Create, Extend, Retrieve, Session, Why};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// As `GET /quality-on-demand/v1/openapi.json` gives it.
pub(super) const TEXT: &str = include_str!("qod.json");
/// How long it is remembered that the network ended a session, in milliseconds: the API asks for 360 s.
const REMEMBERED_MS: u32 = 360_000;
/// It is looked at least so often whether a session has ended.
const LOOK: Duration = Duration::from_secs(30);
const CORRELATOR: &str = "x-correlator";

/// What is wrong, in the words of the API.
#[derive(Debug)]
pub(super) struct Error {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// The same as its body.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ErrorInfo {
    status: u16,
    code: String,
    message: String,
}

impl Error {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Error { status, code, message: message.into() }
    }
}

impl From<Refused> for Error {
    fn from(Refused(status, problem): Refused) -> Self {
        let code = match status {
            StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
            StatusCode::FORBIDDEN => "PERMISSION_DENIED",
            StatusCode::TOO_MANY_REQUESTS => "TOO_MANY_REQUESTS",
            StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
            StatusCode::INTERNAL_SERVER_ERROR => "INTERNAL",
            _ => "INVALID_ARGUMENT",
        };
        Error::new(status, code, format!("{}; {}", problem.error, problem.help))
    }
}

impl From<Busy> for Error {
    fn from(busy: Busy) -> Self {
        Refused::from(busy).into()
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let Error { status, code, message } = self;
        reply(status, &ErrorInfo { status: status.as_u16(), code: code.into(), message })
    }
}

type Outcome = Result<Response, Error>;

/// Who asks, with what is wrong in the words of the API.
struct Caller(Who);

impl FromRequestParts<Shared> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, desk: &Shared) -> Result<Self, Error> {
        Ok(Caller(Who::from_request_parts(parts, desk).await?))
    }
}

/// The paths of the API.
pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/quality-on-demand/v1/sessions", post(create))
        .route("/quality-on-demand/v1/sessions/{id}", get(show).delete(end))
        .route("/quality-on-demand/v1/sessions/{id}/extend", post(extend))
        .route("/quality-on-demand/v1/retrieve-sessions", post(retrieve))
        .route("/quality-on-demand/v1/openapi.json", get(async || document()))
        .layer(from_fn(correlate))
}

fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT)
}

/// The answer has the mark of its request.
async fn correlate(request: axum::extract::Request, next: Next) -> Response {
    let mark = request.headers().get(CORRELATOR).filter(|mark| mark.len() <= 256).cloned();
    let mut response = next.run(request).await;
    if let Some(mark) = mark {
        response.headers_mut().insert(CORRELATOR, mark);
    }
    response
}

/// Whose sessions are whose: the owner that a token or certificate names, else the token itself.
fn owner(who: &Who) -> &str {
    who.owner.as_deref().unwrap_or(&who.name)
}

/// 128 bits in the form of a UUID of version 4.
fn new_id() -> Result<String, Error> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", "the system gives no random numbers")
    })?;
    (bytes[6], bytes[8]) = ((bytes[6] & 0x0f) | 0x40, (bytes[8] & 0x3f) | 0x80);
    let mut id = crate::audit::hex(&bytes);
    [20, 16, 12, 8].into_iter().for_each(|at| id.insert(at, '-'));
    Ok(id)
}

/// The lease of a session of `who`.
fn lease(who: &Who, id: &str) -> Result<Name, Error> {
    let is_digit = |(at, b): (usize, u8)| {
        if [8, 13, 18, 23].contains(&at) {
            b == b'-'
        } else {
            b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
        }
    };
    if id.len() != 36 || !id.bytes().enumerate().all(is_digit) {
        let message = "sessionId: expected a UUID, as POST /sessions gives it";
        return Err(Error::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message));
    }
    let lease = format!("{}/{id}", owner(who));
    if crate::book::is_name(&lease) {
        return Ok(lease.into());
    }
    let message = format!("{}: expected an owner of at most 27 characters", owner(who));
    Err(Error::new(StatusCode::FORBIDDEN, "PERMISSION_DENIED", message))
}

impl Desk {
    /// The session of a lease, and what is asked for it.
    async fn session(&self, lease: &Name) -> Result<(Session, Request), Error> {
        let name = lease.clone();
        let look = self.keeper.look(move |kept| {
            let book = kept.journal.book();
            let session = book.note(&name).map(Session::of)??;
            Some((Some(session).filter(Session::is_known)?, book.wish(&name)?))
        });
        let message = "sessionId: there is no such session; what has ended is forgotten";
        look.await?.ok_or_else(|| Error::new(StatusCode::NOT_FOUND, "NOT_FOUND", message))
    }

    /// The sessions of `owner`, each with its id.
    async fn sessions_of(&self, owner: &str) -> Result<Vec<(String, Session)>, Error> {
        let prefix = format!("{owner}/");
        let known = |text: &str| Session::of(text).filter(Session::is_known);
        let of = |(lease, text): (Name, Box<str>)| Some((lease[prefix.len()..].to_owned(), known(&text)?));
        Ok(self.notes(&prefix).await?.into_iter().filter_map(of).collect())
    }

    /// The notes of leases whose names begin so. They are read by who asks: nobody else waits for that.
    async fn notes(&self, prefix: &str) -> Result<Vec<(Name, Box<str>)>, Busy> {
        let prefix = prefix.to_owned();
        let of = |(lease, text): (&str, &str)| (lease.into(), text.into());
        self.keeper.look(move |kept| kept.journal.book().notes(&prefix).map(of).collect()).await
    }

    /// Asks for a lease and notes its session, both in one write. None forgets the session.
    async fn note(&self, who: &str, request: Request, session: Option<&Session>) -> Result<Verdict, Busy> {
        let given = |command| Given { who: who.into(), command };
        let note = Command::Note { lease: request.lease.clone(), text: session.map(Session::text) };
        let commands = vec![given(Command::Ask(request.clone())), given(note)];
        let events = self.keeper.commit(commands).await?;
        self.sessions.news.notify_one();
        // A path of this domain alone waits for nobody.
        verdict(&events, 0, &request).ok_or(Busy::Full)
    }
}

/// Gives the lease of a wish back.
fn back(wish: Request) -> Request {
    Request { version: (wish.version + 1).min(MAX_VERSION), rate: 0, min: 0, ..wish }
}

async fn create(
    Caller(who): Caller,
    State(desk): State<Shared>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome {
    let id = new_id()?;
    let lease = lease(&who, &id)?;
    desk.owns(&who, &lease)?;
    let asked: Create = body(bytes)?;
    let (profile, mut session) =
        asked.judge(&desk.profiles, &desk.edges, &desk.notifier.allowed, time_of_day_ms())?;
    desk.goes_through(&lease, &profile.path)?;
    let _alone = desk.sessions.changing.lock().await;
    let own = desk.sessions_of(owner(&who)).await?;
    if let Some((other, _)) = own.iter().find(|(_, other)| other.flow == session.flow) {
        let message = format!("session {other} is for the same traffic: DELETE it first");
        return Err(Error::new(StatusCode::CONFLICT, "CONFLICT", message));
    }
    if let Some(edge) = &session.edge {
        let there = desk.sessions_at(edge).await?;
        if there.iter().filter(|(.., wish)| wish.rate > 0).count() >= edges::SESSIONS {
            let message = format!("edge {edge} has {} sessions, the most that it takes", edges::SESSIONS);
            return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, "QUOTA_EXCEEDED", message));
        }
        // The box gives a packet to one of them: the other would have nothing.
        if there.iter().any(|(_, other, _)| other.ended.is_none() && other.flow.meets(&session.flow)) {
            let message = "another session is for some of this traffic: ask for other addresses or ports";
            return Err(Error::new(StatusCode::CONFLICT, "CONFLICT", message));
        }
    }
    let (rate, ttl_ms) = (profile.rate.as_bps(), (session.duration * 1_000) as u32);
    let (path, domains) = (profile.path.clone(), Vec::new());
    let request = Request { lease, version: 1, path, rate, min: rate, ttl_ms, domains };
    match desk.note(&who.name, request.clone(), Some(&session)).await? {
        Verdict::Granted { .. } => desk.nudge(&session),
        Verdict::Refused(Refusal::TooMany { limit }) => {
            let message = format!("{} has {limit} leases and sessions, the most allowed", owner(&who));
            return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, "QUOTA_EXCEEDED", message));
        }
        // The API's way to say that there is no room.
        Verdict::Refused(_) => {
            session.ended = Some((session.began_ms, Why::NetworkTerminated));
            desk.release(&session, request).await?;
        }
    }
    Ok(reply(StatusCode::CREATED, &session.info(&id, time_of_day_ms())))
}

async fn show(Caller(who): Caller, State(desk): State<Shared>, Path(id): Path<String>) -> Outcome {
    let (session, _) = desk.session(&lease(&who, &id)?).await?;
    Ok(reply(StatusCode::OK, &session.info(&id, time_of_day_ms())))
}

async fn end(Caller(who): Caller, State(desk): State<Shared>, Path(id): Path<String>) -> Outcome {
    let lease = lease(&who, &id)?;
    desk.owns(&who, &lease)?;
    let alone = desk.sessions.changing.lock().await;
    let (mut session, wish) = desk.session(&lease).await?;
    if session.ended.is_some() {
        // Nothing is there but that it is remembered.
        desk.note(&who.name, back(wish), None).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    desk.over(&who.name, &lease, &mut session, wish, Why::DeleteRequested).await?;
    drop(alone);
    // Its box is about to come down. If it does not answer, the lease goes on for a while.
    desk.settled(&lease).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn extend(
    Caller(who): Caller,
    State(desk): State<Shared>,
    Path(id): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome {
    let lease = lease(&who, &id)?;
    desk.owns(&who, &lease)?;
    let Extend { requested_additional_duration: more } = body(bytes)?;
    if more == 0 {
        let message = "requestedAdditionalDuration: expected at least 1 s";
        return Err(Error::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message));
    }
    let _alone = desk.sessions.changing.lock().await;
    let (mut session, wish) = desk.session(&lease).await?;
    let now = time_of_day_ms();
    let not_allowed = |why: String| {
        Error::new(StatusCode::CONFLICT, "QUALITY_ON_DEMAND.SESSION_EXTENSION_NOT_ALLOWED", why)
    };
    if !session.is_available(now) {
        return Err(not_allowed("the session is UNAVAILABLE: expected AVAILABLE".into()));
    }
    let Some(profile) = desk.profiles.iter().find(|profile| *profile.name == session.profile) else {
        return Err(not_allowed(format!("{} is no longer offered", session.profile)));
    };
    session.duration = session.duration.saturating_add(more).min(profile.longest_s()).max(session.duration);
    let request = Request { version: wish.version + 1, ttl_ms: session.left_ms(now), ..wish };
    match desk.note(&who.name, request, Some(&session)).await? {
        Verdict::Granted { .. } => {
            desk.nudge(&session);
            Ok(reply(StatusCode::OK, &session.info(&id, now)))
        }
        Verdict::Refused(why) => Err(not_allowed(why.to_string())),
    }
}

async fn retrieve(
    Caller(who): Caller,
    State(desk): State<Shared>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome {
    let Retrieve { device } = body(bytes)?;
    let (device, now) = (device.ok_or_else(session::missing)?.one()?, time_of_day_ms());
    let own = desk.sessions_of(owner(&who)).await?;
    let found = own.iter().filter(|(_, session)| session.flow.device == device);
    let found: Vec<_> = found.map(|(id, session)| session.info(id, now)).collect();
    Ok(reply(StatusCode::OK, &found))
}

/// Ends the sessions whose time is over by the clock that they were told, and of those whose bandwidth is called back as
/// many as no longer fit: half a session is none.
pub(super) async fn watch(desk: Arc<Desk>) {
    loop {
        let (to, mut told) = mpsc::channel(BEHIND);
        if desk.keeper.take(Job::Listen(Listener { owner: None, to })).is_err() {
            // It is busy, or has ended and this task with it.
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        }
        while let Ok(next) = desk.end_what_is_over().await {
            let wait = tokio::time::sleep(next);
            tokio::pin!(wait);
            let is_behind = loop {
                tokio::select! {
                    heard = told.recv() => match heard {
                        Some(Told::CalledBack { .. }) => {
                            // One look is for all of them: the book knows which are called back.
                            while told.try_recv().is_ok() {}
                            break false;
                        }
                        Some(_) => {}
                        None => break true,
                    },
                    () = desk.sessions.news.notified() => break false,
                    () = &mut wait => break false,
                }
            };
            if is_behind {
                break;
            }
        }
    }
}

impl Desk {
    /// Ends the sessions whose time is over, and those that are called back. Which those are the book says: whoever hears of it
    /// may be behind, or come later. Says how long none ends.
    async fn end_what_is_over(self: &Arc<Self>) -> Result<Duration, Error> {
        let _alone = self.sessions.changing.lock().await;
        let look = self.keeper.look(|kept| {
            let book = kept.journal.book();
            let of = |(lease, text): (&str, &str)| {
                (Name::from(lease), Box::from(text), book.is_called_back(lease))
            };
            book.notes("").map(of).collect::<Vec<(Name, Box<str>, bool)>>()
        });
        let (all, now, mut next) = (look.await?, time_of_day_ms(), LOOK);
        let known: HashSet<&Name> = all.iter().map(|(lease, ..)| lease).collect();
        self.sessions.coming_down().retain(|lease, _| known.contains(lease));
        self.sessions.named().retain(|lease, _| known.contains(lease));
        for (lease, text, is_called_back) in all {
            let Some(session) = Session::of(&text) else { continue };
            let wait = match session.ended {
                Some(_) => self.come_down(&lease, &session).await?,
                None => self.end_if_over(&lease, &session, now, is_called_back).await?,
            };
            next = wait.map_or(next, |wait| next.min(wait));
        }
        Ok(next)
    }

    /// Gives the lease of a session back that is over, if its box has had the time to come down: how long that still takes.
    async fn come_down(&self, lease: &Name, session: &Session) -> Result<Option<Duration>, Error> {
        let name = lease.clone();
        let wish = self.keeper.look(move |kept| kept.journal.book().wish(&name)).await?;
        let Some(wish) = wish.filter(|wish| wish.rate > 0) else { return Ok(None) };
        let now = Instant::now();
        let until = *self.sessions.coming_down().entry(lease.clone()).or_insert(now + edges::COMES_DOWN);
        if now < until {
            return Ok(Some(until - now));
        }
        self.release(session, wish).await?;
        Ok(None)
    }

    /// Ends a session if its time is over, if it is called back and no longer fits, or if its box has not taken it or has it no
    /// longer: how long that is not so.
    async fn end_if_over(
        self: &Arc<Self>,
        lease: &Name,
        session: &Session,
        now_ms: u64,
        is_called_back: bool,
    ) -> Result<Option<Duration>, Error> {
        let left = |session: &Session| Duration::from_millis(session.ends_ms() - now_ms);
        let not_taken = session.edge.is_some() && !session.taken;
        let takes_until = session.began_ms + edges::HOLDS.as_millis() as u64;
        let silent_for = match &session.edge {
            Some(_) if session.taken => {
                self.sessions.named().entry(lease.clone()).or_insert_with(Instant::now).elapsed()
            }
            _ => Duration::ZERO,
        };
        let mut why = Why::DurationExpired;
        if session.is_available(now_ms) {
            let is_late = not_taken && now_ms >= takes_until || silent_for >= edges::SILENT;
            if !is_called_back && !is_late {
                let wait = if not_taken {
                    Duration::from_millis(takes_until - now_ms)
                } else {
                    edges::SILENT - silent_for
                };
                return Ok(Some(left(session).min(wait).min(LOOK)));
            }
            if !is_late {
                // Others may have ended since: then there is room for all of it.
                let (session, wish) = self.session(lease).await?;
                let ttl_ms = session.left_ms(now_ms);
                let again = Request { version: wish.version + 1, ttl_ms, ..wish };
                if let Verdict::Granted { .. } = self.note(BROKER, again, Some(&session)).await? {
                    return Ok(Some(left(&session)));
                }
            }
            why = Why::NetworkTerminated;
        }
        let (mut session, wish) = self.session(lease).await?;
        self.over(BROKER, lease, &mut session, wish, why).await?;
        // Its box is waited for from now on.
        self.come_down(lease, &session).await
    }
}

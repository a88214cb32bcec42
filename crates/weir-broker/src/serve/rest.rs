//! The REST door. `openapi.json` beside this file describes it; a test holds both to each other.

use super::config::{Edge, Neighbour, Profile};
use super::keeper::{BEHIND, Busy, Keeper, Kept, Listener};
use super::log::Log;
use super::openapi;
use super::qod::{Notifier, Sessions};
use super::stream::Stream;
use super::who::{LEASES_PER_REQUEST, Limits, REQUESTS_PER_SECOND, Role, Token, Who, of_token};
use crate::book::{
    Command, Event, Fault, Held, LEASES_PER_OWNER, MAX_VERSION, Name, Refusal, Request, Shown, Verdict,
    is_name,
};
use crate::journal::Given;
use crate::wire::{
    Answer, Answers, AuditLines, Capacity, LeaseNow, LeasesNow, Problem, ResourceNow, ResourcesNow, Wish,
    Wishes,
};
use crate::{MAX_RATE, MILLISECOND};
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a request's body at most.
pub const MESSAGE_BYTES: usize = 64 << 10;
/// Entries of one answer at most.
const PAGE: usize = 1_000;

/// What all requests share.
pub(super) struct Desk {
    pub keeper: Keeper,
    pub tokens: Vec<Token>,
    pub neighbours: Vec<Neighbour>,
    pub profiles: Vec<Profile>,
    pub edges: Vec<Edge>,
    pub notifier: Notifier,
    pub sessions: Sessions,
    pub limits: Limits,
    pub log: Log,
}

/// Who is at the other end of a connection, as far as the connection says it.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    /// Whoever may open the Unix socket.
    Local,
    /// An edge with its certificate.
    Edge(Name),
    /// Anybody. The address is for the log.
    Nobody(Name),
}

pub(super) type Shared = Arc<Desk>;
/// An answer, or why there is none.
type Outcome<T> = Result<T, Refused>;

/// What is wrong, with its status.
pub(super) struct Refused(pub StatusCode, pub Problem);

impl Refused {
    fn new(status: StatusCode, error: impl Into<String>, help: impl Into<String>) -> Self {
        Refused(status, Problem { error: error.into(), help: help.into() })
    }
}

impl From<Busy> for Refused {
    fn from(busy: Busy) -> Self {
        let error = match busy {
            Busy::Full => "too many requests wait",
            Busy::Stopped => "the broker is stopping",
        };
        Refused::new(StatusCode::SERVICE_UNAVAILABLE, error, "send the same request again in a second")
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        reply(self.0, &self.1)
    }
}

pub(super) fn reply(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("names, numbers and their lists have a form in JSON");
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// All paths.
pub(super) fn router(desk: Shared) -> Router {
    Router::new()
        .route("/v1/leases", get(leases))
        .route("/v1/leases/{owner}/{name}", put(ask).get(lease).delete(give_back))
        .route("/v1/batch", post(batch))
        .route("/v1/resources", get(resources))
        .route("/v1/resources/{name}", put(provide))
        .route("/v1/events", get(events))
        .route("/v1/sessions/{edge}", put(super::qod::in_effect))
        .route("/v1/audit", get(audit))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], openapi::TEXT)))
        .merge(super::qod::router())
        .fallback(async || nothing_there())
        .method_not_allowed_fallback(async || {
            let help = "/openapi.json lists the methods of each path";
            Refused::new(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method", help)
        })
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES))
        .with_state(desk)
}

fn nothing_there() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "there is no such path", "/openapi.json lists all paths")
}

impl FromRequestParts<Shared> for Who {
    type Rejection = Refused;

    /// A certificate says who it is, then a token, then the socket itself.
    async fn from_request_parts(parts: &mut Parts, desk: &Shared) -> Outcome<Self> {
        let Ok(Extension(peer)) = Extension::<Peer>::from_request_parts(parts, desk).await else {
            let help = "this is a defect of the broker";
            return Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, "the connection has no peer", help));
        };
        let given = parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or(""));
        let token = given.map(|value| value.strip_prefix("Bearer ").unwrap_or(""));
        let who = desk.who(&peer, token).map_err(|why| {
            let from = match &peer {
                Peer::Local => "the socket",
                Peer::Edge(name) | Peer::Nobody(name) => name,
            };
            desk.log.refused(&format!("{from}: {} {}: {why}", parts.method, parts.uri.path()));
            let help = "send `Authorization: Bearer TOKEN`, or come by TLS with the certificate of an edge";
            Refused::new(StatusCode::UNAUTHORIZED, why, help)
        })?;
        if !desk.limits.allow(&who.name, Instant::now()) {
            return Err(desk.too_much(&who));
        }
        Ok(who)
    }
}

impl Desk {
    /// Who comes with this token, or with none.
    pub fn who(&self, peer: &Peer, token: Option<&str>) -> Result<Who, String> {
        match (peer, token) {
            (Peer::Edge(name), None) => Ok(Who::edge(name)),
            (Peer::Edge(_), Some(_)) => Err("there is a certificate and a token: send one of them".into()),
            (Peer::Local, None) => Ok(Who::local()),
            (Peer::Local | Peer::Nobody(_), Some(token)) => {
                of_token(&self.tokens, token).map_err(str::to_owned)
            }
            (Peer::Nobody(_), None) => Err("there is no token and no certificate".into()),
        }
    }

    fn too_much(&self, who: &Who) -> Refused {
        let error = format!(
            "{} sends more than {REQUESTS_PER_SECOND} requests or {} leases a second",
            who.name,
            REQUESTS_PER_SECOND as usize * LEASES_PER_REQUEST
        );
        self.log.refused(&error);
        let help = "send less; POST /v1/batch has many leases in one request";
        Refused::new(StatusCode::TOO_MANY_REQUESTS, error, help)
    }

    /// Whether `who` may do what needs `role`.
    fn allows(&self, who: &Who, role: Role) -> Outcome<()> {
        if who.role >= role {
            return Ok(());
        }
        let error = format!("{} has the role {}: expected {}", who.name, who.role.word(), role.word());
        self.log.refused(&error);
        Err(Refused::new(StatusCode::FORBIDDEN, error, "ask the operator for a token with that role"))
    }

    /// Whether `who` may ask for leases of `owner`.
    pub fn owns(&self, who: &Who, lease: &str) -> Outcome<()> {
        self.allows(who, Role::Operate)?;
        let owner = lease.split('/').next().unwrap_or("");
        if who.speaks_for(owner) {
            return Ok(());
        }
        let own = who.owner.as_deref().unwrap_or("");
        // In a batch nobody has looked at the name yet.
        let lease: String = lease.escape_debug().take(100).collect();
        let error = format!("{} does not own {lease}", who.name);
        self.log.refused(&error);
        Err(Refused::new(StatusCode::FORBIDDEN, error, format!("its leases are named {own}/NAME")))
    }

    /// Whether a neighbour's request uses the resource that says how much it may have.
    pub fn goes_through(&self, lease: &str, path: &[Name]) -> Outcome<()> {
        let owner = lease.split('/').next().unwrap_or("");
        let neighbour = self.neighbours.iter().find(|neighbour| *neighbour.domain == *owner);
        let Some(Neighbour { domain, through }) = neighbour.filter(|n| !path.contains(&n.through)) else {
            return Ok(());
        };
        let error = format!("{domain} has what it leases by {through}, which is not in the path");
        self.log.refused(&error);
        let help =
            format!("add \"{through}\" to `path` of the [[agreement]] in the file of the broker of {domain}");
        Err(Refused::new(StatusCode::FORBIDDEN, error, help))
    }

    /// The answers to `requests`, in their order: none yet where a neighbour is asked. What is no request is not
    /// written down, so that nobody fills a disk with it.
    pub async fn decide(&self, who: &Who, requests: Vec<Request>) -> Result<Vec<Result<Answer, Name>>, Busy> {
        let fault = |request: &Request| request.check().err();
        let given = requests.iter().filter(|request| fault(request).is_none()).cloned();
        let given = given.map(|request| Given { who: who.name.clone(), command: Command::Ask(request) });
        let events = self.keeper.commit(given.collect()).await?;
        let mut place = 0;
        let answer = |request: Request| {
            let verdict = match fault(&request) {
                Some(field) => {
                    self.log.refused(&format!("{}: {field}", who.name));
                    Some(Verdict::Refused(Refusal::Bad { field }))
                }
                None => {
                    place += 1;
                    verdict(&events, place - 1, &request)
                }
            };
            let Request { lease, version, .. } = request;
            verdict.map(|verdict| Answer::new(lease.clone(), version, verdict)).ok_or(lease)
        };
        Ok(requests.into_iter().map(answer).collect())
    }
}

/// What was decided about `request`, the command at `place`.
pub(super) fn verdict(events: &[(usize, Event)], place: usize, request: &Request) -> Option<Verdict> {
    events.iter().find_map(|(at, event)| match event {
        Event::Answer { lease, version, verdict }
            if *at == place && *lease == request.lease && *version == request.version =>
        {
            Some(verdict.clone())
        }
        _ => None,
    })
}

/// The status of an answer about one lease.
fn status(verdict: &Verdict) -> StatusCode {
    match verdict {
        Verdict::Granted { .. } => StatusCode::OK,
        Verdict::Refused(Refusal::Bad { .. }) => StatusCode::BAD_REQUEST,
        Verdict::Refused(_) => StatusCode::CONFLICT,
    }
}

/// The body as JSON, with the place of what is wrong.
pub(super) fn body<T: DeserializeOwned>(bytes: Result<Bytes, BytesRejection>) -> Outcome<T> {
    let bytes = bytes.map_err(|e| {
        let help = format!("a request has at most {MESSAGE_BYTES} bytes: send several");
        Refused::new(e.status(), e.body_text(), help)
    })?;
    serde_json::from_slice(&bytes).map_err(|e| {
        let help = "/openapi.json has an example of this request; rates are whole numbers of bit/s";
        Refused::new(StatusCode::BAD_REQUEST, format!("the body: {e}"), help)
    })
}

fn lease_name((owner, name): &(String, String)) -> Outcome<Name> {
    let lease = format!("{owner}/{name}");
    if is_name(&lease) {
        return Ok(lease.into());
    }
    Err(Refused::new(StatusCode::BAD_REQUEST, Fault::Lease.to_string(), "take a shorter or plainer name"))
}

async fn ask(
    who: Who,
    State(desk): State<Shared>,
    Path(path): Path<(String, String)>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome<Response> {
    let lease = lease_name(&path)?;
    desk.owns(&who, &lease)?;
    let wish: Wish = body(bytes)?;
    desk.goes_through(&lease, &wish.path)?;
    one(&desk, &who, wish.request(lease)).await
}

/// Whoever asks for one lease waits for its answer.
async fn one(desk: &Desk, who: &Who, request: Request) -> Outcome<Response> {
    let version = request.version;
    let mut decided = desk.decide(who, vec![request]).await?;
    let answer = match decided.pop().expect("one was asked") {
        Ok(answer) => answer,
        Err(lease) => Answer::new(lease.clone(), version, desk.keeper.decided(lease, version).await?),
    };
    Ok(reply(status(&answer.verdict), &answer))
}

async fn give_back(
    who: Who,
    State(desk): State<Shared>,
    Path(path): Path<(String, String)>,
) -> Outcome<Response> {
    let lease = lease_name(&path)?;
    desk.owns(&who, &lease)?;
    let wish = desk.keeper.look(move |kept| kept.journal.book().wish(&lease)).await?;
    let Some(wish) = wish else { return Err(no_lease()) };
    one(&desk, &who, Request { version: (wish.version + 1).min(MAX_VERSION), rate: 0, min: 0, ..wish }).await
}

fn no_lease() -> Refused {
    let help = "GET /v1/leases lists what there is; what has ended is forgotten";
    Refused::new(StatusCode::NOT_FOUND, "there is no such lease", help)
}

async fn batch(
    who: Who,
    State(desk): State<Shared>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome<Response> {
    let wishes: Wishes = body(bytes)?;
    if !desk.limits.allow_batch(&who.name, wishes.leases.len(), Instant::now()) {
        return Err(desk.too_much(&who));
    }
    for entry in &wishes.leases {
        desk.owns(&who, &entry.lease)?;
        desk.goes_through(&entry.lease, &entry.path)?;
    }
    let requests = wishes.leases.into_iter().map(Request::from).collect();
    let (mut leases, mut waiting) = (Vec::new(), Vec::new());
    for decided in desk.decide(&who, requests).await? {
        match decided {
            Ok(answer) => leases.push(answer),
            Err(lease) => waiting.push(lease),
        }
    }
    Ok(reply(StatusCode::OK, &Answers { leases, waiting }))
}

fn shown(kept: &Kept, held: &Held<'_>) -> Option<LeaseNow> {
    let wish = kept.journal.book().wish(held.lease)?;
    let free_in = held.until.saturating_sub(kept.clock.now());
    Some(LeaseNow {
        lease: wish.lease,
        version: held.version,
        path: wish.path,
        asked_bps: wish.rate,
        granted_bps: held.granted,
        free_in_ms: free_in / MILLISECOND,
    })
}

async fn lease(
    who: Who,
    State(desk): State<Shared>,
    Path(path): Path<(String, String)>,
) -> Outcome<Response> {
    let lease = lease_name(&path)?;
    if !who.speaks_for(&path.0) {
        return Err(no_lease());
    }
    let now = desk.keeper.look(move |kept| shown(kept, &kept.journal.book().lease(&lease)?)).await?;
    now.map(|now| reply(StatusCode::OK, &now)).ok_or_else(no_lease)
}

/// Where a part of a list begins, and whose it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    #[serde(default)]
    from: u64,
    owner: Option<Name>,
}

async fn leases(who: Who, State(desk): State<Shared>, Query(part): Query<Part>) -> Outcome<Response> {
    let owner = who.owner.clone().or(part.owner);
    let found = desk.keeper.look(move |kept| {
        let prefix = owner.map(|owner| format!("{owner}/"));
        let (mut leases, mut next) = (Vec::new(), None);
        for (place, held) in kept.journal.book().leases_from(usize::try_from(part.from).unwrap_or(usize::MAX))
        {
            if leases.len() == PAGE {
                next = Some(place as u64);
                break;
            }
            if prefix.as_ref().is_none_or(|prefix| held.lease.starts_with(prefix.as_str())) {
                leases.extend(shown(kept, &held));
            }
        }
        LeasesNow { leases, next }
    });
    Ok(reply(StatusCode::OK, &found.await?))
}

async fn resources(_: Who, State(desk): State<Shared>) -> Outcome<Response> {
    let found = desk.keeper.look(|kept| {
        let book = kept.journal.book();
        let now = |Shown { resource, capacity, taken }: Shown<'_>| ResourceNow {
            resource: resource.into(),
            capacity_bps: capacity,
            taken_bps: taken,
        };
        ResourcesNow { domain: book.domain().into(), resources: book.resources().map(now).collect() }
    });
    Ok(reply(StatusCode::OK, &found.await?))
}

async fn provide(
    who: Who,
    State(desk): State<Shared>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Outcome<Response> {
    desk.allows(&who, Role::Admin)?;
    let Capacity { capacity_bps: capacity } = body(bytes)?;
    if capacity > MAX_RATE {
        return Err(Refused::new(
            StatusCode::BAD_REQUEST,
            Fault::Rate.to_string(),
            "name a smaller capacity",
        ));
    }
    let wanted = name.clone();
    if !desk.keeper.look(move |kept| kept.journal.book().on(&wanted).is_some()).await? {
        let help = "GET /v1/resources lists them; a new one goes into the file of the broker";
        return Err(Refused::new(StatusCode::NOT_FOUND, format!("there is no resource {name}"), help));
    }
    let wanted = name.clone();
    if desk.keeper.look(move |kept| kept.journal.book().agreements().any(|r| *r.resource == *wanted)).await? {
        let error = format!("{name} is what a neighbour leases to this domain");
        let help = "set `ceiling` of its [[agreement]] in the file of the broker, and start it again";
        return Err(Refused::new(StatusCode::FORBIDDEN, error, help));
    }
    let resource: Name = name.into();
    let command = Command::Provide { resource: resource.clone(), capacity };
    desk.keeper.commit(vec![Given { who: who.name, command }]).await?;
    let now = desk.keeper.look(move |kept| {
        let taken = kept.journal.book().on(&resource).map_or(0, |shown| shown.taken);
        ResourceNow { resource, capacity_bps: capacity, taken_bps: taken }
    });
    Ok(reply(StatusCode::OK, &now.await?))
}

async fn events(who: Who, State(desk): State<Shared>) -> Outcome<Response> {
    let (to, from) = tokio::sync::mpsc::channel(BEHIND);
    desk.keeper.take(super::keeper::Job::Listen(Listener { owner: who.owner, to }))?;
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, Body::new(Stream::new(from))).into_response())
}

async fn audit(who: Who, State(desk): State<Shared>, Query(part): Query<Part>) -> Outcome<Response> {
    desk.allows(&who, Role::Admin)?;
    let found = desk.keeper.look(move |kept| {
        let lines = kept.journal.audit(part.from, PAGE)?;
        let chain = kept.journal.chain();
        Ok::<_, crate::journal::JournalError>(AuditLines {
            lines,
            last: chain.line,
            chain: chain.digest.clone(),
        })
    });
    match found.await? {
        Ok(lines) => Ok(reply(StatusCode::OK, &lines)),
        Err(e) => {
            let help = "look at the disk of the broker";
            Err(Refused::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string(), help))
        }
    }
}

async fn metrics(_: Who, State(desk): State<Shared>) -> Outcome<Response> {
    let text = desk.keeper.look(super::metrics::text).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

const _: () = assert!(LEASES_PER_OWNER as usize <= PAGE, "an owner's leases fit into one answer");

//! What the doors share: the way to the book, who may do what, and how a request is refused.

use super::config::{Edge, Neighbour, Profile};
use super::keeper::{Busy, Keeper};
use super::log::Log;
use super::qod::{Notifier, Sessions};
use super::who::{LEASES_PER_REQUEST, Limits, REQUESTS_PER_SECOND, Role, Token, Who, of_token};
use crate::book::{Command, Event, Name, Refusal, Request, Verdict};
use crate::journal::Given;
use crate::wire::{Answer, Problem};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::rejection::BytesRejection;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a request's body at most.
pub const MESSAGE_BYTES: usize = 64 << 10;

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
pub(super) type Outcome<T> = Result<T, Refused>;

/// What is wrong, with its status.
pub(super) struct Refused(pub StatusCode, pub Problem);

impl Refused {
    pub(super) fn new(status: StatusCode, error: impl Into<String>, help: impl Into<String>) -> Self {
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

    pub(super) fn too_much(&self, who: &Who) -> Refused {
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
    pub(super) fn allows(&self, who: &Who, role: Role) -> Outcome<()> {
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

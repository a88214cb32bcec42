//! The REST door. `openapi.json` beside this file describes it; a test holds both to each other.

use super::desk::{Desk, MESSAGE_BYTES, Outcome, Refused, Shared, body, reply};
use super::keeper::{BEHIND, Kept, Listener};
use super::openapi;
use super::stream::Stream;
use super::who::{Role, Who};
use crate::MAX_RATE;
use crate::MILLISECOND;
use crate::book::{
    Command, Fault, Held, LEASES_PER_OWNER, MAX_VERSION, Name, Refusal, Request, Shown, Verdict, is_name,
};
use crate::journal::Given;
use crate::wire::{
    Answer, Answers, AuditLines, Capacity, LeaseNow, LeasesNow, ResourceNow, ResourcesNow, Wish, Wishes,
};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::Deserialize;
use std::time::Instant;

/// Entries of one answer at most.
const PAGE: usize = 1_000;

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

fn status(verdict: &Verdict) -> StatusCode {
    match verdict {
        Verdict::Granted { .. } => StatusCode::OK,
        Verdict::Refused(Refusal::Bad { .. }) => StatusCode::BAD_REQUEST,
        Verdict::Refused(_) => StatusCode::CONFLICT,
    }
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

//! A client beside a broker that answers as a test says.

use super::*;
use crate::serve::tests::{Folder, PATIENCE, no_events, serve, within};
use crate::wire::{InEffect, Problem};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::{get, put};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::time::timeout;
use weir_seed::{in_time, timed};

/// Sessions that there are, or why the broker does not say.
type Told = Result<Vec<Name>, String>;

/// What it is told of sessions.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Told>>>);

impl Shaper for Heard {
    fn shape(&mut self, _: &str, _: Rate, _: State, _: Option<&Refusal>) {}
    fn broker(&mut self, _: Result<(), &HttpError>) {}
    fn sessions(&mut self, all: &[SessionNow]) -> Vec<Name> {
        let names: Vec<Name> = all.iter().map(|session| session.session.clone()).collect();
        self.0.lock().expect("no panic").push(Ok(names.clone()));
        names
    }
    fn no_sessions(&mut self, why: &HttpError) {
        self.0.lock().expect("no panic").push(Err(why.to_string()));
    }
}

/// The answer to a question that is answered with this status: one session, which is had for 6 s.
fn answer(status: u16) -> (StatusCode, String) {
    let text = |told: Result<String, _>| told.expect("it has a form in JSON");
    if status == 200 {
        let (session, path): (Name, Vec<Name>) = ("a".into(), vec!["wan0:rt".into()]);
        let (device, server) = (Vec::new(), Vec::new());
        let now = SessionNow { session, path, rate_bps: 1, left_ms: 60_000, device, server };
        let sessions = SessionsNow { holds_ms: 6_000, sessions: vec![now] };
        return (StatusCode::OK, text(serde_json::to_string(&sessions)));
    }
    let problem = Problem { error: "not now".into(), help: "ask again".into() };
    (StatusCode::from_u16(status).expect("a status"), text(serde_json::to_string(&problem)))
}

/// A broker that is busy, or has another opinion of who asks, is asked again soon: the session goes on, and people hear of
/// it once, until the broker says again which there are.
#[test]
fn sessions_outlast_a_broker_that_does_not_answer_for_them() {
    timed(busy);
}

fn busy() {
    const STATUSES: [u16; 6] = [200, 200, 503, 403, 200, 503];
    let folder = Folder::new("client-busy");
    let heard = Heard::default();
    within(async {
        let (to, mut asked) = mpsc::unbounded_channel();
        let count = Arc::new(Mutex::new(STATUSES.into_iter()));
        let sessions = async move |bytes: Bytes| {
            let InEffect { sessions } = serde_json::from_slice(&bytes).expect("what is in effect");
            // The test may be over.
            let _ = to.send(sessions);
            answer(count.lock().expect("no panic").next().unwrap_or(503))
        };
        let router = Router::new().route("/v1/events", get(no_events));
        serve(&folder, router.route("/v1/sessions/e0", put(sessions)));
        let (broker, sessions) = (Broker::Rest(folder.unix()), Some("e0".into()));
        let edge = Edge { broker, token: None, leases: Vec::new(), sessions, seed: 1 };
        let client = Client::start(edge, heard.clone()).expect("it starts");
        for n in 0..=STATUSES.len() {
            let in_effect =
                timeout(PATIENCE, asked.recv()).await.expect("it asks again").expect("it is there");
            let expected: &[Name] = if n == 0 { &[] } else { &["a".into()] };
            in_time!(in_effect == expected, "question {n}: {in_effect:?}");
        }
        tokio::task::spawn_blocking(move || client.stop()).await.expect("it does not panic");
    });
    let there = || -> Told { Ok(vec!["a".into()]) };
    let heard = heard.0.lock().expect("no panic");
    let [first, second, no, again, last] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!([first, second, again], [&there(); 3]);
    for said in [no, last] {
        assert!(said.as_ref().is_err_and(|why| why.contains("not now")), "{said:?}");
    }
}

//! Applications at their door.

use super::super::Broker;
use super::super::config::{Config, Profile};
use super::super::tests::{Folder, PATIENCE, by_http, call, connect, token, within};
use super::super::who::Role;
use crate::http::Connection;
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use weir_text::{BitRate, Time};

mod answers;
mod boxes;
mod life;
mod sinks;

const SESSIONS: &str = "/quality-on-demand/v1/sessions";

/// A broker whose profile `QOS_E` is 400 of the 1,000 bit/s of `wan:rt`, for an hour at most.
fn offering(folder: &Folder) -> Config {
    let profile = Profile {
        name: "QOS_E".into(),
        path: vec!["wan:rt".into()],
        rate: BitRate::from_bps(400),
        longest: Time::from_secs(3_600),
    };
    Config { profiles: vec![profile], ..folder.config() }
}

/// A broker with a box `e0` for the devices 203.0.113.0/24 and 2001:db8:17::/56.
fn with_box(folder: &Folder) -> Config {
    let text = "domain = \"d\"\nstore = \"d\"\n[[edge]]\nname = \"e0\"\ndevices = [\"203.0.113.0/24\", \"2001:db8:17::/56\"]\n";
    let read = Config::read(text, std::path::Path::new("")).expect("it is usable");
    Config { edges: read.edges, ..offering(folder) }
}

/// The box says which sessions it has in effect: which it is to have.
async fn says(to: &mut Connection, in_effect: &[&Value]) -> Value {
    let ids: Vec<&Value> = in_effect.iter().map(|session| &session["sessionId"]).collect();
    let (status, answer) = call(to, Method::PUT, "/v1/sessions/e0", json!({"sessions": ids})).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// What an application asks for: another device for each number.
fn asked(device: u8, duration: u64) -> Value {
    json!({
        "device": {"ipv4Address": {"publicAddress": format!("203.0.113.{device}"), "publicPort": 5000}},
        "applicationServer": {"ipv4Address": "198.51.100.0/24"},
        "applicationServerPorts": {"ranges": [{"from": 5010, "to": 5020}]},
        "qosProfile": "QOS_E",
        "duration": duration
    })
}

fn at(session: &Value) -> String {
    format!("{SESSIONS}/{}", session["sessionId"].as_str().expect("it has an id"))
}

/// A broker, and the way to it by its socket.
async fn start(folder: &Folder, config: Config) -> (Broker, Connection) {
    let broker = Broker::start(config).await.expect("it starts");
    (broker, connect(&folder.unix(), None).await)
}

/// Begins a session: as it is shown.
async fn begins(to: &mut Connection, body: Value) -> Value {
    let (status, session) = call(to, Method::POST, SESSIONS, body).await;
    assert_eq!(status, 201, "{session}");
    session
}

async fn shown(to: &mut Connection, session: &Value) -> Value {
    let (status, now) = call(to, Method::GET, &at(session), "").await;
    assert_eq!(status, 200, "{now}");
    now
}

async fn ends(to: &mut Connection, session: &Value) {
    let (status, answer) = call(to, Method::DELETE, &at(session), "").await;
    assert_eq!(status, 204, "{answer}");
}

/// Ends a session beside the test, because its box has to come down first.
fn deletes(folder: &Folder, session: &Value) -> JoinHandle<()> {
    let (target, session) = (folder.unix(), session.clone());
    tokio::spawn(async move { ends(&mut connect(&target, None).await, &session).await })
}

/// Is refused with this status and code: the message.
async fn refuses(
    to: &mut Connection,
    method: Method,
    path: &str,
    body: impl ToString,
    (status, code): (u16, &str),
) -> String {
    let (said, answer) = call(to, method, path, body).await;
    assert_eq!((said, answer["code"].as_str()), (status, Some(code)), "{path}: {answer}");
    assert_eq!(answer["status"], json!(status), "{answer}");
    answer["message"].as_str().expect("it says why").to_owned()
}

/// Sets what there is of the resource.
async fn has(to: &mut Connection, capacity_bps: u64) {
    let set = json!({"capacity_bps": capacity_bps});
    assert_eq!(call(to, Method::PUT, "/v1/resources/wan:rt", set).await.0, 200);
}

async fn taken(to: &mut Connection) -> u64 {
    let (_, now) = call(to, Method::GET, "/v1/resources", "").await;
    now["resources"][0]["taken_bps"].as_u64().expect("a number")
}

/// Waits until so much of the resource is taken.
async fn takes(to: &mut Connection, bps: u64, within: Duration) {
    let since = Instant::now();
    while taken(to).await != bps {
        assert!(since.elapsed() < within, "{} bit/s are taken, not {bps}", taken(to).await);
        sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a session stands so.
async fn becomes(to: &mut Connection, session: &Value, status: &str, info: &str) -> Value {
    let since = Instant::now();
    loop {
        let now = shown(to, session).await;
        if (now["qosStatus"].as_str(), now["statusInfo"].as_str()) == (Some(status), Some(info)) {
            return now;
        }
        assert!(since.elapsed() < Duration::from_secs(8), "{now}");
        sleep(Duration::from_millis(20)).await;
    }
}

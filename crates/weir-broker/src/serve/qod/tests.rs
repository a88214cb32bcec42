//! Applications at their door.

use super::super::Broker;
use super::super::config::{Config, Profile, Sinks, Token};
use super::super::openapi::tests::{describes, reads_and_writes};
use super::super::tests::{Authority, Folder, PATIENCE, call, connect, within};
use super::super::who::{Role, new_token};
use super::session::{Create, Extend, Retrieve, SessionInfo};
use super::{ErrorInfo, TEXT};
use crate::http::{Connection, Target};
use axum::body::Body;
use hyper::Method;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::SanType;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use weir_text::{BitRate, Time};

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

async fn taken(to: &mut Connection) -> u64 {
    let (_, now) = call(to, Method::GET, "/v1/resources", "").await;
    now["resources"][0]["taken_bps"].as_u64().expect("a number")
}

/// Waits until a session stands so.
async fn becomes(to: &mut Connection, session: &Value, status: &str, info: &str) -> Value {
    let since = Instant::now();
    loop {
        let (_, now) = call(to, Method::GET, &at(session), "").await;
        if (now["qosStatus"].as_str(), now["statusInfo"].as_str()) == (Some(status), Some(info)) {
            return now;
        }
        assert!(since.elapsed() < Duration::from_secs(8), "{now}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_session_is_a_lease_that_is_begun_shown_extended_and_ended() {
    let folder = Folder::new("qod");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (status, first) = call(&mut to, Method::POST, SESSIONS, asked(1, 600)).await;
        assert_eq!(
            (status, &first["qosStatus"], &first["duration"]),
            (201, &json!("AVAILABLE"), &json!(600))
        );
        let mut shown = asked(1, 600);
        for key in ["sessionId", "startedAt", "expiresAt", "qosStatus"] {
            shown[key] = first[key].clone();
        }
        assert_eq!(first, shown, "it says what was asked, and no more");
        let id = first["sessionId"].as_str().expect("it has one");
        let (_, lease) = call(&mut to, Method::GET, &format!("/v1/leases/socket/{id}"), "").await;
        assert_eq!((&lease["granted_bps"], &lease["path"]), (&json!(400), &json!(["wan:rt"])), "{lease}");
        assert_eq!(call(&mut to, Method::GET, &at(&first), "").await, (200, first.clone()));

        let (status, other) = call(&mut to, Method::POST, SESSIONS, asked(1, 60)).await;
        assert_eq!((status, &other["code"]), (409, &json!("CONFLICT")), "{other}");
        assert_eq!(other["message"], json!(format!("session {id} is for the same traffic: DELETE it first")));
        let (_, second) = call(&mut to, Method::POST, SESSIONS, asked(2, 60)).await;
        assert_eq!((&second["qosStatus"], taken(&mut to).await), (&json!("AVAILABLE"), 800));
        // There is no room for a third one.
        let (status, third) = call(&mut to, Method::POST, SESSIONS, asked(3, 60)).await;
        assert_eq!((status, &third["statusInfo"]), (201, &json!("NETWORK_TERMINATED")), "{third}");
        assert_eq!(call(&mut to, Method::GET, &at(&third), "").await, (200, third.clone()));

        let more = |seconds: u64| json!({"requestedAdditionalDuration": seconds});
        let (status, longer) = call(&mut to, Method::POST, &format!("{}/extend", at(&first)), more(60)).await;
        assert_eq!((status, &longer["duration"]), (200, &json!(660)), "{longer}");
        let (_, longest) = call(&mut to, Method::POST, &format!("{}/extend", at(&first)), more(9_999)).await;
        assert_eq!(longest["duration"], json!(3_600), "no longer than the profile allows");
        let (status, no) = call(&mut to, Method::POST, &format!("{}/extend", at(&third)), more(60)).await;
        let code = "QUALITY_ON_DEMAND.SESSION_EXTENSION_NOT_ALLOWED";
        assert_eq!((status, &no["code"]), (409, &json!(code)), "{no}");

        let of = |device: u8| json!({"device": asked(device, 1)["device"]}).to_string();
        let retrieve = "/quality-on-demand/v1/retrieve-sessions";
        let (status, found) = call(&mut to, Method::POST, retrieve, of(2)).await;
        assert_eq!((status, found), (200, json!([second])));
        assert_eq!(call(&mut to, Method::POST, retrieve, of(9)).await, (200, json!([])));

        assert_eq!(call(&mut to, Method::DELETE, &at(&second), "").await.0, 204);
        assert_eq!(call(&mut to, Method::DELETE, &at(&third), "").await.0, 204);
        let (status, gone) = call(&mut to, Method::GET, &at(&second), "").await;
        assert_eq!((status, &gone["code"]), (404, &json!("NOT_FOUND")), "{gone}");
        assert_eq!(taken(&mut to).await, 400);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_session_ends_by_itself_also_when_the_broker_starts_again() {
    let folder = Folder::new("qod-ends");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (_, short) = call(&mut to, Method::POST, SESSIONS, asked(1, 1)).await;
        let (_, longer) = call(&mut to, Method::POST, SESSIONS, asked(2, 5)).await;
        let ended = becomes(&mut to, &short, "UNAVAILABLE", "DURATION_EXPIRED").await;
        assert_eq!((&ended["duration"], &ended["expiresAt"]), (&json!(1), &short["expiresAt"]));
        while taken(&mut to).await != 400 {
            sleep(Duration::from_millis(20)).await;
        }
        broker.stop().await.expect("nothing failed");

        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        assert_eq!(call(&mut to, Method::GET, &at(&longer), "").await, (200, longer.clone()));
        assert_eq!(taken(&mut to).await, 400);
        // The book has given the lease its whole time again. The session ends when it was said to.
        becomes(&mut to, &longer, "UNAVAILABLE", "DURATION_EXPIRED").await;
        let since = Instant::now();
        while taken(&mut to).await != 0 {
            assert!(since.elapsed() < Duration::from_secs(1), "it is given back");
            sleep(Duration::from_millis(20)).await;
        }
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn of_sessions_that_are_called_back_as_many_end_as_must() {
    let folder = Folder::new("qod-back");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let mut both = Vec::new();
        for device in [1, 2] {
            both.push(call(&mut to, Method::POST, SESSIONS, asked(device, 600)).await.1);
        }
        for (capacity, left) in [(500, 400), (300, 0)] {
            let set = json!({"capacity_bps": capacity});
            assert_eq!(call(&mut to, Method::PUT, "/v1/resources/wan:rt", set).await.0, 200);
            let since = Instant::now();
            while taken(&mut to).await != left {
                assert!(since.elapsed() < Duration::from_secs(4), "{} are taken", taken(&mut to).await);
                sleep(Duration::from_millis(20)).await;
            }
            let mut available = 0;
            for session in &both {
                let (_, now) = call(&mut to, Method::GET, &at(session), "").await;
                if now["qosStatus"] == "AVAILABLE" {
                    available += 1;
                } else {
                    assert_eq!(now["statusInfo"], json!("NETWORK_TERMINATED"));
                }
            }
            assert_eq!(available * 400, left, "as many go on as fit");
        }
        broker.stop().await.expect("nothing failed");
    });
}

/// Whoever hears of what is called back is not there yet when a broker starts with less: the book says what is called back.
#[test]
fn sessions_that_are_called_back_at_the_start_end() {
    let folder = Folder::new("qod-back-start");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        for device in [1, 2] {
            let (_, session) = call(&mut to, Method::POST, SESSIONS, asked(device, 600)).await;
            assert_eq!(session["qosStatus"], "AVAILABLE", "{session}");
        }
        broker.stop().await.expect("nothing failed");
        let mut less = offering(&folder);
        less.resources[0].capacity = BitRate::from_bps(500);
        let broker = Broker::start(less).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let since = Instant::now();
        while taken(&mut to).await != 400 {
            assert!(since.elapsed() < Duration::from_secs(4), "{} are taken", taken(&mut to).await);
            sleep(Duration::from_millis(20)).await;
        }
        broker.stop().await.expect("nothing failed");
    });
}

/// A broker with a box `e0` for the devices 203.0.113.0/24 and 2001:db8:17::/56.
fn with_box(folder: &Folder) -> Config {
    let text = "domain = \"d\"\nstore = \"d\"\n[[edge]]\nname = \"e0\"\ndevices = [\"203.0.113.0/24\", \"2001:db8:17::/56\"]\n";
    let read = Config::read(text, std::path::Path::new("")).expect("it is usable");
    Config { edges: read.edges, ..offering(folder) }
}

async fn says(to: &mut Connection, in_effect: &[&Value]) -> Value {
    let ids: Vec<&Value> = in_effect.iter().map(|session| &session["sessionId"]).collect();
    let (status, answer) = call(to, Method::PUT, "/v1/sessions/e0", json!({"sessions": ids})).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

/// The box hears of a session at once, and what it says of it counts: it is there once the box has it, and free once the box
/// has it no longer.
#[test]
fn a_session_is_what_its_box_says() {
    let folder = Folder::new("qod-box");
    within(async {
        let broker = Broker::start(with_box(&folder)).await.expect("it starts");
        let (mut app, mut edge) = (connect(&folder.unix(), None).await, connect(&folder.unix(), None).await);
        let events = connect(&folder.unix(), None).await.listen("/v1/events").await;
        let mut events = events.expect("it listens");
        let nudge = Some("{\"event\":\"sessions\",\"edge\":\"e0\"}".to_owned());
        assert_eq!(says(&mut edge, &[]).await, json!({"holds_ms": 30_000, "sessions": []}));
        let (status, first) = call(&mut app, Method::POST, SESSIONS, asked(1, 600)).await;
        assert_eq!(
            (status, &first["qosStatus"], &first["startedAt"]),
            (201, &json!("REQUESTED"), &Value::Null)
        );
        while events.next(PATIENCE).await != nudge {}
        let told = says(&mut edge, &[]).await;
        let session = &told["sessions"][0];
        assert!((590_000..=600_000).contains(&session["left_ms"].as_u64().expect("a number")), "{told}");
        let ends = (&session["device"], &session["server"]);
        let device = json!([{"prefix": "203.0.113.1/32", "ports": [[5000, 5000]]}]);
        let server = json!([{"prefix": "198.51.100.0/24", "ports": [[5010, 5020]]}]);
        assert_eq!((ends, &session["rate_bps"]), ((&device, &server), &json!(400)), "{told}");
        assert_eq!(call(&mut app, Method::GET, &at(&first), "").await.1["qosStatus"], "REQUESTED");
        says(&mut edge, &[&first]).await;
        let (_, now) = call(&mut app, Method::GET, &at(&first), "").await;
        assert_eq!(now["qosStatus"], "AVAILABLE", "{now}");
        // It stays so while the box is away, and is as long as before.
        says(&mut edge, &[]).await;
        assert_eq!(call(&mut app, Method::GET, &at(&first), "").await.1, now);

        // Its bandwidth is counted until the box has come down.
        let deleted = tokio::spawn({
            let (path, target) = (at(&first), folder.unix());
            async move { call(&mut connect(&target, None).await, Method::DELETE, &path, "").await.0 }
        });
        while events.next(PATIENCE).await != nudge {}
        assert_eq!(says(&mut edge, &[&first]).await["sessions"], json!([]));
        assert_eq!(taken(&mut app).await, 400);
        assert_eq!(call(&mut app, Method::GET, &at(&first), "").await.0, 404, "it is deleted");
        let (_, again) = call(&mut app, Method::POST, SESSIONS, asked(1, 600)).await;
        assert_eq!(again["qosStatus"], "REQUESTED", "the same traffic may have another: {again}");
        assert_eq!(taken(&mut app).await, 800);
        says(&mut edge, &[&again]).await;
        assert_eq!((deleted.await.expect("no panic"), taken(&mut app).await), (204, 400));

        // So it is where the network ends one, which is remembered. What the box is told meanwhile survives a broker.
        let set = json!({"capacity_bps": 300});
        assert_eq!(call(&mut app, Method::PUT, "/v1/resources/wan:rt", set).await.0, 200);
        becomes(&mut app, &again, "UNAVAILABLE", "NETWORK_TERMINATED").await;
        assert_eq!(taken(&mut app).await, 400);
        broker.stop().await.expect("nothing failed");
        let broker = Broker::start(with_box(&folder)).await.expect("it starts");
        let (mut app, mut edge) = (connect(&folder.unix(), None).await, connect(&folder.unix(), None).await);
        assert_eq!(taken(&mut app).await, 400);
        assert_eq!(says(&mut edge, &[&again]).await["sessions"], json!([]));
        says(&mut edge, &[]).await;
        assert_eq!(taken(&mut app).await, 0);
        becomes(&mut app, &again, "UNAVAILABLE", "NETWORK_TERMINATED").await;
        broker.stop().await.expect("nothing failed");
    });
}

/// A session that its box had and names no longer ends: it has no bandwidth there, whatever it was said to be. As long as the box
/// names it, it goes on.
#[test]
fn a_session_that_its_box_has_no_longer_ends() {
    let folder = Folder::new("qod-silent");
    within(async {
        let broker = Broker::start(with_box(&folder)).await.expect("it starts");
        let (mut app, mut edge) = (connect(&folder.unix(), None).await, connect(&folder.unix(), None).await);
        let (_, named) = call(&mut app, Method::POST, SESSIONS, asked(1, 600)).await;
        let (_, silent) = call(&mut app, Method::POST, SESSIONS, asked(2, 600)).await;
        says(&mut edge, &[&named, &silent]).await;
        let since = Instant::now();
        loop {
            says(&mut edge, &[&named]).await;
            let (_, now) = call(&mut app, Method::GET, &at(&silent), "").await;
            if now["statusInfo"] == "NETWORK_TERMINATED" {
                break;
            }
            assert_eq!(now["qosStatus"], "AVAILABLE", "{now}");
            assert!(since.elapsed() < 2 * super::edges::SILENT, "{now}");
            sleep(Duration::from_millis(50)).await;
        }
        assert!(since.elapsed() >= super::edges::SILENT, "{:?}", since.elapsed());
        assert_eq!(call(&mut app, Method::GET, &at(&named), "").await.1["qosStatus"], "AVAILABLE");
        broker.stop().await.expect("nothing failed");
    });
}

/// Traffic at a box is sold once: whoever asks for some of it as another hears so, and not whose it is.
#[test]
fn the_traffic_of_a_box_is_sold_once() {
    let folder = Folder::new("qod-once");
    let mut config = with_box(&folder);
    config.http = Some("127.0.0.1:0".parse().expect("an address"));
    let (token, sha256) = new_token().expect("there are random numbers");
    let game =
        Token { name: "game".into(), role: Role::Operate, owner: Some("g".into()), sha256, expires: None };
    config.tokens.push(game);
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let target = Target::Plain(broker.http().expect("it listens").to_string());
        let mut app = connect(&folder.unix(), None).await;
        let (_, first) = call(&mut app, Method::POST, SESSIONS, asked(1, 600)).await;
        let mut other = connect(&target, Some(&token)).await;
        let mut part = asked(1, 600);
        part["applicationServer"] = json!({"ipv4Address": "198.51.100.7"});
        part["applicationServerPorts"] = json!({"ports": [5015]});
        let (status, answer) = call(&mut other, Method::POST, SESSIONS, part.clone()).await;
        assert_eq!((status, &answer["code"]), (409, &json!("CONFLICT")), "{answer}");
        let id = first["sessionId"].as_str().expect("one");
        assert!(!answer.to_string().contains(id) && !answer.to_string().contains("socket"), "{answer}");
        part["applicationServerPorts"] = json!({"ports": [5021]});
        assert_eq!(call(&mut other, Method::POST, SESSIONS, part).await.0, 201);
        broker.stop().await.expect("nothing failed");
    });
}

/// A device is found by either of its addresses, by IPv6 as its whole /64; a device that no box has is none of this broker's.
#[test]
fn the_traffic_of_a_device_is_where_its_addresses_are() {
    let folder = Folder::new("qod-where");
    within(async {
        let broker = Broker::start(with_box(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let with = |device: Value, server: Value| {
            let mut body = asked(1, 600);
            (body["device"], body["applicationServer"]) = (device, server);
            body["devicePorts"] = json!({"ports": [7], "ranges": [{"from": 9, "to": 10}]});
            body
        };
        let (v4, v6) = (json!({"ipv4Address": "192.0.2.0/24"}), json!({"ipv6Address": "2001:db8:1::/64"}));
        let ports = json!([[9, 10], [7, 7]]);
        for (device, server, ends) in [
            (
                json!({"ipv6Address": "2001:db8:17:3::9"}),
                &v6,
                json!([{"prefix": "2001:db8:17:3::/64", "ports": ports}]),
            ),
            (
                json!({"ipv4Address": {"publicAddress": "192.0.2.1", "privateAddress": "203.0.113.9"}}),
                &v4,
                json!([{"prefix": "203.0.113.9/32", "ports": ports}]),
            ),
            (
                json!({"ipv4Address": {"publicAddress": "203.0.113.9", "privateAddress": "10.0.0.1", "publicPort": 80}}),
                &v4,
                json!([{"prefix": "10.0.0.1/32", "ports": ports}, {"prefix": "203.0.113.9/32", "ports": [[80, 80]]}]),
            ),
        ] {
            let (status, session) = call(&mut to, Method::POST, SESSIONS, with(device, server.clone())).await;
            assert_eq!(status, 201, "{session}");
            let told = says(&mut to, &[]).await;
            assert_eq!(told["sessions"][0]["device"], ends, "{told}");
            // The box never had it.
            let path = at(&session);
            let target = folder.unix();
            let deleted = tokio::spawn(async move {
                call(&mut connect(&target, None).await, Method::DELETE, &path, "").await.0
            });
            while says(&mut to, &[]).await["sessions"] != json!([]) {}
            assert_eq!(deleted.await.expect("no panic"), 204);
        }
        let v4_device = json!({"ipv4Address": {"publicAddress": "203.0.113.9", "publicPort": 80}});
        let v6_device = json!({"ipv6Address": "2001:db8:17:3::9"});
        let stranger = json!({"ipv4Address": {"publicAddress": "192.0.2.1", "privateAddress": "10.0.0.1"}});
        for (device, server, status, code, message) in [
            (
                &v4_device,
                &v6,
                400,
                "INVALID_ARGUMENT",
                "applicationServer: expected ipv4Address, by which the device is named",
            ),
            (
                &v6_device,
                &v4,
                400,
                "INVALID_ARGUMENT",
                "applicationServer: expected ipv6Address, by which the device is named",
            ),
            (
                &stranger,
                &v4,
                422,
                "SERVICE_NOT_APPLICABLE",
                "device: no [[edge]] of the broker's file has the devices of 10.0.0.1 or 192.0.2.1: the operator adds their prefix there",
            ),
        ] {
            let (said, answer) =
                call(&mut to, Method::POST, SESSIONS, with(device.clone(), server.clone())).await;
            let got = (said, answer["code"].as_str(), answer["message"].as_str());
            assert_eq!(got, (status, Some(code), Some(message)));
        }
        let (status, answer) = call(&mut to, Method::PUT, "/v1/sessions/e0", "{}").await;
        assert_eq!(
            (status, answer["error"].as_str()),
            (400, Some("the body: missing field `sessions` at line 1 column 2"))
        );
        broker.stop().await.expect("nothing failed");
    });
}

/// A sink on this machine: what it is sent, and the status that it answers one after the other. It says who it is by TLS, if it
/// has something to say that with.
async fn sink(statuses: &'static [u16], tls: Option<TlsAcceptor>) -> (u16, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let (to, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for status in statuses {
            let Ok((stream, _)) = listener.accept().await else { return };
            let told = match &tls {
                None => one(stream, *status).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => one(stream, *status).await,
                    Err(e) => format!("no TLS: {e}"),
                },
            };
            let _ = to.send(told);
        }
    });
    (port, heard)
}

/// Reads a request to its end, and answers it: the request as text.
async fn one(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, status: u16) -> String {
    let seen = Arc::new(Mutex::new(String::new()));
    let answer = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let seen = seen.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(Body::new(body), 65_536).await.unwrap_or_default();
            let mut text = format!("{} {} {:?}\r\n", head.method, head.uri, head.version);
            for (name, value) in &head.headers {
                text += &format!("{name}: {}\r\n", value.to_str().unwrap_or(""));
            }
            *seen.lock().expect("no panic") = format!("{text}\r\n{}", String::from_utf8_lossy(&body));
            let answer = hyper::Response::builder().status(status).header("connection", "close");
            answer.header("location", "http://127.0.0.1:1/").body(Body::empty())
        }
    });
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    let _ = timeout(PATIENCE, served).await;
    std::mem::take(&mut *seen.lock().expect("no panic"))
}

fn allowing(config: Config, allow: &str, ca: Option<std::path::PathBuf>) -> Config {
    let allow = vec![super::super::config::Sink::parse(allow).expect("it may be one")];
    Config { sinks: Sinks { allow, ca }, ..config }
}

fn told(request: &str) -> Value {
    let (_, body) = request.split_once("\r\n\r\n").expect("a request");
    serde_json::from_str(body).expect("its body is JSON")
}

/// What the audit says of notifications: status, tries, and whether it was taken.
async fn notified(to: &mut Connection, count: usize) -> Vec<(String, u64, bool)> {
    let since = Instant::now();
    loop {
        let (_, audit) = call(to, Method::GET, "/v1/audit", "").await;
        let lines = audit["lines"].as_array().expect("a list").iter();
        let lines =
            lines.map(|line| serde_json::from_str::<Value>(line.as_str().expect("text")).expect("JSON"));
        let of = |line: Value| {
            let said = line.get("notified")?;
            Some((said["status"].as_str()?.to_owned(), said["tries"].as_u64()?, said["taken"].as_bool()?))
        };
        let found: Vec<_> = lines.filter_map(of).collect();
        if found.len() >= count {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "{found:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A sink hears of each change as the API says, by its token. What it does not take is sent again, and given up after five
/// tries; a redirection is no answer. Nobody waits for it, and the audit has a line of each.
#[test]
fn a_sink_hears_how_its_session_stands() {
    let folder = Folder::new("qod-sink");
    within(async {
        let (port, mut heard) = sink(&[204, 500, 302, 200, 500, 500, 500, 500, 500], None).await;
        let allow = format!("http://127.0.0.1:{port}/qod/");
        let broker = Broker::start(allowing(with_box(&folder), &allow, None)).await.expect("it starts");
        let (mut app, mut edge) = (connect(&folder.unix(), None).await, connect(&folder.unix(), None).await);
        let address = format!("{allow}game?x=1");
        let with = |device: u8, duration: u64| {
            let mut body = asked(device, duration);
            body["sink"] = json!(address);
            body["sinkCredential"] = json!({
                "credentialType": "ACCESSTOKEN", "accessToken": "secret.7", "accessTokenType": "bearer",
                "accessTokenExpiresUtc": "2099-01-01T00:00:00Z"
            });
            body
        };
        let (status, session) = call(&mut app, Method::POST, SESSIONS, with(1, 600)).await;
        assert_eq!((status, &session["sink"]), (201, &json!(address)), "{session}");
        assert!(!session.to_string().contains("secret"), "{session}");
        says(&mut edge, &[&session]).await;
        let request = heard.recv().await.expect("it is told");
        let head = request.split("\r\n\r\n").next().expect("a head").to_ascii_lowercase();
        assert!(head.starts_with("post /qod/game?x=1 http/1.1\r\n"), "{head}");
        for line in [
            "content-type: application/cloudevents+json",
            "authorization: bearer secret.7",
            &format!("host: 127.0.0.1:{port}"),
        ] {
            assert!(head.contains(&format!("\r\n{line}")), "{head}");
        }
        let (event, id) = (told(&request), &session["sessionId"]);
        assert_eq!(event["data"], json!({"sessionId": id, "qosStatus": "AVAILABLE"}));
        assert_eq!(event["type"], "org.camaraproject.quality-on-demand.v1.qos-status-changed");
        assert_eq!(
            (&event["specversion"], &event["datacontenttype"]),
            (&json!("1.0"), &json!("application/json"))
        );
        assert_eq!(event["source"], format!("/quality-on-demand/v1/sessions/{}", id.as_str().expect("one")));
        assert!(
            event["id"].is_string()
                && event["time"].as_str().is_some_and(|t| t.len() == 24 && t.ends_with('Z')),
            "{event}"
        );

        // DELETE does not wait for it. The same event comes until it is taken.
        let since = Instant::now();
        let path = at(&session);
        let target = folder.unix();
        let deleted = tokio::spawn(async move {
            call(&mut connect(&target, None).await, Method::DELETE, &path, "").await.0
        });
        while says(&mut edge, &[]).await["sessions"] != json!([]) {}
        assert_eq!(deleted.await.expect("no panic"), 204);
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        let mut same = Vec::new();
        for _ in 0..3 {
            same.push(told(&heard.recv().await.expect("it is told")));
        }
        let ended = json!({"sessionId": id, "qosStatus": "UNAVAILABLE", "statusInfo": "DELETE_REQUESTED"});
        assert_eq!(same[0]["data"], ended);
        assert!(same[0] == same[1] && same[1] == same[2], "{same:?}");

        // The end of its time, to a sink that takes nothing.
        let (_, short) = call(&mut app, Method::POST, SESSIONS, with(2, 1)).await;
        let mut last = Value::Null;
        for _ in 0..5 {
            last = told(&heard.recv().await.expect("it is told"));
        }
        let why = (&last["data"]["sessionId"], &last["data"]["statusInfo"]);
        assert_eq!(why, (&short["sessionId"], &json!("DURATION_EXPIRED")));
        let said = [("AVAILABLE", 1, true), ("UNAVAILABLE", 3, true), ("UNAVAILABLE", 5, false)];
        let said: Vec<_> =
            said.into_iter().map(|(status, tries, taken)| (status.to_owned(), tries, taken)).collect();
        assert_eq!(notified(&mut app, 3).await, said);
        broker.stop().await.expect("nothing failed");
    });
}

/// By https, if who signs the sink's certificate is who the operator named, and by nothing else.
#[test]
fn a_sink_by_https_is_who_its_certificate_says() {
    let folder = Folder::new("qod-https");
    let authority = Authority::new(&folder, "ca");
    Authority::new(&folder, "other");
    let (cert, key) = authority.sign(&folder, "sink", SanType::IpAddress([127, 0, 0, 1].into()), false);
    let server = crate::tls::server(&cert, &key, &folder.at("ca.pem"), None).expect("they fit");
    within(async {
        for (ca, taken) in [("ca.pem", true), ("other.pem", false)] {
            let (port, mut heard) = sink(&[200; 5], Some(TlsAcceptor::from(server.clone()))).await;
            let allow = format!("https://127.0.0.1:{port}/");
            let config = allowing(offering(&folder), &allow, Some(folder.at(ca)));
            let broker = Broker::start(config).await.expect("it starts");
            let mut app = connect(&folder.unix(), None).await;
            let mut body = asked(1, 600);
            body["sink"] = json!(format!("{allow}x"));
            let (status, session) = call(&mut app, Method::POST, SESSIONS, body).await;
            assert_eq!(status, 201, "{session}");
            assert_eq!(call(&mut app, Method::DELETE, &at(&session), "").await.0, 204);
            let first = heard.recv().await.expect("somebody comes");
            assert_eq!(first.starts_with("POST /x"), taken, "{first}");
            let found = notified(&mut app, 1).await;
            let last = found.last().expect("one");
            assert_eq!((last.1, last.2), if taken { (1, true) } else { (5, false) });
            broker.stop().await.expect("nothing failed");
            std::fs::remove_file(folder.at("core.redb")).expect("the store is there");
        }
    });
}

#[test]
fn a_sink_that_may_not_be_is_refused_with_its_reason() {
    let folder = Folder::new("qod-no-sink");
    within(async {
        let config = allowing(offering(&folder), "http://127.0.0.1:9/qod/", None);
        let broker = Broker::start(config).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let good = "http://127.0.0.1:9/qod/x";
        let credential = |key: &str, value: &str| {
            let mut all = json!({
                "credentialType": "ACCESSTOKEN", "accessToken": "t", "accessTokenType": "bearer",
                "accessTokenExpiresUtc": "2099-01-01T00:00:00Z"
            });
            all[key] = json!(value);
            all
        };
        let none = Value::Null;
        let long = "t".repeat(4_097);
        for (sink, credential, code, message) in [
            (
                "http://127.0.0.1:9/other",
                none.clone(),
                "INVALID_SINK",
                "sink: the broker's operator allows none that begins so: [sink] of its file says which",
            ),
            (
                "http://10.0.0.1/qod/x",
                none.clone(),
                "INVALID_SINK",
                "sink: expected https://HOST/PATH, or http://127.0.0.1:PORT/PATH on this machine",
            ),
            (
                "http://127.0.0.1:9/qod/../x",
                none,
                "INVALID_SINK",
                "sink: expected a path without . or .. in it, and without / or \\ as %2F or %5C",
            ),
            (
                good,
                credential("credentialType", "PLAIN"),
                "INVALID_CREDENTIAL",
                "sinkCredential.credentialType: expected ACCESSTOKEN: only access tokens are sent",
            ),
            (
                good,
                credential("accessTokenType", "mac"),
                "INVALID_TOKEN",
                "sinkCredential.accessTokenType: expected bearer",
            ),
            (
                good,
                credential("accessToken", "a b"),
                "INVALID_TOKEN",
                "sinkCredential.accessToken: expected 1 to 4096 printable ASCII characters without blanks",
            ),
            (
                good,
                credential("accessToken", &long),
                "INVALID_TOKEN",
                "sinkCredential.accessToken: expected 1 to 4096 printable ASCII characters without blanks",
            ),
            (
                good,
                credential("accessTokenExpiresUtc", "soon"),
                "INVALID_TOKEN",
                "sinkCredential.accessTokenExpiresUtc: expected a time (UTC), as 2027-11-22T12:00:00Z",
            ),
        ] {
            let mut body = asked(1, 600);
            (body["sink"], body["sinkCredential"]) = (json!(sink), credential);
            if body["sinkCredential"].is_null() {
                body.as_object_mut().expect("an object").remove("sinkCredential");
            }
            let (status, answer) = call(&mut to, Method::POST, SESSIONS, body).await;
            let said = (status, answer["code"].as_str(), answer["message"].as_str());
            assert_eq!(said, (400, Some(code), Some(message)), "{sink}");
        }
        // A token that has ended is not sent.
        let mut body = asked(1, 600);
        (body["sink"], body["sinkCredential"]) =
            (json!(good), credential("accessTokenExpiresUtc", "2020-01-01T00:00:00Z"));
        let (status, session) = call(&mut to, Method::POST, SESSIONS, body).await;
        assert_eq!(status, 201);
        assert_eq!(call(&mut to, Method::DELETE, &at(&session), "").await.0, 204);
        assert_eq!(notified(&mut to, 1).await, [("UNAVAILABLE".to_owned(), 5, false)]);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn what_is_no_session_has_its_message_and_changes_nothing() {
    let folder = Folder::new("qod-bad");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let with = |key: &str, value: Value| {
            let mut body = asked(1, 600);
            body[key] = value;
            body.to_string()
        };
        let without = |key: &str| {
            let mut body = asked(1, 600);
            body.as_object_mut().expect("an object").remove(key);
            body.to_string()
        };
        let (bad, none) = ("INVALID_ARGUMENT", "NOT_FOUND");
        let v4 = |address: Value| json!({"ipv4Address": address});
        let id = "00000000-0000-4000-8000-000000000000";
        for (path, body, status, code, message) in [
            (
                "",
                "{".to_owned(),
                400,
                bad,
                "the body: EOF while parsing an object at line 1 column 1; /openapi.json has an example of this request; rates are whole numbers of bit/s",
            ),
            (
                "",
                without("device"),
                422,
                "MISSING_IDENTIFIER",
                "device: expected ipv4Address or ipv6Address: the token names no device",
            ),
            (
                "",
                with("device", json!({})),
                422,
                "MISSING_IDENTIFIER",
                "device: expected ipv4Address or ipv6Address: the token names no device",
            ),
            (
                "",
                with("device", json!({"phoneNumber": "+123456789"})),
                422,
                "UNSUPPORTED_IDENTIFIER",
                "device: expected ipv4Address or ipv6Address: this broker knows no other identifiers",
            ),
            (
                "",
                with("device", v4(json!({"publicAddress": "203.0.113.1"}))),
                400,
                bad,
                "device.ipv4Address: expected privateAddress or publicPort beside publicAddress",
            ),
            (
                "",
                with("applicationServer", json!({})),
                400,
                bad,
                "applicationServer: expected ipv4Address or ipv6Address",
            ),
            (
                "",
                with("applicationServer", v4(json!("10.0.0.0/33"))),
                400,
                bad,
                "applicationServer.ipv4Address: \"10.0.0.0/33\": expected an address or prefix, as 198.51.100.0/24",
            ),
            (
                "",
                with("applicationServer", json!({"ipv6Address": "10.0.0.1"})),
                400,
                bad,
                "applicationServer.ipv6Address: \"10.0.0.1\": expected an address or prefix, as 2001:db8:1::/64",
            ),
            (
                "",
                with("devicePorts", json!({})),
                400,
                bad,
                "devicePorts: 0 ports and ranges: expected 1 to 16",
            ),
            (
                "",
                with("devicePorts", json!({"ports": vec![1; 17]})),
                400,
                bad,
                "devicePorts: 17 ports and ranges: expected 1 to 16",
            ),
            (
                "",
                with("applicationServerPorts", json!({"ranges": [{"from": 2, "to": 1}]})),
                400,
                bad,
                "applicationServerPorts.ranges: 2 to 1: expected the smaller port first",
            ),
            (
                "",
                with("qosProfile", json!("QOS_X")),
                400,
                bad,
                "qosProfile: \"QOS_X\": expected one of these: QOS_E",
            ),
            (
                "",
                with("duration", json!(0)),
                400,
                "QUALITY_ON_DEMAND.DURATION_OUT_OF_RANGE",
                "duration: 0 s: QOS_E allows 1 to 3600",
            ),
            (
                "",
                with("duration", json!(3_601)),
                400,
                "QUALITY_ON_DEMAND.DURATION_OUT_OF_RANGE",
                "duration: 3601 s: QOS_E allows 1 to 3600",
            ),
            (
                "",
                with("sink", json!("https://example.net/sink")),
                400,
                "INVALID_SINK",
                "sink: this broker sends no notifications: leave it out, and GET the session",
            ),
            (
                "",
                with("sinkCredential", json!({})),
                400,
                "INVALID_SINK",
                "sink: expected one beside sinkCredential",
            ),
            ("/x", String::new(), 400, bad, "sessionId: expected a UUID, as POST /sessions gives it"),
            (
                "/ID",
                String::new(),
                404,
                none,
                "sessionId: there is no such session; what has ended is forgotten",
            ),
            (
                "/ID/extend",
                "{\"requestedAdditionalDuration\":0}".to_owned(),
                400,
                bad,
                "requestedAdditionalDuration: expected at least 1 s",
            ),
            (
                "/ID/extend",
                "{\"requestedAdditionalDuration\":1}".to_owned(),
                404,
                none,
                "sessionId: there is no such session; what has ended is forgotten",
            ),
        ] {
            let method = if path.is_empty() || path.ends_with("extend") { Method::POST } else { Method::GET };
            let path = format!("{SESSIONS}{}", path.replace("ID", id));
            let (said, answer) = call(&mut to, method, &path, &body).await;
            assert_eq!(
                (said, answer["code"].as_str(), answer["message"].as_str()),
                (status, Some(code), Some(message)),
                "{path} {body}: {answer}"
            );
            assert_eq!(answer["status"], json!(status));
        }
        let misspelt = with("devicePort", json!({"ports": [1]}));
        let (status, answer) = call(&mut to, Method::POST, SESSIONS, misspelt).await;
        assert_eq!(status, 400);
        assert!(
            answer["message"].as_str().is_some_and(|m| m.contains("unknown field `devicePort`")),
            "{answer}"
        );
        let (_, all) = call(&mut to, Method::GET, "/v1/leases", "").await;
        assert_eq!(all["leases"], json!([]));
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn whose_token_may_not_does_not_and_sees_its_own_sessions_alone() {
    let folder = Folder::new("qod-who");
    let mut config = offering(&folder);
    config.http = Some("127.0.0.1:0".parse().expect("an address"));
    let long = "o".repeat(28);
    let mut token = |name: &str, role, owner: Option<&str>| {
        let (token, sha256) = new_token().expect("there are random numbers");
        let owner = owner.map(Into::into);
        config.tokens.push(Token { name: name.into(), role, owner, sha256, expires: None });
        token
    };
    let (portal, game) = (token("portal", Role::Operate, None), token("game", Role::Operate, Some("g")));
    let (reads, too_long) = (token("reads", Role::Read, None), token("l", Role::Operate, Some(&long)));
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let target = Target::Plain(broker.http().expect("it listens").to_string());
        let mut as_portal = connect(&target, Some(&portal)).await;
        let (status, session) = call(&mut as_portal, Method::POST, SESSIONS, asked(1, 600)).await;
        assert_eq!(status, 201, "{session}");
        let mut as_game = connect(&target, Some(&game)).await;
        // The same traffic of another is another session.
        assert_eq!(call(&mut as_game, Method::POST, SESSIONS, asked(1, 600)).await.0, 201);
        for method in [Method::GET, Method::DELETE] {
            assert_eq!(call(&mut as_game, method, &at(&session), "").await.0, 404);
        }
        for (token, status, code) in [
            (None, 401, "UNAUTHENTICATED"),
            (Some(&*reads), 403, "PERMISSION_DENIED"),
            (Some(&*too_long), 403, "PERMISSION_DENIED"),
        ] {
            let mut to = connect(&target, token).await;
            let (said, answer) = call(&mut to, Method::POST, SESSIONS, asked(2, 600)).await;
            assert_eq!((said, answer["code"].as_str()), (status, Some(code)), "{answer}");
        }
        assert_eq!(call(&mut as_portal, Method::GET, &at(&session), "").await.0, 200);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_answer_has_the_mark_of_its_request() {
    let folder = Folder::new("qod-mark");
    within(async {
        let broker = Broker::start(offering(&folder)).await.expect("it starts");
        let path = folder.at("broker.sock");
        let answer = tokio::task::spawn_blocking(move || {
            let mut to = std::os::unix::net::UnixStream::connect(path).expect("it listens");
            let head = "GET /quality-on-demand/v1/sessions/x HTTP/1.1\r\nhost: a\r\nx-correlator: b-7\r\nconnection: close\r\n\r\n";
            to.write_all(head.as_bytes()).expect("it reads");
            let mut answer = String::new();
            to.read_to_string(&mut answer).expect("it answers");
            answer
        });
        let answer = answer.await.expect("it does not panic");
        assert!(
            answer.starts_with("HTTP/1.1 400") && answer.contains("\r\nx-correlator: b-7\r\n"),
            "{answer}"
        );
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn the_document_describes_what_the_door_reads_and_writes() {
    let fits = |name: &str, example: &Value| match name {
        "CreateSession" => reads_and_writes::<Create>(example),
        "ExtendSessionDuration" => reads_and_writes::<Extend>(example),
        "RetrieveSessionsInput" => reads_and_writes::<Retrieve>(example),
        "SessionInfo" => reads_and_writes::<SessionInfo>(example),
        "ErrorInfo" => reads_and_writes::<ErrorInfo>(example),
        other => Err(format!("there is no {other}")),
    };
    assert!(describes(TEXT, include_str!("../qod.rs"), fits) > 8);
}

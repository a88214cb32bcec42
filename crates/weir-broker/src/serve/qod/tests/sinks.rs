//! Notifications.

use super::super::super::config::{Sink, Sinks};
use super::super::super::tests::Authority;
use super::*;
use axum::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::SanType;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

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
    let allow = vec![Sink::parse(allow).expect("it may be one")];
    Config { sinks: Sinks { allow, ca }, ..config }
}

/// A credential that is sent: the token `secret.7`.
fn credential() -> Value {
    json!({
        "credentialType": "ACCESSTOKEN", "accessToken": "secret.7", "accessTokenType": "bearer",
        "accessTokenExpiresUtc": "2099-01-01T00:00:00Z"
    })
}

/// The event in a request.
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
        let (broker, mut app) = start(&folder, allowing(with_box(&folder), &allow, None)).await;
        let mut edge = connect(&folder.unix(), None).await;
        let address = format!("{allow}game?x=1");
        let with = |device: u8, duration: u64| {
            let mut body = asked(device, duration);
            body["sink"] = json!(address);
            body["sinkCredential"] = credential();
            body
        };
        let session = begins(&mut app, with(1, 600)).await;
        assert_eq!(session["sink"], address, "{session}");
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
        let deleted = deletes(&folder, &session);
        while says(&mut edge, &[]).await["sessions"] != json!([]) {}
        deleted.await.expect("no panic");
        assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
        let mut same = Vec::new();
        for _ in 0..3 {
            same.push(told(&heard.recv().await.expect("it is told")));
        }
        let ended = json!({"sessionId": id, "qosStatus": "UNAVAILABLE", "statusInfo": "DELETE_REQUESTED"});
        assert_eq!(same[0]["data"], ended);
        assert!(same[0] == same[1] && same[1] == same[2], "{same:?}");

        // The end of its time, to a sink that takes nothing.
        let short = begins(&mut app, with(2, 1)).await;
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
            let (broker, mut app) = start(&folder, config).await;
            let mut body = asked(1, 600);
            body["sink"] = json!(format!("{allow}x"));
            let session = begins(&mut app, body).await;
            ends(&mut app, &session).await;
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
        let (broker, mut to) = start(&folder, config).await;
        let good = "http://127.0.0.1:9/qod/x";
        let credential = |key: &str, value: &str| {
            let mut all = credential();
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
            let said = refuses(&mut to, Method::POST, SESSIONS, body, (400, code)).await;
            assert_eq!(said, message, "{sink}");
        }
        // A token that has ended is not sent.
        let mut body = asked(1, 600);
        (body["sink"], body["sinkCredential"]) =
            (json!(good), credential("accessTokenExpiresUtc", "2020-01-01T00:00:00Z"));
        let session = begins(&mut to, body).await;
        ends(&mut to, &session).await;
        assert_eq!(notified(&mut to, 1).await, [("UNAVAILABLE".to_owned(), 5, false)]);
        broker.stop().await.expect("nothing failed");
    });
}

//! The COPS door, and those who come to it.

use super::super::Broker;
use super::super::config::{Config, Neighbour, Resource, Tls};
use super::super::tests::{
    Authority, Folder, PATIENCE, call, connect, token, uri, wish as rest_wish, within,
};
use super::*;
use crate::book::{Refusal, Verdict};
use crate::cops::line::Line;
use hyper::Method;
use rcgen::SanType;
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::{TcpStream, UnixStream};
use weir_text::BitRate;

type Plain = Line<TcpStream>;

fn wish(lease: &str, version: u64, rate: u64) -> Request {
    let (path, domains) = (vec!["wan:rt".into()], Vec::new());
    Request { lease: lease.into(), version, path, rate, min: 0, ttl_ms: 60_000, domains }
}

fn request(handle: u32, lease: &str, version: u64, rate: u64) -> Message {
    Message::Request { handle, wish: wish(lease, version, rate) }
}

fn answer(handle: u32, version: u64, verdict: Verdict) -> Message {
    let decided = Ok(Decided::Answer { lease: "e/1".into(), version, verdict });
    Message::Decision { handle, decided }
}

const fn granted(rate: u64) -> Verdict {
    Verdict::Granted { rate, ttl_ms: 60_000 }
}

fn error(handle: u32, code: u16, sub: u16) -> Message {
    Message::Decision { handle, decided: Err(Code { code, sub }) }
}

fn open(token: Option<&str>) -> Message {
    Message::Open { pep: "e".into(), token: token.map(Into::into) }
}

async fn dial(at: SocketAddr, client_type: u16) -> Plain {
    Line::new(TcpStream::connect(at).await.expect("it listens"), client_type)
}

async fn next<S: AsyncRead + AsyncWrite + Unpin>(line: &mut Line<S>) -> Option<Message> {
    let message = timeout(PATIENCE, line.message()).await.expect("it answers in time");
    message.ok().map(|(_, message)| message)
}

async fn ask(line: &mut Plain, message: &Message) -> Option<Message> {
    line.say(message);
    line.send().await.expect("it is there");
    next(line).await
}

/// A session that is open.
async fn opened(at: SocketAddr, token: &str) -> Plain {
    let mut line = dial(at, CLIENT_TYPE).await;
    let accepted = ask(&mut line, &open(Some(token))).await;
    assert_eq!(accepted, Some(Message::Accept { keep_alive_s: KEEP_ALIVE_S }));
    assert_eq!(next(&mut line).await, Some(Message::SyncRequest { handle: None }));
    line
}

/// A broker with the COPS door on the loopback, and a token of the edge `e`.
async fn start(folder: &Folder) -> (Broker, SocketAddr, [String; 2]) {
    start_with(folder.config()).await
}

async fn start_with(mut config: Config) -> (Broker, SocketAddr, [String; 2]) {
    config.cops = Some("127.0.0.1:0".parse().expect("an address"));
    let tokens = [("edge", Role::Operate), ("reads", Role::Read)]
        .map(|(name, role)| token(&mut config, name, role, (role == Role::Operate).then_some("e")));
    let broker = Broker::start(config).await.expect("it starts");
    let at = broker.cops().expect("it listens");
    (broker, at, tokens)
}

#[test]
fn who_may_not_come_in_hears_why() {
    let folder = Folder::new("cops-who");
    within(async {
        let (broker, at, [_, reads]) = start(&folder).await;
        for (client_type, first, error) in [
            (CLIENT_TYPE, open(None), cops::NOBODY),
            (CLIENT_TYPE, open(Some("guess")), NOT_ALLOWED),
            (CLIENT_TYPE, open(Some(&reads)), NOT_ALLOWED),
            (1, open(None), cops::UNSUPPORTED),
            (CLIENT_TYPE, Message::KeepAlive, MALFORMED),
            (CLIENT_TYPE, request(1, "e/1", 1, 5), MALFORMED),
        ] {
            let mut line = dial(at, client_type).await;
            let said = ask(&mut line, &first).await;
            assert_eq!(said, Some(Message::Close { error: code(error) }), "{first:?}");
            assert_eq!(next(&mut line).await, None, "it closes");
        }
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn leases_are_those_of_rest() {
    let folder = Folder::new("cops-leases");
    within(async {
        let (broker, at, [token, _]) = start(&folder).await;
        let mut line = opened(at, &token).await;
        let mut rest = connect(&folder.unix(), None).await;
        assert_eq!(ask(&mut line, &request(9, "e/1", 3, 600)).await, Some(answer(9, 3, granted(600))));
        let (_, lease) = call(&mut rest, Method::GET, "/v1/leases/e/1", "").await;
        assert_eq!((&lease["version"], &lease["granted_bps"]), (&json!(3), &json!(600)));
        // The same again is the same; less than the least is refused with what is free.
        assert_eq!(ask(&mut line, &request(9, "e/1", 3, 600)).await, Some(answer(9, 3, granted(600))));
        let stale = Verdict::Refused(Refusal::Stale { newest: 3 });
        assert_eq!(ask(&mut line, &request(9, "e/1", 2, 600)).await, Some(answer(9, 2, stale)));
        assert_eq!(call(&mut rest, Method::PUT, "/v1/leases/f/1", rest_wish(1, 300)).await.0, 200);
        let least = Message::Request { handle: 9, wish: Request { min: 800, ..wish("e/1", 4, 800) } };
        let full = Verdict::Refused(Refusal::Full { resource: "wan:rt".into(), free: 700 });
        assert_eq!(ask(&mut line, &least).await, Some(answer(9, 4, full)));
        // What is called back comes without a question.
        let set = call(&mut rest, Method::PUT, "/v1/resources/wan:rt", json!({"capacity_bps": 450}));
        assert_eq!(set.await.0, 200);
        let decided = Ok(Decided::CalledBack { lease: "e/1".into(), version: 4, rate: 300 });
        assert_eq!(next(&mut line).await, Some(Message::Decision { handle: 9, decided }));
        line.say(&Message::Report { handle: 9, report: crate::cops::codec::Report::Success });
        assert_eq!(ask(&mut line, &Message::KeepAlive).await, Some(Message::KeepAlive));
        // An edge that could not read a decision may use the lease still. One that gives it back does not.
        line.say(&Message::Delete { handle: 9, reason: code(cops::UNKNOWN_OBJECT) });
        assert_eq!(ask(&mut line, &Message::KeepAlive).await, Some(Message::KeepAlive));
        let (_, now) = call(&mut rest, Method::GET, "/v1/resources", "").await;
        assert_eq!(now["resources"][0]["taken_bps"], json!(900));
        assert_eq!(ask(&mut line, &request(10, "e/1", 5, 300)).await, Some(answer(10, 5, granted(300))));
        line.say(&Message::Delete { handle: 10, reason: code(4) });
        assert_eq!(ask(&mut line, &Message::KeepAlive).await, Some(Message::KeepAlive));
        let (_, now) = call(&mut rest, Method::GET, "/v1/resources", "").await;
        assert_eq!(now["resources"][0]["taken_bps"], json!(300));
        broker.stop().await.expect("nothing failed");
    });
}

/// A give-back that comes late, by a session that has been replaced, frees nothing that is in use.
#[test]
fn a_late_give_back_frees_nothing_of_a_newer_session() {
    let folder = Folder::new("cops-late");
    within(async {
        let (broker, at, [token, _]) = start(&folder).await;
        let (mut old, mut new) = (opened(at, &token).await, opened(at, &token).await);
        let mut rest = connect(&folder.unix(), None).await;
        assert_eq!(ask(&mut old, &request(9, "e/1", 1, 300)).await, Some(answer(9, 1, granted(300))));
        assert_eq!(ask(&mut new, &request(9, "e/1", 2, 500)).await, Some(answer(9, 2, granted(500))));
        for (line, taken) in [(&mut old, 500), (&mut new, 0)] {
            line.say(&Message::Delete { handle: 9, reason: code(4) });
            while ask(line, &Message::KeepAlive).await != Some(Message::KeepAlive) {}
            let (_, now) = call(&mut rest, Method::GET, "/v1/resources", "").await;
            assert_eq!(now["resources"][0]["taken_bps"], json!(taken));
        }
        broker.stop().await.expect("nothing failed");
    });
}

/// A neighbour has what it leases by one resource, also when a handle that is known names another path.
#[test]
fn a_neighbour_is_held_to_its_resource_by_each_request() {
    let folder = Folder::new("cops-through");
    within(async {
        let mut config = folder.config();
        config.resources.push(Resource { name: "for-e:rt".into(), capacity: BitRate::from_bps(250) });
        config.neighbours.push(Neighbour { domain: "e".into(), through: "for-e:rt".into() });
        let (broker, at, [token, _]) = start_with(config).await;
        let mut line = opened(at, &token).await;
        let wish = |version, path: &[&str]| {
            let path = path.iter().map(|name| (*name).into()).collect();
            Message::Request { handle: 9, wish: Request { path, ..wish("e/1", version, 600) } }
        };
        let unknown = Verdict::Refused(Refusal::Unknown { resource: "no:such".into() });
        assert_eq!(ask(&mut line, &wish(1, &["for-e:rt", "no:such"])).await, Some(answer(9, 1, unknown)));
        assert_eq!(ask(&mut line, &wish(2, &["wan:rt"])).await, Some(error(9, NOT_ALLOWED, 0)));
        assert_eq!(ask(&mut line, &wish(3, &["for-e:rt"])).await, Some(answer(9, 3, granted(250))));
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn what_may_not_be_is_an_error_of_its_handle_or_ends_the_session() {
    let folder = Folder::new("cops-errors");
    within(async {
        let (broker, at, [token, _]) = start(&folder).await;
        let mut line = opened(at, &token).await;
        assert_eq!(ask(&mut line, &request(1, "f/1", 1, 5)).await, Some(error(1, NOT_ALLOWED, 0)));
        assert_eq!(ask(&mut line, &request(1, "e/1", 1, 5)).await, Some(answer(1, 1, granted(5))));
        assert_eq!(ask(&mut line, &request(1, "e/2", 1, 5)).await, Some(error(1, BAD_HANDLE, 0)));
        assert_eq!(ask(&mut line, &request(2, "e/1", 2, 5)).await, Some(error(2, BAD_HANDLE, 0)));
        let bad = Verdict::Refused(Refusal::Bad { field: crate::book::Fault::Path });
        let nowhere = Message::Request { handle: 1, wish: Request { path: Vec::new(), ..wish("e/1", 2, 5) } };
        assert_eq!(ask(&mut line, &nowhere).await, Some(answer(1, 2, bad)));
        // Object 99 in a request of handle 1, a byte at a time.
        let strange = [
            [0x10, 1, 0x40, 1, 0, 0, 0, 24].as_slice(),
            &[0, 8, 1, 1, 0, 0, 0, 1],
            &[0, 8, 99, 1, 0, 0, 0, 0],
        ]
        .concat();
        for byte in strange {
            line.raw(&[byte]);
            line.send().await.expect("it is there");
        }
        assert_eq!(next(&mut line).await, Some(error(1, cops::UNKNOWN, 0x6301)));
        assert_eq!(ask(&mut line, &request(1, "e/1", 2, 7)).await, Some(answer(1, 2, granted(7))));
        for (bytes, why) in [
            ([0x20, 9, 0, 0, 0, 0, 0, 8].as_slice(), MALFORMED),
            (&[0x10, 9, 0, 0, 0xff, 0xff, 0xff, 0xfc], MALFORMED),
            (&[0x10, 3, 0x40, 1, 0, 0, 0, 8], cops::MISSING),
            (&[0x10, 10, 0x40, 1, 0, 0, 0, 16, 0, 8, 16, 1, 0, 0, 0, 0], cops::UNKNOWN),
            (&[0x10, 5, 0x40, 1, 0, 0, 0, 8], MALFORMED),
        ] {
            let mut line = opened(at, &token).await;
            line.raw(bytes);
            line.send().await.expect("it is there");
            let Some(Message::Close { error }) = next(&mut line).await else { panic!("{bytes:?}: no CC") };
            assert_eq!(error.code, why, "{bytes:?}");
            assert_eq!(next(&mut line).await, None, "it closes");
        }
        // None of this has changed the lease.
        let mut rest = connect(&folder.unix(), None).await;
        let (_, lease) = call(&mut rest, Method::GET, "/v1/leases/e/1", "").await;
        assert_eq!((&lease["version"], &lease["granted_bps"]), (&json!(2), &json!(7)));
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_edge_comes_by_its_certificate_and_by_its_name() {
    let folder = Folder::new("cops-tls");
    let authority = Authority::new(&folder, "ca");
    let (cert, key) =
        authority.sign(&folder, "broker", SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()), false);
    let ca = folder.at("ca.pem");
    let own = authority.sign(&folder, "edge", uri("weir:edge:e"), false);
    let mut config = folder.config();
    config.tls = Some(Tls {
        listen: "127.0.0.1:0".parse().expect("an address"),
        cert,
        key,
        ca: ca.clone(),
        crl: None,
    });
    config.cops = Some("0.0.0.0:0".parse().expect("an address"));
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let at = SocketAddr::from(([127, 0, 0, 1], broker.cops().expect("it listens").port()));
        let tls = crate::tls::client(&ca, Some((&own.0, &own.1))).expect("the files are good");
        let dial = async || {
            let stream = TcpStream::connect(at).await.expect("it listens");
            let name = "127.0.0.1".try_into().expect("an address");
            let stream = tokio_rustls::TlsConnector::from(tls.clone()).connect(name, stream).await;
            Line::new(stream.expect("the certificates fit"), CLIENT_TYPE)
        };
        let mut line = dial().await;
        line.say(&Message::Open { pep: "f".into(), token: None });
        line.send().await.expect("it is there");
        assert_eq!(next(&mut line).await, Some(Message::Close { error: code(NOT_ALLOWED) }));
        let mut line = dial().await;
        line.say(&open(None));
        line.say(&request(1, "e/1", 1, 5));
        line.say(&request(2, "f/1", 1, 5));
        line.send().await.expect("it is there");
        assert_eq!(next(&mut line).await, Some(Message::Accept { keep_alive_s: KEEP_ALIVE_S }));
        assert_eq!(next(&mut line).await, Some(Message::SyncRequest { handle: None }));
        let both = [next(&mut line).await, next(&mut line).await];
        assert!(both.contains(&Some(answer(1, 1, granted(5)))), "{both:?}");
        assert!(both.contains(&Some(error(2, NOT_ALLOWED, 0))), "{both:?}");
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn who_is_silent_for_too_long_is_let_go() {
    let folder = Folder::new("cops-silent");
    within(async {
        let (broker, _, _) = start(&folder).await;
        let (edge, door) = UnixStream::pair().expect("it can be made");
        let silence = Duration::from_millis(50);
        let served = tokio::spawn(serve(broker.desk.clone(), door, Peer::Local, PATIENCE, silence));
        let mut line = Line::new(edge, CLIENT_TYPE);
        line.say(&open(None));
        line.send().await.expect("it is there");
        assert_eq!(next(&mut line).await, Some(Message::Accept { keep_alive_s: KEEP_ALIVE_S }));
        assert_eq!(next(&mut line).await, Some(Message::SyncRequest { handle: None }));
        assert_eq!(next(&mut line).await, Some(Message::Close { error: code(cops::SILENT) }));
        served.await.expect("it ends");
        broker.stop().await.expect("nothing failed");
    });
}

//! What the door refuses, and whom.

use super::super::super::openapi::tests::{describes, reads_and_writes};
use super::super::session::{Create, Extend, Retrieve, SessionInfo};
use super::super::{ErrorInfo, TEXT};
use super::*;
use std::io::{Read, Write};

#[test]
fn what_is_no_session_has_its_message_and_changes_nothing() {
    let folder = Folder::new("qod-bad");
    within(async {
        let (broker, mut to) = start(&folder, offering(&folder)).await;
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
                "applicationServer.ipv4Address: `10.0.0.0/33` is no prefix: its length is at most 32: write a prefix, as in `198.51.100.0/24`",
            ),
            (
                "",
                with("applicationServer", json!({"ipv6Address": "10.0.0.1"})),
                400,
                bad,
                "applicationServer.ipv6Address: `10.0.0.1` is no address of IPv6: write ipv4Address",
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
            assert_eq!(
                refuses(&mut to, method, &path, &body, (status, code)).await,
                message,
                "{path} {body}"
            );
        }
        let misspelt = with("devicePort", json!({"ports": [1]}));
        let message = refuses(&mut to, Method::POST, SESSIONS, misspelt, (400, bad)).await;
        assert!(message.contains("unknown field `devicePort`"), "{message}");
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
    let mut token = |name, role, owner| token(&mut config, name, role, owner);
    let (portal, game) = (token("portal", Role::Operate, None), token("game", Role::Operate, Some("g")));
    let (reads, too_long) = (token("reads", Role::Read, None), token("l", Role::Operate, Some(&long)));
    within(async {
        let (broker, _) = start(&folder, config).await;
        let target = by_http(&broker);
        let mut as_portal = connect(&target, Some(&portal)).await;
        let session = begins(&mut as_portal, asked(1, 600)).await;
        let mut as_game = connect(&target, Some(&game)).await;
        // The same traffic of another is another session.
        begins(&mut as_game, asked(1, 600)).await;
        for method in [Method::GET, Method::DELETE] {
            refuses(&mut as_game, method, &at(&session), "", (404, "NOT_FOUND")).await;
        }
        for (token, status, code) in [
            (None, 401, "UNAUTHENTICATED"),
            (Some(&*reads), 403, "PERMISSION_DENIED"),
            (Some(&*too_long), 403, "PERMISSION_DENIED"),
        ] {
            let mut to = connect(&target, token).await;
            refuses(&mut to, Method::POST, SESSIONS, asked(2, 600), (status, code)).await;
        }
        shown(&mut as_portal, &session).await;
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_answer_has_the_mark_of_its_request() {
    let folder = Folder::new("qod-mark");
    within(async {
        let (broker, _) = start(&folder, offering(&folder)).await;
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
    assert!(describes(TEXT, include_str!("../../qod.rs"), fits) > 8);
}

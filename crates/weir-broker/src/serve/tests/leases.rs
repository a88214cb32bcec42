//! Leases by REST: asked for, shown, given back, and what is no request.

use super::super::MESSAGE_BYTES;
use super::*;
use crate::wire::{Answers, LeaseNow, LeasesNow, ResourcesNow, Told};

#[test]
fn leases_are_asked_for_shown_called_back_and_given_back() {
    let folder = Folder::new("rest");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let granted = json!({"lease": "e/1", "version": 1, "granted": {"rate_bps": 600, "ttl_ms": 60_000}});
        for _ in 0..2 {
            // The same again is the same.
            assert_eq!(
                call(&mut to, Method::PUT, "/v1/leases/e/1", wish(1, 600)).await,
                (200, granted.clone())
            );
        }
        let (status, answer) = call(&mut to, Method::PUT, "/v1/leases/e/1", wish(1, 700)).await;
        assert_eq!((status, &answer["refused"]["why"]), (409, &json!("differs")));
        let (status, answer) = call(
            &mut to,
            Method::PUT,
            "/v1/leases/e/1",
            json!({"version": 2, "path": [], "rate_bps": 1, "ttl_ms": 1}),
        )
        .await;
        assert_eq!((status, &answer["refused"]), (400, &json!({"why": "bad", "field": "path"})), "{answer}");
        let batch = json!({"leases": [
            {"lease": "f/1", "version": 1, "path": ["wan:rt"], "rate_bps": 500, "min_bps": 500, "ttl_ms": 60_000},
            {"lease": "f/2", "version": 1, "path": ["wan:rt"], "rate_bps": 300, "ttl_ms": 60_000},
        ]});
        let answers: Answers = to.json(Method::POST, "/v1/batch", Some(&batch)).await.expect("it answers");
        assert_eq!(answers.leases[0].says.as_deref(), Some("wan:rt has 400 bit/s free for this lease"));
        assert!(matches!(answers.leases[1].verdict, crate::book::Verdict::Granted { rate: 300, .. }));

        let none = None::<&()>;
        let all: LeasesNow = to.json(Method::GET, "/v1/leases", none).await.expect("it answers");
        let names: Vec<_> = all.leases.iter().map(|l| (&*l.lease, l.asked_bps, l.granted_bps)).collect();
        assert_eq!(names, [("e/1", 600, 600), ("f/1", 500, 0), ("f/2", 300, 300)]);
        let own: LeasesNow = to.json(Method::GET, "/v1/leases?owner=e", none).await.expect("it answers");
        assert_eq!(own.leases.len(), 1);
        let one: LeaseNow = to.json(Method::GET, "/v1/leases/e/1", none).await.expect("it answers");
        assert!((60_000..=61_060).contains(&one.free_in_ms), "{one:?}");

        let mut events = connect(&folder.unix(), None).await.listen("/v1/events").await.expect("it listens");
        let (status, _) =
            call(&mut to, Method::PUT, "/v1/resources/wan:rt", json!({"capacity_bps": 450})).await;
        assert_eq!(status, 200);
        let told = events.next(PATIENCE).await.expect("something is told");
        let back = Told::CalledBack { lease: "e/1".into(), version: 1, rate_bps: 300 };
        assert_eq!(serde_json::from_str::<Told>(&told).expect("it is JSON"), back);
        let (status, answer) = call(&mut to, Method::DELETE, "/v1/leases/e/1", "").await;
        assert_eq!((status, &answer["granted"]["rate_bps"]), (200, &json!(0)));
        let now: ResourcesNow = to.json(Method::GET, "/v1/resources", none).await.expect("it answers");
        assert_eq!((now.resources[0].capacity_bps, now.resources[0].taken_bps), (450, 300));
        let (_, text) = to.call(Method::GET, "/metrics", Bytes::new()).await.expect("it answers");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("\nweir_broker_taken_bps{resource=\"wan:rt\"} 300\n"), "{text}");
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn what_changes_nothing_does_not_fill_the_audit() {
    let folder = Folder::new("noise");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(9, 600)).await.0, 200);
        let before = audited(&mut to).await.line;
        let entry = |lease: &str, version: u64| json!({"lease": lease, "version": version, "path": ["wan:rt"], "rate_bps": 1, "ttl_ms": 60_000});
        let all = |one: serde_json::Value| json!({"leases": vec![one; 100]});
        let (status, answer) = call(&mut to, Method::POST, "/v1/batch", all(entry("nobody", 1))).await;
        assert_eq!((status, &answer["leases"][99]["refused"]["field"]), (200, &json!("lease")), "{answer}");
        assert_eq!(audited(&mut to).await.line, before, "what is no request is not written");
        let mixed =
            json!({"leases": [entry("nobody", 1), entry("e/2", 1), entry("nobody", 1), entry("e/1", 9)]});
        let (_, answer) = call(&mut to, Method::POST, "/v1/batch", mixed).await;
        let answers = answer["leases"].as_array().expect("four");
        assert_eq!(answers[1]["granted"]["rate_bps"], json!(1), "{answer}");
        assert_eq!(answers[3]["refused"]["why"], json!("differs"), "{answer}");
        let before = audited(&mut to).await.line;
        let (_, answer) = call(&mut to, Method::POST, "/v1/batch", all(entry("e/1", 1))).await;
        assert_eq!(answer["leases"][99]["refused"]["why"], json!("stale"));
        let written = audited(&mut to).await.line - before;
        assert!((1..=20).contains(&written), "100 refusals are {written} lines");
        // The line with the count comes with what is decided in another second.
        let lines = async |to: &mut Connection| {
            let all: AuditLines = to.json(Method::GET, "/v1/audit", None::<&()>).await.expect("it answers");
            all.lines.join("\n")
        };
        let mut version = 10;
        while !lines(&mut to).await.contains("\"left-out\":{\"refusals\":") {
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(version, 600)).await.0, 200);
            version += 1;
        }
        audited(&mut to).await;
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_lease_at_the_last_version_can_be_given_back_and_nothing_is_above_it() {
    let folder = Folder::new("version");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let last = crate::book::MAX_VERSION;
        for (version, status) in [(u64::MAX, 400), (last + 1, 400), (last, 400), (last - 1, 200)] {
            let (said, answer) = call(&mut to, Method::PUT, "/v1/leases/e/1", wish(version, 600)).await;
            assert_eq!(said, status, "{version}: {answer}");
        }
        for _ in 0..2 {
            let (status, answer) = call(&mut to, Method::DELETE, "/v1/leases/e/1", "").await;
            assert_eq!((status, &answer["granted"]["rate_bps"]), (200, &json!(0)), "{answer}");
        }
        let (_, now) = call(&mut to, Method::GET, "/v1/resources", "").await;
        assert_eq!(now["resources"][0]["taken_bps"], json!(0));
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn each_malformed_request_has_its_message_and_changes_nothing() {
    let folder = Folder::new("malformed");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let path = "/v1/leases/e/1";
        let long = format!("/v1/leases/e/{}", "x".repeat(63));
        let big = format!("{{\"version\":{}1}}", " ".repeat(MESSAGE_BYTES));
        let name = "lease: expected OWNER/NAME, at most 64 printable ASCII characters";
        for (method, path, body, status, error) in [
            (Method::PUT, path, "", 400, "the body: EOF while parsing a value at line 1 column 0"),
            (Method::PUT, path, "{}", 400, "the body: missing field `version` at line 1 column 2"),
            (
                Method::PUT,
                path,
                r#"{"version":1,"path":["wan:rt"],"rate_bps":1.5,"ttl_ms":5000}"#,
                400,
                "the body: invalid type: floating point `1.5`, expected u64 at line 1 column 45",
            ),
            (
                Method::PUT,
                path,
                r#"{"version":1,"path":["wan:rt"],"rate":1,"ttl_ms":5000}"#,
                400,
                "the body: unknown field `rate`, expected one of `version`, `path`, `rate_bps`, `min_bps`, `ttl_ms`, `domains` at line 1 column 37",
            ),
            (
                Method::PUT,
                path,
                r#"{"version":-1,"path":["wan:rt"],"rate_bps":1,"ttl_ms":5000}"#,
                400,
                "the body: invalid value: integer `-1`, expected u64 at line 1 column 13",
            ),
            (Method::PUT, path, &big, 413, "Failed to buffer the request body: length limit exceeded"),
            (Method::PUT, &long, "{}", 400, name),
            (Method::PUT, "/v1/leases/e/a%20b", "{}", 400, name),
            (
                Method::POST,
                "/v1/batch",
                "[1]",
                400,
                "the body: invalid type: integer `1`, expected a sequence at line 1 column 2",
            ),
            (Method::PUT, "/v1/resources/x:y", r#"{"capacity_bps":1}"#, 404, "there is no resource x:y"),
            (
                Method::PUT,
                "/v1/resources/wan:rt",
                r#"{"capacity_bps":1000000000000001}"#,
                400,
                "rate: expected at most 1000000000000000 bit/s",
            ),
            (Method::GET, path, "", 404, "there is no such lease"),
            (Method::DELETE, path, "", 404, "there is no such lease"),
            (Method::GET, "/v2/leases", "", 404, "there is no such path"),
            (Method::POST, path, "", 405, "this path has no such method"),
        ] {
            let (said, answer) = call(&mut to, method.clone(), path, body).await;
            assert_eq!((said, answer["error"].as_str()), (status, Some(error)), "{method} {path}: {answer}");
            assert!(answer["help"].as_str().is_some_and(|help| !help.is_empty()), "{answer}");
            if said == 413 {
                // It does not read the rest of what is too long.
                to = connect(&folder.unix(), None).await;
            }
        }
        assert_eq!(audited(&mut to).await.line, 2, "a broker began, a capacity was set");
        broker.stop().await.expect("nothing failed");
    });
}

/// A44
#[test]
fn a_reservation_is_a_lease_at_a_broker() {
    use crate::rsvp::{
        AtBroker, DataPlane, Filter, Flowspec, NotAdmitted, Reservation, Reservations, TrafficControl,
    };
    /// The last rate.
    struct Class(std::sync::mpsc::Sender<u64>);
    impl DataPlane for Class {
        fn shape(&mut self, _: Reservation, _: &str, rate: u64) {
            let _ = self.0.send(rate);
        }
        fn pin(&mut self, _: Reservation, _: &Filter) {}
        fn unpin(&mut self, _: Reservation, _: &Filter) {}
    }
    let folder = Folder::new("rsvp");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let (target, (to, shaped)) = (folder.unix(), std::sync::mpsc::channel());
        // A daemon has no runtime.
        let daemon = tokio::task::spawn_blocking(move || {
            let mut tc = Reservations::new("r", "rt", AtBroker { target, token: None }, Class(to));
            let needs = |bucket_bps| Flowspec { bucket_bps, guaranteed_bps: 0 };
            let of = tc.add_flowspec(0, "wan", needs(600)).expect("there is room");
            assert_eq!(tc.advertise("wan"), 400);
            let Err(NotAdmitted::Refused(why)) = tc.add_flowspec(0, "wan", needs(401)) else {
                panic!("no room")
            };
            assert_eq!(why.to_string(), "wan:rt has 400 bit/s free for this lease");
            tc.mod_flowspec(1, of, needs(700)).expect("there is room");
            tc
        });
        let mut tc = daemon.await.expect("it does not panic");
        let mut to = connect(&folder.unix(), None).await;
        let (_, lease) = call(&mut to, Method::GET, "/v1/leases/r/rsvp-1", "").await;
        assert_eq!((&lease["granted_bps"], &lease["version"]), (&json!(700), &json!(2)), "{lease}");
        assert_eq!(shaped.try_iter().collect::<Vec<_>>(), [600, 700]);
        broker.stop().await.expect("nothing failed");
        let gone = tokio::task::spawn_blocking(move || {
            tc.add_flowspec(2, "wan", Flowspec { bucket_bps: 1, guaranteed_bps: 0 })
        });
        assert!(matches!(gone.await.expect("it does not panic"), Err(NotAdmitted::NoAnswer(_))));
    });
}

//! A broker behind its doors, and those who come to them.

use super::*;
use crate::audit::Chain;
use crate::http::{Connection, HttpError, Target};
use crate::store::Place;
use crate::wire::{Answer, Answers, AuditLines, LeaseNow, LeasesNow, Problem, ResourcesNow, Told};
use axum::body::Bytes;
use config::{Day, Resource, Tls, Token};
use hyper::{Method, StatusCode};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, SerialNumber,
};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use weir_text::BitRate;

pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A folder that goes with its test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-broker-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Folder(path)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn config(&self) -> Config {
        Config {
            domain: "core".into(),
            store: Place::File(self.at("core.redb")),
            unix: self.at("broker.sock"),
            http: None,
            tls: None,
            cops: None,
            audit_lines: 1_000,
            resources: vec![Resource { name: "wan:rt".into(), capacity: BitRate::from_bps(1_000) }],
            agreements: Vec::new(),
            neighbours: Vec::new(),
            tokens: Vec::new(),
        }
    }

    pub fn unix(&self) -> Target {
        Target::Unix(self.at("broker.sock"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(work)
}

pub(super) async fn connect(target: &Target, token: Option<&str>) -> Connection {
    Connection::open(target, token, PATIENCE).await.expect("the broker is there")
}

/// Sends `body`, and reads the status and the answer as JSON.
pub(super) async fn call(
    to: &mut Connection,
    method: Method,
    path: &str,
    body: impl ToString,
) -> (u16, serde_json::Value) {
    let (status, bytes) = to.call(method, path, Bytes::from(body.to_string())).await.expect("it answers");
    (status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
}

pub(super) fn wish(version: u64, rate_bps: u64) -> serde_json::Value {
    json!({"version": version, "path": ["wan:rt"], "rate_bps": rate_bps, "ttl_ms": 60_000})
}

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

/// Lines of the audit, followed to the end.
async fn audited(to: &mut Connection) -> Chain {
    let none = None::<&()>;
    let all: AuditLines = to.json(Method::GET, "/v1/audit", none).await.expect("it answers");
    let mut chain = Chain::default();
    for line in &all.lines {
        chain.follow(line).expect("nothing was changed");
    }
    assert_eq!((chain.line, &chain.digest), (all.last, &all.chain));
    chain
}

#[test]
fn a_broker_that_starts_again_has_its_leases_and_its_audit() {
    let folder = Folder::new("again");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let second = Broker::start(Config { unix: folder.at("other.sock"), ..folder.config() }).await;
        let why = second.err().expect("the first one has the file");
        assert!(why.contains("another process has it open"), "{why}");
        let mut to = connect(&folder.unix(), None).await;
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(3, 600)).await.0, 200);
        let before = audited(&mut to).await;
        broker.stop().await.expect("nothing failed");

        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (_, lease) = call(&mut to, Method::GET, "/v1/leases/e/1", "").await;
        assert_eq!((&lease["version"], &lease["granted_bps"]), (&json!(3), &json!(600)));
        assert_eq!(audited(&mut to).await.line, before.line + 2, "a broker began, a capacity was set");
        broker.stop().await.expect("nothing failed");

        // What the file no longer names has nothing.
        let broker =
            Broker::start(Config { resources: Vec::new(), ..folder.config() }).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (_, now) = call(&mut to, Method::GET, "/v1/resources", "").await;
        assert_eq!(now["resources"][0]["capacity_bps"], 0);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_capacity_that_was_set_goes_on_until_the_file_says_something_new() {
    let folder = Folder::new("set");
    let (gives, set) = (|bps| Resource { name: "wan:rt".into(), capacity: BitRate::from_bps(bps) }, 400);
    within(async {
        // What the file says; what is there then; what the broker says about it.
        for (file, now, says) in [
            (1_000, 1_000, ""),
            (1_000, 400, "the file says 1000"),
            (900, 900, ""),
            (400, 400, ""),
            (0, 0, ""),
        ] {
            let config = Config { resources: vec![gives(file)], ..folder.config() };
            let broker = Broker::start(config).await.expect("it starts");
            assert_eq!(!says.is_empty(), !broker.set_apart().is_empty(), "{:?}", broker.set_apart());
            assert!(broker.set_apart().iter().all(|line| line.contains(says)));
            let mut to = connect(&folder.unix(), None).await;
            let (_, answer) = call(&mut to, Method::GET, "/v1/resources", "").await;
            assert_eq!(answer["resources"][0]["capacity_bps"], json!(now), "the file says {file}");
            let (status, _) =
                call(&mut to, Method::PUT, "/v1/resources/wan:rt", json!({"capacity_bps": set})).await;
            assert_eq!(status, 200);
            broker.stop().await.expect("nothing failed");
        }
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
fn a_file_where_the_socket_is_to_be_is_kept_and_a_socket_that_is_left_is_replaced() {
    let folder = Folder::new("socket");
    within(async {
        std::fs::write(folder.at("broker.sock"), "mine").expect("it can be written");
        std::fs::write(folder.at("broker.new"), "mine").expect("it can be written");
        let why = Broker::start(folder.config()).await.err().expect("a file is there");
        assert!(why.contains("is no socket, and is kept"), "{why}");
        assert_eq!(std::fs::read_to_string(folder.at("broker.sock")).expect("it is there"), "mine");
        std::fs::remove_file(folder.at("broker.sock")).expect("it is there");
        drop(std::os::unix::net::UnixListener::bind(folder.at("broker.sock")).expect("it can be made"));
        let broker = Broker::start(folder.config()).await.expect("nobody listens there");
        let mut to = connect(&folder.unix(), None).await;
        // Nothing to decide is an answer, too.
        let (status, answer) = call(&mut to, Method::POST, "/v1/batch", json!({"leases": []})).await;
        assert_eq!((status, &answer["leases"]), (200, &json!([])), "{answer}");
        broker.stop().await.expect("nothing failed");
        assert_eq!(std::fs::read_to_string(folder.at("broker.new")).expect("it is there"), "mine");
        let left = std::fs::read_dir(&folder.0).expect("it is there");
        let names: Vec<_> = left.map(|file| file.expect("it is there").file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".weir-broker")), "{names:?}");
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

#[test]
fn tokens_allow_what_their_role_and_owner_do_and_no_more_than_so_many_requests() {
    let folder = Folder::new("tokens");
    let mut config = folder.config();
    config.http = Some("127.0.0.1:0".parse().expect("an address"));
    let mut token = |name: &str, role, owner: Option<&str>, expires| {
        let (token, sha256) = new_token().expect("there are random numbers");
        config.tokens.push(Token { name: name.into(), role, owner: owner.map(Into::into), sha256, expires });
        token
    };
    let (reads, edge) =
        (token("reads", Role::Read, None, None), token("edge", Role::Operate, Some("e"), None));
    let (admin, ended) =
        (token("admin", Role::Admin, None, None), token("ended", Role::Admin, None, Some(Day(0))));
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let target = Target::Plain(broker.http().expect("it listens").to_string());
        let (lease, other, set) = ("/v1/leases/e/1", "/v1/leases/f/1", "/v1/resources/wan:rt");
        for (token, method, path, body, status, error) in [
            (None, Method::GET, "/v1/leases", json!(""), 401, "there is no token and no certificate"),
            (Some("guess"), Method::GET, "/v1/leases", json!(""), 401, "nobody has this token"),
            (Some(&*ended), Method::GET, "/v1/leases", json!(""), 401, "this token has ended"),
            (Some(&*reads), Method::GET, "/v1/leases", json!(""), 200, ""),
            (Some(&*reads), Method::PUT, lease, wish(1, 1), 403, "reads has the role read: expected operate"),
            (Some(&*edge), Method::PUT, lease, wish(1, 1), 200, ""),
            (Some(&*edge), Method::PUT, other, wish(1, 1), 403, "edge does not own f/1"),
            (Some(&*edge), Method::DELETE, other, json!(""), 403, "edge does not own f/1"),
            (
                Some(&*edge),
                Method::PUT,
                set,
                json!({"capacity_bps": 9}),
                403,
                "edge has the role operate: expected admin",
            ),
            (
                Some(&*edge),
                Method::GET,
                "/v1/audit",
                json!(""),
                403,
                "edge has the role operate: expected admin",
            ),
            (Some(&*admin), Method::PUT, other, wish(1, 1), 200, ""),
            (Some(&*edge), Method::GET, other, json!(""), 404, "there is no such lease"),
            (Some(&*admin), Method::GET, other, json!(""), 200, ""),
        ] {
            let mut to = connect(&target, token).await;
            let (said, answer) = call(&mut to, method.clone(), path, body).await;
            assert_eq!((said, answer["error"].as_str().unwrap_or("")), (status, error), "{method} {path}");
        }
        let mut to = connect(&target, Some(&edge)).await;
        let (_, own) = call(&mut to, Method::GET, "/v1/leases", "").await;
        assert_eq!(own["leases"].as_array().map(Vec::len), Some(1), "it sees its own: {own}");
        let mut refused = 0;
        for _ in 0..2 * REQUESTS_PER_SECOND {
            refused += u32::from(
                to.call(Method::GET, "/v1/resources", Bytes::new()).await.expect("it answers").0
                    == StatusCode::TOO_MANY_REQUESTS,
            );
        }
        assert!(refused > 0, "200 requests at once are too many");
        broker.stop().await.expect("nothing failed");
    });
}

/// Who signs certificates.
pub(super) struct Authority<'a>(CertifiedIssuer<'a, KeyPair>);

impl Authority<'_> {
    pub fn new(folder: &Folder, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
        std::fs::write(folder.at(&format!("{name}.pem")), issuer.pem()).expect("the folder is writable");
        Authority(issuer)
    }

    /// Writes a certificate and its key. Says where they are.
    pub fn sign(&self, folder: &Folder, file: &str, name: SanType, ended: bool) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = vec![name];
        params.serial_number = Some(SerialNumber::from_slice(file.as_bytes()));
        if ended {
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        }
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.signed_by(&key, &self.0).expect("it is signed");
        let (cert, private) = (folder.at(&format!("{file}.pem")), folder.at(&format!("{file}.key")));
        std::fs::write(&cert, certificate.pem()).expect("the folder is writable");
        std::fs::write(&private, key.serialize_pem()).expect("the folder is writable");
        (cert, private)
    }

    /// Writes the list of certificates that are no longer good, by the files that they were signed for.
    fn revoke(&self, folder: &Folder, files: &[&str]) {
        let revoked = files.iter().map(|file| RevokedCertParams {
            serial_number: SerialNumber::from_slice(file.as_bytes()),
            revocation_time: rcgen::date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2096, 1, 1),
            crl_number: SerialNumber::from(1 + files.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.0).expect("it is signed").pem().expect("it has a form in PEM");
        std::fs::write(folder.at("revoked.pem"), list).expect("the folder is writable");
    }
}

pub(super) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("it is ASCII"))
}

#[test]
fn an_edge_is_who_its_certificate_says_and_others_do_not_come_in() {
    let folder = Folder::new("tls");
    let (good, wrong) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other-ca"));
    let loopback = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let (cert, key) = good.sign(&folder, "broker", loopback, false);
    let ca = folder.at("ca.pem");
    let listen = "127.0.0.1:0".parse().expect("an address");
    let config =
        Config { tls: Some(Tls { listen, cert, key, ca: ca.clone(), crl: None }), ..folder.config() };
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let at = broker.tls().expect("it listens").to_string();
        let as_who = |own: Option<&(PathBuf, PathBuf)>, ca: &Path| {
            let own = own.map(|(cert, key)| (&**cert, &**key));
            Target::Tls(at.clone(), crate::tls::client(ca, own).expect("the files are good"))
        };
        let edge = good.sign(&folder, "edge", uri("weir:edge:e"), false);
        let mut to = connect(&as_who(Some(&edge), &ca), None).await;
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(1, 5)).await.0, 200);
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/f/1", wish(1, 5)).await.0, 403);
        let mut both = connect(&as_who(Some(&edge), &ca), Some("token")).await;
        assert_eq!(call(&mut both, Method::GET, "/v1/leases", "").await.0, 401);
        let mut nobody = connect(&as_who(None, &ca), None).await;
        assert_eq!(call(&mut nobody, Method::GET, "/v1/leases", "").await.0, 401);
        for (what, own, ca) in [
            ("ended", Some(good.sign(&folder, "ended", uri("weir:edge:e"), true)), &ca),
            ("another's", Some(wrong.sign(&folder, "wrong", uri("weir:edge:e"), false)), &ca),
            ("no edge", Some(good.sign(&folder, "none", uri("weir:host:e"), false)), &ca),
            ("a slash", Some(good.sign(&folder, "slash", uri("weir:edge:e/f"), false)), &ca),
            ("another broker", None, &folder.at("other-ca.pem")),
        ] {
            // With TLS 1.3 the client may hear at its first request that its certificate was refused.
            let came_in = match Connection::open(&as_who(own.as_ref(), ca), None, PATIENCE).await {
                Ok(mut to) => to.call(Method::GET, "/v1/leases", Bytes::new()).await.map(drop),
                Err(e) => Err(e),
            };
            assert!(matches!(came_in, Err(HttpError::Unreachable(_))), "{what}: {came_in:?}");
        }
        assert_eq!(
            audited(&mut connect(&folder.unix(), None).await).await.line,
            3,
            "one lease, nothing else"
        );
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_edge_whose_certificate_is_revoked_goes_and_does_not_come_back() {
    let folder = Folder::new("crl");
    let authority = Authority::new(&folder, "ca");
    let (cert, key) =
        authority.sign(&folder, "broker", SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()), false);
    let (ca, listen) = (folder.at("ca.pem"), "127.0.0.1:0".parse().expect("an address"));
    authority.revoke(&folder, &[]);
    let crl = Some(folder.at("revoked.pem"));
    let config = Config { tls: Some(Tls { listen, cert, key, ca: ca.clone(), crl }), ..folder.config() };
    let [one, other] = ["one", "other"].map(|name| {
        let (cert, key) = authority.sign(&folder, name, uri(&format!("weir:edge:{name}")), false);
        crate::tls::client(&ca, Some((&cert, &key))).expect("the files are good")
    });
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let at = broker.tls().expect("it listens").to_string();
        let see =
            async |to: &mut Connection| to.call(Method::GET, "/v1/leases", Bytes::new()).await.map(|a| a.0);
        let mut to = connect(&Target::Tls(at.clone(), one.clone()), None).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        // What cannot be read changes nothing.
        std::fs::write(folder.at("revoked.pem"), "nothing").expect("the folder is writable");
        tokio::time::sleep(2 * SILENCE).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        authority.revoke(&folder, &["one"]);
        while see(&mut to).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let again = match Connection::open(&Target::Tls(at.clone(), one), None, PATIENCE).await {
            Ok(mut to) => see(&mut to).await,
            Err(e) => Err(e),
        };
        assert!(matches!(again, Err(HttpError::Unreachable(_))), "{again:?}");
        let mut to = connect(&Target::Tls(at, other), None).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_store_that_fails_stops_the_broker_before_it_answers() {
    use crate::store::{Batch, Loaded, Memory, StoreError};
    /// Writes once, for the broker's beginning.
    struct Full(Memory, u32);
    impl Store for Full {
        fn load(&self) -> Result<Loaded, StoreError> {
            self.0.load()
        }
        fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
            self.1 += 1;
            if self.1 > 1 { Err(StoreError("no space left".into())) } else { self.0.commit(batch) }
        }
        fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
            self.0.audit(from, most)
        }
    }
    let folder = Folder::new("full");
    within(async {
        let store = Box::new(Full(Memory::default(), 0));
        let broker = Broker::start_on(store, folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (status, bytes) =
            to.call(Method::PUT, "/v1/leases/e/1", wish(1, 5).to_string().into()).await.expect("it answers");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(serde_json::from_slice::<Answer>(&bytes).is_err(), "nothing is granted");
        let problem: Problem = serde_json::from_slice(&bytes).expect("it says why");
        assert_eq!(problem.error, "the broker is stopping");
        let why = broker.stop().await.expect_err("the store failed");
        assert!(why.contains("no space left"), "{why}");
    });
}

//! Two brokers, one of which leases to the other.

use super::super::config::{Neighbour, Resource, Tls};
use super::super::tests::{Authority, Folder, call, connect, no_events, serve, token, uri, within};
use super::super::who::Role;
use super::super::{Broker, SILENCE, config::Config};
use super::*;
use crate::Rate;
use crate::book::{Refusal, Verdict};
use crate::client::{self, Client, Edge, Shaper};
use crate::cops::pep;
use crate::holder::State;
use crate::http::{Connection, HttpError};
use crate::wire::{Answer, Answers, Entry, Told, Wishes};
use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use hyper::Method;
use rcgen::SanType;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::time::Instant;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use weir_seed::{in_time, timed};
use weir_sys::Priority;
use weir_text::{BitRate, Time};

mod scripted;

/// The file of domain `a`, which has `wan:rt` of its own and leases `peer:rt` from `broker`.
fn asking(folder: &Folder, broker: String) -> Config {
    let agreement = Agreement {
        resource: "peer:rt".into(),
        broker,
        path: vec!["core:rt".into()],
        ceiling: BitRate::from_bps(800),
        bulk: BitRate::from_bps(1),
        ttl: Time::from_secs(6),
        cert: None,
        key: None,
        ca: None,
    };
    Config { domain: "a".into(), agreements: vec![agreement], ..folder.config() }
}

/// The file of domain `b`, which has `core:rt`.
fn granting(folder: &Folder) -> Config {
    let resources = vec![Resource { name: "core:rt".into(), capacity: BitRate::from_bps(1_000) }];
    Config { domain: "b".into(), resources, ..folder.config() }
}

/// How a file names the broker of a folder.
fn socket(folder: &Folder) -> String {
    format!("unix:{}", folder.at("broker.sock").display())
}

/// The broker of `a`, which leases from that of `there`, and the way to it.
async fn start(here: &Folder, there: &Folder) -> (Broker, Connection) {
    let a = Broker::start(asking(here, socket(there))).await.expect("it starts");
    (a, connect(&here.unix(), None).await)
}

fn abroad(version: u64, rate_bps: u64, min_bps: u64) -> Value {
    json!({
        "version": version, "path": ["wan:rt", "peer:rt"], "rate_bps": rate_bps, "min_bps": min_bps,
        "ttl_ms": 60_000
    })
}

/// Asks for the lease `e/LEASE`, and is granted so much: the answer.
async fn gets(to: &mut Connection, lease: u64, wish: Value, rate_bps: u64) -> Value {
    granted(call(to, Method::PUT, &format!("/v1/leases/e/{lease}"), wish).await, rate_bps)
}

fn granted((status, answer): (u16, Value), rate_bps: u64) -> Value {
    assert_eq!((status, &answer["granted"]["rate_bps"]), (200, &json!(rate_bps)), "{answer}");
    answer
}

/// Asks for the lease `e/LEASE` beside the test: the answer.
fn wants(here: &Folder, lease: u64, wish: Value) -> JoinHandle<(u16, Value)> {
    let unix = here.unix();
    tokio::spawn(async move {
        let mut to = connect(&unix, None).await;
        call(&mut to, Method::PUT, &format!("/v1/leases/e/{lease}"), wish).await
    })
}

/// Capacity and what is taken of a resource.
async fn shown(to: &mut Connection, resource: &str) -> (u64, u64) {
    let (_, now) = call(to, Method::GET, "/v1/resources", "").await;
    let all = now["resources"].as_array().expect("a list");
    let found = all.iter().find(|r| r["resource"] == resource).expect("it is there");
    (found["capacity_bps"].as_u64().expect("a number"), found["taken_bps"].as_u64().expect("a number"))
}

/// Waits until so much of a resource is there and taken.
async fn becomes(to: &mut Connection, resource: &str, expected: (u64, u64), within: Duration) {
    let since = Instant::now();
    loop {
        let now = shown(to, resource).await;
        if now == expected {
            return;
        }
        assert!(since.elapsed() < within, "{resource} has {now:?}, not {expected:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// T38
#[test]
fn a_request_goes_to_the_neighbour_and_its_answer_comes_back() {
    let (here, there) = (Folder::new("asks"), Folder::new("grants"));
    let authority = Authority::new(&there, "ca");
    let loopback = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let (cert, key) = authority.sign(&there, "broker", loopback, false);
    let (own_cert, own_key) = authority.sign(&here, "a", uri("weir:edge:a"), false);
    let (ca, listen) = (there.at("ca.pem"), "127.0.0.1:0".parse().expect("an address"));
    within(async {
        let tls = Some(Tls { listen, cert, key, ca: ca.clone(), crl: None });
        let b = Broker::start(Config { tls, ..granting(&there) }).await.expect("it starts");
        let at = format!("https://{}", b.tls().expect("it listens"));
        let mut config = asking(&here, at);
        let agreement = &mut config.agreements[0];
        (agreement.ca, agreement.cert, agreement.key) = (Some(ca), Some(own_cert), Some(own_key));
        let a = Broker::start(config).await.expect("it starts");
        let (mut at_a, mut at_b) = (connect(&here.unix(), None).await, connect(&there.unix(), None).await);

        let answer = gets(&mut at_a, 1, abroad(1, 600, 600), 600).await;
        let ttl = answer["granted"]["ttl_ms"].as_u64().expect("a number");
        assert!((3_000..6_000).contains(&ttl), "no longer than the neighbour's: {ttl}");
        let (_, lease) = call(&mut at_b, Method::GET, "/v1/leases/a/peer:rt", "").await;
        assert_eq!((&lease["granted_bps"], &lease["path"]), (&json!(600), &json!(["core:rt"])), "{lease}");

        // The neighbour has 100 left for its own edge, and less than what is asked.
        let core = json!({"version": 1, "path": ["core:rt"], "rate_bps": 300, "ttl_ms": 60_000});
        assert_eq!(call(&mut at_b, Method::PUT, "/v1/leases/f/1", core).await.0, 200);
        let since = Instant::now();
        let (status, answer) = call(&mut at_a, Method::PUT, "/v1/leases/e/2", abroad(1, 200, 200)).await;
        let full = json!({"why": "full", "resource": "peer:rt", "free_bps": 100});
        assert_eq!((status, &answer["refused"]), (409, &full), "{answer}");
        assert!(since.elapsed() < Duration::from_secs(4), "nobody waited for the end of a hold");
        assert_eq!(shown(&mut at_a, "wan:rt").await, (1_000, 600), "what was held is free again");

        // What was asked for in vain goes back.
        becomes(&mut at_b, "core:rt", (1_000, 900), Duration::from_secs(3)).await;
        // What the operator over there takes away is called back here.
        assert_eq!(
            call(&mut at_b, Method::PUT, "/v1/resources/core:rt", json!({"capacity_bps": 450})).await.0,
            200
        );
        becomes(&mut at_a, "peer:rt", (300, 600), Duration::from_secs(3)).await;
        gets(&mut at_a, 1, abroad(2, 300, 0), 300).await;
        becomes(&mut at_b, "core:rt", (450, 600), Duration::from_secs(3)).await;

        // Nobody here sets what is leased from there.
        let (status, answer) =
            call(&mut at_a, Method::PUT, "/v1/resources/peer:rt", json!({"capacity_bps": 9})).await;
        assert_eq!(status, 403, "{answer}");

        let (status, _) = call(&mut at_a, Method::DELETE, "/v1/leases/e/1", "").await;
        assert_eq!(status, 200);
        becomes(&mut at_b, "core:rt", (450, 300), Duration::from_secs(3)).await;
        let lines = a.keeper().look(|kept| kept.journal.audit(0, 1_000)).await.expect("it runs");
        let lines = lines.expect("it is there").join("\n");
        assert!(lines.contains("\"leased\":{\"resource\":\"peer:rt\",\"rate_bps\":600}"), "{lines}");
        assert!(lines.contains("\"granted\":{\"asked\":{\"lease\":\"e/1\",\"version\":1,"), "{lines}");
        a.stop().await.expect("nothing failed");
        b.stop().await.expect("nothing failed");
    });
}

/// Whether a thread that keeps a book has `SCHED_FIFO`.
fn a_keeper_is_fifo() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("it is there");
    tasks.flatten().any(|task| {
        // A thread may end meanwhile.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let (name, rest) = stat.rsplit_once(')').unwrap_or_default();
        // The policy is the 41st field, and the state behind the name the third.
        name.ends_with("(keeper") && rest.split_whitespace().nth(38) == Some("1")
    })
}

/// How long an answer takes.
async fn takes(to: &mut Connection, way: &str, wish: Value) -> Duration {
    let begun = Instant::now();
    let (status, answer) = call(to, Method::PUT, way, wish).await;
    assert_eq!(status, 200, "{answer}");
    begun.elapsed()
}

/// T38: an answer over both takes what the hops take, because the first broker asks while it writes what it holds.
/// `WEIR_EFFORT=10` measures 200 times.
#[test]
fn an_answer_over_both_takes_the_sum_of_the_hops() {
    let times = weir_seed::effort(20);
    timed(|| {
        let (here, there) = (Folder::new("asks-soon"), Folder::new("grants-soon"));
        let authority = Authority::new(&there, "ca");
        let loopback = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let (cert, key) = authority.sign(&there, "broker", loopback, false);
        let (own_cert, own_key) = authority.sign(&here, "a", uri("weir:edge:a"), false);
        let (ca, listen) = (there.at("ca.pem"), "127.0.0.1:0".parse().expect("an address"));
        // Others on the machine make each step wait: what it takes by itself is asked for.
        let priority = Priority::Fifo;
        let granted = weir_sys::take_priority(priority);
        println!("{granted}");
        super::super::runtime(priority).expect("a runtime can be made").block_on(async {
            let million = BitRate::from_bps(1_000_000);
            let tls = Some(Tls { listen, cert, key, ca: ca.clone(), crl: None });
            let mut config = Config { tls, priority, ..granting(&there) };
            config.resources[0].capacity = million;
            let b = Broker::start(config).await.expect("it starts");
            let at = format!("127.0.0.1:{}", b.tls().expect("it listens").port());
            let mut config = asking(&here, format!("https://{at}"));
            config.resources[0].capacity = million;
            config.priority = priority;
            let agreement = &mut config.agreements[0];
            agreement.ceiling = million;
            (agreement.ca, agreement.cert, agreement.key) =
                (Some(ca.clone()), Some(own_cert.clone()), Some(own_key.clone()));
            let a = Broker::start(config).await.expect("it starts");
            let since = Instant::now();
            while granted.priority == Priority::Fifo && !a_keeper_is_fifo() {
                assert!(since.elapsed() < Duration::from_secs(5), "no keeper has it");
                sleep(Duration::from_millis(5)).await;
            }
            let tls = crate::tls::client(&ca, Some((&own_cert, &own_key))).expect("they fit");
            let far = Target::Tls(at, tls);
            let mut far = Connection::open(&far, None, Duration::from_secs(5)).await.expect("it is there");
            let mut near = connect(&here.unix(), None).await;
            // Near, far, and over both.
            let mut all = [const { Vec::new() }; 3];
            for n in 1..=times + 1 {
                let wish =
                    |path: &[&str]| json!({"version": n, "path": path, "rate_bps": n, "ttl_ms": 60_000});
                all[0].push(takes(&mut near, "/v1/leases/e/near", wish(&["wan:rt"])).await);
                all[1].push(takes(&mut far, "/v1/leases/a/far", wish(&["core:rt"])).await);
                // It asks its neighbour ten times a second at most.
                sleep(Duration::from_millis(110)).await;
                all[2].push(takes(&mut near, "/v1/leases/e/both", wish(&["wan:rt", "peer:rt"])).await);
            }
            // The first one has to connect.
            let sorted = all.map(|mut times| {
                times.remove(0);
                times.sort();
                times
            });
            let at = |which: usize, percent: usize| sorted[which][(sorted[which].len() - 1) * percent / 100];
            for percent in [0, 50, 99] {
                let [near, far, both] = [0, 1, 2].map(|which| at(which, percent));
                println!("p{percent}: near {near:?}, far {far:?}, over both {both:?}");
            }
            let sum = at(0, 50) + at(1, 50);
            let [middle, worst] = [50, 99].map(|percent| at(2, percent).saturating_sub(sum));
            println!("over both beyond the sum of the hops' p50: p50 {middle:?}, p99 {worst:?}");
            in_time!(at(2, 0) <= at(0, 0) + at(1, 0) + Duration::from_millis(1), "{sorted:?}");
            a.stop().await.expect("nothing failed");
            b.stop().await.expect("nothing failed");
        });
    });
}

#[test]
fn a_neighbour_that_is_silent_is_waited_for_5_s_and_what_was_held_is_free() {
    let (here, there) = (Folder::new("silent"), Folder::new("comes"));
    within(async {
        let (a, mut other) = start(&here, &there).await;
        let since = Instant::now();
        let waits = wants(&here, 1, abroad(1, 600, 1));
        becomes(&mut other, "wan:rt", (1_000, 600), Duration::from_secs(2)).await;
        let (status, answer) = waits.await.expect("it does not panic");
        let took = since.elapsed();
        assert_eq!(
            (status, &answer["refused"]),
            (409, &json!({"why": "neighbour", "resource": "peer:rt"})),
            "{answer}"
        );
        assert!((4_900..7_000).contains(&took.as_millis()), "{took:?}");
        assert_eq!(shown(&mut other, "wan:rt").await, (1_000, 0), "the hold is over");
        // It is there now. What is wanted next is granted.
        let b = Broker::start(granting(&there)).await.expect("it starts");
        gets(&mut other, 1, abroad(2, 600, 600), 600).await;
        a.stop().await.expect("nothing failed");
        b.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_request_that_comes_back_to_where_it_was_is_refused_at_once() {
    let (here, there) = (Folder::new("loop-a"), Folder::new("loop-b"));
    within(async {
        let mut b = granting(&there);
        b.agreements = asking(&there, socket(&here)).agreements;
        b.agreements[0].resource = "back:rt".into();
        b.agreements[0].path = vec!["peer:rt".into()];
        let mut a = asking(&here, socket(&there));
        a.agreements[0].path = vec!["back:rt".into()];
        let (a, b) = (Broker::start(a).await.expect("it starts"), Broker::start(b).await.expect("it starts"));
        let mut to = connect(&here.unix(), None).await;
        let since = Instant::now();
        let (status, answer) = call(&mut to, Method::PUT, "/v1/leases/e/1", abroad(1, 600, 600)).await;
        assert_eq!((status, &answer["refused"]["why"]), (409, &json!("full")), "{answer}");
        assert!(since.elapsed() < Duration::from_secs(4), "it went round until the hold ended");
        a.stop().await.expect("nothing failed");
        b.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_broker_that_starts_again_speaks_for_its_domain_at_the_neighbour() {
    let (here, there) = (Folder::new("again"), Folder::new("stays"));
    within(async {
        let socket = socket(&there);
        let b = Broker::start(granting(&there)).await.expect("it starts");
        let mut at_b = connect(&there.unix(), None).await;
        for life in 1..=3 {
            let (a, mut to) = start(&here, &there).await;
            // What its edges have goes on, and can grow.
            let rate = 100 * life;
            if life > 1 {
                becomes(&mut to, "peer:rt", (rate - 100, rate - 100), Duration::from_secs(4)).await;
            }
            gets(&mut to, 1, abroad(life, rate, rate), rate).await;
            let (_, lease) = call(&mut at_b, Method::GET, "/v1/leases/a/peer:rt", "").await;
            assert_eq!(lease["version"].as_u64().map(|version| version >> 32), Some(life), "{lease}");
            a.stop().await.expect("nothing failed");
        }
        // The whole domain has gone: its lease ends by itself, and its file no longer has the agreement.
        becomes(&mut at_b, "core:rt", (1_000, 0), Duration::from_secs(10)).await;
        let config = Config { agreements: Vec::new(), ..asking(&here, socket.clone()) };
        let a = Broker::start(config).await.expect("it starts");
        let mut to = connect(&here.unix(), None).await;
        let (status, answer) = call(&mut to, Method::PUT, "/v1/leases/e/2", abroad(1, 10, 10)).await;
        assert_eq!((status, &answer["refused"]["why"]), (409, &json!("full")), "{answer}");
        a.stop().await.expect("nothing failed");
        let mut taken = asking(&here, socket);
        taken.agreements.clear();
        taken.resources[0].name = "peer:rt".into();
        let why = Broker::start(taken).await.err().expect("it was an agreement");
        assert!(why.contains("give the resource another name"), "{why}");
        b.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_neighbour_has_no_more_than_its_own_resource() {
    let (here, there) = (Folder::new("own"), Folder::new("limits"));
    within(async {
        let socket = socket(&there);
        let mut config = granting(&there);
        config.resources.push(Resource { name: "for-a:rt".into(), capacity: BitRate::from_bps(250) });
        config.neighbours.push(Neighbour { domain: "a".into(), through: "for-a:rt".into() });
        let b = Broker::start(config).await.expect("it starts");
        let mut at_b = connect(&there.unix(), None).await;
        let ask = |lease: &str| {
            let entry =
                json!({"lease": lease, "version": 1, "path": ["core:rt"], "rate_bps": 300, "ttl_ms": 60_000});
            json!({"leases": [entry]})
        };
        let (status, answer) = call(&mut at_b, Method::POST, "/v1/batch", ask("a/peer:rt")).await;
        assert_eq!(
            (status, &answer["error"]),
            (403, &json!("a has what it leases by for-a:rt, which is not in the path")),
            "{answer}"
        );
        let wish = json!({"version": 1, "path": ["core:rt"], "rate_bps": 300, "ttl_ms": 60_000});
        assert_eq!(call(&mut at_b, Method::PUT, "/v1/leases/a/other", wish).await.0, 403);
        assert_eq!(shown(&mut at_b, "core:rt").await, (1_000, 0), "nothing has changed");
        // Others are not concerned.
        assert_eq!(call(&mut at_b, Method::POST, "/v1/batch", ask("f/1")).await.0, 200);
        let mut config = asking(&here, socket);
        config.agreements[0].path.push("for-a:rt".into());
        let a = Broker::start(config).await.expect("it starts");
        let mut to = connect(&here.unix(), None).await;
        gets(&mut to, 1, abroad(1, 600, 1), 250).await;
        a.stop().await.expect("nothing failed");
        b.stop().await.expect("nothing failed");
    });
}

/// A lease with its rate and state, or what was said of the broker.
type Change = (String, Rate, &'static str);

/// What the leases of an edge came to.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<Change>>>);

impl Heard {
    fn last(&self, lease: &str) -> Option<(Rate, &'static str)> {
        let all = self.0.lock().expect("nobody panics with it");
        all.iter().rev().find(|told| told.0 == lease).map(|told| (told.1, told.2))
    }

    async fn becomes(&self, lease: &str, expected: (Rate, &'static str), within: Duration) {
        let since = Instant::now();
        while self.last(lease) != Some(expected) {
            assert!(since.elapsed() < within, "{lease}: {:?}, not {expected:?}", self.last(lease));
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Shaper for Heard {
    fn shape(&mut self, lease: &str, rate: Rate, state: State, _: Option<&Refusal>) {
        self.0.lock().expect("nobody panics with it").push((lease.into(), rate, state.word()));
    }

    fn broker(&mut self, reached: Result<(), &HttpError>) {
        let word = if reached.is_ok() { "there" } else { "gone" };
        self.0.lock().expect("nobody panics with it").push(("broker".into(), 0, word));
    }
}

fn terms(lease: &str, path: &[&str]) -> Terms {
    let path = path.iter().map(|&name| name.into()).collect();
    Terms { lease: lease.into(), path, ttl_ms: 60_000, epoch: 0, gap: GAP / 100, retry: RETRY }
}

/// By REST and by COPS: one lease waits for a silent neighbour, and the other has its answer at once. The edge does not
/// take its broker for gone meanwhile, and hears of the refusal when the hold ends.
#[test]
fn a_lease_that_waits_for_a_neighbour_delays_no_other() {
    let (here, there) = (Folder::new("delays"), Folder::new("nobody"));
    within(async {
        let mut config = asking(&here, socket(&there));
        config.cops = Some("127.0.0.1:0".parse().expect("an address"));
        let token = token(&mut config, "e", Role::Operate, Some("e"));
        let a = Broker::start(config).await.expect("it starts");
        let cops = pep::Target { at: a.cops().expect("it listens").to_string(), edge: "e".into(), tls: None };
        for (door, broker) in
            [("rest", client::Broker::Rest(here.unix())), ("cops", client::Broker::Cops(cops))]
        {
            let [waits, other] = ["waits", "other"].map(|name| format!("e/{door}-{name}"));
            let leases = vec![terms(&waits, &["wan:rt", "peer:rt"]), terms(&other, &["wan:rt"])];
            let (heard, since) = (Heard::default(), Instant::now());
            let token = (door == "cops").then(|| token.clone());
            let client =
                Client::start(Edge { broker, token, leases, sessions: None, seed: 1 }, heard.clone())
                    .expect("it starts");
            client.want(&waits, 300, 300);
            client.want(&other, 100, 100);
            heard.becomes(&other, (100, "LEASED"), Duration::from_secs(1)).await;
            // Another wish does not wait either.
            client.want(&other, 120, 120);
            heard.becomes(&other, (120, "LEASED"), Duration::from_secs(1)).await;
            heard.becomes(&waits, (0, "REFUSED"), Duration::from_secs(8)).await;
            let took = since.elapsed();
            assert!((4_900..7_000).contains(&took.as_millis()), "{door}: {took:?}");
            let all = heard.0.lock().expect("nobody panics with it").clone();
            assert!(!all.iter().any(|told| told.2 == "gone"), "{door}: {all:?}");
            let client = tokio::task::spawn_blocking(move || client.give_back(Duration::from_secs(2)));
            assert!(client.await.expect("it does not panic"), "{door}");
        }
        a.stop().await.expect("nothing failed");
    });
}

/// Who waits hears at once that a newer version has replaced the one that it asked for.
#[test]
fn who_waits_hears_that_its_wish_is_replaced() {
    let (here, there) = (Folder::new("replaced"), Folder::new("silent"));
    within(async {
        let (a, mut second) = start(&here, &there).await;
        let began = Instant::now();
        let waits = wants(&here, 1, abroad(1, 300, 0));
        sleep(Duration::from_millis(300)).await;
        gets(&mut second, 1, abroad(2, 0, 0), 0).await;
        let (status, said) = waits.await.expect("it does not panic");
        assert_eq!((status, &said["refused"]), (409, &json!({"why": "stale", "newest": 2})), "{said}");
        assert!(began.elapsed() < Duration::from_secs(4), "it did not wait for the hold to end");
        a.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_answer_that_waited_is_an_event() {
    let (here, there) = (Folder::new("event"), Folder::new("late"));
    within(async {
        let (a, mut to) = start(&here, &there).await;
        let mut events = connect(&here.unix(), None).await.listen("/v1/events").await.expect("it listens");
        let entry = |lease: &str, path: &[&str]| json!({"lease": lease, "version": 1, "path": path, "rate_bps": 300, "ttl_ms": 60_000});
        let both = json!({"leases": [entry("e/1", &["wan:rt", "peer:rt"]), entry("e/2", &["wan:rt"])]});
        let (status, answer) = call(&mut to, Method::POST, "/v1/batch", both).await;
        assert_eq!((status, &answer["waiting"]), (200, &json!(["e/1"])), "{answer}");
        assert_eq!(answer["leases"][0]["granted"]["rate_bps"], json!(300), "{answer}");
        let b = Broker::start(granting(&there)).await.expect("it starts");
        let told = events.next(Duration::from_secs(8)).await.expect("something is told");
        let Ok(Told::Answered(answer)) = serde_json::from_str(&told) else { panic!("{told}") };
        assert_eq!((&*answer.lease, answer.version), ("e/1", 1));
        assert!(matches!(answer.verdict, Verdict::Granted { rate: 300, .. }), "{told}");
        a.stop().await.expect("nothing failed");
        b.stop().await.expect("nothing failed");
    });
}

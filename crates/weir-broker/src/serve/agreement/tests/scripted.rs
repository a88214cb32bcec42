//! Beside a neighbour that answers as a test says.

use super::*;

/// What a neighbour is asked, and the way to answer it.
type Asked = (Entry, oneshot::Sender<Verdict>);

/// A neighbour's broker that answers as a test says.
async fn scripted(folder: &Folder) -> mpsc::UnboundedReceiver<Asked> {
    let (to, asked) = mpsc::unbounded_channel();
    let batch = async move |bytes: Bytes| {
        let wishes: Wishes = serde_json::from_slice(&bytes).expect("a batch");
        let (mut leases, waiting) = (Vec::new(), Vec::new());
        for entry in wishes.leases {
            let (lease, version) = (entry.lease.clone(), entry.version);
            let (answer, heard) = oneshot::channel();
            to.send((entry, answer)).expect("the test goes on");
            leases.push(Answer::new(lease, version, heard.await.expect("it is answered")));
        }
        serde_json::to_string(&Answers { leases, waiting }).expect("it has a form in JSON")
    };
    let events = async || {
        let (to, from) = mpsc::channel(1);
        // It never tells anything, and never ends.
        std::mem::forget(to);
        Body::new(super::super::super::stream::Stream::new(from))
    };
    let router: Router = Router::new().route("/v1/batch", post(batch)).route("/v1/events", get(events));
    let listener = UnixListener::bind(folder.at("broker.sock")).expect("it can be made");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(router.clone());
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
        }
    });
    asked
}

const fn grants(rate: Rate) -> Verdict {
    Verdict::Granted { rate, ttl_ms: 6_000 }
}

/// The next request for another rate than before. What is said again meanwhile is dropped.
async fn asks(asked: &mut mpsc::UnboundedReceiver<Asked>, rate: Rate) -> oneshot::Sender<Verdict> {
    let (entry, answer) = asked.recv().await.expect("it asks");
    assert_eq!((entry.rate_bps, &*entry.lease), (rate, "a/peer:rt"));
    answer
}

/// While one want is answered another one waits. The answer to the older one does not refuse it.
#[test]
fn an_answer_to_an_older_want_decides_nothing_about_the_newest() {
    let (here, there) = (Folder::new("older"), Folder::new("script"));
    within(async {
        let mut asked = scripted(&there).await;
        let socket = format!("unix:{}", there.at("broker.sock").display());
        let a = Broker::start(asking(&here, socket)).await.expect("it starts");
        let want = |lease: &'static str, rate: Rate| {
            let unix = here.unix();
            tokio::spawn(async move {
                let mut to = connect(&unix, None).await;
                call(&mut to, Method::PUT, &format!("/v1/leases/e/{lease}"), abroad(1, rate, rate)).await
            })
        };
        let first = want("1", 400);
        let answer = asks(&mut asked, 400).await;
        let second = want("2", 100);
        let mut other = connect(&here.unix(), None).await;
        becomes(&mut other, "wan:rt", (1_000, 500), Duration::from_secs(2)).await;
        answer.send(grants(400)).expect("it waits");
        asks(&mut asked, 500).await.send(grants(500)).expect("it waits");
        for (asked, rate) in [(first, 400), (second, 100)] {
            let (status, answer) = asked.await.expect("it does not panic");
            assert_eq!((status, &answer["granted"]["rate_bps"]), (200, &json!(rate)), "{answer}");
        }
        a.stop().await.expect("nothing failed");
    });
}

/// Another life of the domain speaks there: who waits here hears so at once, this time and the next.
#[test]
fn an_agreement_that_another_life_speaks_for_refuses_at_once() {
    let (here, there) = (Folder::new("deposed"), Folder::new("knows"));
    within(async {
        let mut asked = scripted(&there).await;
        let socket = format!("unix:{}", there.at("broker.sock").display());
        let a = Broker::start(asking(&here, socket)).await.expect("it starts");
        for version in 1..=2 {
            let (unix, since) = (here.unix(), Instant::now());
            let waits = tokio::spawn(async move {
                let mut to = connect(&unix, None).await;
                call(&mut to, Method::PUT, "/v1/leases/e/1", abroad(version, 400, 400)).await
            });
            if version == 1 {
                let newest = 9 << 32;
                let replaced = Verdict::Refused(Refusal::Stale { newest });
                asks(&mut asked, 400).await.send(replaced).expect("it waits");
            }
            let (status, answer) = waits.await.expect("it does not panic");
            assert_eq!((status, &answer["refused"]["why"]), (409, &json!("full")), "{answer}");
            assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
        }
        a.stop().await.expect("nothing failed");
    });
}

/// Of which nothing is wanted or held: nobody is called, and the task does not spin.
#[test]
fn an_agreement_that_is_idle_sleeps() {
    let (here, there) = (Folder::new("idle"), Folder::new("asleep"));
    within(async {
        let socket = format!("unix:{}", there.at("broker.sock").display());
        let listener = UnixListener::bind(there.at("broker.sock")).expect("it can be made");
        let config = asking(&here, socket);
        let agreement = config.agreements[0].clone();
        let a = Broker::start(config).await.expect("it starts");
        let mut task = Task::new(&agreement, "a", 1, a.keeper(), a.desk.clone()).expect("it can be made");
        task.reach();
        assert!(task.link.begins_in().is_some(), "it begins no session");
        assert_eq!(task.wait(a.keeper().now()), Duration::from_nanos(SECOND));
        tokio::time::timeout(SILENCE, listener.accept()).await.expect_err("nobody comes");
        let unix = here.unix();
        tokio::spawn(async move {
            let mut to = connect(&unix, None).await;
            call(&mut to, Method::PUT, "/v1/leases/e/1", abroad(1, 400, 400)).await
        });
        tokio::time::timeout(SILENCE, listener.accept()).await.expect("now it comes").expect("it is there");
        a.stop().await.expect("nothing failed");
    });
}

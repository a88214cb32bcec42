//! Beside a neighbour that answers as a test says.

use super::*;
use crate::Rate;

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
    serve(folder, Router::new().route("/v1/batch", post(batch)).route("/v1/events", get(no_events)));
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
        let (a, mut other) = start(&here, &there).await;
        let first = wants(&here, 1, abroad(1, 400, 400));
        let answer = asks(&mut asked, 400).await;
        let second = wants(&here, 2, abroad(1, 100, 100));
        becomes(&mut other, "wan:rt", (1_000, 500), Duration::from_secs(2)).await;
        answer.send(grants(400)).expect("it waits");
        asks(&mut asked, 500).await.send(grants(500)).expect("it waits");
        for (asked, rate) in [(first, 400), (second, 100)] {
            granted(asked.await.expect("it does not panic"), rate);
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
        let (a, _) = start(&here, &there).await;
        for version in 1..=2 {
            let since = Instant::now();
            let waits = wants(&here, 1, abroad(version, 400, 400));
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
        let listener = UnixListener::bind(there.at("broker.sock")).expect("it can be made");
        let config = asking(&here, socket(&there));
        let agreement = config.agreements[0].clone();
        let a = Broker::start(config).await.expect("it starts");
        let mut task = Task::new(&agreement, "a", 1, a.keeper(), a.desk.clone()).expect("it can be made");
        task.reach();
        assert!(task.link.begins_in().is_some(), "it begins no session");
        assert_eq!(task.wait(a.keeper().now()), Duration::from_nanos(SECOND));
        tokio::time::timeout(SILENCE, listener.accept()).await.expect_err("nobody comes");
        wants(&here, 1, abroad(1, 400, 400));
        tokio::time::timeout(SILENCE, listener.accept()).await.expect("now it comes").expect("it is there");
        a.stop().await.expect("nothing failed");
    });
}

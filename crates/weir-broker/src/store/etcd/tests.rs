//! What the store on etcd writes and reads, and whom it lets write. Tests with three nodes are in [`failover`].

mod failover;
mod tls;

use super::*;
use crate::store::tests::keeps_what_it_was_given;
use weir_text::Time;

/// Set where a process of these tests writes without the fence.
pub(super) const WITHOUT_FENCE: &str = "WEIR_TEST_WITHOUT_FENCE";

/// So that a test takes no longer than it must.
const SILENCE: Time = Time::from_secs(2);

/// Nodes of etcd. None, which is said, where it is not installed.
fn started(name: &str, count: usize) -> Option<Nodes> {
    // What is killed here is processes. On a disk that others use, etcd would mostly measure that.
    let memory = std::path::Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("weir-etcd-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let nodes = Nodes::start(&folder, count).expect("the folder for temporary files is writable");
    if nodes.is_none() {
        eprintln!("SKIPPED: etcd is not here: apt-get install etcd-server, or ETCD=/path/to/etcd");
    }
    nodes
}

fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(work)
}

async fn open(nodes: &Nodes, domain: &str) -> Etcd {
    Etcd::open(&nodes.cluster(SILENCE), domain, |_| {}).await.expect("etcd answers")
}

/// What `number` writes: a record, and a line of audit.
fn write(store: &mut Etcd, number: u64, record: &str) -> Result<(), StoreError> {
    let audit = format!("line {number}\n");
    let batch = Batch { number, record, first_line: number, audit: &audit, keep_from: 0, snapshot: None };
    store.commit(&batch)
}

fn records(store: &Etcd) -> Vec<String> {
    store.load().expect("etcd answers").records
}

#[test]
fn it_keeps_what_it_was_given() {
    let Some(nodes) = started("keeps", 1) else { return };
    within(async { keeps_what_it_was_given(open(&nodes, "a").await) });
}

/// Etcd has not heard the first one, so another one serves, while the first one believes that it does. Says what the
/// first one wrote after that, and what the log has.
fn deposed(without_fence: bool) -> Option<(Result<(), StoreError>, Vec<String>)> {
    let nodes = started(if without_fence { "unfenced" } else { "fenced" }, 1)?;
    Some(within(async {
        let mut first = open(&nodes, "a").await;
        first.without_fence = without_fence;
        write(&mut first, 1, "both").expect("it serves");
        let (mut way, lease) = (first.link.way.clone(), first.seat.lease);
        first.link.run(async move { way.lease.revoke(lease).await }).await.expect("etcd answers");
        let mut second = open(&nodes, "a").await;
        assert_eq!(records(&second), ["both"], "it goes on where the first one was");
        write(&mut second, 2, "the second's").expect("it serves");
        let wrote = write(&mut first, 2, "the first's");
        (wrote, records(&second))
    }))
}

#[test]
fn a_deposed_broker_writes_nothing() {
    let Some((wrote, log)) = deposed(false) else { return };
    let why = wrote.expect_err("another one serves").to_string();
    assert!(why.contains("serves now: start it again, to stand by"), "{why}");
    assert!(why.contains(&format!("process {}", std::process::id())), "{why}");
    assert_eq!(log, ["both", "the second's"]);
}

#[test]
fn without_the_fence_it_would() {
    let Some((wrote, log)) = deposed(true) else { return };
    assert_eq!((wrote, log), (Ok(()), vec!["both".into(), "the first's".into()]));
}

#[test]
fn a_commit_whose_answer_was_lost_is_carried_out_once() {
    let Some(nodes) = started("twice", 1) else { return };
    within(async {
        let mut store = open(&nodes, "a").await;
        write(&mut store, 1, "one").expect("it serves");
        let mark = Mark { number: 2, line: 2, whole: None };
        let put = |what: &str| {
            vec![
                TxnOp::put(store.keys.at("log", 2) + "/0", what, None),
                TxnOp::put(&*store.keys.newest, mark.text(), None),
            ]
        };
        let first = store.link.wait(store.transaction(put("two"), mark)).expect("it serves");
        // The store has not heard of it, and tries again.
        let second = store.link.wait(store.transaction(put("two again"), mark)).expect("it was carried out");
        assert!(second >= first);
        store.mark = mark;
        assert_eq!(records(&store), ["one", "two"]);
        // Whoever else writes there is not believed to be this one.
        let other = Mark { number: 3, line: 9, whole: None };
        let put = TxnOp::put(&*store.keys.newest, other.text(), None);
        store.link.wait(store.transaction(vec![put], other)).expect("it serves");
        let why = write(&mut store, 3, "three").expect_err("newest has changed").to_string();
        assert!(why.contains("another program wrote it"), "{why}");
    });
}

#[test]
fn what_is_longer_than_etcd_takes_is_written_in_pieces() {
    let Some(nodes) = started("pieces", 1) else { return };
    within(async {
        let mut store = open(&nodes, "a").await;
        // Letters of two bytes, so that a piece ends within one.
        let record = "x".to_owned() + &"ü".repeat(700_000);
        let audit: String = (1..=30_000).map(|line| format!("{line} {}\n", "y".repeat(100))).collect();
        let long =
            Batch { number: 1, record: &record, first_line: 1, audit: &audit, keep_from: 0, snapshot: None };
        store.commit(&long).expect("it serves");
        let short = Batch { number: 2, record: "short", first_line: 30_001, audit: "30001\n", ..long };
        store.commit(&short).expect("it serves");
        let before = store.load().expect("etcd answers");
        assert_eq!((before.newest, before.records), (2, vec![record.clone(), "short".to_owned()]));
        let found = store.audit(29_999, 9).expect("etcd answers");
        let lines: Vec<_> = found.iter().map(|line| line.split(' ').next().unwrap_or("")).collect();
        assert_eq!(lines, ["29999", "30000", "30001"]);
        assert_eq!(store.audit(0, usize::MAX).expect("etcd answers").len(), 30_001);
        let snapshot = vec![b'z'; 5_000_000];
        let (whole, first_line, keep_from) = (Some(&*snapshot), 30_002, 29_000);
        let whole = Batch { number: 3, first_line, audit: "end\n", keep_from, snapshot: whole, ..long };
        store.commit(&whole).expect("it serves");
        // Whoever comes next has the same.
        drop(store);
        let store = open(&nodes, "a").await;
        let after = store.load().expect("etcd answers");
        assert_eq!((after.newest, after.snapshot.as_deref()), (3, whole.snapshot));
        assert_eq!((after.records.len(), after.last_line.as_deref()), (0, Some("end")));
        let kept = store.audit(0, usize::MAX).expect("etcd answers");
        assert!((1_002..29_000).contains(&kept.len()), "older groups have gone: {} lines", kept.len());
    });
}

#[test]
fn what_was_left_half_written_does_not_count() {
    let Some(nodes) = started("half", 1) else { return };
    within(async {
        let mut store = open(&nodes, "a").await;
        write(&mut store, 1, "one").expect("it serves");
        let half = ["log", "audit", "whole"].map(|kind| TxnOp::put(store.keys.at(kind, 2), "half", None));
        store.link.wait(store.transaction(half.into(), store.mark)).expect("it serves");
        drop(store);
        let store = open(&nodes, "a").await;
        let loaded = store.load().expect("etcd answers");
        let (records, last_line) = (vec!["one".to_owned()], Some("line 1".to_owned()));
        assert_eq!(loaded, Loaded { newest: 1, snapshot: None, records, last_line });
        let (way, keys) = (store.link.way.clone(), store.keys.clone());
        let there = store.link.wait(async move {
            way.range(format!("{}/", keys.prefix), format!("{}/~", keys.prefix), |_| false).await
        });
        let there: Vec<String> = there
            .expect("etcd answers")
            .iter()
            .map(|kv| kv.key_str().expect("text").trim_start_matches("weir/a/").to_owned())
            .collect();
        let (log, audit) = (format!("log/{:020}/000000", 1), format!("audit/{:020}", 1));
        assert_eq!(there, [audit.as_str(), "leader", log.as_str(), "newest"]);
    });
}

#[test]
fn one_serves_a_domain_and_the_next_one_stands_by() {
    let Some(nodes) = started("standby", 1) else { return };
    within(async {
        let first = open(&nodes, "a").await;
        // Another domain is another matter.
        drop(open(&nodes, "b").await);
        let (told, heard) = std::sync::mpsc::channel();
        let cluster = nodes.cluster(SILENCE);
        let second = tokio::spawn(async move {
            Etcd::open(&cluster, "a", |why| told.send(why.to_owned()).expect("it is heard")).await
        });
        // Longer than etcd waits for who is silent: the first one is not.
        sleep(Duration::from_secs(4)).await;
        assert!(!second.is_finished(), "the first one serves");
        let why = heard.try_recv().expect("it says whom it waits for");
        assert!(why.ends_with("serves a") && why.contains("process"), "{why}");
        assert!(heard.try_recv().is_err(), "once");
        drop(first);
        // It said that it goes.
        timeout(Duration::from_millis(1_500), second)
            .await
            .expect("at once")
            .expect("it waits")
            .expect("it serves");
    });
}

#[test]
fn an_etcd_that_is_not_there_is_waited_for_and_one_that_goes_is_not_for_ever() {
    let Some(mut nodes) = started("gone", 1) else { return };
    within(async {
        nodes.kill(0);
        let said = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (cluster, hears) = (nodes.cluster(SILENCE), said.clone());
        let opened = tokio::spawn(async move {
            let waits = |why: &str| hears.lock().expect("no test holds it and fails").push(why.to_owned());
            Etcd::open(&cluster, "a", waits).await
        });
        while said.lock().expect("no test holds it and fails").is_empty() {
            sleep(LOOK).await;
        }
        let why = said.lock().expect("no test holds it and fails")[0].clone();
        assert!(why.starts_with("no answer from etcd: "), "{why}");
        nodes.wake(0).expect("it ran before");
        let mut store = opened.await.expect("no panic").expect("it is there");
        write(&mut store, 1, "one").expect("it serves");
        nodes.kill(0);
        let why = write(&mut store, 2, "two").expect_err("nobody answers").to_string();
        assert!(why.starts_with("etcd has not answered for 10 s: "), "{why}");
    });
}

//! Brokers and nodes of etcd that show each other certificates.

use super::{Nodes, SILENCE, records, within, write};
use crate::serve::tests::{Authority, Folder, uri};
use crate::store::Cluster;
use crate::store::etcd::Etcd;
use crate::store::etcd::link::{REFUSED, tls};
use etcd_client::TlsOptions;
use rcgen::SanType;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use weir_text::Time;

/// A node that shows this certificate, and lets in who shows one that `ca` signed. None, which is said, where etcd is not
/// installed.
fn node(name: &str, folder: &Folder, shown: (PathBuf, PathBuf)) -> Option<Nodes> {
    nodes(name, 1, folder, shown, None)
}

/// So many of them, which are asked how they are by `client`.
fn nodes(
    name: &str,
    count: usize,
    folder: &Folder,
    (cert, key): (PathBuf, PathBuf),
    client: Option<TlsOptions>,
) -> Option<Nodes> {
    let place = std::env::temp_dir().join(format!("weir-etcd-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    let ca = folder.at("ca.pem");
    let files = [("--cert-file", cert), ("--key-file", key), ("--trusted-ca-file", ca)];
    let mut tls = vec!["--client-cert-auth".to_owned()];
    tls.extend(files.map(|(option, file)| format!("{option}={}", file.display())));
    let nodes =
        Nodes::start_with(&place, count, tls, client).expect("the folder for temporary files is writable");
    if nodes.is_none() {
        eprintln!("SKIPPED: etcd is not here: apt-get install etcd-server, or ETCD=/path/to/etcd");
    }
    nodes
}

/// What a broker says while it waits: what is expected, or the last before 10 s are over.
async fn refused(cluster: &Cluster, expected: &str) -> String {
    let begun = Instant::now();
    let said = Arc::new(Mutex::new(String::new()));
    let (cluster, hears) = (cluster.clone(), said.clone());
    let opened = tokio::spawn(async move {
        let waits = |why: &str| why.clone_into(&mut hears.lock().expect("no test holds it and fails"));
        Etcd::open(&cluster, "a", waits).await.map(|_| ())
    });
    loop {
        sleep(Duration::from_millis(50)).await;
        let why = said.lock().expect("no test holds it and fails").clone();
        if opened.is_finished() {
            return opened.await.expect("no panic").expect_err("it is let in").to_string();
        }
        if why.contains(expected) || begun.elapsed() > Duration::from_secs(10) {
            opened.abort();
            return why;
        }
    }
}

#[test]
fn certificates_let_a_broker_in_and_others_do_not() {
    let folder = Folder::new("etcd-tls");
    let (authority, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    let loopback = || SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
    let Some(good) = node("tls-good", &folder, authority.sign(&folder, "node", loopback(), false)) else {
        return;
    };
    let ended = node("tls-ended", &folder, authority.sign(&folder, "ended", loopback(), true));
    let elsewhere = SanType::IpAddress(Ipv4Addr::new(192, 0, 2, 1).into());
    let elsewhere = node("tls-elsewhere", &folder, authority.sign(&folder, "elsewhere", elsewhere, false));
    let (ended, elsewhere) = (ended.expect("etcd is here"), elsewhere.expect("etcd is here"));
    let own = |signer: &Authority<'_>, file: &str, ended| {
        let (cert, key) = signer.sign(&folder, file, uri("weir:broker:a"), ended);
        (Some(cert), Some(key))
    };
    let cluster = |nodes: &Nodes, ca: &str, (cert, key): (Option<PathBuf>, Option<PathBuf>)| {
        let cluster = Cluster { ca: Some(folder.at(ca)), cert, key, ..nodes.cluster(SILENCE) };
        cluster.check().expect("it could work");
        cluster
    };
    let broker = own(&authority, "broker", false);
    within(async {
        let right = cluster(&good, "ca.pem", broker.clone());
        let mut store = Etcd::open(&right, "a", |_| {}).await.expect("it is let in");
        write(&mut store, 1, "one").expect("it serves");
        drop(store);
        for (what, cluster, expected) in [
            (
                "a node that another authority signed",
                cluster(&good, "other.pem", broker.clone()),
                "certificate: UnknownIssuer: expected a node whose certificate `ca` in [store] has signed",
            ),
            (
                "a node whose certificate has ended",
                cluster(&ended, "ca.pem", broker.clone()),
                ": the certificate of the node has ended: give etcd another",
            ),
            (
                "a node of another address",
                cluster(&elsewhere, "ca.pem", broker.clone()),
                ": the certificate of the node is for another address",
            ),
            ("no certificate", cluster(&good, "ca.pem", (None, None)), REFUSED),
            ("one of another authority", cluster(&good, "ca.pem", own(&other, "stranger", false)), REFUSED),
            ("one that has ended", cluster(&good, "ca.pem", own(&authority, "late", true)), REFUSED),
        ] {
            let why = refused(&cluster, expected).await;
            println!("{what}: {why}");
            assert!(why.contains(expected), "{what}: {why}");
        }
        let store = Etcd::open(&right, "a", |_| {}).await.expect("it is let in");
        assert_eq!(records(&store), ["one"], "what was refused has changed nothing");
    });
}

/// Three nodes that ask for certificates. The one that leads is killed again and again: the broker goes on at the others,
/// by TLS, and nothing that it wrote is lost. Whoever shows another certificate is refused by all of them.
#[test]
fn certificates_hold_at_three_nodes_whose_leader_is_killed() {
    let folder = Folder::new("etcd-tls-three");
    let (authority, other) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other"));
    let loopback = SanType::IpAddress(Ipv4Addr::LOCALHOST.into());
    let node = authority.sign(&folder, "node", loopback, false);
    let (cert, key) = authority.sign(&folder, "broker", uri("weir:broker:a"), false);
    let of = |ca: &str, cert: &PathBuf, key: &PathBuf| Cluster {
        ca: Some(folder.at(ca)),
        cert: Some(cert.clone()),
        key: Some(key.clone()),
        etcd: Vec::new(),
        // Longer than an election takes on a busy machine.
        silence: Time::from_secs(10),
    };
    let client = tls(&of("ca.pem", &cert, &key)).expect("the files are there");
    let Some(mut nodes) = nodes("tls-three", 3, &folder, node, client) else { return };
    let at = |nodes: &Nodes, cluster: Cluster| Cluster { etcd: nodes.cluster(SILENCE).etcd, ..cluster };
    within(async {
        nodes.settled().await;
        let right = at(&nodes, of("ca.pem", &cert, &key));
        right.check().expect("it could work");
        let mut store = Etcd::open(&right, "a", |_| {}).await.expect("it is let in");
        let mut written = Vec::new();
        for round in 0..3 {
            for when in ["before", "after"] {
                let text = format!("{when} {round}");
                write(&mut store, written.len() as u64 + 1, &text).expect("two of three are there");
                written.push(text);
                if when == "before" {
                    let leader = nodes.leader().await;
                    nodes.kill(leader);
                } else {
                    (0..3).filter(|&n| !nodes.runs(n)).collect::<Vec<_>>().into_iter().for_each(|n| {
                        nodes.wake(n).expect("it ran before");
                    });
                    nodes.settled().await;
                }
            }
        }
        drop(store);
        let (strange_cert, strange_key) = other.sign(&folder, "stranger", uri("weir:broker:a"), false);
        let why = refused(&at(&nodes, of("ca.pem", &strange_cert, &strange_key)), REFUSED).await;
        assert!(why.contains(REFUSED), "{why}");
        let expected = "expected a node whose certificate `ca` in [store] has signed";
        let why = refused(&at(&nodes, of("other.pem", &cert, &key)), expected).await;
        assert!(why.contains(expected), "{why}");
        let store = Etcd::open(&right, "a", |_| {}).await.expect("it is let in");
        assert_eq!(records(&store), written);
    });
}

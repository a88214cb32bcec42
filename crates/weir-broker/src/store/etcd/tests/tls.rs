//! Brokers and nodes of etcd that show each other certificates.

use super::{Nodes, SILENCE, records, within, write};
use crate::serve::tests::{Authority, Folder, uri};
use crate::store::Cluster;
use crate::store::etcd::Etcd;
use crate::store::etcd::link::REFUSED;
use rcgen::SanType;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A node that shows this certificate, and lets in who shows one that `ca` signed. None, which is said, where etcd is not
/// installed.
fn node(name: &str, folder: &Folder, (cert, key): (PathBuf, PathBuf)) -> Option<Nodes> {
    let place = std::env::temp_dir().join(format!("weir-etcd-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    let ca = folder.at("ca.pem");
    let files = [("--cert-file", cert), ("--key-file", key), ("--trusted-ca-file", ca)];
    let mut tls = vec!["--client-cert-auth".to_owned()];
    tls.extend(files.map(|(option, file)| format!("{option}={}", file.display())));
    let nodes = Nodes::start_with(&place, 1, tls).expect("the folder for temporary files is writable");
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

//! Two domains, each with a broker of its own and an edge: one leases to the other, and each is killed.

use crate::broker::{Link, OnLink, Process, token, until};
use crate::support::{Folder, weir};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_broker::Rate;
use weir_broker::client::{Broker, Client, Edge};
use weir_broker::holder::Terms;
use weir_broker::http::Target;

const CAPACITY: Rate = 1_000_000;
const TTL: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(10);

/// Writes the file of a broker, with a token for its edge. Says that, and where the broker listens.
fn file(folder: &Folder, domain: &str, edge: &str, more: &str) -> (String, String) {
    let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (token, lines) = token(&format!("t-{edge}"), &["--owner", edge]);
    let text = format!(
        "domain = \"{domain}\"\nstore = \"{domain}.redb\"\nunix = \"broker.sock\"\nhttp = \"{at}\"\n{more}\n{lines}"
    );
    folder.write("broker.toml", text);
    (token, at)
}

fn client(n: usize, path: &[&str], (token, at): (String, String), link: &Arc<Mutex<Link>>) -> Client {
    let terms = Terms {
        lease: format!("e{n}/rt").into(),
        path: path.iter().map(|&name| name.into()).collect(),
        ttl_ms: TTL.as_millis() as u32,
        epoch: 0,
        gap: 100_000_000,
        retry: 500_000_000,
    };
    let (broker, seed) = (Broker::Rest(Target::Plain(at)), n as u64);
    Client::start(Edge { broker, token: Some(token), leases: vec![terms], seed }, OnLink(n, link.clone()))
        .unwrap()
}

/// T38
#[test]
fn what_a_neighbour_leases_is_never_used_twice_when_either_broker_is_killed() {
    let (here, there) = (Folder::new(), Folder::new());
    let agreement = format!(
        "[[resource]]\nname = \"wan:rt\"\ncapacity = \"1M\"\n[[agreement]]\nresource = \"peer:rt\"\n\
         broker = \"unix:{}\"\npath = [\"core:rt\"]\nceiling = \"800k\"\nttl = \"3s\"\n",
        there.path("broker.sock")
    );
    let at_a = file(&here, "a", "e0", &agreement);
    let at_b = file(&there, "b", "e1", "[[resource]]\nname = \"core:rt\"\ncapacity = \"1M\"\n");
    weir(&["broker", "check", &here.path("broker.toml")]).ok();
    let (b, a) = (Process::start(&there), Process::start(&here));
    let link = Arc::new(Mutex::new(Link::default()));
    let e0 = client(0, &["wan:rt", "peer:rt"], at_a, &link);
    let e1 = client(1, &["core:rt"], at_b, &link);
    let have = |rates: [Rate; 2]| move |l: &Link| l.used[0].0 == rates[0] && l.used[1].0 == rates[1];

    e1.want("e1/rt", 600_000, 0);
    until("its own edge has what it wants", SOON, &link, have([0, 600_000]));
    e0.want("e0/rt", 400_000, 0);
    until("so has the neighbour's", SOON, &link, have([400_000, 600_000]));
    // Over there nothing is left. Once there is, it is asked for again.
    e0.want("e0/rt", 700_000, 0);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(link.lock().unwrap().used[0].0, 400_000);
    e1.want("e1/rt", 300_000, 0);
    until("what was given back is leased", SOON, &link, have([700_000, 300_000]));

    // Killed and started again at once: nobody loses anything.
    a.kill();
    let a = Process::start(&here);
    std::thread::sleep(TTL + Duration::from_secs(1));
    until("leases outlive the asking broker", SOON, &link, have([700_000, 300_000]));
    b.kill();
    let b = Process::start(&there);
    std::thread::sleep(TTL + Duration::from_secs(1));
    until("leases outlive the granting broker", SOON, &link, have([700_000, 300_000]));

    // Gone for longer: what depends on it ends, by the clock of each.
    b.kill();
    until("both have nothing", TTL + Duration::from_secs(1), &link, have([0, 0]));
    let taken = weir(&["broker", "resources", "--socket", &here.path("broker.sock")]).ok().out;
    assert!(taken.contains("wan:rt"), "{taken}");
    let b = Process::start(&there);
    until("both are back", Duration::from_secs(20), &link, have([700_000, 300_000]));

    // The asking broker has gone for longer: its neighbour's edge can have all.
    a.kill();
    until("its edge has nothing", TTL + Duration::from_secs(1), &link, |l| l.used[0].0 == 0);
    e1.want("e1/rt", CAPACITY, 0);
    until("the lease of its domain has ended", SOON, &link, have([0, CAPACITY]));
    let seen = link.lock().unwrap();
    assert!(seen.most <= CAPACITY, "{} bit/s were used of {CAPACITY}", seen.most);
    drop(seen);
    drop((e0, e1));
    b.kill();
    for (folder, store) in [(&here, "a.redb"), (&there, "b.redb")] {
        weir(&["broker", "audit", "--verify", "--store", &folder.path(store)]).ok();
    }
}

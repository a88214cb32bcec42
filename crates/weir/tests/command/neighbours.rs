//! Two domains, each with a broker of its own and an edge: one leases to the other, and each is killed.

use crate::bed::{Bed, Held, inside, mortal, namespace, possible, terminate};
use crate::broker::{Link, OnLink, Process, token, until};
use crate::calls::{Call, ready};
use crate::fail_open::{pause, within};
use crate::leases;
use crate::support::{Folder, WEIR, weir};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_broker::Rate;
use weir_broker::book::Refusal;
use weir_broker::client::{Broker, Client, Edge, Shaper};
use weir_broker::holder::{State, Terms};
use weir_broker::http::{HttpError, Target};
use weir_seed::{in_time, timed};

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
    Client::start(
        Edge { broker, token: Some(token), leases: vec![terms], sessions: None, seed },
        OnLink(n, link.clone()),
    )
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

/// What a message takes from the box to its broker, and from there to the neighbour's, each way.
const NEAR: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_millis(25);

/// How long bytes take from now on. Calls are evicted that wait for an answer for longer than their queue may drain.
struct Delay(AtomicU64);

impl Delay {
    fn new() -> Arc<Delay> {
        Arc::new(Delay(AtomicU64::new(0)))
    }
    fn set(&self, delay: Duration) {
        self.0.store(delay.as_micros() as u64, Ordering::SeqCst);
    }
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Carries bytes between two streams, each after a delay. It knows nothing of them.
fn delayed(mut from: TcpStream, mut to: TcpStream, delay: Arc<Delay>) {
    let (sender, receiver): (Sender<(Instant, Vec<u8>)>, _) = channel();
    std::thread::spawn(move || {
        for (came, bytes) in receiver {
            std::thread::sleep((came + delay.now()).saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let mut bytes = [0; 4_096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        if sender.send((Instant::now(), bytes[..n].to_vec())).is_err() {
            break;
        }
    }
}

/// A port of the loopback in a namespace that leads on to another, over a long way.
fn way(namespace: &Held, port: u16, to: &'static str) -> Arc<Delay> {
    let delay = Delay::new();
    let of_all = delay.clone();
    let (told, listens) = channel();
    within(namespace, move || {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        told.send(()).unwrap();
        for near in listener.incoming() {
            // The broker may be away.
            let (Ok(near), Ok(far)) = (near, TcpStream::connect(to)) else { continue };
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let (delay_forth, delay_back) = (of_all.clone(), of_all.clone());
            std::thread::spawn(move || delayed(near, forth, delay_forth));
            std::thread::spawn(move || delayed(far, back, delay_back));
        }
    });
    listens.recv().unwrap();
    delay
}

/// Says when a lease has which rate.
struct Times(Sender<(Instant, Rate)>);

impl Shaper for Times {
    fn shape(&mut self, _: &str, rate: Rate, _: State, _: Option<&Refusal>) {
        let _ = self.0.send((Instant::now(), rate));
    }
    fn broker(&mut self, _: Result<(), &HttpError>) {}
}

/// An edge in a namespace that asks at the loopback, and what it has when.
fn asks(
    namespace: &Held,
    folder: &Folder,
    edge: &str,
    port: u16,
    path: &[&str],
) -> (Client, Receiver<(Instant, Rate)>) {
    let of = |name: &str| folder.path(name);
    let (ca, cert, key) = (of("ca.pem"), of(&format!("{edge}.pem")), of(&format!("{edge}.key")));
    let terms = Terms {
        lease: format!("{edge}/far").into(),
        path: path.iter().map(|&name| name.into()).collect(),
        ttl_ms: 30_000,
        epoch: 0,
        gap: 1_000_000,
        retry: 500_000_000,
    };
    within(namespace, move || {
        let tls =
            weir_broker::tls::client(Path::new(&ca), Some((Path::new(&cert), Path::new(&key)))).unwrap();
        let broker = Broker::Rest(Target::Tls(format!("127.0.0.1:{port}"), tls));
        let (times, told) = channel();
        let edge = Edge { broker, token: None, leases: vec![terms], sessions: None, seed: 1 };
        (Client::start(edge, Times(times)).unwrap(), told)
    })
    .join()
    .unwrap()
}

/// How long a rise takes: the least of twenty, because what else the machine does only adds.
fn answer_time((client, told): &(Client, Receiver<(Instant, Rate)>), lease: &str) -> Duration {
    let mut times = Vec::new();
    for n in 0..21 {
        let rate = 10_000 + 1_000 * n;
        let begun = Instant::now();
        client.want(lease, rate, rate);
        let came = loop {
            let (at, has) = told.recv_timeout(SOON).unwrap();
            if has == rate {
                break at;
            }
        };
        // The first one has to connect.
        times.extend((n > 0).then(|| came - begun));
        // A broker asks its neighbour at most so often.
        pause(200);
    }
    times.into_iter().min().unwrap()
}

/// Two domains, each with a broker and a box in namespaces of their own, by TLS throughout. The box of the one uses what
/// the other leases; neither has it twice. A link between the brokers that is cut ends that, and no more than that. Six
/// messages take as long as those of each hop alone, because the first broker asks while it writes.
// Claim T38.
#[test]
fn two_domains_in_namespaces_lease_over_tls() {
    if !possible("the test of two domains") {
        return;
    }
    timed(|| {
        let (folder, here, there) = (Folder::new(), Folder::new(), Folder::new());
        leases::certificates(
            &folder,
            &[
                ("a", vec![leases::at([10, 9, 0, 1]), leases::at([127, 0, 0, 1]), leases::named("a")]),
                ("b", vec![leases::at([10, 9, 1, 1]), leases::at([127, 0, 0, 1])]),
                ("e0", vec![leases::named("e0")]),
                ("e1", vec![leases::named("e1")]),
                ("e2", vec![leases::named("e2")]),
            ],
        );
        let of = |name: &str| folder.path(name);
        let start = |namespace: &Held, domain: &str, own: &Folder, more: &str| {
            let files = format!(
                "cert = {:?}\nkey = {:?}\nca = {:?}\n",
                of(&format!("{domain}.pem")),
                of(&format!("{domain}.key")),
                of("ca.pem")
            );
            let text = format!(
                "domain = \"{domain}\"\nstore = \"{domain}.redb\"\nunix = \"broker.sock\"\npriority = \"fifo\"\n[tls]\nlisten = \"0.0.0.0:7443\"\n{files}{}",
                more.replace("FILES", &files)
            );
            own.write("broker.toml", text);
            let mut command = mortal("nsenter");
            command.args(["-t", &namespace.pid(), "-n", WEIR]);
            Process::by(command, own)
        };
        let sites = [namespace(), namespace()];
        let beds = [Bed::new(1), Bed::new(1)];
        for (n, (site, bed)) in sites.iter().zip(&beds).enumerate() {
            inside(site, "ip link set lo up");
            leases::link(site, bed, n);
        }
        let peer = format!("peer name wire netns {}", sites[1].pid());
        inside(
            &sites[0],
            &format!(
                "ip link add wire type veth {peer}; ip addr add 10.8.0.1/24 dev wire; ip link set wire up"
            ),
        );
        inside(&sites[1], "ip addr add 10.8.0.2/24 dev wire; ip link set wire up");
        let far_way = way(&sites[0], 7444, "10.8.0.2:7443");
        let near_way = way(&beds[0].boxed, 7445, "10.9.0.1:7443");
        let _b = start(
            &sites[1],
            "b",
            &there,
            "[[resource]]\nname = \"right0:rt\"\ncapacity = \"700k\"\n[[resource]]\nname = \"for-a:rt\"\ncapacity = \"600k\"\n\
             [[neighbour]]\ndomain = \"a\"\nthrough = \"for-a:rt\"\n",
        );
        let _a = start(
            &sites[0],
            "a",
            &here,
            "[[resource]]\nname = \"own:rt\"\ncapacity = \"1M\"\n[[agreement]]\nresource = \"right0:rt\"\nbroker = \"https://127.0.0.1:7444\"\n\
             path = [\"right0:rt\", \"for-a:rt\"]\nceiling = \"600k\"\nttl = \"3s\"\nFILES",
        );
        let boxes: Vec<Held> = (beds.iter().enumerate())
            .map(|(n, bed)| {
                let line = leases::door(&format!("https://10.9.{n}.1:7443"), &folder, &format!("e{n}"));
                let up = bed.up(&[&bed.folder.write("a.altq", leases::conf(&line))]);
                ready(bed);
                up
            })
            .collect();
        let taken = |own: &Folder, resource: &str| {
            let all = weir(&["broker", "resources", "-j", "--socket", &own.path("broker.sock")]).ok().json();
            let all = all["resources"].as_array().unwrap().clone();
            all.iter().find(|r| r["resource"] == resource).map_or(0, |r| r["taken_bps"].as_u64().unwrap())
        };
        let above = |bed: &Bed| leases::allocated(bed) - leases::FROM;
        let calls: Vec<Call> = beds.iter().flat_map(|bed| leases::calls(bed, 1)).collect();
        // The neighbour's account has both, and the own one what it leases.
        let agree = || {
            let [first, second] = [&beds[0], &beds[1]].map(above);
            let accounts = [taken(&there, "right0:rt"), taken(&there, "for-a:rt"), taken(&here, "right0:rt")];
            first > 0 && second > 0 && accounts == [first + second, first, first]
        };
        leases::wait("both leases in all accounts", agree);

        // The link between the brokers is cut: what was leased over it ends on both sides.
        inside(&sites[0], "ip link set wire down");
        let cut = Instant::now();
        leases::wait("the end of the lease", || above(&beds[0]) == 0);
        in_time!(cut.elapsed() <= leases::TTL + Duration::from_secs(2), "{:?}", cut.elapsed());
        leases::wait("its end over there", || taken(&there, "for-a:rt") == 0);
        assert_eq!(leases::lease(&beds[1])["state"], "LEASED", "that of the other box goes on");
        inside(&sites[0], "ip link set wire up");
        calls.into_iter().for_each(|call| _ = call.end());
        // Those of before may have been evicted.
        let calls: Vec<Call> = beds.iter().flat_map(|bed| leases::calls(bed, 11)).collect();
        leases::wait("both leases again", agree);
        calls.into_iter().for_each(|call| _ = call.end());
        boxes.into_iter().for_each(|up| _ = terminate(up).ok());
        leases::wait("what was given back", || taken(&there, "right0:rt") == 0);

        // How long an answer takes: by each hop alone, and by both.
        near_way.set(NEAR);
        far_way.set(FAR);
        let near = asks(&beds[0].boxed, &folder, "e2", 7445, &["own:rt"]);
        let near_time = answer_time(&near, "e2/far");
        drop(near);
        let far = asks(&sites[0], &folder, "e1", 7444, &["right0:rt"]);
        let far_time = answer_time(&far, "e1/far");
        drop(far);
        let both = asks(&beds[0].boxed, &folder, "e0", 7445, &["right0:rt"]);
        let time = answer_time(&both, "e0/far");
        drop(both);
        println!("an answer takes {near_time:?}, {far_time:?} and, over both, {time:?}");
        assert!(near_time >= 2 * NEAR && far_time >= 2 * FAR, "{near_time:?} {far_time:?}");
        // What the first broker writes while it asks is in the sum, and passes here while the bytes are on their way.
        let (sum, most) = (near_time + far_time, Duration::from_millis(1));
        assert!(time >= 2 * (NEAR + FAR), "{time:?}");
        in_time!(time <= sum + most, "{time:?} and not {sum:?}");
    });
}

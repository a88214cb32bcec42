//! Boxes that lease their bandwidth from a broker in another process: three `weir up` with calls of their own, and a
//! `weir broker run` that each reaches by a link of its own, with certificates on both sides.

use crate::bed::{Bed, Held, ended, inside, mortal, namespace, possible, terminate};
use crate::broker::{Process, stepped};
use crate::calls::{Call, class, documented, ready};
use crate::fail_open::pause;
use crate::support::{Folder, WEIR, weir};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_seed::{in_time, timed};

const BOXES: usize = 3;
/// What a class has by itself, and what the broker gives away to all classes, bit/s.
pub(crate) const FROM: u64 = 100_000;
const CAPACITY: u64 = 1_000_000;
/// What four calls have at least, bit/s: they take 380 kbit/s, and a class of `from` alone has a quarter.
const ENOUGH: u64 = 330_000;
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The file of a box whose class asks the broker.
pub(crate) fn conf(broker: &str) -> String {
    format!(
        "\
broker core {broker} ttl {}s
interface left0 bandwidth 100M fifoq
interface right0 bandwidth 10M attach bridge left0 hfsc
class hfsc right0 rt root qlimit 1000 [ls 0 0 8M] [ul 0 0 1M]
class hfsc right0 be root [ls 0 0 2M] default
filter right0 rt 0 0 0 0 0 dscp EF
recognise left0 rtp 4/2s
sla left0 17 10.0.0.0/24 bw 800K shared 100 policy be timeout 2s
allocate right0 rt law log gain 300K target 90 step 20K window 400ms 5 congestion 40ms guard 800ms from 100K to 800K retry 1s broker core
",
        TTL.as_secs()
    )
}

/// The broker's file, but for where it listens besides its socket.
fn broker_file(folder: &Folder, more: &str) {
    let resource = format!("[[resource]]\nname = \"right0:rt\"\ncapacity = \"{CAPACITY}\"\n");
    folder.write(
        "broker.toml",
        format!("domain = \"core\"\nstore = \"core.redb\"\nunix = \"broker.sock\"\n{more}{resource}"),
    );
}

pub(crate) fn allocated(bed: &Bed) -> u64 {
    class(bed)["allocator"]["allocated_bps"].as_u64().unwrap()
}

/// The lease of a box's class.
pub(crate) fn lease(bed: &Bed) -> Value {
    bed.ask(&["leases", "-j"]).ok().json()["leases"][0].clone()
}

fn reached(bed: &Bed) -> bool {
    bed.ask(&["status", "-j"]).json()["brokers"][0]["reached"]["now"] == true
}

/// Holds what all classes have above `from` together against the capacity, as often as nothing moves between two
/// looks: how often, and the most that was seen.
fn watch(beds: &Arc<Vec<Bed>>, stop: &Arc<AtomicBool>) -> JoinHandle<(u64, u64)> {
    let (beds, stop) = (beds.clone(), stop.clone());
    std::thread::spawn(move || {
        let above = || beds.iter().map(|bed| allocated(bed) - FROM).collect::<Vec<u64>>();
        let (mut before, mut looks, mut most) = (above(), 0, 0);
        while !stop.load(Ordering::Relaxed) {
            let now = above();
            if now == before {
                let sum = now.iter().sum();
                assert!(sum <= CAPACITY, "{now:?} of {CAPACITY}");
                (looks, most) = (looks + 1, most.max(sum));
            }
            before = now;
        }
        (looks, most)
    })
}

/// Waits for what a busy machine may be too slow for.
pub(crate) fn wait(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        in_time!(start.elapsed() < Duration::from_secs(20), "{what} did not come");
        pause(20);
    }
}

/// A class has enough for its four calls.
fn has_enough(bed: &Bed) -> bool {
    allocated(bed) > ENOUGH
}

/// A certificate authority, and certificates for these names in files of these names.
pub(crate) fn certificates(folder: &Folder, all: &[(&str, Vec<SanType>)]) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    folder.write("ca.pem", ca.pem());
    for (file, names) in all {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names.clone();
        let key = KeyPair::generate().unwrap();
        folder.write(&format!("{file}.pem"), params.signed_by(&key, &ca).unwrap().pem());
        folder.write(&format!("{file}.key"), key.serialize_pem());
    }
}

/// The name of an edge, or of a domain to its neighbours.
pub(crate) fn named(edge: &str) -> SanType {
    SanType::URI(format!("weir:edge:{edge}").try_into().unwrap())
}

pub(crate) fn at(address: [u8; 4]) -> SanType {
    SanType::IpAddress(address.into())
}

/// Where a box asks that shows its certificate, in its file.
pub(crate) fn door(address: &str, folder: &Folder, edge: &str) -> String {
    let of = |name: &str| folder.path(name);
    format!(
        "{address} ca {} cert {} key {}",
        of("ca.pem"),
        of(&format!("{edge}.pem")),
        of(&format!("{edge}.key"))
    )
}

/// A link between a broker's namespace and a box, 10.9.`n`.1 and 10.9.`n`.2.
pub(crate) fn link(site: &Held, bed: &Bed, n: usize) {
    let peer = format!("peer name core0 netns {}", bed.boxed.pid());
    inside(
        site,
        &format!(
            "ip link add m{n} type veth {peer}; ip addr add 10.9.{n}.1/24 dev m{n}; ip link set m{n} up"
        ),
    );
    inside(
        &bed.boxed,
        &format!("ip link set lo up; ip addr add 10.9.{n}.2/24 dev core0; ip link set core0 up"),
    );
}

/// Four calls of a box, 95 kbit/s each on the wire.
pub(crate) fn calls(bed: &Bed, first: u16) -> Vec<Call> {
    (first..first + 4).map(|number| Call::start(bed, number, "10.0.0.1")).collect()
}

/// Says `order` of each of these calls of a box, once it is known there.
fn order(bed: &Bed, order: &str, first: u16) {
    for number in first..first + 4 {
        let flow = format!("udp 10.0.0.1:{} > 10.0.0.2:{}", 4_000 + number, 6_000 + number);
        wait("a call", || bed.ask(&["flow", order, &flow]).code == 0);
    }
}

/// Such calls of all boxes, which nobody evicts. The queues of classes that begin with a quarter of what their calls need may
/// ask for more than there is, all at once. Those that are refused would evict calls, and need less from then on.
fn pinned(beds: &[Bed], first: u16) -> Vec<Call> {
    let began = beds.iter().flat_map(|bed| calls(bed, first)).collect();
    beds.iter().for_each(|bed| order(bed, "pin", first));
    began
}

/// One box and its broker by a Unix socket: the lease is shown, renewed, carried over to another process, and given
/// back in the end.
// Claim L82.
#[test]
fn a_box_leases_from_a_broker_beside_it() {
    if !possible("the test of a box that leases") {
        return;
    }
    timed(|| {
        let (folder, bed) = (Folder::new(), Bed::new(1));
        broker_file(&folder, "");
        let socket = folder.path("broker.sock");
        let file = bed.folder.write("a.altq", conf(&format!("unix:{socket} edge e0")));
        // Without its broker the class has its `from`, and the box goes on.
        let first = bed.up(&[&file]);
        ready(&bed);
        let began = calls(&bed, 1);
        pause(1_500);
        assert_eq!((allocated(&bed), reached(&bed)), (FROM, false));
        let text = bed.ask(&["status"]).out;
        assert!(text.contains("broker core UNREACHABLE at ") && text.contains("broker.sock"), "{text}");
        let _broker = Process::by(mortal(WEIR), &folder);
        wait("the lease", || allocated(&bed) > FROM);
        for call in began {
            call.end();
        }
        pause(2_500);
        let began = calls(&bed, 11);
        wait("the allocation", || has_enough(&bed));
        let shown = bed.ask(&["leases", "-j"]).ok().json();
        documented("weir leases -j", &shown);
        let lease_now = &shown["leases"][0];
        assert_eq!(
            (&lease_now["lease"], &lease_now["state"]),
            (&"e0/right0/rt".into(), &"LEASED".into()),
            "{shown}"
        );
        assert_eq!(lease_now["path"][0], "right0:rt");
        let text = bed.ask(&["leases"]).ok().out;
        assert!(text.contains("e0/right0/rt") && text.contains("LEASED"), "{text}");
        let report = bed.ask(&["status", "-j"]).json();
        documented("weir status -j", &report);
        documented("weir stats -j", &bed.ask(&["stats", "-j"]).ok().json());
        assert!(bed.ask(&["status"]).out.contains("broker core REACHABLE at "), "{report}");
        // Renewed, and not a bit less.
        pause(TTL.as_millis() as u64 + 500);
        in_time!(has_enough(&bed), "{} a lease later", allocated(&bed));
        let granted = |lease: &str| {
            let all = weir(&["broker", "leases", "-j", "--socket", &socket]).ok().json();
            let all = all["leases"].as_array().unwrap().clone();
            all.iter().find(|l| l["lease"] == lease).map_or(0, |l| l["granted_bps"].as_u64().unwrap())
        };
        wait("the sum", || granted("e0/right0/rt") == allocated(&bed) - FROM);

        // Another process takes over, and speaks for the lease from then on.
        let second = bed.begin(&[&file, "--takeover"]);
        ended(first).ok();
        in_time!(has_enough(&bed), "{} after the takeover", allocated(&bed));
        pause(TTL.as_millis() as u64 + 500);
        in_time!(has_enough(&bed), "{} a lease later", allocated(&bed));
        assert_eq!(lease(&bed)["state"], "LEASED");
        for call in began.into_iter().map(Call::end) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        }

        // Another broker in the file: the lease is given back at this one, and the class asks there.
        let local = conf("local 8M").replace(&format!(" ttl {}s", TTL.as_secs()), "");
        bed.ask(&["apply", &bed.folder.write("b.altq", local)]).ok();
        wait("the way back", || granted("e0/right0/rt") == 0);
        let began = calls(&bed, 21);
        wait("the local broker", || bed.ask(&["stats", "-j"]).ok().json()["brokers"][0]["held_bps"] != 0);
        bed.ask(&["apply", &file]).ok();
        wait("the lease again", || granted("e0/right0/rt") > 0);
        began.into_iter().for_each(|call| _ = call.end());
        // A file that cannot be read changes nothing.
        let bad = bed.folder.write("c.altq", conf(&format!("unix:{socket} edge e0 token /nowhere/token")));
        bed.ask(&["apply", &bad]).fails(2, &["broker core: /nowhere/token: ", "`weir up --takeover`"]);
        terminate(second).ok();
        assert_eq!(granted("e0/right0/rt"), 0, "given back at the end");
    });
}

/// The wall clocks of a box and of its broker go on by an hour and back by two: calls, flows, the lease and what the class
/// has do not notice.
// Claim L82.
#[test]
fn a_box_and_its_lease_survive_a_step_of_the_wall_clock() {
    if !possible("the test of a box whose clock is set") {
        return;
    }
    let (folder, bed) = (Folder::new(), Bed::new(1));
    let set = |offset: &str| [folder.write("clock", offset), bed.folder.write("clock", offset)];
    let [of_broker, of_box] = set("+0s\n");
    let (Some(of_broker), Some(of_box)) = (stepped(of_broker), stepped(of_box)) else { return };
    timed(|| {
        set("+0s\n");
        broker_file(&folder, "");
        let socket = folder.path("broker.sock");
        let broker = Process::start_with(&folder, &of_broker);
        let file = bed.folder.write("a.altq", conf(&format!("unix:{socket} edge e0")));
        let environment = of_box.each_ref().map(|(name, value)| format!("{name}={value}"));
        let command: Vec<&str> =
            ["env"].into_iter().chain(environment.iter().map(String::as_str)).chain([WEIR]).collect();
        let up = bed.up_by(&command, &[&file]);
        ready(&bed);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", up.pid())).unwrap();
        assert!(maps.contains("libfaketimeMT"), "its clock is not set");
        let began = calls(&bed, 1);
        wait("the allocation", || has_enough(&bed));
        let flows = class(&bed)["flows"].clone();
        for offset in ["+3600s\n", "-3600s\n"] {
            set(offset);
            pause(2 * TTL.as_millis() as u64);
            in_time!(has_enough(&bed), "{} with a clock at {offset}", allocated(&bed));
            assert_eq!((&lease(&bed)["state"], &class(&bed)["flows"]), (&"LEASED".into(), &flows));
        }
        for call in began.into_iter().map(Call::end) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        }
        terminate(up).ok();
        broker.kill();
    });
}

/// Three boxes, one broker that is killed, and a link that is cut. Calls go on; nobody has more than it leases, in no
/// sample; what is back is heard within 5 s.
// Claim L83.
#[test]
fn three_boxes_share_a_broker_that_is_killed_and_cut_off() {
    if !possible("the test of boxes and a broker") {
        return;
    }
    timed(|| {
        let folder = Folder::new();
        let addresses = (0..BOXES).map(|n| at([10, 9, n as u8, 1])).collect();
        let boxes = [("e0", vec![named("e0")]), ("e1", vec![named("e1")]), ("e2", vec![named("e2")])];
        certificates(&folder, &[vec![("broker", addresses)], boxes.to_vec()].concat());
        let files = ["cert", "key", "ca"].map(|what| {
            let name = if what == "ca" {
                "ca.pem".into()
            } else {
                format!("broker.{}", if what == "cert" { "pem" } else { "key" })
            };
            format!("{what} = \"{name}\"\n")
        });
        broker_file(&folder, "cops = \"0.0.0.0:3183\"\n");
        let text = folder.read("broker.toml");
        folder.write("broker.toml", format!("{text}[tls]\nlisten = \"0.0.0.0:7443\"\n{}", files.concat()));
        let site = namespace();
        inside(&site, "ip link set lo up");
        let beds: Arc<Vec<Bed>> = Arc::new((0..BOXES).map(|_| Bed::new(1)).collect());
        let start = || {
            let mut command = mortal("nsenter");
            command.args(["-t", &site.pid(), "-n", WEIR]);
            Process::by(command, &folder)
        };
        let broker = start();
        let mut boxes: Vec<Held> = Vec::new();
        for (n, bed) in beds.iter().enumerate() {
            link(&site, bed, n);
            // The last one speaks COPS.
            let address =
                if n + 1 < BOXES { format!("https://10.9.{n}.1:7443") } else { format!("cops 10.9.{n}.1") };
            let line = door(&address, &folder, &format!("e{n}"));
            boxes.push(bed.up(&[&bed.folder.write("a.altq", conf(&line))]));
            ready(bed);
        }
        let socket = folder.path("broker.sock");
        let taken = || {
            let all = weir(&["broker", "resources", "-j", "--socket", &socket]).ok().json();
            all["resources"][0]["taken_bps"].as_u64().unwrap()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let watched = watch(&beds, &stop);
        let began = pinned(&beds, 1);
        wait("all allocations", || beds.iter().all(has_enough));
        in_time!(taken() > 3 * (ENOUGH - FROM), "{}", taken());

        // Killed and started again at once: nobody loses anything.
        broker.kill();
        let broker = start();
        pause(TTL.as_millis() as u64 + 1_000);
        in_time!(beds.iter().all(has_enough), "{:?}", beds.iter().map(allocated).collect::<Vec<_>>());
        for call in began.into_iter().map(Call::end) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
        }

        // Gone for longer: each class comes down to its `from` by its own clock, and calls go on as they can.
        let began = pinned(&beds, 11);
        wait("new allocations", || beds.iter().all(has_enough));
        beds.iter().for_each(|bed| order(bed, "unpin", 11));
        broker.kill();
        let killed = Instant::now();
        let orphaned =
            |bed: &Bed| allocated(bed) == FROM && lease(bed)["state"] == "ORPHANED" && !reached(bed);
        wait("all orphaned", || beds.iter().all(orphaned));
        in_time!(killed.elapsed() <= TTL + Duration::from_secs(1), "{:?}", killed.elapsed());
        pause(2_000);
        let broker = start();
        let back = Instant::now();
        wait("all reached", || beds.iter().all(reached));
        println!("reached {:?} after the broker is back", back.elapsed());
        in_time!(back.elapsed() <= Duration::from_secs(5), "{:?}", back.elapsed());
        for call in began.into_iter().map(Call::end) {
            in_time!(
                10 * call.lost() <= call.sent,
                "nothing else is on the link: {} of {}",
                call.lost(),
                call.sent
            );
        }
        pause(2_500);

        // The link of one is cut: the others go on, and can have what it gave up.
        let began = pinned(&beds, 21);
        wait("allocations once more", || beds.iter().all(has_enough));
        inside(&site, "ip link set m1 down");
        wait("the one cut off", || allocated(&beds[1]) == FROM);
        in_time!(has_enough(&beds[0]) && has_enough(&beds[2]));
        wait("what it had", || taken() <= CAPACITY - (ENOUGH - FROM));
        inside(&site, "ip link set m1 up; ip addr replace 10.9.1.1/24 dev m1");
        let healed = Instant::now();
        wait("the one that is back", || reached(&beds[1]));
        println!("reached {:?} after the cut", healed.elapsed());
        in_time!(healed.elapsed() <= Duration::from_secs(5), "{:?}", healed.elapsed());
        began.into_iter().for_each(|call| _ = call.end());
        stop.store(true, Ordering::Relaxed);
        let (looks, most) = watched.join().unwrap();
        println!("{looks} looks at all three, at most {most} of {CAPACITY} bit/s");
        assert!(looks > 50 && most > 3 * (ENOUGH - FROM), "{looks}, {most}");
        boxes.into_iter().for_each(|up| _ = terminate(up).ok());
        assert_eq!(taken(), 0, "all is given back");
        drop(broker);
    });
}

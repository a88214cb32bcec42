//! Applications begin and end sessions all the time, while files change and while the box and its broker are killed: what is in
//! effect in the end is what the broker says, and it counts no more than that.

use crate::bed::{Bed, Held, mortal, possible, terminate};
use crate::broker::Process;
use crate::calls::{Call, class, ready};
use crate::fail_open::pause;
use crate::leases::{FROM, allocated, conf, wait};
use crate::sessions::{QOD, RATE, answered, asked, broker_file, burst, http};
use crate::support::{Folder, WEIR, weir};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use weir_core::Random;
use weir_seed::{in_time, timed};

/// Ports of sessions: as many may be open at once.
const PORTS: std::ops::Range<u16> = 7_001..7_009;

/// Open sessions by their ports, as far as the broker has said so. None: it was asked, and has not answered.
type Open = BTreeMap<u16, Option<String>>;

/// A box and its broker, and what an application knows of its sessions.
struct World {
    folder: Folder,
    bed: Bed,
    socket: String,
    file: String,
    open: Mutex<Open>,
    /// Identifiers of sessions whose end was answered.
    ended: Mutex<BTreeSet<String>>,
}

impl World {
    fn new() -> World {
        let (folder, bed) = (Folder::new(), Bed::new(1));
        broker_file(&folder, 10_000_000);
        let socket = folder.path("broker.sock");
        let file = bed.folder.write("a.altq", conf(&format!("unix:{socket} edge e0")));
        World { folder, bed, socket, file, open: Mutex::default(), ended: Mutex::default() }
    }

    fn broker(&self) -> Process {
        Process::by(mortal(WEIR), &self.folder)
    }

    /// Begins or ends one session.
    fn step(&self, random: &mut Random) {
        let port = PORTS.start + random.below(PORTS.len() as u64) as u16;
        let mut open = self.open.lock().unwrap();
        match open.get(&port) {
            Some(None) => {}
            Some(Some(id)) => {
                let done = answered(&self.socket, "DELETE", &format!("{QOD}/{id}"), &Value::Null);
                let Some((status, said)) = done else {
                    open.insert(port, None);
                    return;
                };
                assert!(status == 204, "{status} {said}");
                self.ended.lock().unwrap().insert(id.clone());
                open.remove(&port);
            }
            None => match answered(&self.socket, "POST", QOD, &asked(port, 600)) {
                Some((201, session)) => {
                    open.insert(port, Some(session["sessionId"].as_str().unwrap().to_owned()));
                }
                // The box has not come down yet from the one before.
                Some((409, said)) => assert_eq!(said["code"], "CONFLICT", "{said}"),
                Some((status, said)) => panic!("{status} {said}"),
                None => _ = open.insert(port, None),
            },
        }
    }

    /// Steps in a thread of their own until told otherwise: how many.
    fn storm(self: &Arc<Self>, seed: u64, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u32> {
        let (world, stop) = (self.clone(), stop.clone());
        std::thread::spawn(move || {
            let (mut random, mut steps) = (Random::new(seed), 0);
            while !stop.load(Ordering::Relaxed) {
                world.step(&mut random);
                steps += 1;
                pause(random.below(40));
            }
            steps
        })
    }

    /// The identifiers of the sessions that the broker has, each with how it stands.
    fn known(&self) -> BTreeMap<String, String> {
        let device = json!({"device": asked(0, 1)["device"]});
        let (status, all) = http(&self.socket, "POST", "/quality-on-demand/v1/retrieve-sessions", &device);
        assert_eq!(status, 200, "{all}");
        let text = |session: &Value, what: &str| session[what].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(|s| (text(s, "sessionId"), text(s, "qosStatus"))).collect()
    }

    fn taken(&self) -> u64 {
        let (_, all) = http(&self.socket, "GET", "/v1/resources", &Value::Null);
        all["resources"][0]["taken_bps"].as_u64().unwrap()
    }

    /// What each answer said is so. What was not answered may be either. All that the broker has is in effect, its class has it,
    /// and the broker counts that and the lease of the class.
    fn is_right(&self, what: &str) {
        wait(what, || self.known().values().all(|status| status == "AVAILABLE"));
        let known: BTreeSet<String> = self.known().into_keys().collect();
        let mut open = self.open.lock().unwrap();
        let told: BTreeSet<String> = open.values().flatten().cloned().collect();
        assert!(told.is_subset(&known), "{what}: {told:?} of {known:?}");
        assert!(known.is_disjoint(&self.ended.lock().unwrap()), "{what}: {known:?}");
        assert!(known.len() <= open.len(), "{what}: {known:?} of {open:?}");
        let sum = RATE * known.len() as u64;
        wait(what, || class(&self.bed)["sessions_bps"] == sum);
        let flows = self.bed.ask(&["flows", "-j"]).ok().json()["flows"].as_array().unwrap().clone();
        assert_eq!(flows.iter().filter(|flow| flow["kind"] == "session").count(), known.len(), "{what}");
        wait(what, || self.taken() == sum + allocated(&self.bed) - FROM);
        for (port, told) in std::mem::take(&mut *open) {
            let is_open = told.as_ref().is_some_and(|id| known.contains(id));
            if told.is_some() {
                assert_eq!(burst(&self.bed, port), (20, if is_open { 20 } else { 0 }), "{what}: {port}");
            }
        }
        for id in known {
            let (status, _) = http(&self.socket, "DELETE", &format!("{QOD}/{id}"), &Value::Null);
            assert_eq!(status, 204, "{what}");
            self.ended.lock().unwrap().insert(id);
        }
        wait(what, || class(&self.bed)["sessions_bps"] == 0 && self.known().is_empty());
    }
}

/// Descriptors and threads of a process.
fn holds(pid: u32) -> [usize; 2] {
    ["fd", "task"].map(|what| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count())
}

/// Sessions come and go while one file after another is applied, beside calls whose class asks its broker: calls lose nothing, what
/// is in effect in the end is what the broker says, and neither process holds more than before.
// Claim L95.
#[test]
fn sessions_come_and_go_while_files_change() {
    if !possible("the test of sessions beside changes") {
        return;
    }
    let seed = weir_seed::seed();
    timed(|| {
        let world = Arc::new(World::new());
        let broker = world.broker();
        let up = world.bed.up(&[&world.file]);
        ready(&world.bed);
        let calls: Vec<Call> = (1..=3).map(|n| Call::start(&world.bed, n, "10.0.0.1")).collect();
        wait("the calls", || class(&world.bed)["flows"]["now"] == 3);
        let text = std::fs::read_to_string(&world.file).unwrap();
        let other = text.replace("bw 800K", "bw 700K").replace("[ls 0 0 2M]", "[ls 0 0 1M]");
        let other = other + "class hfsc right0 more root [ls 0 0 1M]\nsla left0 18 10.8.0.0/16 bw 1M\n";
        let files = [world.file.clone(), world.bed.folder.write("b.altq", other)];
        // What is taken once has been taken.
        let apply = |n: u64| world.bed.ask(&["apply", &files[(n % 2) as usize]]).ok();
        (1..=2).for_each(|n| _ = apply(n));
        let stop = Arc::new(AtomicBool::new(false));
        let storm = world.storm(seed, &stop);
        pause(500);
        let before = [holds(broker.pid()), holds(up.0.id())];
        let applies = weir_seed::effort(40);
        (1..=applies).for_each(|n| _ = apply(n));
        stop.store(true, Ordering::Relaxed);
        let steps = storm.join().unwrap();
        println!("{steps} steps beside {applies} files");
        world.is_right("after all files");
        let after = [holds(broker.pid()), holds(up.0.id())];
        // A question may be under way.
        let is_same = |(a, b): (&usize, &usize)| b.saturating_sub(*a) <= 2;
        in_time!(
            before.as_flattened().iter().zip(after.as_flattened()).all(is_same),
            "{before:?} and then {after:?}"
        );
        for call in calls.into_iter().map(Call::end) {
            in_time!(call.lost() == 0, "{} of {}", call.lost(), call.sent);
            call.keeps_its_mark(3);
        }
        terminate(up).ok();
        assert_eq!(world.taken(), 0, "all is given back");
    });
}

/// The box, its broker, and both are killed while sessions come and go, and start again: what the broker has answered is so, and
/// nothing else is in effect or counted.
// Claim L95.
#[test]
fn kills_beside_sessions_leave_nothing() {
    if !possible("the test of kills beside sessions") {
        return;
    }
    let seed = weir_seed::seed();
    timed(|| {
        let world = Arc::new(World::new());
        let mut broker = world.broker();
        let mut up: Held = world.bed.up(&[&world.file]);
        ready(&world.bed);
        for (n, (kills_broker, kills_box, what)) in
            [(true, false, "the broker"), (false, true, "the box"), (true, true, "both")]
                .into_iter()
                .enumerate()
        {
            let stop = Arc::new(AtomicBool::new(false));
            let storm = world.storm(seed ^ n as u64, &stop);
            pause(1_000 + Random::new(seed ^ n as u64).below(300));
            if kills_broker {
                broker.kill();
                broker = world.broker();
            }
            if kills_box {
                up.0.kill().unwrap();
                up.0.wait().unwrap();
                up = world.bed.up(&[&world.file]);
            }
            pause(500);
            stop.store(true, Ordering::Relaxed);
            println!("{what}: {} steps", storm.join().unwrap());
            world.is_right(what);
        }
        weir(&["broker", "audit", "--verify", "--socket", &world.socket]).ok();
        terminate(up).ok();
        assert_eq!(world.taken(), 0, "all is given back");
        drop(broker);
    });
}

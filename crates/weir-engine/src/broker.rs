//! Brokers: whom the edges of all bridges ask for bandwidth.
//!
//! One thread has them all, the [`Desk`]. An edge puts a request into its channel and goes on. The answer comes
//! back to the edge's worker as any other request does. So nobody waits for a broker, and what a broker in the
//! same process grants is one sum, whichever bridge asks. If the thread is gone nothing is answered: the law
//! repeats its request, and traffic goes on with what was granted.
//!
//! ```text
//! worker ── Ask, Hold ──> desk ── want ──> leases at a broker elsewhere
//!        <── Answer ─────      <─ usable ─
//!        <── ComeDown ───
//!        <── SayHolds ───
//!        <── Sessions ───      <─ sessions ─
//! ```
//!
//! - `local`: a broker in this process.
//! - `lease`: what one class has at a broker elsewhere.
//! - `sessions`: traffic for which a broker elsewhere has set bandwidth apart.

mod lease;
mod local;
mod order;
mod sessions;

pub(crate) use order::{Back, Order, To, Told};
pub use order::{NotTaken, Reply};
pub use sessions::{Booked, Taking};

use crate::state::{BrokerState, HolderState};
use lease::Lease;
use local::Local;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use weir_edge::allocate::{self, Answer};

/// How long the thread may take to say how the brokers are.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a worker may take to come down. After that it sends nothing any more, as a hung one does not.
const COMING_DOWN: Duration = Duration::from_secs(1);
/// What an edge had at a broker elsewhere is kept so long for another edge that takes its place.
const GRACE: Duration = Duration::from_secs(2);

/// What a broker is.
#[derive(Clone)]
pub enum Kind {
    /// In this process: it grants what is asked as long as the sum stays within its capacity, bit/s.
    Local {
        /// What it gives away.
        capacity_bps: u64,
    },
    /// Another process.
    Elsewhere(Arc<dyn Elsewhere>),
}

/// The way to a broker in another process. No call waits. What comes of a wish is told by [`Desk::usable`].
pub trait Elsewhere: Send + Sync {
    /// These classes have a lease each from now on, and no others. Leases of others are given back. What may be used of a
    /// new one is told once that is known.
    fn keep(&self, classes: &[Who]);
    /// A class wants so many bit/s of its lease. Wanting less is so at once.
    fn want(&self, class: &Who, rate_bps: u64);
}

/// How a lease stands that may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The broker is yet to decide about the last wish, or has granted it, or does not answer. More may be asked for.
    Open,
    /// It has decided, and gives no more than this.
    Decided,
}

/// A class of an edge, as brokers know it: the interface by which its packets leave, and its name.
pub type Who = (Arc<str>, Arc<str>);

/// What a class has without having asked for it.
pub(crate) struct Hold {
    pub(crate) class: Arc<str>,
    /// Its place in its edge.
    pub(crate) place: u32,
    pub(crate) broker: Arc<str>,
    pub(crate) rate_bps: u64,
    /// What nobody gives it: its `from`, bit/s.
    pub(crate) from_bps: u64,
}

/// Requests of a broker.
#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    granted: u64,
    refused: u64,
}

/// What a broker is, and what is held there.
enum Broker {
    Local(Local),
    Elsewhere(Far),
}

/// A broker elsewhere.
struct Far {
    way: Arc<dyn Elsewhere>,
    leases: BTreeMap<Who, Lease>,
    sessions: Vec<Booked>,
    counts: Counts,
}

impl Far {
    fn new(way: Arc<dyn Elsewhere>) -> Far {
        Far { way, leases: BTreeMap::new(), sessions: Vec::new(), counts: Counts::default() }
    }

    /// Says which leases there are.
    fn keep(&self) {
        let classes: Vec<Who> = self.leases.keys().cloned().collect();
        self.way.keep(&classes);
    }

    /// The classes of an interface have this here, and nothing else.
    fn hold<'h>(&mut self, interface: &Arc<str>, to: Option<&To>, here: impl Iterator<Item = &'h Hold>) {
        let of_it = self.leases.iter_mut().filter(|((of, _), _)| of == interface);
        of_it.for_each(|(_, lease)| lease.leave());
        let mut is_new = false;
        for hold in here {
            let Some(to) = to else { continue };
            let who = (interface.clone(), hold.class.clone());
            match self.leases.get_mut(&who) {
                Some(lease) => lease.stand(to.clone(), hold),
                None => {
                    _ = self.leases.insert(who, Lease::new(to.clone(), hold));
                    is_new = true;
                }
            }
        }
        if is_new {
            self.keep();
        }
        let wishes = self.leases.iter().filter(|((of, _), _)| of == interface);
        wishes.for_each(|(who, lease)| self.way.want(who, lease.wish()));
    }

    /// The leases whose edge has been gone for long are given back.
    fn pass(&mut self, now: Instant) {
        let before = self.leases.len();
        self.leases.retain(|_, lease| lease.gone_since().is_none_or(|since| now < since + GRACE));
        if self.leases.len() < before {
            self.keep();
        }
    }
}

impl Broker {
    fn of(kind: Kind) -> Broker {
        match kind {
            Kind::Local { capacity_bps } => Broker::Local(Local::new(capacity_bps)),
            Kind::Elsewhere(way) => Broker::Elsewhere(Far::new(way)),
        }
    }

    /// It is declared again. What is held stays as far as it is the same broker. True if it is another one.
    fn go_on(&mut self, kind: Kind) -> bool {
        match (&mut *self, kind) {
            (Broker::Local(local), Kind::Local { capacity_bps }) => local.capacity_bps = capacity_bps,
            (Broker::Elsewhere(far), Kind::Elsewhere(way)) => {
                if !Arc::ptr_eq(&far.way, &way) {
                    far.way = way;
                    far.keep();
                    far.leases.iter().for_each(|(who, lease)| far.way.want(who, lease.wish()));
                }
            }
            (_, kind) => {
                *self = Broker::of(kind);
                return true;
            }
        }
        false
    }

    fn state(&self, name: &str) -> BrokerState {
        let holder = |((interface, class), rate_bps): (&Who, u64)| HolderState {
            interface: interface.to_string(),
            class: class.to_string(),
            rate_bps,
        };
        let (counts, capacity_bps, holders): (_, _, Vec<HolderState>) = match self {
            Broker::Local(local) => {
                let holders = local.held.iter().map(|(who, rate)| holder((who, *rate)));
                (local.counts, Some(local.capacity_bps), holders.collect())
            }
            Broker::Elsewhere(far) => {
                let holders = far.leases.iter().map(|(who, lease)| holder((who, lease.granted())));
                (far.counts, None, holders.collect())
            }
        };
        let Counts { requests, granted, refused } = counts;
        let held_bps = holders.iter().map(|holder| holder.rate_bps).sum();
        let name = name.to_owned();
        BrokerState { name, capacity_bps, held_bps, requests, granted, refused, holders, reached: None }
    }
}

enum Word {
    /// These are the brokers from now on.
    Declare(Vec<(String, Kind)>),
    /// The classes of an interface have this, and nothing else. `to` is the way to its edge, if it has one.
    Hold {
        interface: Arc<str>,
        to: Option<To>,
        holds: Vec<Hold>,
    },
    Ask {
        who: Who,
        broker: Arc<str>,
        request: allocate::Request,
        reply: Reply,
    },
    /// So much may be used of a lease from now on.
    Usable {
        who: Who,
        broker: Arc<str>,
        rate_bps: u64,
        standing: Standing,
        /// Dropped once no more is used.
        done: Sender<()>,
    },
    /// A broker elsewhere has set bandwidth apart for these, and for no others.
    Sessions {
        broker: Arc<str>,
        sessions: Vec<Booked>,
        /// Told of which of them a class is here.
        here: Sender<Vec<u128>>,
        /// Told which of these are not in effect, and dropped once the others are.
        done: Sender<NotTaken>,
    },
    /// For people.
    Say(String),
    State(Sender<Vec<BrokerState>>),
}

/// The way to the brokers. Cheap to clone; no call waits but [`Desk::state`].
#[derive(Clone, Debug)]
pub struct Desk(Sender<Word>);

impl Desk {
    /// Starts the thread of the brokers. It ends with the last desk.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn open() -> std::io::Result<Desk> {
        let (words, heard) = channel();
        std::thread::Builder::new().name("weir-brokers".into()).spawn(move || serve(&heard))?;
        Ok(Desk(words))
    }
    /// A desk with nobody behind it.
    pub fn closed() -> Desk {
        Desk(channel().0)
    }
    /// Says which brokers there are. One that stays goes on with what is held there.
    pub fn declare(&self, brokers: Vec<(String, Kind)>) {
        let _ = self.0.send(Word::Declare(brokers));
    }
    pub(crate) fn hold(&self, interface: Arc<str>, to: Option<To>, holds: Vec<Hold>) {
        let _ = self.0.send(Word::Hold { interface, to, holds });
    }
    pub(crate) fn ask(&self, who: Who, broker: Arc<str>, request: allocate::Request, reply: Reply) {
        let _ = self.0.send(Word::Ask { who, broker, request, reply });
    }
    /// From now on at most so many bit/s may be used of the lease of a class.
    pub fn usable(&self, who: Who, broker: Arc<str>, rate_bps: u64, standing: Standing) -> ComingDown {
        let (done, waits) = channel();
        let _ = self.0.send(Word::Usable { who, broker, rate_bps, standing, done });
        ComingDown(waits)
    }
    /// Writes a line for people, for a worker.
    pub(crate) fn say(&self, line: String) {
        let _ = self.0.send(Word::Say(line));
    }
    /// How the brokers are; none if their thread does not answer.
    pub fn state(&self) -> Vec<BrokerState> {
        let (to, state) = channel();
        let _ = self.0.send(Word::State(to));
        state.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

/// A class that may have to come down.
#[derive(Debug)]
pub struct ComingDown(Receiver<()>);

impl ComingDown {
    /// When this returns, none of these uses more than was said. It waits for their workers, at most a second for all: one
    /// that is hung sends nothing.
    pub fn settle(all: impl IntoIterator<Item = ComingDown>) {
        let by = Instant::now() + COMING_DOWN;
        for ComingDown(waits) in all {
            // Nothing is ever sent: the last of those who could has let go.
            let _ = waits.recv_timeout(by.saturating_duration_since(Instant::now()));
        }
    }
}

/// What the thread knows.
#[derive(Default)]
struct Brokers {
    all: BTreeMap<String, Broker>,
    /// The edges, by the interfaces before which they stand.
    edges: BTreeMap<Arc<str>, To>,
    /// The interfaces whose edges were told of sessions.
    told: BTreeSet<Arc<str>>,
}

impl Brokers {
    /// A broker that is new here knows nothing of what classes have: their edges are to say it again.
    fn ask_what_is_held(&self) {
        self.edges.values().for_each(|to| to.tell(Order::SayHolds));
    }

    /// The classes of an interface have this, and nothing else.
    fn hold(&mut self, interface: &Arc<str>, to: Option<&To>, holds: &[Hold]) {
        match to {
            Some(to) => _ = self.edges.insert(interface.clone(), to.clone()),
            None => _ = self.edges.remove(interface),
        }
        for (name, broker) in &mut self.all {
            let here = holds.iter().filter(|hold| *hold.broker == **name);
            match broker {
                Broker::Local(local) => {
                    local.held.retain(|(of, _), _| of != interface);
                    let held = here.map(|hold| ((interface.clone(), hold.class.clone()), hold.rate_bps));
                    local.held.extend(held);
                }
                Broker::Elsewhere(far) => far.hold(interface, to, here),
            }
        }
        self.tell_sessions(interface, None);
    }
}

fn serve(heard: &Receiver<Word>) {
    let mut brokers = Brokers::default();
    loop {
        match heard.recv_timeout(GRACE) {
            Ok(word) => hear(&mut brokers, word),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        for broker in brokers.all.values_mut() {
            if let Broker::Elsewhere(far) = broker {
                far.pass(now);
            }
        }
    }
}

fn hear(brokers: &mut Brokers, word: Word) {
    match word {
        Word::Declare(declared) => {
            brokers.all.retain(|name, _| declared.iter().any(|(kept, _)| kept == name));
            let mut is_new = false;
            for (name, kind) in declared {
                match brokers.all.get_mut(&name) {
                    Some(broker) => is_new |= broker.go_on(kind),
                    None => {
                        brokers.all.insert(name, Broker::of(kind));
                        is_new = true;
                    }
                }
            }
            if is_new {
                brokers.ask_what_is_held();
            }
            // Those of brokers that are gone end.
            brokers.tell_all_sessions(None);
        }
        Word::Hold { interface, to, holds } => brokers.hold(&interface, to.as_ref(), &holds),
        Word::Ask { who, broker, request, reply } => match brokers.all.get_mut(&*broker) {
            Some(Broker::Local(local)) => reply.send(local.ask(who, request.rate_bps)),
            Some(Broker::Elsewhere(Far { way, leases, counts, .. })) => {
                // An edge that is yet to say what it has is not answered, and the law repeats its request.
                if let Some(lease) = leases.get_mut(&who) {
                    counts.requests += 1;
                    counts.granted += u64::from(lease.ask(request.rate_bps, reply));
                    way.want(&who, lease.wish());
                }
            }
            // A broker that is gone gives nothing more.
            None => reply.send(Answer::Refused),
        },
        Word::Usable { who, broker, rate_bps, standing, done } => {
            if let Some(Broker::Elsewhere(Far { way, leases, counts, .. })) = brokers.all.get_mut(&*broker)
                && let Some(lease) = leases.get_mut(&who)
            {
                let wished = lease.wish();
                match lease.usable(rate_bps, standing, done) {
                    None => {}
                    Some(Answer::Granted(_)) => counts.granted += 1,
                    Some(Answer::Refused) => counts.refused += 1,
                }
                if lease.wish() != wished {
                    way.want(&who, lease.wish());
                }
            }
        }
        Word::Sessions { broker, sessions, here, done } => {
            let Some(Broker::Elsewhere(far)) = brokers.all.get_mut(&*broker) else { return };
            far.sessions = sessions;
            // Whoever said it may wait no longer.
            let _ = here.send(far.of_classes_here());
            brokers.tell_all_sessions(Some(&done));
        }
        Word::Say(line) => weir_sys::say(&line),
        Word::State(to) => {
            let _ = to.send(brokers.all.iter().map(|(name, broker)| broker.state(name)).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Request;
    use crate::line::{Inbox, Line};

    fn who(interface: &str) -> Who {
        (interface.into(), "rt".into())
    }

    fn to(line: &Line) -> To {
        To { back: line.back(), direction: 0, edge: 1 }
    }

    fn asked(desk: &Desk, line: &Line, inbox: &Inbox, interface: &str, rate_bps: u64) -> Answer {
        let reply = Reply { to: to(line), class: 0, version: 7 };
        desk.ask(who(interface), "core".into(), allocate::Request { version: 7, rate_bps }, reply);
        match inbox.requests.recv() {
            Ok(Request::Told(Told {
                direction: 0,
                edge: 1,
                order: Order::Answer { class: 0, version: 7, answer },
            })) => answer,
            _ => panic!("another answer"),
        }
    }

    /// Three bridges ask one broker: the sum of what it grants stays within its capacity, whoever asks.
    // Claim L79.
    #[test]
    fn the_sum_of_grants_stays_within_the_capacity() {
        let mut random = weir_core::Random::new(weir_seed::seed());
        let (line, inbox) = Line::new(vec![0]).unwrap();
        let desk = Desk::open().unwrap();
        desk.declare(vec![("core".into(), Kind::Local { capacity_bps: 1_000 })]);
        let (mut held, mut refused) = ([0u64; 3], 0);
        for _ in 0..1_000 {
            let of = random.below(3) as usize;
            let rate = random.below(700);
            match asked(&desk, &line, &inbox, &format!("eth{of}"), rate) {
                Answer::Granted(granted) => {
                    assert_eq!(granted, rate);
                    held[of] = rate;
                }
                Answer::Refused => {
                    refused += 1;
                    assert!(held.iter().sum::<u64>() - held[of] + rate > 1_000, "it would have fitted");
                }
            }
            assert!(held.iter().sum::<u64>() <= 1_000, "{held:?}");
        }
        let [state] = &desk.state()[..] else { panic!("one broker") };
        assert_eq!((state.held_bps, state.requests), (held.iter().sum(), 1_000));
        assert_eq!((state.refused, state.granted), (refused, 1_000 - refused));
        assert!(refused > 50 && refused < 950, "{refused}");
    }

    /// What a class has when its edge begins counts; an edge that goes gives all of it back at once.
    #[test]
    fn an_edge_holds_what_it_begins_with_until_it_goes() {
        let (line, inbox) = Line::new(vec![0]).unwrap();
        let desk = Desk::open().unwrap();
        let declare = |capacity_bps| desk.declare(vec![("core".into(), Kind::Local { capacity_bps })]);
        declare(1_000);
        let hold = |rate_bps| {
            vec![Hold { class: "rt".into(), place: 0, broker: "core".into(), rate_bps, from_bps: 0 }]
        };
        desk.hold("eth0".into(), Some(to(&line)), hold(600));
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 401), Answer::Refused);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 400), Answer::Granted(400));
        // Another capacity takes nothing away; less than before is always granted.
        declare(500);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 401), Answer::Refused);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 300), Answer::Granted(300));
        desk.hold("eth0".into(), None, Vec::new());
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 500), Answer::Granted(500));
        desk.declare(Vec::new());
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 1), Answer::Refused);
        // Nobody behind the desk: nothing is answered, and nobody waits.
        assert_eq!(Desk::closed().state(), []);
    }
}

//! Brokers: whom the edges of all bridges ask for bandwidth.
//!
//! One thread has them all, the [`Desk`]. An edge puts a request into its channel and goes on. The answer comes
//! back to the edge's worker as any other request does. So nobody waits for a broker, and what a broker in the
//! same process grants is one sum, whichever bridge asks. If the thread is gone nothing is answered: the law
//! repeats its request, and traffic goes on with what was granted.
//!
//! A broker elsewhere is another [`Kind`]: it keeps the [`Reply`] until it has its answer.

use crate::control::Request;
use crate::line::Back;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use weir_edge::allocate::{self, Answer};

/// How long the thread may take to say how the brokers are.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a broker is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// In this process: it grants what is asked as long as the sum stays within its capacity, bit/s.
    Local {
        /// What it gives away.
        capacity_bps: u64,
    },
}

/// A class of an edge, as brokers know it: the interface by which its packets leave, and its name.
pub type Who = (Arc<str>, Arc<str>);

/// What a class has without having asked for it.
pub(crate) struct Hold {
    pub(crate) class: Arc<str>,
    pub(crate) broker: Arc<str>,
    pub(crate) rate_bps: u64,
}

/// The way back to who asked.
pub struct Reply {
    pub(crate) back: Back,
    pub(crate) direction: usize,
    /// The number of the edge: another one may stand there by then.
    pub(crate) edge: u64,
    pub(crate) class: u32,
    pub(crate) version: u64,
}

impl Reply {
    /// Tells the answer. A worker that has ended does not hear it.
    pub fn send(self, answer: Answer) {
        let Reply { back, direction, edge, class, version } = self;
        back.ask(Request::Answer { direction, edge, class, version, answer });
    }
}

/// How a broker is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BrokerState {
    /// Its name.
    pub name: String,
    /// What it gives away, bit/s.
    pub capacity_bps: u64,
    /// What all classes together hold, bit/s.
    pub held_bps: u64,
    /// Requests, repetitions included.
    pub requests: u64,
    /// Those that were granted.
    pub granted: u64,
    /// Those that were refused.
    pub refused: u64,
    /// What each class holds.
    pub holders: Vec<HolderState>,
}

/// What a class holds at a broker.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HolderState {
    /// The interface by which its packets leave.
    pub interface: String,
    /// Its name.
    pub class: String,
    /// What it holds, bit/s.
    pub rate_bps: u64,
}

/// A broker in this process.
#[derive(Default)]
struct Local {
    capacity_bps: u64,
    held: BTreeMap<Who, u64>,
    requests: u64,
    granted: u64,
    refused: u64,
}

impl Local {
    /// A rise is granted if the sum stays within the capacity; a fall always.
    fn ask(&mut self, who: Who, rate_bps: u64) -> Answer {
        self.requests += 1;
        let has = self.held.get(&who).copied().unwrap_or(0);
        let others = self.held.values().sum::<u64>() - has;
        if rate_bps > has && others.saturating_add(rate_bps) > self.capacity_bps {
            self.refused += 1;
            return Answer::Refused;
        }
        self.granted += 1;
        self.held.insert(who, rate_bps);
        Answer::Granted(rate_bps)
    }
    fn state(&self, name: &str) -> BrokerState {
        let holder = |((interface, class), &rate_bps): (&Who, &u64)| HolderState {
            interface: interface.to_string(),
            class: class.to_string(),
            rate_bps,
        };
        BrokerState {
            name: name.to_owned(),
            capacity_bps: self.capacity_bps,
            held_bps: self.held.values().sum(),
            requests: self.requests,
            granted: self.granted,
            refused: self.refused,
            holders: self.held.iter().map(holder).collect(),
        }
    }
}

enum Word {
    /// These are the brokers from now on.
    Declare(Vec<(String, Kind)>),
    /// The classes of an interface have this, and nothing else.
    Hold {
        interface: Arc<str>,
        holds: Vec<Hold>,
    },
    Ask {
        who: Who,
        broker: Arc<str>,
        request: allocate::Request,
        reply: Reply,
    },
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
    pub(crate) fn hold(&self, interface: Arc<str>, holds: Vec<Hold>) {
        let _ = self.0.send(Word::Hold { interface, holds });
    }
    pub(crate) fn ask(&self, who: Who, broker: Arc<str>, request: allocate::Request, reply: Reply) {
        let _ = self.0.send(Word::Ask { who, broker, request, reply });
    }
    /// How the brokers are; none if their thread does not answer.
    pub fn state(&self) -> Vec<BrokerState> {
        let (to, state) = channel();
        let _ = self.0.send(Word::State(to));
        state.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

fn serve(heard: &Receiver<Word>) {
    let mut brokers: BTreeMap<String, Local> = BTreeMap::new();
    for word in heard {
        match word {
            Word::Declare(declared) => {
                brokers.retain(|name, _| declared.iter().any(|(kept, _)| kept == name));
                for (name, Kind::Local { capacity_bps }) in declared {
                    brokers.entry(name).or_default().capacity_bps = capacity_bps;
                }
            }
            Word::Hold { interface, holds } => {
                for broker in brokers.values_mut() {
                    broker.held.retain(|(of, _), _| *of != interface);
                }
                for Hold { class, broker, rate_bps } in holds {
                    if let Some(broker) = brokers.get_mut(&*broker) {
                        broker.held.insert((interface.clone(), class), rate_bps);
                    }
                }
            }
            Word::Ask { who, broker, request, reply } => {
                // A broker that is gone gives nothing more.
                let broker = brokers.get_mut(&*broker);
                reply.send(broker.map_or(Answer::Refused, |broker| broker.ask(who, request.rate_bps)));
            }
            Word::State(to) => {
                let _ = to.send(brokers.iter().map(|(name, broker)| broker.state(name)).collect());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Inbox, Line};

    fn who(interface: &str) -> Who {
        (interface.into(), "rt".into())
    }

    fn asked(desk: &Desk, line: &Line, inbox: &Inbox, interface: &str, rate_bps: u64) -> Answer {
        let reply = Reply { back: line.back(), direction: 0, edge: 1, class: 0, version: 7 };
        desk.ask(who(interface), "core".into(), allocate::Request { version: 7, rate_bps }, reply);
        match inbox.requests.recv() {
            Ok(Request::Answer { direction: 0, edge: 1, class: 0, version: 7, answer }) => answer,
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
        let hold = |rate_bps| vec![Hold { class: "rt".into(), broker: "core".into(), rate_bps }];
        desk.hold("eth0".into(), hold(600));
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 401), Answer::Refused);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 400), Answer::Granted(400));
        // Another capacity takes nothing away; less than before is always granted.
        declare(500);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 401), Answer::Refused);
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 300), Answer::Granted(300));
        desk.hold("eth0".into(), Vec::new());
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 500), Answer::Granted(500));
        desk.declare(Vec::new());
        assert_eq!(asked(&desk, &line, &inbox, "eth1", 1), Answer::Refused);
        // Nobody behind the desk: nothing is answered, and nobody waits.
        assert_eq!(Desk::closed().state(), []);
    }
}

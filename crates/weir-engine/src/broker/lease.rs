//! What one class has at a broker elsewhere.
//!
//! An edge has `from`, which nobody gives it, and what it was granted above. Whoever keeps the lease says how much may
//! be used of it. More than was asked for is not given to the edge. If less may be used than the edge was granted, its
//! worker comes down before the broker hears of it.

use super::Order;
use super::{Hold, Reply, Standing, To};
use std::sync::mpsc::Sender;
use std::time::Instant;
use weir_edge::allocate::Answer;

/// What a class has. Rates are bit/s, and those above `from` but for that of an [`Answer`].
pub(super) struct Lease {
    /// Its edge; or since when there is none.
    to: Result<To, Instant>,
    place: u32,
    from: u64,
    /// What may be used; none: it is not known yet.
    has: Option<u64>,
    /// What the edge may use, as far as it was told.
    granted: u64,
    /// What the edge waits for.
    open: Option<(u64, Reply)>,
    /// The edge was told to come down, and nobody waited for it.
    falling: bool,
}

impl Lease {
    /// The lease of a class whose edge says what it has.
    pub(super) fn new(to: To, hold: &Hold) -> Lease {
        let (place, from, granted) = (hold.place, hold.from_bps, above(hold));
        Lease { to: Ok(to), place, from, has: None, granted, open: None, falling: false }
    }

    /// An edge is there again, perhaps another one, and says what it has.
    pub(super) fn stand(&mut self, to: To, hold: &Hold) {
        (self.to, self.place, self.from, self.granted) = (Ok(to), hold.place, hold.from_bps, above(hold));
        // It repeats what it asks for.
        self.open = None;
        if let Some(has) = self.has.filter(|has| *has < self.granted) {
            self.falling = true;
            self.come_down(has, false, None);
        }
    }

    /// Its place in its edge, if that is there.
    pub(super) fn place(&self) -> Option<u32> {
        self.to.as_ref().ok().map(|_| self.place)
    }

    /// Its edge has gone.
    pub(super) fn leave(&mut self) {
        if self.to.is_ok() {
            (self.to, self.open) = (Err(Instant::now()), None);
        }
    }

    /// Since when it has no edge.
    pub(super) fn gone_since(&self) -> Option<Instant> {
        self.to.as_ref().err().copied()
    }

    /// What the edge may use.
    pub(super) fn granted(&self) -> u64 {
        self.granted
    }

    /// What is wanted of the broker.
    pub(super) fn wish(&self) -> u64 {
        self.open.as_ref().map_or(self.granted, |(rate, _)| *rate)
    }

    /// The edge asks for `rate` in all. True if it has that at once: what is not more than it may use.
    pub(super) fn ask(&mut self, rate: u64, reply: Reply) -> bool {
        let above = rate.saturating_sub(self.from);
        let is_had = above <= self.granted.max(self.has.unwrap_or(0));
        if is_had {
            (self.granted, self.open) = (above, None);
            // What it gives up is gone, although whoever keeps the lease has not heard it yet.
            self.has = self.has.map(|has| has.min(above));
            reply.send(Answer::Granted(rate));
        } else {
            self.open = Some((above, reply));
        }
        is_had
    }

    /// So much may be used from now on. `done` is dropped once no more is. What the edge was answered, if it was.
    pub(super) fn usable(&mut self, rate: u64, standing: Standing, done: Sender<()>) -> Option<Answer> {
        self.has = Some(rate);
        let was_falling = std::mem::take(&mut self.falling);
        if rate < self.granted {
            self.come_down(rate, standing == Standing::Decided, Some(done));
            return None;
        }
        if was_falling {
            // Behind what the worker was told before.
            self.tell(self.granted, false, Some(done));
        } else {
            drop(done);
        }
        let (wanted, reply) = self.open.take()?;
        let granted = rate.min(wanted);
        let answer = match standing {
            _ if granted == wanted => Answer::Granted(self.from + granted),
            Standing::Decided if granted > self.granted => Answer::Granted(self.from + granted),
            Standing::Decided => Answer::Refused,
            Standing::Open => {
                self.open = Some((wanted, reply));
                return None;
            }
        };
        if let Answer::Granted(_) = answer {
            self.granted = granted;
        }
        reply.send(answer);
        Some(answer)
    }

    /// Tells the edge to come down. If it is to wait, it asks for no more for its `retry`.
    fn come_down(&mut self, rate: u64, wait: bool, done: Option<Sender<()>>) {
        (self.granted, self.open) = (rate, None);
        self.tell(rate, wait, done);
    }

    fn tell(&self, rate: u64, wait: bool, done: Option<Sender<()>>) {
        if let Ok(to) = &self.to {
            to.tell(Order::ComeDown { class: self.place, rate_bps: self.from + rate, wait, done });
        }
    }
}

/// What a class has above what nobody gives it.
fn above(hold: &Hold) -> u64 {
    hold.rate_bps.saturating_sub(hold.from_bps)
}

#[cfg(test)]
mod tests {
    use crate::broker::{
        Booked, ComingDown, Desk, Elsewhere, GRACE, Hold, Kind, Order, Reply, Standing, To, Told, Who,
    };
    use crate::control::Request;
    use crate::line::{Inbox, Line};
    use crate::state::BrokerState;
    use std::sync::mpsc::Sender;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use weir_edge::allocate;
    use weir_edge::edge::Session;

    /// Leases as somebody keeps them: all that was said.
    #[derive(Default)]
    struct Leases {
        said: Mutex<Vec<String>>,
    }

    impl Elsewhere for Leases {
        fn keep(&self, classes: &[Who]) {
            let names: Vec<String> = classes.iter().map(|(i, c)| format!("{i}:{c}")).collect();
            self.said.lock().unwrap().push(format!("keep {}", names.join(" ")));
        }
        fn want(&self, (_, class): &Who, rate_bps: u64) {
            self.said.lock().unwrap().push(format!("{class} {rate_bps}"));
        }
    }

    struct Rig {
        leases: Arc<Leases>,
        desk: Desk,
        line: Line,
        inbox: Inbox,
    }

    const FROM: u64 = 64;

    /// What an edge is told.
    fn order_of(request: Request) -> Order {
        match request {
            Request::Told(Told { direction: 0, edge: 1, order }) => order,
            _ => panic!("another request"),
        }
    }

    impl Rig {
        fn new() -> Rig {
            let (line, inbox) = Line::new(vec![0]).unwrap();
            let rig = Rig { leases: Arc::default(), desk: Desk::open().unwrap(), line, inbox };
            rig.desk.declare(vec![("core".into(), Kind::Elsewhere(rig.leases.clone()))]);
            rig
        }
        fn to(&self) -> To {
            To { back: self.line.back(), direction: 0, edge: 1 }
        }
        fn hold(&self, rate_bps: u64) {
            let (class, broker) = ("rt".into(), "core".into());
            let holds = vec![Hold { class, place: 3, broker, rate_bps, from_bps: FROM }];
            self.desk.hold("eth0".into(), Some(self.to()), holds);
        }
        fn ask(&self, version: u64, rate_bps: u64) {
            let reply = Reply { to: self.to(), class: 3, version };
            self.desk.ask(who(), "core".into(), allocate::Request { version, rate_bps }, reply);
        }
        /// So much may be used. What the worker is told; it does it only then.
        fn usable(&self, rate: u64, standing: Standing) -> Vec<String> {
            let desk = self.desk.clone();
            let waits = std::thread::spawn(move || {
                ComingDown::settle([desk.usable(who(), "core".into(), rate, standing)])
            });
            let mut told = self.told();
            while !waits.is_finished() {
                told.extend(self.told());
            }
            waits.join().unwrap();
            told.extend(self.told());
            told
        }
        /// What the worker is told.
        fn told(&self) -> Vec<String> {
            let state = self.state();
            assert_eq!(state.reached, None);
            let said = |request, done: &mut Vec<Sender<()>>| match order_of(request) {
                Order::Answer { class: 3, version, answer } => format!("{version} {answer:?}"),
                Order::ComeDown { class: 3, rate_bps, wait, done: waits } => {
                    done.extend(waits);
                    format!("down to {rate_bps}{}", if wait { ", wait" } else { "" })
                }
                Order::SayHolds => "say".into(),
                Order::Sessions { sessions, done: waits } => {
                    drop(waits);
                    let of = |s: &Session| format!(" {} on {} with {}", s.id, s.leaf, s.rate_bps);
                    format!("sessions{}", sessions.iter().map(of).collect::<String>())
                }
                _ => panic!("of another class"),
            };
            let mut done = Vec::new();
            self.inbox.requests.try_iter().map(|request| said(request, &mut done)).collect()
        }
        /// All that was said to who keeps the leases.
        fn said(&self) -> Vec<String> {
            self.state();
            std::mem::take(&mut *self.leases.said.lock().unwrap())
        }
        fn state(&self) -> BrokerState {
            self.desk.state().swap_remove(0)
        }
    }

    fn who() -> Who {
        ("eth0".into(), "rt".into())
    }

    /// A rise waits for the broker; a fall does not. `from` is never asked for.
    #[test]
    fn a_rise_waits_for_the_broker_and_a_fall_does_not() {
        let rig = Rig::new();
        rig.hold(FROM);
        assert_eq!(rig.said(), ["keep eth0:rt", "rt 0"]);
        rig.ask(1, FROM + 300);
        assert_eq!((rig.said(), rig.told()), (vec!["rt 300".into()], vec![]));
        // Something else was decided before; the wish stays open, and is said as often as it is repeated.
        assert_eq!(rig.usable(0, Standing::Open), Vec::<String>::new());
        rig.ask(1, FROM + 300);
        assert_eq!(rig.usable(300, Standing::Open), ["1 Granted(364)"]);
        rig.said();
        rig.ask(2, FROM + 100);
        assert_eq!((rig.said(), rig.told()), (vec!["rt 100".into()], vec!["2 Granted(164)".into()]));
        assert_eq!(rig.usable(100, Standing::Open), Vec::<String>::new());
        rig.ask(3, 10);
        assert_eq!((rig.said(), rig.told()), (vec!["rt 0".into()], vec!["3 Granted(10)".into()]));
        let BrokerState { requests, granted, refused, capacity_bps, .. } = rig.state();
        assert_eq!((requests, granted, refused, capacity_bps), (4, 3, 0, None));
    }

    /// After a refusal nothing more is wanted than what the edge has; a part is taken.
    #[test]
    fn a_refusal_ends_the_wish() {
        let rig = Rig::new();
        rig.hold(FROM);
        rig.ask(1, FROM + 300);
        rig.said();
        assert_eq!(rig.usable(200, Standing::Decided), ["1 Granted(264)"]);
        assert_eq!(rig.said(), ["rt 200"]);
        rig.ask(2, FROM + 300);
        assert_eq!(rig.usable(200, Standing::Decided), ["2 Refused"]);
        assert_eq!(rig.said(), ["rt 300", "rt 200"]);
        assert_eq!(rig.state().refused, 1);
    }

    /// What is called back, or has ended, is not used any more once that is said; what was asked for meanwhile is asked
    /// for anew.
    #[test]
    fn the_edge_comes_down_before_that_is_said() {
        let rig = Rig::new();
        rig.hold(FROM);
        rig.ask(1, FROM + 300);
        rig.usable(300, Standing::Open);
        rig.ask(2, FROM + 500);
        assert_eq!(rig.usable(100, Standing::Decided), ["down to 164, wait"]);
        assert_eq!(rig.said().pop().as_deref(), Some("rt 100"));
        assert_eq!(rig.usable(0, Standing::Open), ["down to 64"]);
        assert_eq!(rig.usable(500, Standing::Open), Vec::<String>::new(), "nobody asks for it");
        // It is granted at once, because it is there.
        rig.ask(3, FROM + 400);
        assert_eq!(rig.told(), ["3 Granted(464)"]);
    }

    /// A worker that does not come down is waited for, but not for ever.
    #[test]
    fn who_says_it_waits_for_the_worker() {
        let rig = Rig::new();
        rig.hold(FROM + 300);
        assert_eq!(rig.usable(300, Standing::Open), Vec::<String>::new());
        let start = std::time::Instant::now();
        ComingDown::settle([rig.desk.usable(who(), "core".into(), 0, Standing::Open)]);
        assert!(start.elapsed() >= super::super::COMING_DOWN);
        // It is in the worker's hands now: the next one waits until it is done.
        assert_eq!(rig.told(), ["down to 64"]);
        drop(rig.inbox);
        let start = std::time::Instant::now();
        ComingDown::settle([rig.desk.usable(who(), "core".into(), 0, Standing::Open)]);
        assert!(start.elapsed() < super::super::COMING_DOWN, "a worker that has ended sends nothing");
    }

    /// An edge that takes over what another one had goes on with it, as far as it is held. Without one it is given back.
    #[test]
    fn a_lease_outlives_its_edge_for_a_moment() {
        let rig = Rig::new();
        rig.hold(FROM + 200);
        assert_eq!(rig.said(), ["keep eth0:rt", "rt 200"]);
        assert_eq!(rig.usable(200, Standing::Open), Vec::<String>::new());
        rig.desk.hold("eth0".into(), None, Vec::new());
        rig.hold(FROM + 200);
        assert_eq!((rig.said(), rig.told()), (vec!["rt 200".into(), "rt 200".into()], vec![]));
        // With another `from` it has less above it, or more than it holds.
        rig.desk.hold(
            "eth0".into(),
            Some(rig.to()),
            vec![Hold {
                class: "rt".into(),
                place: 3,
                broker: "core".into(),
                rate_bps: FROM + 200,
                from_bps: 0,
            }],
        );
        assert_eq!((rig.said(), rig.told()), (vec!["rt 200".into()], vec!["down to 200".into()]));
        // Somebody else keeps the leases.
        let other = Arc::new(Leases::default());
        rig.desk.declare(vec![("core".into(), Kind::Elsewhere(other.clone()))]);
        assert_eq!(rig.usable(50, Standing::Open), ["down to 50"]);
        assert_eq!(*other.said.lock().unwrap(), ["keep eth0:rt", "rt 200", "rt 50"]);
        rig.desk.hold("eth0".into(), None, Vec::new());
        assert_eq!(rig.state().holders.len(), 1);
        std::thread::sleep(2 * GRACE + Duration::from_millis(200));
        assert_eq!(rig.state().holders, []);
        assert_eq!(other.said.lock().unwrap().last().map(String::as_str), Some("keep "));
        // Of a class that has not said what it has nothing is asked.
        rig.ask(9, 1_000);
        assert_eq!(rig.told(), Vec::<String>::new());
    }

    /// A broker that is another process from now on, or no longer, hears what classes have now.
    #[test]
    fn another_broker_of_the_same_name_hears_what_is_held() {
        let rig = Rig::new();
        rig.hold(FROM + 200);
        rig.desk.declare(vec![("core".into(), Kind::Local { capacity_bps: 1_000 })]);
        assert_eq!(rig.told(), ["say"]);
        rig.hold(FROM + 300);
        assert_eq!(rig.state().held_bps, FROM + 300);
        rig.desk.declare(vec![("core".into(), Kind::Local { capacity_bps: 500 })]);
        assert_eq!(rig.told(), Vec::<String>::new(), "the same one");
        rig.desk.declare(vec![("core".into(), Kind::Elsewhere(rig.leases.clone()))]);
        assert_eq!(rig.told(), ["say"]);
        rig.said();
        rig.hold(FROM + 300);
        assert_eq!(rig.said(), ["keep eth0:rt", "rt 300"]);
    }

    /// An edge hears of the sessions of its classes, whether it comes before them or after, and of none once their broker is gone.
    /// Those of no class here are not in effect.
    #[test]
    fn an_edge_hears_of_the_sessions_of_its_classes() {
        let rig = Rig::new();
        let of = |id: u128, interface: &str| Booked {
            classes: vec![("peer".into(), "rt".into()), (interface.into(), "rt".into())],
            session: Session { id, leaf: 0, rate_bps: 400, device: Vec::new(), server: Vec::new() },
        };
        let set = |sessions: Vec<Booked>| {
            let desk = rig.desk.clone();
            let waits = std::thread::spawn(move || desk.sessions("core".into(), sessions).settle());
            let mut told = Vec::new();
            while !waits.is_finished() {
                told.extend(rig.told());
            }
            told.extend(rig.told());
            let (in_effect, not_taken) = waits.join().unwrap();
            assert_eq!(not_taken, []);
            (in_effect, told)
        };
        let both = || vec![of(7, "eth0"), of(8, "eth1")];
        assert_eq!(set(both()), (vec![], vec![]), "no edge is there");
        rig.hold(FROM);
        assert_eq!(rig.told(), ["sessions 7 on 3 with 400"]);
        assert_eq!(set(both()), (vec![7], vec!["sessions 7 on 3 with 400".into()]));
        assert_eq!(set(vec![of(9, "eth0")]), (vec![9], vec!["sessions 9 on 3 with 400".into()]));
        assert_eq!(set(vec![]), (vec![], vec!["sessions".into()]));
        assert_eq!(set(vec![]), (vec![], vec![]), "it has heard that");
        set(both());
        rig.desk.declare(vec![("core".into(), Kind::Local { capacity_bps: 1_000 })]);
        assert_eq!(rig.told(), ["say", "sessions"]);
    }

    /// What a class gives up it cannot have again without the broker, not even at once.
    #[test]
    fn what_is_given_up_is_gone() {
        let rig = Rig::new();
        rig.hold(FROM);
        rig.ask(1, FROM + 300);
        rig.usable(300, Standing::Open);
        rig.ask(2, FROM + 100);
        rig.ask(3, FROM + 250);
        assert_eq!(rig.told(), ["2 Granted(164)"]);
        assert_eq!(rig.usable(250, Standing::Open), ["3 Granted(314)"]);
    }
}

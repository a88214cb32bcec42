use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// What the data plane was told.
#[derive(Clone, Default)]
struct Told(Rc<RefCell<Vec<String>>>);

impl Told {
    fn all(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.borrow_mut())
    }
}

impl DataPlane for Told {
    fn shape(&mut self, of: Reservation, interface: &str, rate: Rate) {
        self.0.borrow_mut().push(format!("{} {interface} {rate}", of.0));
    }

    fn pin(&mut self, of: Reservation, filter: &Filter) {
        self.0.borrow_mut().push(format!("{} pin {}", of.0, filter.source.1));
    }

    fn unpin(&mut self, of: Reservation, filter: &Filter) {
        self.0.borrow_mut().push(format!("{} unpin {}", of.0, filter.source.1));
    }
}

fn book() -> Book {
    let mut book = Book::new("a");
    let provide = Command::Provide { resource: "wan0:rt".into(), capacity: 1_000 };
    book.apply(0, &provide, &mut Vec::new());
    book
}

fn load(bucket_bps: Rate) -> Flowspec {
    Flowspec { bucket_bps, guaranteed_bps: 0 }
}

fn filter(port: u16) -> Filter {
    let [source, destination] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    Filter { protocol: 17, source: (source, port), destination: (destination, 5_004) }
}

fn taken<L: Leases, D: DataPlane>(of: &Reservations<L, D>) -> Rate {
    1_000 - of.advertise("wan0")
}

/// A44
#[test]
fn a_reservation_is_a_class_of_at_least_its_rate_and_refused_above_the_sum() {
    let told = Told::default();
    let mut tc = Reservations::new("r", "rt", book(), told.clone());
    let one = tc.add_flowspec(0, "wan0", load(400)).expect("there is room");
    let two = tc.add_flowspec(0, "wan0", Flowspec { bucket_bps: 100, guaranteed_bps: 500 });
    let two = two.expect("there is room for its guaranteed rate");
    assert_eq!((told.all(), tc.advertise("wan0")), (vec!["1 wan0 400".into(), "2 wan0 500".into()], 100));
    let full = |free| NotAdmitted::Refused(Refusal::Full { resource: "wan0:rt".into(), free });
    assert_eq!(tc.add_flowspec(0, "wan0", load(101)), Err(full(100)));
    assert_eq!(tc.mod_flowspec(0, one, load(501)), Err(full(500)));
    let unknown = NotAdmitted::Refused(Refusal::Unknown { resource: "lan0:rt".into() });
    assert_eq!((tc.add_flowspec(0, "lan0", load(1)), tc.advertise("lan0")), (Err(unknown), 0));
    assert_eq!((told.all(), taken(&tc)), (Vec::<String>::new(), 900));
    // What was refused changes nothing: it goes on, and can change.
    tc.mod_flowspec(0, one, load(500)).expect("there is room");
    tc.mod_flowspec(0, two, load(50)).expect("less is always granted");
    assert_eq!((told.all(), taken(&tc)), (vec!["1 wan0 500".into(), "2 wan0 50".into()], 550));
    tc.del_flowspec(0, one);
    assert_eq!((told.all(), taken(&tc)), (vec!["1 wan0 0".into()], 50));
    assert_eq!(tc.mod_flowspec(0, one, load(1)), Err(NotAdmitted::Ended));
}

/// A44
#[test]
fn flows_are_pinned_as_long_as_their_reservation_is_there() {
    let told = Told::default();
    let mut tc = Reservations::new("r", "rt", book(), told.clone());
    let of = tc.add_flowspec(0, "wan0", load(400)).expect("there is room");
    let [first, _] = [1, 2].map(|port| tc.add_filter(of, filter(port)).expect("it is there"));
    tc.del_filter(first);
    tc.del_filter(first);
    assert_eq!(told.all(), ["1 wan0 400", "1 pin 1", "1 pin 2", "1 unpin 1"]);
    tc.del_flowspec(0, of);
    assert_eq!(told.all(), ["1 unpin 2", "1 wan0 0"]);
    assert_eq!(tc.add_filter(of, filter(3)), Err(NotAdmitted::Ended));
}

/// A44
#[test]
fn what_is_not_refreshed_ends_at_both_sides() {
    let told = Told::default();
    let mut tc = Reservations::new("r", "rt", book(), told.clone());
    let [one, two] = [300, 400].map(|rate| tc.add_flowspec(0, "wan0", load(rate)).expect("there is room"));
    tc.add_filter(two, filter(7)).expect("it is there");
    tc.mod_flowspec(REFRESH, one, load(300)).expect("it is refreshed");
    told.all();
    assert_eq!(tc.expire(LIFETIME - 1), Some(LIFETIME));
    assert_eq!(tc.expire(LIFETIME), Some(REFRESH + LIFETIME));
    assert_eq!((told.all(), taken(&tc)), (vec!["2 unpin 7".into(), "2 wan0 0".into()], 300));
    // The daemon has gone: the book frees it by itself.
    let mut book = tc.leases;
    book.apply(REFRESH + LIFETIME + 2 * SECOND, &Command::Tick, &mut Vec::new());
    assert_eq!(book.free("wan0:rt"), 1_000);
}

#[test]
fn the_next_daemon_goes_on_where_one_has_stopped() {
    let told = Told::default();
    let mut tc = Reservations::new("r", "rt", book(), told.clone());
    let of = tc.add_flowspec(0, "wan0", load(300)).expect("there is room");
    tc.mod_flowspec(1, of, load(400)).expect("there is room");
    let mut next = Reservations::new("r", "rt", tc.leases, told);
    next.add_flowspec(2, "wan0", load(900)).expect("it is the same reservation");
    assert_eq!(taken(&next), 900);
}

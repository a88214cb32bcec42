use super::*;
use crate::MILLISECOND;

fn book() -> Book {
    let mut book = Book::new("a");
    let provide = Command::Provide { resource: "wan:rt".into(), capacity: 100 };
    book.apply(0, &provide, &mut Vec::new());
    book
}

fn request(lease: &str, version: u64, rate: Rate) -> Request {
    let (path, domains) = (vec!["wan:rt".into()], Vec::new());
    Request { lease: lease.into(), version, path, rate, min: 0, ttl_ms: 10_000, domains }
}

/// The verdict about a request. It is the last thing said.
fn ask(book: &mut Book, now: Nanos, request: Request) -> Verdict {
    let mut events = Vec::new();
    book.apply(now, &Command::Ask(request), &mut events);
    book.check(now).expect("the account is right");
    match events.pop() {
        Some(Event::Answer { verdict, .. }) => verdict,
        other => panic!("{other:?}"),
    }
}

const fn granted(rate: Rate) -> Verdict {
    Verdict::Granted { rate, ttl_ms: 10_000 }
}

#[test]
fn a_rate_is_granted_in_part_and_refused_below_the_least() {
    let mut book = book();
    assert_eq!(ask(&mut book, 0, request("e/1", 1, 70)), granted(70));
    assert_eq!(ask(&mut book, 0, request("f/1", 1, 50)), granted(30));
    let least = Request { min: 40, ..request("f/1", 2, 50) };
    let full = Verdict::Refused(Refusal::Full { resource: "wan:rt".into(), free: 30 });
    assert_eq!(ask(&mut book, 0, least.clone()), full);
    // The same again has the same answer, although there is room by now.
    assert_eq!(ask(&mut book, 1, request("e/1", 2, 0)), granted(0));
    assert_eq!(ask(&mut book, 1, least), full);
    assert_eq!(ask(&mut book, 1, request("f/1", 3, 50)), granted(50));
}

#[test]
fn what_is_no_request_or_comes_late_is_refused_with_its_reason_and_changes_nothing() {
    let mut book = book().with_leases_per_owner(1);
    assert_eq!(ask(&mut book, 0, request("e/1", 5, 60)), granted(60));
    let path = |names: &[&str]| names.iter().map(|&n| n.into()).collect::<Vec<Name>>();
    let good = || request("e/1", 6, 60);
    for (request, why) in [
        (request("e/1", 4, 10), Refusal::Stale { newest: 5 }),
        (request("e/1", 5, 10), Refusal::Differs),
        (request("e/2", 1, 10), Refusal::TooMany { limit: 1 }),
        (Request { path: path(&["x:rt"]), ..good() }, Refusal::Unknown { resource: "x:rt".into() }),
        (Request { domains: path(&["b", "a"]), ..good() }, Refusal::Loop),
        (request("nobody", 6, 10), Refusal::Bad { field: Fault::Lease }),
        (Request { path: path(&["wan:rt", "wan:rt"]), ..good() }, Refusal::Bad { field: Fault::Path }),
        (request("e/1", 6, crate::MAX_RATE + 1), Refusal::Bad { field: Fault::Rate }),
        (Request { min: 61, ..good() }, Refusal::Bad { field: Fault::Min }),
        (Request { ttl_ms: 999, ..good() }, Refusal::Bad { field: Fault::Ttl }),
        (Request { domains: vec!["b".into(); 9], ..good() }, Refusal::Bad { field: Fault::Domains }),
    ] {
        assert_eq!(ask(&mut book, 0, request), Verdict::Refused(why));
        let held = book.lease("e/1").expect("it is there");
        assert_eq!((held.version, held.granted), (5, 60));
    }
}

/// The edge counts from when it sent, the book a thousandth and a second longer from when it heard.
#[test]
fn a_lease_that_is_not_renewed_is_free_after_its_time_and_the_skew() {
    let mut book = book();
    ask(&mut book, 0, request("e/1", 1, 60));
    let end = 11_010 * MILLISECOND;
    assert_eq!(book.due(), Some(end));
    let mut events = Vec::new();
    book.apply(end - 1, &Command::Tick, &mut events);
    assert!(events.is_empty());
    book.apply(end, &Command::Tick, &mut events);
    assert_eq!(events, [Event::Ended { lease: "e/1".into(), freed: 60 }]);
    assert_eq!((book.leases().next(), book.due()), (None, None));
}

/// What is called back stays counted until the edge says that it came down.
#[test]
fn capacity_that_goes_is_called_back_in_proportion() {
    let mut book = book();
    ask(&mut book, 0, request("e/1", 1, 60));
    ask(&mut book, 0, request("f/1", 1, 40));
    let mut events = Vec::new();
    book.apply(0, &Command::Provide { resource: "wan:rt".into(), capacity: 50 }, &mut events);
    let back = |lease: &str, rate| Event::CallBack { lease: lease.into(), version: 1, rate };
    assert_eq!(events, [back("e/1", 30), back("f/1", 20)]);
    let taken = |book: &Book| book.resources().next().map(|r| r.taken);
    assert_eq!(taken(&book), Some(100));
    assert_eq!(ask(&mut book, 1, request("e/1", 2, 60)), granted(30), "told, and counted as before");
    assert_eq!(taken(&book), Some(100));
    assert_eq!(ask(&mut book, 2, request("e/1", 3, 30)), granted(30));
    assert_eq!(ask(&mut book, 2, request("f/1", 2, 20)), granted(20));
    assert_eq!(taken(&book), Some(50));
}

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

/// The same with up to 80 bit/s of a neighbour.
fn with_agreement() -> Book {
    let mut book = book();
    let agree = Command::Agree { resource: "peer:rt".into(), ceiling: 80, bulk: 1 };
    book.apply(0, &agree, &mut Vec::new());
    book
}

fn abroad(lease: &str, version: u64, rate: Rate) -> Request {
    Request { path: vec!["wan:rt".into(), "peer:rt".into()], ..request(lease, version, rate) }
}

/// All that is said of a command.
fn apply(book: &mut Book, now: Nanos, command: Command) -> Vec<Event> {
    let mut events = Vec::new();
    book.apply(now, &command, &mut events);
    book.check(now).expect("the account is right");
    events
}

/// A rise that waits is not to outlast what is in use. Whose hold ends first is answered first, whoever came first.
#[test]
fn a_short_lease_waits_for_a_neighbour_a_quarter_of_its_time() {
    let mut book = with_agreement();
    let long = Request { ttl_ms: 60_000, ..abroad("e/1", 1, 10) };
    let short = Request { ttl_ms: 6_000, ..abroad("f/1", 1, 10) };
    assert!(matches!(apply(&mut book, 0, Command::Ask(long))[..], [Event::Want { .. }]));
    assert_eq!(book.verdict("e/1", 1), Some(None), "it waits");
    let want = apply(&mut book, MILLISECOND, Command::Ask(short));
    assert!(matches!(want[..], [Event::Want { rate: 20, .. }]), "{want:?}");
    for (due, lease) in [(3 * SECOND / 2 + MILLISECOND, "f/1"), (HOLD, "e/1")] {
        assert_eq!(book.due(), Some(due));
        let said = apply(&mut book, due, Command::Tick);
        let verdict = Verdict::Refused(Refusal::Neighbour { resource: "peer:rt".into() });
        assert_eq!(said[0], Event::Answer { lease: lease.into(), version: 1, verdict: verdict.clone() });
        assert_eq!(book.verdict(lease, 1), Some(Some(&verdict)));
    }
}

/// A longer time is asked for, but what is in use ends sooner: who waits is answered then, and not forgotten.
#[test]
fn who_waits_is_answered_before_its_lease_ends() {
    let mut book = with_agreement();
    let first =
        Request { ttl_ms: 3_000, path: vec!["wan:rt".into(), "peer:rt".into()], ..request("e/1", 1, 0) };
    apply(&mut book, 0, Command::Ask(first));
    let end = freed_after(3_000);
    apply(&mut book, end - SECOND, Command::Ask(Request { ttl_ms: 60_000, ..abroad("e/1", 2, 10) }));
    assert_eq!(book.due(), Some(end));
    let said = apply(&mut book, end, Command::Tick);
    let is_answer =
        |event: &Event| matches!(event, Event::Answer { version: 2, verdict: Verdict::Refused(_), .. });
    assert!(said.iter().any(is_answer), "{said:?}");
}

#[test]
fn an_answer_to_an_older_want_brings_nothing_back_that_was_given_back() {
    let mut book = with_agreement();
    let leased = |serial, rate| {
        let until = 100 * SECOND;
        Command::Leased { resource: "peer:rt".into(), serial, rate, until }
    };
    apply(&mut book, 0, Command::Ask(abroad("e/1", 1, 60)));
    let said = apply(&mut book, 0, leased(1, 60));
    assert!(
        matches!(said[..], [Event::Answer { verdict: Verdict::Granted { rate: 60, .. }, .. }]),
        "{said:?}"
    );
    let said = apply(&mut book, 1, Command::Ask(abroad("e/1", 2, 20)));
    assert!(matches!(said[..], [Event::Answer { .. }, Event::Want { serial: 2, rate: 20, .. }]), "{said:?}");
    apply(&mut book, 2, leased(1, 60));
    assert_eq!(book.on("peer:rt").map(|shown| shown.capacity), Some(20));
    let said = apply(&mut book, 3, Command::Ask(abroad("f/1", 1, 30)));
    assert!(matches!(said[..], [Event::Want { serial: 3, rate: 50, .. }]), "it is asked for anew: {said:?}");
}

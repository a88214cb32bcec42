//! An edge at a broker that does what a test says.

use super::super::NOT_ALLOWED;
use super::super::codec::{Message, Report};
use super::*;
use crate::Rate;
use crate::client::{Broker, Client, Edge, Shaper};
use crate::holder::{GAP, RETRY, State, Terms};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here takes.
const ENOUGH: Duration = Duration::from_secs(20);

/// What a shaper was told: a rate, or that the broker is gone and why.
struct Heard(Sender<Result<Rate, String>>);

impl Shaper for Heard {
    fn shape(&mut self, _: &str, rate: Rate, _: State, _: Option<&Refusal>) {
        let _ = self.0.send(Ok(rate));
    }

    fn broker(&mut self, reached: Result<(), &HttpError>) {
        if let Err(why) = reached {
            let _ = self.0.send(Err(why.to_string()));
        }
    }
}

fn edge(at: String) -> (Client, Receiver<Result<Rate, String>>) {
    let (to, heard) = channel();
    let (lease, path) = ("e/1".into(), vec!["wan:rt".into()]);
    let terms = Terms { lease, path, ttl_ms: 60_000, epoch: 0, gap: GAP / 100, retry: RETRY };
    let broker = Broker::Cops(Target { at, edge: "e".into(), tls: None });
    let edge = Edge { broker, token: Some("secret".into()), leases: vec![terms], sessions: None, seed: 1 };
    (Client::start(edge, Heard(to)).expect("a thread can be made"), heard)
}

async fn next(line: &mut Line<TcpStream>) -> Message {
    timeout(ENOUGH, line.message()).await.expect("something comes").expect("it is there").1
}

async fn answer(line: &mut Line<TcpStream>, message: &Message) {
    line.say(message);
    line.send().await.expect("it is there");
}

/// Accepts the next session, and asks for all that is held.
async fn accept(listener: &TcpListener, keep_alive_s: u16) -> Line<TcpStream> {
    let mut line = Line::new(listener.accept().await.expect("it comes").0, CLIENT_TYPE);
    let open = Message::Open { pep: "e".into(), token: Some("secret".into()) };
    assert_eq!(next(&mut line).await, open);
    line.say(&Message::Accept { keep_alive_s });
    answer(&mut line, &Message::SyncRequest { handle: None }).await;
    line
}

/// The next message that says something new. Keep-alives before it are answered.
async fn other(line: &mut Line<TcpStream>) -> Message {
    loop {
        match next(line).await {
            Message::KeepAlive => answer(line, &Message::KeepAlive).await,
            Message::Report { .. } | Message::SyncDone { .. } => {}
            other => return other,
        }
    }
}

/// The next wish, with its handle.
async fn wish(line: &mut Line<TcpStream>) -> (u32, Request) {
    match other(line).await {
        Message::Request { handle, wish } => (handle, wish),
        other => panic!("{other:?}"),
    }
}

fn refused(handle: u32, wish: &Request, why: Refusal) -> Message {
    let (lease, version, verdict) = (wish.lease.clone(), wish.version, Verdict::Refused(why));
    Message::Decision { handle, decided: Ok(Decided::Answer { lease, version, verdict }) }
}

fn granted(handle: u32, wish: &Request) -> Message {
    let verdict = Verdict::Granted { rate: wish.rate, ttl_ms: wish.ttl_ms };
    let (lease, version) = (wish.lease.clone(), wish.version);
    Message::Decision { handle, decided: Ok(Decided::Answer { lease, version, verdict }) }
}

fn within(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(work);
}

/// T20
#[test]
fn a_session_is_opened_brought_level_kept_alive_and_closed() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 1).await;
        let (handle, wish) = wish(&mut line).await;
        assert_eq!((&*wish.lease, wish.rate, wish.ttl_ms), ("e/1", 500, 60_000));
        answer(&mut line, &granted(handle, &wish)).await;
        let mut came = [false; 3];
        while came != [true; 3] {
            match next(&mut line).await {
                Message::Report { handle: of, report } => {
                    assert_eq!((of, report), (handle, Report::Success));
                    came[0] = true;
                }
                Message::SyncDone { handle: None } => came[1] = true,
                Message::KeepAlive => {
                    came[2] = true;
                    answer(&mut line, &Message::KeepAlive).await;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(heard.iter().any(|told| told == Ok(500)));
        drop(client);
        loop {
            match next(&mut line).await {
                Message::KeepAlive => {}
                other => {
                    assert_eq!(other, Message::Close { error: Code { code: STOPPING, sub: 0 } });
                    return;
                }
            }
        }
    });
}

/// T20
#[test]
fn a_broker_that_is_silent_or_says_no_is_left_and_tried_again_with_what_is_held() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 1).await;
        let (handle, first) = wish(&mut line).await;
        answer(&mut line, &granted(handle, &first)).await;
        // From here on it is silent.
        let mut other = Line::new(listener.accept().await.expect("it comes again").0, CLIENT_TYPE);
        next(&mut other).await;
        answer(&mut other, &Message::Close { error: Code { code: NOT_ALLOWED, sub: 0 } }).await;
        let mut line = accept(&listener, 30).await;
        let (handle, again) = wish(&mut line).await;
        assert_eq!((again.rate, again.version), (500, first.version + 1));
        answer(&mut line, &granted(handle, &again)).await;
        let told: Vec<String> = heard.try_iter().filter_map(Result::err).collect();
        assert!(told[0].contains("the broker is silent"), "{told:?}");
        assert!(told[1].contains("take the certificate or token of the lease's owner"), "{told:?}");
        assert_eq!(client.leases()[0].held, 500, "the lease has gone on");
    });
}

#[test]
fn what_cannot_be_read_of_a_decision_ends_its_handle_alone() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, _heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 30).await;
        // A decision about the handle with an object 99, and one whose command is 7.
        for (object, reason) in [
            ([0, 8, 99, 1, 0, 0, 0, 0].as_slice(), Code { code: UNKNOWN_OBJECT, sub: 0x6301 }),
            (&[0, 8, 2, 1, 0, 2, 0, 0, 0, 8, 6, 1, 0, 7, 0, 0], Code { code: MALFORMED_DECISION, sub: 0 }),
        ] {
            let (handle, _) = wish(&mut line).await;
            let mut bytes = vec![0x11, 2, 0x40, 1, 0, 0, 0, 16 + object.len() as u8, 0, 8, 1, 1];
            bytes.extend(handle.to_be_bytes());
            bytes.extend(object);
            line.raw(&bytes);
            line.send().await.expect("it is there");
            assert_eq!(other(&mut line).await, Message::Delete { handle, reason });
        }
        let (handle, last) = wish(&mut line).await;
        assert_eq!(handle, 3, "each wish came by another handle");
        answer(&mut line, &granted(handle, &last)).await;
        let report = Message::Report { handle, report: Report::Success };
        while next(&mut line).await != report {}
        // Without a handle nobody knows what it is about: the session ends.
        line.raw(&[0x20, 9, 0, 0, 0, 0, 0, 8]);
        line.send().await.expect("it is there");
        accept(&listener, 30).await;
        assert_eq!(client.leases()[0].held, 500);
    });
}

/// The broker has read the wish, and asks its neighbour. Other leases go on meanwhile, and so does the session.
#[test]
fn an_answer_that_comes_late_holds_up_nothing() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 30).await;
        let (handle, late) = wish(&mut line).await;
        let other_terms = |lease: &str| {
            let (lease, path) = (lease.into(), vec!["wan:rt".into()]);
            Terms { lease, path, ttl_ms: 60_000, epoch: 0, gap: GAP / 100, retry: RETRY }
        };
        client.keep(vec![(other_terms("e/1"), None), (other_terms("e/2"), None)]);
        client.want("e/2", 70, 0);
        let since = Instant::now();
        loop {
            let (of, wish) = wish(&mut line).await;
            if &*wish.lease == "e/2" {
                answer(&mut line, &granted(of, &wish)).await;
                break;
            }
            assert_eq!((of, wish.version), (handle, late.version), "it is said again");
        }
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        // Longer than a broker may take to read a wish.
        while since.elapsed() < PATIENCE + Duration::from_secs(1) {
            match timeout(Duration::from_millis(100), next(&mut line)).await {
                Ok(Message::KeepAlive) => answer(&mut line, &Message::KeepAlive).await,
                Ok(Message::Close { .. }) => panic!("it goes"),
                Ok(_) | Err(_) => {}
            }
        }
        answer(&mut line, &granted(handle, &late)).await;
        let mut told: Vec<_> = heard.try_iter().collect();
        while !told.contains(&Ok(500)) {
            told.push(heard.recv_timeout(ENOUGH).expect("it is told"));
        }
        assert!(told.contains(&Ok(70)) && told.iter().all(Result::is_ok), "{told:?}");
    });
}

#[test]
fn a_lease_that_is_forgotten_frees_its_handle() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, _heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 30).await;
        let (handle, first) = wish(&mut line).await;
        answer(&mut line, &granted(handle, &first)).await;
        client.keep(Vec::new());
        let (of, nothing) = wish(&mut line).await;
        assert_eq!((of, nothing.rate), (handle, 0));
        answer(&mut line, &granted(handle, &nothing)).await;
        let reason = Code { code: TEAR, sub: 0 };
        assert_eq!(other(&mut line).await, Message::Delete { handle, reason });
    });
}

/// Who was found to share its name is silent, and each wish hears so.
#[test]
fn a_lease_that_another_speaks_for_answers_each_wish() {
    within(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (client, heard) = edge(listener.local_addr().expect("it listens").to_string());
        client.want("e/1", 500, 0);
        let mut line = accept(&listener, 30).await;
        let (handle, first) = wish(&mut line).await;
        answer(&mut line, &granted(handle, &first)).await;
        while heard.recv_timeout(ENOUGH) != Ok(Ok(500)) {}
        client.want("e/1", 600, 0);
        for _ in 0..2 {
            let (handle, wish) = wish(&mut line).await;
            let newest = wish.version + 9;
            answer(&mut line, &refused(handle, &wish, Refusal::Stale { newest })).await;
        }
        assert_eq!(heard.recv_timeout(ENOUGH), Ok(Ok(0)));
        for _ in 0..2 {
            assert!(heard.try_recv().is_err());
            client.want("e/1", 700, 0);
            assert_eq!(heard.recv_timeout(ENOUGH), Ok(Ok(0)));
        }
        // Its handle is not freed: the lease is the other one's.
        client.keep(Vec::new());
        drop(client);
        let stopping = Message::Close { error: Code { code: STOPPING, sub: 0 } };
        let says = async |line: &mut Line<TcpStream>| loop {
            match next(line).await {
                Message::KeepAlive | Message::Report { .. } | Message::SyncDone { .. } => {}
                other => return other,
            }
        };
        assert_eq!(says(&mut line).await, stopping);
    });
}

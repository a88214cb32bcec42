//! A broker as a process: what is there when it starts again, its socket, and a store that fails.

use super::*;
use crate::store::Store;
use crate::wire::{Answer, Problem};
use hyper::StatusCode;

#[test]
fn a_broker_that_starts_again_has_its_leases_and_its_audit() {
    let folder = Folder::new("again");
    within(async {
        let broker = Broker::start(folder.config()).await.expect("it starts");
        let second = Broker::start(Config { unix: folder.at("other.sock"), ..folder.config() }).await;
        let why = second.err().expect("the first one has the file");
        assert!(why.contains("another process has it open"), "{why}");
        let mut to = connect(&folder.unix(), None).await;
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(3, 600)).await.0, 200);
        let before = audited(&mut to).await;
        broker.stop().await.expect("nothing failed");

        let broker = Broker::start(folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (_, lease) = call(&mut to, Method::GET, "/v1/leases/e/1", "").await;
        assert_eq!((&lease["version"], &lease["granted_bps"]), (&json!(3), &json!(600)));
        assert_eq!(audited(&mut to).await.line, before.line + 2, "a broker began, a capacity was set");
        broker.stop().await.expect("nothing failed");

        // What the file no longer names has nothing.
        let broker =
            Broker::start(Config { resources: Vec::new(), ..folder.config() }).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (_, now) = call(&mut to, Method::GET, "/v1/resources", "").await;
        assert_eq!(now["resources"][0]["capacity_bps"], 0);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_capacity_that_was_set_goes_on_until_the_file_says_something_new() {
    let folder = Folder::new("set");
    let (gives, set) = (|bps| Resource { name: "wan:rt".into(), capacity: BitRate::from_bps(bps) }, 400);
    within(async {
        // What the file says; what is there then; what the broker says about it.
        for (file, now, says) in [
            (1_000, 1_000, ""),
            (1_000, 400, "the file says 1000"),
            (900, 900, ""),
            (400, 400, ""),
            (0, 0, ""),
        ] {
            let config = Config { resources: vec![gives(file)], ..folder.config() };
            let broker = Broker::start(config).await.expect("it starts");
            assert_eq!(!says.is_empty(), !broker.set_apart().is_empty(), "{:?}", broker.set_apart());
            assert!(broker.set_apart().iter().all(|line| line.contains(says)));
            let mut to = connect(&folder.unix(), None).await;
            let (_, answer) = call(&mut to, Method::GET, "/v1/resources", "").await;
            assert_eq!(answer["resources"][0]["capacity_bps"], json!(now), "the file says {file}");
            let (status, _) =
                call(&mut to, Method::PUT, "/v1/resources/wan:rt", json!({"capacity_bps": set})).await;
            assert_eq!(status, 200);
            broker.stop().await.expect("nothing failed");
        }
    });
}

#[test]
fn a_file_where_the_socket_is_to_be_is_kept_and_a_socket_that_is_left_is_replaced() {
    let folder = Folder::new("socket");
    within(async {
        std::fs::write(folder.at("broker.sock"), "mine").expect("it can be written");
        std::fs::write(folder.at("broker.new"), "mine").expect("it can be written");
        let why = Broker::start(folder.config()).await.err().expect("a file is there");
        assert!(why.contains("is no socket, and is kept"), "{why}");
        assert_eq!(std::fs::read_to_string(folder.at("broker.sock")).expect("it is there"), "mine");
        std::fs::remove_file(folder.at("broker.sock")).expect("it is there");
        drop(std::os::unix::net::UnixListener::bind(folder.at("broker.sock")).expect("it can be made"));
        let broker = Broker::start(folder.config()).await.expect("nobody listens there");
        let mut to = connect(&folder.unix(), None).await;
        // Nothing to decide is an answer, too.
        let (status, answer) = call(&mut to, Method::POST, "/v1/batch", json!({"leases": []})).await;
        assert_eq!((status, &answer["leases"]), (200, &json!([])), "{answer}");
        broker.stop().await.expect("nothing failed");
        assert_eq!(std::fs::read_to_string(folder.at("broker.new")).expect("it is there"), "mine");
        let left = std::fs::read_dir(&folder.0).expect("it is there");
        let names: Vec<_> = left.map(|file| file.expect("it is there").file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".weir-broker")), "{names:?}");
    });
}

#[test]
fn a_store_that_fails_stops_the_broker_before_it_answers() {
    use crate::store::{Batch, Loaded, Memory, StoreError};
    /// Writes once, for the broker's beginning.
    struct Full(Memory, u32);
    impl Store for Full {
        fn load(&self) -> Result<Loaded, StoreError> {
            self.0.load()
        }
        fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
            self.1 += 1;
            if self.1 > 1 { Err(StoreError("no space left".into())) } else { self.0.commit(batch) }
        }
        fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
            self.0.audit(from, most)
        }
    }
    let folder = Folder::new("full");
    within(async {
        let store = Box::new(Full(Memory::default(), 0));
        let broker = Broker::start_on(store, folder.config()).await.expect("it starts");
        let mut to = connect(&folder.unix(), None).await;
        let (status, bytes) =
            to.call(Method::PUT, "/v1/leases/e/1", wish(1, 5).to_string().into()).await.expect("it answers");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(serde_json::from_slice::<Answer>(&bytes).is_err(), "nothing is granted");
        let problem: Problem = serde_json::from_slice(&bytes).expect("it says why");
        assert_eq!(problem.error, "the broker is stopping");
        let why = broker.stop().await.expect_err("the store failed");
        assert!(why.contains("no space left"), "{why}");
    });
}

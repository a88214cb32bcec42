//! Every store keeps what it was given; a journal on it has the same book again, wherever it was stopped.

use super::*;
use crate::audit::Chain;
use crate::book::{Book, Command, Event, Name, Request, Verdict};
use crate::journal::{Given, Journal, JournalError};
use crate::{Rate, SECOND};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use weir_core::Random;

/// What the machine has when it starts again.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    /// What was synced.
    there: Vec<u8>,
    /// What has been done since, the oldest first.
    pending: Vec<Change>,
    /// Writes until the machine stops, if it does.
    left: Option<u64>,
    stopped: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
}

impl Platter {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Length(len) => bytes.resize(*len as usize, 0),
            Change::Write(at, data) => {
                let (at, end) = (*at as usize, *at as usize + data.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[at..end].copy_from_slice(data);
            }
        }
    }

    fn now(&self) -> Vec<u8> {
        let mut bytes = self.there.clone();
        self.pending.iter().for_each(|change| Self::apply(&mut bytes, change));
        bytes
    }

    fn step(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => self.stopped = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.stopped { Err(io::Error::other("the machine has stopped")) } else { Ok(()) }
    }
}

impl Disk {
    fn at(&self) -> std::sync::MutexGuard<'_, Platter> {
        self.0.lock().expect("no test holds it and fails")
    }

    /// Power is cut. Of what was not synced, some is there and some is not, whatever came first.
    fn power_cut(&self, random: &mut Random) {
        let mut it = self.at();
        let pending = std::mem::take(&mut it.pending);
        for change in &pending {
            if matches!(change, Change::Length(_)) || random.below(2) == 0 {
                Platter::apply(&mut it.there, change);
            }
        }
        (it.left, it.stopped) = (None, false);
    }
}

impl ::redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.at().now().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (it, at) = (self.at(), offset as usize);
        out.copy_from_slice(&it.now()[at..at + out.len()]);
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut it = self.at();
        it.step()?;
        it.pending.push(Change::Length(len));
        Ok(())
    }
    fn sync_data(&self) -> io::Result<()> {
        let mut it = self.at();
        it.step()?;
        it.there = it.now();
        it.pending.clear();
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut it = self.at();
        it.step()?;
        it.pending.push(Change::Write(offset, data.to_vec()));
        Ok(())
    }
}

/// A store whose machine stops at a commit: before it is there, or after, but before anybody hears of it.
#[derive(Clone, Debug, Default)]
struct Failing {
    inner: Arc<Mutex<Memory>>,
    left: Option<u64>,
    after: bool,
}

impl Store for Failing {
    fn load(&self) -> Result<Loaded, StoreError> {
        self.inner.lock().expect("no test holds it and fails").load()
    }
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let stops = self.left == Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        if !stops || self.after {
            self.inner.lock().expect("no test holds it and fails").commit(batch)?;
        }
        if stops { Err(StoreError("the machine has stopped".into())) } else { Ok(()) }
    }
    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
        self.inner.lock().expect("no test holds it and fails").audit(from, most)
    }
}

pub(crate) fn keeps_what_it_was_given(mut store: impl Store) {
    assert_eq!(store.load(), Ok(Loaded::default()));
    let commit = |store: &mut dyn Store, number: u64, keep_from, snapshot: Option<&[u8]>| {
        let (record, first_line) = (format!("r{number}"), 2 * number - 1);
        let audit = format!("l{first_line}\nl{}\n", first_line + 1);
        let batch = Batch { number, record: &record, first_line, audit: &audit, keep_from, snapshot };
        store.commit(&batch).expect("it is written");
    };
    for number in 1..=3 {
        commit(&mut store, number, 0, None);
    }
    let records = vec!["r1".to_owned(), "r2".into(), "r3".into()];
    let last_line = Some("l6".to_owned());
    assert_eq!(store.load(), Ok(Loaded { newest: 3, snapshot: None, records, last_line }));
    let lines = |store: &dyn Store, from, most| store.audit(from, most).expect("it is read").join(" ");
    assert_eq!(lines(&store, 0, 9), "l1 l2 l3 l4 l5 l6");
    assert_eq!(lines(&store, 4, 2), "l4 l5");
    assert_eq!(lines(&store, 7, 9), "");
    commit(&mut store, 4, 4, Some(b"whole"));
    commit(&mut store, 5, 4, None);
    let (snapshot, records) = (Some(b"whole".to_vec()), vec!["r5".to_owned()]);
    assert_eq!(store.load(), Ok(Loaded { newest: 5, snapshot, records, last_line: Some("l10".into()) }));
    assert_eq!(lines(&store, 0, 3), "l3 l4 l5", "the group of line 4 is kept whole");
}

#[test]
fn stores_keep_what_they_were_given() {
    keeps_what_it_was_given(Memory::default());
    keeps_what_it_was_given(Redb::on(Disk::default()).expect("it is empty"));
}

#[test]
fn a_file_has_one_broker_and_says_so() {
    let path = std::env::temp_dir().join(format!("weir-store-{}.redb", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let first = Redb::open(&path).expect("it is made");
    let second = Redb::open(&path).expect_err("the first one has it");
    assert!(second.to_string().contains("another process has it open"), "{second}");
    drop(first);
    Redb::open(&path).expect("the first one has gone");
    std::fs::write(&path, "no book at all").expect("it is writable");
    let damaged = Redb::open(&path).expect_err("this is no such file");
    assert!(damaged.to_string().contains("weir-store"), "it is named: {damaged}");
    std::fs::remove_file(&path).expect("it is there");
}

/// What edges have heard, and what the broker did.
struct History {
    random: Random,
    now: u64,
    versions: HashMap<Name, u64>,
    /// What each edge may use by the answers that it heard.
    held: BTreeMap<Name, (u64, Rate)>,
    /// The verdict that was heard for each version.
    heard: HashMap<(Name, u64), Verdict>,
    /// Requests that were not answered are sent again.
    again: Vec<Request>,
    /// The edges hear of it before it is written, so that an invariant must break.
    answer_first: bool,
}

const CAPACITY: Rate = 1_000;

impl History {
    fn new(seed: u64, answer_first: bool) -> Self {
        History {
            random: Random::new(seed),
            now: SECOND,
            versions: HashMap::new(),
            held: BTreeMap::new(),
            heard: HashMap::new(),
            again: Vec::new(),
            answer_first,
        }
    }

    fn request(&mut self) -> Request {
        if let Some(request) = self.again.pop() {
            return request;
        }
        let lease: Name = format!("e{}/rt", self.random.below(6)).into();
        let version = self.versions.entry(lease.clone()).or_default();
        *version += 1;
        let rate = self.random.below(CAPACITY / 2);
        let (path, min) = (vec!["wan:rt".into(), "core:rt".into()], self.random.below(rate + 1));
        // It shapes down before it asks for less.
        if let Some((_, held)) = self.held.get_mut(&lease) {
            *held = (*held).min(rate);
        }
        Request { lease, version: *version, path, rate, min, ttl_ms: 3_600_000, domains: Vec::new() }
    }

    fn group(&mut self) -> Vec<Given> {
        let who = || "edge".into();
        let count = 1 + self.random.below(4);
        let asks = (0..count).map(|_| Given { who: who(), command: Command::Ask(self.request()) });
        asks.collect()
    }

    fn hear(&mut self, event: &Event) -> Result<(), String> {
        let Event::Answer { lease, version, verdict } = event else { return Ok(()) };
        let before = self.heard.entry((lease.clone(), *version)).or_insert_with(|| verdict.clone());
        if before != verdict {
            return Err(format!("{lease} version {version}: {before:?}, then {verdict:?}"));
        }
        if let (Verdict::Granted { rate, .. }, Some(newest)) = (verdict, self.versions.get(lease))
            && version == newest
        {
            self.held.insert(lease.clone(), (*version, *rate));
        }
        Ok(())
    }

    /// Invariants 1 to 3, seen from the edges.
    fn look(&self, book: &Book) -> Result<(), String> {
        book.check(self.now)?;
        for shown in book.resources() {
            if shown.taken > shown.capacity {
                return Err(format!("{shown:?}"));
            }
        }
        for (lease, (version, rate)) in &self.held {
            let granted = book.lease(lease).map_or(0, |l| l.granted);
            if granted < *rate {
                return Err(format!(
                    "{lease} was granted {rate} by version {version}, and {granted} is counted"
                ));
            }
        }
        Ok(())
    }

    /// A broker serves `groups` groups, or stops before. Says whether it did.
    fn serve<S: Store>(&mut self, journal: &mut Journal<S>, groups: u64) -> Result<bool, String> {
        let operator = |command| Given { who: "operator".into(), command };
        let provide = |name: &str| operator(Command::Provide { resource: name.into(), capacity: CAPACITY });
        let mut given = vec![operator(Command::Begin), provide("wan:rt"), provide("core:rt")];
        for _ in 0..groups {
            self.now += self.random.below(SECOND);
            if self.answer_first {
                let (mut book, mut events) = (journal.book().clone(), Vec::new());
                given.iter().for_each(|g| book.apply(self.now, &g.command, &mut events));
                events.iter().try_for_each(|event| self.hear(event))?;
            }
            match journal.commit(self.now, 0, &given) {
                Ok(events) => events.iter().try_for_each(|(_, event)| self.hear(event))?,
                Err(JournalError::Store(_)) => {
                    let asked = given.into_iter().filter_map(|g| match g.command {
                        Command::Ask(request) => Some(request),
                        _ => None,
                    });
                    // An edge repeats its newest wish alone.
                    let newest = |r: &Request| self.versions.get(&r.lease) == Some(&r.version);
                    self.again = asked.filter(newest).collect();
                    assert_eq!(journal.commit(self.now, 0, &[]), Err(JournalError::Stopped));
                    return Ok(false);
                }
                Err(other) => return Err(other.to_string()),
            }
            self.look(journal.book())?;
            given = self.group();
        }
        Ok(true)
    }
}

const GROUPS: u64 = 12;

fn open<S: Store>(store: S) -> Result<Journal<S>, String> {
    Ok(Journal::open(store, "a").map_err(|e| e.to_string())?.whole_after(4).keeping(20))
}

/// Follows the audit from its first line that is kept to its end.
fn audited<S: Store>(journal: &Journal<S>) -> Result<(), String> {
    let mut chain = Chain::default();
    for line in journal.audit(0, usize::MAX).map_err(|e| e.to_string())? {
        chain.follow(&line)?;
    }
    if chain == *journal.chain() { Ok(()) } else { Err(format!("{chain:?}, not {:?}", journal.chain())) }
}

/// What was answered is there after a start from `store`, and the history goes on.
fn goes_on<S: Store>(history: &mut History, store: S) -> Result<(), String> {
    let mut journal = open(store)?;
    history.look(journal.book())?;
    if !history.serve(&mut journal, GROUPS)? {
        return Err("it stopped again".into());
    }
    audited(&journal)
}

/// The machine stops at commit `at`. Says whether it came so far.
fn stopped_at_commit(seed: u64, at: u64, after: bool, answer_first: bool) -> Result<bool, String> {
    let disk = Failing::default();
    let mut history = History::new(seed, answer_first);
    let mut journal = open(Failing { left: Some(at), after, ..disk.clone() })?;
    let whole = history.serve(&mut journal, GROUPS)?;
    goes_on(&mut history, disk)?;
    Ok(!whole)
}

#[test]
fn an_answered_grant_survives_a_stop_at_every_commit() {
    for seed in weir_seed::seeds(20) {
        for at in 0..GROUPS {
            for after in [false, true] {
                let stopped = stopped_at_commit(seed, at, after, false);
                assert_eq!(stopped, Ok(true), "seed {seed}, commit {at}, after {after}");
            }
        }
    }
}

#[test]
fn answered_before_it_is_written_it_does_not() {
    let fails = |seed| (0..GROUPS).any(|at| stopped_at_commit(seed, at, false, true).is_err());
    assert!(weir_seed::seeds(5).all(fails));
}

/// Power is cut at the `at`th write to the disk of redb. Says whether it came so far.
fn cut_at_write(seed: u64, at: u64) -> Result<bool, String> {
    let disk = Disk::default();
    let mut history = History::new(seed, false);
    let text = |e: StoreError| e.to_string();
    // The file itself is made under another name.
    drop(Redb::on(disk.clone()).map_err(text)?);
    disk.at().left = Some(at);
    let whole = match Redb::on(disk.clone()) {
        Ok(store) => history.serve(&mut open(store)?, GROUPS)?,
        Err(_) => false,
    };
    disk.power_cut(&mut Random::new(seed ^ at));
    goes_on(&mut history, Redb::on(disk).map_err(text)?)?;
    Ok(!whole)
}

#[test]
fn an_answered_grant_survives_a_power_cut_at_every_write() {
    for seed in weir_seed::seeds(2) {
        let mut at = 0;
        loop {
            match cut_at_write(seed, at) {
                Ok(true) => at += 1,
                Ok(false) => break,
                Err(what) => panic!("seed {seed}, write {at}: {what}"),
            }
        }
        assert!(at > 3 * GROUPS, "only {at} writes");
    }
}

#[test]
fn what_is_damaged_or_of_another_domain_is_not_opened() {
    let store = Failing::default();
    let mut history = History::new(weir_seed::seed(), false);
    history.serve(&mut open(store.clone()).expect("it is empty"), 6).expect("nothing stops it");
    let other = Journal::open(store.clone(), "b").expect_err("it is a's").to_string();
    assert!(other.contains("domain a, not of b"), "{other}");
    let mut gap = store.inner.lock().expect("nobody else has it").clone();
    let batch = Batch { number: 9, record: "", first_line: 0, audit: "", keep_from: 0, snapshot: None };
    gap.commit(&batch).expect("it keeps what it gets");
    let missing = Journal::open(gap, "a").expect_err("a record is missing").to_string();
    assert!(missing.contains("the store is damaged"), "{missing}");
}

//! The book, and where it is written down: whoever [commits](Journal::commit) through a journal hears what came of it
//! once it is there to stay.
//!
//! All that a broker answers goes this way, so invariant 3 (an answered grant survives a crash) is kept in one
//! place. [`open`](Journal::open) has the same book again: the newest snapshot, and the records after it applied at the
//! times at which they were applied before.

use crate::Nanos;
use crate::audit::{Chain, Noise};
use crate::book::{Book, Command, Event, Name};
use crate::store::{Batch, Store, StoreError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Records after which the whole book is written.
pub const SNAPSHOT_RECORDS: u64 = 10_000;
/// Bytes of records after which the whole book is written, so that a restart does not take long.
pub const SNAPSHOT_BYTES: u64 = 16 << 20;
/// Lines of audit that are kept, unless set.
pub const AUDIT_LINES: u64 = 10_000_000;

/// A command, and who gave it.
#[derive(Clone, Debug)]
pub struct Given {
    /// An edge, the name of a token, or a part of the broker.
    pub who: Name,
    /// What is to happen.
    pub command: Command,
}

/// One group of commands, as it is written.
#[derive(Serialize, Deserialize)]
struct Record<C> {
    now: Nanos,
    commands: Vec<C>,
}

/// The whole book, as it is written.
#[derive(Serialize, Deserialize)]
struct Snapshot<B> {
    /// The batch that it came with.
    number: u64,
    book: B,
}

/// Why a journal cannot be opened, or has stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The store failed. After this the journal commits nothing any more.
    Store(StoreError),
    /// What is in the store cannot be read, or a part of it is missing.
    Damaged(String),
    /// The store is that of another domain.
    Domain {
        /// Whose it is.
        stored: Name,
        /// Who opens it.
        asked: Name,
    },
    /// An earlier commit failed.
    Stopped,
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::Store(error) => write!(f, "the book cannot be written or read: {error}"),
            JournalError::Damaged(what) => {
                write!(f, "the store is damaged: {what}; take the last good copy of the file, or a new file")
            }
            JournalError::Domain { stored, asked } => {
                write!(
                    f,
                    "the store is that of domain {stored}, not of {asked}: name that domain or another file"
                )
            }
            JournalError::Stopped => {
                f.write_str("an earlier commit failed, and nobody knows what is written")
            }
        }
    }
}

impl std::error::Error for JournalError {}

/// The book with its store.
#[derive(Debug)]
pub struct Journal<S> {
    store: S,
    book: Book,
    chain: Chain,
    noise: Noise,
    number: u64,
    /// Since the last snapshot. None if there has been none.
    since: Option<Since>,
    snapshot_records: u64,
    audit_lines: u64,
    /// A commit failed: the book may be ahead of the store, or behind it.
    stopped: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Since {
    records: u64,
    bytes: u64,
}

impl<S: Store> Journal<S> {
    /// The book that `store` has, or an empty one of `domain`. Whoever serves by it commits [`Command::Begin`]
    /// first.
    ///
    /// # Errors
    /// The store cannot be read, is damaged, or is that of another domain.
    pub fn open(store: S, domain: &str) -> Result<Self, JournalError> {
        let loaded = store.load().map_err(JournalError::Store)?;
        let damaged = |what: &dyn fmt::Display| JournalError::Damaged(what.to_string());
        let (mut book, from) = match &loaded.snapshot {
            None => (Book::new(domain), 0),
            Some(bytes) => {
                let whole: Snapshot<Book> =
                    serde_json::from_slice(bytes).map_err(|e| damaged(&format_args!("the snapshot: {e}")))?;
                (whole.book, whole.number)
            }
        };
        if book.domain() != domain {
            return Err(JournalError::Domain { stored: book.domain().into(), asked: domain.into() });
        }
        let count = loaded.records.len() as u64;
        if from + count != loaded.newest {
            return Err(damaged(&format_args!("{count} records between {from} and {}", loaded.newest)));
        }
        let (mut now, mut bytes, mut events) = (0, 0, Vec::new());
        for (text, number) in loaded.records.iter().zip(from + 1..) {
            let record: Record<Command> =
                serde_json::from_str(text).map_err(|e| damaged(&format_args!("record {number}: {e}")))?;
            (now, bytes) = (record.now, bytes + text.len() as u64);
            for command in &record.commands {
                book.apply(record.now, command, &mut events);
                events.clear();
            }
        }
        book.check(now).map_err(|e| damaged(&e))?;
        let chain = loaded.last_line.as_deref().map_or_else(|| Ok(Chain::default()), Chain::after);
        Ok(Journal {
            store,
            book,
            chain: chain.map_err(|e| damaged(&e))?,
            noise: Noise::default(),
            number: loaded.newest,
            since: loaded.snapshot.is_some().then_some(Since { records: count, bytes }),
            snapshot_records: SNAPSHOT_RECORDS,
            audit_lines: AUDIT_LINES,
            stopped: false,
        })
    }

    /// The same with another number of lines of audit to keep.
    #[must_use]
    pub fn keeping(mut self, audit_lines: u64) -> Self {
        self.audit_lines = audit_lines;
        self
    }

    /// The same with the whole book written after another number of records.
    #[must_use]
    pub fn whole_after(mut self, records: u64) -> Self {
        self.snapshot_records = records;
        self
    }

    /// The account.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Where the audit stands.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// The commits so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Lines of the audit, as [`Store::audit`].
    ///
    /// # Errors
    /// They cannot be read.
    pub fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, JournalError> {
        self.store.audit(from, most).map_err(JournalError::Store)
    }

    /// Carries the commands out at `now` and writes them down. Returns what the world may hear by then: each
    /// event with the place of its command. `time_ms` is for the audit alone.
    ///
    /// # Errors
    /// The store failed, now or before. Nobody may hear anything, and this journal commits nothing any more:
    /// what is written shows when the store is opened anew.
    pub fn commit(
        &mut self,
        now: Nanos,
        time_ms: u64,
        given: &[Given],
    ) -> Result<Vec<(usize, Event)>, JournalError> {
        self.commit_telling(now, time_ms, given, |_| {})
    }

    /// The same. Before they are written `asks` sees all events, for what may be asked for by then: whoever crashes now
    /// has asked for nothing that it knows of.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_telling(
        &mut self,
        now: Nanos,
        time_ms: u64,
        given: &[Given],
        mut asks: impl FnMut(&Event),
    ) -> Result<Vec<(usize, Event)>, JournalError> {
        if self.stopped {
            return Err(JournalError::Stopped);
        }
        let (mut all, mut events) = (Vec::with_capacity(given.len()), Vec::new());
        let (mut audit, first_line) = (String::new(), self.chain.line + 1);
        for (who, refusals) in self.noise.ended(now) {
            self.chain.left_out(&mut audit, time_ms, &who, refusals);
        }
        for (place, Given { who, command }) in given.iter().enumerate() {
            self.book.apply(now, command, &mut events);
            let from = all.len();
            all.extend(events.drain(..).map(|event| (place, event)));
            if self.noise.is_written(who, &all[from..]) {
                self.chain.tell(&mut audit, time_ms, who, command, &all[from..], &self.book);
            }
        }
        all.iter().for_each(|(_, event)| asks(event));
        let commands = given.iter().map(|g| &g.command).collect();
        let record = json(&Record { now, commands });
        self.number += 1;
        let since =
            self.since.map(|s| Since { records: s.records + 1, bytes: s.bytes + record.len() as u64 });
        let whole = since.is_none_or(|s| s.records >= self.snapshot_records || s.bytes >= SNAPSHOT_BYTES);
        let snapshot = whole.then(|| json(&Snapshot { number: self.number, book: &self.book }));
        self.since = if whole { Some(Since::default()) } else { since };
        let batch = Batch {
            number: self.number,
            record: &record,
            first_line,
            audit: &audit,
            keep_from: (self.chain.line + 1).saturating_sub(self.audit_lines),
            snapshot: snapshot.as_deref().map(str::as_bytes),
        };
        self.store.commit(&batch).map_err(|error| {
            self.stopped = true;
            JournalError::Store(error)
        })?;
        Ok(all)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("names, numbers and their collections have a form in JSON")
}

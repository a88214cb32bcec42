//! Where a broker writes its book down: a log of [batches](Batch), and now and then the whole book.
//!
//! One batch is one write: it is there whole after a crash, or not at all. The [journal](crate::journal)
//! answers nobody before the batch with the answer is there.

mod memory;
mod redb;
#[cfg(test)]
pub(crate) mod tests;

pub use self::redb::Redb;
pub use memory::Memory;

use std::fmt;

/// What one group of commands writes, all or nothing.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Counts the batches from 1, without a gap.
    pub number: u64,
    /// The commands and their time, as text.
    pub record: &'a str,
    /// The number of the first line of audit.
    pub first_line: u64,
    /// The lines of audit, each ended by a line feed. Empty if there are none.
    pub audit: &'a str,
    /// Lines of audit below this number need not be kept.
    pub keep_from: u64,
    /// The book after this record. No record up to this one is needed any more.
    pub snapshot: Option<&'a [u8]>,
}

/// What a store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The number of the newest batch, 0 if there is none.
    pub newest: u64,
    /// The newest snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// The records after the snapshot, the oldest first.
    pub records: Vec<String>,
    /// The last line of audit.
    pub last_line: Option<String>,
}

/// What keeps the book when its broker does not.
pub trait Store: Send {
    /// What has been committed.
    ///
    /// # Errors
    /// It cannot be read, or is not whole.
    fn load(&self) -> Result<Loaded, StoreError>;

    /// Writes the batch, whole or not at all. It is there after a crash once this returns `Ok`. After an
    /// error nobody knows whether it is there, and the store must be [loaded](Self::load) anew.
    ///
    /// # Errors
    /// It cannot be written.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;

    /// At most `most` lines of audit from number `from` on, the oldest first. Lines that are no longer
    /// kept are left out.
    ///
    /// # Errors
    /// They cannot be read.
    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError>;
}

impl Store for Box<dyn Store> {
    fn load(&self) -> Result<Loaded, StoreError> {
        (**self).load()
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        (**self).commit(batch)
    }

    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
        (**self).audit(from, most)
    }
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError(pub String);

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StoreError {}

/// The lines of one group that are wanted.
fn wanted<'a>(first: u64, lines: &'a str, from: u64) -> impl Iterator<Item = String> + use<'a> {
    lines.lines().skip(from.saturating_sub(first) as usize).map(str::to_owned)
}

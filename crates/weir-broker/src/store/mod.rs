//! Where a broker writes its book down: a log of [batches](Batch), and now and then the whole book.
//!
//! One batch is one write: it is there whole after a crash, or not at all. The [journal](crate::journal)
//! answers nobody before the batch with the answer is there.

mod cluster;
#[cfg(feature = "etcd")]
mod etcd;
mod memory;
mod redb;
#[cfg(test)]
pub(crate) mod tests;

pub use self::redb::Redb;
pub use cluster::{Cluster, Node};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, Nodes};
pub use memory::Memory;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::PathBuf;

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

/// Where a store is, as the file of a broker says it.
#[derive(Clone, Debug)]
pub enum Place {
    /// `store = "core.redb"`: a file of this machine, by [`Redb`].
    File(PathBuf),
    /// `[store]` with `etcd = ["https://10.0.0.1:2379"]`: a cluster, of whose brokers one serves.
    Cluster(Cluster),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => path.display().fmt(f),
            Place::Cluster(cluster) => {
                let nodes: Vec<&str> = cluster.etcd.iter().map(|node| &*node.0).collect();
                write!(f, "etcd at {}", nodes.join(", "))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Place;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file, as store = \"core.redb\", or [store] with the nodes of etcd")
            }
            fn visit_str<E: Error>(self, path: &str) -> Result<Place, E> {
                Ok(Place::File(path.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Place, A::Error> {
                Cluster::deserialize(MapAccessDeserializer::new(map)).map(Place::Cluster)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl Place {
    /// Whether this program can keep a book there.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Place::File(_) => Ok(()),
            Place::Cluster(cluster) if cfg!(feature = "etcd") => cluster.check(),
            Place::Cluster(_) => Err("[store] etcd: this weir was built without it: build it by `cargo build \
                                      --release --package weir --features etcd`, or write store = \"core.redb\""
                .into()),
        }
    }

    /// Opens the store of `domain`. With etcd, waits until this broker serves: `waits` is told why it does not yet.
    ///
    /// # Errors
    /// It cannot be opened.
    #[cfg_attr(not(feature = "etcd"), expect(unused_variables, clippy::unused_async))]
    pub async fn open(&self, domain: &str, waits: impl FnMut(&str)) -> Result<Box<dyn Store>, StoreError> {
        match self {
            Place::File(path) => Ok(Box::new(Redb::open(path)?)),
            #[cfg(feature = "etcd")]
            Place::Cluster(cluster) => Ok(Box::new(Etcd::open(cluster, domain, waits).await?)),
            #[cfg(not(feature = "etcd"))]
            Place::Cluster(_) => Err(StoreError(self.check().err().unwrap_or_default())),
        }
    }

    /// The files that it names, whose paths are relative to the folder of the file that names them.
    pub(crate) fn files(&mut self) -> Box<dyn Iterator<Item = &mut PathBuf> + '_> {
        match self {
            Place::File(path) => Box::new(std::iter::once(path)),
            Place::Cluster(cluster) => Box::new(cluster.files()),
        }
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

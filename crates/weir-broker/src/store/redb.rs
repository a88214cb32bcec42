//! A store in one file, by redb: a copy-on-write B+tree, whose commit returns after `fdatasync`.
//!
//! Three tables: `log` (number to record), `audit` (number of the first line to lines) and `whole` (the number
//! of a record to the book after it). A second process cannot open the file while the first one has it, so two brokers
//! never serve from one file (invariant 6).

use super::{Batch, Loaded, Store, StoreError, wanted};
use redb::{Builder, Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::io::ErrorKind;
use std::path::Path;

const LOG: TableDefinition<'_, u64, &str> = TableDefinition::new("log");
const AUDIT: TableDefinition<'_, u64, &str> = TableDefinition::new("audit");
const WHOLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("whole");
/// Pages that redb keeps in memory, in bytes. The book is read at the start alone.
const CACHE_BYTES: usize = 16 << 20;
/// Groups of audit that one commit takes away at most, so that no commit is long.
const FORGET: usize = 8;

/// A store in one file.
#[derive(Debug)]
pub struct Redb {
    database: Database,
}

/// What is said of any error of redb's.
fn failed(what: impl std::fmt::Display) -> StoreError {
    StoreError(what.to_string())
}

impl Redb {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// It cannot be opened or written, another process has it, or it is not such a file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let told = |why: String| StoreError(format!("{}: {why}", path.display()));
        if !path.exists() {
            Self::make(path).map_err(|e| told(e.0))?;
        }
        let opened = Builder::new().set_cache_size(CACHE_BYTES).create(path);
        let database = opened.map_err(|e| match e {
            redb::DatabaseError::DatabaseAlreadyOpen => told(
                "another process has it open: stop that one first, or give this broker its own file".into(),
            ),
            e => told(e.to_string()),
        })?;
        Self::with(database).map_err(|e| told(e.0))
    }

    /// A file that was made only in part could not be opened: it gets its name when it is whole. If another process
    /// has been faster, that one's file stays.
    fn make(path: &Path) -> Result<(), StoreError> {
        let part = path.with_extension(format!("{}.new", std::process::id()));
        match std::fs::remove_file(&part) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        drop(Self::with(Builder::new().create(&part).map_err(failed)?)?);
        match std::fs::hard_link(&part, path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(failed(e)),
            _ => std::fs::remove_file(&part).map_err(failed)?,
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// The same on something else than a file.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn on(backend: impl StorageBackend) -> Result<Self, StoreError> {
        let opened = Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(backend);
        Self::with(opened.map_err(failed)?)
    }

    /// Makes the tables, so that readers find them.
    fn with(database: Database) -> Result<Self, StoreError> {
        let write = database.begin_write().map_err(failed)?;
        write.open_table(LOG).map_err(failed)?;
        write.open_table(AUDIT).map_err(failed)?;
        write.open_table(WHOLE).map_err(failed)?;
        write.commit().map_err(failed)?;
        Ok(Redb { database })
    }

    fn try_commit(&self, batch: &Batch<'_>) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        {
            let mut log = write.open_table(LOG)?;
            match batch.snapshot {
                None => drop(log.insert(batch.number, batch.record)?),
                Some(snapshot) => {
                    log.retain(|_, _| false)?;
                    let mut whole = write.open_table(WHOLE)?;
                    whole.retain(|_, _| false)?;
                    whole.insert(batch.number, snapshot)?;
                }
            }
            let mut audit = write.open_table(AUDIT)?;
            if !batch.audit.is_empty() {
                audit.insert(batch.first_line, batch.audit)?;
            }
            for _ in 0..FORGET {
                let second = audit.iter()?.nth(1).transpose()?.map(|(first, _)| first.value());
                if second.is_none_or(|second| second > batch.keep_from) {
                    break;
                }
                audit.pop_first()?;
            }
        }
        write.commit()?;
        Ok(())
    }

    fn try_load(&self) -> Result<Loaded, redb::Error> {
        let read = self.database.begin_read()?;
        let (log, audit, whole) = (read.open_table(LOG)?, read.open_table(AUDIT)?, read.open_table(WHOLE)?);
        let mut loaded = Loaded::default();
        if let Some((number, snapshot)) = whole.last()? {
            (loaded.newest, loaded.snapshot) = (number.value(), Some(snapshot.value().to_vec()));
        }
        for entry in log.iter()? {
            let (number, record) = entry?;
            loaded.newest = number.value();
            loaded.records.push(record.value().to_owned());
        }
        let last = audit.last()?;
        loaded.last_line = last.and_then(|(_, lines)| lines.value().lines().next_back().map(str::to_owned));
        Ok(loaded)
    }

    fn try_audit(&self, from: u64, most: usize) -> Result<Vec<String>, redb::Error> {
        let audit = self.database.begin_read()?.open_table(AUDIT)?;
        let start = audit.range(..=from)?.next_back().transpose()?.map_or(from, |(first, _)| first.value());
        let mut found = Vec::new();
        for group in audit.range(start..)? {
            let (first, lines) = group?;
            found.extend(wanted(first.value(), lines.value(), from));
            if found.len() >= most {
                break;
            }
        }
        found.truncate(most);
        Ok(found)
    }
}

impl Store for Redb {
    fn load(&self) -> Result<Loaded, StoreError> {
        self.try_load().map_err(failed)
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.try_commit(batch).map_err(failed)
    }

    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
        self.try_audit(from, most).map_err(failed)
    }
}

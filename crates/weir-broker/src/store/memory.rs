//! A store that lasts as long as its process: for tests and benches.

use super::{Batch, Loaded, Store, StoreError, wanted};
use std::collections::BTreeMap;

/// Keeps everything in memory.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    newest: u64,
    snapshot: Option<Vec<u8>>,
    records: BTreeMap<u64, String>,
    audit: BTreeMap<u64, String>,
}

impl Store for Memory {
    fn load(&self) -> Result<Loaded, StoreError> {
        Ok(Loaded {
            newest: self.newest,
            snapshot: self.snapshot.clone(),
            records: self.records.values().cloned().collect(),
            last_line: self
                .audit
                .values()
                .next_back()
                .and_then(|lines| lines.lines().next_back())
                .map(str::to_owned),
        })
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.newest = batch.number;
        match batch.snapshot {
            Some(snapshot) => {
                self.snapshot = Some(snapshot.to_vec());
                self.records.clear();
            }
            None => {
                self.records.insert(batch.number, batch.record.to_owned());
            }
        }
        if !batch.audit.is_empty() {
            self.audit.insert(batch.first_line, batch.audit.to_owned());
        }
        while self.audit.keys().nth(1).is_some_and(|&second| second <= batch.keep_from) {
            self.audit.pop_first();
        }
        Ok(())
    }

    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
        let start = self.audit.range(..=from).next_back().map_or(from, |(&first, _)| first);
        let groups = self.audit.range(start..);
        Ok(groups.flat_map(|(&first, lines)| wanted(first, lines, from)).take(most).collect())
    }
}

//! A store on a cluster of etcd, for brokers on several machines of which one serves.
//!
//! The broker that serves has written the key `leader`, under a lease of etcd that it keeps alive. If etcd has not heard
//! it for the time of that lease, the key goes, and another one writes it. **Each commit is one transaction, which etcd
//! carries out only if `leader` is still as this broker wrote it.** So one that has been deposed writes nothing, whatever
//! it believes (invariant 6). Leases of edges end by the book alone, never by those of etcd.
//!
//! ```text
//! weir/DOMAIN/leader                  who serves. Its revision is the fence
//! weir/DOMAIN/newest                  the newest batch, the last line of audit, and the snapshot: what counts
//! weir/DOMAIN/log/NUMBER/PIECE        the records after the snapshot
//! weir/DOMAIN/whole/NUMBER/PIECE      the snapshot
//! weir/DOMAIN/audit/LINE              lines of audit from this one on
//! ```
//!
//! etcd refuses requests above 1.5 MiB. So what is longer is written in pieces, by transactions with the same fence, and
//! counts once the last one has written `newest`. Each commit requires the `newest` of the one before: it can be
//! tried again until etcd answers, and is carried out once.

mod link;
mod nodes;
#[cfg(test)]
mod tests;

pub use nodes::Nodes;

use super::{Batch, Cluster, Loaded, Store, StoreError, wanted};
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use link::{Link, Way, delete, failed, lasts, told};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Bytes of one value at most.
const PIECE: usize = 512 << 10;
/// Bytes of the values of one transaction at most.
const TRANSACTION: usize = 1 << 20;
/// How often who stands by looks whether anybody serves.
const LOOK: Duration = Duration::from_millis(250);
/// How long a broker that goes tries to say so.
const PARTING: Duration = Duration::from_secs(1);

/// A store on etcd, and the right to write it.
pub struct Etcd {
    link: Link,
    keys: Keys,
    seat: Seat,
    /// What was committed last.
    mark: Mark,
    /// Whoever calls may write: so that a test shows what the fence is for.
    #[cfg(test)]
    without_fence: bool,
}

/// The names of all keys of a domain.
#[derive(Clone, Debug)]
struct Keys {
    prefix: String,
    leader: String,
    newest: String,
}

/// That this broker serves.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// At which `leader` was written.
    revision: i64,
    /// Of etcd.
    lease: i64,
}

/// What counts of all that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    /// The newest batch.
    number: u64,
    /// The last line of audit.
    line: u64,
    /// The batch with the snapshot.
    whole: Option<u64>,
}

/// What came of a look at who serves.
enum Election {
    Won(Seat),
    /// This one serves.
    Lost(String),
}

impl Keys {
    fn of(domain: &str) -> Self {
        let prefix = format!("weir/{domain}");
        Keys { leader: format!("{prefix}/leader"), newest: format!("{prefix}/newest"), prefix }
    }

    /// Where what belongs to `number` begins, in the order of the numbers.
    fn at(&self, kind: &str, number: u64) -> String {
        format!("{}/{kind}/{number:020}", self.prefix)
    }

    /// Behind all of a kind.
    fn end(&self, kind: &str) -> String {
        format!("{}/{kind}/~", self.prefix)
    }

    /// `bytes` as what belongs to `number`.
    fn pieces(&self, kind: &str, number: u64, bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        let at = self.at(kind, number);
        let key = |piece| format!("{at}/{piece:06}");
        bytes.chunks(PIECE).enumerate().map(|(piece, bytes)| (key(piece), bytes.to_vec())).collect()
    }

    /// Lines of audit, by whole lines.
    fn audit(&self, first: u64, lines: &str) -> Vec<(String, Vec<u8>)> {
        let mut pieces: Vec<(String, Vec<u8>)> = Vec::new();
        for (line, number) in lines.split_inclusive('\n').zip(first..) {
            match pieces.last_mut() {
                Some((_, piece)) if piece.len() + line.len() <= PIECE => piece.extend(line.as_bytes()),
                _ => pieces.push((self.at("audit", number), line.as_bytes().to_vec())),
            }
        }
        pieces
    }
}

/// The number in a key.
fn number(kv: &KeyValue) -> u64 {
    let mut parts = kv.key_str().unwrap_or("").split('/').skip(3);
    parts.next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn text(bytes: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(bytes).map_err(|_| StoreError("a value is no text: another program wrote it".into()))
}

/// Who this is, for people.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} (process {})", host.trim(), std::process::id())
}

impl Way {
    /// Looks whether somebody serves. If not, this broker does from now on.
    async fn stand(mut self, keys: Keys, silence_s: i64) -> Result<Election, etcd_client::Error> {
        let found = self.kv.get(keys.leader.clone(), None).await?;
        if let Some(leader) = found.kvs().first() {
            return Ok(Election::Lost(leader.value_str().unwrap_or("another program").to_owned()));
        }
        let lease = self.lease.grant(silence_s, None).await?.id();
        let put = TxnOp::put(keys.leader.clone(), own_name(), Some(PutOptions::new().with_lease(lease)));
        let vacant = Compare::version(keys.leader, CompareOp::Equal, 0);
        // If the answer is lost, the key goes with its lease.
        let answer = self.kv.txn(Txn::new().when([vacant]).and_then([put])).await?;
        if !answer.succeeded() {
            return Ok(Election::Lost("a broker that was faster".into()));
        }
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok(Election::Won(Seat { revision, lease }))
    }

    /// Tells etcd that this broker lives, until it is told that it serves no longer.
    async fn live(mut self, lease: i64, silence: Duration) {
        let mut pause = silence / 3;
        loop {
            sleep(pause).await;
            // A stream ends with its node: each word has its own.
            pause = match timeout(silence / 3, self.lease.keep_alive(lease)).await {
                Ok(Ok(_)) => silence / 3,
                Ok(Err(etcd_client::Error::LeaseKeepAliveError(_))) => return,
                Ok(Err(_)) | Err(_) => LOOK.min(silence / 10),
            };
        }
    }
}

impl Etcd {
    /// Waits until this broker serves `domain`. `waits` is told why it does not yet, whenever that changes.
    ///
    /// # Errors
    /// A file cannot be read, etcd refuses this broker, or what is there is no store.
    pub async fn open(
        cluster: &Cluster,
        domain: &str,
        mut waits: impl FnMut(&str),
    ) -> Result<Self, StoreError> {
        let silence = Duration::from_nanos(cluster.silence.as_nanos());
        let (link, keys) = (Link::open(cluster, silence).await?, Keys::of(domain));
        let silence_s = silence.as_secs_f64().ceil() as i64;
        let mut said = String::new();
        let seat = loop {
            let (way, own) = (link.way.clone(), keys.clone());
            let stand = async move { way.once(way.clone().stand(own, silence_s)).await };
            let why = match link.run(stand).await {
                Ok(Election::Won(seat)) => break seat,
                Ok(Election::Lost(who)) => format!("{who} serves {domain}"),
                Err(Some(e)) if lasts(&e) => return Err(failed(&e)),
                Err(e) => {
                    let why = e.map_or_else(|| "it hangs".to_owned(), |e| told(&e));
                    format!("no answer from etcd: {why}")
                }
            };
            if why != said {
                waits(&why);
                said = why;
            }
            link.run(sleep(LOOK)).await;
        };
        link.spawn(link.way.clone().live(seat.lease, silence));
        let mut store = Etcd {
            link,
            keys,
            seat,
            mark: Mark::default(),
            #[cfg(test)]
            without_fence: std::env::var_os(tests::WITHOUT_FENCE).is_some(),
        };
        store.settle().await?;
        Ok(store)
    }

    /// Finds what counts, and takes away what the one before has left half written.
    async fn settle(&mut self) -> Result<(), StoreError> {
        let (way, keys) = (self.link.way.clone(), self.keys.clone());
        let from = keys.newest.clone();
        let found = self.link.run(async move { way.last(from.clone(), from + "\0").await }).await?;
        if let Some(kv) = found {
            let damaged = |e| StoreError(format!("{}: {e}: another program wrote it", self.keys.newest));
            self.mark = serde_json::from_slice(kv.value()).map_err(damaged)?;
        }
        let whole = self.mark.whole.unwrap_or(0);
        let leftovers = [
            delete(keys.at("log", self.mark.number + 1), keys.end("log")),
            delete(keys.at("audit", self.mark.line + 1), keys.end("audit")),
            delete(keys.at("whole", 0), keys.at("whole", whole)),
            delete(keys.at("whole", whole + 1), keys.end("whole")),
        ];
        self.link.run(self.transaction(leftovers.into(), self.mark)).await.map(drop)
    }

    /// What must be so, so that this broker may write.
    fn fence(&self) -> Vec<Compare> {
        #[cfg(test)]
        if self.without_fence {
            return Vec::new();
        }
        let leader = Compare::mod_revision(&*self.keys.leader, CompareOp::Equal, self.seat.revision);
        let newest = match self.mark.number {
            0 => Compare::version(&*self.keys.newest, CompareOp::Equal, 0),
            _ => Compare::value(&*self.keys.newest, CompareOp::Equal, self.mark.text()),
        };
        vec![leader, newest]
    }

    /// Carries `operations` out, all or none, if this broker still serves. `after` is what counts then. Says at which
    /// revision of etcd.
    fn transaction(
        &self,
        operations: Vec<TxnOp>,
        after: Mark,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send + use<> {
        let (way, keys, seat) = (self.link.way.clone(), self.keys.clone(), self.seat);
        let looks = [TxnOp::get(&*keys.leader, None), TxnOp::get(&*keys.newest, None)];
        let transaction = Txn::new().when(self.fence()).and_then(operations).or_else(looks);
        async move {
            let attempt = || {
                let (mut kv, transaction) = (way.kv.clone(), transaction.clone());
                async move { kv.txn(transaction).await }
            };
            let answer = way.insist(attempt).await?;
            let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
            if answer.succeeded() {
                return Ok(revision);
            }
            let found = answer.op_responses();
            let [TxnOpResponse::Get(leader), TxnOpResponse::Get(newest)] = &found[..] else {
                return Err(StoreError("etcd: an answer without what was asked for".into()));
            };
            match (leader.kvs().first(), newest.kvs().first()) {
                (Some(leader), Some(newest))
                    if leader.mod_revision() == seat.revision
                        && newest.value() == after.text().as_bytes() =>
                {
                    // An attempt before this one was carried out, and its answer was lost.
                    Ok(revision)
                }
                (Some(leader), _) if leader.mod_revision() == seat.revision => {
                    Err(StoreError(format!("{}: another program wrote it", keys.newest)))
                }
                (leader, _) => {
                    let who = leader.map_or("nobody", |kv| kv.value_str().unwrap_or("another program"));
                    Err(StoreError(format!(
                        "this broker was not heard in time, and {who} serves now: start it again, to stand by"
                    )))
                }
            }
        }
    }

    /// What a snapshot makes needless.
    fn forgotten(&self, batch: &Batch<'_>) -> Result<Vec<TxnOp>, StoreError> {
        let keys = &self.keys;
        let mut gone = vec![
            delete(keys.at("log", 0), keys.at("log", batch.number + 1)),
            delete(keys.at("whole", 0), keys.at("whole", batch.number)),
        ];
        // The group with the oldest line that is kept stays whole.
        let (first, kept) = (keys.at("audit", 0), keys.at("audit", batch.keep_from.min(self.mark.line) + 1));
        let way = self.link.way.clone();
        if let Some(kv) = self.link.wait(async move { way.last(first, kept).await })? {
            gone.push(delete(keys.at("audit", 0), keys.at("audit", number(&kv))));
        }
        Ok(gone)
    }
}

impl Mark {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers have a form in JSON")
    }
}

impl Store for Etcd {
    fn load(&self) -> Result<Loaded, StoreError> {
        let (way, keys, mark) = (self.link.way.clone(), self.keys.clone(), self.mark);
        let (snapshot, log, audit) = self.link.wait(async move {
            let all = |_: &[KeyValue]| false;
            let snapshot = match mark.whole {
                None => None,
                Some(n) => Some(way.range(keys.at("whole", n), keys.at("whole", n + 1), all).await?),
            };
            let first = mark.whole.map_or(0, |n| n + 1);
            let log = way.range(keys.at("log", first), keys.at("log", mark.number + 1), all).await?;
            let audit = way.last(keys.at("audit", 0), keys.at("audit", mark.line + 1)).await?;
            Ok::<_, StoreError>((snapshot, log, audit))
        })?;
        let mut records: Vec<String> = Vec::new();
        for pieces in log.chunk_by(|a, b| number(a) == number(b)) {
            let whole: Vec<u8> = pieces.iter().flat_map(KeyValue::value).copied().collect();
            records.push(text(&whole)?.to_owned());
        }
        let last_line = match &audit {
            None => None,
            Some(kv) => text(kv.value())?.lines().next_back().map(str::to_owned),
        };
        let snapshot =
            snapshot.map(|pieces| pieces.iter().flat_map(KeyValue::value).copied().collect::<Vec<u8>>());
        Ok(Loaded { newest: mark.number, snapshot, records, last_line })
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let lines = batch.audit.lines().count() as u64;
        let mark = Mark {
            number: batch.number,
            line: batch.first_line.saturating_sub(1) + lines,
            whole: batch.snapshot.map(|_| batch.number).or(self.mark.whole),
        };
        let mut pieces = match batch.snapshot {
            Some(snapshot) => self.keys.pieces("whole", batch.number, snapshot),
            None => self.keys.pieces("log", batch.number, batch.record.as_bytes()),
        };
        pieces.extend(self.keys.audit(batch.first_line, batch.audit));
        let (mut puts, mut bytes) = (Vec::new(), 0);
        for (key, value) in pieces {
            if bytes + value.len() > TRANSACTION {
                self.link.wait(self.transaction(std::mem::take(&mut puts), self.mark))?;
                bytes = 0;
            }
            bytes += value.len();
            puts.push(TxnOp::put(key, value, None));
        }
        puts.push(TxnOp::put(&*self.keys.newest, mark.text(), None));
        if batch.snapshot.is_some() {
            puts.extend(self.forgotten(batch)?);
        }
        let revision = self.link.wait(self.transaction(puts, mark))?;
        self.mark = mark;
        if batch.snapshot.is_some() {
            let mut way = self.link.way.clone();
            self.link.spawn(async move {
                // What is not compacted now is with the next snapshot.
                let _ = way.kv.compact(revision, None).await;
            });
        }
        Ok(())
    }

    fn audit(&self, from: u64, most: usize) -> Result<Vec<String>, StoreError> {
        let (way, keys, mark) = (self.link.way.clone(), self.keys.clone(), self.mark);
        let groups = self.link.wait(async move {
            let first = way.last(keys.at("audit", 0), keys.at("audit", from.min(mark.line) + 1)).await?;
            let first = first.as_ref().map_or(from, number);
            let there = |found: &[KeyValue]| {
                let lines = |kv: &KeyValue| kv.value().iter().filter(|&&byte| byte == b'\n').count();
                found.iter().map(lines).sum::<usize>().saturating_sub((from - first.min(from)) as usize)
                    >= most
            };
            way.range(keys.at("audit", first), keys.at("audit", mark.line + 1), there).await
        })?;
        let mut found = Vec::new();
        for kv in &groups {
            found.extend(wanted(number(kv), text(kv.value())?, from).take(most - found.len()));
        }
        Ok(found)
    }
}

impl Drop for Etcd {
    /// Another broker may serve at once. What is still on its way to etcd comes before this, or is refused.
    fn drop(&mut self) {
        let (mut way, lease) = (self.link.way.clone(), self.seat.lease);
        // If etcd does not hear it, the lease ends by itself.
        self.link.wait(async move { drop(timeout(PARTING, way.lease.revoke(lease)).await) });
    }
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("keys", &self.keys).field("mark", &self.mark).finish_non_exhaustive()
    }
}

//! The way to a cluster of etcd: what may take a while is tried again, and who waits need know nothing of runtimes.

use super::super::{Cluster, StoreError};
use etcd_client::{
    Certificate, Client, ConnectOptions, DeleteOptions, Error, GetOptions, Identity, KeyValue, KvClient,
    LeaseClient, TlsOptions,
};
use std::error::Error as _;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

/// Tries in the time for which a broker may be silent. A node that hangs, or has no leader, is not waited for longer.
const TRIES: u32 = 5;
/// How long a broker that serves waits for etcd at least: its nodes may be electing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a look at a silent connection may take.
const LOOK: Duration = Duration::from_secs(2);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How often a silent connection is looked after. etcd takes more than one look in 5 s for an attack.
const ALIVE: Duration = Duration::from_secs(10);
/// The longest pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// Keys that are read at once. None is longer than [`PIECE`](super::PIECE).
const PAGE: i64 = 64;
/// The longest answer: a page of the longest values, and their keys.
const ANSWER_BYTES: usize = (PAGE as usize + 1) * super::PIECE;

/// An open way to a cluster.
pub(super) struct Link {
    /// None once it is being dropped.
    runtime: Option<Runtime>,
    pub way: Way,
}

/// What each task has of it.
#[derive(Clone)]
pub(super) struct Way {
    pub kv: KvClient,
    pub lease: LeaseClient,
    /// How long one try may take.
    attempt: Duration,
    /// After so long without an answer nothing is tried any more.
    patience: Duration,
}

/// What etcd says of an error, and why.
pub(super) fn told(e: &Error) -> String {
    let mut text = match e {
        Error::GRpcStatus(status) => status.message().to_owned(),
        e => e.to_string(),
    };
    let mut source = e.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) && !matches!(e, Error::GRpcStatus(_)) {
            text += &format!(": {cause_text}");
        }
        source = cause.source();
    }
    let mend = mend_of_tls(&text);
    text + mend
}

/// What etcd may have against the certificate of a broker.
pub(super) const REFUSED: &str = ": etcd closes the connection: if it asks for certificates, name by `cert` and `key` in [store] one that its \
                       --trusted-ca-file signed, and that has not ended";

/// How to mend what etcd and a broker have against each other's certificates.
fn mend_of_tls(why: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    match why.split_once("received fatal alert: ") {
        Some((_, alert)) if alert.contains("Certificate") || alert.contains("UnknownCA") => REFUSED,
        // With TLS 1.3 a connection is there before the other side has judged the certificate. It closes it then.
        None if has(&["operation was canceled"]) => REFUSED,
        None if has(&["UnknownIssuer", "BadSignature"]) => {
            ": expected a node whose certificate `ca` in [store] has signed: name the authority of etcd there"
        }
        None if has(&["certificate expired", "Expired"]) => {
            ": the certificate of the node has ended: give etcd another"
        }
        None if has(&["not valid for name", "NotValidForName"]) => {
            ": the certificate of the node is for another address: name the node in [store] as its certificate does"
        }
        _ => "",
    }
}

/// Whether the same will come of another try.
pub(super) fn lasts(e: &Error) -> bool {
    match e {
        Error::GRpcStatus(status) => {
            // Of gRPC: INVALID_ARGUMENT, PERMISSION_DENIED, UNAUTHENTICATED.
            [3, 7, 16].contains(&(status.code() as i32)) || status.message().contains("space exceeded")
        }
        Error::InvalidArgs(_) | Error::InvalidUri(_) => true,
        _ => false,
    }
}

/// An error that lasts, with its mend.
pub(super) fn failed(e: &Error) -> StoreError {
    let why = told(e);
    let mend = if why.contains("space exceeded") {
        ": compact and defragment it, write `etcdctl alarm disarm`, and give it --quota-backend-bytes=8589934592"
    } else {
        ""
    };
    StoreError(format!("etcd: {why}{mend}"))
}

/// What the cluster is reached by, if not without TLS.
pub(super) fn tls(cluster: &Cluster) -> Result<Option<TlsOptions>, StoreError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|e| StoreError(format!("{}: {e}: expected PEM", path.display())))
    };
    let Some(ca) = &cluster.ca else { return Ok(None) };
    let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let (Some(cert), Some(key)) = (&cluster.cert, &cluster.key) {
        options = options.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(Some(options))
}

impl Link {
    /// Nothing is sent yet. `silence` is that of the cluster.
    pub async fn open(cluster: &Cluster, silence: Duration) -> Result<Self, StoreError> {
        let builder = &mut tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("etcd").enable_all().build();
        let runtime = runtime.map_err(|e| StoreError(format!("etcd: {e}")))?;
        let mut options = ConnectOptions::new()
            .with_timeout(silence / TRIES)
            .with_connect_timeout(CONNECT)
            .with_keep_alive(ALIVE, LOOK)
            .with_require_leader(true);
        if let Some(tls) = tls(cluster)? {
            options = options.with_tls(tls);
        }
        let nodes: Vec<String> = cluster.etcd.iter().map(|node| node.0.clone()).collect();
        let opened = runtime.spawn(async move { Client::connect(nodes, Some(options)).await });
        let client = match opened.await {
            Ok(Ok(client)) => client,
            Ok(Err(e)) => return Err(failed(&e)),
            Err(e) => return Err(StoreError(format!("etcd: {e}"))),
        };
        let kv = client.kv_client().max_decoding_message_size(ANSWER_BYTES);
        let (attempt, patience) = (silence / TRIES, silence.max(PATIENCE));
        let way = Way { kv, lease: client.lease_client(), attempt, patience };
        Ok(Link { runtime: Some(runtime), way })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is taken by drop alone")
    }

    /// Does `work` beside whoever calls, and says what came of it.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime().spawn(work).await.expect("nothing here panics, and the runtime lives as long as this")
    }

    /// Does `work` beside whoever calls, until it ends or this does.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime().spawn(work));
    }

    /// The same for who waits without a runtime, or blocks one.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (to, from) = sync_channel(1);
        self.spawn(async move {
            // Whoever waits is there.
            let _ = to.send(work.await);
        });
        from.recv().expect("nothing here panics, and the runtime lives as long as this")
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Way {
    /// One try. An error that is none: it took too long.
    pub async fn once<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Option<Error>> {
        match timeout(2 * self.attempt, work).await {
            Ok(done) => done.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// Tries until it is done, or will not be.
    pub async fn insist<T, F: Future<Output = Result<T, Error>>>(
        &self,
        mut work: impl FnMut() -> F,
    ) -> Result<T, StoreError> {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(5));
        loop {
            let why = match self.once(work()).await {
                Ok(done) => return Ok(done),
                Err(Some(e)) if lasts(&e) => return Err(failed(&e)),
                Err(e) => e.map_or_else(|| "no answer".to_owned(), |e| told(&e)),
            };
            if began.elapsed() >= self.patience {
                let s = self.patience.as_secs();
                return Err(StoreError(format!("etcd has not answered for {s} s: {why}")));
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE);
        }
    }

    /// All keys from `from` to `to`, without that one, in their order. After each page `enough` says whether to go on.
    pub async fn range(
        &self,
        mut from: String,
        to: String,
        mut enough: impl FnMut(&[KeyValue]) -> bool,
    ) -> Result<Vec<KeyValue>, StoreError> {
        let mut all = Vec::new();
        loop {
            let options = GetOptions::new().with_range(to.clone()).with_limit(PAGE);
            let page = || {
                let (mut kv, from, options) = (self.kv.clone(), from.clone(), options.clone());
                async move { kv.get(from, Some(options)).await }
            };
            let mut page = self.insist(page).await?;
            let more = page.more();
            all.extend(page.take_kvs());
            match all.last() {
                // The least key after the last one.
                Some(last) if more && !enough(&all) => from = format!("{}\0", last.key_str().unwrap_or("")),
                _ => return Ok(all),
            }
        }
    }

    /// The last key from `from` to `to`, without that one.
    pub async fn last(&self, from: String, to: String) -> Result<Option<KeyValue>, StoreError> {
        use etcd_client::{SortOrder, SortTarget};
        let options = GetOptions::new().with_range(to).with_limit(1);
        let options = options.with_sort(SortTarget::Key, SortOrder::Descend);
        let found = || {
            let (mut kv, from, options) = (self.kv.clone(), from.clone(), options.clone());
            async move { kv.get(from, Some(options)).await }
        };
        Ok(self.insist(found).await?.take_kvs().pop())
    }
}

/// Takes all keys from `from` to `to` away, without that one.
pub(super) fn delete(from: String, to: String) -> etcd_client::TxnOp {
    etcd_client::TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)))
}

//! Notifications that wait, and the calls of sinks.

use super::hook::Hook;
use crate::book::Name;
use crate::http::Connection;
use crate::serve::clock::time_of_day_ms;
use crate::serve::config::{Sink, Sinks};
use axum::body::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

/// Between two tries.
pub(super) const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120)];
/// How long a sink may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Events that wait at most, and of one owner.
const WAITING: usize = 1_024;
const OF_OWNER: usize = 64;
/// Sinks that are called at once.
const AT_ONCE: usize = 32;

/// What all notifications share.
pub(in crate::serve) struct Notifier {
    pub(super) allowed: Sinks,
    tls: Option<Arc<ClientConfig>>,
    calls: Semaphore,
    /// How many wait, by owner.
    waiting: Mutex<HashMap<Name, usize>>,
    pub(super) pauses: Vec<Duration>,
}

impl Notifier {
    /// For these sinks.
    ///
    /// # Errors
    /// The file of who signs cannot be read.
    pub fn new(allowed: Sinks) -> Result<Self, String> {
        let tls = allowed.tls()?;
        // A test is less patient.
        let pauses = if cfg!(test) { PAUSES.map(|pause| pause / 100).to_vec() } else { PAUSES.to_vec() };
        Ok(Notifier { allowed, tls, calls: Semaphore::new(AT_ONCE), waiting: Mutex::default(), pauses })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Name, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another event of this owner has room.
    pub(super) fn takes(&self, owner: &str) -> bool {
        let mut waiting = self.waiting();
        if waiting.values().sum::<usize>() >= WAITING {
            return false;
        }
        let own = waiting.entry(owner.into()).or_default();
        let has_room = *own < OF_OWNER;
        *own += usize::from(has_room);
        has_room
    }

    pub(super) fn done(&self, owner: &str) {
        let mut waiting = self.waiting();
        if let Some(own) = waiting.get_mut(owner) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(owner);
            }
        }
    }

    /// Sends an event once. Whatever the sink answers is no reason to wait for more of it.
    pub(super) async fn send(&self, sink: &Sink, hook: &Hook, event: &Bytes) -> Result<(), String> {
        let target = sink.target(self.tls.as_ref()).ok_or("[sink] has no `ca`")?;
        let Ok(_turn) = self.calls.acquire().await else { return Err("the broker stops".into()) };
        // It may have ended while others had their turn.
        let token = hook.token(time_of_day_ms())?;
        let sent = timeout(PATIENCE, async {
            let mut to = Connection::open(&target, token, PATIENCE).await?;
            to.post(sink.path(), "application/cloudevents+json", event.clone()).await
        });
        match sent.await {
            Err(_) => Err("no answer".into()),
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(format!("it answers {status}")),
            Ok(Err(why)) => Err(why.to_string()),
        }
    }
}

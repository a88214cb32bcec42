//! What the handlers of sessions share.

use crate::book::Name;
use std::collections::HashMap;
use std::time::Instant;
use tokio::sync::{Mutex, Notify};

/// What the handlers of sessions share.
#[derive(Debug, Default)]
pub(in crate::serve) struct Sessions {
    /// One session begins or changes at a time, so that two cannot be for the same traffic.
    pub(super) changing: Mutex<()>,
    /// There is another end to wait for.
    pub(super) news: Notify,
    /// Sessions that are over, and until when their boxes are waited for.
    coming_down: std::sync::Mutex<HashMap<Name, Instant>>,
    /// Sessions that their boxes have, and when they last said so: since this broker serves.
    named: std::sync::Mutex<HashMap<Name, Instant>>,
}

impl Sessions {
    pub(super) fn named(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Instant>> {
        self.named.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn coming_down(&self) -> std::sync::MutexGuard<'_, HashMap<Name, Instant>> {
        self.coming_down.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

//! Which class a packet belongs to.

use crate::packet::Key;

/// The compiled filters of one interface.
#[derive(Clone, Debug, Default)]
pub struct Classifier {}

impl Classifier {
    /// No filter: every packet goes to the default class.
    pub fn empty() -> Self {
        Classifier {}
    }
    /// The class of the filter that matches.
    pub fn classify(&self, _key: &Key) -> Option<u32> {
        None
    }
}

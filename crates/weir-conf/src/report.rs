//! Where checks of a whole plan put what they find.

use weir_text::{Diagnostic, Place, Severity, Source, Trouble};

/// Collects what is said about a plan.
pub(crate) struct Report<'s> {
    pub source: &'s Source,
    pub said: Vec<Diagnostic>,
}

impl<'s> Report<'s> {
    pub fn new(source: &'s Source) -> Self {
        Report { source, said: Vec::new() }
    }
    pub fn say(&mut self, severity: Severity, trouble: Trouble) {
        self.said.push(self.source.diagnostic(severity, trouble));
    }
    pub fn error(&mut self, place: Place, message: impl Into<String>, help: impl Into<String>) {
        self.said.push(self.source.diagnostic(Severity::Error, Trouble::new(place, message, help)));
    }
    pub fn warn(&mut self, place: Place, message: impl Into<String>, help: impl Into<String>) {
        self.said.push(self.source.diagnostic(Severity::Warning, Trouble::new(place, message, help)));
    }
}

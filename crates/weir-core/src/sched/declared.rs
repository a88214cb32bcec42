//! Names and parameters of disciplines that are known to altq.conf and not built yet.
//!
//! A configuration that uses them is read, checked and printed; building its tree is refused by
//! name. Each entry moves to its discipline's own file when that is written.

use super::registry::{Classes, Entry};

const SOURCE: &str = "//! Known by name; not built yet.";

pub(super) const CDNR: Entry =
    Entry { name: "cdnr", aliases: &[], source: SOURCE, params: &[], classes: Classes::None, build: None };

//! A port that is spread over cores: the door of a part to its link, and a simulation of many cores in virtual time.
//!
//! The simulation runs the very parts and credit of `weir_core::spread`. What it models is the machine: what a packet
//! costs a core, clocks that differ, a lock that one core has at a time, cores that stand still for a while. So it is the
//! same on every machine, and no core is needed for it.

mod books;
mod machine;
mod town;

pub use books::{Books, Pairs};
pub use machine::{Run, Setting, Stalls, Wrong, run};
pub use town::Town;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use weir_core::queue::{Link, ParamError};
use weir_core::sched::{Node, Registry, Tree};
use weir_core::spread::{Ask, Credit, Lend, Loan, cut};
use weir_core::units::Instant;

/// The link as one part sees it; `asked` counts the calls of all parts.
#[derive(Clone)]
pub struct Door {
    credit: Arc<Mutex<Credit>>,
    part: usize,
    asked: Arc<AtomicU64>,
}

impl Door {
    /// The doors of so many parts to the credit of `link`.
    pub fn all(link: &Link, parts: usize, quantum_bytes: u64, depth_bytes: u64) -> Vec<Door> {
        let credit = Arc::new(Mutex::new(Credit::new(link, parts, quantum_bytes, depth_bytes)));
        let asked = Arc::new(AtomicU64::new(0));
        (0..parts).map(|part| Door { credit: credit.clone(), part, asked: asked.clone() }).collect()
    }
    /// How often the link was called.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Lend for Door {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).ask(now, self.part, ask)
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.credit.lock().unwrap_or_else(PoisonError::into_inner).give_back(now, self.part, bytes);
    }
}

/// The trees of the parts of `node`, one for each of `lend`, by which it borrows.
///
/// # Errors
/// Why it cannot be cut.
pub fn spread(
    node: &Node,
    link: Link,
    quantum_bytes: u64,
    lend: Vec<Box<dyn Lend>>,
) -> Result<Vec<Tree>, ParamError> {
    let registry = Registry::builtin();
    let plans = cut(&registry, node, link, lend.len())?;
    plans.iter().zip(lend).map(|(plan, lend)| plan.build(&registry, link, quantum_bytes, lend)).collect()
}

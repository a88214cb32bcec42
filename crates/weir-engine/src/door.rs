//! The ways of the parts of a port to the link whose rate they share ([`weir_core::spread`]).

use std::sync::{Arc, Mutex, PoisonError};
use weir_core::queue::Link;
use weir_core::spread::{Ask, Credit, Lend, Loan};
use weir_core::units::Instant;

/// The link as one part sees it: its credit behind a lock, which is taken once per quantum, and never for long.
struct Door {
    credit: Arc<Mutex<Credit>>,
    part: usize,
}

impl Door {
    fn with<T>(&self, act: impl FnOnce(&mut Credit) -> T) -> T {
        act(&mut self.credit.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Lend for Door {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        self.with(|credit| credit.ask(now, self.part, ask))
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        self.with(|credit| credit.give_back(now, self.part, bytes));
    }
    fn charge(&mut self, now: Instant, bytes: u64) {
        self.with(|credit| credit.charge(now, bytes));
    }
    fn part_from(&mut self, now: Instant) {
        self.with(|credit| credit.part_from(now, self.part));
    }
}

/// Two ways for each of so many parts, one for its tree and one for its control packets, to the credit of `link`, which
/// begins empty: so that a new one lends nothing. `quantum_bytes` and `depth_bytes` as in [`Credit::new`].
pub fn doors(link: &Link, parts: usize, quantum_bytes: u64, depth_bytes: u64) -> Vec<[Box<dyn Lend>; 2]> {
    let mut credit = Credit::new(link, parts, quantum_bytes, depth_bytes);
    credit.drain(weir_sys::now());
    let credit = Arc::new(Mutex::new(credit));
    let door = |part| -> Box<dyn Lend> { Box::new(Door { credit: credit.clone(), part }) };
    (0..parts).map(|part| [door(part), door(part)]).collect()
}

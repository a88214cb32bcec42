//! The ways of the parts of a port to the link whose rate they share ([`weir_core::spread`]).

use std::sync::{Arc, Mutex, PoisonError};
use weir_core::queue::Link;
use weir_core::spread::{Ask, Credit, Lend, Loan};
use weir_core::units::Instant;

/// The link as one part sees it: its credit behind a lock, which is taken once per quantum, and never for long.
struct Door {
    shared: Arc<Mutex<Shared>>,
    part: usize,
}

/// The credit, and whether it has begun: with the first call, because a bucket that was empty when it was made is full later.
struct Shared {
    credit: Credit,
    has_begun: bool,
}

impl Door {
    fn with<T>(&self, now: Instant, act: impl FnOnce(&mut Credit) -> T) -> T {
        let Shared { credit, has_begun } = &mut *self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if !*has_begun {
            *has_begun = true;
            credit.drain(now);
        }
        act(credit)
    }
}

impl Lend for Door {
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan {
        self.with(now, |credit| credit.ask(now, self.part, ask))
    }
    fn give_back(&mut self, now: Instant, bytes: u64) {
        self.with(now, |credit| credit.give_back(now, self.part, bytes));
    }
    fn charge(&mut self, now: Instant, bytes: u64) {
        self.with(now, |credit| credit.charge(now, bytes));
    }
    fn part_from(&mut self, now: Instant) {
        self.with(now, |credit| credit.part_from(now, self.part));
    }
}

/// Two ways for each of so many parts, one for its tree and one for its control packets, to the credit of `link`, which
/// begins empty: so that a new one lends nothing. `quantum_bytes` and `depth_bytes` as in [`Credit::new`].
pub fn doors(link: &Link, parts: usize, quantum_bytes: u64, depth_bytes: u64) -> Vec<[Box<dyn Lend>; 2]> {
    let credit = Credit::new(link, parts, quantum_bytes, depth_bytes);
    let shared = Arc::new(Mutex::new(Shared { credit, has_begun: false }));
    let door = |part| -> Box<dyn Lend> { Box::new(Door { shared: shared.clone(), part }) };
    (0..parts).map(|part| [door(part), door(part)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::units::{Fine, Rate};

    /// However long a plan waits for its swap, the first who asks is lent nothing.
    #[test]
    fn a_credit_begins_empty_with_the_first_call() {
        let mut doors = doors(&Link::new(Rate::from_mbps(8), 0, 1_500), 2, 4_000, 8_000);
        let mut ask = |part: usize, at_us| {
            let ask = Ask { level: 0, virtual_time: Fine::ZERO, bytes: 1_000, spare_bytes: 0 };
            doors[part][0].ask(Instant::from_micros(at_us), ask)
        };
        let later = 60_000_000;
        let first = ask(1, later);
        assert_eq!((first.bytes, first.at), (0, Instant::from_micros(later + 1_000)));
        assert_eq!(ask(1, later + 1_000).bytes, 1_000);
        assert_eq!(ask(0, later + 9_000).bytes, 1_000, "it begins once");
    }
}

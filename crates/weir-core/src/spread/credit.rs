//! Who may use the link next: quanta of its rate, lent to the parts that are furthest behind.
//!
//! Principle: the link is a token bucket. A part that has packets asks for at most a quantum, and says how
//! far the class of its next packet has come: the class's virtual time (start-time fair queueing). When the
//! bucket holds what the first in line asks for, it gets that; first is the highest level, then the least
//! virtual time. What is lent is put down for the part until it asks again, so a part
//! whose core stands still delays nobody. A class that comes after a rest starts at the link's virtual time:
//! that of what was lent last. Where nobody else is in line and the bucket is more than half full, a part gets more
//! than it asks for, and need not ask for each packet.
//! Paper: Goyal, Vin and Cheng, "Start-time fair queuing", SIGCOMM 1996, over parts instead of flows.
//! Cost: a scan of the parts per quantum; no call per packet.
//! Guarantees: `no_more_is_lent_than_flows_in`, `lent_by_the_least_virtual_time`,
//! `a_part_that_stands_still_delays_nobody`, `what_the_link_has_to_spare_is_lent_where_nobody_waits`.

use super::LEVELS;
use crate::meter::TokenBucket;
use crate::queue::Link;
use crate::units::{Fine, Instant, Rate};
use alloc::boxed::Box;

/// What a part asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The level of its highest class that has packets.
    pub level: u8,
    /// How far the class of its next packet has come.
    pub virtual_time: Fine,
    /// Bytes on the wire that it can use now: a quantum at most, or one packet that is longer.
    pub bytes: u64,
    /// So many more are welcome where the link has them to spare, up to a quantum in all.
    pub spare_bytes: u64,
}

/// What it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// Bytes on the wire; 0 if it is not its turn, and then it stands in line.
    pub bytes: u64,
    /// When the bucket holds what the first in line wants; `NEVER` where the link has no rate.
    pub at: Instant,
    /// The virtual time at which it was lent, or of the link at that level: no class is behind it.
    pub virtual_time: Fine,
}

/// The link as one part sees it. A host implements it over the [`Credit`] that its parts share.
pub trait Lend: Send {
    /// Asks for credit.
    fn ask(&mut self, now: Instant, ask: Ask) -> Loan;
    /// Gives back what is not needed, and leaves the line.
    fn give_back(&mut self, now: Instant, bytes: u64);
    /// So many bytes left before all others, and were not lent.
    fn charge(&mut self, _now: Instant, _bytes: u64) {}
    /// The part asks no more: it goes on by itself, at an equal part of the link's rate.
    fn part_from(&mut self, _now: Instant) {}
}

/// A part as the link knows it.
#[derive(Clone, Copy, Default)]
struct Place {
    /// What it stands in line for.
    wants: Option<Ask>,
    /// What was lent to it since it asked.
    put_down: Option<Ask>,
}

/// The credit of one link.
pub struct Credit {
    bucket: TokenBucket,
    rate: Rate,
    /// Parts that have gone on by themselves.
    parted: u64,
    /// What was given back, to be lent before what the bucket holds. Put into the bucket it could flow over.
    given_back: u64,
    places: Box<[Place]>,
    virtual_time: [Fine; LEVELS],
    now: Instant,
}

impl Credit {
    /// The credit of `link` for so many parts, which ask for `quantum_bytes` each time. `depth_bytes` is what the
    /// link may send at once after a rest, a quantum at least.
    pub fn new(link: &Link, parts: usize, quantum_bytes: u64, depth_bytes: u64) -> Self {
        let depth_bytes = depth_bytes.max(Credit::quantum_bytes(link, quantum_bytes));
        Credit {
            bucket: TokenBucket::new(link.rate, depth_bytes),
            rate: link.rate,
            parted: 0,
            given_back: 0,
            places: alloc::vec![Place::default(); parts].into_boxed_slice(),
            virtual_time: [Fine::ZERO; LEVELS],
            now: Instant::ZERO,
        }
    }

    /// Begins with an empty bucket at `now`, so that who begins often is lent nothing by it.
    pub fn drain(&mut self, now: Instant) {
        self.now = self.now.max(now);
        self.bucket.set_level(self.now, 0);
    }

    /// Takes `bytes` that have left without a loan. Nobody is lent anything until they have flowed in again.
    pub fn charge(&mut self, now: Instant, bytes: u64) {
        self.now = self.now.max(now);
        let level = self.bucket.level_bytes(self.now);
        self.bucket.set_level(self.now, level.saturating_sub_unsigned(bytes));
    }

    /// Part number `part` goes on by itself with an equal part of the rate: the others have so much less.
    pub fn part_from(&mut self, now: Instant, part: usize) {
        self.give_back(now, part, 0);
        let parts = self.places.len() as u64;
        self.parted = (self.parted + 1).min(parts);
        let rest = u128::from(self.rate.as_bps()) * u128::from(parts - self.parted) / u128::from(parts);
        self.bucket.reshape(self.now, Rate::from_bps(rest as u64), self.bucket.depth_bytes());
    }

    /// The quantum that `wanted` comes to on `link`: two of its largest packets at least.
    pub fn quantum_bytes(link: &Link, wanted: u64) -> u64 {
        wanted.max(2 * link.cost_bytes(link.mtu))
    }

    /// Part number `part` asks. Asking again replaces what it asked for.
    pub fn ask(&mut self, now: Instant, part: usize, ask: Ask) -> Loan {
        // The clocks of two cores may differ by a little.
        self.now = self.now.max(now);
        self.lend();
        let link = self.virtual_time[usize::from(ask.level) % LEVELS];
        if self.places[part].put_down.is_none() {
            let level = ask.level % LEVELS as u8;
            self.places[part].wants = Some(Ask { level, virtual_time: ask.virtual_time.max(link), ..ask });
            self.lend();
        }
        match self.places[part].put_down.take() {
            // What was put down for another level says nothing of how far this one has come.
            Some(lent) => {
                let virtual_time = if lent.level == ask.level { lent.virtual_time } else { link };
                Loan { bytes: lent.bytes, at: self.now, virtual_time }
            }
            None => Loan { bytes: 0, at: self.next_turn(), virtual_time: link },
        }
    }

    /// Part number `part` gives back `bytes`, and asks for nothing more.
    pub fn give_back(&mut self, now: Instant, part: usize, bytes: u64) {
        self.now = self.now.max(now);
        let place = core::mem::take(&mut self.places[part]);
        self.given_back += bytes + place.put_down.map_or(0, |lent| lent.bytes);
        self.lend();
    }

    /// Lends to the first in line for as long as the bucket holds what it wants.
    fn lend(&mut self) {
        while let Some((part, ask)) = self.first() {
            let again = self.given_back.min(ask.bytes);
            if self.bucket.pay_or_wait(self.now, ask.bytes - again).is_some() {
                return;
            }
            self.given_back -= again;
            self.places[part] = Place::default();
            let bytes = ask.bytes + self.spare(ask.spare_bytes);
            self.places[part].put_down = Some(Ask { bytes, ..ask });
            let virtual_time = &mut self.virtual_time[usize::from(ask.level)];
            *virtual_time = ask.virtual_time.max(*virtual_time);
        }
    }

    /// Takes up to `bytes` that the link has to spare: nobody waits, and half of the bucket stays.
    fn spare(&mut self, bytes: u64) -> u64 {
        if bytes == 0 || self.first().is_some() {
            return 0;
        }
        let above_half = self.bucket.bytes(self.now).saturating_sub(self.bucket.depth_bytes() / 2);
        let spare = bytes.min(above_half);
        // It holds them, so nothing is left to wait for.
        let wait = self.bucket.pay_or_wait(self.now, spare);
        if wait.is_some() { 0 } else { spare }
    }

    /// The part whose turn is next.
    fn first(&self) -> Option<(usize, Ask)> {
        let in_line = self.places.iter().enumerate().filter_map(|(part, place)| Some((part, place.wants?)));
        in_line.min_by_key(|(_, ask)| (core::cmp::Reverse(ask.level), ask.virtual_time))
    }

    /// When the bucket will hold what the first in line wants. Everyone in line asks again then, because places change.
    fn next_turn(&self) -> Instant {
        let Some((_, ask)) = self.first() else { return self.now };
        let bytes = ask.bytes.saturating_sub(self.given_back);
        self.bucket.clone().pay_or_wait(self.now, bytes).unwrap_or(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::units::Rate;

    const QUANTUM: u64 = 4_000;

    /// 8 Mbit/s: a byte in a microsecond.
    fn credit(parts: usize) -> Credit {
        Credit::new(&Link::new(Rate::from_mbps(8), 0, 1_500), parts, QUANTUM, 0)
    }
    fn ask(virtual_us: u64, bytes: u64) -> Ask {
        Ask { level: 0, virtual_time: Fine::from_nanos(virtual_us * 1_000), bytes, spare_bytes: 0 }
    }
    fn us(us: u64) -> Instant {
        Instant::from_micros(us)
    }

    #[test]
    fn lent_by_the_least_virtual_time() {
        let mut credit = credit(4);
        assert_eq!(credit.ask(us(0), 0, ask(0, QUANTUM)).bytes, QUANTUM, "the bucket is full");
        assert_eq!(credit.ask(us(0), 1, ask(700, 1_000)).at, us(1_000));
        assert_eq!(credit.ask(us(0), 2, ask(500, QUANTUM)).at, us(4_000), "it goes before the other");
        assert_eq!(credit.ask(us(0), 3, Ask { level: 1, ..ask(900, 500) }).at, us(500));
        assert_eq!(credit.ask(us(400), 1, ask(700, 1_000)).at, us(500), "a turn, whosever it is");
        assert_eq!(credit.ask(us(500), 3, Ask { level: 1, ..ask(900, 500) }).bytes, 500);
        assert_eq!(credit.ask(us(4_500), 1, ask(700, 1_000)).bytes, 0, "2 was before it");
        let loan = credit.ask(us(4_500), 2, ask(600, QUANTUM));
        assert_eq!(
            (loan.bytes, loan.virtual_time),
            (QUANTUM, Fine::from_nanos(500_000)),
            "as it was put down"
        );
        assert_eq!(credit.ask(us(5_500), 1, ask(700, 1_000)).bytes, 1_000);
        // One that comes back after a rest has no claim on what it missed.
        assert_eq!(credit.ask(us(5_500), 0, ask(0, 500)).virtual_time, Fine::from_nanos(700_000));
        // Who comes to stand further back lets others go first.
        assert_eq!(credit.ask(us(5_500), 2, ask(800, QUANTUM)).bytes, 0);
        assert_eq!(credit.ask(us(5_500), 0, ask(900, 500)).bytes, 0);
        assert_eq!(credit.ask(us(9_500), 0, ask(900, 500)).bytes, 0);
        assert_eq!(credit.ask(us(10_000), 2, ask(800, QUANTUM)).bytes, QUANTUM);
        assert_eq!(credit.ask(us(10_000), 0, ask(900, 500)).bytes, 500);
    }

    /// Level 0 has come far; a packet of level 1 comes to a part for which a loan of level 0 is put down.
    #[test]
    fn a_loan_of_one_level_says_nothing_of_another() {
        let mut credit = credit(2);
        assert_eq!(credit.ask(us(0), 1, ask(900_000, QUANTUM)).bytes, QUANTUM);
        assert_eq!(credit.ask(us(0), 0, ask(900_000, 1_000)).bytes, 0);
        // The call of another part puts it down.
        assert_eq!(credit.ask(us(1_000), 1, ask(900_500, QUANTUM)).bytes, 0);
        let loan = credit.ask(us(1_000), 0, Ask { level: 1, ..ask(3, 1_000) });
        assert_eq!((loan.bytes, loan.virtual_time), (1_000, Fine::ZERO));
    }

    #[test]
    fn a_part_that_stands_still_delays_nobody() {
        let mut credit = credit(2);
        assert_eq!(credit.ask(us(0), 0, ask(0, QUANTUM)).bytes, QUANTUM);
        assert_eq!(credit.ask(us(0), 0, ask(0, QUANTUM)).bytes, 0);
        let mut had = 0;
        for step in 0..100 {
            had += credit.ask(us(1_000 * step), 1, ask(10 * step, 1_000)).bytes;
        }
        assert_eq!(had, 1_000 * 99 - QUANTUM, "all but the quantum that waits for the other");
        assert_eq!(credit.ask(us(99_000), 0, ask(0, 100)).bytes, QUANTUM);
    }

    /// What the bucket gives in any window is at most rate * time and its depth; the rest was given back.
    #[test]
    fn no_more_is_lent_than_flows_in() {
        let mut random = Random::new(7);
        let mut credit = credit(5);
        let mut held = [0u64; 5];
        let mut now_us = 0u64;
        // What came out of the bucket less what flowed in: the least so far, and the most above a least before it.
        let (mut least, mut most) = (0i64, 0i64);
        let ahead = |credit: &Credit, held: &[u64; 5], now_us: u64, sent: u64| {
            let put_down = credit.places.iter().filter_map(|place| place.put_down).map(|lent| lent.bytes);
            let out = sent + put_down.sum::<u64>() + held.iter().sum::<u64>() + credit.given_back;
            out as i64 - now_us as i64
        };
        let mut sent = 0;
        for _ in 0..50_000 {
            now_us += random.below(1_500);
            least = least.min(ahead(&credit, &held, now_us, sent));
            let part = random.below(5) as usize;
            let goes = random.below(held[part] + 1);
            (sent, held[part]) = (sent + goes, held[part] - goes);
            if random.below(8) == 0 {
                credit.give_back(us(now_us), part, core::mem::take(&mut held[part]));
            } else {
                let ask = ask(random.below(1 << 20), 1 + random.below(QUANTUM));
                let (level, spare_bytes) = (random.below(3) as u8, random.below(2) * (QUANTUM - ask.bytes));
                let loan = credit.ask(us(now_us), part, Ask { level, spare_bytes, ..ask });
                held[part] += loan.bytes;
            }
            most = most.max(ahead(&credit, &held, now_us, sent) - least);
        }
        assert!(most <= QUANTUM as i64, "{most} bytes above the rate, and the bucket holds {QUANTUM}");
        assert!(sent > now_us / 4, "little was lent: {sent} bytes in {now_us} us");
    }

    /// The bucket holds a quantum: half of one stays for whoever comes next.
    #[test]
    fn what_the_link_has_to_spare_is_lent_where_nobody_waits() {
        let mut credit = credit(2);
        let more = Ask { spare_bytes: QUANTUM - 100, ..ask(0, 100) };
        assert_eq!(credit.ask(us(0), 0, more).bytes, QUANTUM / 2);
        assert_eq!(credit.ask(us(0), 0, more).bytes, 100, "less than half is there");
        assert_eq!(credit.ask(us(0), 0, ask(0, QUANTUM)).at, us(2_100));
        assert_eq!(credit.ask(us(3_000), 1, more).bytes, 0, "another part is in line");
        assert_eq!(credit.ask(us(100_000), 1, more).bytes, QUANTUM / 2, "after that part");
    }

    /// What left without a loan is flowed in before the next loan, and a credit that was drained begins with nothing.
    #[test]
    fn what_left_without_a_loan_is_paid_first() {
        let mut credit = credit(2);
        credit.drain(us(0));
        assert_eq!(credit.ask(us(0), 0, ask(0, 1_000)).at, us(1_000));
        assert_eq!(credit.ask(us(1_000), 0, ask(0, 1_000)).bytes, 1_000);
        credit.charge(us(1_000), 600);
        assert_eq!(credit.ask(us(1_000), 0, ask(0, 1_000)).at, us(2_600));
        assert_eq!(credit.ask(us(2_600), 0, ask(0, 1_000)).bytes, 1_000);
        // Uncharged it is lent at once.
        assert_eq!(credit.ask(us(3_600), 0, ask(0, 1_000)).bytes, 1_000);
    }

    /// One of two parts goes on by itself with half of the rate: a byte takes two microseconds from then on.
    #[test]
    fn who_parts_takes_an_equal_part_of_the_rate_along() {
        let mut credit = credit(2);
        credit.drain(us(0));
        assert_eq!(credit.ask(us(0), 0, ask(0, 500)).bytes, 0);
        credit.part_from(us(0), 0);
        assert_eq!(credit.ask(us(0), 1, ask(0, 1_000)).at, us(2_000));
        credit.part_from(us(0), 1);
        assert_eq!(credit.ask(us(0), 1, ask(0, 1_000)).at, Instant::NEVER);
    }

    #[test]
    fn a_link_without_a_rate_lends_nothing_after_its_depth() {
        let mut credit = Credit::new(&Link::new(Rate::ZERO, 0, 1_500), 1, QUANTUM, 0);
        assert_eq!(credit.ask(us(0), 0, ask(0, QUANTUM)).bytes, QUANTUM);
        assert_eq!(
            credit.ask(us(9), 0, ask(0, QUANTUM)),
            Loan { bytes: 0, at: Instant::NEVER, virtual_time: Fine::ZERO }
        );
    }
}

//! Weighted round robin inside a priority: who of those that may send sends next.
//!
//! Each class has a credit of bytes and keeps its turn until that is used up; a turn that ends
//! gives the class its quantum for the next one. A packet larger than the credit still goes and
//! leaves a debt, so that over many turns each class sends in proportion to its quantum whatever
//! its packets' sizes, and within one quantum and one packet at any time. Classes that may not
//! send are no bits in the sets, and cost nothing.
//!
//! What becomes of the turn of a class that is held back is `HeldBack`. Where it keeps the turn, others
//! send in between and take turns of their own. Excess bandwidth then follows the weights exactly under
//! formal link sharing, which holds classes back all the time. Where it loses the turn, that goes on
//! from whoever sent, as in ALTQ: that is how top-level has always been, and its published tables
//! show it. In ns-2 it loses credit and debt too.

use crate::units::Bounded;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy)]
struct Turn {
    class: u32,
    /// More than a packet below zero it is never, and at most a quantum of below 2^62.
    credit: i64,
    quantum: i64,
}

/// What becomes of a class that is held back in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeldBack {
    /// It has its turn when it may send again.
    KeepsTurn,
    /// The turn goes on from whoever sends.
    LosesTurn,
    /// The same, and what it had in credit or debt is forgotten.
    LosesCredit,
}

/// The sets of a word.
const READY: usize = Standing::Ready as usize;
const OVER: usize = Standing::Over as usize;
const STANDINGS: usize = 3;

/// The classes of one priority.
pub(super) struct Ring {
    turns: Vec<Turn>,
    /// For each standing a bit for each class that stands so. That of `Out` nobody reads.
    sets: Vec<[u64; STANDINGS]>,
    /// How many they are, of all classes of the ring.
    counts: [u32; STANDINGS],
    cursor: usize,
    /// The same for the classes that send while the class with the turn is held back.
    aside_cursor: usize,
    aside: bool,
    held_back: HeldBack,
    /// Classes looked at: what a choice costs.
    #[cfg(test)]
    pub looks: u64,
    packet_by_packet: bool,
}

enum Look<T> {
    /// This class, and how it may send.
    Found(u32, T),
    /// All who may send are in debt.
    Poor,
    Nobody,
}

/// How a class with packets stands with the scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Underlimit: may send.
    Ready,
    /// Overlimit, and may send if somebody lends.
    Over,
    /// No packets, or waiting until it is underlimit.
    Out,
}

impl Ring {
    /// A ring of those (class, quantum); quanta are at least 1 byte.
    pub fn new(members: &[(u32, i64)], packet_by_packet: bool, held_back: HeldBack) -> Self {
        let turn =
            |&(class, quantum): &(u32, i64)| Turn { class, credit: quantum.max(1), quantum: quantum.max(1) };
        Ring {
            turns: members.iter().map(turn).collect(),
            sets: vec![[0; STANDINGS]; members.len().div_ceil(64)],
            counts: [0, 0, members.len() as u32],
            cursor: 0,
            aside_cursor: 0,
            aside: false,
            held_back,
            #[cfg(test)]
            looks: 0,
            packet_by_packet,
        }
    }

    /// True if a class is ready, or, with `borrowers`, might borrow.
    #[inline]
    pub fn any(&self, borrowers: bool) -> bool {
        self.counts[READY] > 0 || (borrowers && self.counts[OVER] > 0)
    }

    fn has(&self, set: usize, place: usize) -> bool {
        self.sets[place / 64][set] >> (place % 64) & 1 == 1
    }

    /// How the class at `place` stands.
    pub fn standing(&self, place: usize) -> Standing {
        match (self.has(READY, place), self.has(OVER, place)) {
            (true, _) => Standing::Ready,
            (false, true) => Standing::Over,
            (false, false) => Standing::Out,
        }
    }

    /// Changes how the class at `place` stands. True if it is the first to stand so, or was the last: then `any`
    /// may say something else.
    #[inline(always)]
    pub fn stand(&mut self, place: usize, from: Standing, to: Standing) -> bool {
        let (sets, bit) = (&mut self.sets[place / 64], 1 << (place % 64));
        let (from, to) = (from as usize, to as usize);
        sets[from] &= !bit;
        sets[to] |= bit;
        self.counts[from] = self.counts[from].less(1);
        self.counts[to] = self.counts[to].plus(1);
        self.counts[from] == 0 || self.counts[to] == 1
    }

    /// The first candidate at or after `from`, without wrapping.
    #[inline]
    fn next(&self, from: usize, borrowers: bool) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for (word, sets) in self.sets.iter().enumerate().skip(from / 64) {
            let bits = (sets[READY] | if borrowers { sets[OVER] } else { 0 }) & mask;
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The same, around the ring.
    #[inline(always)]
    fn next_around(&self, from: usize, borrowers: bool) -> Option<usize> {
        let [sets] = &self.sets[..] else {
            return self.next(from, borrowers).or_else(|| self.next(0, borrowers));
        };
        // A single word needs no walk.
        let all = sets[READY] | if borrowers { sets[OVER] } else { 0 };
        let after = if from < 64 { all & u64::MAX << from } else { 0 };
        let bits = if after > 0 { after } else { all };
        (bits > 0).then(|| bits.trailing_zeros() as usize)
    }

    /// The class whose turn it is among those that `may` send; with it, what `may` said.
    // Inlined, because a pair that is returned through memory in two halves and read as one
    // costs as much as everything else here.
    #[inline(always)]
    pub fn pick<T>(&mut self, borrowers: bool, may: impl Fn(u32) -> Option<T>) -> Option<(u32, T)> {
        loop {
            match self.look(borrowers, &may) {
                Look::Found(class, how) => return Some((class, how)),
                Look::Nobody => return None,
                Look::Poor => self.hand_out(borrowers, &may),
            }
        }
    }

    #[inline(always)]
    fn look<T>(&mut self, borrowers: bool, may: &impl Fn(u32) -> Option<T>) -> Look<T> {
        let mut poor = false;
        if self.held_back == HeldBack::KeepsTurn {
            self.look_aside(borrowers, may);
        }
        let start = if self.aside { self.aside_cursor } else { self.cursor };
        let Some(first) = self.next_around(start, borrowers) else { return Look::Nobody };
        let mut place = first;
        loop {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            let turn = &mut self.turns[place];
            if let Some(how) = may(turn.class) {
                if self.packet_by_packet || turn.credit > 0 {
                    let class = turn.class;
                    *self.pointer() = place;
                    return Look::Found(class, how);
                }
                turn.credit += turn.quantum;
                poor = true;
            } else if self.held_back == HeldBack::LosesCredit {
                turn.credit = turn.quantum;
            }
            place = self.next_around(place + 1, borrowers).unwrap_or(first);
            if place == first {
                return if poor { Look::Poor } else { Look::Nobody };
            }
        }
    }

    /// Whose turn it is may have packets, and a lender, and yet be held back just now.
    fn look_aside<T>(&mut self, borrowers: bool, may: &impl Fn(u32) -> Option<T>) {
        self.aside = false;
        if let Some(holder) = self.next_around(self.cursor, true) {
            self.cursor = holder;
            self.aside = self.has(OVER, holder) && !(borrowers && may(self.turns[holder].class).is_some());
        }
    }

    /// Everybody who may send is in debt: as many rounds at once as give somebody a credit.
    #[cold]
    fn hand_out<T>(&mut self, borrowers: bool, may: &impl Fn(u32) -> Option<T>) {
        let mut rounds = i64::MAX;
        let mut from = 0;
        while let Some(place) = self.next(from, borrowers) {
            from = place + 1;
            let turn = &self.turns[place];
            if may(turn.class).is_some() {
                // The least n with credit + n * quantum > 0.
                let needed = if turn.credit > 0 { 0 } else { -turn.credit / turn.quantum + 1 };
                rounds = rounds.min(needed);
            }
        }
        from = 0;
        while let Some(place) = self.next(from, borrowers) {
            from = place + 1;
            let turn = &mut self.turns[place];
            if may(turn.class).is_some() && turn.credit <= 0 {
                turn.credit += rounds.saturating_mul(turn.quantum);
            }
        }
    }

    /// True if a class that is overlimit with packets `may` borrow.
    pub fn has_borrower(&self, may: impl Fn(u32) -> bool) -> bool {
        let mut from = 0;
        while let Some(place) = self.next(from, true) {
            if self.has(OVER, place) && may(self.turns[place].class) {
                return true;
            }
            from = place + 1;
        }
        false
    }

    /// The class that a search looks at first, which may not send. Its turn is over.
    pub fn pass_first(&mut self) -> Option<u32> {
        let place = self.next_around(self.cursor, true)?;
        self.cursor = if place + 1 == self.turns.len() { 0 } else { place + 1 };
        Some(self.turns[place].class)
    }

    /// The class at `place` sent a packet of `bytes`. True if its turn goes on.
    #[inline(always)]
    pub fn sent(&mut self, place: usize, bytes: u64) -> bool {
        let turn = &mut self.turns[place];
        if !self.packet_by_packet {
            turn.credit = turn.credit.less(bytes as i64);
            if turn.credit > 0 {
                return true;
            }
            turn.credit += turn.quantum;
        }
        let next = if place + 1 == self.turns.len() { 0 } else { place + 1 };
        *self.pointer() = next;
        false
    }

    fn pointer(&mut self) -> &mut usize {
        if self.aside { &mut self.aside_cursor } else { &mut self.cursor }
    }

    /// Bytes that the class at `place` may send in a turn.
    pub fn quantum(&self, place: usize) -> i64 {
        self.turns[place].quantum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that each of the classes sends in `packets` packets, all of them always ready.
    fn shares(quanta: &[i64], sizes: &[u32], packets: u32) -> Vec<u64> {
        let members: Vec<_> = quanta.iter().enumerate().map(|(n, &q)| (n as u32, q)).collect();
        let mut ring = Ring::new(&members, false, HeldBack::LosesTurn);
        let mut bytes = vec![0; quanta.len()];
        for place in 0..quanta.len() {
            ring.stand(place, Standing::Out, Standing::Ready);
        }
        for _ in 0..packets {
            let (class, ()) = ring.pick(false, |_| Some(())).unwrap();
            bytes[class as usize] += u64::from(sizes[class as usize]);
            ring.sent(class as usize, sizes[class as usize].into());
        }
        bytes
    }

    /// The first turn is that of the first class, and of one quantum; nobody stands anywhere yet.
    #[test]
    fn a_ring_begins_with_the_first_class_and_a_quantum_each() {
        let ring = Ring::new(&[(0, -1), (1, 0), (2, 1), (3, 700)], false, HeldBack::LosesTurn);
        let turns: Vec<_> = ring.turns.iter().map(|turn| (turn.class, turn.credit, turn.quantum)).collect();
        assert_eq!(turns, [(0, 1, 1), (1, 1, 1), (2, 1, 1), (3, 700, 700)]);
        assert!(!ring.any(true));
        assert_eq!((ring.cursor, ring.aside_cursor, ring.aside), (0, 0, false));
    }

    #[test]
    fn bytes_follow_the_quanta_whatever_the_sizes() {
        for scale in [1, 10, 100, 1_000] {
            let bytes = shares(&[scale, 2 * scale, 3 * scale], &[64, 576, 1500], 200_000);
            let unit = bytes[0] as i64;
            for (n, &b) in bytes.iter().enumerate() {
                let off = b as i64 - unit * (n as i64 + 1);
                assert!(off.abs() < unit / 50, "{scale}: {bytes:?}");
            }
        }
    }

    /// Where turns are kept, a class that is held back in its turn goes as soon as it may, and whoever
    /// went in between has its own turn then. Reversed: where they are not, the others go round first.
    #[test]
    fn who_is_held_back_keeps_its_turn() {
        use HeldBack::{KeepsTurn, LosesCredit, LosesTurn};
        let goes_on = [1, 2, 0, 1, 2, 0];
        for (held_back, expected) in
            [(KeepsTurn, [1, 0, 1, 2, 0, 1]), (LosesTurn, goes_on), (LosesCredit, goes_on)]
        {
            let mut ring = Ring::new(&[(0, 1_500), (1, 1_500), (2, 1_500)], false, held_back);
            for place in 0..3 {
                ring.stand(place, Standing::Out, Standing::Over);
            }
            let mut order = Vec::new();
            for n in 0..6 {
                let may = |class: u32| (class != 0 || n > 0).then_some(());
                let (class, ()) = ring.pick(true, may).unwrap();
                ring.sent(class as usize, 1_500);
                order.push(class);
            }
            assert_eq!(order, expected, "{held_back:?}");
        }
    }

    /// True if some number of rounds explains what each sent: to one quantum and one packet.
    fn by_rounds(bytes: &[u64], quanta: &[i64], sizes: &[u32]) -> bool {
        let off = |n: usize| i128::from(quanta[n]) + i128::from(sizes[n]);
        let most_of = |a: usize| (i128::from(bytes[a]) + off(a), i128::from(quanta[a]));
        let least_of = |b: usize| (i128::from(bytes[b]) - off(b), i128::from(quanta[b]));
        let agree = |((most, a), (least, b)): ((i128, i128), (i128, i128))| least * a <= most * b;
        (0..bytes.len()).all(|a| (0..bytes.len()).all(|b| agree((most_of(a), least_of(b)))))
    }

    /// A21: a quantum may be a small part of a packet, so that all are in debt at times.
    #[test]
    fn a21_nobody_is_ever_a_packet_and_a_quantum_away_from_its_share() {
        for seed in weir_seed::seeds(50) {
            let mut random = crate::Random::new(seed);
            let classes = 2 + random.below(6) as usize;
            let quanta: Vec<i64> = (0..classes).map(|_| 1 + random.below(3_000) as i64).collect();
            let sizes: Vec<u32> = (0..classes).map(|_| 20 + random.below(1_481) as u32).collect();
            for packets in [100, 1_000, 10_000] {
                let bytes = shares(&quanta, &sizes, packets);
                assert!(by_rounds(&bytes, &quanta, &sizes), "seed {seed}: {quanta:?}, {sizes:?}: {bytes:?}");
            }
        }
        let bytes = shares(&[457, 685], &[1_000, 1_000], 10_000);
        assert!(!by_rounds(&bytes, &[685, 457], &[1_000, 1_000]), "reversed: {bytes:?}");
    }

    #[test]
    fn reversed_the_quanta_reverse_the_bytes() {
        let bytes = shares(&[300, 200, 100], &[64, 576, 1500], 200_000);
        assert!(bytes[0] > 2 * bytes[2], "{bytes:?}");
    }

    #[test]
    fn only_those_who_may_are_picked() {
        let members: Vec<_> = (0..200).map(|n| (n, 100)).collect();
        let mut ring = Ring::new(&members, true, HeldBack::LosesTurn);
        for place in 0..200 {
            ring.stand(place, Standing::Out, if place % 2 == 0 { Standing::Ready } else { Standing::Over });
        }
        let mut seen = vec![0; 200];
        for _ in 0..400 {
            let (class, ()) = ring.pick(true, |c| (c % 3 == 0).then_some(())).unwrap();
            seen[class as usize] += 1;
            ring.sent(class as usize, 1_000);
        }
        assert!(seen.iter().enumerate().all(|(n, &s)| if n % 3 == 0 { s >= 5 } else { s == 0 }), "{seen:?}");
        assert!(ring.pick(false, |c| (c % 2 == 1).then_some(())).is_none());
    }
    /// More classes than a word has bits: each stands by itself.
    #[test]
    fn classes_of_every_place_stand_by_themselves() {
        let members: Vec<_> = (0..200).map(|class| (class, 1_500)).collect();
        let mut ring = Ring::new(&members, false, HeldBack::LosesTurn);
        for place in 0..200 {
            let to = if place % 3 == 0 { Standing::Over } else { Standing::Ready };
            ring.stand(place, Standing::Out, to);
            let standing = |at: usize| match at {
                at if at > place => Standing::Out,
                at if at % 3 == 0 => Standing::Over,
                _ => Standing::Ready,
            };
            assert!((0..200).all(|at| ring.standing(at) == standing(at)), "place {place}");
        }
    }
    /// The ring as a person would go round it: whoever may send and has no credit is given a quantum and
    /// passed, as often as needed.
    struct Plain {
        standing: Vec<Standing>,
        credit: Vec<i64>,
        quanta: Vec<i64>,
        cursor: usize,
        aside_cursor: usize,
        aside: bool,
        held_back: HeldBack,
        by_packets: bool,
    }

    impl Plain {
        /// Those that might send, from `from` on, once around.
        fn around(&self, from: usize, borrowers: bool) -> Vec<usize> {
            let count = self.quanta.len();
            let might = |&place: &usize| match self.standing[place] {
                Standing::Ready => true,
                Standing::Over => borrowers,
                Standing::Out => false,
            };
            (0..count).map(|n| (from + n) % count).filter(might).collect()
        }
        fn pick(&mut self, borrowers: bool, may: u64) -> Option<usize> {
            let may = |place: usize| may >> place & 1 == 1;
            if self.held_back == HeldBack::KeepsTurn {
                self.aside = false;
                if let Some(&holder) = self.around(self.cursor, true).first() {
                    self.cursor = holder;
                    self.aside = self.standing[holder] == Standing::Over && !(borrowers && may(holder));
                }
            }
            let start = if self.aside { self.aside_cursor } else { self.cursor };
            let those = self.around(start, borrowers);
            let rounds = if those.iter().any(|&c| may(c)) { usize::MAX } else { 1 };
            for &place in those.iter().cycle().take(those.len().saturating_mul(rounds)) {
                if !may(place) {
                    if self.held_back == HeldBack::LosesCredit {
                        self.credit[place] = self.quanta[place];
                    }
                    continue;
                }
                if self.by_packets || self.credit[place] > 0 {
                    self.turn_to(place);
                    return Some(place);
                }
                self.credit[place] += self.quanta[place];
            }
            None
        }
        fn sent(&mut self, place: usize, bytes: i64) {
            if !self.by_packets {
                self.credit[place] -= bytes;
                if self.credit[place] > 0 {
                    return;
                }
                self.credit[place] += self.quanta[place];
            }
            self.turn_to((place + 1) % self.quanta.len());
        }
        fn turn_to(&mut self, place: usize) {
            *(if self.aside { &mut self.aside_cursor } else { &mut self.cursor }) = place;
        }
    }

    /// Random classes, quanta and packets, some of which are whole multiples of one another; classes that
    /// come, go and may or may not borrow. Reversed: packets that are a byte longer in the plain ring
    /// lead to another order.
    #[test]
    fn a21_the_ring_goes_as_one_that_is_walked() {
        for (seed, longer) in weir_seed::seeds(300).flat_map(|seed| [(seed, 0), (seed, 1)]) {
            let mut random = crate::Random::new(seed);
            let count = 1 + random.below(8) as usize;
            let by_packets = random.below(4) == 0;
            let held_back = [HeldBack::KeepsTurn, HeldBack::LosesTurn, HeldBack::LosesCredit];
            let held_back = held_back[random.below(3) as usize];
            let quanta: Vec<i64> = (0..count).map(|_| 100 + 100 * random.below(12) as i64).collect();
            let members: Vec<_> = quanta.iter().enumerate().map(|(n, &q)| (n as u32, q)).collect();
            let mut ring = Ring::new(&members, by_packets, held_back);
            let mut plain = Plain {
                standing: vec![Standing::Out; count],
                credit: quanta.clone(),
                quanta,
                cursor: 0,
                aside_cursor: 0,
                aside: false,
                held_back,
                by_packets,
            };
            let mut differs = false;
            for _ in 0..500 {
                let place = random.below(count as u64) as usize;
                if random.below(4) == 0 {
                    let to = [Standing::Ready, Standing::Over, Standing::Out][random.below(3) as usize];
                    ring.stand(place, plain.standing[place], to);
                    plain.standing[place] = to;
                }
                let (borrowers, may) = (random.below(4) > 0, random.next_u64() | random.next_u64());
                let picked = ring.pick(borrowers, |class| (may >> class & 1 == 1).then_some(()));
                let picked = picked.map(|(class, ())| class as usize);
                let expected = plain.pick(borrowers, may);
                assert!(longer > 0 || picked == expected, "seed {seed}: {picked:?}, not {expected:?}");
                let any = plain
                    .around(0, borrowers)
                    .iter()
                    .any(|&c| borrowers || plain.standing[c] == Standing::Ready);
                assert_eq!(ring.any(borrowers), any, "seed {seed}");
                let may_borrow = |&c: &usize| plain.standing[c] == Standing::Over && may >> c & 1 == 1;
                let borrower = plain.around(0, true).iter().any(may_borrow);
                assert_eq!(ring.has_borrower(|class| may >> class & 1 == 1), borrower, "seed {seed}");
                differs |= picked != expected;
                let (Some(picked), false) = (picked, differs) else { continue };
                let bytes = [100, 200, 300, 1_500, 40 + random.below(1_461)][random.below(5) as usize];
                ring.sent(picked, bytes);
                plain.sent(picked, bytes as i64 + longer);
            }
            let credits: Vec<i64> = ring.turns.iter().map(|turn| turn.credit).collect();
            assert!(longer > 0 || credits == plain.credit, "seed {seed}");
            // Credit that is forgotten tells nothing of the packets before.
            let tells = longer > 0 && !by_packets && count > 1 && held_back != HeldBack::LosesCredit;
            assert!(!tells || differs || credits != plain.credit, "seed {seed}");
        }
    }
}

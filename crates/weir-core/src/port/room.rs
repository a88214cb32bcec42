//! Room for everybody: which rows of the packet table are kept for which class.
//!
//! Principle: where the limits of all queues fit into the table together, no class can take another's
//! row, and nothing is done here. Where they do not, each class keeps a part: its own limit, or an equal
//! part of the table if that is less. What nobody has reserved, and what stands between, goes to
//! whoever comes first. A class beyond its part is refused before it takes a row that another class
//! has reserved and does not use. So a flood loses its own packets, and a class within its part none.
//!
//! Guarantees: `a_flood_takes_no_row_of_another_class` (and its reverse), `the_parts_fill_the_table`.
//! Cost: nothing where all fits; else two additions per packet.

use super::Port;
use super::ledger::Ledger;
use crate::packet::Meta;
use crate::units::Bounded;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Rows for control packets, which have no class.
const BESIDE: u32 = 64;
/// Rows of a table of `capacity` that no class has.
fn beside(capacity: u32) -> u32 {
    BESIDE.min(capacity / 4)
}
/// Packets that a queue may hold beyond its limit: those that it has shown to its parents.
const SHOWN: u32 = 2;

/// What one leaf has.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    reserved: u32,
    /// At most the rows of the table.
    inside: u32,
}

/// The parts of a table that is too small for all limits together.
pub(super) struct Room {
    parts: Vec<Part>,
    /// Rows that are reserved and not taken, of all leaves, and those beside the leaves: at most all.
    kept: u32,
}

/// Rows that a port needs so that no queue within its limit, one of `limits`, finds the table full.
/// `ring` is the number of descriptors of an emulated link.
pub fn rows_for(limits: impl Iterator<Item = u32>, ring: u32) -> u32 {
    let rows = limits.map(|limit| limit.saturating_add(SHOWN));
    rows.fold(ring.saturating_add(BESIDE), u32::saturating_add)
}

/// The part of each limit, so that together they fill `rows`: small limits whole, the others alike.
fn parts(limits: &[u32], rows: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..limits.len()).collect();
    order.sort_unstable_by_key(|&leaf| limits[leaf]);
    let (mut left, mut parts) = (rows, alloc::vec![0; limits.len()]);
    for (done, &leaf) in order.iter().enumerate() {
        let share = left / (limits.len() - done) as u32;
        parts[leaf] = limits[leaf].min(share);
        left -= parts[leaf];
    }
    parts
}

impl Room {
    /// What each of queues with those limits keeps of a table of `capacity` rows; `None` where everything fits, or
    /// nobody competes. `ring` is the number of descriptors of an emulated link.
    pub(super) fn parts(
        limits: impl ExactSizeIterator<Item = u32> + Clone,
        ring: u32,
        capacity: u32,
    ) -> Option<Vec<Part>> {
        if limits.len() < 2 || rows_for(limits.clone(), ring) <= capacity {
            return None;
        }
        // The packets of a class that are in the ring have rows too.
        let limits: Vec<u32> = limits.map(|limit| limit.saturating_add(SHOWN).saturating_add(ring)).collect();
        let reserved = parts(&limits, capacity - beside(capacity));
        Some(reserved.into_iter().map(|reserved| Part { reserved, inside: 0 }).collect())
    }
    /// Those parts of a table of `capacity` rows, with what the ledger says to be inside.
    pub(super) fn of(mut parts: Vec<Part>, capacity: u32, ledger: &Ledger) -> Box<Room> {
        let mut kept = beside(capacity);
        for (part, account) in parts.iter_mut().zip(&ledger.leaves) {
            part.inside = account.inside() as u32;
            kept += part.reserved.saturating_sub(part.inside);
        }
        Box::new(Room { parts, kept })
    }
    /// Both.
    pub(super) fn new(
        limits: impl ExactSizeIterator<Item = u32> + Clone,
        ring: u32,
        capacity: u32,
        ledger: &Ledger,
    ) -> Option<Box<Room>> {
        Room::parts(limits, ring, capacity).map(|parts| Room::of(parts, capacity, ledger))
    }
    /// Whether a packet of `leaf` may take one of the `free` rows.
    #[inline]
    pub(super) fn admits(&self, leaf: u32, free: u32) -> bool {
        let part = &self.parts[leaf as usize];
        part.inside < part.reserved || free > self.kept
    }
    #[inline]
    pub(super) fn came(&mut self, leaf: u32) {
        let part = &mut self.parts[leaf as usize];
        self.kept = self.kept.less((part.inside < part.reserved).into());
        part.inside = part.inside.plus(1);
    }
    /// The row of a packet is free again, where there is a room.
    #[inline(always)]
    pub(super) fn gone(room: &mut Option<Box<Room>>, control: bool, leaf: u32) {
        if let Some(room) = room.as_mut().filter(|_| !control) {
            room.left(leaf);
        }
    }
    #[inline]
    fn left(&mut self, leaf: u32) {
        let part = &mut self.parts[leaf as usize];
        part.inside = part.inside.less(1);
        self.kept = self.kept.plus((part.inside < part.reserved).into());
    }
    /// Whether the counts are those of the ledger: for tests.
    pub(super) fn is_sound(&self, ledger: &Ledger) -> bool {
        self.parts
            .iter()
            .zip(&ledger.leaves)
            .all(|(part, account)| u64::from(part.inside) == account.inside())
    }
}

impl Port {
    /// Counts a packet in, unless the row is kept for another class.
    #[inline]
    pub(super) fn finds_room(&mut self, meta: &Meta) -> bool {
        let Some(room) = self.room.as_mut().filter(|_| !meta.control) else { return true };
        let packets = &self.cx.packets;
        let admitted = room.admits(meta.leaf, packets.capacity().saturating_sub(packets.live()));
        if admitted {
            room.came(meta.leaf);
        }
        admitted
    }

    /// The row of a packet is free again.
    #[inline]
    pub(super) fn gone(&mut self, control: bool, leaf: u32) {
        Room::gone(&mut self.room, control, leaf);
    }
    /// A queue takes more packets from now on, or fewer.
    pub(super) fn limit(&mut self, class: &str, limit: u32) {
        let Some(leaf) = self.leaves.iter().position(|leaf| leaf.name == class) else { return };
        self.limits.insert(leaf as u32, limit);
        let limits = (0..).zip(&*self.leaves);
        let limits: Vec<u32> =
            limits.map(|(leaf, info)| self.limits.get(&leaf).copied().unwrap_or(info.limit)).collect();
        self.room = Room::new(limits.into_iter(), self.wire.ring_size(), self.capacity(), &self.ledger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Random arrivals, most of them of one class, and random departures. A class within its part always
    /// finds a row. Reversed: with every free row for whoever comes first, it does not.
    #[test]
    fn a_flood_takes_no_row_of_another_class() {
        let (mut full, mut broken) = (0, 0);
        for seed in weir_seed::seeds(50) {
            let mut random = Random::new(seed);
            let limits: Vec<u32> = (0..2 + random.below(8)).map(|_| 1 + random.below(2_000) as u32).collect();
            let capacity = 128 + random.below(400) as u32;
            let run = |keeps: bool| {
                let mut random = Random::new(seed);
                let Some(mut room) =
                    Room::new(limits.iter().copied(), 0, capacity, &Ledger::new(limits.len()))
                else {
                    return (0, 0);
                };
                let (mut inside, mut refused, mut unfair) = (Vec::new(), 0, 0);
                for _ in 0..20_000 {
                    let flood = random.below(4) > 0;
                    let leaf = if flood { 0 } else { random.below(limits.len() as u64) as u32 };
                    let free = capacity - inside.len() as u32;
                    let within = room.parts[leaf as usize].inside < room.parts[leaf as usize].reserved;
                    if free > 0 && (!keeps || room.admits(leaf, free)) {
                        room.came(leaf);
                        inside.push(leaf);
                    } else {
                        refused += 1;
                        unfair += u32::from(within);
                    }
                    if random.below(3) == 0 && !inside.is_empty() {
                        room.left(inside.swap_remove(random.below(inside.len() as u64) as usize));
                    }
                }
                (refused, unfair)
            };
            let ((refused, unfair), (_, reversed)) = (run(true), run(false));
            assert_eq!(unfair, 0, "seed {seed}: {refused} packets were refused");
            full += u32::from(refused > 0);
            broken += u32::from(refused > 0 && reversed > 0);
        }
        // Where a class has a row reserved that it never gives back, nothing is taken from it.
        assert!(2 * broken > full, "reversed: {broken} of {full}");
    }

    /// A flood alone has its part, and all that nobody has reserved; and when it is over, the same again.
    #[test]
    fn a_flood_has_what_nobody_has_reserved() {
        // Of 100 rows 25 are kept beside the classes. Their limits, with what queues have shown, come to 40.
        let mut room =
            Room::new([18, 18].into_iter(), 0, 100, &Ledger::new(2)).expect("100 rows are too few");
        for round in 0..3 {
            let mut inside = 0;
            while inside < 100 && room.admits(0, 100 - inside) {
                room.came(0);
                inside += 1;
            }
            assert_eq!(inside, 100 - 25 - 20, "round {round}");
            // A packet of another class takes a row that was kept for it.
            assert!(room.admits(1, 100 - inside));
            room.came(1);
            assert!(!room.admits(0, 100 - inside - 1), "round {round}");
            room.left(1);
            (0..inside).for_each(|_| room.left(0));
        }
    }

    #[test]
    fn the_parts_fill_the_table() {
        assert_eq!(parts(&[50, 10_240], 4_000), [50, 3_950]);
        assert_eq!(parts(&[u32::MAX, 50, u32::MAX], 1_050), [500, 50, 500]);
        assert_eq!(parts(&[20, 20, 20], 30), [10, 10, 10]);
        for seed in weir_seed::seeds(200) {
            let mut random = Random::new(seed);
            let limit = |random: &mut Random| {
                let bits = random.below(20);
                1 + random.below(1 << bits) as u32
            };
            let limits: Vec<u32> = (0..1 + random.below(20)).map(|_| limit(&mut random)).collect();
            let sum: u64 = limits.iter().map(|&l| u64::from(l)).sum();
            let rows = random.below(sum) as u32;
            let parts = parts(&limits, rows);
            assert_eq!(parts.iter().sum::<u32>(), rows, "seed {seed}: {limits:?}");
            // Whoever has less than it wants has as much as anybody, but for a rest of one.
            let most = parts.iter().copied().max().unwrap_or(0);
            assert!(parts.iter().zip(&limits).all(|(&p, &l)| p == l || p + 1 >= most), "seed {seed}");
        }
    }
}

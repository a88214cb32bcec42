//! Which tables can hold a match at all, from a few bits of the packet.
//!
//! Every table of the search is one bit. For each of a few *dimensions* (the first 16 bits of an
//! address, a port, ...) a row of bits, chosen by that part of the packet, says which tables have a
//! filter that asks for it; one more row says which have a filter that does not ask. The
//! conjunction over the dimensions leaves the tables worth probing: a bit that is off is proof, a
//! bit that is on is only a hint. (The idea is the tuple pruning of V. Srinivasan, S. Suri and
//! G. Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999, §4, with rows
//! instead of tries, so that a filter comes and goes in a few steps.)

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Tables per plane: one machine word.
pub const PLANE: usize = 64;
/// Rows per dimension.
const ROWS: usize = 1024;
/// Dimensions per family.
pub const DIMENSIONS: usize = 8;

/// A contiguous run of bits of one word of a packed packet.
#[derive(Clone, Copy)]
pub struct Dimension {
    /// Which word.
    pub word: usize,
    /// The bits, in place.
    pub mask: u64,
}

impl Dimension {
    /// The row for this packet. Up to 32 bits go to 10: by a product, whose high bits depend on all.
    #[inline(always)]
    fn row<const N: usize>(self, packet: &[u64; N]) -> usize {
        let bits = packet[self.word] & self.mask;
        (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - 10)) as usize
    }
}

#[derive(Clone)]
struct Plane {
    /// Dimension after dimension: what a dimension never sees stays out of the cache.
    rows: [Box<[u64; ROWS]>; DIMENSIONS],
    any: [u64; DIMENSIONS],
}

/// The rows, and how many filters stand behind each of their bits.
#[derive(Clone)]
pub struct Prune {
    dimensions: [Dimension; DIMENSIONS],
    planes: Vec<Plane>,
    counts: BTreeMap<u32, u32>,
}

const ANY: usize = ROWS;

impl Prune {
    /// No filters yet.
    pub fn new(dimensions: [Dimension; DIMENSIONS]) -> Self {
        Prune { dimensions, planes: Vec::new(), counts: BTreeMap::new() }
    }

    /// How many words of table bits there are.
    pub fn planes(&self) -> usize {
        self.planes.len()
    }

    /// The tables of a plane that may hold a match.
    #[inline(always)]
    pub fn candidates<const N: usize>(&self, plane: usize, packet: &[u64; N]) -> u64 {
        let Some(plane) = self.planes.get(plane) else { return 0 };
        let mut tables = u64::MAX;
        for i in 0..DIMENSIONS {
            tables &= plane.rows[i][self.dimensions[i].row(packet)] | plane.any[i];
        }
        tables
    }

    /// A filter with these words enters `table`.
    pub fn add<const N: usize>(&mut self, table: usize, value: &[u64; N], mask: &[u64; N]) {
        while self.planes.len() <= table / PLANE {
            self.planes
                .push(Plane { rows: core::array::from_fn(|_| Box::new([0; ROWS])), any: [0; DIMENSIONS] });
        }
        for i in 0..DIMENSIONS {
            let row = self.place(i, value, mask);
            let count = self.counts.entry(count_key(i, table, row)).or_insert(0);
            *count += 1;
            if *count == 1 {
                *self.bits(i, table, row) |= 1 << (table % PLANE);
            }
        }
    }

    /// A filter with these words leaves `table`.
    pub fn remove<const N: usize>(&mut self, table: usize, value: &[u64; N], mask: &[u64; N]) {
        for i in 0..DIMENSIONS {
            let row = self.place(i, value, mask);
            let key = count_key(i, table, row);
            let Some(count) = self.counts.get_mut(&key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
                *self.bits(i, table, row) &= !(1 << (table % PLANE));
            }
        }
    }

    /// The row of a filter, or `ANY` where it does not ask for the whole dimension.
    fn place<const N: usize>(&self, i: usize, value: &[u64; N], mask: &[u64; N]) -> usize {
        let dimension = self.dimensions[i];
        let asked = mask[dimension.word] & dimension.mask == dimension.mask;
        if asked { dimension.row(value) } else { ANY }
    }

    fn bits(&mut self, i: usize, table: usize, row: usize) -> &mut u64 {
        let plane = &mut self.planes[table / PLANE];
        if row == ANY { &mut plane.any[i] } else { &mut plane.rows[i][row] }
    }
}

/// Table below 2^12, dimension below 2^4, row up to 2^10 in 11 bits.
fn count_key(dimension: usize, table: usize, row: usize) -> u32 {
    ((table as u32) << 15) | ((dimension as u32) << 11) | row as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table is a candidate while one of its filters could match, and no longer.
    #[test]
    fn a_table_whose_filters_are_gone_is_no_candidate() {
        let mut prune = Prune::new([Dimension { word: 0, mask: 0xffff }; DIMENSIONS]);
        let (packet, whole, none) = ([5], [0xffff], [0]);
        for (mask, what) in [(whole, "asks for the whole dimension"), (none, "does not ask")] {
            for table in [0, PLANE - 1, PLANE] {
                let (plane, bit) = (table / PLANE, 1 << (table % PLANE));
                let candidate = |prune: &Prune| prune.candidates(plane, &packet) & bit != 0;
                assert!(!candidate(&prune), "table {table} is empty: {what}");
                prune.add(table, &packet, &mask);
                prune.add(table, &packet, &mask);
                prune.remove(table, &packet, &mask);
                assert!(candidate(&prune), "table {table} has a filter: {what}");
                prune.remove(table, &packet, &mask);
                assert!(!candidate(&prune), "table {table} has none left: {what}");
            }
        }
    }
}

//! A queue of packets, linked through the packet table: 20 bytes, no allocation.

use super::{Meta, NIL, PacketId, PacketTable};
use crate::units::Bounded;

/// A doubly linked list of packets of one `PacketTable`.
///
/// Every list of a port must be used with that port's table. Dropping a list that is not empty
/// loses its packets (they stay live in the table).
// Packed to words of 32 bits: the four bytes that would fill it up are a sixth of a queue.
#[derive(Debug)]
#[repr(C, packed(4))]
pub struct List {
    head: u32,
    /// The last packet; of an empty list whatever it was, so that nobody has to tell when it becomes empty.
    tail: u32,
    /// At most the rows of a table.
    packets: u32,
    /// Of fewer than 2^32 rows, below 2^32 each.
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        List::new()
    }
}

impl List {
    /// An empty list.
    pub const fn new() -> Self {
        List { head: NIL, tail: NIL, packets: 0, bytes: 0 }
    }
    /// Packets in the list.
    pub fn packets(&self) -> u32 {
        self.packets
    }
    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.head == NIL
    }
    /// Appends.
    #[inline]
    pub fn push_back(&mut self, table: &mut PacketTable, id: PacketId) {
        let row = table.get_mut(&id);
        (row.next, row.prev) = (NIL, self.tail);
        self.packets = self.packets.plus(1);
        self.bytes = self.bytes.plus(row.len.into());
        match self.head {
            NIL => self.head = id.row(),
            _ => table.row_mut(self.tail).next = id.row(),
        }
        self.tail = id.row();
    }
    /// Takes the first.
    #[inline]
    pub fn pop_front(&mut self, table: &mut PacketTable) -> Option<PacketId> {
        self.take_front(table).map(|(id, _)| id)
    }
    /// Takes the first, and says its length.
    #[inline(always)]
    pub(crate) fn take_front(&mut self, table: &PacketTable) -> Option<(PacketId, u32)> {
        let id = self.head;
        Some(self.take(id, table.row_of(id)?))
    }
    /// The same for a list that is not empty.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, table: &PacketTable) -> (PacketId, u32) {
        let id = self.head;
        self.take(id, table.row(id))
    }
    /// The first, whose row is shown.
    #[inline(always)]
    fn take(&mut self, id: u32, row: &Meta) -> (PacketId, u32) {
        let len = row.len;
        (self.packets, self.bytes) = (self.packets.less(1), self.bytes.less(len.into()));
        // The new first row keeps its `prev`: nobody reads that of the first.
        self.head = row.next;
        debug_assert_eq!(self.head == NIL, self.packets == 0, "a list's links and its count disagree");
        debug_assert!(self.packets > 0 || self.bytes == 0, "an empty list counts bytes");
        (PacketId::of(id), len)
    }
    /// Takes the last.
    pub fn pop_back(&mut self, table: &mut PacketTable) -> Option<PacketId> {
        if self.head == NIL {
            return None;
        }
        Some(self.unlink(table, self.tail))
    }
    /// Takes the packet at `position` from the front, walking from the nearer end.
    pub fn remove_at(&mut self, table: &mut PacketTable, position: u32) -> Option<PacketId> {
        if position >= self.packets {
            return None;
        }
        let mut row;
        if position <= self.packets / 2 {
            row = self.head;
            for _ in 0..position {
                row = table.row(row).next;
            }
        } else {
            row = self.tail;
            for _ in position + 1..self.packets {
                row = table.row(row).prev;
            }
        }
        Some(self.unlink(table, row))
    }
    /// The first packet's row.
    #[inline(always)]
    pub fn front<'t>(&self, table: &'t PacketTable) -> Option<&'t Meta> {
        table.row_of(self.head)
    }
    /// The last packet's row.
    pub fn back<'t>(&self, table: &'t PacketTable) -> Option<&'t Meta> {
        (self.head != NIL).then(|| table.row(self.tail))
    }
    /// The rows from first to last.
    pub fn iter<'t>(&self, table: &'t PacketTable) -> impl Iterator<Item = &'t Meta> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let row = (at != NIL).then(|| table.row(at))?;
            at = row.next;
            Some(row)
        })
    }
    /// Shows every row, from first to last, to change. The length must stay.
    pub fn for_each_mut(&self, table: &mut PacketTable, mut change: impl FnMut(&mut Meta)) {
        let mut at = self.head;
        while at != NIL {
            let row = table.row_mut(at);
            at = row.next;
            change(row);
        }
    }
    /// True if counters and links agree both ways, but for the first row's `prev`, which nobody
    /// reads: for tests.
    pub fn is_sound(&self, table: &PacketTable) -> bool {
        let (mut at, mut before, mut packets, mut bytes) = (self.head, NIL, 0u32, 0u64);
        while at != NIL {
            let row = table.row(at);
            if (before != NIL && row.prev != before) || packets == self.packets {
                return false;
            }
            (before, at) = (at, row.next);
            packets += 1;
            bytes += u64::from(row.len);
        }
        (before == self.tail || before == NIL) && packets == self.packets && bytes == self.bytes
    }
    fn unlink(&mut self, table: &mut PacketTable, id: u32) -> PacketId {
        let (next, prev, len) = {
            let row = table.row(id);
            (row.next, row.prev, row.len)
        };
        let prev = if id == self.head { NIL } else { prev };
        match prev {
            NIL => self.head = next,
            prev => table.row_mut(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => table.row_mut(next).prev = prev,
        }
        self.packets -= 1;
        self.bytes -= u64::from(len);
        PacketId::of(id)
    }
}

/// A list that packets enter at its end and leave at its front, and in no other way: 12 bytes.
#[derive(Debug)]
pub(crate) struct OneWay {
    head: u32,
    tail: u32,
    /// Modulo 2^32, which is 65,000 of the longest frames.
    bytes: u32,
}

impl OneWay {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        OneWay { head: NIL, tail: NIL, bytes: 0 }
    }
    /// The bytes of its packets, modulo 2^32.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.bytes)
    }
    /// True if there is no packet.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }
    /// Appends.
    #[inline]
    pub(crate) fn push_back(&mut self, table: &mut PacketTable, id: PacketId) {
        let row = table.get_mut(&id);
        row.next = NIL;
        self.bytes = self.bytes.wrapping_add(row.len);
        match self.head {
            NIL => self.head = id.row(),
            _ => table.row_mut(self.tail).next = id.row(),
        }
        self.tail = id.row();
    }
    /// Takes the first.
    #[inline]
    pub(crate) fn pop_front(&mut self, table: &PacketTable) -> Option<PacketId> {
        let (id, row) = (self.head, table.row_of(self.head)?);
        self.bytes = self.bytes.wrapping_sub(row.len);
        self.head = row.next;
        Some(PacketId::of(id))
    }
    /// How many packets there are, if links and bytes agree: for tests.
    pub(crate) fn packets_if_sound(&self, table: &PacketTable) -> Option<u64> {
        let (mut at, mut last, mut packets, mut bytes) = (self.head, self.tail, 0, 0u32);
        while at != NIL {
            let row = table.row(at);
            if packets > u64::from(table.capacity()) {
                return None;
            }
            packets += 1;
            bytes = bytes.wrapping_add(row.len);
            (last, at) = (at, row.next);
        }
        (last == self.tail && bytes == self.bytes).then_some(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::packet::FrameRef;
    use crate::units::Instant;
    use std::collections::VecDeque;

    /// Two lists of one table, against two deques.
    #[test]
    fn what_goes_one_way_leaves_in_order() {
        let mut random = Random::new(weir_seed::seed());
        let mut table = PacketTable::new(16);
        let mut lists = [OneWay::new(), OneWay::new()];
        let mut models = [VecDeque::new(), VecDeque::new()];
        for step in 0..10_000u32 {
            let which = random.below(2) as usize;
            let (list, model) = (&mut lists[which], &mut models[which]);
            if random.below(2) == 0 {
                if let Ok(id) = table.insert(Meta::new(20 + step % 99, Instant::ZERO, FrameRef(step))) {
                    list.push_back(&mut table, id);
                    model.push_back((step, 20 + step % 99));
                }
            } else {
                let id = list.pop_front(&table);
                let row = id.as_ref().map(|id| (table.get(id).frame.0, table.get(id).len));
                assert_eq!(row, model.pop_front());
                id.into_iter().for_each(|id| table.remove(id));
            }
            assert_eq!(list.packets_if_sound(&table), Some(model.len() as u64));
            assert_eq!(list.bytes(), model.iter().map(|&(_, len)| u64::from(len)).sum::<u64>());
            assert_eq!(list.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn behaves_as_a_deque_under_random_operations() {
        let mut random = Random::new(weir_seed::seed());
        let mut table = PacketTable::new(64);
        let (mut list, mut model) = (List::new(), VecDeque::new());
        for step in 0..20_000u32 {
            let len = 20 + step % 1500;
            match random.below(5) {
                0 | 1 => {
                    if let Ok(id) = table.insert(Meta::new(len, Instant::ZERO, FrameRef(step))) {
                        list.push_back(&mut table, id);
                        model.push_back((step, len));
                    }
                }
                op => {
                    let position = random.below(66) as u32;
                    let (id, expected) = match op {
                        2 => (list.pop_front(&mut table), model.pop_front()),
                        3 => (list.pop_back(&mut table), model.pop_back()),
                        _ => (list.remove_at(&mut table, position), model.remove(position as usize)),
                    };
                    assert_eq!(id.as_ref().map(|id| (table.get(id).frame.0, table.get(id).len)), expected);
                    if let Some(id) = id {
                        table.remove(id);
                    }
                }
            }
            assert!(list.is_sound(&table));
            assert_eq!(list.packets() as usize, model.len());
        }
    }
}

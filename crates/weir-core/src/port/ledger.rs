//! The ledger: every packet that came is queued, in the ring, sent or dropped for a reason.

use crate::packet::Meta;
use crate::queue::DropReason;
use crate::units::Bounded;
use alloc::vec::Vec;

/// What happened to the packets of one leaf, since the port came up. Packets are counted one by one, so that no
/// count comes to 2^64. Neither do bytes, which take eleven years for that at 400 Gbit/s.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
// What is counted together does not stand side by side, because the compiler would make a vector of it, which costs
// more than two additions.
pub struct Account {
    /// Packets that came.
    pub offered_packets: u64,
    /// Packets whose last bit has left.
    pub sent_packets: u64,
    /// Bytes that came.
    pub offered_bytes: u64,
    /// Bytes that have left.
    pub sent_bytes: u64,
    /// Packets that were dropped, by `DropReason as usize`.
    pub dropped_packets: [u64; DropReason::ALL.len()],
    /// Bytes that were dropped.
    pub dropped_bytes: u64,
}

impl Account {
    /// Packets that were dropped for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_packets.iter().sum()
    }
    /// Packets that are still in the port.
    pub fn inside(&self) -> u64 {
        self.offered_packets - self.sent_packets - self.dropped()
    }
    pub(super) fn offer(&mut self, len: u32) {
        self.offered_packets = self.offered_packets.plus(1);
        self.offered_bytes = self.offered_bytes.plus(len.into());
    }
    pub(super) fn send(&mut self, len: u32) {
        self.sent_packets = self.sent_packets.plus(1);
        self.sent_bytes = self.sent_bytes.plus(len.into());
    }
    pub(super) fn drop(&mut self, len: u32, reason: DropReason) {
        self.dropped_packets[reason as usize] += 1;
        self.dropped_bytes += u64::from(len);
    }
    fn add(&mut self, o: &Account) {
        self.offered_packets += o.offered_packets;
        self.offered_bytes += o.offered_bytes;
        self.sent_packets += o.sent_packets;
        self.sent_bytes += o.sent_bytes;
        self.dropped_bytes += o.dropped_bytes;
        for (mine, theirs) in self.dropped_packets.iter_mut().zip(o.dropped_packets) {
            *mine += theirs;
        }
    }
}

/// Bytes that a port takes for each leaf of its tree: its account.
pub const BYTES_PER_LEAF: u64 = size_of::<Account>() as u64;

/// The accounts of a port's leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) leaves: Vec<Account>,
    /// Control packets that went before the tree.
    pub(super) control: Account,
    /// Accounts of leaves that a swap took away.
    gone: Account,
}

impl Ledger {
    pub(super) fn new(leaves: usize) -> Self {
        Ledger { leaves: alloc::vec![Account::default(); leaves], ..Ledger::default() }
    }
    /// The accounts of leaves, of control packets, and of leaves that are gone.
    pub(super) fn of(leaves: Vec<Account>, control: Account, gone: Account) -> Self {
        Ledger { leaves, control, gone }
    }
    /// The account of leaves that a swap took away.
    pub(super) fn gone(&self) -> Account {
        self.gone
    }
    pub(super) fn offered(&mut self, leaf: u32, len: u32) {
        self.leaves[leaf as usize].offer(len);
    }
    #[inline(always)]
    pub(super) fn sent(&mut self, packet: &Meta) {
        match packet.control {
            true => self.control.send(packet.len),
            false => self.leaves[packet.leaf as usize].send(packet.len),
        }
    }
    pub(super) fn dropped(&mut self, leaf: u32, len: u32, reason: DropReason) {
        self.leaves[leaf as usize].drop(len, reason);
    }
    /// The interface: the sum over its classes at any time (A17).
    pub(super) fn total(&self) -> Account {
        let mut sum = self.beside_leaves();
        self.leaves.iter().for_each(|account| sum.add(account));
        sum
    }
    /// What the leaves do not have.
    pub(super) fn beside_leaves(&self) -> Account {
        let mut sum = self.gone;
        sum.add(&self.control);
        sum
    }
    /// Moves to the leaves of a new tree. `heir[i]` is the new leaf that goes on with the old
    /// leaf i; what an account of a leaf that is gone has inside moves with its packets.
    pub(super) fn inherit(&mut self, heir: &[(u32, bool)], leaves: usize, moved: &[(u32, u32)]) {
        let old = core::mem::replace(&mut self.leaves, alloc::vec![Account::default(); leaves]);
        for (account, &(leaf, same_name)) in old.iter().zip(heir) {
            if same_name {
                self.leaves[leaf as usize].add(account);
            } else {
                self.gone.add(account);
            }
        }
        // A packet that changes its class leaves one account as if never offered, and enters
        // the other.
        for &(leaf, len) in moved {
            self.gone.offered_packets -= 1;
            self.gone.offered_bytes -= u64::from(len);
            self.offered(leaf, len);
        }
    }
}

impl super::Port {
    /// Says that the device below refused a packet of `len` bytes that left as `leaf`, the number
    /// that its class has now: it counts as dropped, not as sent. A class that a swap took away
    /// has `u32::MAX`, and a control packet `Port::CONTROL`.
    pub fn refused(&mut self, leaf: u32, len: u32, reason: DropReason) {
        let ledger = &mut self.ledger;
        let account = match leaf {
            super::Port::CONTROL => &mut ledger.control,
            leaf => ledger.leaves.get_mut(leaf as usize).unwrap_or(&mut ledger.gone),
        };
        if account.sent_packets > 0 {
            account.sent_packets -= 1;
            account.sent_bytes = account.sent_bytes.saturating_sub(u64::from(len));
            account.dropped_packets[reason as usize] += 1;
            account.dropped_bytes += u64::from(len);
        }
    }
}

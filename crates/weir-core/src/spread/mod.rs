//! One port on several cores: its tree is cut at the root, and the parts borrow the link's rate in quanta.
//!
//! Principle: a core owns whole subtrees with their packets, so no queue is shared. What the cores share is
//! the link, and one small state machine decides whose it is: [`Credit`]. A [`Part`] stands above the subtrees
//! of a core. It lets packets go as far as its credit reaches, then it asks for a quantum more. The part
//! whose classes are furthest behind gets the next one.
//!
//! ```text
//!   core 0                core 1
//!   Port (open wire)      Port (open wire)
//!     Part                  Part
//!       subtrees              subtrees
//!          \                  /
//!           ask, give_back: Credit (behind a lock of the host's): bucket, order of the parts
//! ```
//!
//! [`cut`] says which subtree goes to which part, or why a tree cannot be cut. The laws and their proofs stand
//! in the book under *Many cores*; `weir-testkit` holds them against the tree on one core.
//!
//! What a discipline hands over for this is [`Cut`]: the [`Share`] of each class at its root. A port with an
//! [`Apart`] in its plan is that of one part: its filters know the leaves of all parts, and name those of the others by
//! [`elsewhere`]. Its control packets are paid for at the link. If a discipline breaks, it goes on as one FIFO with an equal
//! part of the link's rate, and the other parts borrow that much less.

mod credit;
mod part;
mod plan;

pub use credit::{Ask, Credit, Lend, Loan};
pub use part::Part;
pub use plan::{PartPlan, cut};

use crate::queue::{Link, ParamError};
use crate::sched::Node;
use crate::units::Rate;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Levels of strict priority that classes at a root may have.
pub const LEVELS: usize = 16;

/// Numbers of leaves from here on stand for the leaves of another part.
const ELSEWHERE: u32 = 1 << 31;
/// Parts that a port may have, at most.
pub const MOST_PARTS: u32 = 64;

/// The number that stands for all leaves of that part, in the filters of the others.
pub fn elsewhere(part: u32) -> u32 {
    ELSEWHERE + part
}

/// The part whose leaves that number stands for; none for a leaf that is here.
#[inline]
pub fn part_of(leaf: u32) -> Option<usize> {
    leaf.checked_sub(ELSEWHERE).filter(|&part| part < MOST_PARTS).map(|part| part as usize)
}

/// What a port has that runs one part of a tree.
pub struct Apart {
    /// Where packets belong that no filter matches, if that is in another part ([`elsewhere`]).
    pub otherwise: Option<u32>,
    /// Of so many parts it is one.
    pub parts: u32,
    /// By which it pays for control packets, which no tree has seen.
    pub lend: Box<dyn Lend>,
}

/// What a class at the root has of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// A class of a higher level goes first, below [`LEVELS`].
    pub level: u8,
    /// Among classes of a level: what it has in proportion to the others.
    pub weight: Rate,
    /// What its subtree is owed in real time, at most.
    pub owed: Rate,
}

/// Says what each class at the root of `node` has of the link, in their order, or what of one asks for more than its
/// own subtree.
pub type Shares = fn(&Node, &Link) -> Result<Vec<Share>, ParamError>;

/// Whether a tree with a discipline at its root can be cut between the classes there.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// It can: its classes are served by these shares.
    ByShares(Shares),
    /// It cannot, and why.
    Whole(&'static str),
}

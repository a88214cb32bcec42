//! What every language of Weir's files shares: quantities with units, as typed and as printed.

pub mod quantity;

pub use quantity::{Amount, BitRate, Dscp, Size, Time};

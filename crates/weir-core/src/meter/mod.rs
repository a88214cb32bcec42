//! Meters, and the conditioner that acts by what they find.
//!
//! ```text
//!                     ┌──────────────────────────── conditioner ───────────────────────────┐
//!  key, length, time ─┤ classifier ─> meter ─> green, yellow, red ─> pass, mark, drop, meter ├─> class filters
//!                     └─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The words are those of RFC 2475: a *meter* measures a packet against a profile, a *marker*
//! writes a code point, a *policer* drops what is out of profile. Shapers are disciplines, not
//! conditioners: nothing is delayed here.
//!
//! All arithmetic is exact: tokens are counted in units of 10^-9 bit, of which a rate of r bit/s
//! gives exactly r every nanosecond.

mod conditioner;
mod srtcm;
mod token_bucket;
mod trtcm;
mod tswtcm;

pub use conditioner::{Action, Conditioners, Judgement, Meter};
pub use srtcm::SingleRate;
pub use token_bucket::TokenBucket;
pub use trtcm::TwoRate;
pub use tswtcm::TimeWindow;

#[cfg(test)]
mod three_colours;

//! Time, rates and fixed-point numbers. All arithmetic of this crate is integer arithmetic.

mod bounded;
mod fixed;
mod rate;
mod time;

pub(crate) use bounded::Bounded;
pub use fixed::{Fixed, Fraction, mul_div};
pub use rate::{PerByte, Rate};
pub use time::{Duration, Fine, Instant};

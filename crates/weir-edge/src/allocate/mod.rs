//! How a class asks for bandwidth: a meter, a law, congestion control, and the state machine that has
//! one request under way at a time.
//!
//! [`Window`] measures. [`Threshold`] and [`Log`] say what a class should have: pure functions.
//! [`Congestion`] says when that would come too late. [`Allocator`] joins them. [`Tune`] looks for
//! thresholds by measuring.

mod allocator;
mod congestion;
mod ln;
mod log;
mod threshold;
mod tune;
mod window;

pub use allocator::{Action, Allocation, Allocator, Answer, Law, Request, Stats};
pub use congestion::{Backlog, Congestion};
pub use ln::{LN_BITS, ln_ratio};
pub use log::{Amount, Log};
pub use threshold::Threshold;
pub use tune::{Constraints, Measured, Tune};
pub use window::{Window, Windows};

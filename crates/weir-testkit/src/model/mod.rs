//! Exact models of what theory says, to hold disciplines against. No rounding anywhere: rational
//! numbers of 128 bits, which panic instead of losing a digit. Slow and plain on purpose.
//! (`ns2_cbq` alone models another program, roundings included, to tell its quirks from its rules.)

mod drr;
mod gps;
mod jobs;
mod link_sharing;
mod ns2_cbq;
mod promises;
mod ratio;
mod red;
mod service_curve;
mod token_bucket;

pub use drr::DeficitRoundRobin;
pub use gps::{Gps, Job};
pub use jobs::{JobsClass, JobsDrops, JobsHarm, jobs_harm, jobs_rates};
pub use link_sharing::{ShareClass, fluid_shares};
pub use ns2_cbq::{Forgives, Ns2Sent, Ns2Test, ns2_cbq};
pub use promises::{PromisedClass, least_shares, may_lose};
pub use ratio::Ratio;
pub use red::RedAverage;
pub use service_curve::{PiecewiseCurve, Served, deadlines};
pub use token_bucket::TokenBucket;

//! What a queueing discipline is: read [`Discipline`] first, then [`Child`], then [`Leaf`].

mod child;
mod contract;
mod drop_reason;
mod head;
mod leaf;
pub mod params;
mod stats;
mod values;

pub(crate) use child::Inner;
pub use child::{Child, Routes};
pub use contract::{Backlog, Broken, Cause, Cx, Discipline, Link, Next, Verdict, Wait};
pub use drop_reason::DropReason;
pub use head::Head;
pub(crate) use leaf::Driven;
pub use leaf::Leaf;
pub use params::{Alias, Bound, Kind, ParamSpec, Scope, TimeUnit, bytes_as_typed};
pub use stats::{Deeper, Visit};
pub use values::{Curve, ParamError, Params, Value};

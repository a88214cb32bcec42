//! Packets as fixed-size handles, and what is read from their headers.

mod control;
pub mod dissect;
pub mod dscp;
pub mod ecn;
pub mod key;
mod list;
mod table;
pub mod tunnel;

pub use control::{ControlKind, ControlSet};
pub use dissect::{Dissected, Fragment, FragmentCache, dissect, dissect_ip};
pub use dscp::{Dscp, set_tos};
pub use ecn::Ecn;
pub use key::{Family, Key};
pub use list::List;
pub(crate) use list::OneWay;
pub(crate) use table::Slot;
pub use table::{Colour, FrameRef, Meta, NIL, PacketId, PacketState, PacketTable};
pub use tunnel::look_inside;

//! Packets as fixed-size handles, and what is read from their headers.

mod list;
mod table;

pub use list::List;
pub use table::{Colour, FrameRef, Meta, NIL, PacketId, PacketTable, State};

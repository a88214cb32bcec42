//! How a discipline shows its state to the outside.

/// Receives a discipline's statistics: a class, then its values, classes in depth-first order.
pub trait Visit {
    /// The values that follow are those of `class`, at `depth` below the interface.
    fn class(&mut self, class: &str, depth: u32);
    /// One value; `unit` as in "packets", "bytes", "ns", "bit/s", "" for a plain number.
    fn value(&mut self, name: &'static str, unit: &'static str, value: i64);
}

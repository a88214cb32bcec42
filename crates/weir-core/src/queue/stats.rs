//! How a discipline shows its state to the outside.

/// Receives a discipline's statistics: a class, then its values, classes in depth-first order.
pub trait Visit {
    /// The values that follow are those of `class`, at `depth` below the interface.
    fn class(&mut self, class: &str, depth: u32);
    /// One value; `unit` as in "packets", "bytes", "ns", "bit/s", "" for a plain number.
    fn value(&mut self, name: &'static str, unit: &'static str, value: i64);
}

/// Shows what stands in a class: an inner discipline counts its classes from 1, and this puts
/// them below the class that holds it.
pub struct Deeper<'v>(pub &'v mut dyn Visit);

impl Visit for Deeper<'_> {
    fn class(&mut self, class: &str, depth: u32) {
        self.0.class(class, depth + 1);
    }
    fn value(&mut self, name: &'static str, unit: &'static str, value: i64) {
        self.0.value(name, unit, value);
    }
}

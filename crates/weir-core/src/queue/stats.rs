//! How a discipline shows its state to the outside.

use core::ops::Range;

/// Receives a discipline's statistics: a class, then its values, classes in depth-first order.
///
/// A visitor may want a part at a time, because a tree may have 100,000 classes and its host a
/// packet to send. So a node asks `places` before it names classes, and leaves out what is not
/// wanted; a class keeps its place as long as the tree stays.
pub trait Visit {
    /// The values that follow are those of `class`, at `depth` below the interface.
    fn class(&mut self, class: &str, depth: u32);
    /// One value; `unit` as in "packets", "bytes", "ns", "bit/s", "" for a plain number.
    fn value(&mut self, name: &'static str, unit: &'static str, value: i64);
    /// Which of the next `count` places for classes are wanted. A place may stay empty.
    fn places(&mut self, count: usize) -> Range<usize> {
        0..count
    }
    /// Asks for one place, and names a class there if it is wanted; false if not.
    fn wants(&mut self, class: &str, depth: u32) -> bool {
        let wanted = !self.places(1).is_empty();
        if wanted {
            self.class(class, depth);
        }
        wanted
    }
    /// False while no value is wanted: what is costly to compute may be left out.
    fn listens(&self) -> bool {
        true
    }
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
    fn places(&mut self, count: usize) -> Range<usize> {
        self.0.places(count)
    }
    fn listens(&self) -> bool {
        self.0.listens()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    /// Each `Deeper` puts classes one level below.
    #[test]
    fn what_stands_in_a_class_stands_below_it() {
        struct Seen(Vec<(String, u32)>);
        impl Visit for Seen {
            fn class(&mut self, class: &str, depth: u32) {
                self.0.push((class.into(), depth));
            }
            fn value(&mut self, _: &'static str, _: &'static str, _: i64) {}
        }
        let mut seen = Seen(Vec::new());
        seen.class("outer", 1);
        let mut below = Deeper(&mut seen);
        below.class("inner", 1);
        Deeper(&mut below).class("innermost", 1);
        assert_eq!(seen.0, [("outer".into(), 1), ("inner".into(), 2), ("innermost".into(), 3)]);
    }
}

//! House keeping.
fn main() {}

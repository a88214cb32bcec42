//! The discipline library: no I/O, no clock, no threads, no floats, no unsafe, no dependencies.

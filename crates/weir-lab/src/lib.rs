//! Network-namespace testbed: runs a scenario for real, with the kernel's own TCP.

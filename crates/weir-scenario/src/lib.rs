//! The TOML scenario (topology, traffic, timeline, expectations) and the report that every run produces.

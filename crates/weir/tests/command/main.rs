//! The command as people and programs meet it: exit codes, streams, files, JSON, a live box.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod accuracy;
mod bed;
mod book;
mod bounds;
mod broker;
mod calls;
mod edge;
mod edge_asked;
mod edge_flood;
mod edge_world;
mod fail_open;
mod json;
mod kinds;
mod leases;
mod live;
mod media;
mod neighbours;
mod operate;
mod owner;
mod pcap;
mod processors;
mod replay;
mod rights;
mod run;
mod sessions;
mod sessions_room;
mod sessions_storm;
mod shape;
mod shown;
mod sla;
mod spread;
mod streams;
mod support;
mod takeover;
mod trials;
mod workers;
mod world;
mod xdp;

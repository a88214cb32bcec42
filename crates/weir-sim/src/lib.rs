//! Virtual time: event queue, links, hosts, TCP, traffic sources, recorder.

//! Live ports: AF_PACKET, pcap files and a fault-injecting wrapper. The only crate with unsafe code.

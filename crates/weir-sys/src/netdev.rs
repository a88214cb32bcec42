//! What the driver of an interface offers to XDP, by generic netlink (the family `netdev`).
//!
//! Asking changes nothing. Source: Documentation/netlink/specs/netdev.yaml of Linux.

use crate::tc::{Attributes, Family, ask, attribute};
use std::io;

/// The family that tells of families, and what it is asked.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// What `netdev` is asked.
const GET_DEVICE: u8 = 1;
const INDEX: u16 = 1;
const FEATURES: u16 = 3;
/// Bits of the features.
const BASIC: u64 = 1;
const REDIRECT: u64 = 1 << 1;
const ZERO_COPY: u64 = 1 << 3;

/// What a driver offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpFeatures {
    /// A place for programs, which may hand frames over.
    pub native: bool,
    /// Sockets of AF_XDP without copying.
    pub zero_copy: bool,
}

/// `struct genlmsghdr`: the command, the version, and two bytes of nothing.
fn header(command: u8) -> [u8; 4] {
    [command, 1, 0, 0]
}

/// Asks what the driver of interface number `index` of this network namespace offers.
///
/// # Errors
/// No such interface; a kernel that does not tell (before 6.3).
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    let told = |answers: Vec<Vec<u8>>, name: u16| -> Option<u64> {
        let answer = answers.first()?;
        let value = attribute(answer.get(4..)?, name)?;
        match *value {
            [a, b] => Some(u64::from(u16::from_ne_bytes([a, b]))),
            _ => Some(u64::from_ne_bytes(value.try_into().ok()?)),
        }
    };
    let untold = || io::Error::new(io::ErrorKind::Unsupported, "this kernel does not tell");
    let name = Attributes::default().text(FAMILY_NAME, "netdev");
    let family = ask(Family::Generic, CONTROL, 0, &header(GET_FAMILY), &name).map_err(|_| untold())?;
    let family = told(family, FAMILY_ID).ok_or_else(untold)? as u16;
    let device = Attributes::default().number(INDEX, index);
    let features = ask(Family::Generic, family, 0, &header(GET_DEVICE), &device)?;
    let features = told(features, FEATURES).ok_or_else(untold)?;
    let all = |bits: u64| features & bits == bits;
    Ok(XdpFeatures { native: all(BASIC | REDIRECT), zero_copy: all(BASIC | REDIRECT | ZERO_COPY) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_no_place_for_programs_and_a_pair_has() {
        let lo = crate::interface_index("lo").unwrap();
        match xdp_features(lo) {
            Err(e) => return eprintln!("SKIPPED: {e}"),
            Ok(lo) => assert_eq!(lo, XdpFeatures { native: false, zero_copy: false }),
        }
        assert!(xdp_features(u32::MAX >> 1).is_err());
        if !crate::is_root() {
            eprintln!("SKIPPED: needs root for a network namespace");
            return;
        }
        let inside = || {
            crate::enter_new_network().unwrap();
            let add = "link add name na type veth peer name nb";
            assert!(std::process::Command::new("ip").args(add.split(' ')).status().unwrap().success());
            xdp_features(crate::interface_index("na").unwrap()).unwrap()
        };
        let pair = std::thread::spawn(inside).join().unwrap();
        assert!(pair.native && !pair.zero_copy);
    }
}

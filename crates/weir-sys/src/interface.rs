//! What the system knows of a network interface, and its offloads.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What an interface may leave to the device, or to the kernel right before it or after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// The device segments TCP.
    Tso,
    /// Packets stay whole down to the device (generic segmentation offload).
    Gso,
    /// Arriving packets are put together (generic receive offload).
    Gro,
    /// The device completes checksums on sending. Without it the system switches `Tso` off too.
    Checksum,
    /// The device gathers a frame from pieces. Without it the system switches `Tso` off too.
    ScatterGather,
}

/// Switches one offload of an interface. What needs it goes off with it.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    let command = match offload {
        Offload::Checksum => 0x17,
        Offload::ScatterGather => 0x19,
        Offload::Tso => 0x1f,
        Offload::Gso => 0x24,
        Offload::Gro => 0x2c,
    };
    ethtool(interface, [command, u32::from(on)]).map(drop)
}

/// Whether an offload of an interface is on.
///
/// # Errors
/// The device has no such thing; no such interface.
pub fn has_offload(interface: &str, offload: Offload) -> io::Result<bool> {
    let command = match offload {
        Offload::Checksum => 0x16,
        Offload::ScatterGather => 0x18,
        Offload::Tso => 0x1e,
        Offload::Gso => 0x23,
        Offload::Gro => 0x2b,
    };
    Ok(ethtool(interface, [command, 0])?[1] != 0)
}

/// The name of an interface's driver.
///
/// # Errors
/// It has none; no such interface.
pub fn driver(interface: &str) -> io::Result<String> {
    const GET_DRIVER: u32 = 0x3;
    // 196 bytes, of which 32 behind the command are the name.
    let mut request = [0; 49];
    request[0] = GET_DRIVER;
    let name: Vec<u8> =
        ethtool(interface, request)?[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

/// Segmentation and aggregation offloads of an interface, off or on: with them a "packet" is up to
/// 64 KB, 5 ms at 100 Mbit/s, and fairness and delay mean little.
pub fn set_offloads(interface: &str, on: bool) -> io::Result<()> {
    [Offload::Tso, Offload::Gso, Offload::Gro]
        .into_iter()
        .try_for_each(|offload| set_offload(interface, offload, on))
}

/// Has VLAN tags stay in the frames that arrive: the device takes none out.
///
/// # Errors
/// The device takes them out and cannot be told not to; no such interface.
pub fn keep_vlan_tags(interface: &str) -> io::Result<()> {
    const GET_FLAGS: u32 = 0x25;
    const SET_FLAGS: u32 = 0x26;
    const RECEIVE_TAGS: u32 = 1 << 8;
    let flags = ethtool(interface, [GET_FLAGS, 0])?[1];
    match flags & RECEIVE_TAGS {
        0 => Ok(()),
        _ => ethtool(interface, [SET_FLAGS, flags & !RECEIVE_TAGS]).map(drop),
    }
}

/// How many queues the device receives into. A device that does not tell has one.
pub fn receive_queues(interface: &str) -> u32 {
    const GET_CHANNELS: u32 = 0x3c;
    // After four limits: for receiving, for sending, for other things, and for both.
    let channels = ethtool(interface, [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0]);
    channels.map_or(1, |n| n[5].saturating_add(n[8])).max(1)
}

/// Asks the driver: a command, and what belongs to it.
fn ethtool<const N: usize>(interface: &str, mut value: [u32; N]) -> io::Result<[u32; N]> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket =
        std::net::UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(interface, &mut request.ifr_name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads and writes an ifreq whose data points to a structure of words as
    // long as its command, the first of them, says: `value`. Both live until after the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).map(|_| value)
}

/// What the system says of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Largest packet without layer-2 header.
    pub mtu: u32,
    /// Whether it was brought up.
    pub up: bool,
    /// Whether it can send: it is up and has a carrier.
    pub running: bool,
}

/// Asks about an interface of this network namespace.
pub fn interface(name: &str) -> io::Result<Interface> {
    interface_index(name)?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(name, &mut request.ifr_name)?;
    ask(socket.as_fd(), request)
}

/// Asks about the interface that `request` names, in the namespace of `socket`.
pub(crate) fn ask(socket: BorrowedFd<'_>, mut request: libc::ifreq) -> io::Result<Interface> {
    // SAFETY: SIOCGIFMTU reads the name of a valid ifreq and writes its number.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    // SAFETY: as above, for the flags.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let says = |flag| flags & flag == flag;
    Ok(Interface {
        mtu: mtu.max(0) as u32,
        up: says(libc::IFF_UP),
        running: says(libc::IFF_UP | libc::IFF_RUNNING),
    })
}

/// A request about interface number `index` of the namespace of `socket`, by its present name.
pub(crate) fn interface_name(socket: BorrowedFd<'_>, index: u32) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    // SAFETY: SIOCGIFNAME reads the number of a valid ifreq and writes its name.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME as _, &raw mut request) })?;
    Ok(request)
}

fn copy_name(name: &str, to: &mut [libc::c_char; libc::IFNAMSIZ]) -> io::Result<()> {
    if name.is_empty() || name.len() >= to.len() || name.contains('\0') {
        let say = format!("interface name {name:?}: must have 1 to {} bytes", to.len() - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, say));
    }
    for (to, from) in to.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(())
}

/// The number of an interface of this network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let c_name = std::ffi::CString::new(name).map_err(io::Error::other)?;
    // SAFETY: `c_name` is a string that ends in NUL and lives until after the call.
    match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, format!("no interface {name:?} here"))),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_tells_its_mtu() {
        let lo = interface("lo").unwrap();
        assert!(lo.mtu >= 1500, "{lo:?}");
        assert!(interface("no-such-if0").is_err());
    }

    #[test]
    fn mistakes_are_errors() {
        assert!(interface_index("no-such-if0").is_err());
        assert!(interface_index("lo").unwrap() > 0);
        assert!(set_offloads("a-name-longer-than-16-bytes", false).is_err());
        assert!(set_offloads("no-such-if0", false).is_err());
        assert!(keep_vlan_tags("no-such-if0").is_err());
        assert!(driver("no-such-if0").is_err());
        assert!(has_offload("no-such-if0", Offload::Tso).is_err());
        assert_eq!((receive_queues("no-such-if0"), receive_queues("lo")), (1, 1));
    }
}

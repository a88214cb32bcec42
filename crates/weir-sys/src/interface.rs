//! What the system knows of a network interface, and its offloads.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::io;
use std::os::fd::AsRawFd;

/// Segmentation and aggregation offloads of an interface, off or on: with them a "packet" is up to
/// 64 KB, 5 ms at 100 Mbit/s, and fairness and delay mean little.
pub fn set_offloads(interface: &str, on: bool) -> io::Result<()> {
    const SET_TSO: u32 = 0x1f;
    const SET_GSO: u32 = 0x24;
    const SET_GRO: u32 = 0x2c;
    for command in [SET_TSO, SET_GSO, SET_GRO] {
        ethtool(interface, command, u32::from(on))?;
    }
    Ok(())
}

fn ethtool(interface: &str, command: u32, data: u32) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    let mut value = Value { command, data };
    let socket =
        std::net::UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(interface, &mut request.ifr_name)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads and writes an ifreq whose data points to an ethtool_value, here
    // `value`; both live until after the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) }).map(|_| ())
}

/// What the system says of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Largest packet without layer-2 header.
    pub mtu: u32,
    /// Whether it was brought up.
    pub up: bool,
}

/// Asks about an interface of this network namespace.
pub fn interface(name: &str) -> io::Result<Interface> {
    interface_index(name)?;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: an ifreq is plain bytes and a union, for which all zeroes is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    copy_name(name, &mut request.ifr_name)?;
    // SAFETY: SIOCGIFMTU reads the name of a valid ifreq and writes its number.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    // SAFETY: as above, for the flags.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) })?;
    // SAFETY: the call above filled this member of the union.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok(Interface { mtu: mtu.max(0) as u32, up: libc::c_int::from(flags) & libc::IFF_UP != 0 })
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
    }
}

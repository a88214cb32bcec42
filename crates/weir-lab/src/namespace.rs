//! The network namespace of this process, and the commands that set it up.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_sys::netlink::{Link, links};

/// Moves this process into a new namespace that says nothing by itself. It ends with `parent`.
pub(crate) fn enter(parent: u32) -> io::Result<()> {
    weir_sys::die_with_parent(parent)?;
    weir_sys::enter_new_network()?;
    weir_sys::sleep_precisely()?;
    // A measured process should not wait for a compiler. Without the privilege it may.
    let _ = weir_sys::take_priority(weir_sys::Priority::Nice);
    quiet()
}

/// Settings of every namespace: no IPv6 chatter, no forwarding, nothing remembered of earlier
/// connections, buffers that do not become the bottleneck, and bridges that only bridge: what passes them
/// does not go through the packet filter's hooks, which the kernel has them do where it has `br_netfilter`.
fn quiet() -> io::Result<()> {
    for (path, value) in [
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("ipv4/ip_forward", "0"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/tcp_no_metrics_save", "1"),
        ("ipv4/tcp_rmem", "4096 262144 16777216"),
        ("ipv4/tcp_wmem", "4096 262144 16777216"),
        ("bridge/bridge-nf-call-arptables", "0"),
        ("bridge/bridge-nf-call-iptables", "0"),
        ("bridge/bridge-nf-call-ip6tables", "0"),
    ] {
        let path = format!("/proc/sys/net/{path}");
        // A kernel built without IPv6 has no such path, and no chatter either; likewise `br_netfilter`.
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        }
    }
    ip("link set dev lo up\n").map_err(io::Error::other)
}

/// Waits until the kernel sends through all `interfaces` of this process's namespace.
pub(crate) fn ready(interfaces: &[String], patience: Duration) -> Result<(), String> {
    let end = Instant::now() + patience;
    loop {
        let all = links().map_err(|e| format!("the list of interfaces: {e}"))?;
        let found = |name: &str| all.iter().find(|link| link.name == name);
        let late = interfaces.iter().find(|name| !found(name).is_some_and(|link| link.forwards));
        let Some(late) = late else { return Ok(()) };
        if Instant::now() >= end {
            let why = match found(late) {
                None => "it is not there",
                Some(Link { up: false, .. }) => "it is down",
                Some(Link { carrier: false, .. }) => "it has no carrier",
                Some(_) => "the kernel has not heard of its carrier, or its bridge does not forward from it",
            };
            let ms = patience.as_millis();
            return Err(format!(
                "`{late}` does not send {ms} ms after it was set up: {why}; is the machine overloaded, or does \
                 something else configure new interfaces (NetworkManager, systemd-networkd)?"
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs lines of `ip` commands in this process's namespace.
pub(crate) fn ip(lines: &str) -> Result<(), String> {
    let missing = |e: io::Error| format!("ip (Debian package iproute2): {e}");
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    let written = child.stdin.take().map(|mut i| i.write_all(lines.as_bytes()));
    let done = child.wait_with_output().map_err(missing)?;
    match written {
        Some(Ok(())) if done.status.success() => Ok(()),
        _ => Err(format!("ip: {}; of the lines\n{lines}", String::from_utf8_lossy(&done.stderr).trim())),
    }
}

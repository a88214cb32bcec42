//! The network namespace of this process, and the commands that set it up.

use std::io::{self, Write};
use std::process::{Command, Stdio};

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
/// connections, and buffers that do not become the bottleneck.
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
    ] {
        let path = format!("/proc/sys/net/{path}");
        // A kernel built without IPv6 has no such path, and no chatter either.
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, value).map_err(|e| io::Error::new(e.kind(), format!("{path}: {e}")))?;
        }
    }
    ip("link set dev lo up\n").map_err(io::Error::other)
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

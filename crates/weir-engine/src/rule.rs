//! The rule that hands what leaves by an interface to a queue, by iptables and ip6tables.
//!
//! `-t mangle -A POSTROUTING -o IF -j NFQUEUE --queue-num N --queue-bypass`: the last stop of what the
//! kernel forwards and of what it sends itself. With `--queue-bypass` packets pass by themselves
//! where no process has the queue, so the rule may stay when the process dies.

use std::io;
use std::ops::Range;
use std::process::{Command, Output, Stdio};

/// Families, each with the command that keeps its rules.
const COMMANDS: [&str; 2] = ["iptables", "ip6tables"];

/// How many seconds iptables may wait for others that change rules: less than who asks for it waits.
const WAIT_S: &str = "8";

/// The numbers of Weir's own queues: a rule that leads to one of them is Weir's.
pub const QUEUES: Range<u16> = 22_000..23_000;

/// Hands over what leaves by `interface` to `queue`, one of [`QUEUES`]. A rule that is there already
/// stays. One that leads to another of them goes: an earlier device of that name had it. True if there was none.
///
/// # Errors
/// No iptables, no privilege, or a kernel without NFQUEUE.
pub fn add(interface: &str, queue: u16) -> io::Result<bool> {
    if interface.ends_with('+') {
        let what = format!("interface {interface}: iptables takes `+` at the end for any name: rename it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut new = true;
    for command in COMMANDS {
        let there = queues(command, interface)?;
        new &= there.is_empty();
        for other in there.iter().filter(|&&other| other != queue) {
            run(command, "-D", interface, *other)?;
        }
        if !there.contains(&queue) {
            run(command, "-A", interface, queue)?;
        }
    }
    Ok(new)
}

/// Takes the rules that lead from `interface` to `queue` away, and no others.
///
/// # Errors
/// As [`add`]'s.
pub(crate) fn remove_from(interface: &str, queue: u16) -> io::Result<()> {
    // Each of them, although one fails; and none that somebody has taken away already.
    let gone = COMMANDS.map(|command| match queues(command, interface)?.contains(&queue) {
        true => run(command, "-D", interface, queue),
        false => Ok(()),
    });
    gone.into_iter().collect()
}

/// Takes Weir's rules for an interface away, and no others: how many there were.
///
/// # Errors
/// As [`add`]'s.
pub fn remove(interface: &str) -> io::Result<usize> {
    let mut removed = 0;
    for command in COMMANDS {
        for queue in queues(command, interface)? {
            run(command, "-D", interface, queue)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// What iptables says where the kernel has no such table, and so no rule in it.
const NO_TABLE: [&str; 4] =
    ["does not exist", "Protocol not available", "Protocol not supported", "Address family not supported"];

/// Where Weir's rules for an interface lead. In a kernel without the table there are none.
fn queues(command: &str, interface: &str) -> io::Result<Vec<u16>> {
    let mut list = Command::new(command);
    list.args(["-w", WAIT_S, "-t", "mangle", "-S", "POSTROUTING"]).stdin(Stdio::null());
    let output = list.output().map_err(|e| missing(command, &e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if NO_TABLE.iter().any(|words| said.contains(words)) {
            return Ok(Vec::new());
        }
        return Err(refused(command, "to list its rules", &output));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let words = ["-A", "POSTROUTING", "-o", interface, "-j", "NFQUEUE", "--queue-num"];
    let of_line = |line: &str| {
        let mut line = line.split_whitespace();
        let ours = words.iter().all(|word| line.next() == Some(word));
        let queue = line.next()?.parse().ok().filter(|queue| QUEUES.contains(queue))?;
        (ours && line.next() == Some("--queue-bypass") && line.next().is_none()).then_some(queue)
    };
    Ok(text.lines().filter_map(of_line).collect())
}

fn arguments(command: &str, what: &str, interface: &str, queue: u16) -> Command {
    let mut run = Command::new(command);
    run.args(["-w", WAIT_S, "-t", "mangle", what, "POSTROUTING", "-o", interface]);
    run.args(["-j", "NFQUEUE", "--queue-num", &queue.to_string(), "--queue-bypass"]);
    run.stdin(Stdio::null());
    run
}

fn run(command: &str, what: &str, interface: &str, queue: u16) -> io::Result<()> {
    let output = arguments(command, what, interface, queue).output().map_err(|e| missing(command, &e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(command, &format!("the rule for {interface}"), &output))
}

/// What iptables did not do, in its last words, with what mends it.
fn refused(command: &str, what: &str, output: &Output) -> io::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let told = said.lines().rfind(|line| !line.starts_with('#') && !line.starts_with("Perhaps"));
    let told = told.unwrap_or("no reason given");
    let (kind, mend) = if said.contains("xtables lock") {
        (io::ErrorKind::ResourceBusy, "; another program changes rules: try again when it has ended")
    } else if !weir_sys::is_root() {
        (io::ErrorKind::PermissionDenied, "; `sudo weir` may")
    } else {
        (io::ErrorKind::Other, "")
    };
    io::Error::new(kind, format!("{command} refuses {what}: {told}{mend}"))
}

fn missing(command: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{command}: {e}; `attach nfqueue` needs it: `apt-get install iptables`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> String {
        let all = COMMANDS.map(|command| {
            let output = Command::new(command).args(["-t", "mangle", "-S", "POSTROUTING"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        all.concat()
    }

    #[test]
    fn a_rule_is_added_once_and_taken_away_alone() {
        if !weir_sys::is_root() || Command::new("iptables").arg("-V").output().is_err() {
            eprintln!("SKIPPED: needs root, and iptables");
            return;
        }
        let run = || {
            weir_sys::enter_new_network().unwrap();
            let before = rules();
            // A stranger's queue, and another interface's.
            run("iptables", "-A", "eth9", 5).unwrap();
            add("eth8", 22_005).unwrap();
            for queue in [22_005, 22_005, 22_006] {
                add("eth9", queue).unwrap();
                let ours = format!("-o eth9 -j NFQUEUE --queue-num {queue} --queue-bypass");
                assert_eq!(rules().matches(&ours).count(), 2, "{}", rules());
                assert_eq!(rules().matches("-o eth9 -j NFQUEUE").count(), 3, "{}", rules());
            }
            assert_eq!((remove("eth9").unwrap(), remove("eth9").unwrap()), (2, 0));
            assert!(rules().contains("-o eth9 -j NFQUEUE --queue-num 5 ") && rules().contains("-o eth8"));
            run("iptables", "-D", "eth9", 5).unwrap();
            assert_eq!(remove("eth8").unwrap(), 2);
            assert_eq!(rules(), before);
            assert!(add("eth+", 22_005).unwrap_err().to_string().contains("rename it"));
            let refused = add("a-name-that-is-too-long-for-linux", 5).unwrap_err().to_string();
            assert!(refused.contains("iptables refuses the rule"), "{refused}");
        };
        std::thread::spawn(run).join().unwrap();
    }
}

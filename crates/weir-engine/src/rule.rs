//! The rule that hands what leaves by an interface to a queue, by iptables and ip6tables.
//!
//! `-t mangle -A POSTROUTING -o IF -j NFQUEUE --queue-num N --queue-bypass`: the last stop of what the
//! kernel forwards and of what it sends itself. With `--queue-bypass` packets pass by themselves
//! where no process has the queue, so the rule may stay when the process dies.

use std::io;
use std::process::{Command, Stdio};

/// Families, each with the command that keeps its rules.
const COMMANDS: [&str; 2] = ["iptables", "ip6tables"];

/// Hands over what leaves by `interface` to `queue`. A rule that is there already stays.
///
/// # Errors
/// No iptables, no privilege, or a kernel without NFQUEUE.
pub fn add(interface: &str, queue: u16) -> io::Result<()> {
    for command in COMMANDS {
        if !is_there(command, interface, queue)? {
            run(command, "-A", interface, queue)?;
        }
    }
    Ok(())
}

/// Takes the rule away, as often as it is there, and no other.
///
/// # Errors
/// As [`add`]'s.
pub fn remove(interface: &str, queue: u16) -> io::Result<()> {
    for command in COMMANDS {
        while is_there(command, interface, queue)? {
            run(command, "-D", interface, queue)?;
        }
    }
    Ok(())
}

fn arguments(command: &str, what: &str, interface: &str, queue: u16) -> Command {
    let mut run = Command::new(command);
    run.args(["-w", "-t", "mangle", what, "POSTROUTING", "-o", interface]);
    run.args(["-j", "NFQUEUE", "--queue-num", &queue.to_string(), "--queue-bypass"]);
    run.stdin(Stdio::null());
    run
}

fn is_there(command: &str, interface: &str, queue: u16) -> io::Result<bool> {
    let mut run = arguments(command, "-C", interface, queue);
    let status = run.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.map(|status| status.success()).map_err(|e| missing(command, &e))
}

fn run(command: &str, what: &str, interface: &str, queue: u16) -> io::Result<()> {
    let output = arguments(command, what, interface, queue).output().map_err(|e| missing(command, &e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("no reason given");
    let kind = if weir_sys::is_root() { io::ErrorKind::Other } else { io::ErrorKind::PermissionDenied };
    Err(io::Error::new(kind, format!("{command} refuses the rule for {interface}: {said}")))
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
        if !weir_sys::is_root() || arguments("iptables", "-C", "lo", 1).output().is_err() {
            eprintln!("SKIPPED: needs root, and iptables");
            return;
        }
        let run = || {
            weir_sys::enter_new_network().unwrap();
            let before = rules();
            add("eth9", 5).unwrap();
            add("eth9", 5).unwrap();
            add("eth9", 6).unwrap();
            assert_eq!(rules().matches("--queue-num 5 --queue-bypass").count(), 2, "{}", rules());
            remove("eth9", 5).unwrap();
            remove("eth9", 5).unwrap();
            assert!(!rules().contains("--queue-num 5") && rules().contains("--queue-num 6"));
            remove("eth9", 6).unwrap();
            assert_eq!(rules(), before);
            let refused = add("a-name-that-is-too-long-for-linux", 5).unwrap_err().to_string();
            assert!(refused.contains("iptables refuses the rule"), "{refused}");
        };
        std::thread::spawn(run).join().unwrap();
    }
}

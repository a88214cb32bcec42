//! How soon the system runs a thread that must not wait.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in the standard library")]

use crate::check;
use std::fmt;
use std::io;
use std::str::FromStr;

/// The real-time priority that a thread asks for, of 1 to 99. Threads of the kernel that handle
/// interrupts have 50.
const FIFO: libc::c_int = 10;
/// The nicest that a thread can be to itself.
const NICE: libc::c_int = -20;

/// What a thread that must not wait asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Priority {
    /// `SCHED_FIFO` 10: it runs before all ordinary threads of the machine.
    #[default]
    Fifo,
    /// `nice` -20, for the thread and for its session (autogroup).
    Nice,
    /// What it has.
    None,
}

impl FromStr for Priority {
    type Err = String;
    fn from_str(word: &str) -> Result<Priority, String> {
        match word {
            "fifo" => Ok(Priority::Fifo),
            "nice" => Ok(Priority::Nice),
            "none" => Ok(Priority::None),
            _ => Err("write `fifo`, `nice` or `none`".into()),
        }
    }
}

/// What a thread got, and why it is not what it asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// What it has now.
    pub priority: Priority,
    /// What the system refused, with the reason.
    pub refused: Option<String>,
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.priority {
            Priority::Fifo => write!(f, "SCHED_FIFO {FIFO}")?,
            Priority::Nice => write!(f, "nice {NICE}")?,
            Priority::None => f.write_str("no priority")?,
        }
        self.refused.as_ref().map_or(Ok(()), |refused| write!(f, " ({refused})"))
    }
}

/// Gives the calling thread the priority `wanted`, or the next lower one that the system allows.
/// Threads that it starts later do not inherit `SCHED_FIFO`; they inherit `nice`.
pub fn take_priority(wanted: Priority) -> Granted {
    let mut refused = Vec::new();
    let mut attempt = |what: String, done: io::Result<()>| match done {
        Ok(()) => true,
        Err(e) => {
            refused.push(format!("{what}: {e}"));
            false
        }
    };
    let priority = match wanted {
        Priority::Fifo if attempt(format!("SCHED_FIFO {FIFO}"), be_fifo()) => Priority::Fifo,
        Priority::Fifo | Priority::Nice if attempt(format!("nice {NICE}"), be_nice()) => Priority::Nice,
        _ => Priority::None,
    };
    Granted { priority, refused: (!refused.is_empty()).then(|| refused.join("; ")) }
}

fn be_fifo() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: FIFO };
    // SAFETY: `parameters` is readable and lives until after the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) })
        .map(|_| ())
}

/// Has the calling thread run only where nobody else of its session wants to (`SCHED_IDLE`).
///
/// # Errors
/// What the system says.
pub fn be_idle() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameters` is readable and lives until after the call; 0 is the calling thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) }).map(|_| ())
}

/// `nice` counts inside a session only where the machine schedules by session (autogroup). So the
/// process gets a session of its own, and that session the same precedence. With a terminal it
/// keeps the session that it has, or ^C would not reach it.
fn be_nice() -> io::Result<()> {
    // SAFETY: setpriority takes numbers and touches no memory; 0 is the calling thread.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) })?;
    if std::fs::File::open("/dev/tty").is_err() {
        // SAFETY: setsid takes nothing and touches no memory. It fails for a group leader: fine.
        let _ = unsafe { libc::setsid() };
    }
    // A kernel without autogroup has no such file, and needs none.
    let _ = std::fs::write("/proc/self/autogroup", NICE.to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy and `nice` of the calling thread, as the system tells them.
    fn mine() -> (u32, i32) {
        let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        // Fields 41 (policy) and 19 (nice) of proc(5); the first here is field 3.
        (fields[41 - 3].parse().unwrap(), fields[19 - 3].parse().unwrap())
    }

    fn on_a_thread<T: Send + 'static>(act: fn() -> T) -> T {
        std::thread::spawn(act).join().unwrap()
    }

    #[test]
    fn an_idle_thread_says_so() {
        let (policy, _) = on_a_thread(|| {
            be_idle().unwrap();
            mine()
        });
        assert_eq!(policy, libc::SCHED_IDLE as u32);
    }

    #[test]
    fn a_thread_gets_what_it_is_told_to_have() {
        let (granted, policy, child) = on_a_thread(|| {
            let granted = take_priority(Priority::Fifo);
            (granted, mine(), on_a_thread(mine))
        });
        match granted.priority {
            Priority::Fifo => {
                assert_eq!((policy.0, child.0), (libc::SCHED_FIFO as u32, libc::SCHED_OTHER as u32));
                assert_eq!(granted.to_string(), "SCHED_FIFO 10");
            }
            lower => {
                eprintln!("SKIPPED: SCHED_FIFO needs CAP_SYS_NICE");
                assert!(granted.to_string().contains("(SCHED_FIFO 10: "), "{granted} {lower:?}");
            }
        }
        let (none, policy) = on_a_thread(|| (take_priority(Priority::None), mine()));
        assert_eq!((none.to_string().as_str(), policy.0), ("no priority", libc::SCHED_OTHER as u32));
    }

    #[test]
    fn words_are_read_and_others_refused() {
        let words = ["fifo", "nice", "none"].map(str::parse::<Priority>).map(Result::unwrap);
        assert_eq!(words, [Priority::Fifo, Priority::Nice, Priority::None]);
        assert!("high".parse::<Priority>().unwrap_err().contains("`fifo`"));
    }
}

//! Lines on standard error that nobody has to wait for.
#![allow(unsafe_code, reason = "a system call without a safe wrapper in the standard library")]

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines that nobody took, of those since the last one that was.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes `weir: ` and a line to standard error, or leaves it out if that would block: who reads
/// may have stopped, and no data plane waits for a reader. The next line tells how many are missing.
pub fn say(line: &str) {
    // Without the lock of the standard library: who holds it may wait.
    write_to(std::io::stderr().as_fd(), &LOST, line);
}

fn write_to(to: BorrowedFd<'_>, lost: &AtomicU64, line: &str) {
    // A pipe that has room has room for 4,096 bytes.
    const LONGEST: usize = 3_000;
    if !has_room(to) {
        lost.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let missing = match lost.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        lines => format!("weir: {lines} lines are missing here, because nobody read them\n"),
    };
    let cut = line.char_indices().map(|(at, _)| at).take_while(|&at| at < LONGEST).last();
    let line = if line.len() > LONGEST { &line[..cut.unwrap_or(0)] } else { line };
    let Ok(file) = to.try_clone_to_owned() else { return };
    // One write, so that no other line comes between. There is nobody to tell that it failed.
    let _ = std::fs::File::from(file).write_all(format!("{missing}weir: {line}\n").as_bytes());
}

fn has_room(to: BorrowedFd<'_>) -> bool {
    let mut asked = libc::pollfd { fd: to.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `asked` is one valid pollfd, and outlives the call, which does not wait.
    let answer = unsafe { libc::poll(&raw mut asked, 1, 0) };
    answer == 1 && asked.revents & libc::POLLOUT != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_reader_that_has_stopped_keeps_nobody_waiting() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (lost, line) = (AtomicU64::new(0), "x".repeat(100));
        // A pipe takes 64 KB.
        for _ in 0..2_000 {
            write_to(writer.as_fd(), &lost, &line);
        }
        let missing = lost.load(Ordering::Relaxed);
        assert!(missing > 1_000, "{missing}");
        let mut room = vec![0; 1 << 16];
        let read = reader.read(&mut room).unwrap();
        write_to(writer.as_fd(), &lost, &"ä".repeat(5_000));
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let text = String::from_utf8_lossy(&room[..read]).into_owned() + &rest;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len() as u64, 2_000 - missing + 2);
        let told = format!("weir: {missing} lines are missing here, because nobody read them");
        assert_eq!(lines[lines.len() - 2], told);
        assert!(lines[lines.len() - 1].len() <= 3_000 + 6);
    }
}

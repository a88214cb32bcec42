//! Recordings.

use std::io::Cursor;
use weir_core::packet::dissect;
use weir_core::units::Instant;
use weir_io::trace::{Content, Trace, TraceError};

/// Bytes that are read as a recording beginning with `magic`, so that no input is wasted on it.
fn with_magic(magic: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    let known = magic.len().min(whole.len());
    if known < magic.len() || whole[..known] != *magic {
        whole.splice(..0, magic.iter().copied());
    }
    whole
}

/// Classic captures: both byte orders, microseconds and nanoseconds.
pub fn pcap(bytes: &[u8]) {
    const KINDS: [[u8; 4]; 4] = [
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
    ];
    let known = bytes.get(..4).is_some_and(|start| KINDS.iter().any(|kind| kind == start));
    match known {
        true => read(bytes.to_vec()),
        false => read(with_magic(&KINDS[bytes.len() % 4], bytes)),
    }
}

/// Captures in blocks.
pub fn pcapng(bytes: &[u8]) {
    read(with_magic(&[0x0a, 0x0d, 0x0d, 0x0a], bytes));
}

/// Traces as text.
pub fn csv(bytes: &[u8]) {
    match bytes.starts_with(b"rate") {
        true => read(bytes.to_vec()),
        false => read(with_magic(b"rate 1000000\n", bytes)),
    }
}

/// Every record is in order of time and no longer than its packet; an error says where.
fn read(bytes: Vec<u8>) {
    let size = bytes.len();
    let mut trace = match Trace::read(Cursor::new(bytes)) {
        Ok(trace) => trace,
        Err(error) => return located(&error),
    };
    let mut last = Instant::ZERO;
    let mut records = 0;
    loop {
        match trace.next() {
            Ok(Some(record)) => {
                assert!(record.at >= last, "record {records} goes back in time");
                last = record.at;
                match record.content {
                    Content::Frame(frame) => {
                        assert!(frame.len() <= size, "record {records} has bytes that the file has not");
                        let _ = dissect(frame);
                    }
                    Content::Class { dscp, .. } => assert!(dscp.is_none_or(|d| d < 64)),
                }
                records += 1;
                assert!(records <= size, "more records than bytes");
            }
            Ok(None) => return,
            Err(error) => return located(&error),
        }
    }
}

fn located(error: &TraceError) {
    if let TraceError::Malformed { at, what } = error {
        assert!(at.contains(|c: char| c.is_ascii_digit()), "no place in `{error}`");
        assert!(!what.is_empty(), "no word about what is wrong");
        assert!(!error.to_string().contains(|c: char| c.is_control()), "control characters in {error:?}");
    }
}

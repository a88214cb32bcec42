//! Recorded packets: pcap, pcapng, and Weir's own CSV, plain or compressed with gzip.
//!
//! One reader for all: it looks at the first bytes, streams, and keeps one packet in memory.
//! A file is a stranger's: damaged ones end in an error that says where, never in a panic, and
//! no length in it is believed before it is checked.

mod capture;
mod csv;
#[cfg(test)]
mod tests;

use flate2::read::GzDecoder;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use weir_core::units::{Instant, Rate};

/// One recorded packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When it arrived. Captures count from their first packet; CSV times stand as written.
    pub at: Instant,
    /// Length in bytes, layer-2 header included, even where less was captured.
    pub len_bytes: u32,
    /// What is known of it.
    pub content: Content<'a>,
}

/// What a recording says of a packet besides time and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content<'a> {
    /// The captured bytes, an Ethernet frame from its first byte on, perhaps cut short.
    Frame(&'a [u8]),
    /// The class as the CSV names it, and the DSCP if it has that column.
    Class {
        /// A class's name, or its index from 1.
        class: &'a str,
        /// Differentiated services code point, 0 to 63.
        dscp: Option<u8>,
    },
}

/// Why a recording could not be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file could not be opened or read.
    Io(io::Error),
    /// The contents are wrong: where (line, or byte offset), and what was expected instead.
    Malformed {
        /// `line 7` or `byte 1234`.
        at: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(e) => write!(f, "{e}"),
            TraceError::Malformed { at, what } => write!(f, "{at}: {what}"),
        }
    }
}
impl std::error::Error for TraceError {}
impl From<io::Error> for TraceError {
    fn from(e: io::Error) -> Self {
        TraceError::Io(e)
    }
}

/// What a file that gzip has compressed begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

type Source = Box<dyn BufRead + Send>;

enum Format {
    Capture(capture::Capture),
    Csv(csv::Csv),
}

/// Whether a file that begins so is a capture, or compressed, as captures are.
pub fn is_capture(start: &[u8]) -> bool {
    start.starts_with(&GZIP) || kind(start).is_some()
}

fn kind(start: &[u8]) -> Option<capture::Kind> {
    start.get(..4).and_then(capture::Kind::of_magic)
}

/// A recording that is being read.
pub struct Trace {
    format: Format,
}

impl Trace {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::read(File::open(path)?)
    }

    /// Reads a recording from any source of bytes.
    pub fn read(source: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let mut source: Source = Box::new(BufReader::with_capacity(1 << 16, source));
        if source.fill_buf()?.starts_with(&GZIP) {
            source = Box::new(BufReader::with_capacity(1 << 16, GzDecoder::new(source)));
        }
        let start = source.fill_buf()?;
        if start.is_empty() {
            let what = "the file is empty: expected pcap, pcapng, or CSV that begins with `rate BPS`";
            return Err(TraceError::Malformed { at: "byte 0".into(), what: what.into() });
        }
        let format = match kind(start) {
            Some(kind) => Format::Capture(capture::Capture::new(source, kind)?),
            None => Format::Csv(csv::Csv::new(source)?),
        };
        Ok(Trace { format })
    }

    /// The rate of the wire that the CSV states; captures state none.
    pub fn rate(&self) -> Option<Rate> {
        match &self.format {
            Format::Capture(_) => None,
            Format::Csv(csv) => Some(csv.rate()),
        }
    }

    /// Packets whose time stood before that of the one before them: captures from several
    /// queues have such. They are given the time of the one before.
    pub fn set_right(&self) -> u64 {
        match &self.format {
            Format::Capture(capture) => capture.set_right(),
            Format::Csv(_) => 0,
        }
    }

    /// The next packet, or `None` at the end.
    #[allow(clippy::should_implement_trait, reason = "a record borrows from the reader: no Iterator can")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        match &mut self.format {
            Format::Capture(capture) => capture.next(),
            Format::Csv(csv) => csv.next(),
        }
    }
}

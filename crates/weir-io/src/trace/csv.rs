//! Weir's CSV: a line `rate BPS`, then `arrival_ns,class,size[,dscp]`, in order of arrival.

use super::{Content, Record, Source, TraceError};
use std::io::{BufRead, Read};
use weir_core::units::{Instant, Rate};

/// A line is never longer in a file that means to be read.
const LINE_BYTES: u64 = 1024;
/// The longest packet: what an IPv4 length field allows, with an Ethernet header and tags.
const LARGEST: u32 = 65_535 + 14 + 8;

pub(super) struct Csv {
    source: Source,
    line: String,
    number: u64,
    rate: Rate,
    last: Instant,
}

impl Csv {
    pub(super) fn new(source: Source) -> Result<Self, TraceError> {
        let mut csv = Csv { source, line: String::new(), number: 0, rate: Rate::ZERO, last: Instant::ZERO };
        let expected = "expected `rate BPS`, the wire's bits per second as a number, as in `rate 1500000`";
        if !csv.advance()? {
            return Err(csv.wrong(expected));
        }
        // Editors of some systems put a mark before all text.
        let line = csv.line.strip_prefix('\u{feff}').unwrap_or(&csv.line);
        let rate = line.strip_prefix("rate").map(str::trim).and_then(|r| r.parse::<u64>().ok());
        match rate {
            Some(bps) if bps > 0 => csv.rate = Rate::from_bps(bps),
            _ => return Err(csv.wrong(&format!("{expected}; found {:?}", shortened(&csv.line)))),
        }
        Ok(csv)
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    fn wrong(&self, what: &str) -> TraceError {
        TraceError::Malformed { at: format!("line {}", self.number.max(1)), what: what.into() }
    }

    /// Reads the next line that is not empty; false at the end.
    fn advance(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            self.number += 1;
            let mut bounded = Read::take(&mut self.source, LINE_BYTES);
            let count = match bounded.read_line(&mut self.line) {
                Ok(count) => count,
                Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(
                        self.wrong("not text: expected pcap, pcapng, or CSV that begins with `rate BPS`")
                    );
                }
                Err(e) => return Err(e.into()),
            };
            if count == 0 {
                return Ok(false);
            }
            if count as u64 == LINE_BYTES && !self.line.ends_with('\n') {
                return Err(self.wrong("a line of more than 1024 bytes: this is not Weir's CSV"));
            }
            let end = self.line.trim_end().len();
            self.line.truncate(end);
            if end > 0 {
                return Ok(true);
            }
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Record<'_>>, TraceError> {
        if !self.advance()? {
            return Ok(None);
        }
        let mut fields = self.line.split(',');
        let [at, class, size] = [(); 3].map(|()| fields.next().unwrap_or(""));
        let (dscp, rest) = (fields.next(), fields.next());
        if size.is_empty() || rest.is_some() {
            let found = shortened(&self.line);
            return Err(self.wrong(&format!(
                "expected `arrival_ns,class,size` or `arrival_ns,class,size,dscp`; found {found:?}"
            )));
        }
        let Ok(at) = at.parse::<u64>() else {
            return Err(self.wrong(&format!("arrival {:?} is not a count of nanoseconds", shortened(at))));
        };
        let at = Instant::from_nanos(at);
        if at < self.last {
            let what = format!(
                "arrival {} ns lies before the line above ({} ns): sort the file by time, as in `sort -t, -n`",
                at.as_nanos(),
                self.last.as_nanos()
            );
            return Err(self.wrong(&what));
        }
        if class.is_empty() {
            return Err(self.wrong("no class: expected its name, or its index from 1"));
        }
        let len_bytes = match size.parse::<u32>() {
            Ok(len) if (1..=LARGEST).contains(&len) => len,
            _ => {
                return Err(self.wrong(&format!(
                    "size {:?} is not a packet's length in bytes, 1 to {LARGEST}",
                    shortened(size)
                )));
            }
        };
        let dscp = match dscp.map(str::parse::<u8>) {
            None => None,
            Some(Ok(dscp)) if dscp < 64 => Some(dscp),
            Some(_) => return Err(self.wrong("the fourth column is a DSCP from 0 to 63")),
        };
        self.last = at;
        Ok(Some(Record { at, len_bytes, content: Content::Class { class, dscp } }))
    }
}

/// The first 60 characters, for an error message.
fn shortened(text: &str) -> &str {
    text.char_indices().nth(60).map_or(text, |(end, _)| &text[..end])
}

//! The audit: a line for each decision, chained, so that whoever noted the last chain sees any change before it.
//!
//! A line is one JSON object. Its last member, `chain`, is the SHA-256 of the chain of the line before and of
//! this line without it, in hexadecimal. The first line follows 64 zeros. So the last chain vouches for all
//! lines: who has once written it down elsewhere can tell whether anything before it was changed.

use crate::book::{Book, Command, Event, Name, Refusal, Request, Verdict};
use crate::{Nanos, SECOND};
use ring::digest::{SHA256, digest};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What stands before the chain of a line.
const CHAIN: &str = ",\"chain\":\"";
/// Hexadecimal digits of a chain.
const DIGITS: usize = 64;

/// Where the audit stands: how many lines there are, and the chain of the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The number of the last line, from 1. 0 before the first.
    pub line: u64,
    /// Its chain.
    pub digest: String,
}

/// One thing that happened.
#[derive(Serialize)]
struct Line<'a> {
    line: u64,
    /// Milliseconds since 1970, by the clock that people set. Nothing is decided by it.
    time_ms: u64,
    who: &'a str,
    #[serde(flatten)]
    what: What<'a>,
    /// What is counted on each resource of the request after it, in bit/s.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sum_bps: BTreeMap<&'a str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum What<'a> {
    /// A broker began to serve.
    Began { domain: &'a str },
    /// The operator set what the domain has.
    Provided { resource: &'a str, capacity_bps: u64 },
    /// A request was granted.
    Granted { asked: Asked<'a>, granted_bps: u64, granted_ms: u32 },
    /// A request was refused.
    Refused { asked: Asked<'a>, why: String },
    /// In one second so many more refusals that changed nothing than are written.
    LeftOut { refusals: u64 },
    /// A neighbour said what it leases to this domain now.
    Leased { resource: &'a str, rate_bps: u64 },
    /// An edge was told to come down.
    CalledBack { lease: &'a str, version: u64, rate_bps: u64 },
    /// A lease ended.
    Ended { lease: &'a str, freed_bps: u64 },
    /// Whoever asked for a lease was told how it stands, or could not be.
    Notified { lease: &'a str, status: &'a str, tries: u32, taken: bool },
}

/// What an edge asked for.
#[derive(Serialize)]
struct Asked<'a> {
    lease: &'a str,
    version: u64,
    path: &'a [Name],
    rate_bps: u64,
    min_bps: u64,
    ttl_ms: u32,
}

impl<'a> Asked<'a> {
    fn of(request: &'a Request) -> Self {
        Asked {
            lease: &request.lease,
            version: request.version,
            path: &request.path,
            rate_bps: request.rate,
            min_bps: request.min,
            ttl_ms: request.ttl_ms,
        }
    }
}

impl Default for Chain {
    fn default() -> Self {
        Chain { line: 0, digest: "0".repeat(DIGITS) }
    }
}

impl Chain {
    /// Where the audit stands after `last`, a line of it.
    ///
    /// # Errors
    /// It is no line of an audit.
    pub fn after(last: &str) -> Result<Self, String> {
        let (_, digest) = parts(last)?;
        Ok(Chain { line: number(last)?, digest: digest.to_owned() })
    }

    /// Adds the lines of one command to `text`: what `who` wanted, and what came of it.
    pub(crate) fn tell(
        &mut self,
        text: &mut String,
        time_ms: u64,
        who: &str,
        command: &Command,
        events: &[(usize, Event)],
        book: &Book,
    ) {
        // Who waited for a neighbour is answered by what another one has said.
        let waited: Vec<Option<Request>> = events
            .iter()
            .map(|(_, event)| match (event, command) {
                (Event::Answer { lease, .. }, Command::Ask(request)) if request.lease == *lease => None,
                (Event::Answer { lease, .. }, _) => book.wish(lease),
                _ => None,
            })
            .collect();
        let mut add = |what, sum_bps| self.add(text, Line { line: 0, time_ms, who, what, sum_bps });
        match command {
            Command::Begin => add(What::Began { domain: book.domain() }, BTreeMap::new()),
            Command::Provide { resource, capacity } => {
                add(
                    What::Provided { resource, capacity_bps: *capacity },
                    sums(book, std::slice::from_ref(resource)),
                );
            }
            Command::Declare { resource, .. } => {
                let capacity_bps = book.on(resource).map_or(0, |shown| shown.capacity);
                let sums = sums(book, std::slice::from_ref(resource));
                add(What::Provided { resource, capacity_bps }, sums);
            }
            Command::Leased { resource, rate, .. } => {
                let sums = sums(book, std::slice::from_ref(resource));
                add(What::Leased { resource, rate_bps: *rate }, sums);
            }
            Command::Notified { lease, status, tries, is_taken } => {
                add(What::Notified { lease, status, tries: *tries, taken: *is_taken }, BTreeMap::new());
            }
            // What a note says may name people. The audit names leases.
            Command::Ask(_) | Command::Tick | Command::Agree { .. } | Command::Note { .. } => {}
        }
        for ((_, event), waited) in events.iter().zip(&waited) {
            match event {
                Event::Answer { lease, verdict, .. } => {
                    let request = match (command, waited) {
                        (Command::Ask(request), _) if request.lease == *lease => request,
                        (_, Some(request)) => request,
                        (_, None) => continue,
                    };
                    let asked = Asked::of(request);
                    let what = match verdict {
                        Verdict::Granted { rate, ttl_ms } => {
                            What::Granted { asked, granted_bps: *rate, granted_ms: *ttl_ms }
                        }
                        Verdict::Refused(why) => What::Refused { asked, why: why.to_string() },
                    };
                    add(what, sums(book, &request.path));
                }
                Event::CallBack { lease, version, rate } => {
                    add(What::CalledBack { lease, version: *version, rate_bps: *rate }, BTreeMap::new());
                }
                Event::Ended { lease, freed } => {
                    add(What::Ended { lease, freed_bps: *freed }, BTreeMap::new());
                }
                Event::Want { .. } => {}
            }
        }
    }

    /// Adds the line of what was left out of `who` in one second.
    pub(crate) fn left_out(&mut self, text: &mut String, time_ms: u64, who: &str, refusals: u64) {
        let what = What::LeftOut { refusals };
        self.add(text, Line { line: 0, time_ms, who, what, sum_bps: BTreeMap::new() });
    }

    fn add(&mut self, text: &mut String, mut line: Line<'_>) {
        self.line += 1;
        line.line = self.line;
        let body = serde_json::to_string(&line).expect("names and numbers have a form in JSON");
        let body = body.strip_suffix('}').expect("an object ends so");
        self.digest = chained(&self.digest, body);
        text.push_str(body);
        text.push_str(CHAIN);
        text.push_str(&self.digest);
        text.push_str("\"}\n");
    }

    /// Goes on to `line`, which must be the next one. After [`Chain::default`] any first line will do whose number
    /// is above 1: those before it are no longer kept, and only its own chain is taken on trust.
    ///
    /// # Errors
    /// What does not fit, and at which line.
    pub fn follow(&mut self, line: &str) -> Result<(), String> {
        let (body, digest) = parts(line)?;
        let number = number(line)?;
        let trusted = self.line == 0 && number > 1;
        if !trusted && self.line.checked_add(1) != Some(number) {
            return Err(format!(
                "line {number} follows line {}: lines are missing or out of order",
                self.line
            ));
        }
        if !trusted && chained(&self.digest, body) != digest {
            return Err(format!(
                "line {number} is not the one that was written, or the line before it is not"
            ));
        }
        *self = Chain { line: number, digest: digest.to_owned() };
        Ok(())
    }
}

/// Refusals that change nothing, of one name in one second, that are written. The others are counted.
const REFUSALS: u64 = 10;

/// Keeps those who send what changes nothing from filling the audit: an older version, another wish by the same
/// version, what is not there.
#[derive(Debug, Default)]
pub(crate) struct Noise {
    began: Nanos,
    /// Who was refused in this second, and how often.
    refused: BTreeMap<Name, u64>,
}

impl Noise {
    /// Begins another second if this one is over. Says of whom how many were left out.
    pub fn ended(&mut self, now: Nanos) -> impl Iterator<Item = (Name, u64)> {
        // The clock of another broker may have begun later.
        let over = !(self.began..self.began.saturating_add(SECOND)).contains(&now);
        let ended = if over { std::mem::take(&mut self.refused) } else { BTreeMap::new() };
        self.began = if over { now } else { self.began };
        ended.into_iter().filter(|&(_, count)| count > REFUSALS).map(|(who, count)| (who, count - REFUSALS))
    }

    /// Whether what `who` has wanted and heard is written.
    pub fn is_written(&mut self, who: &Name, events: &[(usize, Event)]) -> bool {
        let [(_, Event::Answer { verdict: Verdict::Refused(why), .. })] = events else { return true };
        if matches!(why, Refusal::Full { .. } | Refusal::Neighbour { .. }) {
            return true;
        }
        let count = self.refused.entry(who.clone()).or_default();
        *count += 1;
        *count <= REFUSALS
    }
}

/// What is counted on each of these resources.
fn sums<'a>(book: &'a Book, names: &[Name]) -> BTreeMap<&'a str, u64> {
    names.iter().filter_map(|name| book.on(name)).map(|shown| (shown.resource, shown.taken)).collect()
}

/// The chain of a line whose text without its chain is `body`.
fn chained(before: &str, body: &str) -> String {
    let mut text = String::with_capacity(before.len() + body.len());
    text.push_str(before);
    text.push_str(body);
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A line without its chain, and the chain.
fn parts(line: &str) -> Result<(&str, &str), String> {
    let (body, rest) = line.rsplit_once(CHAIN).ok_or_else(|| format!("no line of an audit: {line}"))?;
    match rest.strip_suffix("\"}") {
        Some(digest) if digest.len() == DIGITS => Ok((body, digest)),
        _ => Err(format!("no line of an audit: {line}")),
    }
}

fn number(line: &str) -> Result<u64, String> {
    let digits = line.strip_prefix("{\"line\":").and_then(|rest| rest.split(',').next());
    digits.and_then(|n| n.parse().ok()).ok_or_else(|| format!("no line of an audit: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three lines: a broker began, a capacity, a refusal.
    fn lines() -> Vec<String> {
        let (mut book, mut chain, mut text) = (Book::new("a"), Chain::default(), String::new());
        let request = Request {
            lease: "e/1".into(),
            version: 1,
            path: vec!["wan:rt".into()],
            rate: 7,
            min: 7,
            ttl_ms: 5_000,
            domains: Vec::new(),
        };
        let provide = Command::Provide { resource: "wan:rt".into(), capacity: 5 };
        for command in [Command::Begin, provide, Command::Ask(request)] {
            let mut events = Vec::new();
            book.apply(0, &command, &mut events);
            let events: Vec<_> = events.into_iter().map(|event| (0, event)).collect();
            chain.tell(&mut text, 1_000, "e", &command, &events, &book);
        }
        assert_eq!(Chain::after(text.lines().next_back().expect("three")), Ok(chain));
        text.lines().map(str::to_owned).collect()
    }

    fn verify(lines: &[String]) -> Result<Chain, String> {
        let mut chain = Chain::default();
        lines.iter().try_for_each(|line| chain.follow(line)).map(|()| chain)
    }

    #[test]
    fn a_line_says_who_asked_what_what_came_of_it_and_what_is_taken() {
        let lines = lines();
        let line: serde_json::Value = serde_json::from_str(&lines[2]).expect("a line is JSON");
        assert_eq!(line["who"], "e");
        assert_eq!(line["refused"]["asked"]["rate_bps"], 7);
        assert_eq!(line["refused"]["why"], "wan:rt has 5 bit/s free for this lease");
        assert_eq!(line["sum_bps"]["wan:rt"], 0);
        assert_eq!(verify(&lines).expect("nothing was changed").line, 3);
    }

    #[test]
    fn what_is_changed_taken_away_added_or_put_elsewhere_is_found() {
        let good = lines();
        let changed = |at: usize, from: &str, to: &str| {
            let mut lines = good.clone();
            assert!(lines[at].contains(from), "{}", lines[at]);
            lines[at] = lines[at].replace(from, to);
            lines
        };
        for (lines, at) in [
            (changed(0, "\"a\"", "\"b\""), "line 1"),
            (changed(2, ":7,", ":8,"), "line 3"),
            (vec![good[0].clone(), good[2].clone()], "line 3"),
            (vec![good[0].clone(), good[0].clone()], "line 1"),
            (vec![good[0].clone(), good[2].clone(), good[1].clone()], "line 3"),
        ] {
            let why = verify(&lines).expect_err("it was changed");
            assert!(why.starts_with(at), "{why}");
        }
        assert!(verify(&["{}".to_owned()]).is_err());
        // What is no longer kept may be missing at the front.
        assert_eq!(verify(&good[1..]).expect("the rest is whole").line, 3);
    }
}

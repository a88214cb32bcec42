//! Objects, of which messages of COPS consist, and what is wrong with bytes that are none.

use super::{INCOMPLETE, MALFORMED};
use std::fmt;

/// An object's C-Num and C-Type.
pub(super) type Kind = (u8, u8);

/// An error or a reason, with what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// By the tables of the RFC, section 2.2.5 or 2.2.8.
    pub code: u16,
    /// The C-Num and C-Type of an unknown object, else 0.
    pub sub: u16,
}

/// What is wrong with some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What the other side is to hear.
    pub code: Code,
    /// Where in the message.
    pub at: usize,
    /// What stands there, and what was expected.
    pub what: String,
    /// The handle, if it was read before.
    pub handle: Option<u32>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COPS, byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    pub(super) fn new(code: u16, at: usize, what: impl Into<String>) -> Self {
        Fault { code: Code { code, sub: 0 }, at, what: what.into(), handle: None }
    }

    pub(super) fn malformed(at: usize, what: impl Into<String>) -> Self {
        Self::new(MALFORMED, at, what)
    }

    pub(super) fn incomplete(at: usize, what: &str) -> Self {
        Self::new(INCOMPLETE, at, format!("field `{what}` is missing"))
    }
}

/// One object, or one field of the client-type: both have the same form.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub kind: Kind,
    pub data: &'a [u8],
    /// Where its data stand in the message.
    pub at: usize,
}

impl Object<'_> {
    /// Its data, if there are just so many.
    pub fn exactly<const N: usize>(&self, what: &str) -> Result<[u8; N], Fault> {
        let told = || format!("{what} of {} bytes: expected {N}", self.data.len());
        self.data.try_into().map_err(|_| Fault::malformed(self.at, told()))
    }

    /// Two numbers of 16 bits.
    pub fn pair(&self, what: &str) -> Result<(u16, u16), Fault> {
        let [a, b, c, d] = self.exactly(what)?;
        Ok((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    pub fn code(&self, what: &str) -> Result<Code, Fault> {
        self.pair(what).map(|(code, sub)| Code { code, sub })
    }
}

/// Objects one after the other.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a> {
    rest: &'a [u8],
    pub at: usize,
}

impl<'a> Objects<'a> {
    /// Those in `rest`, which stand at `at` of the message.
    pub fn new(rest: &'a [u8], at: usize) -> Self {
        Objects { rest, at }
    }

    pub fn next(&mut self) -> Result<Option<Object<'a>>, Fault> {
        let (left, at) = (self.rest.len(), self.at);
        if left == 0 {
            return Ok(None);
        }
        let Some(&[a, b, num, kind]) = self.rest.first_chunk::<4>() else {
            return Err(Fault::malformed(at, format!("{left} bytes are left: expected an object")));
        };
        let length = usize::from(u16::from_be_bytes([a, b]));
        if length < 4 {
            return Err(Fault::malformed(at, format!("an object of {length} bytes: expected at least 4")));
        }
        let padded = length.next_multiple_of(4);
        if padded > left {
            return Err(Fault::malformed(at, format!("an object of {length} bytes: {left} are left")));
        }
        let data = &self.rest[4..length];
        (self.rest, self.at) = (&self.rest[padded..], at + padded);
        Ok(Some(Object { kind: (num, kind), data, at: at + 4 }))
    }
}

/// Adds an object whose data `write` adds.
pub(super) fn object(out: &mut Vec<u8>, (num, sort): Kind, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, 0, num, sort]);
    write(out);
    let length = u16::try_from(out.len() - start).expect("what is written here is far below 64 KiB");
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
    out.resize(start + usize::from(length).next_multiple_of(4), 0);
}

//! What the client-type of leases says within the objects of COPS: named fields.
//!
//! A field has the form of an object: its length, its number, its sort (1 text, 2 a number of 64 bits), its data. Each
//! comes once, but for the resources of a path. Their order is free.

use super::object::{Fault, Objects, object};
use crate::Rate;
use crate::book::{Fault as Wrong, MAX_PATH, Name, Refusal, Request, Verdict, is_name};

const TEXT: u8 = 1;
const NUMBER: u8 = 2;

/// The fields, each at its number less one. In front of those that are numbers stand those that are texts.
const NAMES: [&str; 9] =
    ["lease", "resource", "token", "version", "rate", "least rate", "time", "why", "amount"];
const LEASE: u8 = 1;
const RESOURCE: u8 = 2;
const TOKEN: u8 = 3;
const VERSION: u8 = 4;
const RATE: u8 = 5;
const LEAST: u8 = 6;
const TIME: u8 = 7;
const WHY: u8 = 8;
const AMOUNT: u8 = 9;

/// Where these stand in [`WRONGS`], counted from 1, is the amount of a refusal of what is no request.
const WRONGS: [Wrong; 7] =
    [Wrong::Lease, Wrong::Version, Wrong::Path, Wrong::Rate, Wrong::Min, Wrong::Ttl, Wrong::Domains];

/// What a decision says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The answer to a version of a lease.
    Answer {
        /// The lease.
        lease: Name,
        /// The version.
        version: u64,
        /// Granted: install. Refused: remove.
        verdict: Verdict,
    },
    /// The lease is to come down to `rate`: install, without a question.
    CalledBack {
        /// The lease.
        lease: Name,
        /// The newest version decided before.
        version: u64,
        /// In bit/s.
        rate: Rate,
    },
    /// The lease has ended: remove, without a question.
    Ended {
        /// The lease.
        lease: Name,
    },
}

impl Decided {
    pub(super) fn installs(&self) -> bool {
        match self {
            Decided::Answer { verdict, .. } => matches!(verdict, Verdict::Granted { .. }),
            Decided::CalledBack { .. } => true,
            Decided::Ended { .. } => false,
        }
    }
}

/// The fields of one object.
#[derive(Default)]
struct Fields {
    texts: [Option<Name>; 3],
    numbers: [Option<u64>; 6],
    path: Vec<Name>,
    at: usize,
}

impl Fields {
    fn read(bytes: &[u8], at: usize) -> Result<Self, Fault> {
        let mut fields = Fields { at, ..Fields::default() };
        let mut objects = Objects::new(bytes, at);
        while let Some(field) = objects.next()? {
            let (number, sort) = field.kind;
            let at = field.at;
            let twice = |name: &str| Fault::malformed(at - 4, format!("field `{name}` is there twice"));
            match (number, sort) {
                (LEASE..=TOKEN, TEXT) => {
                    let name = NAMES[usize::from(number) - 1];
                    let text = std::str::from_utf8(field.data).ok().filter(|text| is_name(text));
                    let text = text.ok_or_else(|| {
                        let what = format!("field `{name}`: expected 1 to 64 printable ASCII characters");
                        Fault::malformed(at, what)
                    })?;
                    let known = &mut fields.texts[usize::from(number) - 1];
                    if number == RESOURCE && fields.path.len() == MAX_PATH {
                        return Err(Fault::malformed(at, format!("expected at most {MAX_PATH} resources")));
                    } else if number == RESOURCE {
                        fields.path.push(text.into());
                    } else if known.replace(text.into()).is_some() {
                        return Err(twice(name));
                    }
                }
                (VERSION..=AMOUNT, NUMBER) => {
                    let name = NAMES[usize::from(number) - 1];
                    let value = u64::from_be_bytes(field.exactly(&format!("field `{name}`"))?);
                    if fields.numbers[usize::from(number - VERSION)].replace(value).is_some() {
                        return Err(twice(name));
                    }
                }
                _ => {
                    let what = format!("field {number} of sort {sort} is not known");
                    return Err(Fault::malformed(at - 4, what));
                }
            }
        }
        Ok(fields)
    }

    fn text(&mut self, field: u8) -> Result<Name, Fault> {
        let at = usize::from(field) - 1;
        self.texts[at].take().ok_or_else(|| Fault::incomplete(self.at, NAMES[at]))
    }

    fn number(&self, field: u8) -> Result<u64, Fault> {
        let missing = || Fault::incomplete(self.at, NAMES[usize::from(field) - 1]);
        self.numbers[usize::from(field - VERSION)].ok_or_else(missing)
    }

    fn resource(&mut self) -> Result<Name, Fault> {
        self.path.pop().ok_or_else(|| Fault::incomplete(self.at, NAMES[usize::from(RESOURCE) - 1]))
    }

    fn time(&self) -> Result<u32, Fault> {
        let time = self.number(TIME)?;
        let long = |_| Fault::malformed(self.at, format!("field `time` is {time} ms: expected 32 bits"));
        u32::try_from(time).map_err(long)
    }

    fn refusal(&mut self) -> Result<Refusal, Fault> {
        Ok(match self.number(WHY)? {
            1 => Refusal::Full { resource: self.resource()?, free: self.number(AMOUNT)? },
            2 => Refusal::Unknown { resource: self.resource()? },
            3 => Refusal::Stale { newest: self.number(AMOUNT)? },
            4 => Refusal::Differs,
            5 => {
                let limit = self.number(AMOUNT)?;
                let long =
                    |_| Fault::malformed(self.at, format!("field `amount` is {limit}: expected 32 bits"));
                Refusal::TooMany { limit: u32::try_from(limit).map_err(long)? }
            }
            6 => Refusal::Loop,
            7 => Refusal::Neighbour { resource: self.resource()? },
            8 => {
                let amount = self.number(AMOUNT)?;
                let field = usize::try_from(amount).ok().and_then(|n| WRONGS.get(n.checked_sub(1)?));
                let told =
                    || Fault::malformed(self.at, format!("field `amount` is {amount}: expected 1 to 7"));
                Refusal::Bad { field: *field.ok_or_else(told)? }
            }
            other => {
                return Err(Fault::malformed(self.at, format!("field `why` is {other}: expected 1 to 8")));
            }
        })
    }
}

/// The wish in the data of an object, which stand at `at`.
pub(super) fn read_wish(bytes: &[u8], at: usize) -> Result<Request, Fault> {
    let mut fields = Fields::read(bytes, at)?;
    Ok(Request {
        lease: fields.text(LEASE)?,
        version: fields.number(VERSION)?,
        rate: fields.number(RATE)?,
        min: fields.number(LEAST)?,
        ttl_ms: fields.time()?,
        path: fields.path,
        domains: Vec::new(),
    })
}

pub(super) fn read_token(bytes: &[u8], at: usize) -> Result<Name, Fault> {
    Fields::read(bytes, at)?.text(TOKEN)
}

pub(super) fn read_decided(
    bytes: &[u8],
    at: usize,
    solicited: bool,
    install: bool,
) -> Result<Decided, Fault> {
    let mut fields = Fields::read(bytes, at)?;
    let lease = fields.text(LEASE)?;
    Ok(match (solicited, install) {
        (true, true) => {
            let (version, rate, ttl_ms) = (fields.number(VERSION)?, fields.number(RATE)?, fields.time()?);
            Decided::Answer { lease, version, verdict: Verdict::Granted { rate, ttl_ms } }
        }
        (true, false) => {
            let (version, why) = (fields.number(VERSION)?, fields.refusal()?);
            Decided::Answer { lease, version, verdict: Verdict::Refused(why) }
        }
        (false, true) => {
            Decided::CalledBack { lease, version: fields.number(VERSION)?, rate: fields.number(RATE)? }
        }
        (false, false) => Decided::Ended { lease },
    })
}

fn text(out: &mut Vec<u8>, field: u8, text: &str) {
    object(out, (field, TEXT), |out| out.extend(text.as_bytes()));
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    object(out, (field, NUMBER), |out| out.extend(value.to_be_bytes()));
}

pub(super) fn write_wish(out: &mut Vec<u8>, wish: &Request) {
    text(out, LEASE, &wish.lease);
    wish.path.iter().for_each(|resource| text(out, RESOURCE, resource));
    number(out, VERSION, wish.version);
    number(out, RATE, wish.rate);
    number(out, LEAST, wish.min);
    number(out, TIME, wish.ttl_ms.into());
}

pub(super) fn write_token(out: &mut Vec<u8>, token: &str) {
    text(out, TOKEN, token);
}

pub(super) fn write_decided(out: &mut Vec<u8>, decided: &Decided) {
    match decided {
        Decided::Answer { lease, version, verdict: Verdict::Granted { rate, ttl_ms } } => {
            text(out, LEASE, lease);
            number(out, VERSION, *version);
            number(out, RATE, *rate);
            number(out, TIME, (*ttl_ms).into());
        }
        Decided::Answer { lease, version, verdict: Verdict::Refused(why) } => {
            text(out, LEASE, lease);
            number(out, VERSION, *version);
            write_refusal(out, why);
        }
        Decided::CalledBack { lease, version, rate } => {
            text(out, LEASE, lease);
            number(out, VERSION, *version);
            number(out, RATE, *rate);
        }
        Decided::Ended { lease } => text(out, LEASE, lease),
    }
}

fn write_refusal(out: &mut Vec<u8>, why: &Refusal) {
    let (code, resource, amount) = match why {
        Refusal::Full { resource, free } => (1, Some(resource), Some(*free)),
        Refusal::Unknown { resource } => (2, Some(resource), None),
        Refusal::Stale { newest } => (3, None, Some(*newest)),
        Refusal::Differs => (4, None, None),
        Refusal::TooMany { limit } => (5, None, Some(u64::from(*limit))),
        Refusal::Loop => (6, None, None),
        Refusal::Neighbour { resource } => (7, Some(resource), None),
        Refusal::Bad { field } => {
            (8, None, WRONGS.iter().position(|wrong| wrong == field).map(|at| at as u64 + 1))
        }
    };
    number(out, WHY, code);
    resource.into_iter().for_each(|resource| text(out, RESOURCE, resource));
    amount.into_iter().for_each(|amount| number(out, AMOUNT, amount));
}

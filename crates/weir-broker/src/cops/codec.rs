//! Messages of COPS (RFC 2748, sections 2 and 3) as bytes.
//!
//! ```text
//!  0               1               2               3
//! +-------+-------+---------------+-------------------------------+
//! | ver 1 | flags | op code       | client-type                   |   header, 8 bytes
//! +-------+-------+---------------+-------------------------------+
//! | length of the message, a multiple of 4                        |
//! +-------------------------------+---------------+---------------+
//! | length of the object, unpadded | C-Num        | C-Type        |   objects, each padded to 4
//! +-------------------------------+---------------+---------------+
//! ```
//!
//! Reading allocates names of at most 64 bytes, and nothing by what a length claims. Any bytes are a message or a
//! [`Fault`].

use super::field::{self, Decided};
use super::object::{Code, Fault, Kind, Object, Objects, object};
use super::{MISSING, UNKNOWN};
use crate::book::{Name, Request, is_name};

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 64 << 10;
/// Bytes of a header.
pub const HEAD_BYTES: usize = 8;

const HANDLE: Kind = (1, 1);
const CONTEXT: Kind = (2, 1);
const REASON: Kind = (5, 1);
const FLAGS: Kind = (6, 1);
const DECIDED: Kind = (6, 4);
const ERROR: Kind = (8, 1);
const CLIENT: Kind = (9, 1);
const TIMER: Kind = (10, 1);
const PEP: Kind = (11, 1);
const REPORT: Kind = (12, 1);
/// What the RFC has besides: it is allowed where it belongs, and says nothing here.
const OTHERS: [Kind; 14] = [
    (3, 1),
    (3, 2),
    (4, 1),
    (4, 2),
    (6, 2),
    (6, 3),
    (6, 5),
    (7, 4),
    (9, 2),
    (13, 1),
    (13, 2),
    (14, 1),
    (14, 2),
    (15, 1),
];
const KNOWN: [Kind; 10] = [HANDLE, CONTEXT, REASON, FLAGS, DECIDED, ERROR, CLIENT, TIMER, PEP, REPORT];

/// R-Type of a context: resource allocation.
const ALLOCATION: u16 = 2;
const INSTALL: u16 = 1;
const REMOVE: u16 = 2;

/// What an edge reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It shapes by the last decision.
    Success,
    /// It cannot.
    Failure,
    /// What it has used.
    Accounting,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ: an edge wants a state.
    Request {
        /// Of the lease, on this connection.
        handle: u32,
        /// The state.
        wish: Request,
    },
    /// DEC: the answer, or what has changed without a question.
    Decision {
        /// Of the lease, on this connection.
        handle: u32,
        /// What is decided, or why it is not.
        decided: Result<Decided, Code>,
    },
    /// RPT: what became of a decision.
    Report {
        /// Of the lease, on this connection.
        handle: u32,
        /// What became of it.
        report: Report,
    },
    /// DRQ: the lease is given back.
    Delete {
        /// Of the lease, on this connection.
        handle: u32,
        /// Why.
        reason: Code,
    },
    /// SSQ: say what you hold.
    SyncRequest {
        /// One lease; all without.
        handle: Option<u32>,
    },
    /// OPN: an edge comes.
    Open {
        /// Its name.
        pep: Name,
        /// Who it is, if no certificate says it.
        token: Option<Name>,
    },
    /// CAT: it may stay.
    Accept {
        /// After a silence of so many seconds the other side is gone. 0: never.
        keep_alive_s: u16,
    },
    /// CC: this side goes.
    Close {
        /// Why.
        error: Code,
    },
    /// KA: this side is there.
    KeepAlive,
    /// SSC: what is held has been said.
    SyncDone {
        /// One lease; all without.
        handle: Option<u32>,
    },
}

/// The length of the message that `bytes` begin with, once its header is there.
///
/// # Errors
/// It is no header.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let Some(&[first, op, _, _, a, b, c, d]) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    if first >> 4 != 1 {
        return Err(Fault::malformed(0, format!("version {}: expected 1", first >> 4)));
    }
    if first & 0x0e != 0 {
        return Err(Fault::malformed(0, format!("flags {:#x}: expected 0 or 1", first & 0x0f)));
    }
    if !(1..=10).contains(&op) {
        return Err(Fault::malformed(1, format!("op code {op}: expected 1 to 10")));
    }
    let length = u32::from_be_bytes([a, b, c, d]);
    let bounds = HEAD_BYTES..=MESSAGE_BYTES;
    match usize::try_from(length).ok().filter(|n| bounds.contains(n) && n.is_multiple_of(4)) {
        Some(length) => Ok(Some(length)),
        None => {
            let what = format!("a length of {length}: expected 8 to {MESSAGE_BYTES}, a multiple of 4");
            Err(Fault::malformed(4, what))
        }
    }
}

/// The objects of one message, in the order of the RFC.
struct Body<'a> {
    objects: Objects<'a>,
    next: Option<Object<'a>>,
    handle: Option<u32>,
}

impl<'a> Body<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, Fault> {
        let objects = Objects::new(&bytes[HEAD_BYTES..], HEAD_BYTES);
        let mut body = Body { objects, next: None, handle: None };
        body.step()?;
        Ok(body)
    }

    fn step(&mut self) -> Result<(), Fault> {
        self.next = self.objects.next().map_err(|fault| self.known(fault))?;
        match self.next {
            Some(Object { kind, at, .. }) if !KNOWN.contains(&kind) && !OTHERS.contains(&kind) => {
                let (num, sort) = kind;
                let mut fault =
                    Fault::new(UNKNOWN, at - 4, format!("object {num}, type {sort} is not known"));
                fault.code.sub = u16::from_be_bytes([num, sort]);
                Err(self.known(fault))
            }
            _ => Ok(()),
        }
    }

    fn known(&self, fault: Fault) -> Fault {
        Fault { handle: self.handle, ..fault }
    }

    /// The next object, if it is of this kind.
    fn take(&mut self, kind: Kind) -> Result<Option<Object<'a>>, Fault> {
        match self.next {
            Some(object) if object.kind == kind => {
                if kind == HANDLE {
                    self.handle = Some(u32::from_be_bytes(object.exactly("a handle")?));
                }
                self.step()?;
                Ok(Some(object))
            }
            _ => Ok(None),
        }
    }

    fn need(&mut self, kind: Kind, what: &str) -> Result<Object<'a>, Fault> {
        let found = match self.next {
            Some(Object { kind: (num, sort), at, .. }) => (at - 4, format!("object {num}, type {sort}")),
            None => (self.objects.at, "the end of the message".to_owned()),
        };
        self.take(kind)?
            .ok_or_else(|| self.known(Fault::new(MISSING, found.0, format!("{}: expected {what}", found.1))))
    }

    fn handle_if_any(&mut self) -> Result<Option<u32>, Fault> {
        Ok(self.take(HANDLE)?.and(self.handle))
    }

    fn handle(&mut self) -> Result<u32, Fault> {
        self.need(HANDLE, "a handle")?;
        Ok(self.handle.expect("it was just read"))
    }

    fn context(&mut self) -> Result<(), Fault> {
        let object = self.need(CONTEXT, "a context")?;
        match object.pair("a context")?.0 {
            ALLOCATION => Ok(()),
            other => {
                let what = format!("a context of type {other}: expected {ALLOCATION}, resource allocation");
                Err(self.known(Fault::malformed(object.at, what)))
            }
        }
    }

    /// Passes over what may stand here and says nothing.
    fn skip(&mut self, nums: &[u8]) -> Result<(), Fault> {
        while self.next.is_some_and(|o| nums.contains(&o.kind.0) && OTHERS.contains(&o.kind)) {
            self.step()?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Fault> {
        match self.next {
            None => Ok(()),
            Some(Object { kind: (num, sort), at, .. }) => {
                let what = format!("object {num}, type {sort}: expected the end of the message");
                Err(self.known(Fault::malformed(at - 4, what)))
            }
        }
    }

    fn request(&mut self) -> Result<Message, Fault> {
        let handle = self.handle()?;
        self.context()?;
        self.skip(&[3, 4])?;
        let client = self.need(CLIENT, "what is wanted")?;
        let wish = field::read_wish(client.data, client.at).map_err(|fault| self.known(fault))?;
        self.skip(&[7, 9])?;
        Ok(Message::Request { handle, wish })
    }

    fn decision(&mut self, solicited: bool) -> Result<Message, Fault> {
        let handle = self.handle()?;
        if let Some(error) = self.take(ERROR)? {
            return Ok(Message::Decision { handle, decided: Err(error.code("an error")?) });
        }
        self.context()?;
        let flags = self.need(FLAGS, "flags of a decision")?;
        let install = match flags.pair("flags of a decision")?.0 {
            INSTALL => true,
            REMOVE => false,
            other => {
                let what = format!("command {other}: expected 1, install, or 2, remove");
                return Err(self.known(Fault::malformed(flags.at, what)));
            }
        };
        let data = self.need(DECIDED, "what is decided")?;
        let decided = field::read_decided(data.data, data.at, solicited, install);
        Ok(Message::Decision { handle, decided: Ok(decided.map_err(|fault| self.known(fault))?) })
    }

    fn report(&mut self) -> Result<Message, Fault> {
        let handle = self.handle()?;
        let object = self.need(REPORT, "the type of a report")?;
        let report = match object.pair("the type of a report")?.0 {
            1 => Report::Success,
            2 => Report::Failure,
            3 => Report::Accounting,
            other => {
                let what = format!("a report of type {other}: expected 1 to 3");
                return Err(self.known(Fault::malformed(object.at, what)));
            }
        };
        if self.next.is_some_and(|o| o.kind == CLIENT) {
            self.step()?;
        }
        self.skip(&[9])?;
        Ok(Message::Report { handle, report })
    }

    fn open(&mut self) -> Result<Message, Fault> {
        let object = self.need(PEP, "the name of the edge")?;
        let name = object.data.strip_suffix(&[0]).and_then(|name| std::str::from_utf8(name).ok());
        let Some(pep) = name.filter(|name| is_name(name)) else {
            let what = "the name of the edge: expected 1 to 64 printable ASCII characters and a 0";
            return Err(Fault::malformed(object.at, what));
        };
        let token = match self.take(CLIENT)? {
            Some(client) => Some(field::read_token(client.data, client.at)?),
            None => None,
        };
        self.skip(&[9, 14])?;
        Ok(Message::Open { pep: pep.into(), token })
    }
}

/// Reads one whole message. Says the client-type besides.
///
/// # Errors
/// It is none.
pub fn decode(bytes: &[u8]) -> Result<(u16, Message), Fault> {
    let whole = length(bytes)?.ok_or_else(|| {
        Fault::malformed(bytes.len(), format!("{} bytes: expected a header of {HEAD_BYTES}", bytes.len()))
    })?;
    if whole != bytes.len() {
        return Err(Fault::malformed(4, format!("a length of {whole}: {} bytes are there", bytes.len())));
    }
    let client_type = u16::from_be_bytes([bytes[2], bytes[3]]);
    let (solicited, mut body) = (bytes[0] & 1 == 1, Body::new(bytes)?);
    let message = match bytes[1] {
        1 => body.request()?,
        2 => body.decision(solicited)?,
        3 => body.report()?,
        4 => {
            let handle = body.handle()?;
            Message::Delete { handle, reason: body.need(REASON, "a reason")?.code("a reason")? }
        }
        5 => Message::SyncRequest { handle: body.handle_if_any()? },
        6 => body.open()?,
        7 => {
            let (_, keep_alive_s) = body.need(TIMER, "a keep-alive timer")?.pair("a keep-alive timer")?;
            body.skip(&[15])?;
            Message::Accept { keep_alive_s }
        }
        8 => {
            let error = body.need(ERROR, "an error")?.code("an error")?;
            body.skip(&[13])?;
            Message::Close { error }
        }
        9 if client_type != 0 => {
            let what = format!("a keep-alive of client-type {client_type:#06x}: expected 0");
            return Err(Fault::malformed(2, what));
        }
        9 => Message::KeepAlive,
        _ => Message::SyncDone { handle: body.handle_if_any()? },
    };
    body.end()?;
    Ok((client_type, message))
}

fn pair(out: &mut Vec<u8>, kind: Kind, a: u16, b: u16) {
    object(out, kind, |out| out.extend([a.to_be_bytes(), b.to_be_bytes()].concat()));
}

fn handle(out: &mut Vec<u8>, handle: u32) {
    object(out, HANDLE, |out| out.extend(handle.to_be_bytes()));
}

impl Message {
    /// Its op code, and whether it answers.
    fn op(&self) -> (u8, bool) {
        match self {
            Message::Request { .. } => (1, false),
            Message::Decision { decided, .. } => {
                (2, !matches!(decided, Ok(Decided::CalledBack { .. } | Decided::Ended { .. })))
            }
            Message::Report { .. } => (3, true),
            Message::Delete { .. } => (4, false),
            Message::SyncRequest { .. } => (5, false),
            Message::Open { .. } => (6, false),
            Message::Accept { .. } => (7, false),
            Message::Close { .. } => (8, false),
            Message::KeepAlive => (9, false),
            Message::SyncDone { .. } => (10, false),
        }
    }

    /// Adds its bytes to `out`.
    pub fn encode(&self, client_type: u16, out: &mut Vec<u8>) {
        let (start, (op, solicited)) = (out.len(), self.op());
        let client_type = if let Message::KeepAlive = self { 0 } else { client_type };
        out.extend([0x10 | u8::from(solicited), op]);
        out.extend(client_type.to_be_bytes());
        out.extend([0; 4]);
        self.objects(out);
        let length = (out.len() - start) as u32;
        out[start + 4..start + 8].copy_from_slice(&length.to_be_bytes());
    }

    fn objects(&self, out: &mut Vec<u8>) {
        match self {
            Message::Request { handle: of, wish } => {
                handle(out, *of);
                pair(out, CONTEXT, ALLOCATION, 0);
                object(out, CLIENT, |out| field::write_wish(out, wish));
            }
            Message::Decision { handle: of, decided: Err(error) } => {
                handle(out, *of);
                pair(out, ERROR, error.code, error.sub);
            }
            Message::Decision { handle: of, decided: Ok(decided) } => {
                handle(out, *of);
                pair(out, CONTEXT, ALLOCATION, 0);
                pair(out, FLAGS, if decided.installs() { INSTALL } else { REMOVE }, 0);
                object(out, DECIDED, |out| field::write_decided(out, decided));
            }
            Message::Report { handle: of, report } => {
                handle(out, *of);
                let report = match report {
                    Report::Success => 1,
                    Report::Failure => 2,
                    Report::Accounting => 3,
                };
                pair(out, REPORT, report, 0);
            }
            Message::Delete { handle: of, reason } => {
                handle(out, *of);
                pair(out, REASON, reason.code, reason.sub);
            }
            Message::SyncRequest { handle: of } | Message::SyncDone { handle: of } => {
                of.iter().for_each(|&of| handle(out, of));
            }
            Message::Open { pep, token } => {
                object(out, PEP, |out| {
                    out.extend(pep.as_bytes());
                    out.push(0);
                });
                if let Some(token) = token {
                    object(out, CLIENT, |out| field::write_token(out, token));
                }
            }
            Message::Accept { keep_alive_s } => pair(out, TIMER, 0, *keep_alive_s),
            Message::Close { error } => pair(out, ERROR, error.code, error.sub),
            Message::KeepAlive => {}
        }
    }
}

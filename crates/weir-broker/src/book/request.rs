//! What is asked of the book, and what it says.

use crate::{MAX_RATE, Nanos, Rate};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a lease, a resource or a domain: 1 to [`MAX_NAME`] printable ASCII characters.
pub type Name = Box<str>;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 64;
/// Resources that one lease may use.
pub const MAX_PATH: usize = 8;
/// Domains that a request may have come through.
pub const MAX_DOMAINS: usize = 8;
/// The shortest lease, in milliseconds.
pub const MIN_TTL_MS: u32 = 1_000;
/// The largest version: whoever has come there can only give the lease back.
pub const MAX_VERSION: u64 = i64::MAX as u64;
/// The longest lease, in milliseconds.
pub const MAX_TTL_MS: u32 = 3_600_000;

/// The wish of an edge: the state that it wants for one lease. It is absolute, so saying it twice
/// changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `OWNER/REST`. Only its owner may ask for it.
    pub lease: Name,
    /// Counts the wishes for this lease. An older one is refused.
    pub version: u64,
    /// The resources that carry the traffic, each `LINK:CLASS`. Fixed for the life of a lease.
    pub path: Vec<Name>,
    /// The rate wanted. 0 gives the lease back.
    pub rate: Rate,
    /// The least rate of use: below it the answer is a refusal.
    pub min: Rate,
    /// How long the grant is to hold, in milliseconds.
    pub ttl_ms: u32,
    /// The domains whose brokers asked before, the first one first. A broker that finds itself refuses.
    pub domains: Vec<Name>,
}

/// Which field of a request is not as it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The lease is not `OWNER/REST` of 1 to 64 printable ASCII characters.
    Lease,
    /// The version is above [`MAX_VERSION`], or is that and wants more than nothing.
    Version,
    /// The path has no resource, more than 8, one twice, or a bad name.
    Path,
    /// The rate is above 10^15 bit/s.
    Rate,
    /// The least rate is above the rate.
    Min,
    /// The time is not within 1 to 3,600 seconds.
    Ttl,
    /// More than 8 domains, or a bad name among them.
    Domains,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Lease => "lease: expected OWNER/NAME, at most 64 printable ASCII characters",
            Fault::Version => "version: expected less than 9223372036854775807",
            Fault::Path => "path: expected 1 to 8 different resources, each LINK:CLASS",
            Fault::Rate => "rate: expected at most 1000000000000000 bit/s",
            Fault::Min => "min: expected at most the rate",
            Fault::Ttl => "ttl: expected 1 to 3600 seconds",
            Fault::Domains => "domains: expected at most 8 names",
        })
    }
}

/// Whether this may be a name.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
}

impl Request {
    /// The first field that is not as it must be.
    ///
    /// # Errors
    /// That field.
    pub fn check(&self) -> Result<(), Fault> {
        let owner_and_rest =
            |(owner, rest): (&str, &str)| !owner.is_empty() && !rest.is_empty() && is_name(&self.lease);
        let path = &self.path;
        if !self.lease.split_once('/').is_some_and(owner_and_rest) {
            Err(Fault::Lease)
        } else if self.version > MAX_VERSION - u64::from(self.rate > 0) {
            Err(Fault::Version)
        } else if path.is_empty()
            || path.len() > MAX_PATH
            || path.iter().enumerate().any(|(n, name)| !is_name(name) || path[..n].contains(name))
        {
            Err(Fault::Path)
        } else if self.rate > MAX_RATE {
            Err(Fault::Rate)
        } else if self.min > self.rate {
            Err(Fault::Min)
        } else if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&self.ttl_ms) {
            Err(Fault::Ttl)
        } else if self.domains.len() > MAX_DOMAINS || !self.domains.iter().all(|d| is_name(d)) {
            Err(Fault::Domains)
        } else {
            Ok(())
        }
    }

    /// Whose lease it is: what stands before the first `/`.
    pub fn owner(&self) -> &str {
        self.lease.split('/').next().unwrap_or("")
    }
}

/// What is decided about one version of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// `rate` may be used until `ttl_ms` after the request was *sent*. It may be below what was
    /// granted before: then the edge shapes down and says so with the next version.
    Granted {
        /// In bit/s, from `min` to the rate asked.
        #[serde(rename = "rate_bps")]
        rate: Rate,
        /// In milliseconds, at most what was asked.
        ttl_ms: u32,
    },
    /// Nothing changes. What was granted before holds to its end.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Refusal {
    /// This resource has only so much left for this lease.
    Full {
        /// The resource that has least.
        resource: Name,
        /// What this lease could have on it, in bit/s.
        #[serde(rename = "free_bps")]
        free: Rate,
    },
    /// Nobody has told the broker of this resource.
    Unknown {
        /// The resource.
        resource: Name,
    },
    /// A newer version has been heard.
    Stale {
        /// The newest.
        newest: u64,
    },
    /// The same version with another wish, or another path than before.
    Differs,
    /// This owner has as many leases as one may have.
    TooMany {
        /// How many.
        limit: u32,
    },
    /// The request has come through this domain before.
    Loop,
    /// The neighbour on the path did not answer in time, or its own grant ends too soon.
    Neighbour {
        /// The agreement with it.
        resource: Name,
    },
    /// The request is none.
    Bad {
        /// The first field that is not as it must be.
        field: Fault,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Full { resource, free } => write!(f, "{resource} has {free} bit/s free for this lease"),
            Refusal::Unknown { resource } => write!(f, "there is no resource {resource}"),
            Refusal::Stale { newest } => write!(f, "version {newest} has been heard already"),
            Refusal::Differs => f.write_str("this lease or version has been asked for with other values"),
            Refusal::TooMany { limit } => write!(f, "its owner has {limit} leases, the most allowed"),
            Refusal::Loop => f.write_str("the request has come through this domain before"),
            Refusal::Neighbour { resource } => write!(f, "the neighbour behind {resource} gave no answer"),
            Refusal::Bad { field } => field.fmt(f),
        }
    }
}

/// What changes the book. Everything that does is written down before it is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A broker begins to serve, with a clock that may have nothing to do with the last one's. Every
    /// lease gets its whole time again.
    Begin,
    /// What this domain has of a resource: set by the operator.
    Provide {
        /// `LINK:CLASS`.
        resource: Name,
        /// In bit/s. What is granted above it is called back.
        capacity: Rate,
    },
    /// What the file of the broker says. It is set if it is not what the file said before: what the operator has
    /// [provided](Command::Provide) since stays.
    Declare {
        /// `LINK:CLASS`.
        resource: Name,
        /// In bit/s. 0 is always set: what the file does not give is not there.
        capacity: Rate,
    },
    /// This resource is what a neighbour leases to this domain. Nothing is there until it [says
    /// so](Command::Leased).
    Agree {
        /// `LINK:CLASS`.
        resource: Name,
        /// The most that the agreement allows, in bit/s.
        ceiling: Rate,
        /// It is asked for in multiples of this, so that most requests end here. At least 1 bit/s.
        bulk: Rate,
    },
    /// The neighbour answered, or its grant has ended.
    Leased {
        /// The agreement.
        resource: Name,
        /// The [want](Event::Want) that this answers, or an older one at a renewal.
        serial: u64,
        /// What this domain has now, in bit/s.
        rate: Rate,
        /// When that ends, on the clock of this broker.
        until: Nanos,
    },
    /// An edge or a neighbour asks.
    Ask(Request),
    /// What whoever asks for a lease wants to have remembered with it, as long as the lease is. None forgets it. Of a
    /// lease that is not there nothing is remembered.
    Note {
        /// The lease.
        lease: Name,
        /// Nothing here reads it.
        text: Option<Box<str>>,
    },
    /// Whoever asked for a lease was told how it stands, or could not be. Nothing changes: it is written down.
    Notified {
        /// The lease.
        lease: Name,
        /// What it was told.
        status: Box<str>,
        /// How often that was tried.
        tries: u32,
        /// It has taken it.
        is_taken: bool,
    },
    /// Time passes.
    Tick,
}

/// What the world must hear of a command, after it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The answer to this version of this lease.
    Answer {
        /// The lease.
        lease: Name,
        /// The version.
        version: u64,
        /// The decision.
        verdict: Verdict,
    },
    /// The lease has ended. So much is free again.
    Ended {
        /// The lease.
        lease: Name,
        /// In bit/s.
        freed: Rate,
    },
    /// The lease is to come down to `rate`, and to say so with its next version.
    CallBack {
        /// The lease.
        lease: Name,
        /// The newest version that was decided before. Its answer may arrive later than this.
        version: u64,
        /// In bit/s.
        rate: Rate,
    },
    /// The neighbour is to be asked for this in all.
    Want {
        /// The agreement.
        resource: Name,
        /// Counts the wants for this agreement.
        serial: u64,
        /// In bit/s. It replaces what was wanted before.
        rate: Rate,
        /// The domains that the request came through, this one not among them.
        domains: Vec<Name>,
    },
}

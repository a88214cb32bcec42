//! What goes over the wire: the JSON of the REST door. A raw number carries its unit last.

use crate::book::{Event, Name, Request, Verdict};
use axum::body::Bytes;
use serde::{Deserialize, Serialize};

/// The body of `PUT /v1/leases/OWNER/NAME`: the state that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Counts the wishes for this lease.
    pub version: u64,
    /// The resources, each `LINK:CLASS`.
    pub path: Vec<Name>,
    /// The rate wanted. 0 gives the lease back.
    pub rate_bps: u64,
    /// The least rate of use.
    #[serde(default)]
    pub min_bps: u64,
    /// How long the grant is to hold.
    pub ttl_ms: u32,
    /// The domains whose brokers asked before, the first one first. An edge names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Name>,
}

/// One entry of the body of `POST /v1/batch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// `OWNER/NAME`.
    pub lease: Name,
    /// Counts the wishes for this lease.
    pub version: u64,
    /// The resources, each `LINK:CLASS`.
    pub path: Vec<Name>,
    /// The rate wanted. 0 gives the lease back.
    pub rate_bps: u64,
    /// The least rate of use.
    #[serde(default)]
    pub min_bps: u64,
    /// How long the grant is to hold.
    pub ttl_ms: u32,
    /// The domains whose brokers asked before, the first one first. An edge names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<Name>,
}

/// The body of `POST /v1/batch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    /// What is wanted for each lease.
    pub leases: Vec<Entry>,
}

/// The body of `PUT /v1/resources/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// What the domain has of it.
    pub capacity_bps: u64,
}

/// The answer about one version of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The lease.
    pub lease: Name,
    /// The version.
    pub version: u64,
    /// `granted` or `refused`.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// A refusal in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub says: Option<String>,
}

/// The answers to a batch, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// One for each lease that is decided.
    pub leases: Vec<Answer>,
    /// The leases that wait for a neighbour: [`Told::Answered`] follows, or the same request later has the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Name>,
}

/// A lease as `GET` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseNow {
    /// `OWNER/NAME`.
    pub lease: Name,
    /// The newest version.
    pub version: u64,
    /// The resources.
    pub path: Vec<Name>,
    /// What was asked for.
    pub asked_bps: u64,
    /// What its edge may be using.
    pub granted_bps: u64,
    /// When it is free if it is not renewed, counted from now.
    pub free_in_ms: u64,
}

/// The answer of `GET /v1/leases`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasesNow {
    /// At most 1,000.
    pub leases: Vec<LeaseNow>,
    /// `?from=` of the next part, if there may be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A resource as `GET` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceNow {
    /// `LINK:CLASS`.
    pub resource: Name,
    /// What the domain has.
    pub capacity_bps: u64,
    /// What is granted. It is above the capacity after a call back, until the edges have come down.
    pub taken_bps: u64,
}

/// The answer of `GET /v1/resources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcesNow {
    /// The domain of this broker.
    pub domain: Name,
    /// In the order in which they were told.
    pub resources: Vec<ResourceNow>,
}

/// The answer of `GET /v1/audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLines {
    /// At most 1,000, each as it is kept.
    pub lines: Vec<String>,
    /// The number of the last line of all.
    pub last: u64,
    /// Its chain.
    pub chain: String,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What is wrong, and what was expected.
    pub error: String,
    /// How to mend it.
    pub help: String,
}

/// What `GET /v1/events` tells, one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Told {
    /// The answer to a request that waited for a neighbour.
    Answered(Answer),
    /// The lease is to come down to this rate, and to say so with its next version.
    CalledBack {
        /// The lease.
        lease: Name,
        /// The newest version decided before.
        version: u64,
        /// What to come down to.
        rate_bps: u64,
    },
    /// The lease has ended.
    Ended {
        /// The lease.
        lease: Name,
        /// What is free by it.
        freed_bps: u64,
    },
    /// The sessions of this edge are others, or last longer: it is to ask which it has.
    Sessions {
        /// Its name.
        edge: Name,
    },
}

/// The body of `PUT /v1/sessions/EDGE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InEffect {
    /// The sessions that the edge has in effect. A session that is over and is not among these is free.
    pub sessions: Vec<Name>,
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsNow {
    /// How long the edge may have them, counted from when it asked. It asks again before.
    pub holds_ms: u32,
    /// The sessions that it is to have, and no others.
    pub sessions: Vec<SessionNow>,
}

/// Traffic for which bandwidth is set apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNow {
    /// A UUID.
    pub session: Name,
    /// The resources, each `LINK:CLASS`.
    pub path: Vec<Name>,
    /// What it has.
    pub rate_bps: u64,
    /// How long it lasts, counted from when the edge asked.
    pub left_ms: u64,
    /// Whose it is: the device is at any of these.
    pub device: Vec<End>,
    /// Whom the device speaks with: in both directions.
    pub server: Vec<End>,
}

/// Where one end of a session's traffic may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Its addresses, as `198.51.100.0/24`.
    pub prefix: String,
    /// Its ports, each from the first to the last; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<[u16; 2]>,
}

impl Wish {
    /// As the book takes it.
    pub fn request(self, lease: Name) -> Request {
        let Wish { version, path, rate_bps: rate, min_bps: min, ttl_ms, domains } = self;
        Request { lease, version, path, rate, min, ttl_ms, domains }
    }
}

impl From<&Request> for Entry {
    fn from(request: &Request) -> Self {
        Entry {
            lease: request.lease.clone(),
            version: request.version,
            path: request.path.clone(),
            rate_bps: request.rate,
            min_bps: request.min,
            ttl_ms: request.ttl_ms,
            domains: request.domains.clone(),
        }
    }
}

impl From<Entry> for Request {
    fn from(entry: Entry) -> Self {
        let Entry { lease, version, path, rate_bps, min_bps, ttl_ms, domains } = entry;
        Wish { version, path, rate_bps, min_bps, ttl_ms, domains }.request(lease)
    }
}

impl Answer {
    /// With the refusal in words.
    pub fn new(lease: Name, version: u64, verdict: Verdict) -> Self {
        let says = match &verdict {
            Verdict::Granted { .. } => None,
            Verdict::Refused(why) => Some(why.to_string()),
        };
        Answer { lease, version, verdict, says }
    }
}

impl Told {
    /// What listeners hear of an event, if anything.
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::CallBack { lease, version, rate } => {
                Some(Told::CalledBack { lease: lease.clone(), version: *version, rate_bps: *rate })
            }
            Event::Ended { lease, freed } => Some(Told::Ended { lease: lease.clone(), freed_bps: *freed }),
            Event::Answer { lease, version, verdict } => {
                Some(Told::Answered(Answer::new(lease.clone(), *version, verdict.clone())))
            }
            Event::Want { .. } => None,
        }
    }

    /// The lease that it is about, or the edge.
    pub fn lease(&self) -> &Name {
        let (Told::Answered(Answer { lease, .. })
        | Told::CalledBack { lease, .. }
        | Told::Ended { lease, .. }
        | Told::Sessions { edge: lease }) = self;
        lease
    }

    /// Whose lease it is about.
    pub fn owner(&self) -> &str {
        self.lease().split('/').next().unwrap_or("")
    }

    /// As a server-sent event.
    pub fn text(&self) -> Bytes {
        let json = serde_json::to_string(self).expect("names and numbers have a form in JSON");
        Bytes::from(format!("data: {json}\n\n"))
    }
}

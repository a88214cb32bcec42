//! The file of a broker: what it has, where it listens, and whose tokens it takes.
//!
//! ```toml
//! domain = "core"
//! store = "core.redb"
//! unix = "broker.sock"
//! priority = "fifo"
//! http = "127.0.0.1:7442"
//!
//! [tls]
//! listen = "0.0.0.0:7443"
//! cert = "broker.pem"
//! key = "broker.key"
//! ca = "ca.pem"
//! crl = "revoked.pem"
//!
//! [[resource]]
//! name = "wan0:rt"
//! capacity = "8M"
//!
//! [[agreement]]
//! resource = "peer:rt"
//! broker = "https://bb.example.net:7443"
//! path = ["core:rt"]
//! ceiling = "4M"
//! bulk = "500k"
//! ttl = "30s"
//! cert = "broker.pem"
//! key = "broker.key"
//! ca = "peer-ca.pem"
//!
//! [[neighbour]]
//! domain = "edge-net"
//! through = "wan0:rt"
//!
//! [[profile]]
//! name = "QOS_E"
//! path = ["wan0:rt"]
//! rate = "512k"
//! longest = "60min"
//!
//! [[edge]]
//! name = "edge1"
//! devices = ["203.0.113.0/24", "2001:db8:17::/56"]
//!
//! [sink]
//! allow = ["https://app.example.net/qod/"]
//! ca = "/etc/ssl/certs/ca-certificates.crt"
//!
//! [[token]]
//! name = "portal"
//! role = "read"
//! sha256 = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
//! expires = "2027-11-22"
//! ```
//!
//! A domain whose brokers run on several machines has, instead of the file `store`:
//!
//! ```toml
//! [store]
//! etcd = ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
//! ca = "etcd-ca.pem"
//! cert = "etcd.pem"
//! key = "etcd.key"
//! silence = "10s"
//! ```

mod edge;
mod sink;

pub use edge::Edge;
pub(super) use edge::carrier;
pub use sink::{Sink, Sinks};

pub use super::who::Token;
use crate::book::{MAX_PATH, MAX_TTL_MS, MIN_TTL_MS, Name, is_name};
use crate::http::Target;
use crate::journal::AUDIT_LINES;
use crate::store::Place;
use crate::{MILLISECOND, SECOND};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::ServerConfig;
use weir_sys::Priority;
use weir_text::{BitRate, Time};

/// A broker's file, read. Paths in it are relative to the folder of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The name of the domain, as its neighbours know it.
    pub domain: Name,
    /// The file of the store, which is made if it is not there; or the nodes of etcd.
    pub store: Place,
    /// The Unix socket. Whoever may open it may do everything: it is made for its owner alone.
    #[serde(default = "usual_socket")]
    pub unix: PathBuf,
    /// Where it listens without TLS: an address of the loopback.
    #[serde(default)]
    pub http: Option<SocketAddr>,
    /// Where it listens with TLS.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// Where it listens for COPS: an address of the loopback, or any with `[tls]`, which is spoken there then.
    #[serde(default)]
    pub cops: Option<SocketAddr>,
    /// Lines of audit that are kept. Older ones are forgotten.
    #[serde(default = "usual_lines")]
    pub audit_lines: u64,
    /// What its threads ask the system for.
    #[serde(default = "no_priority", deserialize_with = "priority")]
    pub priority: Priority,
    /// What the domain has. What the file no longer names has nothing.
    #[serde(default, rename = "resource")]
    pub resources: Vec<Resource>,
    /// What neighbours lease to the domain.
    #[serde(default, rename = "agreement")]
    pub agreements: Vec<Agreement>,
    /// Domains that lease from this one.
    #[serde(default, rename = "neighbour")]
    pub neighbours: Vec<Neighbour>,
    /// What applications may ask for.
    #[serde(default, rename = "profile")]
    pub profiles: Vec<Profile>,
    /// Boxes that are told of sessions.
    #[serde(default, rename = "edge")]
    pub edges: Vec<Edge>,
    /// Where applications may have notifications sent: nowhere without it.
    #[serde(default, rename = "sink")]
    pub sinks: Sinks,
    /// Who may come without a certificate.
    #[serde(default, rename = "token")]
    pub tokens: Vec<Token>,
}

/// Where and how it listens with TLS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tls {
    /// The address and port.
    pub listen: SocketAddr,
    /// The broker's certificate and those that lead to its root, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Who signs the certificates of edges, in PEM. An edge's certificate says `URI:weir:edge:NAME`.
    pub ca: PathBuf,
    /// The lists of certificates that are no longer good, in PEM: one of each who signs.
    #[serde(default)]
    pub crl: Option<PathBuf>,
}

/// Which file it is, how long it is, and when it was changed; none if it is not there.
pub(super) type Stamp = Option<(u64, u64, i64, i64)>;

impl Tls {
    /// What the files say now.
    ///
    /// # Errors
    /// One cannot be read, or does not fit the others.
    pub(super) fn server(&self) -> Result<Arc<ServerConfig>, String> {
        crate::tls::server(&self.cert, &self.key, &self.ca, self.crl.as_deref())
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.cert, &self.key, &self.ca].into_iter().chain(&self.crl)
    }

    /// Differs once a file has changed.
    pub(super) fn stamp(&self) -> Vec<Stamp> {
        let stamp = |path: &PathBuf| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.ino(), file.len(), file.ctime(), file.ctime_nsec()))
        };
        self.files().map(stamp).collect()
    }
}

/// A link and class with what the domain has of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Resource {
    /// `LINK:CLASS`.
    pub name: Name,
    /// `"8M"`: what may be granted in all.
    pub capacity: BitRate,
}

/// A resource that a neighbour leases to this domain, at most up to a ceiling. Edges of this domain name it in their
/// paths.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    /// `LINK:CLASS`, as this domain calls it.
    pub resource: Name,
    /// The broker of the neighbour: `https://HOST:PORT`, or `unix:PATH` on this machine.
    pub broker: String,
    /// The resources there, as the neighbour calls them.
    pub path: Vec<Name>,
    /// The most that is asked for.
    pub ceiling: BitRate,
    /// It is asked for in multiples of this, so that most requests end here.
    #[serde(default = "one")]
    pub bulk: BitRate,
    /// How long each grant holds: 1 s to 1 h. Grants of this domain on it end no later.
    #[serde(default = "usual_ttl")]
    pub ttl: Time,
    /// The certificate of this broker for the neighbour, which names the domain as an edge: `URI:weir:edge:DOMAIN`.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// Who signs the certificate of the neighbour's broker, in PEM.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// A domain that leases from this one, and the resource whose capacity is the most that it may have in all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its name: its leases are `DOMAIN/...`.
    pub domain: Name,
    /// Each of its requests has this in its path.
    pub through: Name,
}

/// What the sessions of an application may be: a lease of so much of these resources, for no longer than so long.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// As applications name it: 3 to 256 letters, digits, `_`, `.` and `-`.
    pub name: String,
    /// Resources of this domain.
    pub path: Vec<Name>,
    /// What a session has, all or nothing.
    pub rate: BitRate,
    /// How long a session lasts at most: 1 s to 1 h, in whole seconds.
    #[serde(default = "an_hour")]
    pub longest: Time,
}

fn an_hour() -> Time {
    Time::from_secs(3_600)
}

impl Profile {
    /// How long a session lasts at most, in seconds.
    pub(super) fn longest_s(&self) -> u64 {
        self.longest.as_nanos() / SECOND
    }

    fn check(&self, resources: &[Resource]) -> Result<(), String> {
        let told = |what: &str| Err(format!("profile \"{}\": {what}", self.name.escape_debug()));
        let of_name = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        let is_own = |name: &Name| resources.iter().any(|resource| resource.name == *name);
        if !(3..=256).contains(&self.name.len()) || !self.name.bytes().all(of_name) {
            told("name: expected 3 to 256 letters, digits, _ . and -, as \"QOS_E\"")
        } else if self.path.is_empty()
            || self.path.len() > MAX_PATH
            || self.path.iter().enumerate().any(|(at, name)| !is_own(name) || self.path[..at].contains(name))
        {
            told("path: expected 1 to 8 different names of [[resource]]s in this file")
        } else if self.rate.as_bps() == 0 {
            told("rate: expected a rate above 0, as \"10M\"")
        } else if !(1..=u64::from(MAX_TTL_MS) / 1_000).contains(&self.longest_s()) {
            told("longest: expected 1s to 60min, as \"60min\"")
        } else {
            Ok(())
        }
    }
}

fn one() -> BitRate {
    BitRate::from_bps(1)
}

fn usual_ttl() -> Time {
    Time::from_secs(30)
}

impl Agreement {
    /// What this domain calls its lease there.
    pub(super) fn lease(&self, domain: &str) -> Name {
        format!("{domain}/{}", self.resource).into()
    }

    pub(super) fn ttl_ms(&self) -> u32 {
        u32::try_from(self.ttl.as_nanos() / MILLISECOND).unwrap_or(u32::MAX)
    }

    /// Where the neighbour's broker is.
    ///
    /// # Errors
    /// A file cannot be read, or does not fit the others.
    pub(super) fn target(&self) -> Result<Target, String> {
        if let Some(path) = self.broker.strip_prefix("unix:") {
            return Ok(Target::Unix(path.into()));
        }
        let at = self.broker.strip_prefix("https://").unwrap_or(&self.broker);
        let (Some(ca), Some(cert), Some(key)) = (&self.ca, &self.cert, &self.key) else {
            return Err(format!("agreement \"{}\": expected ca, cert and key beside https", self.resource));
        };
        Ok(Target::Tls(at.to_owned(), crate::tls::client(ca, Some((cert, key)))?))
    }

    fn check(&self, domain: &str) -> Result<(), String> {
        let told = |what: &str| Err(format!("agreement \"{}\": {what}", self.resource));
        let https = self.broker.strip_prefix("https://").map(|at| at.rsplit_once(':'));
        let there = https
            .is_some_and(|at| at.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()));
        let path = &self.path;
        if !there && !self.broker.starts_with("unix:/") {
            told("broker: expected https://HOST:PORT, or unix:/PATH on this machine")
        } else if there && [&self.ca, &self.cert, &self.key].iter().any(|file| file.is_none()) {
            told("expected ca, cert and key, by which both brokers know each other")
        } else if path.is_empty()
            || path.len() > MAX_PATH
            || path.iter().enumerate().any(|(at, name)| !is_name(name) || path[..at].contains(name))
        {
            told("path: expected 1 to 8 different resources of the neighbour, each LINK:CLASS")
        } else if self.bulk.as_bps() == 0 || self.bulk > self.ceiling {
            told("bulk: expected 1 bit/s to the ceiling")
        } else if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&self.ttl_ms()) {
            told("ttl: expected 1s to 1h, as \"30s\"")
        } else if !is_name(&self.lease(domain)) {
            told("expected the domain and the resource to have at most 63 characters together")
        } else {
            Ok(())
        }
    }

    fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.cert, &mut self.key].into_iter().flatten()
    }
}

fn usual_socket() -> PathBuf {
    PathBuf::from(super::SOCKET)
}

fn no_priority() -> Priority {
    Priority::None
}

fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<Priority, D::Error> {
    let word = String::deserialize(from)?;
    word.parse().map_err(|help| D::Error::custom(format!("priority = \"{word}\": {help}")))
}

fn usual_lines() -> u64 {
    AUDIT_LINES
}

impl Config {
    /// Reads the text of a file that lies in `folder`.
    ///
    /// # Errors
    /// What is wrong, where, and what was expected.
    pub fn read(text: &str, folder: &Path) -> Result<Self, String> {
        let mut config: Config = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
        config.check()?;
        let tls = config.tls.iter_mut();
        let tls =
            tls.flat_map(|tls| [&mut tls.cert, &mut tls.key, &mut tls.ca].into_iter().chain(&mut tls.crl));
        let agreed = config.agreements.iter_mut().flat_map(Agreement::files);
        let own = [&mut config.unix].into_iter().chain(&mut config.sinks.ca);
        for path in config.store.files().chain(own).chain(tls).chain(agreed) {
            *path = folder.join(&path);
        }
        Ok(config)
    }

    /// Reads the certificates that it names.
    ///
    /// # Errors
    /// One cannot be read, or does not fit the others.
    pub fn check_certificates(&self) -> Result<(), String> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.server().map(drop))?;
        self.sinks.tls()?;
        self.agreements.iter().try_for_each(|agreement| agreement.target().map(drop))
    }

    /// Whether a broker can serve by it.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub(super) fn check(&self) -> Result<(), String> {
        let name = |what: &str, name: &str| {
            if is_name(name) && !name.contains('/') {
                return Ok(());
            }
            Err(format!("{what} \"{name}\": expected 1 to 64 printable ASCII characters without / or blanks"))
        };
        name("domain", &self.domain)?;
        self.store.check()?;
        if let Some(http) = self.http.filter(|http| !http.ip().is_loopback()) {
            return Err(format!(
                "http = \"{http}\": without TLS only the loopback is safe: write 127.0.0.1:{}, or use [tls]",
                http.port()
            ));
        }
        if let Some(cops) = self.cops.filter(|cops| !cops.ip().is_loopback() && self.tls.is_none()) {
            return Err(format!(
                "cops = \"{cops}\": without TLS only the loopback is safe: write 127.0.0.1:{}, or add [tls]",
                cops.port()
            ));
        }
        if self.audit_lines == 0 {
            return Err("audit-lines = 0: expected at least 1".into());
        }
        let own = self.resources.iter().map(|resource| &resource.name);
        let all: Vec<&Name> = own.chain(self.agreements.iter().map(|agreed| &agreed.resource)).collect();
        for (at, &resource) in all.iter().enumerate() {
            name("resource", resource)?;
            if !resource.contains(':') {
                return Err(format!("resource \"{resource}\": expected LINK:CLASS, as wan0:rt"));
            }
            if all[..at].contains(&resource) {
                return Err(format!("resource \"{resource}\" is there twice: leave one"));
            }
        }
        self.agreements.iter().try_for_each(|agreement| agreement.check(&self.domain))?;
        for (at, profile) in self.profiles.iter().enumerate() {
            profile.check(&self.resources)?;
            if self.profiles[..at].iter().any(|other| other.name == profile.name) {
                return Err(format!("profile \"{}\" is there twice: leave one", profile.name));
            }
        }
        edge::check(&self.edges, name)?;
        self.sinks.check()?;
        for (at, neighbour) in self.neighbours.iter().enumerate() {
            name("neighbour", &neighbour.domain)?;
            if self.neighbours[..at].iter().any(|other| other.domain == neighbour.domain) {
                return Err(format!("neighbour \"{}\" is there twice: leave one", neighbour.domain));
            }
            if !all.contains(&&neighbour.through) {
                return Err(format!(
                    "neighbour \"{}\": through: there is no resource {}: write a [[resource]] whose capacity is the \
                     most that it may have",
                    neighbour.domain, neighbour.through
                ));
            }
        }
        for (at, token) in self.tokens.iter().enumerate() {
            name("token", &token.name)?;
            if super::who::is_reserved(&token.name) {
                let other = token.name.replace(':', "-");
                return Err(format!(
                    "token \"{}\": the broker gives this name itself: write name = \"token-{other:.50}\"",
                    token.name
                ));
            }
            if let Some(owner) = &token.owner {
                name("owner", owner)?;
            }
            if self.tokens[..at].iter().any(|other| other.name == token.name) {
                return Err(format!("token \"{}\" is there twice: give one another name", token.name));
            }
            let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            if token.sha256.len() != 64 || !token.sha256.bytes().all(hex) {
                return Err(format!(
                    "token \"{}\": sha256: expected the 64 digits that `weir broker token` prints",
                    token.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Who may do what, and how often.

use super::clock::time_of_day_ms;
use super::day::Day;
use crate::audit::hex;
use crate::book::Name;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

/// Requests a second that one name may send, and as many at once.
pub const REQUESTS_PER_SECOND: u32 = 100;
/// Leases of a batch that count as one request more. An owner that says all its 1,000 anew is within the limit.
pub const LEASES_PER_REQUEST: usize = 20;
/// Thousandths of a request.
const REQUEST: u64 = 1_000;
/// Names that are remembered at once. Those that have sent nothing for a second are forgotten first.
const NAMES: usize = 10_000;
/// Bytes of a token: 256 bits.
const TOKEN_BYTES: usize = 32;

/// A token of a person or a program, as its hash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Token {
    /// As the audit names it: no name that the broker gives itself, such as `socket` or `edge:a`.
    pub name: Name,
    /// What it allows.
    pub role: Role,
    /// The only owner whose leases it may see and touch; all without.
    #[serde(default)]
    pub owner: Option<Name>,
    /// SHA-256 of the token, in hexadecimal: `weir broker token` prints both.
    pub sha256: String,
    /// The day at whose start it ends (UTC), `"2027-11-22"`; never without.
    #[serde(default)]
    pub expires: Option<Day>,
}

/// What somebody may do. Each may do what those before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// See leases, resources and metrics.
    Read,
    /// Ask for leases and give them back.
    Operate,
    /// Set capacities, read the audit.
    Admin,
}

impl Role {
    /// As the file writes it.
    pub fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

/// As the audit names whoever comes by the Unix socket.
const SOCKET: &str = "socket";
/// As the audit names what the file says.
pub(super) const OPERATOR: &str = "operator";
/// As the audit names what the broker does by itself.
pub(super) const BROKER: &str = "broker";

/// Whether the audit and the limits know somebody else by this name: a token may not have it.
pub(super) fn is_reserved(name: &str) -> bool {
    [SOCKET, OPERATOR, BROKER].contains(&name) || name.contains(':')
}

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// As the audit names it.
    pub name: Name,
    pub role: Role,
    /// The only owner whose leases it may see and touch, if set.
    pub owner: Option<Name>,
}

impl Who {
    /// The edge of a certificate.
    pub fn edge(name: &str) -> Self {
        Who { name: format!("edge:{name}").into(), role: Role::Operate, owner: Some(name.into()) }
    }

    /// Whoever may open the Unix socket.
    pub fn local() -> Self {
        Who { name: SOCKET.into(), role: Role::Admin, owner: None }
    }

    /// Whether it may see and touch the leases of `owner`.
    pub fn speaks_for(&self, owner: &str) -> bool {
        self.owner.as_deref().is_none_or(|own| own == owner)
    }
}

/// A new token, and what the file keeps of it.
pub fn new_token() -> Result<(String, String), String> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "the system gives no random numbers".to_owned())?;
    let token = hex(&bytes);
    let hash = hash(&token);
    Ok((token, hash))
}

/// What is kept of a token. It has 256 random bits, so one round of SHA-256 is enough.
fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// Finds whose token this is. The look-up is by hash, so its time says nothing about any token.
///
/// # Errors
/// Nobody's, or it has ended.
pub(super) fn of_token(tokens: &[Token], token: &str) -> Result<Who, &'static str> {
    let hash = hash(token);
    let found = tokens.iter().find(|t| t.sha256 == hash).ok_or("nobody has this token")?;
    if found.expires.is_some_and(|end| end.0 <= time_of_day_ms()) {
        return Err("this token has ended");
    }
    Ok(Who { name: found.name.clone(), role: found.role, owner: found.owner.clone() })
}

/// How much each name has left, in thousandths of a request.
#[derive(Debug, Default)]
pub(super) struct Limits(Mutex<HashMap<Name, (u64, Instant)>>);

impl Limits {
    /// Whether `name` may send one request more at `now`.
    pub fn allow(&self, name: &Name, now: Instant) -> bool {
        self.take(name, REQUEST, now)
    }

    /// Whether a request of `name` may be about so many leases, besides being one.
    pub fn allow_batch(&self, name: &Name, leases: usize, now: Instant) -> bool {
        self.take(name, (leases / LEASES_PER_REQUEST) as u64 * REQUEST, now)
    }

    /// Whether `name` may send one message more about one lease.
    pub fn allow_lease(&self, name: &Name, now: Instant) -> bool {
        self.take(name, REQUEST / LEASES_PER_REQUEST as u64, now)
    }

    fn take(&self, name: &Name, thousandths: u64, now: Instant) -> bool {
        let full = u64::from(REQUESTS_PER_SECOND) * REQUEST;
        let mut names = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if names.len() >= NAMES && !names.contains_key(name) {
            names.retain(|_, (_, last)| now.saturating_duration_since(*last).as_millis() < 1_000);
            if names.len() >= NAMES {
                return false;
            }
        }
        let (left, last) = names.entry(name.clone()).or_insert((full, now));
        let since = now.saturating_duration_since(*last).as_millis() as u64;
        let more = since.saturating_mul(u64::from(REQUESTS_PER_SECOND));
        // Less than a millisecond counts once it is one.
        if since > 0 {
            (*left, *last) = (left.saturating_add(more).min(full), now);
        }
        let after = left.checked_sub(thousandths);
        *left = after.unwrap_or(*left);
        after.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_name_sends_a_hundred_at_once_and_a_hundred_a_second() {
        let (limits, start) = (Limits::default(), Instant::now());
        let (one, other): (Name, Name) = ("one".into(), "other".into());
        let sent = |name: &Name, now| (0..1_000).filter(|_| limits.allow(name, now)).count();
        assert_eq!(sent(&one, start), 100);
        assert_eq!(sent(&other, start), 100, "each has its own");
        assert_eq!(sent(&one, start + Duration::from_millis(50)), 5);
        assert_eq!(sent(&one, start + Duration::from_secs(60)), 100);
    }

    #[test]
    fn a_thousand_leases_may_be_said_at_once_and_two_thousand_a_second() {
        let (limits, start, one) = (Limits::default(), Instant::now(), "one".into());
        let sent = |leases, now| limits.allow(&one, now) && limits.allow_batch(&one, leases, now);
        assert!((0..16).all(|_| sent(64, start)), "1,024 leases in 16 requests");
        assert!(!sent(1_000, start));
        assert!(sent(1_900, start + Duration::from_secs(1)));
    }

    #[test]
    fn many_names_take_no_more_room_than_some() {
        let (limits, start) = (Limits::default(), Instant::now());
        let allowed = (0..2 * NAMES).filter(|n| limits.allow(&n.to_string().into(), start)).count();
        assert_eq!(allowed, NAMES);
        assert!(limits.allow(&"late".into(), start + Duration::from_secs(1)));
    }

    #[test]
    fn a_token_is_found_by_its_hash_until_it_ends() {
        let (token, sha256) = new_token().expect("the system has random numbers");
        let entry = |expires| Token {
            name: "portal".into(),
            role: Role::Read,
            owner: None,
            sha256: sha256.clone(),
            expires,
        };
        assert_eq!(of_token(&[entry(None)], &token).map(|who| who.role), Ok(Role::Read));
        assert!(of_token(&[entry(None)], &sha256).is_err(), "the hash is no token");
        assert!(of_token(&[entry(Some(Day(0)))], &token).is_err());
        assert_eq!(token.len(), 64);
    }
}

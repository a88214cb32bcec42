//! A session as CAMARA's Quality-on-Demand API v1 writes it, and as the book remembers it beside its lease.

use super::super::config::Profile;
use super::Error;
use crate::book::{MAX_TTL_MS, MIN_TTL_MS};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Ports and ranges of ports that one end of a flow may name.
const PORTS: usize = 16;

/// The body of `POST /sessions`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Create {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<Device>,
    application_server: Server,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_ports: Option<Ports>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application_server_ports: Option<Ports>,
    qos_profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sink: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sink_credential: Option<Value>,
    duration: u64,
}

/// The body of `POST /sessions/ID/extend`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Extend {
    pub requested_additional_duration: u64,
}

/// The body of `POST /retrieve-sessions`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Retrieve {
    pub device: Option<Device>,
}

/// Who is to have the quality. One of these is used and shown: the first that is an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Device {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    phone_number: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network_access_identifier: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4_address: Option<Ipv4Device>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv6_address: Option<Ipv6Addr>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ipv4Device {
    public_address: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private_address: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    public_port: Option<u16>,
}

/// The other end: addresses or prefixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Server {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv4_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ipv6_address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ports {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<Range>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: u16,
    to: u16,
}

/// The traffic that is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Flow {
    pub device: Device,
    application_server: Server,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_ports: Option<Ports>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    application_server_ports: Option<Ports>,
}

/// Why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Why {
    DurationExpired,
    NetworkTerminated,
}

/// A session, as the book remembers it. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    #[serde(flatten)]
    pub flow: Flow,
    pub profile: String,
    /// In seconds, since it began.
    pub duration: u64,
    pub began_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<(u64, Why)>,
}

/// What an application is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionInfo {
    session_id: String,
    #[serde(flatten)]
    flow: Flow,
    qos_profile: String,
    duration: u64,
    started_at: String,
    expires_at: String,
    qos_status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status_info: Option<Why>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Available,
    Unavailable,
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", message)
}

impl Device {
    /// The one identifier that is used.
    ///
    /// # Errors
    /// None of them is an address, or it does not say enough.
    pub fn one(self) -> Result<Self, Error> {
        let none = Device {
            phone_number: None,
            network_access_identifier: None,
            ipv4_address: None,
            ipv6_address: None,
        };
        match self {
            Device { ipv4_address: Some(v4), .. } => {
                if v4.private_address.is_none() && v4.public_port.is_none() {
                    return Err(invalid(
                        "device.ipv4Address: expected privateAddress or publicPort beside publicAddress",
                    ));
                }
                Ok(Device { ipv4_address: Some(v4), ..none })
            }
            Device { ipv6_address: Some(v6), .. } => Ok(Device { ipv6_address: Some(v6), ..none }),
            Device { phone_number: None, network_access_identifier: None, .. } => Err(missing()),
            Device { .. } => {
                let message =
                    "device: expected ipv4Address or ipv6Address: this broker knows no other identifiers";
                Err(Error::new(StatusCode::UNPROCESSABLE_ENTITY, "UNSUPPORTED_IDENTIFIER", message))
            }
        }
    }
}

pub(super) fn missing() -> Error {
    let message = "device: expected ipv4Address or ipv6Address: the token names no device";
    Error::new(StatusCode::UNPROCESSABLE_ENTITY, "MISSING_IDENTIFIER", message)
}

/// An address, or one with the bits of its prefix.
fn check_prefix<A: FromStr + Into<IpAddr>>(
    field: &str,
    text: &str,
    bits: u8,
    example: &str,
) -> Result<(), Error> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let length = length.map_or(Some(bits), |length| length.parse().ok());
    if address.parse::<A>().is_ok() && length.is_some_and(|length| length <= bits) {
        return Ok(());
    }
    let text: String = text.escape_debug().take(60).collect();
    Err(invalid(format!(
        "applicationServer.{field}: \"{text}\": expected an address or prefix, as {example}"
    )))
}

impl Server {
    fn check(&self) -> Result<(), Error> {
        if self.ipv4_address.is_none() && self.ipv6_address.is_none() {
            return Err(invalid("applicationServer: expected ipv4Address or ipv6Address"));
        }
        if let Some(text) = &self.ipv4_address {
            check_prefix::<Ipv4Addr>("ipv4Address", text, 32, "198.51.100.0/24")?;
        }
        match &self.ipv6_address {
            Some(text) => check_prefix::<Ipv6Addr>("ipv6Address", text, 128, "2001:db8:1::/64"),
            None => Ok(()),
        }
    }
}

impl Ports {
    fn check(&self, field: &str) -> Result<(), Error> {
        let count = self.ranges.len() + self.ports.len();
        if !(1..=PORTS).contains(&count) {
            return Err(invalid(format!("{field}: {count} ports and ranges: expected 1 to {PORTS}")));
        }
        match self.ranges.iter().find(|range| range.from > range.to) {
            Some(Range { from, to }) => {
                Err(invalid(format!("{field}.ranges: {from} to {to}: expected the smaller port first")))
            }
            None => Ok(()),
        }
    }
}

impl Create {
    /// The session that is asked for, as it begins at `now_ms`, and its profile.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub fn judge(self, profiles: &[Profile], now_ms: u64) -> Result<(&Profile, Session), Error> {
        let device = self.device.ok_or_else(missing)?.one()?;
        self.application_server.check()?;
        let both =
            [("devicePorts", &self.device_ports), ("applicationServerPorts", &self.application_server_ports)];
        both.into_iter().try_for_each(|(field, ports)| ports.as_ref().map_or(Ok(()), |p| p.check(field)))?;
        if self.sink.is_some() || self.sink_credential.is_some() {
            let message = "sink: this broker sends no notifications: leave it out, and GET the session";
            return Err(Error::new(StatusCode::BAD_REQUEST, "INVALID_SINK", message));
        }
        let Some(profile) = profiles.iter().find(|profile| *profile.name == *self.qos_profile) else {
            let known: Vec<&str> = profiles.iter().map(|profile| &*profile.name).collect();
            let asked: String = self.qos_profile.escape_debug().take(60).collect();
            let known = if known.is_empty() { "none is offered here".into() } else { known.join(", ") };
            return Err(invalid(format!("qosProfile: \"{asked}\": expected one of these: {known}")));
        };
        let longest = profile.longest_s();
        if !(1..=longest).contains(&self.duration) {
            let message = format!("duration: {} s: {} allows 1 to {longest}", self.duration, profile.name);
            let code = "QUALITY_ON_DEMAND.DURATION_OUT_OF_RANGE";
            return Err(Error::new(StatusCode::BAD_REQUEST, code, message));
        }
        let flow = Flow {
            device,
            application_server: self.application_server,
            device_ports: self.device_ports,
            application_server_ports: self.application_server_ports,
        };
        let (name, duration) = (self.qos_profile, self.duration);
        Ok((profile, Session { flow, profile: name, duration, began_ms: now_ms, ended: None }))
    }
}

impl Session {
    /// When it ends by itself, or has ended.
    pub fn ends_ms(&self) -> u64 {
        self.ended.map_or(self.began_ms + self.duration * 1_000, |(at, _)| at)
    }

    /// Whether it has its bandwidth at `now_ms`.
    pub fn is_available(&self, now_ms: u64) -> bool {
        self.ended.is_none() && now_ms < self.ends_ms()
    }

    /// How long its lease is to last from `now_ms` on.
    pub fn left_ms(&self, now_ms: u64) -> u32 {
        let longest = u64::from(MAX_TTL_MS);
        self.ends_ms().saturating_sub(now_ms).clamp(MIN_TTL_MS.into(), longest) as u32
    }

    /// As it is shown.
    pub fn info(&self, id: &str, now_ms: u64) -> SessionInfo {
        let is_available = self.is_available(now_ms);
        let why = self.ended.map_or(Why::DurationExpired, |(_, why)| why);
        let lasted = (self.ends_ms() - self.began_ms) / 1_000;
        SessionInfo {
            session_id: id.into(),
            flow: self.flow.clone(),
            qos_profile: self.profile.clone(),
            duration: lasted.max(1),
            started_at: date_time(self.began_ms),
            expires_at: date_time(self.ends_ms()),
            qos_status: if is_available { Status::Available } else { Status::Unavailable },
            status_info: (!is_available).then_some(why),
        }
    }

    /// As the book keeps it.
    pub fn text(&self) -> Box<str> {
        serde_json::to_string(self).expect("names and numbers have a form in JSON").into()
    }

    /// What the book kept; none if another version wrote it.
    pub fn of(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Milliseconds since 1970 as RFC 3339 writes them, in whole seconds (UTC).
fn date_time(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1_000 % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_does() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696_000, "2000-02-29T12:34:56Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00Z"),
        ] {
            assert_eq!(date_time(ms), text);
        }
    }
}

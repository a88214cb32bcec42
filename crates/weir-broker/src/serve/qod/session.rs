//! A session as CAMARA's Quality-on-Demand API v1 writes it, and as the book remembers it beside its lease.

use super::super::config::{Edge, Profile, Sinks, carrier};
use super::Error;
use super::hook::Hook;
use crate::book::{MAX_TTL_MS, MIN_TTL_MS, Name, Request};
use crate::wire::{End, SessionNow};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_text::Prefix;

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
    sink: Option<String>,
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
    DeleteRequested,
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
    /// The box that carries its traffic; none: no box is told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Name>,
    /// The box has had it in effect.
    #[serde(default)]
    pub taken: bool,
    /// Where its application hears of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<Hook>,
}

/// What an application is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionInfo {
    session_id: String,
    #[serde(flatten)]
    flow: Flow,
    qos_profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sink: Option<String>,
    duration: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    qos_status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status_info: Option<Why>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    Requested,
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
fn check_prefix(field: &str, text: &str, is_v4: bool) -> Result<(), Error> {
    let said = |what: String| invalid(format!("applicationServer.{field}: {what}"));
    let read = Prefix::read_around(text).map_err(|bad| said(format!("{}: {}", bad.message, bad.help)))?;
    match (read.address().is_ipv4() == is_v4, is_v4) {
        (true, _) => Ok(()),
        (_, true) => Err(said(format!("`{text}` is no address of IPv4: write ipv6Address"))),
        (_, false) => Err(said(format!("`{text}` is no address of IPv6: write ipv4Address"))),
    }
}

impl Server {
    fn check(&self) -> Result<(), Error> {
        if self.ipv4_address.is_none() && self.ipv6_address.is_none() {
            return Err(invalid("applicationServer: expected ipv4Address or ipv6Address"));
        }
        if let Some(text) = &self.ipv4_address {
            check_prefix("ipv4Address", text, true)?;
        }
        match &self.ipv6_address {
            Some(text) => check_prefix("ipv6Address", text, false),
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

impl Ports {
    fn spans(ports: Option<&Ports>) -> Vec<[u16; 2]> {
        let of = |ports: &Ports| {
            let ranges = ports.ranges.iter().map(|range| [range.from, range.to]);
            ranges.chain(ports.ports.iter().map(|port| [*port, *port])).collect()
        };
        ports.map(of).unwrap_or_default()
    }
}

impl Flow {
    /// The box that carries it; none if the broker's file names no box at all.
    fn carrier(&self, edges: &[Edge]) -> Result<Option<Name>, Error> {
        if edges.is_empty() {
            return Ok(None);
        }
        let addresses: Vec<IpAddr> = match (&self.device.ipv4_address, self.device.ipv6_address) {
            (Some(v4), _) => {
                v4.private_address.iter().chain([&v4.public_address]).map(|a| (*a).into()).collect()
            }
            (None, v6) => v6.into_iter().map(IpAddr::from).collect(),
        };
        let Some(edge) = carrier(edges, addresses.iter().copied()) else {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let message = format!(
                "device: no [[edge]] of the broker's file has the devices of {}: the operator adds their prefix there",
                addresses.join(" or ")
            );
            return Err(Error::new(StatusCode::UNPROCESSABLE_ENTITY, "SERVICE_NOT_APPLICABLE", message));
        };
        let (is_v4, server) = (self.device.ipv4_address.is_some(), &self.application_server);
        if is_v4 && server.ipv4_address.is_none() || !is_v4 && server.ipv6_address.is_none() {
            let expected = if is_v4 { "ipv4Address" } else { "ipv6Address" };
            let message = format!("applicationServer: expected {expected}, by which the device is named");
            return Err(invalid(message));
        }
        Ok(Some(edge.name.clone()))
    }

    /// Where the device may be. By IPv6 that is its /64, because a device takes several addresses of it. By IPv4 it is the
    /// private address, and the public one with its port: others may be behind that, too.
    fn device_ends(&self) -> Vec<End> {
        let ports = Ports::spans(self.device_ports.as_ref());
        let mut ends = Vec::new();
        if let Some(v6) = self.device.ipv6_address {
            let net = Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64);
            ends.push(End { prefix: format!("{net}/64"), ports: ports.clone() });
        }
        let Some(v4) = &self.device.ipv4_address else { return ends };
        if let Some(private) = v4.private_address {
            ends.push(End { prefix: format!("{private}/32"), ports });
        }
        if let Some(port) = v4.public_port {
            ends.push(End { prefix: format!("{}/32", v4.public_address), ports: vec![[port, port]] });
        }
        ends
    }

    /// Whether a packet may be of both: their ends meet, whichever side is the device.
    pub fn meets(&self, other: &Flow) -> bool {
        let meet = |own: &[End], other: &[End]| own.iter().any(|a| other.iter().any(|b| ends_meet(a, b)));
        let (own, other) =
            ((self.device_ends(), self.server_ends()), (other.device_ends(), other.server_ends()));
        meet(&own.0, &other.0) && meet(&own.1, &other.1) || meet(&own.0, &other.1) && meet(&own.1, &other.0)
    }

    fn server_ends(&self) -> Vec<End> {
        let Server { ipv4_address: v4, ipv6_address: v6 } = &self.application_server;
        let is_v4 = self.device.ipv4_address.is_some();
        let prefix = if is_v4 { v4 } else { v6 };
        let ports = Ports::spans(self.application_server_ports.as_ref());
        prefix.iter().map(|prefix| End { prefix: prefix.clone(), ports: ports.clone() }).collect()
    }
}

fn ends_meet(one: &End, other: &End) -> bool {
    let has = |[a, b]: &[u16; 2], [c, d]: &[u16; 2]| a <= d && c <= b;
    let ports = one.ports.is_empty()
        || other.ports.is_empty()
        || one.ports.iter().any(|a| other.ports.iter().any(|b| has(a, b)));
    let (one, other) = (Prefix::read_around(&one.prefix), Prefix::read_around(&other.prefix));
    ports && one.is_ok_and(|one| other.is_ok_and(|other| one.meets(&other)))
}

impl Create {
    /// The session that is asked for, as it begins at `now_ms` at one of these boxes, and its profile.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub fn judge<'p>(
        self,
        profiles: &'p [Profile],
        edges: &[Edge],
        sinks: &Sinks,
        now_ms: u64,
    ) -> Result<(&'p Profile, Session), Error> {
        let device = self.device.ok_or_else(missing)?.one()?;
        self.application_server.check()?;
        let both =
            [("devicePorts", &self.device_ports), ("applicationServerPorts", &self.application_server_ports)];
        both.into_iter().try_for_each(|(field, ports)| ports.as_ref().map_or(Ok(()), |p| p.check(field)))?;
        let hook = Hook::judge(self.sink, self.sink_credential.as_ref(), sinks)?;
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
        let (edge, taken) = (flow.carrier(edges)?, false);
        Ok((
            profile,
            Session { flow, profile: name, duration, began_ms: now_ms, ended: None, edge, taken, hook },
        ))
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

    /// Whether it has ever been in effect.
    fn was_available(&self) -> bool {
        self.edge.is_none() || self.taken
    }

    /// Whether its application may still ask for it.
    pub fn is_known(&self) -> bool {
        self.ended.is_none_or(|(_, why)| why != Why::DeleteRequested)
    }

    /// How long its lease is to last from `now_ms` on.
    pub fn left_ms(&self, now_ms: u64) -> u32 {
        let longest = u64::from(MAX_TTL_MS);
        self.ends_ms().saturating_sub(now_ms).clamp(MIN_TTL_MS.into(), longest) as u32
    }

    /// How it stands at `now_ms`, and why if it is over.
    pub fn stands(&self, now_ms: u64) -> (Status, Option<Why>) {
        match (self.is_available(now_ms), self.was_available()) {
            (true, true) => (Status::Available, None),
            (true, false) => (Status::Requested, None),
            (false, _) => {
                (Status::Unavailable, Some(self.ended.map_or(Why::DurationExpired, |(_, why)| why)))
            }
        }
    }

    /// As it is shown.
    pub fn info(&self, id: &str, now_ms: u64) -> SessionInfo {
        let (status, why) = self.stands(now_ms);
        let lasted = (self.ends_ms() - self.began_ms) / 1_000;
        SessionInfo {
            session_id: id.into(),
            flow: self.flow.clone(),
            qos_profile: self.profile.clone(),
            sink: self.hook.as_ref().map(|hook| hook.sink.clone()),
            duration: lasted.max(1),
            started_at: self.was_available().then(|| date_time(self.began_ms)),
            expires_at: (status != Status::Requested).then(|| date_time(self.ends_ms())),
            qos_status: status,
            status_info: why,
        }
    }

    /// As its box is told of it.
    pub fn at_edge(&self, id: &str, wish: &Request, now_ms: u64) -> SessionNow {
        SessionNow {
            session: id.into(),
            path: wish.path.clone(),
            rate_bps: wish.rate,
            left_ms: self.ends_ms().saturating_sub(now_ms),
            device: self.flow.device_ends(),
            server: self.flow.server_ends(),
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
pub(super) fn date_time(ms: u64) -> String {
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

/// The same with its milliseconds: two events of a second have an order.
pub(super) fn date_time_ms(ms: u64) -> String {
    let seconds = date_time(ms);
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_meet_where_a_packet_may_be_at_both() {
        let end = |prefix: &str, ports: &[[u16; 2]]| End { prefix: prefix.into(), ports: ports.to_vec() };
        for (one, other, meet) in [
            (end("10.0.0.0/24", &[]), end("10.0.0.7", &[]), true),
            (end("10.0.0.0/24", &[]), end("10.0.1.7/32", &[]), false),
            (end("0.0.0.0/0", &[]), end("10.0.1.7/32", &[[1, 2]]), true),
            (end("10.0.0.7", &[[5, 9]]), end("10.0.0.7", &[[1, 2], [9, 9]]), true),
            (end("10.0.0.7", &[[5, 9]]), end("10.0.0.7", &[[10, 12]]), false),
            (end("2001:db8::/32", &[]), end("2001:db8:1::/64", &[]), true),
            (end("::/0", &[]), end("0.0.0.0/0", &[]), false),
        ] {
            assert_eq!(ends_meet(&one, &other), meet, "{one:?} {other:?}");
            assert_eq!(ends_meet(&other, &one), meet, "{other:?} {one:?}");
        }
    }

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
        assert_eq!(date_time_ms(1_767_225_599_007), "2025-12-31T23:59:59.007Z");
    }
}

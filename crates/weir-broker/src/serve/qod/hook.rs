//! Where an application hears of its session.

use super::Error;
use crate::serve::config::{Sink, Sinks};
use crate::serve::day::Day;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where the application of a session hears of it, and by what token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hook {
    pub sink: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<Credential>,
}

/// An access token, which ends at that time: milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Credential {
    token: String,
    until_ms: u64,
}

fn refused(code: &'static str, message: impl Into<String>) -> Error {
    Error::new(StatusCode::BAD_REQUEST, code, message)
}

impl Credential {
    /// What an application sends: of the API's credentials the access token alone.
    fn read(value: &Value) -> Result<Self, Error> {
        let field = |name: &str| value[name].as_str().unwrap_or("");
        if field("credentialType") != "ACCESSTOKEN" {
            let message = "sinkCredential.credentialType: expected ACCESSTOKEN: only access tokens are sent";
            return Err(refused("INVALID_CREDENTIAL", message));
        }
        if field("accessTokenType") != "bearer" {
            return Err(refused("INVALID_TOKEN", "sinkCredential.accessTokenType: expected bearer"));
        }
        let token = field("accessToken");
        if !(1..=4_096).contains(&token.len()) || !token.bytes().all(|b| b.is_ascii_graphic()) {
            let message =
                "sinkCredential.accessToken: expected 1 to 4096 printable ASCII characters without blanks";
            return Err(refused("INVALID_TOKEN", message));
        }
        let Some(until_ms) = time(field("accessTokenExpiresUtc")) else {
            let message =
                "sinkCredential.accessTokenExpiresUtc: expected a time (UTC), as 2027-11-22T12:00:00Z";
            return Err(refused("INVALID_TOKEN", message));
        };
        Ok(Credential { token: token.to_owned(), until_ms })
    }
}

/// A time of RFC 3339 in UTC, in milliseconds since 1970.
fn time(text: &str) -> Option<u64> {
    let (day, clock) = text.strip_suffix(['Z', 'z'])?.split_once(['T', 't'])?;
    let clock = clock.split_once('.').map_or(clock, |(seconds, _)| seconds);
    let mut parts = clock.split(':').map(|part| (part.len() == 2).then(|| part.parse::<u64>().ok())?);
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let fits = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none();
    fits.then_some(Day::parse(day)?.0 + ((hour * 60 + minute) * 60 + second) * 1_000)
}

impl Hook {
    /// What an application asks for.
    ///
    /// # Errors
    /// It may have no such sink, or the credential is none that is sent.
    pub fn judge(
        sink: Option<String>,
        credential: Option<&Value>,
        allowed: &Sinks,
    ) -> Result<Option<Self>, Error> {
        let Some(sink) = sink else {
            return match credential {
                None => Ok(None),
                Some(_) => Err(refused("INVALID_SINK", "sink: expected one beside sinkCredential")),
            };
        };
        if allowed.allow.is_empty() {
            let message = "sink: this broker sends no notifications: leave it out, and GET the session";
            return Err(refused("INVALID_SINK", message));
        }
        let parsed =
            Sink::parse(&sink).map_err(|expected| refused("INVALID_SINK", format!("sink: {expected}")))?;
        if !allowed.allows(&parsed) {
            let message =
                "sink: the broker's operator allows none that begins so: [sink] of its file says which";
            return Err(refused("INVALID_SINK", message));
        }
        Ok(Some(Hook { sink, credential: credential.map(Credential::read).transpose()? }))
    }

    /// The token to send at `now_ms`.
    pub(super) fn token(&self, now_ms: u64) -> Result<Option<&str>, String> {
        match &self.credential {
            Some(Credential { until_ms, .. }) if *until_ms <= now_ms => {
                Err("its access token has ended".into())
            }
            credential => Ok(credential.as_ref().map(|credential| credential.token.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for ms in [0, 951_827_696_000, 1_767_225_599_000, 4_102_444_800_000] {
            assert_eq!(time(&super::super::session::date_time(ms)), Some(ms));
        }
        assert_eq!(time("2027-11-22t12:00:00.123z"), time("2027-11-22T12:00:00Z"));
        for bad in ["", "2027-11-22", "2027-11-22T12:00:00", "2027-11-22T24:00:00Z", "2027-11-22T1:00:00Z"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}

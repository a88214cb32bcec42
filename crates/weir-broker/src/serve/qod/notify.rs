//! Notifications: an application that named a sink hears how its session stands, as a CloudEvent by HTTP POST.
//!
//! Nothing waits for a sink. An event goes into a bounded list, and a task of its own sends it: at once, and after each of
//! [`PAUSES`] until the sink takes it (2xx). Then, or when that has failed, the audit has a line. Redirections are not
//! followed, and no answer is read beyond its status. A broker that stops forgets what waits.

use super::session::Session;
use super::{Desk, Error, new_id};
use crate::book::{Command, Name};
use crate::http::Connection;
use crate::journal::Given;
use crate::serve::clock::time_of_day_ms;
use crate::serve::config::{Sink, Sinks};
use crate::serve::day::Day;
use crate::serve::who::BROKER;
use axum::body::Bytes;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

/// Between two tries.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(30), Duration::from_secs(120)];
/// How long a sink may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Events that wait at most, and of one owner.
const WAITING: usize = 1_024;
const OF_OWNER: usize = 64;
/// Sinks that are called at once.
const AT_ONCE: usize = 32;
const TYPE: &str = "org.camaraproject.quality-on-demand.v1.qos-status-changed";

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
    fn token(&self, now_ms: u64) -> Result<Option<&str>, String> {
        match &self.credential {
            Some(Credential { until_ms, .. }) if *until_ms <= now_ms => {
                Err("its access token has ended".into())
            }
            credential => Ok(credential.as_ref().map(|credential| credential.token.as_str())),
        }
    }
}

/// What all notifications share.
pub(in crate::serve) struct Notifier {
    pub(super) allowed: Sinks,
    tls: Option<Arc<ClientConfig>>,
    calls: Semaphore,
    /// How many wait, by owner.
    waiting: Mutex<HashMap<Name, usize>>,
    pauses: Vec<Duration>,
}

impl Notifier {
    /// For these sinks.
    ///
    /// # Errors
    /// The file of who signs cannot be read.
    pub fn new(allowed: Sinks) -> Result<Self, String> {
        let tls = allowed.tls()?;
        // A test is less patient.
        let pauses = if cfg!(test) { PAUSES.map(|pause| pause / 100).to_vec() } else { PAUSES.to_vec() };
        Ok(Notifier { allowed, tls, calls: Semaphore::new(AT_ONCE), waiting: Mutex::default(), pauses })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Name, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another event of this owner has room.
    fn takes(&self, owner: &str) -> bool {
        let mut waiting = self.waiting();
        if waiting.values().sum::<usize>() >= WAITING {
            return false;
        }
        let own = waiting.entry(owner.into()).or_default();
        let has_room = *own < OF_OWNER;
        *own += usize::from(has_room);
        has_room
    }

    fn done(&self, owner: &str) {
        let mut waiting = self.waiting();
        if let Some(own) = waiting.get_mut(owner) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(owner);
            }
        }
    }

    /// Sends an event once. Whatever the sink answers is no reason to wait for more of it.
    async fn send(&self, sink: &Sink, hook: &Hook, event: &Bytes) -> Result<(), String> {
        let target = sink.target(self.tls.as_ref()).ok_or("[sink] has no `ca`")?;
        let Ok(_turn) = self.calls.acquire().await else { return Err("the broker stops".into()) };
        // It may have ended while others had their turn.
        let token = hook.token(time_of_day_ms())?;
        let sent = timeout(PATIENCE, async {
            let mut to = Connection::open(&target, token, PATIENCE).await?;
            to.post(sink.path(), "application/cloudevents+json", event.clone()).await
        });
        match sent.await {
            Err(_) => Err("no answer".into()),
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(format!("it answers {status}")),
            Ok(Err(why)) => Err(why.to_string()),
        }
    }
}

impl Desk {
    /// The application of a session hears how it stands now, if it named a sink.
    pub(super) fn notify(self: &Arc<Self>, lease: &Name, session: &Session, now_ms: u64) {
        let Some(hook) = session.hook.clone() else { return };
        let (owner, id) = lease.split_once('/').unwrap_or((lease, ""));
        let Ok(sink) = Sink::parse(&hook.sink) else { return };
        let (status, why) = session.stands(now_ms);
        let mut data = json!({"sessionId": id, "qosStatus": status});
        if let Some(why) = why {
            data["statusInfo"] = json!(why);
        }
        let Ok(event_id) = new_id() else { return };
        let event = json!({
            "id": event_id,
            "source": format!("/quality-on-demand/v1/sessions/{id}"),
            "specversion": "1.0",
            "type": TYPE,
            "time": super::session::date_time_ms(now_ms),
            "datacontenttype": "application/json",
            "data": data,
        });
        let event = Bytes::from(event.to_string());
        let said = data["qosStatus"].as_str().unwrap_or("").to_owned();
        if !self.notifier.takes(owner) {
            self.log.refused(&format!("{lease}: {said}: too many notifications of {owner} wait"));
            return;
        }
        let (desk, lease, owner) = (self.clone(), lease.clone(), owner.to_owned());
        tokio::spawn(async move {
            let mut tries = 0;
            let mut pauses = desk.notifier.pauses.iter();
            let is_taken = loop {
                tries += 1;
                let why = match desk.notifier.send(&sink, &hook, &event).await {
                    Ok(()) => break true,
                    Err(why) => why,
                };
                let Some(pause) = pauses.next() else {
                    desk.log.refused(&format!(
                        "{lease}: {said}: the sink at {} has not taken it: {why}",
                        sink.host()
                    ));
                    break false;
                };
                tokio::time::sleep(*pause).await;
            };
            desk.notifier.done(&owner);
            let command = Command::Notified { lease, status: said.into(), tries, is_taken };
            // If the broker stops now, that stands nowhere.
            let _ = desk.keeper.commit(vec![Given { who: BROKER.into(), command }]).await;
        });
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

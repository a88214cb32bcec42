//! Notifications: an application that named a sink hears how its session stands, as a CloudEvent by HTTP POST.
//!
//! Nothing waits for a sink. An event goes into a bounded list, and a task of its own sends it: at once, and after each of
//! [`PAUSES`](super::notifier::PAUSES) until the sink takes it (2xx). Then, or when that has failed, the audit has a line. Redirections are not
//! followed, and no answer is read beyond its status. A broker that stops forgets what waits.

use super::session::Session;
use super::{Desk, new_id};
use crate::book::{Command, Name};
use crate::journal::Given;
use crate::serve::config::Sink;
use crate::serve::who::BROKER;
use axum::body::Bytes;
use serde_json::json;
use std::sync::Arc;

const TYPE: &str = "org.camaraproject.quality-on-demand.v1.qos-status-changed";

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

//! How a session begins, is shown, and ends.

use super::*;

#[test]
fn a_session_is_a_lease_that_is_begun_shown_extended_and_ended() {
    let folder = Folder::new("qod");
    within(async {
        let (broker, mut to) = start(&folder, offering(&folder)).await;
        let first = begins(&mut to, asked(1, 600)).await;
        assert_eq!((&first["qosStatus"], &first["duration"]), (&json!("AVAILABLE"), &json!(600)));
        let mut expected = asked(1, 600);
        for key in ["sessionId", "startedAt", "expiresAt", "qosStatus"] {
            expected[key] = first[key].clone();
        }
        assert_eq!(first, expected, "it says what was asked, and no more");
        let id = first["sessionId"].as_str().expect("it has one");
        let (_, lease) = call(&mut to, Method::GET, &format!("/v1/leases/socket/{id}"), "").await;
        assert_eq!((&lease["granted_bps"], &lease["path"]), (&json!(400), &json!(["wan:rt"])), "{lease}");
        assert_eq!(shown(&mut to, &first).await, first);

        let message = refuses(&mut to, Method::POST, SESSIONS, asked(1, 60), (409, "CONFLICT")).await;
        assert_eq!(message, format!("session {id} is for the same traffic: DELETE it first"));
        let second = begins(&mut to, asked(2, 60)).await;
        assert_eq!((&second["qosStatus"], taken(&mut to).await), (&json!("AVAILABLE"), 800));
        // There is no room for a third one.
        let third = begins(&mut to, asked(3, 60)).await;
        assert_eq!(third["statusInfo"], "NETWORK_TERMINATED", "{third}");
        assert_eq!(shown(&mut to, &third).await, third);

        let more = |seconds: u64| json!({"requestedAdditionalDuration": seconds});
        let extend = |session: &Value| format!("{}/extend", at(session));
        // No longer than the profile allows.
        for (seconds, lasts) in [(60, 660), (9_999, 3_600)] {
            let (status, longer) = call(&mut to, Method::POST, &extend(&first), more(seconds)).await;
            assert_eq!((status, &longer["duration"]), (200, &json!(lasts)), "{longer}");
        }
        let not_allowed = (409, "QUALITY_ON_DEMAND.SESSION_EXTENSION_NOT_ALLOWED");
        refuses(&mut to, Method::POST, &extend(&third), more(60), not_allowed).await;

        let of = |device: u8| json!({"device": asked(device, 1)["device"]}).to_string();
        let retrieve = "/quality-on-demand/v1/retrieve-sessions";
        for (device, found) in [(2, json!([second])), (9, json!([]))] {
            assert_eq!(call(&mut to, Method::POST, retrieve, of(device)).await, (200, found));
        }

        ends(&mut to, &second).await;
        ends(&mut to, &third).await;
        refuses(&mut to, Method::GET, &at(&second), "", (404, "NOT_FOUND")).await;
        assert_eq!(taken(&mut to).await, 400);
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn a_session_ends_by_itself_also_when_the_broker_starts_again() {
    let folder = Folder::new("qod-ends");
    within(async {
        let (broker, mut to) = start(&folder, offering(&folder)).await;
        let short = begins(&mut to, asked(1, 1)).await;
        let longer = begins(&mut to, asked(2, 5)).await;
        let ended = becomes(&mut to, &short, "UNAVAILABLE", "DURATION_EXPIRED").await;
        assert_eq!((&ended["duration"], &ended["expiresAt"]), (&json!(1), &short["expiresAt"]));
        takes(&mut to, 400, Duration::from_secs(4)).await;
        broker.stop().await.expect("nothing failed");

        let (broker, mut to) = start(&folder, offering(&folder)).await;
        assert_eq!(shown(&mut to, &longer).await, longer);
        assert_eq!(taken(&mut to).await, 400);
        // The book has given the lease its whole time again. The session ends when it was said to.
        becomes(&mut to, &longer, "UNAVAILABLE", "DURATION_EXPIRED").await;
        takes(&mut to, 0, Duration::from_secs(1)).await;
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn of_sessions_that_are_called_back_as_many_end_as_must() {
    let folder = Folder::new("qod-back");
    within(async {
        let (broker, mut to) = start(&folder, offering(&folder)).await;
        let mut both = Vec::new();
        for device in [1, 2] {
            both.push(begins(&mut to, asked(device, 600)).await);
        }
        for (capacity, left) in [(500, 400), (300, 0)] {
            has(&mut to, capacity).await;
            takes(&mut to, left, Duration::from_secs(4)).await;
            let mut available = 0;
            for session in &both {
                let now = shown(&mut to, session).await;
                if now["qosStatus"] == "AVAILABLE" {
                    available += 1;
                } else {
                    assert_eq!(now["statusInfo"], json!("NETWORK_TERMINATED"));
                }
            }
            assert_eq!(available * 400, left, "as many go on as fit");
        }
        broker.stop().await.expect("nothing failed");
    });
}

/// Whoever hears of what is called back is not there yet when a broker starts with less: the book says what is called back.
#[test]
fn sessions_that_are_called_back_at_the_start_end() {
    let folder = Folder::new("qod-back-start");
    within(async {
        let (broker, mut to) = start(&folder, offering(&folder)).await;
        for device in [1, 2] {
            let session = begins(&mut to, asked(device, 600)).await;
            assert_eq!(session["qosStatus"], "AVAILABLE", "{session}");
        }
        broker.stop().await.expect("nothing failed");
        let mut less = offering(&folder);
        less.resources[0].capacity = BitRate::from_bps(500);
        let (broker, mut to) = start(&folder, less).await;
        takes(&mut to, 400, Duration::from_secs(4)).await;
        broker.stop().await.expect("nothing failed");
    });
}

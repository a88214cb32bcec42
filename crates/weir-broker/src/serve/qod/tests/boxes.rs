//! Sessions that a box at the edge carries.

use super::*;

/// The box hears of a session at once, and what it says of it counts: it is there once the box has it, and free once the box
/// has it no longer.
#[test]
fn a_session_is_what_its_box_says() {
    let folder = Folder::new("qod-box");
    within(async {
        let (broker, mut app) = start(&folder, with_box(&folder)).await;
        let mut edge = connect(&folder.unix(), None).await;
        let events = connect(&folder.unix(), None).await.listen("/v1/events").await;
        let mut events = events.expect("it listens");
        let nudge = Some("{\"event\":\"sessions\",\"edge\":\"e0\"}".to_owned());
        assert_eq!(says(&mut edge, &[]).await, json!({"holds_ms": 30_000, "sessions": []}));
        let first = begins(&mut app, asked(1, 600)).await;
        assert_eq!((&first["qosStatus"], &first["startedAt"]), (&json!("REQUESTED"), &Value::Null));
        while events.next(PATIENCE).await != nudge {}
        let told = says(&mut edge, &[]).await;
        let session = &told["sessions"][0];
        assert!((590_000..=600_000).contains(&session["left_ms"].as_u64().expect("a number")), "{told}");
        let ends = (&session["device"], &session["server"]);
        let device = json!([{"prefix": "203.0.113.1/32", "ports": [[5000, 5000]]}]);
        let server = json!([{"prefix": "198.51.100.0/24", "ports": [[5010, 5020]]}]);
        assert_eq!((ends, &session["rate_bps"]), ((&device, &server), &json!(400)), "{told}");
        assert_eq!(shown(&mut app, &first).await["qosStatus"], "REQUESTED");
        says(&mut edge, &[&first]).await;
        let now = shown(&mut app, &first).await;
        assert_eq!(now["qosStatus"], "AVAILABLE", "{now}");
        // It stays so while the box is away, and is as long as before.
        says(&mut edge, &[]).await;
        assert_eq!(shown(&mut app, &first).await, now);

        // Its bandwidth is counted until the box has come down.
        let deleted = deletes(&folder, &first);
        while events.next(PATIENCE).await != nudge {}
        assert_eq!(says(&mut edge, &[&first]).await["sessions"], json!([]));
        assert_eq!(taken(&mut app).await, 400);
        refuses(&mut app, Method::GET, &at(&first), "", (404, "NOT_FOUND")).await;
        let again = begins(&mut app, asked(1, 600)).await;
        assert_eq!(again["qosStatus"], "REQUESTED", "the same traffic may have another: {again}");
        assert_eq!(taken(&mut app).await, 800);
        says(&mut edge, &[&again]).await;
        deleted.await.expect("no panic");
        assert_eq!(taken(&mut app).await, 400);

        // So it is where the network ends one, which is remembered. What the box is told meanwhile survives a broker.
        has(&mut app, 300).await;
        becomes(&mut app, &again, "UNAVAILABLE", "NETWORK_TERMINATED").await;
        assert_eq!(taken(&mut app).await, 400);
        broker.stop().await.expect("nothing failed");
        let (broker, mut app) = start(&folder, with_box(&folder)).await;
        let mut edge = connect(&folder.unix(), None).await;
        assert_eq!(taken(&mut app).await, 400);
        assert_eq!(says(&mut edge, &[&again]).await["sessions"], json!([]));
        says(&mut edge, &[]).await;
        assert_eq!(taken(&mut app).await, 0);
        becomes(&mut app, &again, "UNAVAILABLE", "NETWORK_TERMINATED").await;
        broker.stop().await.expect("nothing failed");
    });
}

/// A session that its box had and names no longer ends: it has no bandwidth there, whatever it was said to be. As long as the box
/// names it, it goes on.
#[test]
fn a_session_that_its_box_has_no_longer_ends() {
    let folder = Folder::new("qod-silent");
    within(async {
        let (broker, mut app) = start(&folder, with_box(&folder)).await;
        let mut edge = connect(&folder.unix(), None).await;
        let named = begins(&mut app, asked(1, 600)).await;
        let silent = begins(&mut app, asked(2, 600)).await;
        says(&mut edge, &[&named, &silent]).await;
        let since = Instant::now();
        loop {
            says(&mut edge, &[&named]).await;
            let now = shown(&mut app, &silent).await;
            if now["statusInfo"] == "NETWORK_TERMINATED" {
                break;
            }
            assert_eq!(now["qosStatus"], "AVAILABLE", "{now}");
            assert!(since.elapsed() < 2 * super::super::edges::SILENT, "{now}");
            sleep(Duration::from_millis(50)).await;
        }
        assert!(since.elapsed() >= super::super::edges::SILENT, "{:?}", since.elapsed());
        assert_eq!(shown(&mut app, &named).await["qosStatus"], "AVAILABLE");
        broker.stop().await.expect("nothing failed");
    });
}

/// Traffic at a box is sold once: whoever asks for some of it as another hears so, and not whose it is.
#[test]
fn the_traffic_of_a_box_is_sold_once() {
    let folder = Folder::new("qod-once");
    let mut config = with_box(&folder);
    config.http = Some("127.0.0.1:0".parse().expect("an address"));
    let token = token(&mut config, "game", Role::Operate, Some("g"));
    within(async {
        let (broker, mut app) = start(&folder, config).await;
        let first = begins(&mut app, asked(1, 600)).await;
        let mut other = connect(&by_http(&broker), Some(&token)).await;
        let mut part = asked(1, 600);
        part["applicationServer"] = json!({"ipv4Address": "198.51.100.7"});
        part["applicationServerPorts"] = json!({"ports": [5015]});
        let message = refuses(&mut other, Method::POST, SESSIONS, part.clone(), (409, "CONFLICT")).await;
        let id = first["sessionId"].as_str().expect("one");
        assert!(!message.contains(id) && !message.contains("socket"), "{message}");
        part["applicationServerPorts"] = json!({"ports": [5021]});
        begins(&mut other, part).await;
        broker.stop().await.expect("nothing failed");
    });
}

/// A device is found by either of its addresses, by IPv6 as its whole /64; a device that no box has is none of this broker's.
#[test]
fn the_traffic_of_a_device_is_where_its_addresses_are() {
    let folder = Folder::new("qod-where");
    within(async {
        let (broker, mut to) = start(&folder, with_box(&folder)).await;
        let with = |device: Value, server: Value| {
            let mut body = asked(1, 600);
            (body["device"], body["applicationServer"]) = (device, server);
            body["devicePorts"] = json!({"ports": [7], "ranges": [{"from": 9, "to": 10}]});
            body
        };
        let (v4, v6) = (json!({"ipv4Address": "192.0.2.0/24"}), json!({"ipv6Address": "2001:db8:1::/64"}));
        let ports = json!([[9, 10], [7, 7]]);
        for (device, server, ends) in [
            (
                json!({"ipv6Address": "2001:db8:17:3::9"}),
                &v6,
                json!([{"prefix": "2001:db8:17:3::/64", "ports": ports}]),
            ),
            (
                json!({"ipv4Address": {"publicAddress": "192.0.2.1", "privateAddress": "203.0.113.9"}}),
                &v4,
                json!([{"prefix": "203.0.113.9/32", "ports": ports}]),
            ),
            (
                json!({"ipv4Address": {"publicAddress": "203.0.113.9", "privateAddress": "10.0.0.1", "publicPort": 80}}),
                &v4,
                json!([{"prefix": "10.0.0.1/32", "ports": ports}, {"prefix": "203.0.113.9/32", "ports": [[80, 80]]}]),
            ),
        ] {
            let session = begins(&mut to, with(device, server.clone())).await;
            let told = says(&mut to, &[]).await;
            assert_eq!(told["sessions"][0]["device"], ends, "{told}");
            // The box never had it.
            let deleted = deletes(&folder, &session);
            while says(&mut to, &[]).await["sessions"] != json!([]) {}
            deleted.await.expect("no panic");
        }
        let v4_device = json!({"ipv4Address": {"publicAddress": "203.0.113.9", "publicPort": 80}});
        let v6_device = json!({"ipv6Address": "2001:db8:17:3::9"});
        let stranger = json!({"ipv4Address": {"publicAddress": "192.0.2.1", "privateAddress": "10.0.0.1"}});
        for (device, server, status, code, message) in [
            (
                &v4_device,
                &v6,
                400,
                "INVALID_ARGUMENT",
                "applicationServer: expected ipv4Address, by which the device is named",
            ),
            (
                &v6_device,
                &v4,
                400,
                "INVALID_ARGUMENT",
                "applicationServer: expected ipv6Address, by which the device is named",
            ),
            (
                &stranger,
                &v4,
                422,
                "SERVICE_NOT_APPLICABLE",
                "device: no [[edge]] of the broker's file has the devices of 10.0.0.1 or 192.0.2.1: the operator adds their prefix there",
            ),
        ] {
            let body = with(device.clone(), server.clone());
            assert_eq!(refuses(&mut to, Method::POST, SESSIONS, body, (status, code)).await, message);
        }
        let (status, answer) = call(&mut to, Method::PUT, "/v1/sessions/e0", "{}").await;
        assert_eq!(
            (status, answer["error"].as_str()),
            (400, Some("the body: missing field `sessions` at line 1 column 2"))
        );
        broker.stop().await.expect("nothing failed");
    });
}

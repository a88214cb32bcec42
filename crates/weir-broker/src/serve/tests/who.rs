//! Who comes in, by token or certificate, and what each may do.

use super::super::SILENCE;
use super::super::config::Tls;
use super::super::day::Day;
use super::super::who::REQUESTS_PER_SECOND;
use super::*;
use crate::http::HttpError;
use hyper::StatusCode;
use std::path::Path;

#[test]
fn tokens_allow_what_their_role_and_owner_do_and_no_more_than_so_many_requests() {
    let folder = Folder::new("tokens");
    let mut config = folder.config();
    config.http = Some("127.0.0.1:0".parse().expect("an address"));
    let mut token = |name, role, owner| token(&mut config, name, role, owner);
    let (reads, edge) = (token("reads", Role::Read, None), token("edge", Role::Operate, Some("e")));
    let (admin, ended) = (token("admin", Role::Admin, None), token("ended", Role::Admin, None));
    config.tokens[3].expires = Some(Day(0));
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let target = by_http(&broker);
        let (lease, other, set) = ("/v1/leases/e/1", "/v1/leases/f/1", "/v1/resources/wan:rt");
        for (token, method, path, body, status, error) in [
            (None, Method::GET, "/v1/leases", json!(""), 401, "there is no token and no certificate"),
            (Some("guess"), Method::GET, "/v1/leases", json!(""), 401, "nobody has this token"),
            (Some(&*ended), Method::GET, "/v1/leases", json!(""), 401, "this token has ended"),
            (Some(&*reads), Method::GET, "/v1/leases", json!(""), 200, ""),
            (Some(&*reads), Method::PUT, lease, wish(1, 1), 403, "reads has the role read: expected operate"),
            (Some(&*edge), Method::PUT, lease, wish(1, 1), 200, ""),
            (Some(&*edge), Method::PUT, other, wish(1, 1), 403, "edge does not own f/1"),
            (Some(&*edge), Method::DELETE, other, json!(""), 403, "edge does not own f/1"),
            (
                Some(&*edge),
                Method::PUT,
                set,
                json!({"capacity_bps": 9}),
                403,
                "edge has the role operate: expected admin",
            ),
            (
                Some(&*edge),
                Method::GET,
                "/v1/audit",
                json!(""),
                403,
                "edge has the role operate: expected admin",
            ),
            (Some(&*admin), Method::PUT, other, wish(1, 1), 200, ""),
            (Some(&*edge), Method::GET, other, json!(""), 404, "there is no such lease"),
            (Some(&*admin), Method::GET, other, json!(""), 200, ""),
        ] {
            let mut to = connect(&target, token).await;
            let (said, answer) = call(&mut to, method.clone(), path, body).await;
            assert_eq!((said, answer["error"].as_str().unwrap_or("")), (status, error), "{method} {path}");
        }
        let mut to = connect(&target, Some(&edge)).await;
        let (_, own) = call(&mut to, Method::GET, "/v1/leases", "").await;
        assert_eq!(own["leases"].as_array().map(Vec::len), Some(1), "it sees its own: {own}");
        let mut refused = 0;
        for _ in 0..2 * REQUESTS_PER_SECOND {
            refused += u32::from(
                to.call(Method::GET, "/v1/resources", Bytes::new()).await.expect("it answers").0
                    == StatusCode::TOO_MANY_REQUESTS,
            );
        }
        assert!(refused > 0, "200 requests at once are too many");
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_edge_is_who_its_certificate_says_and_others_do_not_come_in() {
    let folder = Folder::new("tls");
    let (good, wrong) = (Authority::new(&folder, "ca"), Authority::new(&folder, "other-ca"));
    let loopback = SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let (cert, key) = good.sign(&folder, "broker", loopback, false);
    let ca = folder.at("ca.pem");
    let listen = "127.0.0.1:0".parse().expect("an address");
    let config =
        Config { tls: Some(Tls { listen, cert, key, ca: ca.clone(), crl: None }), ..folder.config() };
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let at = broker.tls().expect("it listens").to_string();
        let as_who = |own: Option<&(PathBuf, PathBuf)>, ca: &Path| {
            let own = own.map(|(cert, key)| (&**cert, &**key));
            Target::Tls(at.clone(), crate::tls::client(ca, own).expect("the files are good"))
        };
        let edge = good.sign(&folder, "edge", uri("weir:edge:e"), false);
        let mut to = connect(&as_who(Some(&edge), &ca), None).await;
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/e/1", wish(1, 5)).await.0, 200);
        assert_eq!(call(&mut to, Method::PUT, "/v1/leases/f/1", wish(1, 5)).await.0, 403);
        let mut both = connect(&as_who(Some(&edge), &ca), Some("token")).await;
        assert_eq!(call(&mut both, Method::GET, "/v1/leases", "").await.0, 401);
        let mut nobody = connect(&as_who(None, &ca), None).await;
        assert_eq!(call(&mut nobody, Method::GET, "/v1/leases", "").await.0, 401);
        for (what, own, ca) in [
            ("ended", Some(good.sign(&folder, "ended", uri("weir:edge:e"), true)), &ca),
            ("another's", Some(wrong.sign(&folder, "wrong", uri("weir:edge:e"), false)), &ca),
            ("no edge", Some(good.sign(&folder, "none", uri("weir:host:e"), false)), &ca),
            ("a slash", Some(good.sign(&folder, "slash", uri("weir:edge:e/f"), false)), &ca),
            ("another broker", None, &folder.at("other-ca.pem")),
        ] {
            // With TLS 1.3 the client may hear at its first request that its certificate was refused.
            let came_in = match Connection::open(&as_who(own.as_ref(), ca), None, PATIENCE).await {
                Ok(mut to) => to.call(Method::GET, "/v1/leases", Bytes::new()).await.map(drop),
                Err(e) => Err(e),
            };
            assert!(matches!(came_in, Err(HttpError::Unreachable(_))), "{what}: {came_in:?}");
        }
        assert_eq!(
            audited(&mut connect(&folder.unix(), None).await).await.line,
            3,
            "one lease, nothing else"
        );
        broker.stop().await.expect("nothing failed");
    });
}

#[test]
fn an_edge_whose_certificate_is_revoked_goes_and_does_not_come_back() {
    let folder = Folder::new("crl");
    let authority = Authority::new(&folder, "ca");
    let (cert, key) =
        authority.sign(&folder, "broker", SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()), false);
    let (ca, listen) = (folder.at("ca.pem"), "127.0.0.1:0".parse().expect("an address"));
    authority.revoke(&folder, &[]);
    let crl = Some(folder.at("revoked.pem"));
    let config = Config { tls: Some(Tls { listen, cert, key, ca: ca.clone(), crl }), ..folder.config() };
    let [one, other] = ["one", "other"].map(|name| {
        let (cert, key) = authority.sign(&folder, name, uri(&format!("weir:edge:{name}")), false);
        crate::tls::client(&ca, Some((&cert, &key))).expect("the files are good")
    });
    within(async {
        let broker = Broker::start(config).await.expect("it starts");
        let at = broker.tls().expect("it listens").to_string();
        let see =
            async |to: &mut Connection| to.call(Method::GET, "/v1/leases", Bytes::new()).await.map(|a| a.0);
        let mut to = connect(&Target::Tls(at.clone(), one.clone()), None).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        // What cannot be read changes nothing.
        std::fs::write(folder.at("revoked.pem"), "nothing").expect("the folder is writable");
        tokio::time::sleep(2 * SILENCE).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        authority.revoke(&folder, &["one"]);
        while see(&mut to).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let again = match Connection::open(&Target::Tls(at.clone(), one), None, PATIENCE).await {
            Ok(mut to) => see(&mut to).await,
            Err(e) => Err(e),
        };
        assert!(matches!(again, Err(HttpError::Unreachable(_))), "{again:?}");
        let mut to = connect(&Target::Tls(at, other), None).await;
        assert_eq!(see(&mut to).await, Ok(StatusCode::OK));
        broker.stop().await.expect("nothing failed");
    });
}

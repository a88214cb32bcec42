//! A broker behind its doors, and those who come to them: what the tests of all doors need.

mod leases;
mod process;
mod who;

use super::Broker;
use super::config::{Config, Resource};
use super::who::Token;
use super::who::{Role, new_token};
use crate::audit::Chain;
use crate::http::{Connection, Target};
use crate::store::Place;
use crate::wire::AuditLines;
use axum::Router;
use axum::body::{Body, Bytes};
use hyper::Method;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, SerialNumber,
};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use weir_text::BitRate;

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A folder that goes with its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-broker-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the folder for temporary files is writable");
        Folder(path)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn config(&self) -> Config {
        Config {
            domain: "core".into(),
            store: Place::File(self.at("core.redb")),
            unix: self.at("broker.sock"),
            http: None,
            tls: None,
            cops: None,
            audit_lines: 1_000,
            priority: weir_sys::Priority::None,
            resources: vec![Resource { name: "wan:rt".into(), capacity: BitRate::from_bps(1_000) }],
            agreements: Vec::new(),
            neighbours: Vec::new(),
            profiles: Vec::new(),
            edges: Vec::new(),
            sinks: Default::default(),
            tokens: Vec::new(),
        }
    }

    pub fn unix(&self) -> Target {
        Target::Unix(self.at("broker.sock"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be made").block_on(work)
}

pub(crate) async fn connect(target: &Target, token: Option<&str>) -> Connection {
    Connection::open(target, token, PATIENCE).await.expect("the broker is there")
}

/// Sends `body`, and reads the status and the answer as JSON.
pub(crate) async fn call(
    to: &mut Connection,
    method: Method,
    path: &str,
    body: impl ToString,
) -> (u16, serde_json::Value) {
    let (status, bytes) = to.call(method, path, Bytes::from(body.to_string())).await.expect("it answers");
    (status.as_u16(), serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A token that the broker of `config` knows.
pub(crate) fn token(config: &mut Config, name: &str, role: Role, owner: Option<&str>) -> String {
    let (token, sha256) = new_token().expect("there are random numbers");
    let owner = owner.map(Into::into);
    config.tokens.push(Token { name: name.into(), role, owner, sha256, expires: None });
    token
}

/// The door by HTTP.
pub(crate) fn by_http(broker: &Broker) -> Target {
    Target::Plain(broker.http().expect("it listens").to_string())
}

/// Serves `router` at the socket of a folder, where a broker would be.
pub(crate) fn serve(folder: &Folder, router: Router) {
    let listener = UnixListener::bind(folder.at("broker.sock")).expect("it can be made");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(router.clone());
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(async move { http.serve_connection(TokioIo::new(stream), service).await });
        }
    });
}

/// Events, of which none ever comes.
pub(crate) async fn no_events() -> Body {
    let (to, from) = mpsc::channel(1);
    std::mem::forget(to);
    Body::new(super::stream::Stream::new(from))
}

pub(crate) fn wish(version: u64, rate_bps: u64) -> serde_json::Value {
    json!({"version": version, "path": ["wan:rt"], "rate_bps": rate_bps, "ttl_ms": 60_000})
}

/// Lines of the audit, followed to the end.
async fn audited(to: &mut Connection) -> Chain {
    let none = None::<&()>;
    let all: AuditLines = to.json(Method::GET, "/v1/audit", none).await.expect("it answers");
    let mut chain = Chain::default();
    for line in &all.lines {
        chain.follow(line).expect("nothing was changed");
    }
    assert_eq!((chain.line, &chain.digest), (all.last, &all.chain));
    chain
}

/// Who signs certificates.
pub(crate) struct Authority<'a>(CertifiedIssuer<'a, KeyPair>);

impl Authority<'_> {
    pub fn new(folder: &Folder, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect("keys can be made");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it signs itself");
        std::fs::write(folder.at(&format!("{name}.pem")), issuer.pem()).expect("the folder is writable");
        Authority(issuer)
    }

    /// Writes a certificate and its key. Says where they are.
    pub fn sign(&self, folder: &Folder, file: &str, name: SanType, ended: bool) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.subject_alt_names = vec![name];
        params.serial_number = Some(SerialNumber::from_slice(file.as_bytes()));
        if ended {
            (params.not_before, params.not_after) =
                (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        }
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.signed_by(&key, &self.0).expect("it is signed");
        let (cert, private) = (folder.at(&format!("{file}.pem")), folder.at(&format!("{file}.key")));
        std::fs::write(&cert, certificate.pem()).expect("the folder is writable");
        std::fs::write(&private, key.serialize_pem()).expect("the folder is writable");
        (cert, private)
    }

    /// Writes the list of certificates that are no longer good, by the files that they were signed for.
    pub fn revoke(&self, folder: &Folder, files: &[&str]) {
        let revoked = files.iter().map(|file| RevokedCertParams {
            serial_number: SerialNumber::from_slice(file.as_bytes()),
            revocation_time: rcgen::date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2096, 1, 1),
            crl_number: SerialNumber::from(1 + files.len() as u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.0).expect("it is signed").pem().expect("it has a form in PEM");
        std::fs::write(folder.at("revoked.pem"), list).expect("the folder is writable");
    }
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("it is ASCII"))
}

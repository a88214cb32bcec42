//! Where a cluster of etcd is, as the file of a broker says it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::net::IpAddr;
use std::path::PathBuf;
use weir_text::Time;

/// The shortest time of [`Cluster::silence`]. etcd grants no shorter one with its usual times of election.
const SHORTEST: Time = Time::from_secs(2);
/// The longest one.
const LONGEST: Time = Time::from_secs(60);

/// The nodes of etcd, and how a broker comes to them. Paths are relative to the folder of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Where the nodes are.
    pub etcd: Vec<Node>,
    /// Who signs the certificates of the nodes, in PEM. Without it, nodes are `http` on this machine.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The certificate of the broker for etcd, in PEM.
    #[serde(default)]
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(default)]
    pub key: Option<PathBuf>,
    /// A broker that etcd has not heard for so long serves no longer, and another one takes over: 2 to 60 s.
    #[serde(default = "usual_silence", deserialize_with = "silence")]
    pub silence: Time,
}

/// `https://HOST:PORT`, or `http://` and an address of the loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node(pub String);

fn usual_silence() -> Time {
    Time::from_secs(10)
}

fn silence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let time = Time::deserialize(deserializer)?;
    if (SHORTEST..=LONGEST).contains(&time) {
        return Ok(time);
    }
    Err(D::Error::custom("expected 2s to 60s, as \"10s\""))
}

impl Node {
    fn parse(text: &str) -> Result<Self, String> {
        let told = |expected: &str| Err(format!("{text}: expected {expected}"));
        let (tls, at) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(at), _) => (true, at),
            (_, Some(at)) => (false, at),
            _ => return told("https://HOST:PORT, as \"https://10.0.0.1:2379\""),
        };
        let (host, port) = at.rsplit_once(':').unwrap_or((at, ""));
        if host.is_empty() || port.parse::<u16>().is_err() || host.contains(['/', '@', ' ']) {
            return told("HOST:PORT and nothing behind it, as \"https://10.0.0.1:2379\"");
        }
        let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
        if !tls && !address.is_some_and(|address| address.is_loopback()) {
            return told("https:// and `ca`: without TLS only an address of the loopback is safe");
        }
        Ok(Node(text.to_owned()))
    }

    fn has_tls(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Node::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Cluster {
    /// Whether a broker can come to it.
    ///
    /// # Errors
    /// What is wrong, and what was expected.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tls = self.etcd.iter().filter(|node| node.has_tls()).count();
        if self.etcd.is_empty() {
            return Err("[store] etcd = []: expected at least one node, as \"https://10.0.0.1:2379\"".into());
        }
        if tls != 0 && tls != self.etcd.len() {
            return Err("[store] etcd: some nodes are http and some https: make all of them https".into());
        }
        match (tls > 0, &self.ca, &self.cert, &self.key) {
            (true, None, ..) => {
                Err("[store] ca: expected the file with who signs the nodes, as ca = \"etcd-ca.pem\"".into())
            }
            (_, _, Some(_), None) => Err("[store] key: expected the private key of `cert`".into()),
            (_, _, None, Some(_)) => Err("[store] cert: expected the certificate of `key`".into()),
            (false, Some(_), ..) | (false, _, Some(_), _) => {
                Err("[store] ca, cert: the nodes are http: write https, or leave these away".into())
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.cert, &mut self.key].into_iter().flatten()
    }
}

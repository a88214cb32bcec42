//! Where applications may have notifications sent.

use crate::http::Target;
use hyper::Uri;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;

/// The longest address of a sink.
const LONGEST: usize = 512;

/// Where notifications may go. Without it none are sent: whoever may begin a session could have the broker call any address
/// that it can reach.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sinks {
    /// What the address of a sink begins with.
    pub allow: Vec<Sink>,
    /// Who signs the certificates of sinks, in PEM.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}

/// An address by HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    is_tls: bool,
    /// `HOST:PORT`, in small letters.
    at: String,
    path: String,
}

impl Sink {
    /// Reads `https://HOST[:PORT]/PATH`. `http` is for the loopback alone.
    ///
    /// # Errors
    /// What was expected.
    pub(in crate::serve) fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "expected https://HOST/PATH, or http://127.0.0.1:PORT/PATH on this machine";
        let uri: Uri = text.parse().map_err(|_| FORM)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(FORM) };
        let is_tls = scheme.eq_ignore_ascii_case("https");
        let host = authority.host();
        let is_loopback =
            host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if host.is_empty() || !(is_tls || scheme.eq_ignore_ascii_case("http") && is_loopback) {
            return Err(FORM);
        }
        if text.len() > LONGEST {
            return Err("expected at most 512 characters");
        }
        if authority.as_str().contains('@') || text.contains('#') {
            return Err("expected no user and no fragment: send a token as sinkCredential");
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        // Whoever reads such a path may leave what is allowed.
        let is_step = |part: &str| part == "." || part.starts_with("..");
        let small = path.to_ascii_lowercase();
        if ["%2e", "%2f", "%5c", "\\"].into_iter().any(|hidden| small.contains(hidden))
            || path.split(['/', '?']).any(is_step)
        {
            return Err("expected a path without . or .. in it, and without / or \\ as %2F or %5C");
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Sink { is_tls, at: format!("{}:{port}", host.to_ascii_lowercase()), path: path.to_owned() })
    }

    /// Whether this begins as `allowed` does. A path goes on after a `/`, or with a query.
    fn is_below(&self, allowed: &Sink) -> bool {
        let rest = self.path.strip_prefix(allowed.path.as_str());
        let goes_on =
            |rest: &str| rest.is_empty() || allowed.path.ends_with('/') || rest.starts_with(['/', '?']);
        self.is_tls == allowed.is_tls && self.at == allowed.at && rest.is_some_and(goes_on)
    }

    /// The path and query.
    pub(in crate::serve) fn path(&self) -> &str {
        &self.path
    }

    /// Where it is, for the log.
    pub(in crate::serve) fn host(&self) -> &str {
        &self.at
    }

    /// Where to connect. None: it is by TLS, and nobody says who signs.
    pub(in crate::serve) fn target(&self, tls: Option<&Arc<ClientConfig>>) -> Option<Target> {
        match (self.is_tls, tls) {
            (false, _) => Some(Target::Plain(self.at.clone())),
            (true, Some(tls)) => Some(Target::Tls(self.at.clone(), tls.clone())),
            (true, None) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Sink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Sink::parse(&text).map_err(|expected| D::Error::custom(format!("{text}: {expected}")))
    }
}

impl Sinks {
    /// Whether the operator allows this one.
    pub(in crate::serve) fn allows(&self, sink: &Sink) -> bool {
        self.allow.iter().any(|allowed| sink.is_below(allowed))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.ca.is_none() && self.allow.iter().any(|sink| sink.is_tls) {
            let help =
                "ca: expected who signs the certificates of sinks, as \"/etc/ssl/certs/ca-certificates.crt\"";
            return Err(format!("[sink]: {help}"));
        }
        Ok(())
    }

    /// What connections by TLS are made with.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(in crate::serve) fn tls(&self) -> Result<Option<Arc<ClientConfig>>, String> {
        self.ca.as_ref().map(|ca| crate::tls::client(ca, None)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_allowed_by_what_it_begins_with() {
        let sinks: Sinks = toml::from_str(
            "allow = [\"https://App.example.net/qod\", \"https://b.example.net:8443/\", \"http://127.0.0.1:8080/x/\"]\nca = \"c\"",
        )
        .expect("it is usable");
        for (text, allowed) in [
            ("https://app.example.net/qod", true),
            ("https://APP.example.net:443/qod/session?a=b", true),
            ("https://app.example.net/qod?x", true),
            ("https://app.example.net/qodx", false),
            ("https://app.example.net/", false),
            ("https://app.example.net:8443/qod", false),
            ("https://app.example.net.evil.net/qod", false),
            ("https://b.example.net:8443/any", true),
            ("https://b.example.net/any", false),
            ("http://127.0.0.1:8080/x/y", true),
            ("http://127.0.0.1:8080/x", false),
            ("http://127.0.0.1:8081/x/y", false),
            ("https://127.0.0.1:8080/x/y", false),
        ] {
            let sink = Sink::parse(text).expect(text);
            assert_eq!(sinks.allows(&sink), allowed, "{text}");
        }
        for (text, said) in [
            ("app.example.net/qod", "expected https://HOST/PATH"),
            ("http://app.example.net/qod", "expected https://HOST/PATH"),
            ("ftp://app.example.net/qod", "expected https://HOST/PATH"),
            ("https:///qod", "expected https://HOST/PATH"),
            ("https://a@app.example.net/qod", "expected no user"),
            ("https://app.example.net/qod#x", "expected no user and no fragment"),
            ("https://app.example.net/qod/../admin", "expected a path without"),
            ("https://app.example.net/qod/%2E%2e/admin", "expected a path without"),
            ("https://app.example.net/qod/./x", "expected a path without"),
            ("https://app.example.net/qod/..%2Fadmin", "expected a path without"),
            ("https://app.example.net/qod/x%2fadmin", "expected a path without"),
            ("https://app.example.net/qod/x%5Cadmin", "expected a path without"),
            ("https://app.example.net/qod/..;/admin", "expected a path without"),
        ] {
            let why = Sink::parse(text).expect_err(text);
            assert!(why.contains(said), "{text}: {why}");
        }
        assert!(Sink::parse(&format!("https://a/{}", "x".repeat(600))).is_err());
        assert!(
            Sinks { ca: None, ..sinks }.check().is_err_and(|why| why.starts_with("[sink]: ca: expected"))
        );
        assert!(toml::from_str::<Sinks>("allow = [\"http://10.0.0.1/\"]").is_err());
    }
}

//! TLS 1.3 on both sides. Who has a certificate of an edge is that edge: its subject alternative name says
//! `URI:weir:edge:NAME`.

use crate::book::{Name, is_name};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

/// What both sides speak.
const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13];
/// What the URI of an edge begins with.
const EDGE: &str = "weir:edge:";

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let told =
        |why: &dyn std::fmt::Display| format!("{}: {why}: expected certificates in PEM", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|e| told(&e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| told(&e))?;
    if all.is_empty() { Err(told(&"none is there")) } else { Ok(all) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|e| format!("{}: {e}: expected a private key in PEM", path.display()))
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(Arc::new(roots))
}

fn revoked(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let told = |why: &dyn std::fmt::Display| {
        format!("{}: {why}: expected lists of revoked certificates in PEM", path.display())
    };
    let all = CertificateRevocationListDer::pem_file_iter(path).map_err(|e| told(&e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| told(&e))?;
    if all.is_empty() { Err(told(&"none is there")) } else { Ok(all) }
}

/// For a broker. Clients come with a certificate that `ca` signed and that no list in `crl` names, or with none: then
/// they need a token.
///
/// # Errors
/// A file cannot be read, or does not fit the others.
pub fn server(
    cert: &Path,
    private: &Path,
    ca: &Path,
    crl: Option<&Path>,
) -> Result<Arc<ServerConfig>, String> {
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots(ca)?, provider());
    if let Some(crl) = crl {
        verifier = verifier.with_crls(revoked(crl)?);
    }
    let verifier = verifier.allow_unauthenticated().build().map_err(|e| format!("{}: {e}", ca.display()))?;
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS);
    let config = builder.map_err(|e| e.to_string())?.with_client_cert_verifier(verifier);
    let config = config.with_single_cert(certificates(cert)?, key(private)?);
    config.map(Arc::new).map_err(|e| format!("{} and {}: {e}", cert.display(), private.display()))
}

/// For an edge, with its certificate and key, or for who has a token, with none. The broker's certificate must be
/// signed by `ca`.
///
/// # Errors
/// As [`server`].
pub fn client(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(VERSIONS);
    let builder = builder.map_err(|e| e.to_string())?.with_root_certificates(roots(ca)?);
    match own {
        None => Ok(Arc::new(builder.with_no_client_auth())),
        Some((cert, private)) => {
            let config = builder.with_client_auth_cert(certificates(cert)?, key(private)?);
            config.map(Arc::new).map_err(|e| format!("{} and {}: {e}", cert.display(), private.display()))
        }
    }
}

/// The edge that the first certificate of a file names.
///
/// # Errors
/// The file cannot be read, or its certificate names no edge, or more than one.
pub fn edge_of(cert: &Path) -> Result<Name, String> {
    let all = certificates(cert)?;
    let first = all.first().ok_or_else(|| format!("{}: no certificate", cert.display()))?;
    edge(first).map_err(|why| format!("{}: {why}", cert.display()))
}

/// The edge that a certificate names.
///
/// # Errors
/// It names none, or more than one.
pub(crate) fn edge(certificate: &CertificateDer<'_>) -> Result<Name, String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|e| e.to_string())?;
    let mut names = parsed.valid_uri_names().filter_map(|uri| uri.strip_prefix(EDGE));
    match (names.next(), names.next()) {
        (Some(name), None) if is_name(name) && !name.contains('/') => Ok(name.into()),
        (Some(_), Some(_)) => Err("the certificate names more than one edge".into()),
        _ => Err(format!(
            "the certificate names no edge: expected one subject alternative name URI:{EDGE}NAME"
        )),
    }
}

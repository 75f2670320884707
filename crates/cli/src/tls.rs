//! TLS where Sonde is controlled from elsewhere: certificates of a laboratory's own authority
//! on both sides (RFC 8446, section 4.4.2).

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A server with this certificate. With `ca` it serves only clients whose certificates are of
/// that authority.
///
/// # Errors
/// Files that cannot be read or do not belong together.
pub fn server(cert: &Path, key: &Path, ca: Option<&Path>) -> Result<ServerConfig> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match ca {
        Some(ca) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(authority(ca)?.into(), provider())
                    .build()
                    .with_context(|| format!("{}", ca.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    builder
        .with_single_cert(certificates(cert)?, private_key(key)?)
        .with_context(|| format!("{} and {}", cert.display(), key.display()))
}

/// A client with this certificate, for servers of the authority `ca`.
///
/// # Errors
/// As [`server`].
pub fn client(cert: &Path, key: &Path, ca: &Path) -> Result<ClientConfig> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authority(ca)?)
        .with_client_auth_cert(certificates(cert)?, private_key(key)?)
        .with_context(|| format!("{} and {}", cert.display(), key.display()))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn authority(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .with_context(|| format!("{}: not an authority's", path.display()))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|e| anyhow!("{}: no private key in PEM: {e}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?
        .collect::<Result<_, _>>()
        .map_err(|e| anyhow!("{}: {e}", path.display()))?;
    if all.is_empty() {
        bail!("{} holds no certificate in PEM", path.display());
    }
    Ok(all)
}

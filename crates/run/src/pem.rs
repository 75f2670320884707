//! Certificates and keys in PEM (RFC 7468), and the algorithms that all TLS here uses.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::RunError;
use crate::text_file;

/// The cryptographic algorithms: those of ring.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authorities by which others are trusted.
///
/// # Errors
/// As [`certificates`]; one that is no authority's.
pub fn authority(path: &Path) -> Result<RootCertStore, RunError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).with_context(|| {
            format!(
                "{} is no certificate of an authority; give that which has signed the others'",
                path.display()
            )
        })?;
    }
    Ok(roots)
}

/// The first private key of a file.
///
/// # Errors
/// A file that cannot be read, or holds none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, RunError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| {
        let file = path.display();
        anyhow!("{file} holds no private key in PEM: {e}; give the key of the certificate").into()
    })
}

/// All certificates of a file, in their order.
///
/// # Errors
/// A file that cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, RunError> {
    let text = read(path)?;
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|e| anyhow!("{} is damaged: {e}; make or copy it anew", path.display()))?;
    if all.is_empty() {
        return Err(RunError::Host(anyhow!(
            "{} holds no certificate in PEM, which begins with BEGIN CERTIFICATE; is it a key?",
            path.display()
        )));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, RunError> {
    let octets = text_file::octets(path);
    Ok(octets.with_context(|| format!("cannot read {}", path.display()))?)
}

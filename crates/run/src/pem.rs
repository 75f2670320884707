//! Certificates and keys in PEM (RFC 7468), and the algorithms that all TLS here uses.
//!
//! Their files are settings: whatever is wrong with one is a [`SettingsError`] that names it.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::SettingsError;
use crate::text_file;

/// The cryptographic algorithms: those of ring.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The authorities by which others are trusted.
///
/// # Errors
/// As [`certificates`]; one that is no authority's.
pub fn authority(path: &Path) -> Result<RootCertStore, SettingsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| {
            let why = "is no certificate of an authority; give that which has signed the others'";
            wrong(path, format_args!("{} {why}: {e}", path.display()))
        })?;
    }
    Ok(roots)
}

/// The first private key of a file.
///
/// # Errors
/// A file that cannot be read, or holds none.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SettingsError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|e| {
        let file = path.display();
        let next = "give the key of the certificate";
        wrong(path, format_args!("{file} holds no private key in PEM: {e}; {next}"))
    })
}

/// All certificates of a file, in their order.
///
/// # Errors
/// A file that cannot be read, or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    let text = read(path)?;
    let file = path.display();
    let all: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(path, format_args!("{file} is damaged: {e}; make or copy it anew")))?;
    if all.is_empty() {
        let why = "holds no certificate in PEM, which begins with BEGIN CERTIFICATE; is it a key?";
        return Err(wrong(path, format_args!("{file} {why}")));
    }
    Ok(all)
}

fn read(path: &Path) -> Result<Vec<u8>, SettingsError> {
    text_file::octets(path).map_err(|e| {
        let next = "name a file in PEM that this user may read";
        wrong(path, format_args!("cannot read {}; {next}: {e}", path.display()))
    })
}

fn wrong(path: &Path, why: impl Display) -> SettingsError {
    SettingsError { file: Some(path.display().to_string()), ..why.to_string().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit code 2, whatever is wrong: see docs/exit-codes.md.
    #[test]
    fn what_is_wrong_with_a_file_names_it_and_the_next_step() {
        let path = std::env::temp_dir().join(format!("sonde-pem-{}.pem", std::process::id()));
        let file = path.display().to_string();
        let absent = certificates(&path).unwrap_err();
        std::fs::write(&path, "no PEM").unwrap();
        let (empty, no_key) = (certificates(&path).unwrap_err(), private_key(&path).unwrap_err());
        let block = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        std::fs::write(&path, block).unwrap();
        let no_authority = authority(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        for (error, part) in [
            (absent, "name a file in PEM"),
            (empty, "is it a key?"),
            (no_key, "give the key of the certificate"),
            (no_authority, "give that which has signed"),
        ] {
            assert_eq!((error.file.as_ref(), error.line), (Some(&file), None));
            assert!(error.message.contains(&file) && error.message.contains(part), "{error}");
        }
    }
}

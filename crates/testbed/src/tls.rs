//! TLS where Sonde is controlled from elsewhere: certificates of a laboratory's own authority
//! on both sides (RFC 8446, section 4.4.2).

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::UnixTime;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{CertificateError, ClientConfig, ServerConfig};
use sonde_run::error::SettingsError;
use sonde_run::pem::{authority, certificates, private_key, provider};

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The side that lends its ports to a controller.
    Agent,
    /// The side that runs the trials.
    Controller,
}

/// A server with this certificate. With `ca` it serves only clients whose certificates are of
/// that authority.
///
/// # Errors
/// Files that cannot be read or do not belong together.
pub fn server(cert: &Path, key: &Path, ca: Option<&Path>) -> Result<ServerConfig, SettingsError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .context(UNUSABLE)?;
    let builder = match ca {
        Some(ca) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(authority(ca)?.into(), provider())
                    .build()
                    .with_context(|| {
                        format!("{} is no authority to trust others by", ca.display())
                    })?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates(cert)?, private_key(key)?);
    Ok(config.with_context(|| strangers(cert, key))?)
}

/// A client with this certificate, for servers of the authority `ca`.
///
/// # Errors
/// As [`server`].
pub fn client(cert: &Path, key: &Path, ca: &Path) -> Result<ClientConfig, SettingsError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .context(UNUSABLE)?
        .with_root_certificates(authority(ca)?)
        .with_client_auth_cert(certificates(cert)?, private_key(key)?);
    Ok(config.with_context(|| strangers(cert, key))?)
}

fn strangers(cert: &Path, key: &Path) -> String {
    format!(
        "{} and {} do not belong together; 'sonde agent cert' makes both",
        cert.display(),
        key.display()
    )
}

const UNUSABLE: &str = "TLS cannot be used";

/// Whether a certificate of the authority `ca` is good for a role at a time.
///
/// # Errors
/// It is another role's, or out of date, or another authority's: with the next step.
pub fn fit(cert: &Path, ca: &Path, role: Role, at: SystemTime) -> Result<(), SettingsError> {
    let chain = certificates(cert)?;
    let Some((own, between)) = chain.split_first() else {
        return Err(format!("{} holds no certificate", cert.display()).into());
    };
    let roots = authority(ca)?;
    let now = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap_or_default());
    let (outcome, for_) = match role {
        Role::Agent => {
            let all = provider().signature_verification_algorithms.all;
            let parsed = ParsedCertificate::try_from(own);
            let outcome = parsed.and_then(|parsed| {
                verify_server_cert_signed_by_trust_anchor(&parsed, &roots, between, now, all)
            });
            (outcome, "an agent")
        }
        Role::Controller => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
            let verifier = verifier
                .build()
                .with_context(|| format!("{} is no authority to trust others by", ca.display()))?;
            (verifier.verify_client_cert(own, between, now).map(drop), "a controller")
        }
    };
    use CertificateError::{
        Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidYet,
        NotValidYetContext,
    };
    let cert = cert.display();
    outcome.map_err(|e| match e {
        rustls::Error::InvalidCertificate(InvalidPurpose | InvalidPurposeContext { .. }) => {
            anyhow!("{cert} is not for {for_}; 'sonde agent cert' makes one that is")
        }
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. }) => anyhow!(
            "{cert} is out of date; renew it by 'sonde agent cert --renew' where it was made, and \
             copy it here"
        ),
        rustls::Error::InvalidCertificate(NotValidYet | NotValidYetContext { .. }) => {
            anyhow!("{cert} begins later than now: set this host's clock")
        }
        other => anyhow!("{cert} is none of {}: {other}", ca.display()),
    })?;
    Ok(())
}

/// Says so of a certificate that will be out of date within a month.
pub fn ends_soon(cert: &Path, ca: &Path, role: Role) -> bool {
    let now = SystemTime::now();
    fit(cert, ca, role, now).is_ok() && fit(cert, ca, role, now + MONTH).is_err()
}

const MONTH: Duration = Duration::from_secs(30 * 86_400);

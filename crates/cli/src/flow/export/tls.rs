//! TLS to collectors (RFC 7011, section 11): they are always authenticated, we are where a
//! certificate is given.

use std::io::{self, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::flow::args::ExportArgs;

/// What it takes to make a session with one collector.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A session over a connection.
pub struct Session {
    inner: ClientConnection,
}

impl Tls {
    /// For the collector `host`, whose certificate must carry that name or address.
    pub fn new(host: &str, args: &ExportArgs) -> Result<Tls> {
        let Some(authorities) = &args.tls_ca else {
            bail!("tls:// needs --tls-ca with the certificates that collectors are trusted by");
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots
                .add(certificate)
                .with_context(|| format!("{}: not an authority's", authorities.display()))?;
        }
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots);
        let config = match (&args.tls_cert, &args.tls_key) {
            (Some(certificate), Some(key)) => {
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|e| anyhow!("{}: no private key in PEM: {e}", key.display()))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, private)
                    .with_context(|| format!("{} and its key", certificate.display()))?
            }
            _ => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(host.to_string())
            .with_context(|| format!("'{host}' is no name that a certificate can carry"))?;
        Ok(Tls { config: Arc::new(config), name })
    }

    /// Makes a session over a new connection.
    pub fn handshake(&self, stream: &TcpStream) -> io::Result<Session> {
        let mut inner = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(io::Error::other)?;
        let mut stream = stream;
        while inner.is_handshaking() {
            inner.complete_io(&mut stream)?;
        }
        Ok(Session { inner })
    }
}

impl Session {
    /// Writes all of `bytes`.
    pub fn write_all(&mut self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.inner.writer().write(rest)?;
            rest = &rest[taken..];
            while self.inner.wants_write() {
                self.inner.write_tls(stream)?;
            }
        }
        Ok(())
    }

    /// Says that nothing more comes.
    pub fn close(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        self.inner.send_close_notify();
        while self.inner.wants_write() {
            self.inner.write_tls(stream)?;
        }
        stream.flush()
    }
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

//! TLS to collectors (RFC 7011, section 11): they are always authenticated, we are where a
//! certificate is given.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion};

use crate::error::{RunError, SettingsError};
use crate::flow::settings::Export;
use crate::pem::{authority, certificates, private_key, provider};

/// What it takes to make a session with one collector.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// A session over a connection.
pub struct TlsSession {
    inner: ClientConnection,
}

impl TlsClient {
    /// For the collector `host`, whose certificate must carry that name or address.
    ///
    /// # Errors
    /// Files that cannot be read or do not belong together; a host without a name for TLS.
    pub fn new(host: &str, export: &Export) -> Result<TlsClient, RunError> {
        let of = |key: &'static str| move |e: SettingsError| e.because_of(key);
        let authorities = authority(export.authorities(host)?).map_err(of("export.tls_ca"))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .context("TLS cannot be used")?
            .with_root_certificates(authorities);
        let config = match (&export.tls_cert, &export.tls_key) {
            (Some(certificate), Some(key)) => {
                let chain = certificates(certificate).map_err(of("export.tls_cert"))?;
                let private = private_key(key).map_err(of("export.tls_key"))?;
                builder.with_client_auth_cert(chain, private).map_err(|e| {
                    let why = format!(
                        "{} does not belong to {}; give a certificate and its own key: {e}",
                        key.display(),
                        certificate.display()
                    );
                    SettingsError::new("export.tls_key", why)
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(host.to_string()).map_err(|e| {
            let why = format!(
                "'{host}' is no name that a certificate can carry; give a DNS name or an IP \
                 address: {e}"
            );
            SettingsError::new("export.export", why)
        })?;
        Ok(TlsClient { config: Arc::new(config), name })
    }

    /// Makes a session over a new connection.
    pub fn handshake(&self, stream: &TcpStream) -> io::Result<TlsSession> {
        let mut inner = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(io::Error::other)?;
        let mut wire = stream;
        while inner.is_handshaking() {
            inner.complete_io(&mut wire).map_err(explained)?;
        }
        let mut session = TlsSession { inner };
        if session.inner.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
            // The collector judges our certificate only after that: it sends session tickets
            // or, as RFC 8446, section 4.6.1 allows, nothing; or an alert.
            let usual = stream.read_timeout()?;
            stream.set_read_timeout(Some(JUDGING))?;
            session.hear(stream)?;
            stream.set_read_timeout(usual)?;
        }
        Ok(session)
    }
}

impl TlsSession {
    /// Puts in what is to be written: no more than before was all written.
    pub fn enter(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.writer().write_all(bytes)
    }

    /// Writes once. Whether all is written.
    pub fn write(&mut self, wire: &mut impl Write) -> io::Result<bool> {
        if self.inner.wants_write() {
            self.inner.write_tls(wire)?;
        }
        Ok(!self.inner.wants_write())
    }

    /// Says that nothing more comes.
    pub fn close(&mut self, wire: &mut impl Write) -> io::Result<()> {
        self.inner.send_close_notify();
        while self.inner.wants_write() {
            self.inner.write_tls(wire)?;
        }
        Ok(())
    }

    /// What the collector said before it closed, if that was an alert.
    pub fn farewell(&mut self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(SHORTEST))?;
        self.hear(stream)
    }

    /// Reads what the collector has said, if anything comes in time.
    fn hear(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        match self.inner.read_tls(&mut stream) {
            Ok(_) => {
                let heard = self.inner.process_new_packets().map(drop);
                heard.map_err(|e| explained(io::Error::other(e)))
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Says what to look at.
fn explained(error: io::Error) -> io::Error {
    let text = error.to_string();
    let advice = match () {
        () if text.starts_with("invalid peer certificate") => "; see `export.tls_ca`",
        () if text.contains("alert") => "; see `export.tls_cert` and `export.tls_key`",
        () => "",
    };
    io::Error::new(error.kind(), format!("TLS: {text}{advice}"))
}

/// For the collector to judge our certificate.
const JUDGING: Duration = Duration::from_millis(500);
/// For what has come already.
const SHORTEST: Duration = Duration::from_millis(1);

//! Syslog messages over UDP, TCP and TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sonde_run::error::SettingsError;
use sonde_run::pem;

use super::datagram::send_datagrams;
use super::http::HOST_AUTHORITIES;
use super::{Deadline, SEND_WITHIN};
use crate::alert::sink::SinkReply;
use crate::alert::sink::address::ServerAddress;
use crate::alert::sink::syslog::{SyslogServer, SyslogTransport};

/// Sends messages to one server. Each notification is a connection of its own.
pub(super) struct SyslogClient {
    address: ServerAddress,
    transport: SyslogTransport,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

impl SyslogClient {
    /// Reads certificates where TLS needs them.
    pub fn new(server: &SyslogServer) -> Result<SyslogClient, SettingsError> {
        let tls = match server.transport {
            SyslogTransport::Tls => {
                let host = server.address.host.clone();
                let name = ServerName::try_from(host).map_err(|e| {
                    let why = "no certificate has such a name; give a DNS name or an IP address";
                    SettingsError::new("to", format!("{why}: {e}"))
                })?;
                Some((Arc::new(client_config(server)?), name))
            }
            SyslogTransport::Udp | SyslogTransport::Tcp => None,
        };
        Ok(SyslogClient { address: server.address.clone(), transport: server.transport, tls })
    }

    /// Sends messages in their order.
    pub fn send(&self, messages: &[Vec<u8>]) -> Result<SinkReply, String> {
        let said = |e: io::Error| format!("{}, port {}: {e}", self.address.host, self.address.port);
        let sent = match (&self.tls, self.transport) {
            (_, SyslogTransport::Udp) => send_datagrams(&self.address, messages),
            (None, _) => self.connect().and_then(|(stream, deadline)| {
                let mut stream = BoundedStream { stream, deadline };
                write_frames(&mut stream, messages)?;
                stream.stream.shutdown(Shutdown::Write)?;
                until_closed(stream)
            }),
            (Some((config, name)), _) => self.connect().and_then(|(stream, deadline)| {
                let session = ClientConnection::new(config.clone(), name.clone());
                let session = session.map_err(io::Error::other)?;
                let mut stream = StreamOwned::new(session, BoundedStream { stream, deadline });
                write_frames(&mut stream, messages)?;
                stream.conn.send_close_notify();
                stream.flush()?;
                while stream.conn.wants_write() {
                    stream.conn.write_tls(&mut stream.sock)?;
                }
                stream.sock.stream.shutdown(Shutdown::Write)?;
                until_closed(stream)
            }),
        };
        sent.map(|()| SinkReply::Sent).map_err(said)
    }

    fn connect(&self) -> io::Result<(TcpStream, Deadline)> {
        let deadline = Deadline::after(SEND_WITHIN);
        let mut failed = io::Error::other("the name has no address");
        for address in (self.address.host.as_str(), self.address.port).to_socket_addrs()? {
            let left = deadline.left().ok_or(io::ErrorKind::TimedOut)?;
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Ok((stream, deadline)),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// RFC 6587, section 3.4.1: the count of octets in decimal digits, a space, the message.
fn write_frames(stream: &mut impl Write, messages: &[Vec<u8>]) -> io::Result<()> {
    for message in messages {
        stream.write_all(format!("{} ", message.len()).as_bytes())?;
        stream.write_all(message)?;
    }
    stream.flush()
}

/// Waits until the server closes: what came before has then arrived. A server that keeps the
/// connection for a while has it, too.
fn until_closed(mut stream: impl Read + HasDeadline) -> io::Result<()> {
    stream.close_within(CLOSE_WITHIN);
    let mut octets = [0; 512];
    loop {
        match stream.read(&mut octets) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // It has not refused what it was sent.
            Err(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
                return Ok(());
            }
            // Without the end of TLS all the same.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

/// A stream on which nothing takes longer than up to an instant.
struct BoundedStream {
    stream: TcpStream,
    deadline: Deadline,
}

trait HasDeadline {
    fn close_within(&mut self, time: Duration);
}

impl HasDeadline for BoundedStream {
    fn close_within(&mut self, time: Duration) {
        if self.deadline.left().is_some_and(|left| left > time) {
            self.deadline = Deadline::after(time);
        }
    }
}

impl HasDeadline for StreamOwned<ClientConnection, BoundedStream> {
    fn close_within(&mut self, time: Duration) {
        self.sock.close_within(time);
    }
}

impl Read for BoundedStream {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.left().ok_or(io::ErrorKind::TimedOut)?;
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(octets)
    }
}

impl Write for BoundedStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let left = self.deadline.left().ok_or(io::ErrorKind::TimedOut)?;
        self.stream.set_write_timeout(Some(left))?;
        self.stream.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn client_config(server: &SyslogServer) -> Result<ClientConfig, SettingsError> {
    let of = |key: &'static str| move |e: SettingsError| e.because_of(key);
    let roots = match &server.ca {
        Some(path) => pem::authority(path).map_err(of("ca"))?,
        None => host_authorities(),
    };
    let config = ClientConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .context("TLS cannot be used")?
        .with_root_certificates(roots);
    Ok(match &server.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = pem::certificates(certificate).map_err(of("certificate"))?;
            let private = pem::private_key(key).map_err(of("key_file"))?;
            config.with_client_auth_cert(chain, private).map_err(|e| {
                let why = "does not belong to the certificate; give a certificate and its own key";
                SettingsError::new("key_file", format!("{} {why}: {e}", key.display()))
            })?
        }
    })
}

/// Those that this host trusts; a host without the package ca-certificates trusts nobody.
fn host_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let all = pem::certificates(std::path::Path::new(HOST_AUTHORITIES)).unwrap_or_default();
    roots.add_parsable_certificates(all);
    roots
}

/// For the server to close a connection on which all is said.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::testing::{Folder, TestIdentity};
    use rustls::{ServerConfig, ServerConnection};
    use std::net::{TcpListener, UdpSocket};

    fn client(port: u16, transport: SyslogTransport, ca: Option<&TestIdentity>) -> SyslogClient {
        let address = ServerAddress { host: "127.0.0.1".into(), port };
        let ca = ca.map(|identity| identity.certificate.clone());
        SyslogClient::new(&SyslogServer { address, transport, ca, identity: None }).unwrap()
    }

    fn messages() -> Vec<Vec<u8>> {
        ["<1>1 one", "<2>1 zwei \u{e4}"].map(|text| text.as_bytes().to_vec()).into()
    }

    /// The octets of two messages, each after its count.
    const FRAMES: &str = "8 <1>1 one12 <2>1 zwei \u{e4}";

    /// Serves one connection, and what came in it.
    fn serve(
        work: impl FnOnce(TcpStream) -> String + Send + 'static,
    ) -> (u16, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (port, std::thread::spawn(move || work(listener.accept().unwrap().0)))
    }

    #[test]
    fn a_datagram_is_a_message() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let sent = client(port, SyslogTransport::Udp, None).send(&messages());
        assert_eq!(sent, Ok(SinkReply::Sent));
        for message in messages() {
            let mut octets = [0; 100];
            let length = socket.recv(&mut octets).unwrap();
            assert_eq!(octets[..length], message);
        }
    }

    #[test]
    fn over_tcp_each_message_follows_its_count_of_octets() {
        let (port, served) = serve(|mut stream| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        let sent = client(port, SyslogTransport::Tcp, None).send(&messages());
        assert_eq!(sent, Ok(SinkReply::Sent));
        assert_eq!(served.join().unwrap(), FRAMES);
    }

    #[test]
    fn a_server_that_resets_the_connection_has_taken_nothing() {
        // Closed with octets unread: the kernel resets the connection.
        let (port, served) = serve(|mut stream| {
            let mut first = [0; 1];
            stream.read_exact(&mut first).unwrap();
            String::new()
        });
        let sent = client(port, SyslogTransport::Tcp, None).send(&messages());
        served.join().unwrap();
        let why = sent.unwrap_err();
        assert!(why.contains("reset") && why.contains(&port.to_string()), "{why}");
        let nobody = client(port, SyslogTransport::Tcp, None).send(&messages()).unwrap_err();
        assert!(nobody.contains("refused"), "{nobody}");
    }

    fn serve_tls(identity: &TestIdentity) -> (u16, std::thread::JoinHandle<String>) {
        let config = ServerConfig::builder_with_provider(pem::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                pem::certificates(&identity.certificate).unwrap(),
                pem::private_key(&identity.key).unwrap(),
            )
            .unwrap();
        serve(move |stream| {
            let session = ServerConnection::new(Arc::new(config)).unwrap();
            let mut text = String::new();
            match StreamOwned::new(session, stream).read_to_string(&mut text) {
                Ok(_) => text,
                Err(error) => error.to_string(),
            }
        })
    }

    #[test]
    fn over_tls_the_end_is_said_and_only_a_trusted_server_gets_anything() {
        let folder = Folder::new("syslog-tls");
        let identity = folder.identity();
        let (port, served) = serve_tls(&identity);
        let sent = client(port, SyslogTransport::Tls, Some(&identity)).send(&messages());
        assert_eq!(sent, Ok(SinkReply::Sent));
        // Read to the end that TLS says: a connection that is cut off would be an error.
        assert_eq!(served.join().unwrap(), FRAMES);
        let (port, served) = serve_tls(&identity);
        let elsewhere = Folder::new("syslog-other");
        let other = elsewhere.identity();
        let refused = client(port, SyslogTransport::Tls, Some(&other)).send(&messages());
        assert!(refused.as_ref().is_err_and(|why| why.contains("certificate")), "{refused:?}");
        let came = served.join().unwrap();
        assert!(!came.contains("one"), "{came}");
    }
}

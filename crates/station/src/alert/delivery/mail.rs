//! Mail to a submission server.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error as _;
use std::time::Duration;

use lettre::address::Envelope;
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, SmtpTransport, Transport as _};
use rustls::RootCertStore;
use sonde_run::error::SettingsError;
use sonde_run::pem;

use super::http::HOST_AUTHORITIES;
use crate::alert::sink::SinkReply;
use crate::alert::sink::email::{EmailSecurity, MailServer, MailText};

/// Submits mail to one server. Each submission is a connection of its own.
pub(super) struct MailClient {
    transport: SmtpTransport,
    from: Address,
    to: Vec<Address>,
    /// Of the message with this id, who has it already: a message that is tried again does not
    /// come twice to them.
    taken: RefCell<(String, BTreeSet<Address>)>,
}

impl MailClient {
    /// Reads the authorities.
    pub fn new(server: &MailServer) -> Result<MailClient, SettingsError> {
        let tls = match server.security {
            EmailSecurity::None => Tls::None,
            EmailSecurity::Starttls => Tls::Required(parameters(server)?),
            EmailSecurity::Tls => Tls::Wrapper(parameters(server)?),
        };
        let mut builder = SmtpTransport::builder_dangerous(&server.address.host)
            .port(server.address.port)
            .tls(tls)
            .timeout(Some(STEP_WITHIN));
        if let Some((user, password)) = &server.user {
            let password = password.expose().to_owned();
            builder = builder.credentials(Credentials::new(user.clone(), password));
        }
        let taken = RefCell::default();
        let (from, to) = (server.from.clone(), server.to.clone());
        Ok(MailClient { transport: builder.build(), from, to, taken })
    }

    /// Submits it for all who do not have it yet. Where the server refuses some of them for good,
    /// the others get it all the same, and the answer says whom it refuses.
    pub fn send(&self, mail: &MailText) -> Result<SinkReply, String> {
        let mut taken = self.taken.borrow_mut();
        if taken.0 != mail.id {
            *taken = (mail.id.clone(), BTreeSet::new());
        }
        let waiting: Vec<Address> =
            self.to.iter().filter(|to| !taken.1.contains(*to)).cloned().collect();
        match self.submit(&waiting, mail)? {
            SinkReply::Smtp { code: 500.., .. } if waiting.len() > 1 => {}
            reply => return Ok(reply),
        }
        let (mut refused, mut code_of_all) = (Vec::new(), 250);
        for address in waiting {
            match self.submit(std::slice::from_ref(&address), mail)? {
                SinkReply::Smtp { code, text } if code >= 500 => {
                    code_of_all = code;
                    refused.push(format!("{address}: {text}"));
                }
                SinkReply::Smtp { code: 200..300, .. } => drop(taken.1.insert(address)),
                reply => return Ok(reply),
            }
        }
        let others = match taken.1.len() {
            0 => String::new(),
            count => format!("; {count} others have it"),
        };
        Ok(SinkReply::Smtp { code: code_of_all, text: refused.join(", ") + &others })
    }

    fn submit(&self, to: &[Address], mail: &MailText) -> Result<SinkReply, String> {
        let envelope = Envelope::new(Some(self.from.clone()), to.to_vec());
        let envelope = envelope.map_err(|e| e.to_string())?;
        match self.transport.send_raw(&envelope, &mail.octets) {
            Ok(response) => {
                let text = response.first_line().unwrap_or_default().to_owned();
                Ok(SinkReply::Smtp { code: response.code().into(), text })
            }
            Err(error) => match error.status() {
                Some(code) => Ok(SinkReply::Smtp { code: code.into(), text: reason(&error) }),
                None => Err(error.to_string()),
            },
        }
    }
}

/// What the server says, without what the library says of it.
fn reason(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn parameters(server: &MailServer) -> Result<TlsParameters, SettingsError> {
    let unfit = |e: Error| SettingsError::new("ca", e);
    let certificates = match &server.ca {
        Some(path) => pem::certificates(path).map_err(|e| e.because_of("ca"))?,
        None => {
            let path = std::path::Path::new(HOST_AUTHORITIES);
            let mut all = pem::certificates(path).unwrap_or_default();
            // One that is no authority's makes all of them useless.
            all.retain(|one| RootCertStore::empty().add(one.clone()).is_ok());
            all
        }
    };
    let mut builder = TlsParameters::builder(server.address.host.clone())
        .certificate_store(CertificateStore::None);
    for certificate in certificates {
        builder = builder
            .add_root_certificate(Certificate::from_der(certificate.to_vec()).map_err(unfit)?);
    }
    builder.build_rustls().map_err(unfit)
}

/// Each step of a submission takes so long at most.
const STEP_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::sink::address::ServerAddress;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;

    /// A server that refuses recipients: `gone` for good, `busy` once. It tells whom it gave each
    /// message, and keeps to one connection at a time.
    fn serve() -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut busy = true;
            for stream in listener.incoming() {
                talk(stream.unwrap(), &mut busy, &tell);
            }
        });
        (port, told)
    }

    fn talk(mut stream: TcpStream, busy: &mut bool, tell: &mpsc::Sender<String>) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut to = Vec::new();
        write!(stream, "220 mail.example\r\n").unwrap();
        while let Some(Ok(line)) = lines.next() {
            let reply = match line.to_ascii_uppercase() {
                line if line.starts_with("RCPT TO:<GONE") => "550 5.1.1 no such user",
                line if line.starts_with("RCPT TO:<BUSY") && std::mem::take(busy) => "451 later",
                line if line.starts_with("RCPT") => {
                    to.push(line["RCPT TO:<".len()..].split('@').next().unwrap().to_owned());
                    "250 ok"
                }
                line if line == "DATA" => {
                    write!(stream, "354 go on\r\n").unwrap();
                    while lines.next().unwrap().unwrap() != "." {}
                    tell.send(to.join(" ")).unwrap();
                    "250 queued"
                }
                line if line == "QUIT" => "221 bye",
                _ => "250 ok",
            };
            write!(stream, "{reply}\r\n").unwrap();
        }
    }

    fn client(port: u16, to: &[&str]) -> MailClient {
        let address = |user: &str| Address::new(user, "b.example").unwrap();
        MailClient::new(&MailServer {
            address: ServerAddress { host: "127.0.0.1".into(), port },
            security: EmailSecurity::None,
            ca: None,
            user: None,
            from: address("sonde"),
            to: to.iter().map(|user| address(user)).collect(),
        })
        .unwrap()
    }

    fn mail(id: &str) -> MailText {
        MailText { id: id.into(), octets: b"Subject: a\r\n\r\nb\r\n".to_vec() }
    }

    #[test]
    fn a_recipient_who_is_refused_keeps_it_from_no_other() {
        let (port, told) = serve();
        let client = client(port, &["ann", "gone", "bob"]);
        let text = "gone@b.example: 5.1.1 no such user; 2 others have it".to_owned();
        assert_eq!(client.send(&mail("1")), Ok(SinkReply::Smtp { code: 550, text }));
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["ANN", "BOB"]);
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn who_has_a_message_does_not_get_it_again_when_others_are_tried_again() {
        let (port, told) = serve();
        let client = client(port, &["ann", "gone", "busy"]);
        let text = "later".to_owned();
        assert_eq!(client.send(&mail("1")), Ok(SinkReply::Smtp { code: 451, text }));
        let text = "gone@b.example: 5.1.1 no such user; 2 others have it".to_owned();
        assert_eq!(client.send(&mail("1")), Ok(SinkReply::Smtp { code: 550, text: text.clone() }));
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["ANN", "BUSY"]);
        assert_eq!(client.send(&mail("2")), Ok(SinkReply::Smtp { code: 550, text }));
        assert_eq!([told.recv().unwrap(), told.recv().unwrap()], ["ANN", "BUSY"]);
    }

    #[test]
    fn without_the_tls_that_was_asked_for_nothing_is_sent() {
        let (port, told) = serve();
        let folder = crate::alert::testing::Folder::new("mail");
        let client = MailClient::new(&MailServer {
            address: ServerAddress { host: "127.0.0.1".into(), port },
            security: EmailSecurity::Starttls,
            ca: Some(folder.identity().certificate),
            user: None,
            from: Address::new("sonde", "b.example").unwrap(),
            to: vec![Address::new("ann", "b.example").unwrap()],
        });
        let why = client.unwrap().send(&mail("1")).unwrap_err();
        assert!(why.contains("STARTTLS"), "{why}");
        assert!(told.try_recv().is_err());
    }
}

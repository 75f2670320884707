//! TLS over TCP (RFC 8446, RFC 5246): what both hellos show.

use sonde_results::flow::{App, TlsInfo};

use super::fingerprint;
use super::hello::{
    CLIENT_HELLO, ClientHello, HandshakeMessage, SERVER_HELLO, first_message, server_version,
};
use super::parse::{Input, Parse, Step};
use super::text::text;

#[derive(Clone, Default)]
pub(super) struct Tls {
    info: TlsInfo,
    client: bool,
    server: bool,
    /// A direction whose first message is known.
    read: [bool; 2],
}

impl Tls {
    /// A record of the handshake that begins with a hello of either side.
    pub(super) fn begins(data: &[u8]) -> bool {
        matches!(data, [22, 3, 0..=4, _, _, CLIENT_HELLO | SERVER_HELLO, ..])
    }

    fn client_hello(&mut self, body: &[u8]) {
        let Some(hello) = ClientHello::parse(body) else { return };
        let chosen = self.info.version;
        self.info = client_info(&hello, 't');
        if self.server {
            self.info.version = chosen;
        }
        self.client = true;
    }
}

impl Parse for Tls {
    fn input(&mut self, input: &Input<'_>) -> Step {
        match first_message(input.data) {
            HandshakeMessage::Partial(_) if !input.last => return Step::More,
            HandshakeMessage::Partial(start) => {
                // Too long, or cut: its first fields are better than none.
                if let [CLIENT_HELLO, _, _, _, body @ ..] = &start[..] {
                    self.client_hello(body);
                }
            }
            HandshakeMessage::Whole(CLIENT_HELLO, body) => self.client_hello(&body),
            HandshakeMessage::Whole(SERVER_HELLO, body) => {
                if let Some(version) = server_version(&body) {
                    self.info.version = version;
                    self.server = true;
                }
            }
            // An alert.
            _ => {}
        }
        self.read[usize::from(input.reverse)] = true;
        if self.read == [true; 2] { Step::Done } else { Step::Other }
    }

    fn finish(&mut self) -> Option<App> {
        let seen = self.client || self.server;
        seen.then(|| App::Tls(std::mem::take(&mut self.info)))
    }
}

/// What a client's hello shows. A fingerprint of a part would be that of another client.
pub(super) fn client_info(hello: &ClientHello<'_>, transport: char) -> TlsInfo {
    let (ja3, ja4) = match hello.whole {
        true => (fingerprint::ja3(hello), fingerprint::ja4(hello, transport)),
        false => Default::default(),
    };
    TlsInfo {
        sni: text(hello.server_name.unwrap_or(&[])),
        alpn: text(hello.protocol),
        version: hello.highest_version(),
        ja3,
        ja4,
    }
}

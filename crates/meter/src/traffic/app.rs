//! What applications say at the beginning. These are a DNS query and its answer (RFC 1035), an
//! HTTP/1 request and its response (RFC 9112), TLS hellos (RFC 8446). Names are under "example"
//! (RFC 2606), one a flow.

use std::io::{Cursor, Write as _};

/// What a flow speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficApp {
    /// Payload of no known protocol.
    #[default]
    None,
    /// DNS over UDP.
    Dns,
    /// HTTP/1 over TCP.
    Http,
    /// TLS over TCP.
    Tls,
}

impl TrafficApp {
    /// As the truth names it.
    pub const fn name(self) -> &'static str {
        match self {
            TrafficApp::None => "",
            TrafficApp::Dns => "dns",
            TrafficApp::Http => "http",
            TrafficApp::Tls => "tls",
        }
    }

    /// The server's port; `None`: any.
    pub(super) const fn port(self) -> Option<u16> {
        match self {
            TrafficApp::None => None,
            TrafficApp::Dns => Some(53),
            TrafficApp::Http => Some(80),
            TrafficApp::Tls => Some(443),
        }
    }
}

/// Writes the name that flow `index` asks for: of DNS, the host of HTTP, the server name
/// of TLS.
pub fn write_name(index: u64, out: &mut impl std::io::Write) -> std::io::Result<()> {
    write!(out, "h{index:x}.sonde.example")
}

/// Writes the client's (`side` 0) or the server's message to the start of `buffer`, which
/// has room for [`LONGEST`]; returns its length. `exchange` counts DNS queries of the flow.
pub(super) fn write(
    app: TrafficApp,
    side: usize,
    index: u64,
    exchange: u16,
    buffer: &mut [u8],
) -> usize {
    let mut name = [0; 40];
    let name = written(&mut name, |out| write_name(index, out));
    match (app, side) {
        (TrafficApp::None, _) => 0,
        (TrafficApp::Dns, _) => dns(name, exchange, side == 1, buffer),
        (TrafficApp::Http, 0) => http_request(name, buffer),
        (TrafficApp::Http, _) => http_response(buffer),
        (TrafficApp::Tls, _) => hello(name, index, side == 1, buffer),
    }
}

/// What `write` writes into `buffer`. The messages here fit by construction.
fn written(
    buffer: &mut [u8],
    write: impl FnOnce(&mut Cursor<&mut [u8]>) -> std::io::Result<()>,
) -> &[u8] {
    let mut out = Cursor::new(&mut *buffer);
    write(&mut out).expect("the buffer is longer than any message");
    let len = out.position() as usize;
    &buffer[..len]
}

/// A query for an address, or its answer with one.
fn dns(name: &[u8], exchange: u16, answer: bool, buffer: &mut [u8]) -> usize {
    let message = |out: &mut Cursor<&mut [u8]>| {
        let id = exchange.wrapping_mul(0x9E37).wrapping_add(1);
        let (flags, answers) = if answer { (0x8180, 1) } else { (0x0100, 0) };
        for field in [id, flags, 1, answers, 0, 0] {
            out.write_all(&field.to_be_bytes())?;
        }
        for label in name.split(|b| *b == b'.') {
            out.write_all(&[label.len() as u8])?;
            out.write_all(label)?;
        }
        out.write_all(&[0, 0, 1, 0, 1])?;
        if answer {
            // The name by a pointer, type A, class IN, an hour, an address of RFC 5737.
            out.write_all(&[0xC0, 12, 0, 1, 0, 1, 0, 0, 0x0E, 0x10, 0, 4, 192, 0, 2, 1])?;
        }
        Ok(())
    };
    written(buffer, message).len()
}

fn http_request(name: &[u8], buffer: &mut [u8]) -> usize {
    let message = |out: &mut Cursor<&mut [u8]>| {
        out.write_all(b"GET /index.html HTTP/1.1\r\nHost: ")?;
        out.write_all(name)?;
        out.write_all(b"\r\nUser-Agent: sonde\r\nAccept: */*\r\n\r\n")
    };
    written(buffer, message).len()
}

fn http_response(buffer: &mut [u8]) -> usize {
    let message = |out: &mut Cursor<&mut [u8]>| {
        out.write_all(
            b"HTTP/1.1 200 OK\r\nServer: sonde\r\nContent-Type: application/octet-stream\r\n\
              Transfer-Encoding: chunked\r\n\r\n",
        )
    };
    written(buffer, message).len()
}

/// ClientHello or ServerHello of TLS 1.3, each in one record.
fn hello(name: &[u8], index: u64, server: bool, buffer: &mut [u8]) -> usize {
    let message = |out: &mut Cursor<&mut [u8]>| {
        out.write_all(&[22, 3, if server { 3 } else { 1 }, 0, 0, 1 + u8::from(server), 0, 0, 0])?;
        out.write_all(&[3, 3])?;
        random(out, index, u64::from(server))?;
        out.write_all(&[32])?;
        random(out, index, 2)?;
        match server {
            true => out.write_all(&[0x13, 0x01, 0])?,
            false => {
                out.write_all(&[0, 10, 0x13, 1, 0x13, 2, 0x13, 3, 0xC0, 0x2F, 0xC0, 0x2C, 1, 0])?
            }
        }
        let extensions = out.position();
        out.write_all(&[0, 0])?;
        if server {
            out.write_all(&[0, 43, 0, 2, 3, 4, 0, 51, 0, 36, 0, 29, 0, 32])?;
            random(out, index, 3)?;
        } else {
            let len = name.len() as u8;
            out.write_all(&[0, 0, 0, len + 5, 0, len + 3, 0, 0, len])?;
            out.write_all(name)?;
            out.write_all(&[0, 10, 0, 6, 0, 4, 0, 29, 0, 23])?;
            out.write_all(&[0, 13, 0, 8, 0, 6, 4, 3, 8, 4, 4, 1])?;
            out.write_all(b"\0\x10\0\x0e\0\x0c\x02h2\x08http/1.1")?;
            out.write_all(&[0, 43, 0, 5, 4, 3, 4, 3, 3])?;
            out.write_all(&[0, 45, 0, 2, 1, 1])?;
            out.write_all(&[0, 51, 0, 38, 0, 36, 0, 29, 0, 32])?;
            random(out, index, 4)?;
        }
        let end = out.position();
        for (at, from) in [(3, 5), (7, 9), (extensions, extensions + 2)] {
            out.set_position(at);
            out.write_all(&((end - from) as u16).to_be_bytes())?;
        }
        out.set_position(end);
        Ok(())
    };
    written(buffer, message).len()
}

/// 32 octets that differ from flow to flow.
fn random(out: &mut Cursor<&mut [u8]>, index: u64, which: u64) -> std::io::Result<()> {
    let mut rng = fastrand::Rng::with_seed(index << 3 | which);
    for _ in 0..4 {
        out.write_all(&rng.u64(..).to_be_bytes())?;
    }
    Ok(())
}

/// No message is longer.
pub(super) const LONGEST: usize = 512;

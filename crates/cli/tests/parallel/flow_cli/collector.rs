//! A collector that the tests control.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::process::until;

/// Waits for a connection, with a bound.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let mut found = None;
    until("a connection", || {
        match listener.accept() {
            Ok((stream, _)) => found = Some(stream),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        found.is_some()
    });
    let stream = found.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// A port of the loopback that nobody listens to.
pub fn silent_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub fn message(stream: &mut impl Read) -> Vec<u8> {
    let mut message = vec![0; 16];
    stream.read_exact(&mut message).unwrap();
    let length = u16::from_be_bytes([message[2], message[3]]);
    message.resize(length.into(), 0);
    stream.read_exact(&mut message[16..]).unwrap();
    message
}

/// Reads until the exporter closes.
pub fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    all
}

/// Octets that have come and were not read.
pub fn unread(stream: &TcpStream) -> usize {
    stream.set_nonblocking(true).unwrap();
    let there = stream.peek(&mut vec![0; 16 << 20]);
    stream.set_nonblocking(false).unwrap();
    there.unwrap_or(0)
}

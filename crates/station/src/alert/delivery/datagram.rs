//! Datagrams, to which nothing answers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use crate::alert::sink::address::ServerAddress;

/// Sends each to the first address that takes them. What the server's host refuses is reported by
/// the next send, so that the last is not known to be refused.
pub(super) fn send_datagrams(to: &ServerAddress, messages: &[Vec<u8>]) -> io::Result<()> {
    let mut failed = io::Error::other("the name has no address");
    for address in (to.host.as_str(), to.port).to_socket_addrs()? {
        match send_to(address, messages) {
            Ok(()) => return Ok(()),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn send_to(address: SocketAddr, messages: &[Vec<u8>]) -> io::Result<()> {
    let socket = match address {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.connect(address)?;
    for message in messages {
        // One datagram, whole or not at all.
        socket.send(message)?;
    }
    Ok(())
}

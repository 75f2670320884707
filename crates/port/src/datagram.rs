//! A connected UDP socket that never fragments, for exporters (RFC 7011, section 10.3.3).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::sys::{get, poll_one, set};

/// A socket to one peer.
#[derive(Debug)]
pub struct Datagrams {
    socket: UdpSocket,
    v6: bool,
}

impl Datagrams {
    /// Connects to `peer`. What it sends carries "don't fragment".
    pub fn connect(peer: SocketAddr) -> io::Result<Self> {
        let v6 = peer.is_ipv6();
        let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(peer)?;
        socket.set_write_timeout(Some(LONGEST_WAIT))?;
        if v6 {
            set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        } else {
            set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        }
        Ok(Datagrams { socket, v6 })
    }

    /// Longest payload that the path takes as far as the kernel knows now, bytes.
    pub fn longest(&self) -> io::Result<usize> {
        let (level, name, headers) = match self.v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 40 + 8),
            false => (libc::IPPROTO_IP, libc::IP_MTU, 20 + 8),
        };
        let mtu: libc::c_int = get(&self.socket, level, name, 0)?;
        Ok((mtu.max(0) as usize).saturating_sub(headers))
    }

    /// Sends one datagram; waits a tenth of a second for room in the socket's buffer.
    /// `WouldBlock`: there was none.
    /// `ConnectionRefused`: nobody listened to an earlier one, and this was not sent. EMSGSIZE: longer than [`Datagrams::longest`].
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send(datagram).map(drop)
    }

    /// Waits so long for an answer that nobody listened to what was sent last.
    pub fn is_refused(&self, patience: Duration) -> bool {
        let events = poll_one(self.socket.as_raw_fd(), 0, patience.as_nanos() as i64);
        events.is_ok_and(|events| events & libc::POLLERR != 0)
            && self.socket.take_error().is_ok_and(|error| error.is_some())
    }
}

/// For room in the socket's buffer.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

//! UDP sockets of exporters, which never fragment (RFC 7011, section 10.3.3). Those of collectors,
//! with a large receive buffer and the kernel's count of what it dropped.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use crate::syscall::{get, poll_one, set, set_buffer};

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

    /// Sends one datagram; waits a tenth of a second for room in the socket's buffer. `WouldBlock`:
    /// there was none. `ConnectionRefused`: nobody listened to an earlier one, and this was not
    /// sent. EMSGSIZE: longer than [`Datagrams::longest`].
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

/// Binds to `at` and asks for a receive buffer of `bytes`. Without privilege the kernel gives
/// no more than `net.core.rmem_max`: [`receive_buffer`] says what it gave.
///
/// # Errors
/// Those of the system calls: the address is in use, or not this host's.
pub fn bind(at: SocketAddr, bytes: usize) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(at)?;
    // The kernel doubles what it is asked for, for its own bookkeeping.
    let half = i32::try_from(bytes / 2).unwrap_or(i32::MAX);
    set_buffer(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, half)?;
    Ok(socket)
}

/// Bytes of the receive buffer, with the kernel's bookkeeping: a datagram takes more of it
/// than it is long.
///
/// # Errors
/// Those of the system call.
pub fn receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    let bytes: libc::c_int = get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    Ok(bytes.max(0) as usize)
}

/// Datagrams that found the buffer full since the socket was made: the counter of
/// SO_RXQ_OVFL, asked for without waiting for a datagram that would bring it. It wraps at 32
/// bits.
///
/// # Errors
/// Those of the system call.
pub fn dropped(socket: &impl AsRawFd) -> io::Result<u32> {
    // A kernel before 4.12 does not know the option; 0 would be a lie.
    let memory: [u32; MEMINFO_VARS] = get(socket, libc::SOL_SOCKET, SO_MEMINFO, [0; MEMINFO_VARS])?;
    Ok(memory[MEMINFO_DROPS])
}

/// For room in the socket's buffer.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// `asm-generic/socket.h`.
const SO_MEMINFO: libc::c_int = 55;
/// `linux/sock_diag.h`: SK_MEMINFO_DROPS, and how many there are.
const MEMINFO_DROPS: usize = 8;
const MEMINFO_VARS: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), 1 << 20).unwrap();
        assert!(receive_buffer(&socket).unwrap() >= 64 << 10);
        let small = bind("127.0.0.1:0".parse().unwrap(), 8 << 10).unwrap();
        let (bytes, count) = (receive_buffer(&small).unwrap(), 200u32);
        assert!(bytes <= 16 << 10, "{bytes}");
        assert_eq!(dropped(&small).unwrap(), 0);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..count {
            // On the loopback interface it has arrived, or was dropped, when this returns.
            sender.send_to(&[0; 1_000], small.local_addr().unwrap()).unwrap();
        }
        small.set_nonblocking(true).unwrap();
        let got = std::iter::from_fn(|| small.recv(&mut [0; 2_000]).ok()).count() as u32;
        assert!(got > 0 && got < count);
        assert_eq!(got + dropped(&small).unwrap(), count);
    }
}

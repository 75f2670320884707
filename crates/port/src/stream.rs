//! Connections to collectors (RFC 7011, sections 10.2 and 10.4), and what of them the other
//! end has not confirmed.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::sys::{SockAddr, check, get, poll_one, socket};

/// Connects over TCP. What is written leaves at once.
pub fn connect_tcp(peer: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&peer, longest)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects over SCTP (RFC 9260), one association on stream 0: each write is a message of
/// its own. `Unsupported` where this kernel has no SCTP.
pub fn connect_sctp(peer: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let fd = socket(family, libc::SOCK_STREAM, libc::IPPROTO_SCTP).map_err(|error| match error
        .raw_os_error()
    {
        Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no SCTP; load its module (modprobe sctp), or use tcp://",
        ),
        _ => error,
    })?;
    let address = SockAddr::new(peer.ip(), peer.port(), 0);
    // SAFETY: `address` holds an address of the stated length and lives through the call.
    let rc = unsafe {
        libc::connect(fd.as_raw_fd(), (&raw const address).cast(), SockAddr::len(peer.is_ipv6()))
    };
    if rc < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINPROGRESS) {
            return Err(error);
        }
        if poll_one(fd.as_raw_fd(), libc::POLLOUT, longest.as_nanos() as i64)? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let failed: libc::c_int = get(&fd, libc::SOL_SOCKET, libc::SO_ERROR, 0)?;
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
    }
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Bytes written that the other end's kernel has not acknowledged.
pub fn unacknowledged(stream: &TcpStream) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int, to `bytes`.
    check(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as usize)
}

/// Whether the other end has closed or reset the connection. Reads nothing.
pub fn is_closed(stream: &TcpStream) -> bool {
    let ready = poll_one(stream.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP, 0);
    ready.is_ok_and(|events| events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0)
}

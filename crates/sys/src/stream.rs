//! Connections, of collectors above all (RFC 7011, sections 10.2 and 10.4), and what of them the
//! other end has not confirmed.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::syscall::{Plain, SockAddr, check, get, poll_one, set, socket};

/// Connects over TCP. What is written leaves at once. A peer that is silent for `patience`
/// is given up by the kernel while nothing is under way; while something is, by the caller
/// (see [`is_silent`]). 3 s at least, whole seconds.
pub fn connect_tcp(
    peer: SocketAddr,
    longest: Duration,
    patience: Duration,
) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&peer, longest)?;
    stream.set_nodelay(true)?;
    let set = |level, name, value: libc::c_int| set(&stream, level, name, value);
    // A third of the time before the first question, and PROBES of them in the rest.
    let step = (patience.as_secs() / 3).max(1) as libc::c_int;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, step)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, (2 * step / PROBES).max(1))?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES)?;
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    // What the kernel holds and has not sent goes on its way even after a kill, and again
    // with the next run.
    set(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, NOT_SENT)?;
    // Otherwise the pauses grow to 2 minutes, in which nobody can distinguish a collector that
    // takes nothing from one that is dead. Linux before 6.15 has no such option.
    let _ = set(libc::IPPROTO_TCP, TCP_RTO_MAX_MS, step * 1_000);
    Ok(stream)
}

/// Whether a TCP peer was asked several times and has answered nothing for `patience`,
/// although something is under way or waits. TCP_USER_TIMEOUT would not do: it also ends
/// connections to peers that answer and have no room (RFC 1122, section 4.2.2.17, demands
/// that these are kept).
pub fn is_silent(stream: &TcpStream, patience: Duration) -> io::Result<bool> {
    let info: TcpInfo = get(stream, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfo::default())?;
    let asked = i32::from(info.retransmits) + i32::from(info.probes);
    let silence = Duration::from_millis(info.last_ack_recv.into());
    Ok(asked >= PROBES && silence >= patience)
}

/// Connects over SCTP (RFC 9260), one association on stream 0: each write is a message of
/// its own. `Unsupported` where this kernel has no SCTP.
pub fn connect_sctp(peer: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let fd = sctp_socket(peer)?;
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

/// Bytes written that the other end's kernel has not acknowledged; of SCTP no fewer than
/// that, because chunks are counted.
pub fn unacknowledged(stream: &TcpStream, sctp: bool) -> io::Result<usize> {
    if sctp {
        let status: SctpStatus =
            get(stream, libc::IPPROTO_SCTP, SCTP_STATUS, SctpStatus::default())?;
        let chunks = usize::from(status.unacknowledged) + usize::from(status.pending);
        return Ok(chunks * status.fragmentation_point as usize);
    }
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int, to `bytes`.
    check(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(bytes.max(0) as usize)
}

/// Sets a TCP socket's congestion control (tcp(7)), "cubic" for one. On a listener it is
/// that of the connections it accepts. (A namespace's default can only be one of those
/// that the machine's administrator has released to everybody.)
///
/// # Errors
/// The kernel does not have it, or does not let this user have it.
pub fn set_congestion_control(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    let (fd, value) = (socket.as_raw_fd(), name.as_ptr().cast());
    let len = name.len() as u32;
    // SAFETY: the kernel reads `len` bytes of `name`, which lives through the call.
    check(unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, value, len) })
        .map(drop)
}

/// Closes the connection at once; what has not been acknowledged is thrown away.
pub fn abort(stream: TcpStream) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // If that is refused, it is closed in the ordinary way.
    let _ = set(&stream, libc::SOL_SOCKET, libc::SO_LINGER, at_once);
}

/// Whether the other end has closed or reset the connection. Reads nothing.
pub fn is_closed(stream: &TcpStream) -> bool {
    let ready = poll_one(stream.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP, 0);
    ready.is_ok_and(|events| events & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0)
}

/// Whether this kernel has SCTP; if not, the error says what to do.
pub fn has_sctp(peer: SocketAddr) -> io::Result<()> {
    sctp_socket(peer).map(drop)
}

fn sctp_socket(peer: SocketAddr) -> io::Result<OwnedFd> {
    let family = if peer.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let made = socket(family, libc::SOCK_STREAM, libc::IPPROTO_SCTP);
    made.map_err(|error| match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT) => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no SCTP; load its module (modprobe sctp), or use tcp://",
        ),
        _ => error,
    })
}

/// The beginning of Linux's struct tcp_info, which grows at its end.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct TcpInfo {
    state: u8,
    ca_state: u8,
    /// Since the peer acknowledged something, in a row.
    retransmits: u8,
    /// Questions to a peer without room, and keepalives, that were not answered.
    probes: u8,
    backoff: u8,
    options: u8,
    scales: u8,
    limited: u8,
    rto: u32,
    ato: u32,
    sender_mss: u32,
    receiver_mss: u32,
    unacknowledged: u32,
    sacked: u32,
    lost: u32,
    retransmitted: u32,
    forward_acks: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    /// ms since anything was heard of the peer.
    last_ack_recv: u32,
}

/// RFC 6458, section 8.2.1; Linux's struct sctp_status.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct SctpStatus {
    association: i32,
    state: i32,
    receiver_window: u32,
    /// DATA chunks not acknowledged ...
    unacknowledged: u16,
    /// ... and not sent.
    pending: u16,
    inbound_streams: u16,
    outbound_streams: u16,
    fragmentation_point: u32,
    primary: [u64; 20],
}

// SAFETY: integers, without padding.
unsafe impl Plain for TcpInfo {}
// SAFETY: integers, without padding.
unsafe impl Plain for SctpStatus {}

/// Of Linux's tcp.h.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// Bytes that a connection takes beyond those that are on their way. More would make it no
/// faster.
const NOT_SENT: libc::c_int = 128 << 10;
/// Questions without an answer before a peer is given up.
const PROBES: libc::c_int = 4;
/// Of Linux's sctp.h.
const SCTP_STATUS: libc::c_int = 14;

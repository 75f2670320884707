//! A packet socket (packet(7)) for whole frames, one at a time: for relays, which change nothing.

use std::io;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};

use sonde_wire::Time;

use crate::clock::realtime_now;
use crate::syscall::{bind_link, check, get, join_link, set, socket};
use crate::{SysError, syscall};

/// A packet socket on one interface: all frames that arrive there, none that leave.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens it in the calling thread's namespace.
    ///
    /// # Errors
    /// No such interface; not permitted (CAP_NET_RAW).
    pub fn open(interface: &str) -> Result<PacketSocket, SysError> {
        let index = syscall::interface_index(interface)?;
        let open = || {
            let fd = socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            // Without it a relay would relay what it has sent itself.
            set(&fd, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1i32)?;
            set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1i32)?;
            set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
            set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
            join_link(&fd, index, libc::PACKET_MR_PROMISC)?;
            bind_link(&fd, index, libc::ETH_P_ALL as u16)?;
            Ok(PacketSocket { fd })
        };
        open().map_err(|e| {
            syscall::error(format!("a packet socket on {interface}"), e, "CAP_NET_RAW")
        })
    }

    /// The next frame: its length on the wire, which may be beyond the buffer's, and when
    /// the kernel received it (CLOCK_REALTIME). `None`: there is none now.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, Time)>> {
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let mut control = [0u64; 8]; // u64: a control message must be aligned
        // SAFETY: made of integers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let fd = self.fd.as_raw_fd();
        // SAFETY: `message` names `buffer` and `control`, which live through the call.
        let len = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_TRUNC) };
        if len < 0 {
            let error = io::Error::last_os_error();
            // A link that went down reports it once; it may come back.
            let nothing = error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(libc::ENETDOWN);
            return if nothing { Ok(None) } else { Err(error) };
        }
        let mut at = realtime_now();
        // SAFETY: `message` was filled by the kernel, and its control messages are walked
        // by the macros made for it; the payload is read unaligned.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const message);
            while !header.is_null() {
                if ((*header).cmsg_level, (*header).cmsg_type)
                    == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                {
                    let stamp = libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned();
                    at = Time::from_nanos(stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec);
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        Ok(Some((len as usize, at)))
    }

    /// Sends a frame; `false`: the kernel has no room for it, or the link is down.
    ///
    /// # Errors
    /// The interface is gone; a frame that is longer than it carries.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        // SAFETY: the kernel reads `frame`, which lives through the call.
        let rc = unsafe {
            libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), libc::MSG_NOSIGNAL)
        };
        if rc >= 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENETDOWN) => Ok(false),
            _ => Err(error),
        }
    }

    /// Frames that found the socket's buffer full since the last call.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn missed(&self) -> io::Result<u64> {
        // struct tpacket_stats: packets, drops.
        let counts = get(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, [0u32; 2])?;
        Ok(counts[1].into())
    }

    /// Sleeps until one of two has something, or `ns` have passed.
    ///
    /// # Errors
    /// Those of the system call.
    pub fn wait(sockets: [&PacketSocket; 2], ns: i64) -> io::Result<()> {
        let mut entries = sockets.map(|s| libc::pollfd {
            fd: s.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        let timeout = libc::timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
        // SAFETY: two pollfd and one timespec that live through the call; no signal mask.
        let rc =
            unsafe { libc::ppoll(entries.as_mut_ptr(), 2, &raw const timeout, std::ptr::null()) };
        match check(rc) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }
}

/// Bytes that may wait in a socket: more than any test has on its way.
const BUFFER: i32 = 16 << 20;
/// The option of packet sockets not to hear what the host itself sends (linux/if_packet.h).
pub const PACKET_IGNORE_OUTGOING: i32 = 23;

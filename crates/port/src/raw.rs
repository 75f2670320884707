//! A packet socket for few frames: the questions and answers by which neighbours find each
//! other. Test frames go by a [`crate::Port`].

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use sonde_sys::syscall::{self, op};

use crate::PortError;

/// Questions for a neighbour (ARP requests, neighbour solicitations) that arrive at one
/// interface, and a way to answer them.
#[derive(Debug)]
pub struct NeighbourSocket {
    fd: OwnedFd,
}

impl NeighbourSocket {
    /// On an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, no CAP_NET_RAW.
    pub fn open(interface: &str) -> Result<NeighbourSocket, PortError> {
        let index = syscall::interface_index(interface)?;
        let open = || {
            // Protocol 0: nothing arrives before the filter is installed.
            let fd = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            syscall::attach_filter(&fd, &questions())?;
            // Solicitations go to groups, which a card may not let in.
            syscall::join_link(&fd, index, libc::PACKET_MR_ALLMULTI)?;
            syscall::bind_link(&fd, index, libc::ETH_P_ALL as u16)?;
            Ok(NeighbourSocket { fd })
        };
        open().map_err(|e| syscall::error("open a packet socket", e, "CAP_NET_RAW").into())
    }

    /// The next question, if one comes within `ns`.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive<'a>(&self, buffer: &'a mut [u8], ns: i64) -> io::Result<Option<&'a [u8]>> {
        syscall::poll_one(self.fd.as_raw_fd(), libc::POLLIN, ns)?;
        // SAFETY: the buffer is valid for its length.
        let len =
            unsafe { libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if len >= 0 {
            return Ok(Some(&buffer[..len as usize]));
        }
        let error = io::Error::last_os_error();
        // A link that went down reports it once; it may come back.
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(None),
            _ => Err(error),
        }
    }

    /// Sends a frame; one that cannot be sent now is lost, as on a wire.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the frame is valid for its length.
        unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    }
}

/// Incoming ARP, and ICMPv6 neighbour solicitations; tagged frames as a whole, in which the
/// reader looks for itself.
fn questions() -> [libc::sock_filter; 11] {
    let half = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    let byte = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        /* 0 */ op(byte, packet_type, 0, 0),
        /* 1 */ op(equal, u32::from(libc::PACKET_OUTGOING), 8, 0),
        /* 2 */ op(half, 12, 0, 0),
        /* 3 */ op(equal, 0x0806, 5, 0),
        /* 4 */ op(equal, 0x8100, 4, 0),
        /* 5 */ op(equal, 0x88a8, 3, 0),
        /* 6 */ op(equal, 0x86dd, 0, 3),
        /* 7 */ op(half, 14 + 6, 0, 0),
        /* 8: ICMPv6 from a neighbour */ op(equal, 58 << 8 | 255, 0, 1),
        /* 9: taken */ op(ret, 256, 0, 0),
        /* 10 */ op(ret, 0, 0, 0),
    ]
}

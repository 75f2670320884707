//! An interface that takes in what is addressed to others, as on a mirror port: without it
//! the card drops all but broadcasts before any program sees them.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::{SysError, syscall};

/// While it lives, the interface is promiscuous. The kernel counts those who want it, and
/// ends the membership with the process, however that ends.
#[derive(Debug)]
pub struct Promiscuous {
    _socket: OwnedFd,
}

impl Promiscuous {
    /// For the interface with this index.
    ///
    /// # Errors
    /// [`SysError::Privilege`] without CAP_NET_RAW; [`SysError::Io`].
    pub fn hold(index: u32) -> Result<Self, SysError> {
        let hold = || {
            // Protocol 0: it receives nothing.
            let socket = syscall::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            join(&socket, index)?;
            Ok(Promiscuous { _socket: socket })
        };
        hold().map_err(|e| syscall::error("make the interface promiscuous", e, "CAP_NET_RAW"))
    }
}

/// Makes the interface promiscuous for as long as the packet socket is open.
pub fn join(socket: &impl AsRawFd, index: u32) -> std::io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index as i32,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    syscall::set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)
}

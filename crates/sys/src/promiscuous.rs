//! An interface that takes in what is addressed to others, as on a mirror port. Without it the card
//! drops all but broadcasts before any program sees them.

use std::os::fd::OwnedFd;

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
            syscall::join_link(&socket, index, libc::PACKET_MR_PROMISC)?;
            Ok(Promiscuous { _socket: socket })
        };
        hold().map_err(|e| syscall::error("make the interface promiscuous", e, "CAP_NET_RAW"))
    }
}

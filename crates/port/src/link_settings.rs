//! Settings of an interface that last as long as somebody holds them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::{PortError, sys};

/// A card lets in frames to whatever MAC address, and the interface's setting comes back when
/// this is dropped or the process ends: the kernel counts who asks (packet(7),
/// PACKET_MR_PROMISC).
#[derive(Debug)]
pub struct Promiscuous(OwnedFd);

impl Promiscuous {
    /// On an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// No such interface, no CAP_NET_RAW.
    pub fn enter(interface: &str) -> Result<Promiscuous, PortError> {
        let index = sys::interface_index(interface)?;
        let open = || {
            // Protocol 0: nothing is received on it.
            let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
            let membership = libc::packet_mreq {
                mr_ifindex: index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            sys::set(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)?;
            Ok(Promiscuous(fd))
        };
        open().map_err(|e| sys::error("make an interface promiscuous", e, "CAP_NET_RAW"))
    }
}

impl AsRawFd for Promiscuous {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// Sets the greatest IP packet of an interface, octets.
///
/// # Errors
/// The driver does not take it; no CAP_NET_ADMIN.
pub fn set_mtu(interface: &str, mtu: u32) -> io::Result<()> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fd = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: an ifreq is made of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, octet) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
    // SAFETY: SIOCSIFMTU reads one ifreq, which lives through the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) };
    sys::check(rc).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_lab::{Lab, LinkOptions};

    #[test]
    fn an_interface_is_promiscuous_while_somebody_holds_it_and_takes_its_mtu() {
        let test = "an_interface_is_promiscuous_while_somebody_holds_it_and_takes_its_mtu";
        if sonde_lab::skip(test) {
            return;
        }
        let mut lab = Lab::new("linkset").unwrap();
        let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
        lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
        let shown = || a.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        let held = a.inside(|| Promiscuous::enter("eth0")).unwrap().unwrap();
        assert!(shown().contains("promiscuity 1"), "{}", shown());
        drop(held);
        assert!(shown().contains("promiscuity 0"), "{}", shown());
        a.inside(|| set_mtu("eth0", 2000)).unwrap().unwrap();
        assert!(shown().contains("mtu 2000"), "{}", shown());
        let none = a.inside(|| set_mtu("none", 2000)).unwrap().unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }
}

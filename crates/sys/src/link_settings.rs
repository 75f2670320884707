//! Settings of an interface.

use std::io;
use std::os::fd::AsRawFd as _;

use crate::syscall;

/// Sets the greatest IP packet of an interface, octets.
///
/// # Errors
/// The driver does not take it; no CAP_NET_ADMIN.
pub fn set_mtu(interface: &str, mtu: u32) -> io::Result<()> {
    if interface.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let fd = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: an ifreq is made of integers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, octet) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
    // SAFETY: SIOCSIFMTU reads one ifreq, which lives through the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) };
    syscall::check(rc).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_lab::{Lab, LinkOptions};

    #[test]
    fn an_interface_takes_its_mtu() {
        if sonde_lab::skip("an_interface_takes_its_mtu") {
            return;
        }
        let mut lab = Lab::new("linkset").unwrap();
        let (a, b) = (lab.host("a").unwrap(), lab.host("b").unwrap());
        lab.link(&a, "eth0", &b, "eth0", &LinkOptions::default()).unwrap();
        let shown = || a.run(&["ip", "-d", "link", "show", "eth0"]).unwrap();
        a.inside(|| set_mtu("eth0", 2000)).unwrap().unwrap();
        assert!(shown().contains("mtu 2000"), "{}", shown());
        let none = a.inside(|| set_mtu("none", 2000)).unwrap().unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }
}

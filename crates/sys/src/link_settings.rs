//! Settings of an interface.

use std::io;
use std::os::fd::AsRawFd as _;

use crate::syscall;

/// Sets the greatest IP packet of an interface, octets.
///
/// # Errors
/// The driver does not take it; no CAP_NET_ADMIN.
pub fn set_mtu(interface: &str, mtu: u32) -> io::Result<()> {
    let mut request = syscall::interface_request(interface)?;
    let fd = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
    // SAFETY: SIOCSIFMTU reads one ifreq, which lives through the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFMTU, &raw const request) };
    syscall::check(rc).map(drop)
}

/// The greatest IP packet of an interface of the calling thread's namespace, octets.
///
/// # Errors
/// No such interface.
pub fn mtu(interface: &str) -> io::Result<usize> {
    let mut request = syscall::interface_request(interface)?;
    let fd = syscall::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU, both in `request`.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    syscall::check(rc)?;
    // SAFETY: the call wrote this member of the union.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
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
        assert_eq!(a.inside(|| mtu("eth0")).unwrap().unwrap(), 2000);
        let none = a.inside(|| set_mtu("none", 2000)).unwrap().unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }
}

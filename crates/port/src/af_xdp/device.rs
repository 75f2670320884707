//! What has to be known of an interface before it is opened.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use sonde_sys::SysError;

use crate::PortError;

/// An interface of this thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: String,
    pub ifindex: u32,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Receive queues in use.
    pub queues: u32,
}

impl Device {
    /// Asks the kernel by ioctl: unlike `/sys/class/net` this speaks of the calling
    /// thread's namespace.
    pub fn find(name: &str) -> Result<Device, PortError> {
        let missing = || PortError::from(SysError::NoInterface(name.to_owned()));
        let c_name = CString::new(name).map_err(|_| missing())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        // SAFETY: `c_name` is a valid C string.
        let ifindex = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if ifindex == 0 {
            return Err(missing());
        }
        let socket = ioctl_socket().map_err(|e| failed("open a socket", e))?;
        let mtu = mtu(&socket, &c_name).map_err(|e| failed("ask for the MTU", e))?;
        Ok(Device { name: name.to_owned(), ifindex, mtu, queues: queues(&socket, &c_name) })
    }

    /// Whether the kernel still has it, under whatever name.
    pub fn exists(&self) -> bool {
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: `name` has the room that the call asks for.
        !unsafe { libc::if_indextoname(self.ifindex, name.as_mut_ptr()) }.is_null()
    }
}

fn ioctl_socket() -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn request(name: &CStr) -> libc::ifreq {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.to_bytes_with_nul()) {
        *to = *from as libc::c_char;
    }
    request
}

fn mtu(socket: &OwnedFd, name: &CStr) -> io::Result<usize> {
    let mut request = request(name);
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU, both in `request`.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call wrote this member of the union.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Drivers with a single queue often do not answer: then it is one.
fn queues(socket: &OwnedFd, name: &CStr) -> u32 {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = request(name);
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: SIOCETHTOOL reads the name and writes to `channels`, which has the layout
    // that ETHTOOL_GCHANNELS asks for and outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &mut request) } < 0 {
        return 1;
    }
    // A combined channel receives and transmits; a driver has those or separate ones.
    (channels.rx_count + channels.combined_count).max(1)
}

fn failed(what: &str, source: io::Error) -> PortError {
    PortError::io(what, source, "")
}

/// `struct ethtool_channels` of Linux `include/uapi/linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_others_are_named() {
        let lo = Device::find("lo").unwrap();
        assert_eq!((lo.queues, lo.exists()), (1, true));
        assert!(lo.mtu >= 1280);
        for name in ["", "no such link", "a\0b", "longer-than-any-name"] {
            let error = Device::find(name).unwrap_err();
            assert!(
                matches!(&error, PortError::Sys(SysError::NoInterface(n)) if n == name),
                "{error}"
            );
        }
    }
}

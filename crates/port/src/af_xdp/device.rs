//! What has to be known of an interface before it is opened.

use sonde_sys::host::rx_queues;
use sonde_sys::link_settings::mtu;
use sonde_sys::syscall::interface_index;

use crate::PortError;

/// An interface of this thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpDevice {
    pub name: String,
    pub ifindex: u32,
    /// Largest IP packet, bytes.
    pub mtu: usize,
    /// Receive queues in use.
    pub queues: u32,
}

impl XdpDevice {
    /// Asks the kernel by ioctl: unlike `/sys/class/net` this speaks of the calling
    /// thread's namespace.
    pub fn find(name: &str) -> Result<XdpDevice, PortError> {
        let ifindex = interface_index(name)?;
        let mtu = mtu(name).map_err(|e| PortError::io("ask for the MTU", e, ""))?;
        // Drivers with a single queue often do not answer.
        let queues = rx_queues(name)?.unwrap_or(1).max(1);
        Ok(XdpDevice { name: name.to_owned(), ifindex, mtu, queues })
    }

    /// Whether the kernel still has it, under whatever name.
    pub fn exists(&self) -> bool {
        let mut name = [0; libc::IFNAMSIZ];
        // SAFETY: `name` has the room that the call asks for.
        !unsafe { libc::if_indextoname(self.ifindex, name.as_mut_ptr()) }.is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_sys::SysError;

    #[test]
    fn loopback_is_found_and_others_are_named() {
        let lo = XdpDevice::find("lo").unwrap();
        assert_eq!((lo.queues, lo.exists()), (1, true));
        assert!(lo.mtu >= 1280);
        for name in ["", "no such link", "a\0b", "longer-than-any-name"] {
            let error = XdpDevice::find(name).unwrap_err();
            assert!(
                matches!(&error, PortError::Sys(SysError::NoInterface(n)) if n == name),
                "{error}"
            );
        }
    }
}

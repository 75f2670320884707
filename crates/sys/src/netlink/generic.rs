//! Generic netlink: a kernel's families by name, and what its family `netdev` knows.

use std::io;

use super::message::{Message, Request, attributes, u16_at, u32_at};
use super::socket::Socket;

/// Asks families of generic netlink, in the network namespace of this thread.
pub struct Generic(Socket);

impl Generic {
    /// Opens it.
    ///
    /// # Errors
    /// Those of the system calls.
    pub fn open() -> io::Result<Self> {
        Ok(Generic(Socket::open(libc::NETLINK_GENERIC, 0)?))
    }

    /// The id of a family; `None`: this kernel has none of that name.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn family(&mut self, name: &str) -> io::Result<Option<u16>> {
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let request = request(GENL_ID_CTRL, libc::NLM_F_ACK, CTRL_CMD_GETFAMILY)
            .attribute(CTRL_ATTR_FAMILY_NAME, &text);
        let mut id = None;
        let asked = self.0.ask(request, |m| {
            let mut all = attributes(m.body, GENL_HEADER);
            id = all.find(|a| a.0 == CTRL_ATTR_FAMILY_ID).and_then(|a| u16_at(a.1, 0)).or(id);
        });
        match asked {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            asked => asked.map(|()| id),
        }
    }

    /// The process ids of the receive threads ("threaded NAPI") of these interfaces. Linux 6.8.
    ///
    /// # Errors
    /// A kernel without the family `netdev`.
    pub fn receive_threads(&mut self, interfaces: &[u32]) -> io::Result<Vec<u32>> {
        let family = self.family("netdev")?.ok_or(io::ErrorKind::NotFound)?;
        let request = || request(family, libc::NLM_F_DUMP, NETDEV_CMD_NAPI_GET);
        self.0.dump(request, |message| {
            thread(message).filter(|(at, _)| interfaces.contains(at)).map(|(_, pid)| pid)
        })
    }
}

/// The interface and the receive thread that a message describes.
fn thread(message: Message<'_>) -> Option<(u32, u32)> {
    let find = |wanted| attributes(message.body, GENL_HEADER).find(|a| a.0 == wanted);
    let attribute = |wanted| find(wanted).and_then(|a| u32_at(a.1, 0));
    Some((attribute(NETDEV_A_NAPI_IFINDEX)?, attribute(NETDEV_A_NAPI_PID).filter(|&pid| pid != 0)?))
}

/// linux/genetlink.h: command and version.
fn request(family: u16, flags: i32, command: u8) -> Request {
    Request::new(family, flags, &[command, 1, 0, 0])
}

const GENL_HEADER: usize = 4;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
// linux/netdev.h
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_PID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_family_is_found_and_another_is_not() {
        let mut generic = Generic::open().unwrap();
        assert_eq!(generic.family("nlctrl").unwrap(), Some(GENL_ID_CTRL));
        assert_eq!(generic.family("no_such_family").unwrap(), None);
    }
}

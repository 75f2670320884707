//! What only netlink can do. Receive threads ("threaded NAPI") are made by a switch of the
//! interface, found by netlink's family `netdev`, and pinned as any thread.

use std::io;

use crate::host::run;
use crate::{Host, LabError, sys};

/// Gives an interface's receive queues threads of their own, or takes them away.
pub(crate) fn set_threaded(host: &Host, interface: &str, on: bool) -> Result<(), LabError> {
    let write = "echo \"$2\" > /sys/class/net/\"$1\"/threaded";
    let value = if on { "1" } else { "0" };
    host.run(&["sh", "-c", write, "sh", interface, value]).map(drop)
}

/// Puts all threads of a process, or a kernel thread, on one processor.
pub(crate) fn pin(pid: u32, cpu: usize) -> Result<(), LabError> {
    run(&["taskset", "-a", "-c", "-p", &cpu.to_string(), &pid.to_string()]).map(drop)
}

/// Runs a thread before ordinary ones, as far as niceness goes: a device has its processor to
/// itself, and what else runs on this host is not part of it.
pub(crate) fn prefer(pid: u32) -> Result<(), LabError> {
    run(&["renice", "-n", "-20", "-p", &pid.to_string()]).map(drop)
}

/// The process ids of the receive threads of these interfaces.
pub(crate) fn threads(host: &Host, interfaces: &[String]) -> Result<Vec<u32>, LabError> {
    let found = host.inside(|| {
        let indexes: Vec<u32> = interfaces.iter().filter_map(|i| sys::interface_index(i)).collect();
        let socket = sys::Netlink::open(libc::NETLINK_GENERIC)?;
        let family = family_id(&socket, "netdev")?;
        napi_threads(&socket, family, &indexes)
    })?;
    found.map_err(|source| LabError::Netlink { what: "list the receive threads", source })
}

/// Whether the kernel has a family of generic netlink: that of Open vSwitch's data path.
pub(crate) fn has_family(name: &str) -> Result<bool, LabError> {
    let found = sys::Netlink::open(libc::NETLINK_GENERIC).and_then(|socket| {
        match family_id(&socket, name) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    });
    found.map_err(|source| LabError::Netlink { what: "look for a netlink family", source })
}

/// Forgets all tracked connections of a host: netlink's CT_DELETE without a filter
/// (linux/netfilter/nfnetlink_conntrack.h).
pub(crate) fn flush_connections(host: &Host) -> Result<(), LabError> {
    let mut request = vec![0; NLMSG_HEADER];
    request.extend([0; 4]); // struct nfgenmsg: any family, version 0
    head(&mut request, NFNL_CTNETLINK_DELETE, NLM_F_ACK);
    let done =
        host.inside(|| sys::Netlink::open(libc::NETLINK_NETFILTER).and_then(|s| s.ask(&request)))?;
    done.map(drop)
        .map_err(|source| LabError::Netlink { what: "forget tracked connections", source })
}

/// Has a bridge learn so many stations at most (`IFLA_BR_FDB_MAX_LEARNED`; tools to set it
/// are younger than the kernels that have it).
pub(crate) fn limit_learning(host: &Host, bridge: &str, most: u32) -> Result<(), LabError> {
    let set = host.inside(|| {
        let index = sys::interface_index(bridge).ok_or(io::ErrorKind::NotFound)?;
        let socket = sys::Netlink::open(libc::NETLINK_ROUTE)?;
        socket.ask(&link_request(index, NLM_F_ACK, IFLA_BR_FDB_MAX_LEARNED, most)).map(drop)
    })?;
    set.map_err(|source| LabError::Netlink { what: "limit what a bridge learns", source })
}

/// RTM_NEWLINK that changes one number of a bridge (linux/rtnetlink.h, linux/if_link.h).
fn link_request(index: u32, flags: u16, attribute: u16, value: u32) -> Vec<u8> {
    let wrapped = |kind: u16, value: &[u8]| {
        let mut all = (4 + value.len() as u16).to_ne_bytes().to_vec();
        all.extend(kind.to_ne_bytes());
        all.extend(value);
        all.resize(all.len().next_multiple_of(4), 0);
        all
    };
    let data = wrapped(IFLA_INFO_DATA | NLA_F_NESTED, &wrapped(attribute, &value.to_ne_bytes()));
    let info = [wrapped(IFLA_INFO_KIND, b"bridge\0"), data].concat();
    let mut all = vec![0; NLMSG_HEADER];
    all.extend([0; 4]); // struct ifinfomsg: any family, any type
    all.extend(index.to_ne_bytes());
    all.extend([0; 8]); // no flags change
    all.extend(wrapped(IFLA_LINKINFO | NLA_F_NESTED, &info));
    head(&mut all, RTM_NEWLINK, flags);
    all
}

fn family_id(socket: &sys::Netlink, name: &str) -> io::Result<u16> {
    let mut text = name.as_bytes().to_vec();
    text.push(0);
    let request = request(GENL_ID_CTRL, 0, CTRL_CMD_GETFAMILY, &[(CTRL_ATTR_FAMILY_NAME, &text)]);
    let answer = socket.ask(&request)?;
    let mut id = None;
    messages(&answer, |body| {
        attributes(body, |kind, value| {
            if kind == CTRL_ATTR_FAMILY_ID && value.len() == 2 {
                id = Some(u16::from_ne_bytes([value[0], value[1]]));
            }
        });
    });
    id.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn napi_threads(socket: &sys::Netlink, family: u16, of: &[u32]) -> io::Result<Vec<u32>> {
    let answer = socket.ask(&request(family, NLM_F_DUMP, NETDEV_CMD_NAPI_GET, &[]))?;
    let mut found = Vec::new();
    messages(&answer, |body| {
        let (mut index, mut pid) = (0, 0);
        attributes(body, |kind, value| {
            let Ok(value) = value.try_into().map(u32::from_ne_bytes) else { return };
            match kind {
                NETDEV_A_NAPI_IFINDEX => index = value,
                NETDEV_A_NAPI_PID => pid = value,
                _ => {}
            }
        });
        if pid != 0 && of.contains(&index) {
            found.push(pid);
        }
    });
    Ok(found)
}

/// A request of generic netlink (linux/netlink.h, linux/genetlink.h).
fn request(family: u16, flags: u16, command: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut all = vec![0; NLMSG_HEADER];
    all.extend([command, 1, 0, 0]);
    for (kind, value) in attributes {
        all.extend((4 + value.len() as u16).to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend(*value);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    head(&mut all, family, flags);
    all
}

fn head(message: &mut [u8], kind: u16, flags: u16) {
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
}

/// Calls `each` with the attributes of every message.
fn messages(mut all: &[u8], mut each: impl FnMut(&[u8])) {
    while let Some((length, kind)) = sys::netlink_head(all) {
        if kind >= NLMSG_MIN_TYPE
            && let Some(body) = all[..length].get(NLMSG_HEADER + GENL_HEADER..)
        {
            each(body);
        }
        all = all.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn attributes(mut all: &[u8], mut each: impl FnMut(u16, &[u8])) {
    while let [l0, l1, k0, k1, ..] = *all {
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(value) = all.get(4..length) else { return };
        each(u16::from_ne_bytes([k0, k1]) & NLA_TYPE_MASK, value);
        all = all.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

const NLMSG_HEADER: usize = 16;
const GENL_HEADER: usize = 4;
/// Messages of netlink itself have smaller types.
const NLMSG_MIN_TYPE: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLA_TYPE_MASK: u16 = 0x3fff;
const NLA_F_NESTED: u16 = 0x8000;
const RTM_NEWLINK: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
/// Linux 6.7.
const IFLA_BR_FDB_MAX_LEARNED: u16 = 49;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NFNL_CTNETLINK_DELETE: u16 = 1 << 8 | 2;
// linux/netdev.h, Linux 6.8.
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_PID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_family_is_found_and_another_is_not() {
        assert!(has_family("nlctrl").unwrap());
        assert!(!has_family("no_such_family").unwrap());
    }

    #[test]
    fn broken_messages_end_the_walk() {
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..random.usize(..64)).map(|_| random.u8(..8)).collect();
            messages(&bytes, |body| attributes(body, |_, _| ()));
        }
    }
}

//! What only netlink can do. Receive threads ("threaded NAPI") are made by a switch of the
//! interface, found by netlink's family `netdev`, and pinned as any thread.

use std::io;

use sonde_sys::netlink::{self, Generic, Links};

use crate::host::run;
use crate::{Host, LabError};

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

/// Runs a thread before ordinary ones, as far as niceness goes. A device has its processor to
/// itself, and what else runs on this host is not part of it.
pub(crate) fn prefer(pid: u32) -> Result<(), LabError> {
    run(&["renice", "-n", "-20", "-p", &pid.to_string()]).map(drop)
}

/// The process ids of the receive threads of these interfaces.
pub(crate) fn threads(host: &Host, interfaces: &[String]) -> Result<Vec<u32>, LabError> {
    asked(host, "list the receive threads", || {
        let index = |name: &String| netlink::interface_index(name).ok();
        let indexes: Vec<u32> = interfaces.iter().filter_map(index).collect();
        Generic::open()?.receive_threads(&indexes)
    })
}

/// Whether the kernel has a family of generic netlink: that of Open vSwitch's data path.
pub(crate) fn has_family(name: &str) -> Result<bool, LabError> {
    let found = Generic::open().and_then(|mut generic| generic.family(name));
    let found =
        found.map_err(|cause| LabError::Netlink { what: "look for a netlink family", cause })?;
    Ok(found.is_some())
}

/// Forgets all tracked connections of a host.
pub(crate) fn flush_connections(host: &Host) -> Result<(), LabError> {
    asked(host, "forget tracked connections", netlink::flush_connections)
}

/// Has a bridge learn so many stations at most.
pub(crate) fn limit_learning(host: &Host, bridge: &str, most: u32) -> Result<(), LabError> {
    asked(host, "limit what a bridge learns", || {
        let index = netlink::interface_index(bridge).map_err(|_| io::ErrorKind::NotFound)?;
        Links::open()?.limit_learning(index, most)
    })
}

fn asked<T: Send>(
    host: &Host,
    what: &'static str,
    ask: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T, LabError> {
    host.inside(ask)?.map_err(|cause| LabError::Netlink { what, cause })
}

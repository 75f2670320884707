//! A set of namespaces that go together, and their removal.

use std::os::unix::fs::MetadataExt as _;
use std::process::id;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sonde_results::units::format_mac;
use sonde_sys::netlink::Mac;
use sonde_sys::netns;

use crate::LabError;
use crate::device::run_dir::{self, MARK, has_ended, is_abandoned};
use crate::host::{Host, run};

/// How a veth pair is made; the same for both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Receive and transmit queues.
    pub queues: u32,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Receive by NAPI (generic receive offload). An end must have it, or an XDP
    /// program of its own, to take the frames that its peer's XDP program transmits
    /// or redirects.
    pub gro: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        LinkOptions { queues: 1, mtu: 1500, gro: true }
    }
}

/// Namespaces under construction or in use. Dropping it, in a panic too, ends the
/// processes inside them and removes them with all their interfaces. What a killed
/// process could not remove, [`Lab::sweep`] does.
#[derive(Debug)]
pub struct Lab {
    stem: String,
    hosts: Vec<Host>,
    links: u16,
}

impl Lab {
    /// An empty one. `prefix` shows people whose it is; the names are made unique by
    /// the process id and a counter.
    pub fn new(prefix: &str) -> Result<Lab, LabError> {
        check_name(prefix)?;
        // A process long dead may have had this process id.
        let taken = namespaces();
        let stem = loop {
            let serial = NEXT.fetch_add(1, Ordering::Relaxed);
            let stem = format!("{MARK}.{prefix}.{}.{serial}", id());
            if !taken.iter().any(|name| name.starts_with(&format!("{stem}."))) {
                break stem;
            }
        };
        Ok(Lab { stem, hosts: Vec::new(), links: 0 })
    }

    /// What the names of its namespaces begin with, but for the dot: unique on this machine.
    pub(crate) fn stem(&self) -> &str {
        &self.stem
    }

    /// Adds a host with its loopback up, no reverse-path filter, no duplicate
    /// address detection and no router solicitation.
    pub fn host(&mut self, name: &str) -> Result<Host, LabError> {
        check_name(name)?;
        let host = Host::new(format!("{}.{name}", self.stem));
        if !is_root() {
            return Err(LabError::Privilege);
        }
        run(&["ip", "netns", "add", host.name()])?;
        self.hosts.push(host.clone());
        host.sysctl(&[
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0",
            "net.ipv6.conf.all.disable_ipv6=0",
            "net.ipv6.conf.default.disable_ipv6=0",
            "net.ipv6.conf.default.accept_dad=0",
            "net.ipv6.conf.default.router_solicitations=0",
        ])?;
        host.set_up("lo", true)?;
        Ok(host)
    }

    /// Joins two hosts by a veth pair, up at both ends, and returns the MAC addresses
    /// of `a`'s end and of `b`'s. They depend only on the number of links made before.
    pub fn link(
        &mut self,
        a: &Host,
        a_interface: &str,
        b: &Host,
        b_interface: &str,
        options: &LinkOptions,
    ) -> Result<(Mac, Mac), LabError> {
        self.links += 1;
        let [high, low] = self.links.to_be_bytes();
        // 02: locally administered, unicast (IEEE 802).
        let macs: [Mac; 2] = [[2, 0, 0, high, low, 1], [2, 0, 0, high, low, 2]];
        let (mac_a, mac_b) = (format_mac(macs[0]), format_mac(macs[1]));
        let (mtu, queues) = (options.mtu.to_string(), options.queues.to_string());
        let end = |name, host, mac| {
            let common = ["name", name, "netns", host, "address", mac, "mtu", &mtu];
            [&common[..], &["numtxqueues", &queues, "numrxqueues", &queues]].concat()
        };
        let (end_a, end_b) =
            (end(a_interface, a.name(), &mac_a), end(b_interface, b.name(), &mac_b));
        run(&[&["ip", "link", "add"], &end_a[..], &["type", "veth", "peer"], &end_b].concat())?;
        let ends = [(a, a_interface), (b, b_interface)];
        // Both before either is up: an end that comes up learns then whether its peer can take
        // frames of XDP programs, and does not ask again.
        for (host, interface) in ends {
            host.set_feature(interface, "gro", options.gro)?;
        }
        for (host, interface) in ends {
            host.set_up(interface, true)?;
        }
        Ok((macs[0], macs[1]))
    }

    /// Removes the namespaces of labs whose process is gone, with the processes
    /// inside them, and returns their names.
    pub fn sweep() -> Vec<String> {
        let mut left = namespaces();
        left.retain(|name| is_abandoned(name));
        left.iter().for_each(|name| remove(name));
        run_dir::sweep(is_abandoned);
        left
    }

    /// The same as soon as a process has ended, for which it waits at most `patience`.
    pub fn sweep_after(pid: u32, patience: Duration) -> Vec<String> {
        let begun = Instant::now();
        while !has_ended(pid) && begun.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
        Lab::sweep()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.hosts.iter().for_each(|host| remove(host.name()));
    }
}

/// The owner of /proc/self is the effective user.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// Ends the processes in a namespace and removes it. Whatever fails here has been
/// removed by another, or will be found by the next sweep.
fn remove(name: &str) {
    let mine = id().to_string();
    if let Ok(pids) = run(&["ip", "netns", "pids", name]) {
        for pid in pids.split_whitespace().filter(|pid| *pid != mine) {
            let _ = run(&["sh", "-c", "kill -9 \"$1\"", "sh", pid]);
        }
    }
    let _ = run(&["ip", "netns", "del", name]);
}

/// The names of all namespaces of the machine.
fn namespaces() -> Vec<String> {
    let Ok(directory) = std::fs::read_dir(netns::DIRECTORY) else {
        return Vec::new(); // none was ever made
    };
    directory.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn check_name(name: &str) -> Result<(), LabError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=32).contains(&name.len()) && name.bytes().all(allowed) {
        Ok(())
    } else {
        Err(LabError::Name(name.to_owned()))
    }
}

/// Between two looks at whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Serial of the next lab of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused() {
        for bad in ["", "a/b", "..", "a.b", "Probe", &"x".repeat(33)] {
            assert!(matches!(Lab::new(bad), Err(LabError::Name(_))), "{bad}");
        }
        assert!(Lab::new("demo-1").is_ok());
    }
}

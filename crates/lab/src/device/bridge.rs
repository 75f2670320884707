//! The kernel's bridge as a device under test.

use std::collections::BTreeMap;

use super::context::DeviceContext;
use super::function::Function;
use super::netlink;
use crate::LabError;

pub(crate) struct Bridge {
    /// Stations that it learns at most; 0: as many as there are.
    pub(crate) stations: u32,
}

impl Function for Bridge {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        let ports = at.interfaces();
        join(at, BRIDGE, &ports.iter().map(String::as_str).collect::<Vec<_>>())?;
        match self.stations {
            0 => Ok(()),
            // An older kernel says nothing, and learns them all.
            _ if kernel() < LIMITS => Err(LabError::Bed(
                "a bridge of few stations needs Linux 6.7, which can limit what it learns".into(),
            )),
            most => netlink::limit_learning(&at.host, BRIDGE, most),
        }
    }

    fn forget(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        let flush = ["ip", "link", "set", BRIDGE, "type", "bridge", "fdb_flush"];
        at.host.run(&flush).map(drop)
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        at.host.run(&["ip", "link", "del", BRIDGE]).map(drop)
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        for name in ["ageing_time", "stp_state", "multicast_snooping"] {
            let file = format!("/sys/class/net/{BRIDGE}/bridge/{name}");
            let value = at.host.run(&["cat", &file])?.trim().to_owned();
            facts.insert(at.fact(&format!("bridge {name}")), value);
        }
        Ok(())
    }
}

/// Makes a bridge of these ports. Without spanning tree, so that it forwards at once, and
/// without multicast snooping, so that it floods multicast and
/// sends no queries of its own.
pub(crate) fn join(at: &DeviceContext, bridge: &str, ports: &[&str]) -> Result<(), LabError> {
    let kind = "type bridge stp_state 0 forward_delay 0 mcast_snooping 0";
    let mut batch = format!("link add {bridge} {kind}\n");
    for port in ports {
        batch += &format!("link set {port} master {bridge}\n");
    }
    at.batch(&format!("{batch}link set {bridge} up\n"))
}

/// Version and patch level of the running kernel.
fn kernel() -> (u32, u32) {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// The kernel whose bridges can be set to learn a number of stations.
const LIMITS: (u32, u32) = (6, 7);
const BRIDGE: &str = "br0";

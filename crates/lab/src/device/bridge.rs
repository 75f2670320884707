//! The kernel's bridge.

use std::collections::BTreeMap;

use super::function::{Function, PORTS, Place};
use crate::LabError;

pub(crate) struct Bridge;

impl Function for Bridge {
    fn start(&mut self, at: &Place) -> Result<(), LabError> {
        join(at, BRIDGE, &PORTS)
    }

    fn stop(&mut self, at: &Place) -> Result<(), LabError> {
        at.host.run(&["ip", "link", "del", BRIDGE]).map(drop)
    }

    fn facts(&self, at: &Place, facts: &mut BTreeMap<String, String>) -> Result<(), LabError> {
        for name in ["ageing_time", "stp_state", "multicast_snooping"] {
            let file = format!("/sys/class/net/{BRIDGE}/bridge/{name}");
            let value = at.host.run(&["cat", &file])?.trim().to_owned();
            facts.insert(at.fact(&format!("bridge {name}")), value);
        }
        Ok(())
    }
}

/// Makes a bridge of these ports. Without spanning tree, so that it forwards at once, and
/// without multicast snooping, so that it floods multicast as RFC 2889's devices do and
/// sends no queries of its own.
pub(crate) fn join(at: &Place, bridge: &str, ports: &[&str]) -> Result<(), LabError> {
    let kind = "type bridge stp_state 0 forward_delay 0 mcast_snooping 0";
    let mut batch = format!("link add {bridge} {kind}\n");
    for port in ports {
        batch += &format!("link set {port} master {bridge}\n");
    }
    at.batch(&format!("{batch}link set {bridge} up\n"))
}

const BRIDGE: &str = "br0";

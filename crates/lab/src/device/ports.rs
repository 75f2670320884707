//! The ports of testers and devices: their names, and how they send.

use crate::{Host, LabError};

/// Has an interface send whole frames with their checksums, as on a wire: nothing is left to a
/// card, or to whoever receives.
pub(crate) fn disable_offloads(host: &Host, interface: &str) -> Result<(), LabError> {
    let off = ["tso", "off", "gso", "off", "tx", "off"];
    host.run(&[&["ethtool", "-K", interface], &off[..]].concat()).map(drop)
}

/// Names of the tester's ports, and of their namespaces; the last one only monitors.
pub(crate) const TESTERS: [&str; 3] = ["a", "b", "c"];
/// Their interfaces. (`ip` would take "a" for an abbreviation.)
pub(crate) const TESTER_PORTS: [&str; 3] = ["port-a", "port-b", "port-c"];
/// A device's interfaces: towards a, towards b.
pub(crate) const PORTS: [&str; 2] = ["eth0", "eth1"];
/// And towards the monitoring port.
pub(crate) const MONITORED: &str = "eth2";

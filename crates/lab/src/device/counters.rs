//! Every counter on the way from port to port, and whose loss it counts.
//!
//! Virtual Ethernet counts a frame that finds the receiver's ring full at the *sender's* end
//! (`tx_dropped`). It is the receiver's loss all the same: at the tester's port that of the device,
//! and at the device's that of the tester. Where XDP sent it, it is counted again in the receiver's
//! `rx_dropped` and in the driver's own counters. Of virtual Ethernet only `tx_dropped` and the
//! driver's `rx_queue_N_drops` are taken, so that each frame is in the ledger once. What an XDP
//! program dropped on purpose is for the program to count.

use sonde_results::trial::Side;

use super::counter::{CounterKind, DeviceCounter};
use super::info::BedInfo;
use crate::{Host, LabError};

impl BedInfo {
    /// The counters that every host has: interfaces, IP, connection tracking, the backlog
    /// of the processors.
    pub(super) fn counters(&self) -> Result<Vec<DeviceCounter>, LabError> {
        let mut all = Vec::new();
        for port in &self.ports {
            let host = Host::of(&port.netns);
            let location = format!("tester {}", port.name);
            let neighbour = if self.devices.is_empty() { Side::Tester } else { Side::Device };
            let ring = |interface: &str| (interface == port.interface).then_some(neighbour);
            let mut own = Vec::new();
            host_counters(&host, &location, Side::Tester, ring, &mut own)?;
            // Test frames do not come from the tester's own IP, and nothing of what reaches
            // it there is counted: that it discards them is no loss.
            own.retain(|c| !c.name.starts_with("Ip"));
            all.append(&mut own);
        }
        let last = self.devices.len().saturating_sub(1);
        for (i, device) in self.devices.iter().enumerate() {
            let ring =
                |interface: &str| match device.interfaces.iter().position(|n| n == interface)? {
                    0 if i == 0 => Some(Side::Tester),
                    1 | 2 if i == last => Some(Side::Tester),
                    _ => Some(Side::Device),
                };
            let mut own = Vec::new();
            host_counters(&Self::host(device), &device.name, Side::Device, ring, &mut own)?;
            if !self.spec.device.routes_here() {
                // Its host's IP sees copies of what is flooded, and forwards nothing.
                own.retain(|c| !c.name.starts_with("Ip"));
            }
            all.append(&mut own);
        }
        all.extend(softnet()?);
        Ok(all)
    }
}

/// Adds a host's. `ring`: who reads what this interface sends, if it is virtual Ethernet.
fn host_counters(
    host: &Host,
    location: &str,
    side: Side,
    ring: impl Fn(&str) -> Option<Side>,
    all: &mut Vec<DeviceCounter>,
) -> Result<(), LabError> {
    let text = host.run(&["sh", "-c", READ])?;
    parse(&text, location, side, ring, all);
    Ok(())
}

/// Reads what the script [`READ`] writes.
fn parse(
    text: &str,
    location: &str,
    side: Side,
    ring: impl Fn(&str) -> Option<Side>,
    all: &mut Vec<DeviceCounter>,
) {
    let mut section = "";
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            (section, names) = (title, Vec::new());
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let mut add = |location: String, side, name: &str, kind, value: u64| {
            all.push(DeviceCounter { side, location, name: name.into(), kind, value });
        };
        match (section.split_once(' ').unwrap_or((section, "")), &fields[..]) {
            // "eth0/statistics/rx_dropped:7"
            (("links", _), [entry]) => {
                let Some((path, value)) = entry.split_once(':') else { continue };
                let mut parts = path.split('/');
                let (Some(interface), Some(name)) = (parts.next(), parts.next_back()) else {
                    continue;
                };
                if interface == "lo" {
                    continue; // nothing of the test's passes there
                }
                let Some(kind) = link_kind(name) else { continue };
                let side = match (name, ring(interface)) {
                    ("tx_dropped", Some(reader)) => reader,
                    ("rx_dropped", Some(_)) => continue,
                    _ => side,
                };
                let value = value.parse().unwrap_or(0);
                // A tester's own interface is named by its location.
                let location = match location.strip_prefix("tester ") {
                    Some(_) => location.to_owned(),
                    None => format!("{location} {interface}"),
                };
                add(location, side, name, kind, value);
            }
            // "     rx_queue_0_drops: 7"
            (("driver", interface), [name, value]) => {
                let name = name.trim_end_matches(':');
                let kind = match name {
                    _ if name.ends_with("_xdp_redirect") => CounterKind::Passed,
                    _ if name.starts_with("rx_queue_")
                        && name.ends_with("_drops")
                        && !name.ends_with("_xdp_drops") =>
                    {
                        CounterKind::Dropped
                    }
                    _ => continue,
                };
                let location = match location.strip_prefix("tester ") {
                    Some(_) => location.to_owned(),
                    None => format!("{location} {interface}"),
                };
                add(location, side, name, kind, value.parse().unwrap_or(0));
            }
            // A line of names and one of values, each beginning with "Ip:".
            (("ip", _), [head, ..]) if head.ends_with(':') => {
                if names.first() != Some(head) {
                    names = fields.clone();
                    continue;
                }
                for (name, value) in names.iter().zip(&fields).skip(1) {
                    if let Some(kind) = ip_kind(name) {
                        let name = format!("{}{name}", head.trim_end_matches(':'));
                        add(location.into(), side, &name, kind, value.parse().unwrap_or(0));
                    }
                }
                names.clear();
            }
            (("ip6", _), [name, value]) => {
                if let Some(kind) = name.strip_prefix("Ip6").and_then(ip_kind) {
                    add(location.into(), side, name, kind, value.parse().unwrap_or(0));
                }
            }
            // A head line, then a line a processor, hexadecimal.
            (("conntrack", _), _) => {
                if names.is_empty() {
                    names = fields.clone();
                    continue;
                }
                for (name, value) in names.iter().zip(&fields) {
                    if CONNTRACK_DROPS.contains(name) {
                        let value = u64::from_str_radix(value, 16).unwrap_or(0);
                        let name = format!("conntrack_{name}");
                        match all.iter_mut().find(|c| c.location == location && c.name == name) {
                            Some(sum) => sum.value += value,
                            None => all.push(DeviceCounter {
                                side,
                                location: location.into(),
                                name,
                                kind: CounterKind::Dropped,
                                value,
                            }),
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Adds the counters of a host that ran [`guest_script`] by itself.
pub(super) fn guest_counters(text: &str, location: &str, side: Side, all: &mut Vec<DeviceCounter>) {
    parse(text, location, side, |_| None, all);
}

/// What a host without `ethtool` runs.
pub(super) fn guest_script() -> String {
    let lines = READ.lines().filter(|l| !l.contains("ethtool") && !l.starts_with("exit"));
    lines.collect::<Vec<_>>().join("; ")
}

/// The backlogs of all processors, which all hosts share (/proc/net/softnet_stat; the second
/// value is what found one full).
fn softnet() -> Result<Option<DeviceCounter>, LabError> {
    let path = std::path::Path::new("/proc/net/softnet_stat");
    let text = std::fs::read_to_string(path).map_err(|e| super::run_dir::file_error(path, e))?;
    let dropped = text
        .lines()
        .filter_map(|l| u64::from_str_radix(l.split_whitespace().nth(1)?, 16).ok())
        .sum();
    Ok(Some(DeviceCounter {
        side: Side::Shared,
        location: "processors".into(),
        name: "softnet dropped".into(),
        kind: CounterKind::Dropped,
        value: dropped,
    }))
}

fn link_kind(name: &str) -> Option<CounterKind> {
    match name {
        "rx_packets" | "tx_packets" => Some(CounterKind::Passed),
        "rx_dropped" | "tx_dropped" | "rx_errors" | "tx_errors" | "rx_missed_errors"
        | "rx_nohandler" => Some(CounterKind::Dropped),
        _ => None,
    }
}

/// By the names of RFC 4293.
fn ip_kind(name: &str) -> Option<CounterKind> {
    match name {
        "ForwDatagrams" | "OutForwDatagrams" => Some(CounterKind::Passed),
        "InHdrErrors" | "InTooBigErrors" | "InAddrErrors" | "InUnknownProtos" | "InDiscards"
        | "OutDiscards" | "InNoRoutes" | "OutNoRoutes" | "InTruncatedPkts" | "FragFails" => {
            Some(CounterKind::Dropped)
        }
        _ => None,
    }
}

const CONNTRACK_DROPS: [&str; 4] = ["invalid", "insert_failed", "drop", "early_drop"];

/// One process for all of a host's.
const READ: &str = "\
cd /sys/class/net || exit 1
echo '== links'; grep -H . */statistics/*
echo '== ip'; cat /proc/net/snmp /proc/net/netstat
echo '== ip6'; cat /proc/net/snmp6 2>/dev/null
echo '== conntrack'; cat /proc/net/stat/nf_conntrack 2>/dev/null
for i in *; do echo \"== driver $i\"; ethtool -S \"$i\" 2>/dev/null; done
exit 0";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
== links
eth0/statistics/rx_packets:10
eth0/statistics/tx_dropped:3
eth0/statistics/rx_dropped:12
br0/statistics/tx_dropped:4
br0/statistics/rx_dropped:5
eth1/statistics/collisions:0
lo/statistics/rx_packets:9
== ip
Ip: Forwarding DefaultTTL InDiscards ForwDatagrams
Ip: 1 64 5 6
IpExt: InNoRoutes InOctets
IpExt: 7 8
== ip6
Ip6InNoRoutes                   \t9
Ip6InReceives                   \t9
== conntrack
entries  found invalid drop
00000001 00000000 0000000a 00000001
00000001 00000000 00000001 00000000
== driver eth0
NIC statistics:
     rx_queue_0_drops: 11
     rx_queue_0_xdp_drops: 13
     rx_queue_0_xdp_redirect: 14
     tx_queue_0_xdp_xmit_errors: 12
";

    #[test]
    fn what_the_kernel_prints_is_read_and_a_full_ring_is_its_readers_loss() {
        let mut all = Vec::new();
        let ring = |interface: &str| (interface == "eth0").then_some(Side::Tester);
        parse(TEXT, "dut", Side::Device, ring, &mut all);
        let found: Vec<(&str, &str, Side, u64)> =
            all.iter().map(|c| (&c.location[..], &c.name[..], c.side, c.value)).collect();
        assert_eq!(
            found,
            [
                ("dut eth0", "rx_packets", Side::Device, 10),
                ("dut eth0", "tx_dropped", Side::Tester, 3),
                ("dut br0", "tx_dropped", Side::Device, 4),
                ("dut br0", "rx_dropped", Side::Device, 5),
                ("dut", "IpInDiscards", Side::Device, 5),
                ("dut", "IpForwDatagrams", Side::Device, 6),
                ("dut", "IpExtInNoRoutes", Side::Device, 7),
                ("dut", "Ip6InNoRoutes", Side::Device, 9),
                ("dut", "conntrack_invalid", Side::Device, 11),
                ("dut", "conntrack_drop", Side::Device, 1),
                ("dut eth0", "rx_queue_0_drops", Side::Device, 11),
                ("dut eth0", "rx_queue_0_xdp_redirect", Side::Device, 14),
            ]
        );
        let passed = all.iter().filter(|c| c.kind == CounterKind::Passed).count();
        assert_eq!(passed, 3);
    }
}

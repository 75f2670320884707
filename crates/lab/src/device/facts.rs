//! What a report says of the devices: versions, settings, offloads, where they run.

use std::collections::BTreeMap;

use super::info::BedInfo;
use super::placement::Placement;
use crate::host::run;
use crate::{Host, LabError};

impl BedInfo {
    /// The facts that every bed has.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, String>, LabError> {
        let mut facts = BTreeMap::new();
        let mut add = |name: &str, value: String| facts.insert(name.to_owned(), value);
        add("kernel", run(&["uname", "-srvm"])?.trim().into());
        add("iproute2", run(&["ip", "-V"])?.trim().into());
        add("bed", self.name.clone());
        add("device", self.spec.device.to_string());
        add("devices in series", self.devices.len().to_string());
        add("MTU", self.spec.mtu.to_string());
        add("queues", self.spec.queues.to_string());
        add("neighbours", "permanent entries at both ends; ARP and ND are answered".into());
        add("placement of the devices", self.placement.text());
        for device in &self.devices {
            let host = Self::host(device);
            for interface in &device.interfaces {
                let name = format!("{} {interface}", device.name);
                facts.insert(format!("{name}: offloads"), offloads(&host, interface)?);
                facts.insert(format!("{name}: receive"), receive(&host, interface)?);
            }
            for setting in SETTINGS {
                let file = format!("/proc/sys/{}", setting.replace('.', "/"));
                let value = host.run(&["cat", &file])?.trim().to_owned();
                facts.insert(format!("{}: {setting}", device.name), value);
            }
        }
        for port in &self.ports {
            let host = Host::of(&port.netns);
            let name = format!("tester {}", port.name);
            facts.insert(format!("{name}: offloads"), offloads(&host, &port.interface)?);
            facts.insert(format!("{name}: receive"), receive(&host, &port.interface)?);
        }
        for setting in HOST_SETTINGS {
            let file = format!("/proc/sys/{}", setting.replace('.', "/"));
            if let Ok(value) = std::fs::read_to_string(file) {
                facts.insert(setting.to_owned(), value.trim().to_owned());
            }
        }
        Ok(facts)
    }
}

impl Placement {
    /// A sentence for reports, without its full stop.
    pub fn text(self) -> String {
        match self {
            Placement::None => "there is no device".into(),
            Placement::Inline => "inline, on the sender's processor: it cannot drop".into(),
            Placement::Anywhere => {
                "in threads or processes of their own, wherever the kernel runs them".into()
            }
            Placement::OwnCpu { cpu, shared: false } => format!("processor {cpu}"),
            Placement::OwnCpu { cpu, shared: true } => {
                format!("processor {cpu}, where the tester receives, too")
            }
        }
    }
}

/// The offloads that change what a frame costs, those that are on.
fn offloads(host: &Host, interface: &str) -> Result<String, LabError> {
    let text = host.run(&["ethtool", "-k", interface])?;
    let on: Vec<&str> = (text.lines().map(str::trim))
        .filter_map(|line| line.strip_suffix(": on").or_else(|| line.strip_suffix(": on [fixed]")))
        .filter(|name| OFFLOADS.contains(name))
        .collect();
    Ok(if on.is_empty() { "none".into() } else { on.join(", ") })
}

fn receive(host: &Host, interface: &str) -> Result<String, LabError> {
    let script = "cd /sys/class/net/\"$1\" && \
                  echo \"threaded=$(cat threaded) gro_flush_timeout=$(cat gro_flush_timeout) \
                  napi_defer_hard_irqs=$(cat napi_defer_hard_irqs) \
                  rps_cpus=$(cat queues/rx-0/rps_cpus)\"";
    Ok(host.run(&["sh", "-c", script, "sh", interface])?.trim().to_owned())
}

const OFFLOADS: [&str; 7] = [
    "rx-checksumming",
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "rx-udp-gro-forwarding",
    "rx-gro-list",
];

/// Kernel settings that each namespace has for itself.
const SETTINGS: [&str; 4] = [
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
];

/// Kernel settings that all namespaces of a host share.
const HOST_SETTINGS: [&str; 7] = [
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.dev_weight",
    "net.core.busy_poll",
    "kernel.sched_rt_runtime_us",
    "vm.nr_hugepages",
];

//! What is known of a bed, also by other processes: a note in its folder.

use serde::{Deserialize, Serialize};
use sonde_results::units::format_mac;

use super::placement::Placement;
use super::ports::{TESTER_PORTS, TESTERS, disable_offloads};
use super::spec::BedSpec;
use super::{addresses, netlink, run_dir};
use crate::{AddressFamily, Host, LabError, Mac};

/// A bed: what it was made as, its ports, its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BedInfo {
    /// Unique on this machine; begins the names of its namespaces.
    pub name: String,
    /// What was asked for.
    pub spec: BedSpec,
    /// The tester's ports: a, b and, where there is one, the monitoring port c.
    pub ports: Vec<LabPort>,
    /// The devices, from a to b; none in a loop.
    pub devices: Vec<DeviceInfo>,
    /// On which processor the devices run.
    pub placement: Placement,
}

/// A port of the tester.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabPort {
    /// "a", "b" or "c".
    pub name: String,
    /// Its network namespace, as `ip netns` knows it.
    pub netns: String,
    /// Its interface in that namespace.
    pub interface: String,
    /// Its MAC address, from which it sends.
    pub mac: Mac,
    /// The MAC address to send to: the device's, or behind a bridge the other port's. The
    /// monitoring port sends nothing.
    pub next_hop_mac: Mac,
    /// Its addresses, by family; the monitoring port has none.
    pub addresses: Vec<PortAddress>,
}

/// A port's addresses of one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortAddress {
    /// The family of all of them.
    pub family: AddressFamily,
    /// The port's own address.
    pub address: String,
    /// Where it sends what is not for its own link: the device; or the other port itself.
    pub next_hop: String,
    /// What it may send from: the device routes it back to this port.
    pub network: String,
    /// What it may send to: the other port's network.
    pub far_network: String,
}

/// A device under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// "dut", or "dut1" and "dut2".
    pub name: String,
    /// Its network namespace, as `ip netns` knows it.
    pub netns: String,
    /// Its interfaces towards a, towards b and, where there is one, towards c.
    pub interfaces: Vec<String>,
    /// Processes that forward in user space.
    pub processes: Vec<u32>,
}

impl BedInfo {
    /// The beds on this machine whose process lives.
    pub fn all() -> Result<Vec<BedInfo>, LabError> {
        let mut all = Vec::new();
        for folder in run_dir::all() {
            if folder.file_name().and_then(|n| n.to_str()).is_some_and(run_dir::is_abandoned) {
                continue;
            }
            all.extend(run_dir::read(&folder.join(NOTE))?);
        }
        Ok(all)
    }

    /// How tester and devices are joined, a line a wire.
    pub fn diagram(&self) -> Vec<String> {
        let mut ends = vec![format!("tester {}", TESTERS[0])];
        for device in &self.devices {
            ends.extend(device.interfaces.iter().take(2).map(|i| format!("{} {i}", device.name)));
        }
        ends.push(format!("tester {}", TESTERS[1]));
        let mut wires: Vec<String> = ends.chunks(2).map(|wire| wire.join(" -- ")).collect();
        if let Some((device, third)) =
            self.devices.last().and_then(|d| Some((d, d.interfaces.get(2)?)))
        {
            wires.push(format!("{} {third} -- tester {}", device.name, TESTERS[2]));
        }
        wires
    }

    /// The process ids of a device's receive threads; none: it receives in its sender's
    /// context.
    pub fn receive_threads(&self, device: &DeviceInfo) -> Result<Vec<u32>, LabError> {
        netlink::threads(&Self::host(device), &device.interfaces)
    }

    pub(crate) fn host(device: &DeviceInfo) -> Host {
        Host::of(&device.netns)
    }

    /// Where the devices run: as asked for, or since a layer has given them threads, in those.
    pub(crate) fn placement_now(&self) -> Result<Placement, LabError> {
        match self.spec.placement() {
            Placement::Inline => {
                for device in &self.devices {
                    if self.receive_threads(device)?.is_empty() {
                        return Ok(Placement::Inline);
                    }
                }
                Ok(Placement::Anywhere)
            }
            placement => Ok(placement),
        }
    }

    /// Puts the receive threads of all ports, and the processes of the devices, on their
    /// processors.
    pub(crate) fn place_threads(&self) -> Result<(), LabError> {
        if let Some(cpu) = self.spec.own_cpu {
            for device in &self.devices {
                let host = Self::host(device);
                for interface in &device.interfaces {
                    netlink::set_threaded(&host, interface, true)?;
                }
                for pid in self.receive_threads(device)?.iter().chain(&device.processes) {
                    netlink::pin(*pid, cpu)?;
                    netlink::prefer(*pid)?;
                }
            }
        }
        if let Some(cpu) = self.spec.tester_cpu {
            for port in &self.ports {
                let host = Host::of(&port.netns);
                netlink::set_threaded(&host, &port.interface, true)?;
                for pid in netlink::threads(&host, std::slice::from_ref(&port.interface))? {
                    netlink::pin(pid, cpu)?;
                    netlink::prefer(pid)?;
                }
            }
        }
        Ok(())
    }
}

impl LabPort {
    /// The monitoring port: nobody's station, and silent.
    pub(super) fn monitor(host: &Host, mac: Mac, far: Mac) -> Result<LabPort, LabError> {
        disable_offloads(host, TESTER_PORTS[2])?;
        Ok(LabPort {
            name: TESTERS[2].into(),
            netns: host.name().into(),
            interface: TESTER_PORTS[2].into(),
            mac,
            next_hop_mac: far,
            addresses: Vec::new(),
        })
    }

    /// Gives port `n` of the tester its addresses and the way to the other.
    pub(super) fn set_up(
        host: &Host,
        n: usize,
        mac: Mac,
        far: Mac,
        bridged: bool,
        spec: &BedSpec,
    ) -> Result<LabPort, LabError> {
        let interface = TESTER_PORTS[n];
        disable_offloads(host, interface)?;
        // Test frames for a port's own address that come up to the host must not fill the
        // way back with ICMP errors: one an hour.
        host.sysctl(&["net.ipv4.icmp_ratelimit=3600000", "net.ipv6.icmp.ratelimit=3600000"])?;
        let mut all = Vec::with_capacity(spec.families.len());
        for &family in &spec.families {
            let address = addresses::tester(n, family);
            let everything = addresses::everything(family);
            let (_, whole) = everything.split_once('/').expect("a prefix");
            let next_hop = if bridged {
                host.add_address(interface, &format!("{address}/{whole}"))?;
                addresses::tester(1 - n, family)
            } else {
                let prefix = addresses::link_prefix(family);
                host.add_address(interface, &format!("{address}/{prefix}"))?;
                addresses::gateway(n, family)
            };
            host.set_neighbour(interface, next_hop, &format_mac(far))?;
            if !bridged {
                host.add_route(everything, &["via", next_hop])?;
            }
            all.push(PortAddress {
                family,
                address: address.into(),
                next_hop: next_hop.into(),
                network: addresses::network(n, family).into(),
                far_network: addresses::network(1 - n, family).into(),
            });
        }
        Ok(LabPort {
            name: TESTERS[n].into(),
            netns: host.name().into(),
            interface: interface.into(),
            mac,
            next_hop_mac: far,
            addresses: all,
        })
    }
}

/// A bed's note in its folder.
pub(super) const NOTE: &str = "bed.json";

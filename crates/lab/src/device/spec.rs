//! What bed is wanted.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::placement::Placement;
use crate::{AddressFamily, LabError};

/// A test bed to build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BedSpec {
    /// The device under test.
    pub device: DeviceSpec,
    /// Devices in series, all of that kind: 1 or 2.
    pub chain: u8,
    /// The processor of the devices, which they have to themselves as far as the bed can
    /// see to it. `None`: inline, on the sender's own, where they cannot drop.
    pub own_cpu: Option<usize>,
    /// The processor on which the tester's ports receive. `None`: frames are received where
    /// the device sends them, on its processor.
    pub tester_cpu: Option<usize>,
    /// Largest IP packet on all links, octets.
    pub mtu: u32,
    /// Receive and transmit queues of all interfaces.
    pub queues: u32,
    /// Receive by NAPI (generic receive offload) at all ports. Without it nothing can be
    /// sent there by XDP, and no port can have a thread: it must be on with `own_cpu` or
    /// `tester_cpu`.
    pub gro: bool,
    /// A third port of the tester, "c", behind the last device: what a bridge or switch
    /// floods is seen there (RFC 2889, section 5.7.3).
    #[serde(default)]
    pub monitor: bool,
    /// The memory of virtual machines lies in huge pages of 2 MiB, which the host must have
    /// (vm.nr_hugepages).
    pub hugepages: bool,
    /// Address families that the devices forward.
    pub families: Vec<AddressFamily>,
    /// The program `sonde`, which runs the XDP forwarder in the device's namespace.
    pub sonde: Option<PathBuf>,
}

impl BedSpec {
    /// One device, both families, receiving by NAPI, inline.
    pub fn new(device: DeviceSpec) -> BedSpec {
        BedSpec {
            device,
            chain: 1,
            own_cpu: None,
            tester_cpu: None,
            mtu: 1500,
            queues: 1,
            gro: true,
            monitor: false,
            hugepages: false,
            families: vec![AddressFamily::V4, AddressFamily::V6],
            sonde: None,
        }
    }

    /// With the device on the last processor and the tester's ports on the first, where
    /// there are two or more; else inline.
    pub fn apart(self) -> BedSpec {
        match std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            1 => self,
            n => BedSpec { own_cpu: Some(n - 1), tester_cpu: Some(0), ..self },
        }
    }

    pub(super) fn threaded(&self) -> bool {
        self.own_cpu.is_some() || self.tester_cpu.is_some()
    }

    pub(super) fn placement(&self) -> Placement {
        match (self.own_cpu, &self.device) {
            (_, DeviceSpec::Loop) => Placement::None,
            (Some(cpu), _) => Placement::OwnCpu { cpu, shared: self.tester_cpu == Some(cpu) },
            // A process is never inside the sender's system call.
            (None, device) if device.is_process() => Placement::Anywhere,
            (None, _) => Placement::Inline,
        }
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wrong = |what: String| Err(LabError::Bed(what));
        if !(1..=2).contains(&self.chain) {
            return wrong(format!("{} devices in series: choose 1 or 2", self.chain));
        }
        for cpu in [self.own_cpu, self.tester_cpu].into_iter().flatten() {
            if cpu >= cpus {
                return wrong(format!("no processor {cpu}: this host has 0 to {}", cpus - 1));
            }
        }
        if self.threaded() && !self.gro {
            return wrong("a processor of its own asks for GRO: leave it on".into());
        }
        if self.families.is_empty() {
            return wrong("a bed needs an address family: IPv4, IPv6 or both".into());
        }
        if !(1280..=65_535).contains(&self.mtu) {
            return wrong(format!("an MTU of {} octets: choose 1280 to 65535", self.mtu));
        }
        if !(1..=64).contains(&self.queues) {
            return wrong(format!("{} queues: choose 1 to 64", self.queues));
        }
        if self.monitor && !self.device.is_bridge() {
            return wrong(format!(
                "a monitoring port is for bridges and switches, not {}",
                self.device
            ));
        }
        if self.hugepages && self.device != DeviceSpec::Vm {
            return wrong(format!("huge pages serve a virtual machine only, not {}", self.device));
        }
        Ok(())
    }
}

/// A device under test. As text: "router", "router:routes=1000", "nft:filters=25".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceSpec {
    /// None: the tester's ports joined by a wire. What the tester alone can do.
    Loop,
    /// The kernel's IPv4 and IPv6 forwarding.
    Router {
        /// Routes of each family in each direction; 0 and 1: one for all.
        routes: u32,
    },
    /// The kernel's bridge, learning, without spanning tree.
    Bridge {
        /// Stations that it learns at most; 0: as many as there are.
        stations: u32,
    },
    /// The kernel's router with nftables filters (RFC 2544, section 11.4).
    Firewall {
        /// Filters that each packet is held against; only the last one matches. 0: the
        /// hook alone.
        filters: u32,
        /// The hook tracks connections, too (conntrack).
        conntrack: bool,
    },
    /// The kernel's router that translates what goes from a to b to its own address.
    Nat,
    /// A router in XDP, by the kernel's routing table.
    Xdp,
    /// Open vSwitch as a learning switch, frames forwarded in the kernel.
    OvsKernel,
    /// Open vSwitch as a learning switch, frames forwarded in user space.
    OvsNetdev,
    /// A Linux router in a virtual machine: qemu, virtio, tap, the host's bridge.
    Vm,
}

impl DeviceSpec {
    /// One of each kind.
    pub const ALL: [DeviceSpec; 9] = [
        DeviceSpec::Loop,
        DeviceSpec::Router { routes: 0 },
        DeviceSpec::Bridge { stations: 0 },
        DeviceSpec::Firewall { filters: 1, conntrack: false },
        DeviceSpec::Nat,
        DeviceSpec::Xdp,
        DeviceSpec::OvsKernel,
        DeviceSpec::OvsNetdev,
        DeviceSpec::Vm,
    ];

    /// What it is, in a line.
    pub fn about(&self) -> &'static str {
        match self {
            DeviceSpec::Loop => "no device: the tester's ports joined by a wire",
            DeviceSpec::Router { .. } => "kernel routing, IPv4 and IPv6 (routes=N for a big table)",
            DeviceSpec::Bridge { .. } => {
                "kernel bridge, learning (stations=N for a table that small)"
            }
            DeviceSpec::Firewall { .. } => {
                "router with nftables filters (filters=0, 1, 25; conntrack=true)"
            }
            DeviceSpec::Nat => "router that translates what goes from a to b",
            DeviceSpec::Xdp => "router in XDP, by the kernel's routing table",
            DeviceSpec::OvsKernel => "Open vSwitch, data path in the kernel",
            DeviceSpec::OvsNetdev => "Open vSwitch, data path in user space",
            DeviceSpec::Vm => "Linux router in a virtual machine (qemu, virtio, tap)",
        }
    }

    /// Whether it forwards by MAC addresses: the ports are then on one network.
    pub fn is_bridge(&self) -> bool {
        use DeviceSpec::{Bridge, OvsKernel, OvsNetdev};
        matches!(self, Bridge { .. } | OvsKernel | OvsNetdev)
    }

    /// Whether the IP of the device's namespace forwards.
    pub(super) fn routes_here(&self) -> bool {
        !self.is_bridge() && !matches!(self, DeviceSpec::Vm | DeviceSpec::Loop)
    }

    /// Whether frames pass through a process in user space.
    pub fn is_process(&self) -> bool {
        matches!(self, DeviceSpec::OvsNetdev | DeviceSpec::Vm)
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Loop => f.write_str("loop"),
            DeviceSpec::Router { routes: 0 } => f.write_str("router"),
            DeviceSpec::Router { routes } => write!(f, "router:routes={routes}"),
            DeviceSpec::Bridge { stations: 0 } => f.write_str("bridge"),
            DeviceSpec::Bridge { stations } => write!(f, "bridge:stations={stations}"),
            DeviceSpec::Firewall { filters, conntrack } => {
                write!(f, "nft:filters={filters}")?;
                if *conntrack { f.write_str(",conntrack=true") } else { Ok(()) }
            }
            DeviceSpec::Nat => f.write_str("nat"),
            DeviceSpec::Xdp => f.write_str("xdp"),
            DeviceSpec::OvsKernel => f.write_str("ovs-kernel"),
            DeviceSpec::OvsNetdev => f.write_str("ovs-netdev"),
            DeviceSpec::Vm => f.write_str("vm"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        let mut device = match kind {
            "loop" => DeviceSpec::Loop,
            "router" => DeviceSpec::Router { routes: 0 },
            "bridge" => DeviceSpec::Bridge { stations: 0 },
            "nft" => DeviceSpec::Firewall { filters: 1, conntrack: false },
            "nat" => DeviceSpec::Nat,
            "xdp" => DeviceSpec::Xdp,
            "ovs-kernel" => DeviceSpec::OvsKernel,
            "ovs-netdev" => DeviceSpec::OvsNetdev,
            "vm" => DeviceSpec::Vm,
            _ => {
                return Err(format!(
                    "'{kind}' is no device; choose loop, router, bridge, nft, nat, xdp, \
                     ovs-kernel, ovs-netdev or vm"
                ));
            }
        };
        for option in options.split(',').filter(|o| !o.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return Err(format!("'{option}' is no option: write NAME=VALUE"));
            };
            let at_most = |most: u32| match value.parse::<u32>() {
                Ok(n) if n <= most => Ok(n),
                _ => Err(format!("{name}={value}: a at_most from 0 to {most} is wanted")),
            };
            match (&mut device, name) {
                (DeviceSpec::Router { routes }, "routes") => *routes = at_most(65_536)?,
                (DeviceSpec::Bridge { stations }, "stations") => *stations = at_most(1 << 20)?,
                (DeviceSpec::Firewall { filters, .. }, "filters") => *filters = at_most(10_000)?,
                (DeviceSpec::Firewall { conntrack, .. }, "conntrack") => {
                    *conntrack = value.parse().map_err(|_| format!("{option}: true or false?"))?;
                }
                _ => return Err(format!("a {kind} has no option '{name}'")),
            }
        }
        Ok(device)
    }
}

impl TryFrom<String> for DeviceSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceSpec> for String {
    fn from(device: DeviceSpec) -> String {
        device.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_as_it_is_written() {
        for device in DeviceSpec::ALL {
            assert_eq!(device.to_string().parse(), Ok(device));
            assert!(!device.about().is_empty());
        }
        let text = "nft:filters=25,conntrack=true";
        assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), text);
        let small = DeviceSpec::Bridge { stations: 64 };
        assert_eq!(small.to_string().parse(), Ok(small));
        assert_eq!("router:routes=1000".parse(), Ok(DeviceSpec::Router { routes: 1000 }));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("hub", "choose loop"),
            ("bridge:routes=1", "a bridge has no option 'routes'"),
            ("router:routes", "write NAME=VALUE"),
            ("router:routes=-1", "0 to 65536"),
            ("nft:conntrack=1", "true or false"),
        ] {
            let error = text.parse::<DeviceSpec>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let router = BedSpec::new(DeviceSpec::Router { routes: 0 });
        for (spec, part) in [
            (BedSpec { chain: 3, ..router.clone() }, "1 or 2"),
            (BedSpec { own_cpu: Some(100_000), ..router.clone() }, "no processor 100000"),
            (BedSpec { own_cpu: Some(0), gro: false, ..router.clone() }, "GRO"),
            (BedSpec { families: vec![], ..router.clone() }, "address family"),
            (BedSpec { mtu: 576, ..router.clone() }, "1280"),
            (BedSpec { queues: 0, ..router.clone() }, "1 to 64"),
            (BedSpec { monitor: true, ..router.clone() }, "bridges and switches"),
            (BedSpec { hugepages: true, ..router }, "virtual machine"),
        ] {
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(part), "{spec:?}: {error}");
        }
    }
}

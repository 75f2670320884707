//! Test beds: two ports of a tester, and between them a device under test made on the spot
//! (RFC 2544, section 6), alone or two in series.
//!
//! ```text
//! a (namespace "a") -- eth0 [ device 1 ] eth1 -- eth0 [ device 2 ] eth1 -- b (namespace "b")
//! ```
//!
//! Behind bridges and switches a third port, c, can monitor what is flooded
//! ([`BedSpec::monitor`]).
//!
//! Addresses are those of RFC 6815, section 4.2: port a's networks are 198.18.0.0/16 and
//! 2001:2::/49, port b's 198.19.0.0/16 and 2001:2:0:8000::/49. Each has one address of its own
//! (.2); all others of its networks are reached through it. Neighbour entries are permanent at both
//! ends of a link, so that no trial waits for ARP or loses to it. Who asks all the same is
//! answered.
//!
//! On virtual Ethernet a device is part of its sender by nature. The kernel forwards a frame inside
//! the system call that sends it, and nothing can be lost. [`BedSpec::own_cpu`] takes it out of
//! there. Its ports then receive in kernel threads of their own ("threaded NAPI") on that
//! processor. Before them is a ring of 256 frames that overflows as a real one does.

mod addresses;
mod bridge;
mod console;
mod context;
mod counter;
mod counters;
mod facts;
mod function;
mod info;
mod netfilter;
pub(crate) mod netlink;
mod ovs;
mod placement;
mod ports;
mod registry;
mod router;
pub(crate) mod run_dir;
mod spec;
mod vm;
mod xdp;

pub use counter::{CounterKind, DeviceCounter};
pub use info::{BedInfo, DeviceInfo, LabPort, PortAddress};
pub use placement::Placement;
pub use spec::{BedSpec, DeviceSpec};

use std::collections::BTreeMap;
use std::time::Duration;

use self::context::DeviceContext;
use self::function::Function;
use self::ports::{MONITORED, TESTER_PORTS, TESTERS};
use self::run_dir::RunDir;
use crate::lab::is_root;
use crate::{Host, Lab, LabError, LinkOptions};

/// A test bed in use. Dropping it, in a panic too, ends its processes and removes it; what a
/// killed process left, [`Lab::sweep`] removes.
pub struct LabBed {
    info: BedInfo,
    devices: Vec<Device>,
    // Dropped in this order: the namespaces go before the folder that their processes use.
    _lab: Lab,
    _run_dir: RunDir,
}

struct Device {
    context: DeviceContext,
    function: Box<dyn Function>,
}

/// What is done to a device (RFC 6201). In all of them the links stay up, as a wire does to a
/// tester that goes on sending. With one down the frames would be the tester's own loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceReset {
    /// The forwarding process restarts (section 4.2): configuration and state are dropped
    /// and made anew; a virtual machine reboots, a user-space switch is started again.
    Software,
    /// Power is cut for this long (section 4.3): processes are killed, nothing is
    /// forwarded, then all begins anew.
    Power(Duration),
}

impl LabBed {
    /// Makes the namespaces, links, addresses and devices that the spec asks for.
    ///
    /// # Errors
    /// [`LabError::Bed`] for what cannot be built; a missing tool, kernel feature or
    /// privilege by its name.
    pub fn build(spec: &BedSpec) -> Result<LabBed, LabError> {
        spec.check()?;
        if !is_root() {
            return Err(LabError::Privilege);
        }
        let mut lab = Lab::new("bed")?;
        let run_dir = RunDir::make(lab.stem())?;
        let testers = [lab.host(TESTERS[0])?, lab.host(TESTERS[1])?];
        for tester in &testers {
            // What their kernels report of multicast (RFC 9777) is to be over before a trial
            // begins: a bridge learns who said it.
            tester.sysctl(&["net.ipv6.conf.default.mldv2_unsolicited_report_interval=1"])?;
        }
        let count = if spec.device == DeviceSpec::Loop { 0 } else { usize::from(spec.chain) };
        let name = |i: usize| match count {
            1 => "dut".to_owned(),
            _ => format!("dut{}", i + 1),
        };
        let duts: Vec<Host> = (0..count).map(|i| lab.host(&name(i))).collect::<Result<_, _>>()?;
        let link =
            LinkOptions { queues: spec.queues, mtu: spec.mtu, gro: spec.gro || spec.threaded() };

        // From a to b: the two ends of each wire, and the MAC addresses there.
        let ends: Vec<(&Host, &str, &Host, &str)> = (0..=count)
            .map(|i| {
                let left =
                    if i == 0 { (&testers[0], TESTER_PORTS[0]) } else { (&duts[i - 1], "eth1") };
                let right =
                    if i == count { (&testers[1], TESTER_PORTS[1]) } else { (&duts[i], "eth0") };
                (left.0, left.1, right.0, right.1)
            })
            .collect();
        let macs = (ends.iter().map(|(h, i, g, j)| lab.link(h, i, g, j, &link)))
            .collect::<Result<Vec<_>, _>>()?;

        let mut third = None;
        if spec.monitor {
            let host = lab.host(TESTERS[2])?;
            // Whatever it said by itself a bridge would learn.
            host.sysctl(&["net.ipv6.conf.default.disable_ipv6=1"])?;
            let last = duts.last().expect("a bridge, as was checked");
            let (far, own) = lab.link(last, MONITORED, &host, TESTER_PORTS[2], &link)?;
            third = Some(LabPort::monitor(&host, own, far)?);
        }

        let bridged = count == 0 || spec.device.is_bridge();
        let mut ports = Vec::with_capacity(2);
        for (n, host) in testers.iter().enumerate() {
            let (own, far) = match n {
                0 => (macs[0].0, if bridged { macs[count].1 } else { macs[0].1 }),
                _ => (macs[count].1, if bridged { macs[0].0 } else { macs[count].0 }),
            };
            ports.push(LabPort::set_up(host, n, own, far, bridged, spec)?);
        }
        ports.extend(third);
        let mut devices = Vec::with_capacity(count);
        for (i, host) in duts.into_iter().enumerate() {
            let macs = [[macs[i].1, macs[i].0], [macs[i + 1].0, macs[i + 1].1]];
            let sides = addresses::sides(i, count, macs, &spec.families);
            let mut context = DeviceContext::new(host, name(i), sides, spec, run_dir.path());
            context.monitored = spec.monitor && i + 1 == count;
            context.quiet()?;
            let mut function = registry::make(&spec.device)?;
            function.start(&context)?;
            devices.push(Device { context, function });
        }
        let info = BedInfo {
            name: lab.stem().to_owned(),
            spec: spec.clone(),
            ports,
            devices: Vec::new(),
            placement: spec.placement(),
        };
        let mut bed = LabBed { info, devices, _lab: lab, _run_dir: run_dir };
        bed.settle()?;
        Ok(bed)
    }

    /// Everything that others need to know of it: the ports, the devices, where they run.
    pub fn info(&self) -> &BedInfo {
        &self.info
    }

    /// Every counter on the way, as it stands. Those that grew during a trial are its
    /// ledger.
    pub fn counters(&self) -> Result<Vec<DeviceCounter>, LabError> {
        let mut all = self.info.counters()?;
        for device in &self.devices {
            device.function.counters(&device.context, &mut all)?;
        }
        Ok(all)
    }

    /// Facts of the devices by name: versions, settings, offloads, configuration.
    pub fn facts(&self) -> Result<BTreeMap<String, String>, LabError> {
        let mut facts = self.info.facts()?;
        for device in &self.devices {
            device.function.facts(&device.context, &mut facts)?;
        }
        Ok(facts)
    }

    /// Has all devices forget what they learned from frames: stations, connections.
    ///
    /// # Errors
    /// What a device's own tools say.
    pub fn forget(&mut self) -> Result<(), LabError> {
        for device in &mut self.devices {
            device.function.forget(&device.context)?;
        }
        self.settle()
    }

    /// Resets all devices, one after the other from port a; returns when they are
    /// configured again.
    pub fn reset(&mut self, reset: DeviceReset) -> Result<(), LabError> {
        match reset {
            DeviceReset::Software => {
                for device in &mut self.devices {
                    device.function.restart(&device.context)?;
                }
            }
            DeviceReset::Power(off) => {
                for device in &mut self.devices {
                    device.function.stop(&device.context)?;
                }
                std::thread::sleep(off);
                for device in &mut self.devices {
                    device.function.start(&device.context)?;
                }
            }
        }
        self.settle()
    }

    /// Puts threads and processes where they belong, and brings the notes for other
    /// processes up to date. To be called again after a tester has attached or detached an
    /// XDP program at its ports: the kernel then replaces receive threads.
    pub fn settle(&mut self) -> Result<(), LabError> {
        self.info.devices = (self.devices.iter())
            .map(|d| DeviceInfo {
                name: d.context.name.clone(),
                netns: d.context.host.name().to_owned(),
                interfaces: d.context.interfaces(),
                processes: d.function.processes(),
            })
            .collect();
        self.info.place_threads()?;
        self.info.placement = self.info.placement_now()?;
        self._run_dir.write("bed.json", &self.info)
    }
}

impl std::fmt::Debug for LabBed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("info", &self.info).finish_non_exhaustive()
    }
}

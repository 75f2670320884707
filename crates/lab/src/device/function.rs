//! What every kind of device can do, and where it does it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::addresses::Side;
use super::counters::Counter;
use super::spec::{BedSpec, DeviceSpec};
use super::{bridge, netfilter, ovs, router, vm, xdp};
use crate::lab::mac_text;
use crate::{Family, Host, LabError};

/// A kind of device: a network function that forwards between two ports.
pub(crate) trait Function: Send {
    /// Configures it, from nothing, until it forwards.
    fn start(&mut self, at: &Place) -> Result<(), LabError>;

    /// Forgets what was learned from frames, and forwards on.
    fn forget(&mut self, at: &Place) -> Result<(), LabError> {
        self.restart(at)
    }

    /// Undoes that: nothing is forwarded, no state is left, the ports stay up.
    fn stop(&mut self, at: &Place) -> Result<(), LabError>;

    /// Restarts what forwards (RFC 6201, section 4.2).
    fn restart(&mut self, at: &Place) -> Result<(), LabError> {
        self.stop(at)?;
        self.start(at)
    }

    /// Counters of its own, beside those that every host has.
    fn counters(&self, _at: &Place, _all: &mut Vec<Counter>) -> Result<(), LabError> {
        Ok(())
    }

    /// Facts of its own, beside those that every host has.
    fn facts(&self, at: &Place, facts: &mut BTreeMap<String, String>) -> Result<(), LabError>;

    /// Its processes, whose threads do the forwarding.
    fn processes(&self) -> Vec<u32> {
        Vec::new()
    }
}

/// What forwards as the plan says.
pub(crate) fn make(device: &DeviceSpec) -> Result<Box<dyn Function>, LabError> {
    Ok(match *device {
        DeviceSpec::Router { routes } => Box::new(router::Router { routes }),
        DeviceSpec::Bridge { stations } => Box::new(bridge::Bridge { stations }),
        DeviceSpec::Firewall { filters, conntrack } => {
            Box::new(netfilter::Firewall { filters, conntrack })
        }
        DeviceSpec::Nat => Box::new(netfilter::Nat),
        DeviceSpec::Loop => return Err(LabError::Bed("a loop has no device".into())),
        DeviceSpec::Xdp => Box::new(xdp::Xdp::default()),
        DeviceSpec::OvsKernel => Box::new(ovs::Ovs::new(false)),
        DeviceSpec::OvsNetdev => Box::new(ovs::Ovs::new(true)),
        DeviceSpec::Vm => Box::new(vm::Vm::default()),
    })
}

/// Where a device is: its namespace with two ports, and its surroundings.
pub(crate) struct Place {
    pub(crate) host: Host,
    /// "dut", or "dut1" and "dut2".
    pub(crate) name: String,
    pub(crate) sides: [Side; 2],
    pub(crate) spec: BedSpec,
    /// It has a third port, towards the tester's monitoring one.
    pub(crate) monitored: bool,
    /// For its files.
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn new(
        host: Host,
        name: String,
        sides: [Side; 2],
        spec: &BedSpec,
        run: &Path,
    ) -> Place {
        let folder = run.join(&name);
        Place { host, name, sides, spec: spec.clone(), monitored: false, folder }
    }

    /// The interfaces that frames enter and leave by.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        let third = self.monitored.then_some(MONITORED);
        PORTS.into_iter().chain(third).map(str::to_owned).collect()
    }

    /// Has the host say nothing by itself: no IPv6 before a function asks for it, no
    /// redirects when both ports of a chain are on one network. And has its ports send as on
    /// a wire: an interface that leaves segments to others has virtual Ethernet bypass the
    /// receiver's ring.
    pub(crate) fn quiet(&self) -> Result<(), LabError> {
        for port in self.interfaces() {
            as_on_a_wire(&self.host, &port)?;
        }
        self.host.sysctl(&[
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
            "net.ipv4.conf.all.send_redirects=0",
            "net.ipv4.conf.default.send_redirects=0",
            "net.ipv6.conf.all.accept_ra=0",
        ])
    }

    /// Gives the ports their addresses, neighbours and routes, and forwards.
    pub(crate) fn route(&self, routes: u32) -> Result<(), LabError> {
        self.host.sysctl(&["net.ipv6.conf.all.disable_ipv6=0"])?;
        let mut batch = String::new();
        for (port, side) in PORTS.iter().zip(&self.sides) {
            let peer = mac_text(side.peer_mac);
            for r in &side.routes {
                let nodad = if r.family == Family::V6 { " nodad" } else { "" };
                let (own, prefix, hop) = (r.own, r.prefix, r.next_hop);
                batch += &format!("addr replace {own}/{prefix} dev {port}{nodad}\n");
                batch += &format!("neigh replace {hop} lladdr {peer} dev {port} nud permanent\n");
                for network in super::addresses::split(r.network, routes) {
                    batch += &format!("route replace {network} via {hop} dev {port}\n");
                }
            }
        }
        self.batch(&batch)?;
        self.host.sysctl(&["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1"])
    }

    /// Takes addresses, neighbours and routes away, and forwards no more.
    pub(crate) fn unroute(&self) -> Result<(), LabError> {
        self.host.sysctl(&["net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"])?;
        for port in PORTS {
            for what in ["neigh", "addr"] {
                // Permanent entries, too; routes go with the addresses.
                let scope: &[&str] = if what == "neigh" { &["nud", "permanent"] } else { &[] };
                let flush = ["ip", what, "flush", "dev", port];
                self.host.run(&[&flush[..], scope].concat())?;
            }
        }
        self.host.sysctl(&["net.ipv6.conf.all.disable_ipv6=1"])
    }

    /// Runs many `ip` commands as one.
    pub(crate) fn batch(&self, commands: &str) -> Result<(), LabError> {
        let file = self.write("ip.batch", commands)?;
        self.host.run(&["ip", "-batch", &file]).map(drop)
    }

    /// Writes a file of this device's and returns its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<String, LabError> {
        let path = self.folder.join(name);
        std::fs::create_dir_all(&self.folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| super::run_dir::file_error(&path, e))?;
        Ok(path.to_str().expect("made of plain names").to_owned())
    }

    /// A fact's name: "dut: routes".
    pub(crate) fn fact(&self, name: &str) -> String {
        format!("{}: {name}", self.name)
    }
}

/// Has an interface send whole frames with their checksums: nothing is left to a card, or to
/// whoever receives.
pub(crate) fn as_on_a_wire(host: &Host, interface: &str) -> Result<(), LabError> {
    let off = ["tso", "off", "gso", "off", "tx", "off"];
    host.run(&[&["ethtool", "-K", interface], &off[..]].concat()).map(drop)
}

/// A device's interfaces: towards a, towards b.
pub(crate) const PORTS: [&str; 2] = ["eth0", "eth1"];
/// And towards the monitoring port.
pub(crate) const MONITORED: &str = "eth2";

//! Where a device's function runs: its namespace, addresses and files, and what functions
//! share of setting these up.

use std::path::{Path, PathBuf};

use sonde_results::units::format_mac;

use super::addresses::DeviceSide;
use super::ports::{MONITORED, PORTS, disable_offloads};
use super::spec::BedSpec;
use crate::{AddressFamily, Host, LabError};

/// A device's namespace with two ports, and its surroundings.
pub(crate) struct DeviceContext {
    pub(crate) host: Host,
    /// "dut", or "dut1" and "dut2".
    pub(crate) name: String,
    pub(crate) sides: [DeviceSide; 2],
    pub(crate) spec: BedSpec,
    /// It has a third port, towards the tester's monitoring one.
    pub(crate) monitored: bool,
    /// Its configuration and state files, below the bed's folder.
    pub(crate) folder: PathBuf,
}

impl DeviceContext {
    pub(crate) fn new(
        host: Host,
        name: String,
        sides: [DeviceSide; 2],
        spec: &BedSpec,
        run: &Path,
    ) -> DeviceContext {
        let folder = run.join(&name);
        DeviceContext { host, name, sides, spec: spec.clone(), monitored: false, folder }
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
            disable_offloads(&self.host, &port)?;
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
            let peer = format_mac(side.peer_mac);
            for r in &side.routes {
                let nodad = if r.family == AddressFamily::V6 { " nodad" } else { "" };
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

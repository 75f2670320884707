//! iperf3 through client, router and server: the traffic that `sonde rtt` is measured in.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sonde_lab::{Host, LinkOptions, ROUTER_PROBE_SIDE, ROUTER_REFLECTOR_SIDE, Topology};

use crate::child::ChildGuard;

pub const SERVER: &str = "10.3.0.1";
/// The server's first port.
pub const PORT: usize = 5201;
/// How long anything may take to be ready.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Three hosts, whose interfaces neither join nor cut segments.
pub fn network() -> Result<Topology> {
    let topology = Topology::three_hosts("bench", &LinkOptions::default())?;
    for (host, interface) in [
        (&topology.probe, Topology::INTERFACE),
        (router(&topology)?, ROUTER_PROBE_SIDE),
        (router(&topology)?, ROUTER_REFLECTOR_SIDE),
        (&topology.reflector, Topology::INTERFACE),
    ] {
        host.offloads_off(interface)?;
    }
    Ok(topology)
}

pub fn router(topology: &Topology) -> Result<&Host> {
    topology.router.as_ref().context("the topology has a router")
}

/// Servers of one connection each, on this many ports, listening.
pub fn servers(host: &Host, count: usize) -> Result<Vec<ChildGuard>> {
    let ports: Vec<String> = (PORT..PORT + count).map(|port| port.to_string()).collect();
    let mut servers = Vec::new();
    for port in &ports {
        let mut server = host.command("iperf3");
        server.args(["-s", "-1", "-p", port]).stdout(Stdio::null()).stderr(Stdio::null());
        servers.push(ChildGuard(server.spawn()?));
    }
    let patience = Instant::now();
    for port in &ports {
        while !host.run(&["ss", "-Hltn", "sport", "=", &format!(":{port}")])?.contains("LISTEN") {
            if patience.elapsed() > PATIENCE {
                bail!("the iperf3 server does not listen on port {port}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(servers)
}

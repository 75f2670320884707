//! The tester's ports: what they are, and whether they are still up.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sonde_port::netlink::{Link, Links};
use sonde_port::netns;
use sonde_wire::ethernet::Mac;

use super::TesterPort;

/// A port, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Index of its interface, in its namespace.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// Largest IP packet, octets.
    pub mtu: u32,
    /// Receive queues.
    pub rx_queues: u32,
    /// "veth", "vlan" and so on; empty for hardware.
    pub kind: String,
}

/// What a port is.
///
/// # Errors
/// No such interface or namespace, or it is down.
pub fn port_facts(port: &TesterPort) -> Result<PortFacts> {
    let named = || format!("port {}", port.name);
    let whose = port.netns.as_ref().map_or(String::new(), |n| format!(" in namespace {n}"));
    let find = || -> std::io::Result<Option<Link>> {
        Ok(Links::open()?.all()?.into_iter().find(|link| link.name == port.interface))
    };
    let mut waited = Duration::ZERO;
    let link = loop {
        let link = netns::inside(port.netns.as_deref(), find).with_context(named)?;
        let link = link.with_context(named)?.with_context(|| {
            let interface = &port.interface;
            format!("port {}: no interface named '{interface}'{whose}; see 'ip link'", port.name)
        })?;
        // The carrier of a link that was just set up takes a moment to show.
        if link.running || waited >= CARRIER {
            break link;
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    };
    ensure!(
        link.running,
        "port {}: interface {}{whose} is down or has no carrier; see 'ip link'",
        port.name,
        port.interface
    );
    Ok(PortFacts {
        ifindex: link.ifindex,
        mac: link.mac,
        mtu: link.mtu,
        rx_queues: link.rx_queues,
        kind: link.kind,
    })
}

/// Frames that a port has handed on or had to drop so far, by the interface's own count; `None`
/// where the kernel does not tell.
pub(super) fn handed_on(port: &TesterPort) -> Option<u64> {
    // Of this thread's network namespace, which /sys is not.
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").ok();
    let table = netns::inside(port.netns.as_deref(), read).ok()??;
    let row = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == port.interface).then_some(counts)
    })?;
    // Eight columns of reception, then octets, packets, errors and drops of transmission.
    let counts: Vec<u64> = row.split_whitespace().map_while(|n| n.parse().ok()).collect();
    Some(counts.get(9)? + counts.get(10)? + counts.get(11)?)
}

/// Looks whether ports are still up.
pub(super) struct Watch {
    ports: Vec<(String, u32, Links)>,
}

impl Watch {
    pub(super) fn open(ports: &[TesterPort], facts: &[PortFacts]) -> Result<Watch> {
        let open = |(port, facts): (&TesterPort, &PortFacts)| {
            // A socket stays in the namespace where it was opened.
            let links = netns::inside(port.netns.as_deref(), Links::open)?
                .with_context(|| format!("port {}: watch it", port.name))?;
            Ok((port.name.clone(), facts.ifindex, links))
        };
        Ok(Watch { ports: ports.iter().zip(facts).map(open).collect::<Result<_>>()? })
    }

    /// What is wrong with a port, if anything is.
    pub(super) fn down(&mut self) -> Option<String> {
        self.ports.iter_mut().find_map(|(name, ifindex, links)| match links.get(*ifindex) {
            Ok(Some(link)) if link.running => None,
            Ok(Some(_)) => Some(format!("port {name} went down, or lost its carrier")),
            Ok(None) => Some(format!("the interface of port {name} is gone")),
            // Not being able to look is no reason to end a trial.
            Err(_) => None,
        })
    }
}

/// How long a port's carrier is waited for.
const CARRIER: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);

//! The tester's ports: what they are, and whether they are still up.

use std::time::Duration;

use anyhow::{Context as _, Result};
use sonde_run::error::RunError;
use sonde_sys::SysError;
use sonde_sys::netlink::{Link, Links};
use sonde_sys::netns;
use sonde_wire::ethernet::Mac;

use super::TesterPort;

/// A port, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Index of its interface, in its namespace.
    pub ifindex: u32,
    pub mac: Mac,
    /// Largest IP packet, octets.
    pub mtu: u32,
    pub rx_queues: u32,
    /// "veth", "vlan" and so on; empty for hardware.
    pub kind: String,
}

/// Why nothing is known of a port.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Its namespace cannot be entered.
    #[error("port {port}: {cause}")]
    Namespace { port: String, cause: SysError },
    /// The kernel does not list its interfaces.
    #[error("port {port}: the kernel does not list interfaces: {cause}")]
    Kernel { port: String, cause: std::io::Error },
    /// It is not as it should be; the message has its name.
    #[error("{0}")]
    Port(String),
}

impl FactsError {
    /// Whether this process may not look.
    pub fn is_forbidden(&self) -> bool {
        let (FactsError::Namespace { cause: SysError::Io { cause, .. }, .. }
        | FactsError::Kernel { cause, .. }) = self
        else {
            return matches!(self, FactsError::Namespace { cause: SysError::Privilege { .. }, .. });
        };
        cause.kind() == std::io::ErrorKind::PermissionDenied
    }
}

impl From<FactsError> for RunError {
    fn from(error: FactsError) -> RunError {
        RunError::Host(error.into())
    }
}

/// What a port is.
///
/// # Errors
/// No such interface or namespace, or it is down.
pub fn port_facts(port: &TesterPort) -> Result<PortFacts, FactsError> {
    let name = &port.name;
    let kernel = |cause| FactsError::Kernel { port: name.clone(), cause };
    let whose = port.netns.as_ref().map_or(String::new(), |n| format!(" in namespace {n}"));
    let find = || -> std::io::Result<Option<Link>> {
        Ok(Links::open()?.all()?.into_iter().find(|link| link.name == port.interface))
    };
    let mut waited = Duration::ZERO;
    let link = loop {
        let link = netns::inside(port.netns.as_deref(), find)
            .map_err(|cause| FactsError::Namespace { port: name.clone(), cause })?;
        let link = link.map_err(kernel)?.ok_or_else(|| {
            let interface = &port.interface;
            FactsError::Port(format!(
                "port {name}: no interface named '{interface}'{whose}; see 'ip link'"
            ))
        })?;
        // The carrier of a link that was just set up takes a moment to show.
        if link.running || waited >= CARRIER {
            break link;
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    };
    if !link.running {
        return Err(FactsError::Port(format!(
            "port {name}: interface {}{whose} is down or has no carrier; see 'ip link'",
            port.interface
        )));
    }
    Ok(PortFacts {
        ifindex: link.ifindex,
        mac: link.mac,
        mtu: link.mtu,
        rx_queues: link.rx_queues,
        kind: link.kind,
    })
}

/// An interface's own counts, of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Received, but unusable.
    pub rx_errors: u64,
    /// Received, but not taken: no room.
    pub rx_dropped: u64,
    /// Handed to the medium, or to the other end.
    pub tx_packets: u64,
    /// Not sent: the medium's fault.
    pub tx_errors: u64,
    /// Not sent, or refused by the other end.
    pub tx_dropped: u64,
}

impl InterfaceCounts {
    /// As they stand; `None` where the kernel does not report them.
    pub fn read(netns: Option<&str>, interface: &str) -> Option<InterfaceCounts> {
        // Of this thread's network namespace, which /sys is not.
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").ok();
        Self::find(&netns::inside(netns, read).ok()??, interface)
    }

    /// In the text of `/proc/net/dev`.
    fn find(table: &str, interface: &str) -> Option<InterfaceCounts> {
        let row = table.lines().find_map(|line| {
            let (name, counts) = line.split_once(':')?;
            (name.trim() == interface).then_some(counts)
        })?;
        let counts: Vec<u64> = row.split_whitespace().map_while(|n| n.parse().ok()).collect();
        // Of reception and of transmission: octets, packets, errors, drops and four more.
        let [_, _, rx_errors, rx_dropped, _, _, _, _, _, tx_packets, tx_errors, tx_dropped, ..] =
            counts[..]
        else {
            return None;
        };
        Some(InterfaceCounts { rx_errors, rx_dropped, tx_packets, tx_errors, tx_dropped })
    }
}

/// Frames that a port has handed on or had to drop so far, by the interface's own count; `None`
/// where the kernel does not report it.
pub(super) fn handed_on(port: &TesterPort) -> Option<u64> {
    let counts = InterfaceCounts::read(port.netns.as_deref(), &port.interface)?;
    Some(counts.tx_packets + counts.tx_errors + counts.tx_dropped)
}

/// Frames of a port that the other end of its virtual link has refused so far: its ring was full,
/// or they were too long. Elsewhere nobody beyond a port can refuse.
pub(super) fn refused_beyond(port: &TesterPort, facts: &PortFacts) -> u64 {
    if facts.kind != "veth" {
        return 0;
    }
    let counts = InterfaceCounts::read(port.netns.as_deref(), &port.interface);
    counts.map_or(0, |counts| counts.tx_dropped)
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
                .with_context(|| format!("cannot watch whether port {} is up", port.name))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_their_columns() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    \
                     packets errs drop fifo colls carrier compressed\n    lo:       0       0    \
                     0    0    0     0          0         0        0       0    0    0    0     \
                     0       0          0\n  eth0:1000 11 12 13 14 15 16 17 2000 21 22 23 24 25 26 27\n";
        let counts = InterfaceCounts::find(table, "eth0").unwrap();
        let InterfaceCounts { rx_errors, rx_dropped, tx_packets, tx_errors, tx_dropped } = counts;
        assert_eq!(
            [rx_errors, rx_dropped, tx_packets, tx_errors, tx_dropped],
            [12, 13, 21, 22, 23]
        );
        assert_eq!(InterfaceCounts::find(table, "lo"), Some(InterfaceCounts::default()));
        assert_eq!(InterfaceCounts::find(table, "eth"), None);
    }
}

//! What a station is to run: units, each with its settings and what it holds of this host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use sonde_run::change::Change;

/// The name of a unit, unique in a configuration: `probe.core`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(Arc<str>);

impl UnitId {
    /// From its name in the configuration.
    pub fn new(name: &str) -> UnitId {
        UnitId(name.into())
    }

    /// Its name in the configuration.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something of this host that two units cannot hold at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A UDP port.
    UdpPort {
        /// The local address; `None`: all of them.
        address: Option<IpAddr>,
        /// 1 to 65535.
        port: u16,
    },
    /// A TCP port.
    TcpPort {
        /// The local address; `None`: all of them.
        address: Option<IpAddr>,
        /// 1 to 65535.
        port: u16,
    },
    /// UDP ports from which a probe sends: nobody listens there, but others may send, too.
    SourcePorts {
        /// The local address; `None`: that of the route.
        address: Option<IpAddr>,
        /// The first, 1 to 65535.
        low: u16,
        /// The last.
        high: u16,
    },
    /// The XDP hook of an interface.
    XdpHook(String),
    /// A file that is written.
    File(PathBuf),
    /// One of a network namespace by this name.
    In(String, Box<Resource>),
}

impl Resource {
    /// The same in a network namespace; files are of the whole host.
    pub fn in_namespace(self, netns: &str) -> Resource {
        match self {
            Resource::File(_) => self,
            other => Resource::In(netns.to_owned(), Box::new(other)),
        }
    }

    /// Whether one excludes the other.
    pub fn meets(&self, other: &Resource) -> bool {
        use Resource::{In, SourcePorts, TcpPort, UdpPort};
        match (self, other) {
            (In(a, mine), In(b, theirs)) => a == b && mine.meets(theirs),
            (UdpPort { address: a, port: p }, UdpPort { address: b, port: q })
            | (TcpPort { address: a, port: p }, TcpPort { address: b, port: q }) => {
                p == q && (a.is_none() || b.is_none() || a == b)
            }
            (UdpPort { address: a, port }, SourcePorts { address: b, low, high })
            | (SourcePorts { address: b, low, high }, UdpPort { address: a, port }) => {
                (low..=high).contains(&port) && (a.is_none() || b.is_none() || a == b)
            }
            // Those of two probes go to other destinations, or are told apart by their sender.
            (SourcePorts { .. }, SourcePorts { .. }) => false,
            _ => self == other,
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::UdpPort { address: None, port } => write!(f, "UDP port {port}"),
            Resource::UdpPort { address: Some(address), port } => {
                write!(f, "UDP port {port} of {address}")
            }
            Resource::TcpPort { address: None, port } => write!(f, "TCP port {port}"),
            Resource::TcpPort { address: Some(address), port } => {
                write!(f, "TCP port {port} of {address}")
            }
            Resource::SourcePorts { low, high, .. } if low == high => write!(f, "UDP port {low}"),
            Resource::SourcePorts { low, high, .. } => write!(f, "UDP ports {low} to {high}"),
            Resource::XdpHook(iface) => write!(f, "the XDP hook of {iface}"),
            Resource::File(path) => write!(f, "file {}", path.display()),
            Resource::In(netns, resource) => write!(f, "{resource} in '{netns}'"),
        }
    }
}

/// What can be run as a unit.
pub trait UnitSpec {
    /// What going over to `new` takes.
    fn change(&self, new: &Self) -> Change;

    /// What it holds while it runs.
    fn holds(&self) -> Vec<Resource>;
}

/// All units of a configuration.
#[derive(Debug)]
pub struct Plan<S> {
    units: BTreeMap<UnitId, Arc<S>>,
}

impl<S> Plan<S> {
    /// Of these units; of two with one name the later counts.
    pub fn of(units: impl IntoIterator<Item = (UnitId, S)>) -> Plan<S> {
        Plan { units: units.into_iter().map(|(id, spec)| (id, Arc::new(spec))).collect() }
    }

    /// The same of settings that others hold, too.
    pub(crate) fn shared(units: impl IntoIterator<Item = (UnitId, Arc<S>)>) -> Plan<S> {
        Plan { units: units.into_iter().collect() }
    }

    /// The settings of a unit.
    pub fn get(&self, id: &UnitId) -> Option<&Arc<S>> {
        self.units.get(id)
    }

    /// All units, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&UnitId, &Arc<S>)> {
        self.units.iter()
    }
}

// Derived ones would ask them of `S`.
impl<S> Clone for Plan<S> {
    fn clone(&self) -> Self {
        Plan { units: self.units.clone() }
    }
}

impl<S> Default for Plan<S> {
    fn default() -> Self {
        Plan { units: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_all_addresses_meets_that_of_each() {
        let port = |address: Option<&str>, port| Resource::UdpPort {
            address: address.map(|a| a.parse().unwrap()),
            port,
        };
        let all = port(None, 862);
        let one = port(Some("192.0.2.1"), 862);
        assert!(all.meets(&one) && one.meets(&all) && all.meets(&all));
        assert!(!one.meets(&port(Some("192.0.2.2"), 862)));
        assert!(!all.meets(&port(None, 863)));
        assert!(!all.meets(&Resource::XdpHook("eth0".into())));
        let within = |netns| port(None, 862).in_namespace(netns);
        assert!(within("red").meets(&one.clone().in_namespace("red")));
        assert!(!within("red").meets(&within("blue")) && !within("red").meets(&all));
        let file = || Resource::File("f".into());
        assert!(file().in_namespace("red").meets(&file()));
        assert_eq!(within("red").to_string(), "UDP port 862 in 'red'");
    }
}

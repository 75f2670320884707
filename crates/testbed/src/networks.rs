//! The networks behind a tester's ports, and where test frames may go.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use sonde_meter::load::{AddressRule, ValueOrder};
use sonde_wire::prefix::{Prefix, is_for_benchmarks};

use super::plan::PortPlan;

/// A network behind a port: which addresses test frames have there.
#[derive(Clone, Copy, Debug)]
pub struct TestNetwork {
    pub prefix: Prefix,
    /// The first address for test frames.
    pub first: IpAddr,
    /// From one network of it to the next (RFC 2544, section 12: up to 256 networks).
    pub step: u128,
    /// How many there are.
    pub count: u32,
}

impl TestNetwork {
    /// One address: that of the port itself.
    pub fn of_port(prefix: Prefix) -> TestNetwork {
        TestNetwork { prefix, first: prefix.address, step: 1, count: 1 }
    }

    /// The addresses of so many flows.
    pub fn rule(&self, flows: u32) -> AddressRule {
        let count = flows.min(self.count);
        AddressRule { first: self.first, count, step: self.step, order: ValueOrder::Increment }
    }

    /// Whether it is of IP's version `ip`.
    pub fn is_of(&self, ip: u8) -> bool {
        self.first.is_ipv4() == (ip == 4)
    }
}

/// Test frames must not leave the laboratory (RFC 6815): other addresses than those reserved for
/// benchmarks only where the plan allows them.
///
/// # Errors
/// The first network that is neither reserved nor allowed, and what allows it.
pub fn refuse_others_addresses<'a>(
    nets: impl IntoIterator<Item = &'a TestNetwork>,
    allowed: &[Prefix],
) -> Result<(), String> {
    match nets.into_iter().find(|net| !is_for_benchmarks(net.prefix, allowed)) {
        None => Ok(()),
        Some(net) => Err(format!(
            "{network} is outside 198.18.0.0/15 and 2001:2::/48, the addresses for benchmarks \
             (RFC 6815); in an isolated laboratory allow it by outside_benchmark_range = \
             '{network}' in [bed]",
            network = net.prefix.network()
        )),
    }
}

impl fmt::Display for TestNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.prefix.fmt(f)
    }
}

/// A port's networks, as the plan names them.
///
/// # Errors
/// None, or what is no address.
pub fn port_networks(name: &str, plan: &PortPlan) -> Result<Vec<TestNetwork>> {
    ensure!(!plan.addresses.is_empty(), "port {name}: name its addresses, as ['198.18.0.2/24']");
    let net = |text: &String| -> Result<TestNetwork> {
        let parts = text.split_once('/').and_then(|(address, bits)| {
            Some(Prefix { address: address.parse().ok()?, bits: bits.parse().ok()? })
        });
        // Unlike a prefix it may have bits set behind its length: it is a port's own address.
        let prefix = parts.filter(|p: &Prefix| p.is_valid());
        let prefix = prefix
            .with_context(|| format!("port {name}: '{text}' is no address; write 198.18.0.2/24"))?;
        Ok(TestNetwork::of_port(prefix))
    };
    plan.addresses.iter().map(net).collect()
}

/// Networks of destinations, in turn (RFC 2544, section 12: 256, at random).
pub const NETWORKS: u32 = 254;

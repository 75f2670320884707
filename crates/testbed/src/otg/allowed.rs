//! What may be sent, and to whom.

use sonde_wire::prefix::Prefix;

/// What frames may carry: addresses and EtherTypes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Test addresses: those for benchmarks (RFC 6815), and what the user allows besides.
    pub prefixes: Vec<Prefix>,
    /// EtherTypes behind which may stand what nobody has checked.
    pub types: Vec<u16>,
}

impl Allowed {
    /// Whether all addresses of a prefix are in one of those that are allowed.
    pub fn holds(&self, prefix: Prefix) -> bool {
        self.prefixes.iter().any(|p| p.covers(prefix))
    }

    /// Those of one version of IP as integers, first and last.
    pub fn ranges(&self, v4: bool) -> Vec<(u128, u128)> {
        let of_version = self.prefixes.iter().filter(|p| p.address.is_ipv4() == v4);
        of_version.map(|p| p.bounds()).collect()
    }
}

//! One flow as somebody describes it: the truth, or a record of an exporter.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Address and port. IPv4 as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct End {
    pub address: [u8; 16],
    pub port: u16,
}

impl End {
    pub fn new(address: IpAddr, port: u16) -> Self {
        let v6 = match address {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        End { address: v6.octets(), port }
    }

    /// The address as people write it.
    pub fn ip(&self) -> IpAddr {
        Ipv6Addr::from(self.address).to_canonical()
    }
}

/// Both ends in an order that does not depend on the direction, and the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BiflowKey {
    pub ends: [End; 2],
    pub protocol: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Half {
    pub packets: u64,
    pub bytes: u64,
    /// First and last packet of this direction, ns since 1970 UTC, where it is known.
    pub span: Option<(i64, i64)>,
    pub fields: ComparedFields,
}

/// Fields besides the key, where they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ComparedFields {
    /// The 8 classic flags.
    pub tcp_flags: Option<u8>,
    pub tos: Option<u8>,
    /// Smallest time to live.
    pub ttl: Option<u8>,
    pub vlan: Option<u16>,
    /// Type * 256 + code.
    pub icmp: Option<u16>,
    /// Hash of the application's name: DNS name, HTTP host, TLS server name.
    pub name: Option<u32>,
}

/// A flow as the exporter's records have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ObservedFlow {
    pub source: End,
    pub destination: End,
    pub protocol: u8,
    pub forward: Half,
    /// Packets 0: nothing is known of it.
    pub reverse: Half,
    /// First and last packet of both directions, where that is all that is known.
    pub span: Option<(i64, i64)>,
    /// Unit of its times, ns: they may be off by so much.
    pub unit_ns: i64,
    /// flowEndReason.
    pub reason: Option<u8>,
    /// When it was exported, ns.
    pub exported_ns: Option<i64>,
}

impl ObservedFlow {
    /// Its key, and which of the key's ends is the source.
    pub fn key(&self) -> (BiflowKey, usize) {
        let ported = matches!(self.protocol, 6 | 17 | 33 | 132 | 136);
        let end = |end: End| End { port: if ported { end.port } else { 0 }, ..end };
        let (source, destination) = (end(self.source), end(self.destination));
        let turned = source > destination;
        let ends = if turned { [destination, source] } else { [source, destination] };
        (BiflowKey { ends, protocol: self.protocol }, usize::from(turned))
    }

    /// First and last packet of either direction.
    pub fn whole(&self) -> Option<(i64, i64)> {
        let halves = [self.forward, self.reverse].into_iter().filter(|h| h.packets > 0);
        halves.filter_map(|h| h.span).chain(self.span).reduce(join)
    }
}

/// The shortest span that has both in it.
pub(super) fn join(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Names are compared by this (FNV-1a): there may be millions.
pub(super) fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811C_9DC5, |hash, octet| {
        (hash ^ u32::from(octet.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    })
}

/// One direction of a key.
pub(super) struct Directed(pub BiflowKey, pub usize);

impl fmt::Display for Directed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.0.ends[self.1], self.0.ends[1 - self.1]);
        write!(f, "{} {} {} -> {} {}", self.0.protocol, from.ip(), from.port, to.ip(), to.port)
    }
}

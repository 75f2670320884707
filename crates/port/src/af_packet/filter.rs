//! Which packets the packet socket takes. A classic BPF program leaves most of the others in the
//! kernel, and what passes it is checked exactly. A port that watches takes so many bytes of
//! everything, without either.

use sonde_sys::syscall::op;
use sonde_wire::parse_udp;
use sonde_wire::prefix::Prefix;

use crate::Filter;

/// The exact check.
pub(super) struct Wanted {
    ports: Box<[bool]>,
    peers: Option<Box<[bool]>>,
    local: Box<[Prefix]>,
    /// The filter names the addresses.
    named: bool,
}

impl Wanted {
    /// `host`: addresses and prefixes of this host, used when the filter names none.
    pub fn new(filter: &Filter, host: Vec<Prefix>) -> Self {
        let set = |list: &[u16]| {
            let mut set = vec![false; 1 << 16].into_boxed_slice();
            list.iter().for_each(|&port| set[usize::from(port)] = true);
            set
        };
        let named = filter.local.iter().copied().map(Prefix::of);
        Wanted {
            ports: set(&filter.local_ports),
            peers: (!filter.peer_ports.is_empty()).then(|| set(&filter.peer_ports)),
            local: if filter.local.is_empty() { host.into() } else { named.collect() },
            named: !filter.local.is_empty(),
        }
    }

    /// This host has other addresses now.
    pub fn set_host(&mut self, host: &[Prefix]) {
        if !self.named {
            self.local = host.into();
        }
    }

    /// Whether the port is opened for this frame.
    #[inline]
    pub fn takes(&self, frame: &[u8]) -> bool {
        parse_udp(frame).is_ok_and(|f| {
            self.ports[usize::from(f.destination_port)]
                && self.peers.as_ref().is_none_or(|p| p[usize::from(f.source_port)])
                && self.local.iter().any(|prefix| prefix.contains(f.destination))
        })
    }
}

/// So many bytes of every packet.
pub(super) fn ret(bytes: u32) -> libc::sock_filter {
    op(libc::BPF_RET | libc::BPF_K, bytes, 0, 0)
}

/// Packets for this host that are UDP over IPv4, unfragmented, to a port between the least and the
/// greatest of the filter. Also all IPv6 that is UDP to such a port or is not TCP (extension
/// headers), and all with a second VLAN tag.
pub(super) fn program(filter: &Filter) -> [libc::sock_filter; 21] {
    let low = u32::from(filter.local_ports.iter().copied().min().unwrap_or(0));
    let high = u32::from(filter.local_ports.iter().copied().max().unwrap_or(0));
    let (load_byte, load_half) =
        (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, libc::BPF_LD | libc::BPF_H | libc::BPF_ABS);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let above = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    let bits = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let ret = libc::BPF_RET | libc::BPF_K;
    let header_len = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    let load_port = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    let packet_type = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        /* 0 */ op(load_byte, packet_type, 0, 0),
        /* 1 */ op(equal, u32::from(libc::PACKET_HOST), 0, 18),
        /* 2 */ op(load_half, 12, 0, 0),
        /* 3 */ op(equal, 0x86DD, 8, 0),
        /* 4 */ op(equal, 0x0800, 0, 13),
        /* 5 */ op(load_byte, 14 + 9, 0, 0),
        /* 6 */ op(equal, 17, 0, 13),
        /* 7 */ op(load_half, 14 + 6, 0, 0),
        /* 8 */ op(bits, 0x3FFF, 11, 0),
        /* 9 */ op(header_len, 14, 0, 0),
        /* 10 */ op(load_port, 14 + 2, 0, 0),
        /* 11 */ op(libc::BPF_JMP | libc::BPF_JA, 4, 0, 0),
        /* 12: IPv6 */ op(load_byte, 14 + 6, 0, 0),
        /* 13 */ op(equal, 17, 1, 0),
        /* 14: TCP */ op(equal, 6, 5, 4),
        /* 15 */ op(load_half, 14 + 40 + 2, 0, 0),
        /* 16: the port */ op(at_least, low, 0, 3),
        /* 17 */ op(above, high, 2, 1),
        /* 18: a tag */ op(bits, 0x8000, 0, 1),
        /* 19 */ op(ret, u32::MAX, 0, 0),
        /* 20 */ op(ret, 0, 0, 0),
    ]
}

//! The headers of every flow, ready to be copied into frames.

use std::net::{IpAddr, SocketAddr};

use sonde_wire::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, Tags};
use sonde_wire::{build, checksum, mpls};

use super::{FCS_LEN, LoadError, Traffic};

/// Octets of headers, at most: Ethernet with two tags, IPv6, UDP, and ten MPLS labels.
pub const HEADER_MAX: usize = 112;

/// The headers of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// From the Ethernet header to the UDP header, with the lengths of the shortest of the
    /// frames; zeros behind. IPv4 UDP goes without checksum (RFC 768); IPv6 has yet none.
    pub octets: [u8; HEADER_MAX],
    /// Octets up to the end of the UDP header.
    pub len: usize,
    /// Offset of the IP header.
    pub l3_at: usize,
    /// Offset of the UDP header.
    pub l4_at: usize,
    /// Sum of the 16-bit words of the IPv4 header without its length and checksum.
    pub ip_sum: u32,
    /// Sum of pseudo-header and UDP header without the lengths and the checksum.
    pub udp_sum: u32,
    /// By which its frames are counted: the flow modulo 2^16.
    pub stream: u16,
}

/// The headers of all flows.
///
/// # Errors
/// What [`Traffic::check`] finds is not found again here: the only error is
/// [`LoadError::Rule`], of a frame longer than an IP packet can be.
pub fn headers(traffic: &Traffic) -> Result<Vec<HeaderTemplate>, LoadError> {
    (0..traffic.flows).map(|flow| header(traffic, flow)).collect()
}

fn header(traffic: &Traffic, flow: u32) -> Result<HeaderTemplate, LoadError> {
    // Rules that have the same range must not walk in step.
    let seed = |n: u64| traffic.seed.wrapping_add(n);
    let source = traffic.source.of(flow, seed(0));
    let destination = traffic.destination.of(flow, seed(1));
    let source = SocketAddr::new(source, traffic.source_port.of(flow, seed(2)));
    let destination = SocketAddr::new(destination, traffic.destination_port.of(flow, seed(3)));

    let mut octets = [0; HEADER_MAX];
    let written = write(traffic, flow, source, destination, &mut octets);
    let (l3_at, len) =
        written.map_err(|e| LoadError::Rule(format!("no frame of flow {flow}: {e}")))?;
    let l4_at = len - 8;
    let without_lengths = match source.ip() {
        IpAddr::V4(_) => {
            let mut ip = octets[l3_at..l4_at].to_vec();
            ip[2..4].fill(0);
            ip[10..12].fill(0);
            checksum::sum(&ip)
        }
        IpAddr::V6(_) => 0,
    };
    // The sum of a datagram without payload, less the length that is in it twice (8 octets).
    let udp_sum = build::udp_header_sum(source, destination, 0).map(|sum| sum - 16);
    Ok(HeaderTemplate {
        octets,
        len,
        l3_at,
        l4_at,
        ip_sum: without_lengths,
        udp_sum: udp_sum.map_err(|e| LoadError::Rule(e.to_string()))?,
        stream: flow as u16,
    })
}

/// Returns the offsets of the IP header and of the end of the UDP header.
fn write(
    traffic: &Traffic,
    flow: u32,
    source: SocketAddr,
    destination: SocketAddr,
    octets: &mut [u8; HEADER_MAX],
) -> Result<(usize, usize), sonde_wire::Error> {
    let ethernet = ethernet::Repr {
        destination: traffic.destination_mac.of(flow, destination.ip()),
        source: traffic.source_mac.of(flow, destination.ip()),
        tags: Tags::new(&traffic.tags)?,
        ethertype: match source.ip() {
            _ if !traffic.labels.is_empty() => ETHERTYPE_MPLS,
            IpAddr::V4(_) => ETHERTYPE_IPV4,
            IpAddr::V6(_) => ETHERTYPE_IPV6,
        },
    };
    let mut at = ethernet.emit(octets)?;
    for (i, &label) in traffic.labels.iter().enumerate() {
        let bottom = i + 1 == traffic.labels.len();
        let entry = mpls::Entry { label, traffic_class: 0, bottom, ttl: traffic.ttl };
        at += entry.emit(&mut octets[at..])?;
    }
    let frame_len = (traffic.shortest_size() as usize).saturating_sub(FCS_LEN);
    let payload_len = frame_len.saturating_sub(traffic.header_len());
    let (tos, ttl) = (traffic.tos[flow as usize % traffic.tos.len()], traffic.ttl);
    let len = build::emit_udp_ip(&mut octets[at..], source, destination, tos, ttl, payload_len)?;
    Ok((at, at + len))
}

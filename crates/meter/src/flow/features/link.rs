//! Link layer and encapsulation of a flow's first packet.

use std::net::IpAddr;

use sonde_results::flow::{FlowLink, FlowTunnel, TunnelKind};
use sonde_wire::feature::{Feature, Layers, SHAPE_INNER};
use sonde_wire::{ethernet, ipv4, ipv6, mpls, tunnel};

/// What is kept of it, at most 80 bytes a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct LinkFeatures {
    source_mac: [u8; 6],
    destination_mac: [u8; 6],
    inner_vlan: u16,
    labels: u8,
    mpls: [u32; MAX_LABELS],
    tunnel: Option<FlowTunnel>,
}

impl LinkFeatures {
    /// Reads a frame. What is cut off or malformed stays empty: the parser before has
    /// counted it already.
    pub(super) fn read(packet: &Feature, frame: &[u8], layers: &Layers) -> Self {
        let mut link = LinkFeatures::default();
        let inner = packet.shape & SHAPE_INNER != 0;
        let network = match layers.mpls {
            0 if inner => layers.outer_ip,
            0 => layers.ip,
            start => start,
        };
        // Ethernet has 14 octets, whatever follows it a multiple of 4; the other links
        // have multiples of 4 themselves.
        if network % 4 == 2 {
            link.ethernet(frame);
        }
        if layers.mpls != 0 {
            link.labels(frame, usize::from(layers.mpls));
        }
        if inner {
            link.tunnel = tunnel(frame.get(usize::from(layers.outer_ip)..).unwrap_or(&[]));
        }
        link
    }

    fn ethernet(&mut self, frame: &[u8]) {
        let Ok(frame) = ethernet::Frame::new_checked(frame) else { return };
        self.source_mac = frame.source();
        self.destination_mac = frame.destination();
        if let [_, inner] = frame.tags().as_slice() {
            self.inner_vlan = inner.vid();
        }
    }

    fn labels(&mut self, frame: &[u8], start: usize) {
        let entries = frame.get(start..).unwrap_or(&[]).chunks(mpls::ENTRY_LEN);
        for (kept, bytes) in self.mpls.iter_mut().zip(entries) {
            let Ok(entry) = mpls::Entry::parse(bytes) else { return };
            *kept =
                entry.label << 4 | u32::from(entry.traffic_class) << 1 | u32::from(entry.bottom);
            self.labels += 1;
            if entry.bottom {
                return;
            }
        }
    }

    pub(super) fn result(&self) -> FlowLink {
        FlowLink {
            source_mac: self.source_mac,
            destination_mac: self.destination_mac,
            inner_vlan: self.inner_vlan,
            mpls: self.mpls[..usize::from(self.labels)].to_vec(),
            tunnel: self.tunnel,
        }
    }
}

/// The tunnel whose outer IP header begins `data`.
fn tunnel(data: &[u8]) -> Option<FlowTunnel> {
    let (outer_source, outer_destination, protocol, payload): (IpAddr, IpAddr, u8, &[u8]) =
        match data.first()? >> 4 {
            4 => {
                let header = data.first_chunk::<{ ipv4::HEADER_LEN }>()?;
                let source: [u8; 4] = header[12..16].try_into().ok()?;
                let destination: [u8; 4] = header[16..20].try_into().ok()?;
                let rest = data.get(usize::from(data[0] & 15) * 4..)?;
                let (protocol, offset) = ipv4::upper_layer(header[9], rest);
                (source.into(), destination.into(), protocol, rest.get(offset..)?)
            }
            6 => {
                let header = data.first_chunk::<{ ipv6::HEADER_LEN }>()?;
                let source: [u8; 16] = header[8..24].try_into().ok()?;
                let destination: [u8; 16] = header[24..40].try_into().ok()?;
                let rest = &data[ipv6::HEADER_LEN..];
                let upper = ipv6::upper_layer(header[6], rest).ok()?;
                (source.into(), destination.into(), upper.protocol, rest.get(upper.offset..)?)
            }
            _ => return None,
        };
    let (header, _) = tunnel::Tunnel::parse(protocol, payload).ok()??;
    let kind = match header {
        tunnel::Tunnel::Ip(_) => TunnelKind::Ip,
        tunnel::Tunnel::Gre(_) => TunnelKind::Gre,
        tunnel::Tunnel::Vxlan(_) => TunnelKind::Vxlan,
        tunnel::Tunnel::Geneve(_) => TunnelKind::Geneve,
        tunnel::Tunnel::Gtpu(_) => TunnelKind::GtpU,
    };
    Some(FlowTunnel { kind, outer_source, outer_destination, id: header.id() })
}

const MAX_LABELS: usize = 3;
const _: () = assert!(size_of::<LinkFeatures>() <= 80);

//! The packets on the wire of which the kernel made one frame, or into which it will cut one (GRO,
//! LRO, TSO, USO). They have its headers, and its payload in turn.

use super::{Feature, Keys, Layers, PacketMeta, SHAPE_FRAGMENT, SHAPE_NO_TRANSPORT, parse_into};
use crate::ipv4::PROTOCOL_TCP;

/// The packets of a frame, in order.
#[derive(Clone, Debug)]
pub struct SegmentIter {
    whole: Feature,
    layers: Layers,
    /// From the IP header whose packet is counted to the payload that was cut up, octets.
    headers: u32,
    /// Where that payload begins in the frame.
    payload: u32,
    /// Octets of it, and of one packet.
    len: u32,
    segment: u32,
    /// Octets handed out.
    done: u32,
    captured: u32,
}

impl SegmentIter {
    /// Of a frame that was read into `feature` and `layers`, and in which each packet but the last
    /// has `segment` octets of payload. 0: it is one packet.
    pub fn new(
        frame: &[u8],
        seen: &PacketMeta,
        feature: &Feature,
        layers: &Layers,
        segment: u16,
    ) -> Self {
        let mut segments = SegmentIter {
            whole: *feature,
            layers: *layers,
            headers: 0,
            payload: 0,
            len: 0,
            segment: u32::MAX,
            done: 0,
            captured: frame.len() as u32,
        };
        // What is in a tunnel was cut up, whichever packet is counted.
        let (mut innermost, mut below) = (Feature::default(), Layers::default());
        let read = parse_into(frame, seen, Keys::Inner, &mut innermost, &mut below);
        let is_cut = SHAPE_FRAGMENT | SHAPE_NO_TRANSPORT;
        if segment == 0 || read.is_err() || (feature.shape | innermost.shape) & is_cut != 0 {
            return segments;
        }
        let end = u32::from(below.ip) + innermost.ip_len;
        segments.payload = u32::from(below.ip) + u32::from(innermost.headers) * 4;
        segments.len = end.saturating_sub(segments.payload);
        segments.headers = segments.payload.saturating_sub(layers.ip.into());
        if segments.len > segment.into() {
            segments.segment = segment.into();
        }
        segments
    }
}

impl Iterator for SegmentIter {
    type Item = (Feature, Layers);

    fn next(&mut self) -> Option<(Feature, Layers)> {
        if self.segment == u32::MAX {
            // One packet, as it is.
            let is_first = self.done == 0;
            self.done = 1;
            return is_first.then_some((self.whole, self.layers));
        }
        let left = self.len - self.done;
        if left == 0 {
            return None;
        }
        let (octets, before) = (left.min(self.segment), self.done);
        self.done += octets;
        let mut feature = self.whole;
        feature.ip_len = self.headers + octets;
        if feature.protocol == PROTOCOL_TCP {
            feature.sequence = feature.sequence.wrapping_add(before);
        }
        if before > 0 {
            feature.tcp_flags &= !CWR;
        }
        if octets < left {
            feature.tcp_flags &= !(FIN | PSH);
        }
        let offset = |at: u32| at.min(self.captured).min(u16::MAX.into()) as u16;
        let start = self.payload + before;
        let mut layers = self.layers;
        (layers.payload, layers.end) = (offset(start), offset(start + octets));
        Some((feature, layers))
    }
}

/// On the last packet of a frame only (Linux `Documentation/networking/segmentation-offloads.rst`)
/// ...
const FIN: u16 = 1;
const PSH: u16 = 8;
/// ... and on the first only.
const CWR: u16 = 0x80;

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::super::{SHAPE_INNER, parse_cut};
    use super::*;
    use crate::flow::LinkType;
    use crate::ipv4::PROTOCOL_UDP;

    /// IPv4 with a header for `payload` octets, which may not all be there.
    fn ipv4(protocol: u8, len: usize, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
        packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        packet.extend_from_slice(rest);
        packet
    }

    /// A TCP header with 12 octets of options, and `there` octets behind it.
    fn tcp(flags: u8, there: usize) -> Vec<u8> {
        let mut segment = vec![0, 1, 0, 2, 0, 0, 0, 100, 0, 0, 0, 0, 0x80, flags, 1, 0, 0, 0, 0, 0];
        segment.extend([1; 12]);
        segment.extend(vec![7; there]);
        segment
    }

    fn ethernet(packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &[8, 0], packet].concat()
    }

    /// The segments of a frame of `wire_len` octets.
    fn segments(frame: &[u8], wire_len: usize, keys: Keys, segment: u16) -> Vec<(Feature, Layers)> {
        let (feature, layers) = parse_cut(frame, wire_len, LinkType::Ethernet, keys, 5, 0).unwrap();
        let seen = PacketMeta { wire_len, link: LinkType::Ethernet, at_ns: 5, point: 0 };
        SegmentIter::new(frame, &seen, &feature, &layers, segment).collect()
    }

    #[test]
    fn a_joined_segment_is_the_packets_on_the_wire() {
        // FIN, PSH, ACK, CWR; 3 times 1,448 octets and 10, of which 100 were captured.
        let frame = ethernet(&ipv4(6, 32 + 3 * 1448 + 10, &tcp(0x99, 100)));
        let all = segments(&frame, 14 + 52 + 3 * 1448 + 10, Keys::Outer, 1448);
        let cut: Vec<_> = all.iter().map(|(f, _)| (f.ip_len, f.sequence, f.tcp_flags)).collect();
        let wanted = [(1500, 100, 0x90), (1500, 1548, 0x10), (1500, 2996, 0x10), (62, 4444, 0x19)];
        assert_eq!(cut, wanted);
        assert!(all.iter().all(|(f, _)| f.payload_len() == f.ip_len - 52 && f.at_ns == 5));
        let offsets: Vec<_> = all.iter().map(|(_, l)| (l.payload, l.end)).collect();
        assert_eq!(offsets, [(66, 166), (166, 166), (166, 166), (166, 166)]);
        // A length that IP cannot state is the frame's.
        let mut long = frame.clone();
        long[16..18].fill(0);
        let all = segments(&long, 14 + 52 + 100 * 1448, Keys::Outer, 1448);
        assert_eq!((all.len(), all[99].0.ip_len), (100, 1500));
    }

    #[test]
    fn datagrams_and_tunnels_are_cut_up_by_what_they_carry() {
        let udp = |port: u8, len: usize, rest: &[u8]| {
            let length = ((8 + len) as u16).to_be_bytes();
            ipv4(PROTOCOL_UDP, 8 + len, &[&[0, 9, 0, port][..], &length, &[0, 0], rest].concat())
        };
        let datagrams = ethernet(&udp(99, 2_500, &[1; 2_500]));
        let lens: Vec<_> = segments(&datagrams, datagrams.len(), Keys::Outer, 1_000)
            .iter()
            .map(|(f, _)| f.ip_len)
            .collect();
        assert_eq!(lens, [1_028, 1_028, 528]);
        // VXLAN: 50 octets of outer headers before the inner IP header.
        let inner = ethernet(&ipv4(6, 32 + 2_000, &tcp(0x10, 2_000)));
        let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &inner].concat();
        let mut packet = udp(0, vxlan.len(), &vxlan);
        packet[22..24].copy_from_slice(&4789u16.to_be_bytes());
        let frame = ethernet(&packet);
        for (keys, wanted) in [(Keys::Outer, 50 + 1_052), (Keys::Inner, 1_052)] {
            let all = segments(&frame, frame.len(), keys, 1_000);
            assert_eq!(all.iter().map(|(f, _)| f.ip_len).collect::<Vec<_>>(), [wanted; 2]);
            assert_eq!(all[0].0.shape & SHAPE_INNER != 0, keys == Keys::Inner);
        }
    }

    #[test]
    fn what_is_one_packet_stays_as_it_is() {
        let frame = ethernet(&ipv4(6, 32 + 500, &tcp(0x18, 500)));
        for segment in [0, 500, 501, u16::MAX] {
            let one =
                parse_cut(&frame, frame.len(), LinkType::Ethernet, Keys::Outer, 5, 0).unwrap();
            assert_eq!(segments(&frame, frame.len(), Keys::Outer, segment), [one]);
        }
        // Cut off within its transport header, or a fragment.
        let all = segments(&frame[..40], frame.len(), Keys::Outer, 100);
        assert_eq!((all.len(), all[0].0.ip_len), (1, 552));
    }
}

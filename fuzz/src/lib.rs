//! What each fuzzer does with its bytes. crates/wire/tests/corpora.rs does the same with
//! the checked-in corpora on every test run.

use std::ops::Range;

use sonde_wire::capture::{self, CaptureError, Record};
use sonde_wire::feature::{self, Feature, Keys, Layers};
use sonde_wire::flow::{self, Detail, FlowPacket, LinkType};
use sonde_wire::ipfix::record::{BasicList, RecordIter};
use sonde_wire::ipfix::template::{FieldSpecifier, TemplateFormat, TemplateIter};
use sonde_wire::ipfix::{SetIter, element, time};
use sonde_wire::stamp::{ReflectorPacket, ReflectorRepr, SenderPacket, SenderRepr};
use sonde_wire::tlv::{self, Tlvs, TlvsMut, value};
use sonde_wire::{
    Error, dns, ethernet, icmp, ipv4, ipv6, mpls, parse, quic, sctp, tcp, tunnel, twamp, udp,
};

/// A frame through the fast pass and through the views: both must find the same, and
/// what a view reads must be written again as it was.
pub fn frame(data: &[u8]) {
    let fast = parse::parse_udp(data);
    let slow = udp_by_views(data);
    assert_eq!(fast.as_ref().map(|f| f.payload.clone()).ok(), slow.clone().ok());
    if let Ok(found) = &fast {
        let addresses = found.source.is_ipv6() == found.is_ipv6;
        assert!(addresses && found.destination.is_ipv6() == found.is_ipv6);
        parse::verify_udp(data, found);
        stamp(&data[found.payload.clone()]);
    }
    let Ok(frame) = ethernet::Frame::new_checked(data) else { return };
    let repr = ethernet::Repr::parse(&frame);
    let mut again = [0; 22];
    let len = repr.emit(&mut again).expect("22 octets are enough");
    assert_eq!(again[..len], data[..len]);
    if let Ok(stack) = mpls::Stack::new_checked(frame.payload()) {
        assert_eq!(stack.entries().count(), stack.depth());
        let mut bytes = [0; 4];
        for (entry, octets) in stack.entries().zip(frame.payload().chunks_exact(4)) {
            entry.emit(&mut bytes).expect("4 octets are enough");
            assert_eq!(bytes, octets);
        }
    }
    if let Ok(packet) = ipv4::Packet::new_checked(frame.payload()) {
        packet.options().for_each(drop);
        if let Ok(repr) = ipv4::Repr::parse(&packet) {
            let mut bytes = [0; 60];
            let len = repr.emit(&mut bytes).expect("60 octets are enough");
            // The reserved flag is not kept, so the octets may differ; the values may not.
            let mut whole = bytes[..len].to_vec();
            whole.extend_from_slice(packet.payload());
            let again = ipv4::Packet::new_checked(&whole).expect("what was written is right");
            assert_eq!(ipv4::Repr::parse(&again), Ok(repr));
        }
        message(packet.payload(), icmp::Version::V4);
    }
    if let Ok(packet) = ipv6::Packet::new_checked(frame.payload()) {
        let mut bytes = [0; 40];
        ipv6::Repr::parse(&packet).emit(&mut bytes).expect("40 octets are enough");
        assert_eq!(bytes, frame.payload()[..40]);
        ipv6::ExtensionIter::new(packet.next_header(), packet.payload()).for_each(drop);
        if let Ok(upper) = packet.upper_layer() {
            let version =
                icmp::Version::V6 { source: packet.source(), destination: packet.destination() };
            message(&packet.payload()[upper.offset..], version);
        }
    }
}

/// A UDP payload as a STAMP packet of either kind, its TLVs, and its reflection.
pub fn stamp(data: &[u8]) {
    if let Ok(packet) = SenderPacket::new_checked(data) {
        let repr = SenderRepr::parse(&packet);
        let mut bytes = [0; 44];
        twamp::SenderRepr::parse(&packet).emit(&mut bytes).expect("44 octets are enough");
        assert_eq!(bytes[..14], data[..14]);
        repr.emit(&mut bytes).expect("44 octets are enough");
        assert_eq!(SenderRepr::parse(&SenderPacket::new_checked(&bytes).expect("whole")), repr);
        tlvs(packet.tlvs());
    }
    if let Ok(packet) = ReflectorPacket::new_checked(data) {
        let mut bytes = [0; 44];
        let repr = ReflectorRepr::parse(&packet);
        repr.emit(&mut bytes).expect("44 octets are enough");
        let again = ReflectorPacket::new_checked(&bytes).expect("whole");
        assert_eq!(ReflectorRepr::parse(&again), repr);
    }
    if let Ok(mut reply) = ReflectorPacket::reflect(data.to_vec(), 64) {
        assert_eq!(reply.sequence(), reply.sender_sequence());
        answer(reply.tlvs_mut());
    }
}

/// A frame as a flow meter reads it, under every link; and each format that has a part in it
/// alone.
pub fn flow(data: &[u8]) {
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2]
    {
        for tunnels in [false, true] {
            if let Ok(found) = flow::parse(data, link, tunnels) {
                one_flow(data, &found);
                // A capture that ends with the headers has the same packet without payload.
                let start = found.payload.start;
                let cut = flow::parse_cut(&data[..start], data.len(), link, tunnels);
                if let Detail::Tcp(tcp) = found.detail {
                    let detail = Detail::Tcp(flow::Tcp { dns: None, ..tcp });
                    assert_eq!(cut, Ok(FlowPacket { payload: start..start, detail, ..found }));
                }
            }
        }
    }
    let meter = flow::parse(data, LinkType::Ethernet, false);
    if let Ok(fast) = parse::parse_udp(data) {
        let found = meter.as_ref().expect("a whole UDP packet is a packet");
        assert_eq!(found.payload, fast.payload);
        assert_eq!(
            (found.source_port, found.destination_port, found.tos),
            (fast.source_port, fast.destination_port, fast.dscp << 2 | fast.ecn)
        );
    }
    tcp_by_views(data, meter);
    let _ = dns::Header::parse(data).map(|header| dns::key(header.id, data));
    let _ = sctp::Heartbeat::parse(data).map(|heartbeat| heartbeat.id());
    let mut bytes = [0; 47];
    if let Ok(long) = quic::Long::parse(data) {
        let len = long.emit(&mut bytes).expect("47 octets are enough");
        assert_eq!(bytes[..len], data[..len]);
    }
    if let Ok(gre) = tunnel::Gre::parse(data) {
        let len = gre.emit(&mut bytes).expect("47 octets are enough");
        assert_eq!(tunnel::Gre::parse(&bytes[..len]), Ok(gre));
    }
    if let Ok(gtpu) = tunnel::Gtpu::parse(data) {
        let mut bytes = vec![0; gtpu.buffer_len()];
        gtpu.emit(&mut bytes).expect("the buffer has the length asked for");
        assert_eq!(tunnel::Gtpu::parse(&bytes), Ok(gtpu));
    }
}

/// A frame as the flow cache gets it, under every link, and held against [`flow()`]'s parser.
pub fn feature(data: &[u8]) {
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::LinuxCooked, LinkType::LinuxCooked2]
    {
        let outer = feature::parse(data, link, Keys::Outer, 5, 1);
        let inner = feature::parse(data, link, Keys::Inner, 5, 1);
        assert_eq!(outer.as_ref().err(), inner.as_ref().err());
        for (feature, layers) in [outer, inner].into_iter().flatten() {
            one_feature(data, link, &feature, &layers);
        }
        let (Ok(outer), Ok(inner)) = (outer, inner) else { continue };
        if inner.0.shape & feature::SHAPE_INNER == 0 {
            assert_eq!(inner, outer);
        } else {
            assert_eq!(inner.1.outer_ip, outer.1.ip);
            assert_eq!(inner.0.vlan, outer.0.vlan);
            assert!(inner.0.ip_len < outer.0.ip_len);
        }
        // The other parser refuses more; what it takes is the same packet.
        if let Ok(found) = flow::parse(data, link, false) {
            same_packet(&found, &outer.0, &outer.1);
        }
        if inner.0.shape & feature::SHAPE_INNER != 0
            && let Ok(found) = flow::parse(data, link, true)
        {
            same_packet(&found, &inner.0, &inner.1);
        }
    }
    if let Ok(geneve) = tunnel::Geneve::parse(data) {
        let mut bytes = vec![0; geneve.buffer_len()];
        geneve.emit(&mut bytes).expect("the buffer has the length asked for");
        assert_eq!(tunnel::Geneve::parse(&bytes), Ok(geneve));
    }
}

/// Both parsers have read the same packet of a frame.
fn same_packet(found: &FlowPacket, feature: &Feature, layers: &Layers) {
    assert_eq!(
        (feature.source, feature.destination, feature.protocol, feature.tos),
        (found.source, found.destination, found.protocol, found.tos)
    );
    assert_eq!((feature.ip_len, feature.vlan), (found.ip_len, found.vlan));
    if let Detail::Tcp(tcp) = found.detail {
        assert_eq!((feature.tcp_flags as u8, feature.window), (tcp.flags, tcp.window));
        assert_eq!(feature.payload_len(), tcp.payload_len);
    }
    if matches!(found.protocol, 6 | 17) {
        let ports = (feature.source_port, feature.destination_port);
        assert_eq!(ports, (found.source_port, found.destination_port));
        assert_eq!(found.payload.start, usize::from(layers.payload));
    }
}

/// What holds of every packet that is counted.
fn one_feature(data: &[u8], link: LinkType, feature: &Feature, layers: &Layers) {
    let is = |shape| feature.shape & shape != 0;
    assert!(feature.ip_len >= 20 && feature.vlan < 4096 && feature.tcp_flags < 4096);
    assert!(layers.ip < layers.end && layers.ip <= layers.payload && layers.payload <= layers.end);
    assert!(usize::from(layers.end) <= data.len());
    assert!(u32::from(layers.end - layers.ip) <= feature.ip_len);
    assert!(layers.transport == 0 || (layers.ip..=layers.payload).contains(&layers.transport));
    if is(feature::SHAPE_LATER_FRAGMENT) {
        assert!(is(feature::SHAPE_FRAGMENT) && layers.transport == 0);
        assert_eq!((feature.source_port, feature.destination_port), (0, 0));
    }
    if is(feature::SHAPE_NO_TRANSPORT) {
        assert_eq!((feature.tcp_flags, feature.window, layers.transport), (0, 0, 0));
    } else {
        // A capture that ends with the headers has the same packet without payload.
        let keys = if is(feature::SHAPE_INNER) { Keys::Inner } else { Keys::Outer };
        let cut = &data[..usize::from(layers.payload)];
        let again = feature::parse_cut(cut, data.len(), link, keys, 5, 1);
        let layers = Layers { end: layers.payload, ..*layers };
        assert_eq!(again, Ok((*feature, layers)));
    }
}

/// A classic pcap file.
pub fn pcap(data: &[u8]) {
    if let Ok(reader) = capture::Reader::new(data) {
        records(data, reader);
    }
}

/// A pcapng file.
pub fn pcapng(data: &[u8]) {
    if let Ok(reader) = capture::Reader::new(data) {
        records(data, reader);
    }
    if let Ok(reader) = capture::Reader::new(data) {
        records(data, reader);
    }
}

/// What holds of every packet that a flow meter finds.
fn one_flow(data: &[u8], found: &FlowPacket) {
    assert!(found.payload.start <= found.payload.end && found.payload.end <= data.len());
    assert!(found.vlan < 4096 && (20..=65_575).contains(&found.ip_len));
    assert!(found.payload.len() + 20 <= found.ip_len as usize);
    match found.detail {
        Detail::Tcp(tcp) => {
            assert!(found.payload.len() <= tcp.payload_len as usize);
            assert!(!tcp.bad_options || (tcp.timestamps.is_none() && !tcp.sack));
            assert_eq!(found.protocol, ipv4::PROTOCOL_TCP);
        }
        Detail::Echo { .. } => assert_eq!(found.source_port, found.destination_port),
        Detail::Dns { response, id } => {
            let at = found.payload.clone();
            let header = dns::Header::parse(&data[at.clone()]).expect("it was read before");
            assert_eq!((header.is_response(), dns::key(header.id, &data[at])), (response, id));
        }
        Detail::Quic(_) => assert_ne!(found.destination_port, dns::PORT),
        Detail::Heartbeat { .. } => assert_eq!(found.protocol, sctp::PROTOCOL_SCTP),
        Detail::Other => {}
    }
}

/// Holds what a flow meter found of a whole TCP packet against its views.
fn tcp_by_views(data: &[u8], found: Result<FlowPacket, Error>) {
    let Ok(frame) = ethernet::Frame::new_checked(data) else { return };
    let (segment, atomic) = match frame.ethertype() {
        ethernet::ETHERTYPE_IPV4 => match ipv4::Packet::new_checked(frame.payload()) {
            Ok(packet) if packet.protocol() == ipv4::PROTOCOL_TCP => {
                (packet.payload().to_vec(), !packet.is_fragment())
            }
            _ => return,
        },
        ethernet::ETHERTYPE_IPV6 => match ipv6::Packet::new_checked(frame.payload()) {
            Ok(packet) => match packet.upper_layer() {
                Ok(upper) if upper.protocol == ipv4::PROTOCOL_TCP => (
                    packet.payload()[upper.offset..].to_vec(),
                    upper.fragment.is_none_or(|fragment| fragment.is_atomic()),
                ),
                _ => return,
            },
            Err(_) => return,
        },
        _ => return,
    };
    if !atomic {
        assert!(found.is_err() || found.is_ok_and(|found| found.fragment));
        return;
    }
    let Ok(packet) = tcp::Packet::new_checked(&segment[..]) else {
        assert!(found.is_err());
        return;
    };
    let found = found.expect("the views are content");
    let Detail::Tcp(read) = found.detail else { panic!("{found:?}") };
    assert_eq!(
        (found.source_port, found.destination_port, read.seq, read.ack, read.flags, read.window),
        (
            packet.source_port(),
            packet.destination_port(),
            packet.seq(),
            packet.ack(),
            packet.flags(),
            packet.window()
        )
    );
    assert_eq!(data[found.payload], *packet.payload());
    assert_eq!(read.payload_len as usize, packet.payload().len());
    let options = tcp::Repr::parse(&packet);
    if packet.options().count() <= tcp::MAX_OPTIONS {
        assert_eq!(read.bad_options, options.is_err());
        if let Ok(repr) = options {
            assert_eq!(read.timestamps, repr.options.timestamps);
            assert_eq!(read.sack, !repr.options.sack.as_slice().is_empty());
        }
    }
    if let Ok(repr) = options {
        // Written with the usual padding the options may be too long.
        let mut bytes = [0; tcp::MAX_HEADER_LEN];
        if let Ok(len) = repr.emit(&mut bytes) {
            let again = tcp::Packet::new_checked(&bytes[..len]).expect("whole");
            assert_eq!(tcp::Repr::parse(&again), Ok(repr));
        }
    }
}

/// Where the UDP payload lies, found view by view.
fn udp_by_views(data: &[u8]) -> Result<Range<usize>, Error> {
    let frame = ethernet::Frame::new_checked(data)?;
    let payload = match frame.ethertype() {
        ethernet::ETHERTYPE_IPV4 => {
            let packet = ipv4::Packet::new_checked(frame.payload())?;
            if packet.is_fragment() {
                return Err(Error::Fragment);
            }
            if packet.protocol() != ipv4::PROTOCOL_UDP {
                return Err(Error::Protocol);
            }
            let start = frame.header_len() + packet.header_len() + udp::HEADER_LEN;
            start..start + udp::Packet::new_checked(packet.payload())?.payload().len()
        }
        ethernet::ETHERTYPE_IPV6 => {
            let packet = ipv6::Packet::new_checked(frame.payload())?;
            let upper = packet.upper_layer()?;
            if upper.fragment.is_some_and(|f| !f.is_atomic()) {
                return Err(Error::Fragment);
            }
            if upper.protocol != ipv4::PROTOCOL_UDP {
                return Err(Error::Protocol);
            }
            let datagram = udp::Packet::new_checked(&packet.payload()[upper.offset..])?;
            let start = frame.header_len() + ipv6::HEADER_LEN + upper.offset + udp::HEADER_LEN;
            start..start + datagram.payload().len()
        }
        _ => return Err(Error::EtherType),
    };
    Ok(payload)
}

/// An ICMP message, and what it quotes.
fn message(data: &[u8], version: icmp::Version) {
    let Ok(packet) = icmp::Packet::new_checked(data) else { return };
    let _ = icmp::QuotedUdp::parse(packet.data(), version);
    if let Ok(repr) = icmp::Repr::parse(&packet, version) {
        let mut bytes = vec![0; repr.buffer_len()];
        repr.emit(&mut bytes, version).expect("the buffer has the length asked for");
        let again = icmp::Packet::new_checked(bytes.as_slice()).expect("whole");
        assert_eq!(icmp::Repr::parse(&again, version), Ok(repr));
    }
}

/// An IPFIX file, or a NetFlow packet: whatever templates say, no value lies outside its
/// record, and no record outside its set.
pub fn ipfix(data: &[u8]) {
    for message in sonde_wire::ipfix::MessageIter::new(data).map_while(Result::ok) {
        let message = sonde_wire::ipfix::Message::new_checked(message).expect("it is whole");
        sets(message.sets(), TemplateFormat::Ipfix);
    }
    if let Ok(packet) = sonde_wire::netflow9::Packet::new_checked(data) {
        sets(packet.sets(), TemplateFormat::Netflow9);
    }
    if let Ok(packet) = sonde_wire::netflow5::Packet::new_checked(data) {
        assert_eq!(packet.records().count(), usize::from(packet.header.count));
    }
}

/// Each template is tried on each set, its own and the others.
fn sets(sets: SetIter, format: TemplateFormat) {
    let all: Vec<_> = sets.map_while(Result::ok).collect();
    let mut templates: Vec<Vec<FieldSpecifier>> = Vec::new();
    for set in &all {
        let plain = TemplateIter::new(set.body, format).map_while(Result::ok);
        let options = TemplateIter::options(set.body, format).map_while(Result::ok);
        templates.extend(plain.chain(options).map(|template| template.fields().collect()));
    }
    // So many of so few bytes are none that an exporter makes.
    templates.truncate(16);
    for (set, fields) in all.iter().flat_map(|set| templates.iter().map(move |f| (set, f))) {
        let mut octets = 0;
        for record in RecordIter::new(set.body, fields).map_while(Result::ok) {
            octets += record.bytes.len();
            assert_eq!(record.values().count(), fields.len());
            for (field, value) in record.values() {
                if let Some(element) = element::find(field.enterprise, field.id) {
                    time::to_ns(element.kind, value);
                }
                if let Ok(list) = BasicList::parse(value) {
                    assert!(list.values().map(<[u8]>::len).sum::<usize>() <= value.len());
                }
            }
        }
        assert!(octets <= set.body.len());
    }
}

/// A walk over TLVs and what is in them.
fn tlvs(data: &[u8]) {
    let mut seen = 0;
    for tlv in Tlvs::new(data) {
        let Ok(tlv) = tlv else { break };
        seen += tlv::HEADER_LEN + tlv.value.len();
        if let Ok(location) = value::Location::parse(tlv.value) {
            let _ = (location.source(), location.destination());
        }
        let _ = value::TimestampInformation::parse(tlv.value);
        let _ = value::ClassOfService::parse(tlv.value);
        if let Ok(direct) = value::DirectMeasurement::parse(tlv.value) {
            assert_eq!(direct.emit(), tlv.value);
        }
        let _ = value::FollowUpTelemetry::parse(tlv.value);
    }
    assert!(seen <= data.len());
}

/// A reflector's changes: none may alter how the TLVs lie.
fn answer(data: &mut [u8]) {
    let before: Vec<_> = lengths(data);
    let mut bad = None;
    for tlv in TlvsMut::new(data) {
        match tlv {
            Ok(mut tlv) => tlv.set_flags(tlv::Flags::REQUEST),
            Err(malformed) => bad = Some(malformed),
        }
    }
    if let Some(malformed) = bad {
        tlv::mark_malformed(data, malformed);
    }
    assert_eq!(lengths(data), before);
}

/// Type and length of each TLV that can be walked to.
fn lengths(data: &[u8]) -> Vec<(u8, usize)> {
    Tlvs::new(data).map_while(Result::ok).map(|tlv| (tlv.kind, tlv.value.len())).collect()
}

/// No more packets than a file of this length can hold, and nothing after an error.
fn records<'a>(file: &[u8], mut reader: impl Iterator<Item = Result<Record<'a>, CaptureError>>) {
    let mut octets = 0;
    while let Some(record) = reader.next() {
        match record {
            Ok(record) => octets += record.data.len() + 16,
            Err(error) => {
                assert!(error.offset < file.len().max(1));
                assert!(reader.next().is_none());
            }
        }
    }
    assert!(octets <= file.len());
}

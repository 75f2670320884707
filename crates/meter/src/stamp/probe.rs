//! The packets of a session-sender: probes from a template, replies into values.

use std::net::IpAddr;

use sonde_wire::stamp::{BASE_LEN, ReflectorPacket, SenderRepr};
use sonde_wire::time::{ErrorEstimate, TimestampFormat};
use sonde_wire::{Error, Stamp, Time, build, checksum, ethernet, parse_udp, tlv, udp_intact};

use super::sample::{Fate, Sample};
use super::sender::Refusal;
use super::spec::{LinkHeader, Schedule, SenderConfig, StreamSpec};
use super::stream::{self, Slot};

/// Our clock, as probes tell it.
pub(crate) struct Clock {
    tai_offset: i64,
    error_estimate: ErrorEstimate,
}

impl Clock {
    pub(crate) fn new(config: &SenderConfig) -> Self {
        Clock {
            tai_offset: config.tai_offset,
            error_estimate: ErrorEstimate::from_error_ns(
                config.clock_error,
                config.clock_synchronised,
                TimestampFormat::Ntp,
            ),
        }
    }

    /// The 64 bits that a probe sent at `at` carries.
    #[inline]
    pub(crate) fn wire(&self, at: Time) -> u64 {
        at.to_ntp(self.tai_offset).0
    }
}

/// Everything about a stream's probes that does not change from one to the next.
pub(crate) struct ProbeTemplate {
    /// IP and UDP header; the UDP checksum field is zero.
    headers: [u8; 48],
    headers_len: u8,
    schedule: Schedule,
    next_hop: u16,
    ssid: u16,
    payload_len: u16,
    ether_type: u16,
    /// Sum of all that the UDP checksum covers beyond the first 16 payload octets.
    constant_sum: u32,
    period: i64,
    count: u64,
}

impl ProbeTemplate {
    pub(crate) fn new(spec: &StreamSpec) -> Result<Self, Error> {
        let v4 = spec.destination.is_ipv4();
        let headers_len: u16 = if v4 { 28 } else { 48 };
        let payload_len = spec.ip_length.checked_sub(headers_len).ok_or(Error::Range)?;
        let (source, destination, len) = (spec.source, spec.destination, usize::from(payload_len));
        let mut headers = [0; 48];
        build::emit_udp_ip(&mut headers, source, destination, spec.dscp << 2, spec.ttl, len)?;
        let padding = padding_header(payload_len).map_or(0, |h| checksum::sum(&h));
        Ok(ProbeTemplate {
            headers,
            headers_len: headers_len as u8,
            schedule: spec.schedule,
            next_hop: spec.next_hop,
            ssid: spec.ssid,
            payload_len,
            ether_type: if v4 { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 },
            constant_sum: build::udp_header_sum(source, destination, len)? + padding,
            period: spec.period,
            count: spec.count.unwrap_or(u64::MAX),
        })
    }

    pub(crate) fn ssid(&self) -> u16 {
        self.ssid
    }

    pub(crate) fn next_hop(&self) -> usize {
        usize::from(self.next_hop)
    }

    pub(crate) fn set_next_hop(&mut self, hop: u16) {
        self.next_hop = hop;
    }

    pub(crate) fn timing(&self) -> (i64, Schedule) {
        (self.period, self.schedule)
    }

    /// Whether `attempts` are all.
    pub(crate) fn is_complete(&self, attempts: u64) -> bool {
        attempts >= self.count
    }

    /// Writes the frame of probe `seq`; its length, or `None` if `buffer` is too small.
    #[inline]
    pub(crate) fn emit(
        &self,
        buffer: &mut [u8],
        link: &LinkHeader,
        seq: u32,
        clock: &Clock,
        now: Time,
    ) -> Option<usize> {
        let (link, headers) = (link.as_bytes(), usize::from(self.headers_len));
        let ip = link.len() + 2;
        let udp = ip + headers - 8;
        let len = ip + headers + usize::from(self.payload_len);
        let frame = buffer.get_mut(..len)?;
        frame[..link.len()].copy_from_slice(link);
        frame[link.len()..ip].copy_from_slice(&self.ether_type.to_be_bytes());
        frame[ip..ip + headers].copy_from_slice(&self.headers[..headers]);
        let body = &mut frame[ip + headers..];
        let probe = SenderRepr {
            sequence: seq,
            timestamp: clock.wire(now),
            error_estimate: clock.error_estimate,
            ssid: self.ssid,
        };
        probe.emit(body).ok()?;
        body[BASE_LEN..].fill(0);
        if let Some(padding) = padding_header(self.payload_len) {
            body[BASE_LEN..BASE_LEN + 4].copy_from_slice(&padding);
        }
        build::finish_udp(&mut frame[udp..], self.constant_sum, 16).ok()?;
        Some(len)
    }
}

/// The Extra Padding TLV that fills a probe beyond the base packet (RFC 8972, section 4.1);
/// fewer than four spare octets stay plain zeros.
fn padding_header(payload_len: u16) -> Option<[u8; 4]> {
    let value = payload_len.checked_sub(BASE_LEN as u16 + 4)?;
    let [high, low] = value.to_be_bytes();
    Some([tlv::Flags::UNRECOGNIZED, tlv::PADDING, high, low])
}

/// A reply's values.
pub(crate) struct Reply {
    pub(crate) peer: IpAddr,
    pub(crate) peer_port: u16,
    pub(crate) local_port: u16,
    pub(crate) ssid: u16,
    /// The sequence number of our probe.
    pub(crate) seq: u32,
    pub(crate) reflector_seq: u32,
    /// Our probe's time stamp as it came back.
    pub(crate) echo: u64,
    pub(crate) error_estimate: ErrorEstimate,
    pub(crate) t2: Time,
    pub(crate) t3: Time,
    ttl: u8,
    sender_ttl: u8,
    length: u16,
}

impl Reply {
    /// Reads a reply of STAMP, or of TWAMP Light, whose layout is the same up to the
    /// sender's TTL (RFC 8762, section 4.6; RFC 5357, section 4.2.1). Times are in the
    /// format that the peer's error estimate names (RFC 8186).
    #[inline]
    pub(crate) fn parse(frame: &[u8], clock: &Clock, near: Time) -> Result<Self, Refusal> {
        let udp = parse_udp(frame).map_err(|_| Refusal::Malformed)?;
        if !udp_intact(frame, &udp) {
            return Err(Refusal::Checksum);
        }
        let payload = &frame[udp.payload];
        let packet = ReflectorPacket::new_checked(payload).map_err(|_| Refusal::Short)?;
        let estimate = packet.error_estimate();
        let time = |wire| Time::from_wire(wire, estimate.format(), near, clock.tai_offset);
        Ok(Reply {
            peer: udp.source,
            peer_port: udp.source_port,
            local_port: udp.destination_port,
            ssid: packet.ssid(),
            seq: packet.sender_sequence(),
            reflector_seq: packet.sequence(),
            echo: packet.sender_timestamp(),
            error_estimate: estimate,
            t2: time(packet.receive_timestamp()),
            t3: time(packet.timestamp()),
            ttl: udp.ttl,
            sender_ttl: packet.sender_ttl(),
            length: payload.len() as u16,
        })
    }

    pub(crate) fn sample(&self, stream: u32, slot: &Slot, t4: Stamp, duplicate: bool) -> Sample {
        let fate = Fate::Reply {
            t2: self.t2,
            t3: self.t3,
            t4,
            ttl: self.ttl,
            sender_ttl: self.sender_ttl,
            length: self.length,
            peer_synchronised: self.error_estimate.synchronised(),
            duplicate,
        };
        Sample { stream, seq: self.seq, t1: stream::t1_of(slot), fate }
    }
}

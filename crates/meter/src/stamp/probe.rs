//! The packets of a session-sender: probes from a template, replies into values.

use std::net::{IpAddr, SocketAddr};

use sonde_wire::stamp::{BASE_LEN, ReflectorPacket, SenderRepr};
use sonde_wire::time::{ErrorEstimate, TimestampFormat};
use sonde_wire::{Error, Scale, Stamp, Time, UdpFrame, build, checksum, ethernet, tlv, udp_intact};

use super::sample::{Fate, Sample};
use super::spec::{LinkHeader, Schedule, SenderConfig, StreamSpec};
use super::stream::{self, Slot};

/// Our clock, as probes state it.
pub(crate) struct Clock {
    pub(crate) scale: Scale,
    pub(crate) error_estimate: ErrorEstimate,
}

impl Clock {
    pub(crate) fn new(config: &SenderConfig) -> Self {
        Clock {
            scale: Scale { utc_offset: config.tai_offset, ..Scale::default() },
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
        at.to_ntp(self.scale.utc_offset).0
    }

    /// What a peer wrote, within 68 years of `near`.
    #[inline]
    fn read(&self, wire: u64, format: TimestampFormat, near: Time) -> Time {
        let time = Time::from_wire(wire, format, near, self.scale.utc_offset);
        match format {
            TimestampFormat::Ntp => time,
            TimestampFormat::Ptp => time - self.scale.tai_shift,
        }
    }

    /// T2 and T3 of a packet that came at `near`. They are read by the format that it names (RFC
    /// 8186), but by the other one if only that is near. Where both are far off the peer's word
    /// stands.
    #[inline]
    fn read_both(&self, packet: &ReflectorPacket<&[u8]>, near: Time) -> PeerTimes {
        let wire = (packet.receive_timestamp(), packet.timestamp());
        let by = |format, format_wrong| {
            let (t2, t3) = (self.read(wire.0, format, near), self.read(wire.1, format, near));
            let comparable =
                (t2 - near).saturating_abs() <= ABSURD && (t3 - near).saturating_abs() <= ABSURD;
            PeerTimes { t2, t3, comparable, format_wrong }
        };
        let stated = packet.error_estimate().format();
        let found = by(stated, false);
        if found.comparable {
            return found;
        }
        let other = match stated {
            TimestampFormat::Ntp => TimestampFormat::Ptp,
            TimestampFormat::Ptp => TimestampFormat::Ntp,
        };
        let other = by(other, true);
        if other.comparable && other.t3 >= other.t2 { other } else { found }
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
        let (headers, constant_sum) =
            headers(spec.source, spec.destination, spec.dscp << 2, spec.ttl, payload_len)?;
        Ok(ProbeTemplate {
            headers,
            headers_len: headers_len as u8,
            schedule: spec.schedule,
            next_hop: spec.next_hop,
            ssid: spec.ssid,
            payload_len,
            ether_type: if v4 { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 },
            constant_sum,
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

    /// Probes leave from `source`, an address of the same family, from now on.
    pub(crate) fn set_source(&mut self, source: IpAddr) {
        let ip = &self.headers;
        let address = |v4: usize, v6: usize| match self.headers_len {
            28 => ip[v4..].first_chunk::<4>().map(|&a| IpAddr::from(a)),
            _ => ip[v6..].first_chunk::<16>().map(|&a| IpAddr::from(a)),
        };
        let l4 = usize::from(self.headers_len) - 8;
        let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let Some(to) = address(16, 24).filter(|to| to.is_ipv4() == source.is_ipv4()) else {
            return;
        };
        let from = SocketAddr::new(source, port(l4));
        let to = SocketAddr::new(to, port(l4 + 2));
        let (tos, ttl) = match to.is_ipv4() {
            true => (ip[1], ip[8]),
            false => ((ip[0] & 15) << 4 | ip[1] >> 4, ip[7]),
        };
        if let Ok((headers, sum)) = headers(from, to, tos, ttl, self.payload_len) {
            (self.headers, self.constant_sum) = (headers, sum);
        }
    }

    pub(crate) fn timing(&self) -> (i64, Schedule) {
        (self.period, self.schedule)
    }

    pub(crate) fn end(&mut self) {
        self.count = 0;
    }

    /// Whether [`ProbeTemplate::end`] was called.
    pub(crate) fn is_ended(&self) -> bool {
        self.count == 0
    }

    /// Whether `attempts` are all.
    pub(crate) fn is_complete(&self, attempts: u64) -> bool {
        attempts >= self.count
    }

    /// How many are still to be attempted.
    pub(crate) fn remaining(&self, attempts: u64) -> u64 {
        self.count.saturating_sub(attempts)
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

/// IP and UDP header, and the sum of what the UDP checksum covers beyond the first 16 octets of
/// the payload.
fn headers(
    source: SocketAddr,
    destination: SocketAddr,
    tos: u8,
    ttl: u8,
    payload_len: u16,
) -> Result<([u8; 48], u32), Error> {
    let mut headers = [0; 48];
    let len = usize::from(payload_len);
    build::emit_udp_ip(&mut headers, source, destination, tos, ttl, len)?;
    let padding = padding_header(payload_len).map_or(0, |h| checksum::sum(&h));
    Ok((headers, build::udp_header_sum(source, destination, len)? + padding))
}

/// The Extra Padding TLV that fills a probe beyond the base packet (RFC 8972, section 4.1);
/// fewer than four spare octets stay plain zeros.
fn padding_header(payload_len: u16) -> Option<[u8; 4]> {
    let value = payload_len.checked_sub(BASE_LEN as u16 + 4)?;
    let [high, low] = value.to_be_bytes();
    Some([tlv::Flags::UNRECOGNIZED, tlv::PADDING, high, low])
}

/// What a reply says of the reflector's time.
struct PeerTimes {
    t2: Time,
    t3: Time,
    comparable: bool,
    format_wrong: bool,
}

/// A one-way delay beyond this is none, ns: a clock that is a day off, or not set at all.
const ABSURD: i64 = 86_400_000_000_000;

pub(crate) struct Reply {
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
    /// Neither is further from our clock than a clock can be off.
    pub(crate) comparable: bool,
    /// They are in the other format than the packet says.
    pub(crate) format_wrong: bool,
    ttl: u8,
    sender_ttl: u8,
    length: u16,
}

impl Reply {
    /// When the probe left, as the reply echoes it, by our clock.
    pub(crate) fn echoed(&self, clock: &Clock, near: Time) -> Time {
        clock.read(self.echo, TimestampFormat::Ntp, near)
    }

    /// Reads a reply of STAMP, or of TWAMP Light. The layout is the same up to the sender's TTL
    /// (RFC 8762, section 4.6; RFC 5357, section 4.2.1). Times are in the format that the peer's
    /// error estimate names (RFC 8186).
    #[inline]
    pub(crate) fn read(
        frame: &[u8],
        udp: &UdpFrame,
        clock: &Clock,
        near: Time,
    ) -> Result<Self, Refusal> {
        if !udp_intact(frame, udp) {
            return Err(Refusal::Checksum);
        }
        let payload = &frame[udp.payload.clone()];
        let packet = ReflectorPacket::new_checked(payload).map_err(|_| Refusal::Short)?;
        let estimate = packet.error_estimate();
        let times = clock.read_both(&packet, near);
        Ok(Reply {
            local_port: udp.destination_port,
            ssid: packet.ssid(),
            seq: packet.sender_sequence(),
            reflector_seq: packet.sequence(),
            echo: packet.sender_timestamp(),
            error_estimate: estimate,
            t2: times.t2,
            t3: times.t3,
            comparable: times.comparable,
            format_wrong: times.format_wrong,
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
            comparable: self.comparable,
            duplicate,
        };
        Sample { stream, seq: self.seq, t1: stream::t1_of(slot), fate }
    }
}

/// Why a received frame is not a reply to a probe of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    Checksum,
    Short,
    Stranger,
    Other,
    WrongSession,
    Late,
    Forged,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::ReflectorKind;

    #[test]
    fn a_new_source_changes_nothing_else() {
        for (old, new, to) in [
            ("10.0.0.1:61000", "10.9.8.7:61000", "10.0.0.2:862"),
            ("[fd00::1]:61000", "[fd00::77:1]:61000", "[fd00::2]:862"),
        ] {
            let spec = |source: &str| StreamSpec {
                source: source.parse().unwrap(),
                destination: to.parse().unwrap(),
                dscp: 46,
                ttl: 77,
                next_hop: 0,
                ssid: 5,
                ip_length: 150,
                period: 1,
                phase: 0,
                schedule: Schedule::Periodic,
                count: None,
                reflector: ReflectorKind::Auto,
            };
            let new = spec(new);
            let mut changed = ProbeTemplate::new(&spec(old)).unwrap();
            changed.set_source(new.source.ip());
            let fresh = ProbeTemplate::new(&new).unwrap();
            assert_eq!(changed.headers, fresh.headers);
            assert_eq!(changed.constant_sum, fresh.constant_sum);
            let other: IpAddr = if new.source.is_ipv4() { [0; 16].into() } else { [0; 4].into() };
            changed.set_source(other);
            assert_eq!(changed.headers, fresh.headers, "of another family");
        }
    }
}

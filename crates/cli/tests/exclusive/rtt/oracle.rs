//! An oracle for TCP timestamps (RFC 7323), as simple as can be: a table of all TSvals
//! ever sent. It shares no code with what it judges, not even the parser.
//!
//! The first packet with data that carries a TSval is answered by the first packet back
//! that echoes it and acknowledges something new.

use std::collections::HashMap;
use std::net::IpAddr;

use super::capture::Frame;

/// Source and destination of one direction.
pub type Direction = (IpAddr, u16, IpAddr, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleSample {
    /// Of the answer: its source is the host whose round trip it is.
    pub direction: Direction,
    /// When the answer passed, ns.
    pub at_ns: i64,
    /// The round-trip time, ns.
    pub rtt_ns: i64,
}

/// One TCP segment; only what judges need.
pub struct Segment {
    pub direction: Direction,
    pub seq: u32,
    pub ack: Option<u32>,
    pub data: u32,
    pub timestamps: Option<(u32, u32)>,
}

/// The samples of all timestamps in the capture, in order.
pub fn timestamp_samples(frames: &[Frame]) -> Vec<OracleSample> {
    let mut sent: HashMap<(Direction, u32), Option<i64>> = HashMap::new();
    let mut acknowledged: HashMap<Direction, u32> = HashMap::new();
    let mut samples = Vec::new();
    for frame in frames {
        let Some(segment) = segment(&frame.data) else { continue };
        let Some((value, echo)) = segment.timestamps else { continue };
        let direction = segment.direction;
        let back = (direction.2, direction.3, direction.0, direction.1);
        if let Some(ack) = segment.ack {
            let before = acknowledged.insert(back, ack);
            let new = before.is_none_or(|before| is_after(ack, before));
            if let (false, Some(before)) = (new, before) {
                acknowledged.insert(back, before);
            }
            let timed = sent.get_mut(&(back, echo)).filter(|_| new);
            if let Some(at) = timed.and_then(Option::take) {
                let (at_ns, rtt_ns) = (frame.at_ns, frame.at_ns - at);
                samples.push(OracleSample { direction, at_ns, rtt_ns });
            }
        }
        if segment.data > 0 {
            sent.entry((direction, value)).or_insert(Some(frame.at_ns));
        }
    }
    samples
}

/// Whether sequence number `a` is beyond `b` (RFC 9293, section 3.4).
fn is_after(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// A whole TCP segment over Ethernet and IP without extension headers.
pub fn segment(frame: &[u8]) -> Option<Segment> {
    let be16 = |b: &[u8], at: usize| Some(u16::from_be_bytes([*b.get(at)?, *b.get(at + 1)?]));
    let be32 = |b: &[u8], at: usize| Some(u32::from_be_bytes(b.get(at..at + 4)?.try_into().ok()?));
    let ip = frame.get(14..)?;
    let (source, destination, tcp, length): (IpAddr, IpAddr, &[u8], usize) = match be16(frame, 12)?
    {
        0x0800 if be16(ip, 6)? & 0x3fff == 0 && *ip.get(9)? == 6 => {
            let header = usize::from(ip[0] & 15) * 4;
            let address = |at| Some(<[u8; 4]>::try_from(ip.get(at..at + 4)?).ok()?.into());
            let length = usize::from(be16(ip, 2)?).checked_sub(header)?;
            (address(12)?, address(16)?, ip.get(header..)?, length)
        }
        0x86dd if *ip.get(6)? == 6 => {
            let address = |at| Some(<[u8; 16]>::try_from(ip.get(at..at + 16)?).ok()?.into());
            (address(8)?, address(24)?, ip.get(40..)?, be16(ip, 4)?.into())
        }
        _ => return None,
    };
    let header = usize::from(tcp.get(12)? >> 4) * 4;
    let flags = *tcp.get(13)?;
    let mut options = tcp.get(20..header)?;
    let mut timestamps = None;
    while let [kind, rest @ ..] = options {
        options = match kind {
            0 => break,
            1 => rest,
            8 => {
                timestamps = Some((be32(rest, 1)?, be32(rest, 5)?));
                break;
            }
            _ => options.get(usize::from(*rest.first()?).max(1)..)?,
        };
    }
    Some(Segment {
        direction: (source, be16(tcp, 0)?, destination, be16(tcp, 2)?),
        seq: be32(tcp, 4)?,
        ack: (flags & 16 != 0).then_some(be32(tcp, 8)?),
        data: length.checked_sub(header)? as u32,
        timestamps,
    })
}

mod tests {
    use super::super::capture::golden;
    use super::timestamp_samples;
    use sonde_results::rtt::RttKind;

    /// The oracle itself is held against captures whose answers are known. It does not know
    /// the rules about a capture's first TSval, nor times FINs: such captures are left out.
    #[test]
    fn the_oracle_finds_what_is_there_by_construction() {
        let _turn = crate::turn::shared();
        let plain = [
            "tcp_wraps",
            "tcp_many_in_flight",
            "tcp_repeated_tsval",
            "tcp_options",
            "tcp_snapped",
            "tcp_timestamps_v6",
            "tcp_port_reuse",
            "tcp_recovery",
        ];
        let mut seen = 0;
        for case in golden().into_iter().filter(|c| plain.contains(&c.name.as_str())) {
            let known = case.expected.samples.iter().filter(|s| s.kind == RttKind::TcpTimestamp);
            let known: Vec<_> = known.map(|s| (s.at_ns, s.rtt_ns as i64)).collect();
            let found = timestamp_samples(&case.frames);
            let found: Vec<_> = found.iter().map(|s| (s.at_ns, s.rtt_ns)).collect();
            assert_eq!(found, known, "{}", case.name);
            seen += 1;
        }
        assert_eq!(seen, plain.len());
    }
}

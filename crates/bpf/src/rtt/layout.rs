//! The structures of `c/rtt.h`, and the records made of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_results::rtt::{
    EndReason, FlowKey, RttClass, RttFlow, RttFlowSide, RttKind, RttSample, SpinVerdict,
};
use sonde_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};

use super::memory::Plain;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawKey {
    pub(super) address: [[u8; 16]; 2],
    pub(super) port: [[u8; 2]; 2],
    pub(super) vlan: u16,
    pub(super) protocol: u8,
    pub(super) point: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawSide {
    /// Those of TCP; else what became of requests.
    slots: [[u32; 2]; 4],
    /// QUIC: violations of the spin bit's order (side 0).
    nxt: u32,
    /// QUIC: short headers.
    ack: u32,
    /// QUIC: edges of the spin bit.
    tsval: u32,
    recover: u32,
    flags: u16,
    win: u16,
    page: u16,
    group: u16,
    armed: u16,
    held_period: u8,
    held: u8,
    count: u16,
    head_and_mode: u8,
    packets_high: u8,
    packets: u32,
    bytes: u32,
    sampled_at: u16,
    bytes_high: u16,
    samples: u32,
    rtt_min: u32,
    srtt: u32,
    rtt_sum: u32,
    rtt_sum_high: u16,
    timed_sum_high: u16,
    timed_sum: u32,
    timed: u32,
    timed_max: u32,
    handshake: u32,
    edge_at: u32,
    variation: u32,
    variation_max: u32,
    recent: [u16; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawFlow {
    pub(super) key: RawKey,
    start: u32,
    last: u32,
    hs_at: u32,
    req_at: u32,
    pub(super) loss: u32,
    flags: u16,
    req_id: u16,
    side: [RawSide; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawLossSide {
    hole_lo: u32,
    hole_hi: u32,
    hole_at: u32,
    retransmitted: u32,
    reordered: u32,
    gaps: u32,
    duplicate_acks: u32,
    zero_windows: u32,
    ce_marks: u32,
    recovery: u32,
    delayed_ack: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct RawLoss {
    pub(super) side: [RawLossSide; 2],
    /// What only the program needs.
    state: [u32; 24],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SampleEvent {
    key: RawKey,
    at: u64,
    bytes: u64,
    packets: u64,
    peer_bytes: u64,
    peer_packets: u64,
    rtt: u32,
    rtt_min: u32,
    side: u8,
    kind: u8,
    class: u8,
    ipv4: u8,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FlowEvent {
    pub(super) flow: RawFlow,
    pub(super) loss: [RawLossSide; 2],
    pub(super) reason: u32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct GroupClass {
    pub(super) sum: u64,
    pub(super) loose: u32,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) hist: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RawGroup {
    pub(super) state: u32,
    pub(super) hash: u32,
    pub(super) kind: u32,
    unused: u32,
    pub(super) key: [u64; 5],
    pub(super) class: [GroupClass; 3],
}

// SAFETY: plain integers in the C order, without padding, a multiple of eight long; the
// test below holds the sizes against the program's.
unsafe impl Plain for RawFlow {}
// SAFETY: as above.
unsafe impl Plain for RawLoss {}
// SAFETY: as above.
unsafe impl Plain for SampleEvent {}
// SAFETY: as above.
unsafe impl Plain for FlowEvent {}
// SAFETY: as above.
unsafe impl Plain for RawGroup {}

/// What turns the program's values into those of the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// What is added to the program's precise clock, ns.
    pub(super) base_ns: i64,
    /// Now, for the coarse times, of which the program keeps 32 bits.
    pub(super) now_ns: i64,
    pub(super) hidden: bool,
}

impl RawKey {
    /// As `source` sends it.
    pub(super) fn flow(&self, source: usize, ipv4: bool, hidden: bool) -> FlowKey {
        let destination = 1 - source;
        FlowKey {
            point: self.point,
            vlan: self.vlan,
            protocol: self.protocol,
            source: shown(self.address[source], ipv4, hidden),
            destination: shown(self.address[destination], ipv4, hidden),
            source_port: u16::from_be_bytes(self.port[source]),
            destination_port: u16::from_be_bytes(self.port[destination]),
        }
    }

    /// From the 64-bit parts of a group's key.
    pub(super) fn from_longs(longs: [u64; 5]) -> Self {
        let mut bytes = [0; 40];
        for (to, word) in bytes.chunks_exact_mut(8).zip(longs) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let part = |at: usize| bytes[at..at + 16].try_into().expect("16 octets");
        RawKey {
            address: [part(0), part(16)],
            port: [[bytes[32], bytes[33]], [bytes[34], bytes[35]]],
            vlan: u16::from_ne_bytes([bytes[36], bytes[37]]),
            protocol: bytes[38],
            point: bytes[39],
        }
    }
}

impl SampleEvent {
    pub(super) fn sample(&self, reading: Reading) -> RttSample {
        let side = usize::from(self.side & 1);
        RttSample {
            at_ns: (self.at as i64).wrapping_add(reading.base_ns),
            flow: self.key.flow(side, self.ipv4 != 0, reading.hidden),
            kind: kind_of(self.kind),
            class: match self.class {
                1 => RttClass::Recovery,
                2 => RttClass::DelayedAck,
                _ => RttClass::Clean,
            },
            rtt_ns: ticks(self.rtt),
            min_rtt_ns: ticks(self.rtt_min),
            bytes: self.bytes,
            packets: self.packets,
            peer_bytes: self.peer_bytes,
            peer_packets: self.peer_packets,
        }
    }
}

impl RawFlow {
    pub(super) fn record(
        &self,
        loss: &[RawLossSide; 2],
        reason: EndReason,
        reading: Reading,
    ) -> RttFlow {
        let client = usize::from(self.flags & CLIENT);
        let (here, there) = (&self.side[client], &self.side[1 - client]);
        // Until its SYN is answered, the client's sequence number stands there.
        let syn_sent = self.key.protocol == PROTOCOL_TCP && self.flags & HANDSHAKE == SYN_SENT;
        // The spin bit's counts stand where TCP has its own; DNS leaves them 0.
        let quic = self.key.protocol == PROTOCOL_UDP;
        // Of a QUIC flow these fields hold the spin bit's counts.
        let (responses, residence) = (&self.side[0], &self.side[1]);
        RttFlow {
            flow: self.key.flow(client, self.flags & IPV4 != 0, reading.hidden),
            start_ns: coarse_ns(self.start, reading.now_ns),
            end_ns: coarse_ns(self.last, reading.now_ns),
            reason,
            forward: here.record(self.key.protocol, reason, &loss[client]),
            backward: there.record(self.key.protocol, reason, &loss[1 - client]),
            handshake_server_ns: ticks(there.handshake),
            handshake_client_ns: if syn_sent { 0 } else { ticks(here.handshake) },
            responses: responses.timed.into(),
            response_sum_ns: wide(responses.timed_sum, responses.timed_sum_high) << TICK_SHIFT,
            response_max_ns: ticks(responses.timed_max),
            residences: residence.timed.into(),
            residence_sum_ns: wide(residence.timed_sum, residence.timed_sum_high) << TICK_SHIFT,
            residence_max_ns: ticks(residence.timed_max),
            spin: if quic { self.spin() } else { SpinVerdict::Unknown },
        }
    }

    /// Why it ended, as far as the entry itself knows.
    pub(super) fn reason(&self) -> EndReason {
        reason_of(u32::from((self.flags & REASON) >> REASON_SHIFT))
    }

    fn spin(&self) -> SpinVerdict {
        let longest = self.req_id >> 8;
        let violations = u64::from(self.side[0].nxt);
        let edges = u64::from(self.side[0].tsval) + u64::from(self.side[1].tsval);
        if self.flags & SPIN_RANDOM != 0 {
            SpinVerdict::Random
        } else if longest >= 16 && violations * 8 <= edges {
            SpinVerdict::Spinning
        } else if edges == 0 && self.side.iter().all(|side| side.ack >= 32) {
            SpinVerdict::Off
        } else {
            SpinVerdict::Unknown
        }
    }
}

impl RawSide {
    fn record(&self, protocol: u8, reason: EndReason, loss: &RawLossSide) -> RttFlowSide {
        let [[requests, answered], [mut unanswered, waiting], [waiting_long, _], _] =
            if protocol == PROTOCOL_TCP { [[0; 2]; 4] } else { self.slots };
        // Nothing will come any more.
        if reason == EndReason::Idle {
            unanswered += waiting + waiting_long;
        }
        RttFlowSide {
            packets: wide(self.packets, self.packets_high.into()),
            bytes: wide(self.bytes, self.bytes_high),
            samples: self.samples.into(),
            samples_recovery: loss.recovery.into(),
            samples_delayed_ack: loss.delayed_ack.into(),
            rtt_min_ns: ticks(self.rtt_min),
            rtt_sum_ns: wide(self.rtt_sum, self.rtt_sum_high) << TICK_SHIFT,
            rtt_smoothed_ns: ticks(self.srtt),
            retransmitted: loss.retransmitted.into(),
            reordered: loss.reordered.into(),
            gaps: loss.gaps.into(),
            duplicate_acks: loss.duplicate_acks.into(),
            zero_windows: loss.zero_windows.into(),
            ce_marks: loss.ce_marks.into(),
            delay_variation_max_ns: self.variation_max.into(),
            requests: requests.into(),
            answered: answered.into(),
            unanswered: unanswered.into(),
        }
    }
}

pub(super) fn reason_of(code: u32) -> EndReason {
    match code {
        1 => EndReason::Fin,
        2 => EndReason::Reset,
        3 => EndReason::Reuse,
        4 => EndReason::Idle,
        5 => EndReason::Evicted,
        6 => EndReason::Stopped,
        _ => EndReason::Open,
    }
}

/// Only the prefix of a hidden one: the rest of its bits are a hash.
pub(super) fn shown(address: [u8; 16], ipv4: bool, hidden: bool) -> IpAddr {
    let [.., a, b, c, d] = address;
    if ipv4 {
        return Ipv4Addr::new(a, b, c, d).into();
    }
    let mut bytes = address;
    if hidden {
        bytes[6..].fill(0);
    }
    Ipv6Addr::from(bytes).into()
}

pub(super) fn ticks(n: u32) -> u64 {
    u64::from(n) << TICK_SHIFT
}

fn wide(low: u32, high: u16) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The time nearest to now whose lower bits these are.
fn coarse_ns(coarse: u32, now_ns: i64) -> i64 {
    let now = now_ns >> COARSE_SHIFT;
    let behind = (now as u32).wrapping_sub(coarse) as i32;
    (now - i64::from(behind)) << COARSE_SHIFT
}

fn kind_of(code: u8) -> RttKind {
    match code {
        0 => RttKind::TcpTimestamp,
        1 => RttKind::TcpSequence,
        2 => RttKind::TcpHandshakeServer,
        3 => RttKind::TcpHandshakeClient,
        4 => RttKind::IcmpEcho,
        5 => RttKind::QuicHandshake,
        6 => RttKind::QuicSpin,
        7 => RttKind::Dns,
        _ => RttKind::SctpHeartbeat,
    }
}

pub(super) const TICK_SHIFT: u32 = 6;
const COARSE_SHIFT: u32 = 26;
const CLIENT: u16 = 0x0001;
const HANDSHAKE: u16 = 0x0006;
const SYN_SENT: u16 = 1 << 1;
const REASON_SHIFT: u16 = 6;
const REASON: u16 = 0x01c0;
const IPV4: u16 = 0x0800;
const SPIN_RANDOM: u16 = 0x8000;

/// Entries of a hist, u32 each (`struct hist`).
pub(super) const HIST: usize = 4 * sonde_results::rtt::RTT_BUCKETS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_those_that_the_program_asserts() {
        assert_eq!(size_of::<RawFlow>(), 320);
        assert_eq!(size_of::<RawSide>(), 128);
        assert_eq!(size_of::<RawLoss>(), 184);
        assert_eq!(size_of::<SampleEvent>(), 96);
        assert_eq!(size_of::<FlowEvent>(), 416);
        assert_eq!(size_of::<RawGroup>(), 128);
    }

    #[test]
    fn coarse_times_are_those_nearest_to_now() {
        let now = 1_800_000_000_000_000_000i64;
        let unit = 1i64 << COARSE_SHIFT;
        for ago in [0, 1, 5, 100_000, -3] {
            let then = ((now / unit) - ago) * unit;
            assert_eq!(coarse_ns((then >> COARSE_SHIFT) as u32, now), then);
        }
    }
}

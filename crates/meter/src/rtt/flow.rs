//! One flow's state: what every packet touches in [`Flow`], what only samples and trouble
//! touch in [`Stats`] beside it.

use sonde_results::rtt::{EndReason, RttFlow, RttFlowSide};
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::ack_history::AckHistory;
use super::clock::{Clock, ns_to_coarse, ticks_to_ns};
use super::counters::RttCounters;
use super::far_segments::FarSegments;
use super::key::Key;
use super::noted_syn::NotedSyn;
use super::requests::RequestCounts;
use super::slots::{Pool, Ring};
use super::spin::Spin;
use super::variation::Variation;
use crate::sequence::after;

/// What packets touch: five cache lines. Sides are those of the [`Key`].
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Flow {
    pub(super) key: Key,
    pub(super) sides: [DirectionState; 2],
    pub(super) tcp: [TcpSide; 2],
    pub(super) spin: Spin,
    /// Coarse time of the last packet; of the close once closed.
    pub(super) last: u32,
    /// When the handshake's last step passed, ticks.
    pub(super) hs_at: u32,
    /// The client's initial sequence number, with [`Flow::ISN`].
    pub(super) isn: u32,
    /// When the pending request passed, ticks, with [`Flow::REQUEST`].
    pub(super) request_at: u32,
    /// The same, coarse.
    pub(super) request_coarse: u16,
    /// The DNS identifier of the request, with [`Flow::REQUEST_DNS`].
    pub(super) request_id: u16,
    /// The side that is the client, 0 or 1.
    pub(super) client: u8,
    pub(super) handshake: Handshake,
    pub(super) flags: u8,
    /// Not `Open`: closed, and why.
    pub(super) reason: EndReason,
}

/// One direction: what its sender sent.
#[derive(Clone, Copy, Default)]
pub(super) struct DirectionState {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) ring: Ring,
    /// Smoothed clean round trip of what this side sent, ticks; 0: none.
    pub(super) srtt: u32,
    /// Least clean one, likewise.
    pub(super) rtt_min: u32,
}

/// One direction of a TCP connection.
#[derive(Clone, Copy, Default)]
pub(super) struct TcpSide {
    /// The sequence number after everything sent, with [`TcpSide::NXT`].
    pub(super) nxt: u32,
    /// The greatest acknowledgement of it, with [`TcpSide::ACK`]. Of a server whose SYN-ACK has
    /// not been acknowledged: the acknowledgement that ends the handshake.
    pub(super) ack: u32,
    /// Where recovery ends, with [`TcpSide::RECOVERING`].
    pub(super) recover: u32,
    /// The greatest TSval sent, with [`TcpSide::TS`].
    pub(super) tsval: u32,
    /// A gap in the sequence, with [`TcpSide::HOLE`]: its ends and when it showed, ticks.
    pub(super) hole: [u32; 2],
    pub(super) hole_at: u32,
    pub(super) variation: Variation,
    /// The window last advertised, with [`TcpSide::WINDOW`].
    pub(super) window: u16,
    pub(super) flags: u16,
    /// When its data was last timed: ticks without their last bits.
    sampled_at: u16,
    /// Segments sent since all was acknowledged, at most [`TcpSide::MANY`].
    pub(super) flight: u8,
}

/// How far a handshake has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Handshake {
    /// Not seen from its beginning.
    None,
    /// The client's SYN or Initial has passed.
    Sent,
    /// The server's answer too.
    Received,
    /// The client's acknowledgement too.
    Done,
}

/// What samples and trouble touch.
#[derive(Clone, Copy, Default)]
pub(super) struct Stats {
    pub(super) sides: [SideStats; 2],
    pub(super) response_sum: u64,
    pub(super) response_max: u32,
    pub(super) responses: u32,
    /// Coarse time of the first packet.
    pub(super) first: u32,
    /// What that lacks of the time, ns.
    pub(super) first_ns: u32,
    /// Of the first packet.
    pub(super) dscp: u8,
    /// With [`Flow::NOTED`].
    pub(super) syn: NotedSyn,
}

/// Of what one side sent. Counters of 32 bits stay at their greatest value.
#[derive(Clone, Copy, Default)]
pub(super) struct SideStats {
    /// Ticks.
    pub(super) rtt_sum: u64,
    pub(super) samples: u32,
    pub(super) samples_recovery: u32,
    pub(super) samples_delayed_ack: u32,
    pub(super) retransmitted: u32,
    pub(super) reordered: u32,
    pub(super) gaps: u32,
    pub(super) duplicate_acks: u32,
    pub(super) zero_windows: u32,
    pub(super) ce_marks: u32,
    /// Nanoseconds.
    pub(super) variation_max: u32,
    /// The handshake's round trip from this side to the other and back, ticks; 0: not seen.
    pub(super) handshake: u32,
    pub(super) requests: RequestCounts,
    /// Where samples go, once there is one: see `groups`.
    pub(super) group: Option<super::groups::GroupId>,
    pub(super) ack_history: AckHistory,
    /// With [`TcpSide::AWAY`].
    pub(super) far: FarSegments,
}

impl Flow {
    /// The SYN, or its answer, was sent again: which one was answered is not known.
    pub(super) const VOID_SERVER: u8 = 1;
    pub(super) const VOID_CLIENT: u8 = 2;
    pub(super) const ISN: u8 = 4;
    pub(super) const REQUEST: u8 = 8;
    pub(super) const REQUEST_DNS: u8 = 16;
    /// QUIC: all that the client has sent yet is 0-RTT data.
    pub(super) const EARLY: u8 = 32;
    /// A SYN of other sequence numbers has passed.
    pub(super) const NOTED: u8 = 64;

    /// A flow that begins now, with nothing counted yet.
    pub(super) fn new(key: Key, client: usize, clock: &Clock) -> Self {
        Flow {
            key,
            sides: Default::default(),
            tcp: Default::default(),
            spin: Spin::default(),
            last: clock.coarse,
            hs_at: 0,
            isn: 0,
            request_at: 0,
            request_coarse: 0,
            request_id: 0,
            client: client as u8,
            handshake: Handshake::None,
            flags: 0,
            reason: EndReason::Open,
        }
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.reason != EndReason::Open
    }

    /// Packets from both sides have been seen.
    #[inline]
    pub(super) fn is_two_way(&self) -> bool {
        self.sides[0].packets != 0 && self.sides[1].packets != 0
    }

    /// Its state's time-out has passed.
    #[inline]
    pub(super) fn is_idle(&self, clock: &Clock) -> bool {
        let idle = clock.idle(self.last);
        // No time-out is shorter: most packets need no more than this.
        idle > CLOSED_TIMEOUT && idle > self.timeout()
    }

    fn timeout(&self) -> u32 {
        if self.is_closed() {
            CLOSED_TIMEOUT
        } else if !self.is_two_way() {
            ONE_WAY_TIMEOUT
        } else if self.key.protocol() == PROTOCOL_TCP {
            TCP_TIMEOUT
        } else {
            OTHER_TIMEOUT
        }
    }

    /// A long pause, or a clock that was stepped: whatever waits for an end of its time is
    /// forgotten, since ticks may have wrapped.
    pub(super) fn pause(&mut self, pool: &mut Pool, counters: &mut RttCounters) {
        for side in &mut self.sides {
            side.ring.expire(pool, counters);
        }
        for side in &mut self.tcp {
            side.clear(TcpSide::HOLE | TcpSide::LATE_HOLE | TcpSide::AWAY);
            side.variation.restart();
        }
        self.spin.pause();
        self.flags |= Flow::VOID_SERVER | Flow::VOID_CLIENT;
        self.flags &= !(Flow::REQUEST | Flow::REQUEST_DNS | Flow::NOTED);
    }

    /// Its record. `hidden`: addresses are prefixes with a hash.
    pub(super) fn record(
        &self,
        stats: &Stats,
        reason: EndReason,
        clock: &Clock,
        hidden: bool,
    ) -> RttFlow {
        let client = usize::from(self.client);
        let start_ns = clock.expand(stats.first, stats.first_ns);
        RttFlow {
            flow: self.key.flow(client, hidden),
            start_ns,
            // Only the coarse time is kept, which may lie before the first packet.
            end_ns: clock.expand(self.last, 0).max(start_ns),
            reason: if self.is_closed() { self.reason } else { reason },
            forward: self.side(stats, client, reason),
            backward: self.side(stats, 1 - client, reason),
            handshake_server_ns: ticks_to_ns(stats.sides[client].handshake),
            handshake_client_ns: ticks_to_ns(stats.sides[1 - client].handshake),
            responses: stats.responses.into(),
            response_sum_ns: stats.response_sum << 6,
            response_max_ns: ticks_to_ns(stats.response_max),
            // Only a program at both hooks of a router can distinguish these.
            residences: 0,
            residence_sum_ns: 0,
            residence_max_ns: 0,
            spin: self.spin.verdict(),
        }
    }

    fn side(&self, stats: &Stats, side: usize, reason: EndReason) -> RttFlowSide {
        let (hot, cold) = (&self.sides[side], &stats.sides[side]);
        RttFlowSide {
            packets: hot.packets,
            bytes: hot.bytes,
            samples: cold.samples.into(),
            samples_recovery: cold.samples_recovery.into(),
            samples_delayed_ack: cold.samples_delayed_ack.into(),
            rtt_min_ns: ticks_to_ns(hot.rtt_min),
            rtt_sum_ns: cold.rtt_sum << 6,
            rtt_smoothed_ns: ticks_to_ns(hot.srtt),
            retransmitted: cold.retransmitted.into(),
            reordered: cold.reordered.into(),
            gaps: cold.gaps.into(),
            duplicate_acks: cold.duplicate_acks.into(),
            zero_windows: cold.zero_windows.into(),
            ce_marks: cold.ce_marks.into(),
            delay_variation_max_ns: cold.variation_max.into(),
            requests: cold.requests.requests.into(),
            answered: cold.requests.answered.into(),
            unanswered: cold.requests.unanswered(reason == EndReason::Idle).into(),
        }
    }
}

impl TcpSide {
    pub(super) const NXT: u16 = 1;
    pub(super) const ACK: u16 = 2;
    pub(super) const TS: u16 = 4;
    /// The next TSval that advances is certainly new: the first one was the SYN's, or one
    /// has advanced since.
    pub(super) const EDGES: u16 = 8;
    pub(super) const RECOVERING: u16 = 16;
    pub(super) const HOLE: u16 = 32;
    pub(super) const FIN: u16 = 64;
    pub(super) const WINDOW: u16 = 128;
    /// No data has carried the greatest TSval yet.
    pub(super) const UNUSED: u16 = 256;
    /// The last echo of what it sent came so late that one before it was lost.
    pub(super) const LATE: u16 = 512;
    /// The hole is of data that was acknowledged before it passed.
    pub(super) const LATE_HOLE: u16 = 1024;
    /// It has sent something far from its sequence numbers.
    pub(super) const AWAY: u16 = 2048;
    /// The other side has said that something is missing.
    pub(super) const TOLD: u16 = 4096;
    /// A keepalive of it has not been answered.
    pub(super) const ASKED: u16 = 8192;
    pub(super) const SAMPLED_BITS: u32 = 14;
    pub(super) const MANY: u8 = 3;

    #[inline]
    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    #[inline]
    pub(super) fn clear(&mut self, flag: u16) {
        self.flags &= !flag;
    }

    /// Data is outstanding after `ack`.
    #[inline]
    pub(super) fn is_outstanding(&self, ack: u32) -> bool {
        self.has(Self::NXT) && after(self.nxt, ack)
    }

    /// Everything sent has been acknowledged.
    #[inline]
    pub(super) fn is_acknowledged(&self) -> bool {
        self.has(Self::NXT) && self.has(Self::ACK) && !after(self.nxt, self.ack)
    }

    /// What this side sent has been timed.
    pub(super) fn note_sample(&mut self, clock: &Clock) {
        self.sampled_at = (clock.tick >> Self::SAMPLED_BITS) as u16;
    }

    /// How long ago that was, in units of 1.05 ms, modulo 68 s.
    pub(super) fn since_sample(&self, clock: &Clock) -> u16 {
        ((clock.tick >> Self::SAMPLED_BITS) as u16).wrapping_sub(self.sampled_at)
    }

    /// From here on samples are suspect, until `point` is acknowledged.
    pub(super) fn enter_recovery(&mut self, point: u32) {
        if !self.has(Self::RECOVERING) || after(point, self.recover) {
            self.recover = point;
        }
        self.set(Self::RECOVERING);
    }
}

/// Counts one more, up to the greatest value.
#[inline]
pub(super) fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

const CLOSED_TIMEOUT: u32 = ns_to_coarse(5_000_000_000);
const ONE_WAY_TIMEOUT: u32 = ns_to_coarse(10_000_000_000);
const OTHER_TIMEOUT: u32 = ns_to_coarse(30_000_000_000);
const TCP_TIMEOUT: u32 = ns_to_coarse(300_000_000_000);

// With its tag a flow takes 644 bytes: 128 k of them 84 MB.
const _: () = assert!(size_of::<Flow>() == 320);
const _: () = assert!(size_of::<Stats>() == 320);

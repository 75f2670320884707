//! The matcher against packets made by hand, in virtual time.

mod cases;
mod checklist;
mod exchanges;
mod limits;
mod properties;
mod sequence;
mod simulation;
mod slots;
mod spin;

use sonde_results::rtt::{EndReason, RttClass, RttEvents, RttFlow, RttKind, RttSample};
use sonde_wire::Time;
use sonde_wire::flow::{Detail, FlowPacket, Tcp};

use super::key::mapped;
use super::{Config, Matcher};

pub(super) const FIN: u8 = 1;
pub(super) const SYN: u8 = 2;
pub(super) const RST: u8 = 4;
pub(super) const ACK: u8 = 16;

/// One TCP segment, as the tests think of it.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub(super) from_client: bool,
    pub(super) flags: u8,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) len: u32,
    pub(super) ts: Option<(u32, u32)>,
    pub(super) window: u16,
    pub(super) sack: bool,
    pub(super) dns: Option<(bool, u16)>,
    pub(super) segments: u16,
    pub(super) port: u16,
}

pub(super) fn client(flags: u8, seq: u32, ack: u32, len: u32) -> Segment {
    Segment {
        from_client: true,
        flags,
        seq,
        ack,
        len,
        ts: None,
        window: 1000,
        sack: false,
        dns: None,
        segments: 1,
        port: 443,
    }
}

pub(super) fn server(flags: u8, seq: u32, ack: u32, len: u32) -> Segment {
    Segment { from_client: false, ..client(flags, seq, ack, len) }
}

impl Segment {
    pub(super) fn ts(self, val: u32, ecr: u32) -> Self {
        Segment { ts: Some((val, ecr)), ..self }
    }

    pub(super) fn sack(self) -> Self {
        Segment { sack: true, ..self }
    }

    pub(super) fn window(self, window: u16) -> Self {
        Segment { window, ..self }
    }

    pub(super) fn dns(self, response: bool, id: u16) -> Self {
        Segment { dns: Some((response, id)), port: 53, ..self }
    }

    /// A frame of several segments.
    pub(super) fn segments(self, segments: u16) -> Self {
        Segment { segments, ..self }
    }

    pub(super) fn packet(&self) -> FlowPacket {
        let detail = Detail::Tcp(Tcp {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            payload_len: self.len,
            timestamps: self.ts,
            sack: self.sack,
            dns: self.dns,
            bad_options: false,
        });
        let (client, server) = (("192.0.2.1", 40_000), ("198.51.100.2", self.port));
        match self.from_client {
            true => packet(6, client, server, 40 + self.len, detail),
            false => packet(6, server, client, 40 + self.len, detail),
        }
    }
}

/// A packet between two ends.
pub(super) fn packet(
    protocol: u8,
    (source, source_port): (&str, u16),
    (destination, destination_port): (&str, u16),
    ip_len: u32,
    detail: Detail,
) -> FlowPacket {
    FlowPacket {
        source: mapped(source.parse().unwrap()),
        destination: mapped(destination.parse().unwrap()),
        source_port,
        destination_port,
        vlan: 0,
        protocol,
        tos: 0,
        ip_len,
        fragment: false,
        identity: 0,
        payload: 0..0,
        detail,
    }
}

/// A matcher whose packets come at times that the test names, us.
pub(super) struct Bench {
    pub(super) matcher: Matcher,
    /// IPv4's identification of the next packet: each has its own.
    identity: u16,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(super) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            flows: 64,
            seed: [11, 22],
            events: RttEvents::All,
            slot_pages: 4,
            ..Config::default()
        };
        change(&mut config);
        config.check().unwrap();
        Bench { matcher: Matcher::new(config), identity: 0 }
    }

    pub(super) fn at(&mut self, us: i64, segment: Segment) -> &mut Self {
        self.packet_at(us, &segment.packet(), segment.segments)
    }

    /// Without an identification, as IPv6 has none.
    pub(super) fn bare(&mut self, us: i64, segment: Segment) -> &mut Self {
        self.exactly(us, &segment.packet(), segment.segments)
    }

    pub(super) fn packet_at(&mut self, us: i64, packet: &FlowPacket, segments: u16) -> &mut Self {
        self.identity = self.identity.wrapping_add(1).max(1);
        let identity = u32::from(self.identity) << 16;
        self.exactly(us, &FlowPacket { identity, ..packet.clone() }, segments)
    }

    /// With the identification that it has.
    pub(super) fn exactly(&mut self, us: i64, packet: &FlowPacket, segments: u16) -> &mut Self {
        self.matcher.input(0, packet, segments, time(us));
        self
    }

    /// Kind, class and us (rounded: ticks are 64 ns) of the samples since the last call.
    pub(super) fn samples(&mut self) -> Vec<(RttKind, RttClass, u64)> {
        self.full_samples().iter().map(|s| (s.kind, s.class, (s.rtt_ns + 500) / 1000)).collect()
    }

    pub(super) fn full_samples(&mut self) -> Vec<RttSample> {
        std::iter::from_fn(|| self.matcher.poll_sample()).collect()
    }

    pub(super) fn ended(&mut self) -> Vec<RttFlow> {
        std::iter::from_fn(|| self.matcher.poll_flow()).collect()
    }

    pub(super) fn reasons(&mut self) -> Vec<EndReason> {
        self.ended().iter().map(|flow| flow.reason).collect()
    }

    /// The only open flow.
    pub(super) fn flow(&self) -> RttFlow {
        let mut flows: Vec<_> = self.matcher.open_flows().collect();
        assert_eq!(flows.len(), 1, "{flows:?}");
        flows.remove(0)
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        self.matcher.coverage().counters[name]
    }
}

/// Far from 0, and a multiple of a tick.
pub(super) fn time(us: i64) -> Time {
    Time::from_nanos(1_700_000_000_000_000_000 + us * 1000)
}

/// A sample of that kind, clean.
pub(super) fn clean(kind: RttKind, us: u64) -> (RttKind, RttClass, u64) {
    (kind, RttClass::Clean, us)
}

/// A sample of a timestamp, clean.
pub(super) fn ts(us: u64) -> (RttKind, RttClass, u64) {
    (RttKind::TcpTimestamp, RttClass::Clean, us)
}

/// A sample of a sequence number, clean.
pub(super) fn seq(us: u64) -> (RttKind, RttClass, u64) {
    (RttKind::TcpSequence, RttClass::Clean, us)
}

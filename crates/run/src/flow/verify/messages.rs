//! Messages of exporters, IPFIX and NetFlow v9 and v5, as flows to compare. Each session has
//! one decoder, for templates and sequence numbers belong to it.

use std::collections::HashMap;

use serde::Serialize;
use sonde_meter::export::decode::DecodedFlow;
use sonde_meter::export::{Decoded, Decoder};
use sonde_results::flow::FlowSide;
use sonde_wire::ipfix::REVERSE;

use super::observed::{End, Half, ObservedFlow, name_hash};

#[derive(Default)]
pub(super) struct Exporters {
    decoders: HashMap<u32, Decoder>,
    /// What is no message, or of a session too many.
    unreadable: u64,
    /// Datagrams that found the collector's buffer full.
    dropped: u64,
}

/// Messages, records and templates that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct MessageCounters {
    pub sessions: u64,
    pub messages: u64,
    /// Data records that are flows.
    pub flows: u64,
    /// Data records of options templates.
    pub options: u64,
    /// Data records without addresses, or without counts.
    pub not_flows: u64,
    /// Messages, sets and records that contradict themselves or end too early.
    pub unreadable: u64,
    /// Data sets whose template has not come, or was one too many.
    pub without_template: u64,
    /// What is missing by the sequence numbers: records, of NetFlow v9 messages.
    pub sequence_missing: u64,
    /// Messages with a lower sequence number than expected.
    pub sequence_back: u64,
    /// Datagrams that the kernel dropped, for our own receive buffer was full: what is missing
    /// with them is not the exporter's fault.
    pub dropped: u64,
}

impl Exporters {
    /// One whole message, of `session`: a file, a connection, or a pair of UDP ends.
    pub fn message(&mut self, session: u32, data: &[u8], take: &mut dyn FnMut(&ObservedFlow)) {
        if self.decoders.len() >= MOST_SESSIONS && !self.decoders.contains_key(&session) {
            self.unreadable += 1;
            return;
        }
        // Times in UTC, as files and the truth have them.
        let decoder = self.decoders.entry(session).or_insert_with(|| Decoder::new(0));
        decoder.message(data, &mut |decoded| {
            if let Decoded::Flow(flow) = decoded {
                take(&observed(&flow));
            }
        });
    }

    /// Something that is no message.
    pub fn unreadable(&mut self) {
        self.unreadable += 1;
    }

    /// Datagrams came in and found the receive buffer full.
    pub fn dropped(&mut self, datagrams: u32) {
        self.dropped += u64::from(datagrams);
    }

    /// What was read so far.
    pub fn counters(&self) -> MessageCounters {
        let mut sum = MessageCounters {
            sessions: self.decoders.len() as u64,
            unreadable: self.unreadable,
            dropped: self.dropped,
            ..MessageCounters::default()
        };
        for counters in self.decoders.values().map(Decoder::counters) {
            sum.messages += counters.messages;
            sum.flows += counters.records;
            sum.options += counters.option_records;
            sum.not_flows += counters.not_flows;
            sum.unreadable += counters.malformed;
            sum.without_template += counters.no_template + counters.templates_refused;
            sum.sequence_missing += counters.missing;
            sum.sequence_back += counters.out_of_sequence;
        }
        sum
    }
}

/// With only those fields that were exported.
fn observed(flow: &DecodedFlow<'_>) -> ObservedFlow {
    let record = &flow.record;
    let (key, protocol) = (&record.key, record.key.protocol);
    let mut out = ObservedFlow {
        source: End::new(key.source, key.source_port),
        destination: End::new(key.destination, key.destination_port),
        protocol,
        forward: half(&record.forward),
        reverse: half(&record.reverse),
        unit_ns: 1_000_000,
        reason: flow.has_end.then_some(record.end as u8),
        exported_ns: Some(flow.exported_ns),
        ..ObservedFlow::default()
    };
    let flags = |side: &FlowSide| (protocol == 6).then_some(side.tcp_flags as u8);
    let sides = [record.forward, record.reverse];
    let mut reverse_times = false;
    let Some(raw) = &flow.raw else {
        // NetFlow v5 has a fixed record.
        out.forward.fields.tos = Some(sides[0].tos);
        out.forward.fields.tcp_flags = flags(&sides[0]);
        out.forward.fields.icmp = (protocol == 1).then_some(key.destination_port);
        return out;
    };
    for (field, value) in raw.values() {
        let (half, side) = match field.enterprise {
            REVERSE => (&mut out.reverse, &sides[1]),
            _ => (&mut out.forward, &sides[0]),
        };
        match (field.enterprise, field.id) {
            (0 | REVERSE, 5) => half.fields.tos = Some(side.tos),
            (0 | REVERSE, 6) => half.fields.tcp_flags = flags(side),
            (0 | REVERSE, 52) => half.fields.ttl = Some(side.ttl_min),
            (0, 58) => half.fields.vlan = Some(key.vlan),
            (0, 32 | 139 | 176..=179) if matches!(protocol, 1 | 58) => {
                half.fields.icmp = Some(key.destination_port);
            }
            // NetFlow v9: the header has whole seconds, and uptime counts from there.
            (0, 21 | 22) if flow.exact_uptime => {}
            (0, 21 | 22 | 150 | 151) => out.unit_ns = 1_000_000_000,
            (0, 154 | 155) => out.unit_ns = 1_000,
            (0, 156 | 157) => out.unit_ns = 1,
            (REVERSE, 150..=157) => reverse_times = true,
            // DNS name, TLS server name, HTTP host.
            (8057, 2 | 808) | (39499, 1) if !value.is_empty() => {
                half.fields.name = Some(name_hash(value));
            }
            _ => {}
        }
    }
    if out.reverse.packets > 0 && !reverse_times {
        // First and last packet are those of either direction (RFC 5103, section 5).
        out.span = out.forward.span.or(out.reverse.span);
        (out.forward.span, out.reverse.span) = (None, None);
    }
    out
}

fn half(side: &FlowSide) -> Half {
    Half {
        packets: side.packets,
        bytes: side.bytes,
        // Without times the decoder leaves 0.
        span: (side.packets > 0 && side.last_ns != 0).then_some((side.first_ns, side.last_ns)),
        ..Half::default()
    }
}

/// Most sessions: a decoder keeps templates.
const MOST_SESSIONS: usize = 4096;

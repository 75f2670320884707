//! What the metering and the exporting process did (RFC 7011, sections 4.1 to 4.3).

use sonde_wire::ipfix::element as ie;

use super::{ExportStats, OptionRecord, SYSTEM};
use crate::export::fields::Fields;

/// Of the metering process (RFC 7011, section 4.1).
pub(super) struct Statistics {
    pub ipfix: bool,
    pub domain: u32,
    pub messages: u64,
    pub flows: u64,
    pub octets: u64,
}

impl OptionRecord for Statistics {
    fn kind(&self) -> u32 {
        1
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(if self.ipfix { ie::OBSERVATION_DOMAIN_ID } else { SYSTEM }, self.domain);
        w.u64(ie::EXPORTED_MESSAGE_TOTAL_COUNT, self.messages);
        w.u64(ie::EXPORTED_FLOW_RECORD_TOTAL_COUNT, self.flows);
        w.u64(ie::EXPORTED_OCTET_TOTAL_COUNT, self.octets);
    }
}

/// RFC 7011, section 4.2.
pub(super) struct MeteringReliability {
    pub domain: u32,
    pub packets: u64,
    pub octets: u64,
    pub span: (u64, u64),
}

impl OptionRecord for MeteringReliability {
    fn kind(&self) -> u32 {
        2
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(ie::OBSERVATION_DOMAIN_ID, self.domain);
        w.u64(ie::IGNORED_PACKET_TOTAL_COUNT, self.packets);
        w.u64(ie::IGNORED_OCTET_TOTAL_COUNT, self.octets);
        w.u64(ie::FLOW_START_MILLISECONDS, self.span.0);
        w.u64(ie::FLOW_END_MILLISECONDS, self.span.1);
    }
}

/// RFC 7011, section 4.3.
pub(super) struct ExportingReliability<'a> {
    pub stats: &'a ExportStats,
    pub span: (u64, u64),
}

impl OptionRecord for ExportingReliability<'_> {
    fn kind(&self) -> u32 {
        3
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(ie::EXPORTING_PROCESS_ID, self.stats.process);
        w.u64(ie::NOT_SENT_FLOW_TOTAL_COUNT, self.stats.not_sent_flows);
        w.u64(ie::NOT_SENT_PACKET_TOTAL_COUNT, self.stats.not_sent_packets);
        w.u64(ie::NOT_SENT_OCTET_TOTAL_COUNT, self.stats.not_sent_octets);
        w.u64(ie::FLOW_START_MILLISECONDS, self.span.0);
        w.u64(ie::FLOW_END_MILLISECONDS, self.span.1);
    }
}

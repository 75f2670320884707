//! Options: what a collector should know beside the flows (RFC 7011, section 4; RFC 5476,
//! section 6.5; RFC 5610; RFC 5655, section 8.1).

mod meaning;
mod process;
mod selectors;
mod window;

use sonde_wire::ipfix::REVERSE;
use sonde_wire::ipfix::element::{self as ie, DataType, Element};
use sonde_wire::ipfix::template::FieldSpecifier;
use sonde_wire::ipfix::time;
use sonde_wire::netflow9;

use meaning::{FlowKeys, InterfaceName, LISTED, Sampling, TypeInformation, key_indicator};
use process::{ExportingReliability, MeteringReliability, Statistics};
pub use selectors::{ExportSelector, SelectorAlgorithm};
use selectors::{SelectorReport, SelectorStatistics};
pub(super) use window::Window;

use super::fields::{Fields, RecordWriter};
use super::flow::RecordShape;
use super::message::{MessageWriter, Template};
use super::{ExportCounters, ExportInterface, ExportProtocol, Profile};

/// What metering and transport did, for the collector. Counts are totals since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportStats {
    /// Which exporting process this is, unique on the host: its process id, say.
    pub process: u32,
    /// Packets that were seen and not metered (ignoredPacketTotalCount, 164).
    pub ignored_packets: u64,
    /// Their bytes (ignoredOctetTotalCount, 165).
    pub ignored_octets: u64,
    /// First and last of them, ns since 1970 TAI; 0: there was none.
    pub ignored_ns: (i64, i64),
    /// Flow records that were not sent, for lack of room (notSentFlowTotalCount, 166).
    pub not_sent_flows: u64,
    /// Their packets (notSentPacketTotalCount, 167).
    pub not_sent_packets: u64,
    /// Their bytes (notSentOctetTotalCount, 168).
    pub not_sent_octets: u64,
    /// First and last time that it happened, ns since 1970 TAI; 0: it did not.
    pub not_sent_ns: (i64, i64),
    /// How packets were sampled or filtered, in the order in which they passed; empty: all
    /// were metered.
    pub selectors: Vec<ExportSelector>,
}

/// The options that the collector has, to send them again only when there is need.
pub(super) struct OptionsSent {
    /// ns since 1970 UTC.
    at_ns: i64,
    templates: usize,
    selectors: Vec<(u64, SelectorAlgorithm)>,
}

impl OptionsSent {
    pub fn new(messages: &MessageWriter, stats: &ExportStats) -> Self {
        OptionsSent {
            at_ns: messages.now_ns(),
            templates: flow_templates(messages).count(),
            selectors: algorithms(stats).collect(),
        }
    }

    pub fn is_stale(&self, messages: &MessageWriter, stats: &ExportStats) -> bool {
        messages.is_stale_since(self.at_ns)
            || self.templates != flow_templates(messages).count()
            || !algorithms(stats).eq(self.selectors.iter().copied())
    }
}

fn flow_templates(messages: &MessageWriter) -> impl Iterator<Item = &Template> {
    messages.templates.iter().filter(|template| !template.is_options())
}

fn algorithms(stats: &ExportStats) -> impl Iterator<Item = (u64, SelectorAlgorithm)> {
    stats.selectors.iter().map(|selector| (selector.id, selector.algorithm))
}

/// Interfaces, sampling, and what the fields mean.
pub(super) fn information(
    messages: &mut MessageWriter,
    profile: Profile,
    interfaces: &[ExportInterface],
    stats: &ExportStats,
    out: &mut impl FnMut(&[u8]),
) {
    let ipfix = profile.protocol == ExportProtocol::Ipfix;
    let domain = messages.domain();
    for interface in interfaces {
        send(messages, &InterfaceName { ipfix, interface }, out);
    }
    let rates = stats.selectors.iter().filter_map(|selector| selector.algorithm.one_of());
    if let Some(rate) = rates.reduce(|product, rate| product * rate) {
        // It is an integer: a rate between two would be taken for one of them. In IPFIX the
        // selectors have the rate exactly; NetFlow v9 has nothing else.
        let interval = rate.round().clamp(1.0, f64::from(u32::MAX)) as u32;
        if !ipfix || (rate - f64::from(interval)).abs() <= rate * MOST_OFF {
            send(messages, &Sampling { ipfix, domain, interval }, out);
        }
    }
    if !ipfix {
        return;
    }
    for selector in &stats.selectors {
        send(messages, &SelectorReport(selector), out);
    }
    let mut keys = Vec::new();
    let mut enterprise = Vec::new();
    for template in flow_templates(messages) {
        keys.push(FlowKeys { template: template.id, indicator: key_indicator(&template.fields) });
        let own = |f: &&FieldSpecifier| f.enterprise != 0 && f.enterprise != REVERSE;
        let fields = template.fields.iter().filter(own);
        enterprise.extend(fields.filter_map(|field| ie::find(field.enterprise, field.id)));
    }
    if profile.lists {
        enterprise.extend(LISTED);
    }
    enterprise.sort_by_key(|element| (element.enterprise, element.id));
    enterprise.dedup();
    for record in &keys {
        send(messages, record, out);
    }
    for element in enterprise {
        send(messages, &TypeInformation(element), out);
    }
}

/// What metering, exporting and selecting did so far.
pub(super) fn statistics(
    messages: &mut MessageWriter,
    ipfix: bool,
    domain: u32,
    total: &ExportCounters,
    stats: &ExportStats,
    out: &mut impl FnMut(&[u8]),
) {
    let statistics = Statistics {
        ipfix,
        domain,
        messages: total.messages,
        flows: total.records,
        octets: total.octets,
    };
    send(messages, &statistics, out);
    if !ipfix {
        return;
    }
    let offset = messages.tai_offset_ns();
    let span = |(first, last): (i64, i64)| {
        let utc = |ns: i64| if ns == 0 { 0 } else { time::millis(ns - offset) };
        (utc(first), utc(last))
    };
    let metering = MeteringReliability {
        domain,
        packets: stats.ignored_packets,
        octets: stats.ignored_octets,
        span: span(stats.ignored_ns),
    };
    send(messages, &metering, out);
    let exporting = ExportingReliability { stats, span: span(stats.not_sent_ns) };
    send(messages, &exporting, out);
    for selector in &stats.selectors {
        send(messages, &SelectorStatistics(selector), out);
    }
}

/// A data record described by an options template.
trait OptionRecord {
    /// Which kind it is: those of a kind have the same template.
    fn kind(&self) -> u32;
    /// How many fields, from the front, are scope.
    const SCOPES: u16 = 1;
    fn fields<W: Fields>(&self, w: &mut W);
}

fn send<R: OptionRecord>(messages: &mut MessageWriter, record: &R, out: &mut impl FnMut(&[u8])) {
    let shape = RecordShape(RecordShape::OPTIONS | record.kind());
    let template = messages.template(shape, R::SCOPES, |w| record.fields(w));
    let written = messages.record(template, |w: &mut RecordWriter<'_>| record.fields(w), out);
    debug_assert!(written, "any message holds an options record");
    messages.counters.option_records += 1;
}

/// Scopes of NetFlow version 9, which are numbered apart from the elements.
const SYSTEM: Element = Element {
    enterprise: 0,
    id: netflow9::SCOPE_SYSTEM,
    name: "system",
    kind: DataType::Unsigned32,
};

/// A sampling interval may be off by so much of itself.
const MOST_OFF: f64 = 0.001;

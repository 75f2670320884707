//! Options: what a collector should know beside the flows (RFC 7011, section 4; RFC 5476,
//! section 6.5; RFC 5610; RFC 5655, section 8.1).

use sonde_wire::ipfix::REVERSE;
use sonde_wire::ipfix::element::{self as ie, Element, Kind};
use sonde_wire::ipfix::template::FieldSpecifier;
use sonde_wire::ipfix::time;
use sonde_wire::netflow9;

use super::fields::{Fields, RecordWriter};
use super::flow::Shape;
use super::message::{Messages, Template};
use super::{ExportCounters, Interface, Profile, Protocol};
use crate::flow::sampling::HashFunction;

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
    pub selectors: Vec<Selector>,
}

/// One sampler or filter (RFC 5475).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selector {
    /// Its number (selectorId, 302).
    pub id: u64,
    /// How it chooses.
    pub algorithm: SelectorAlgorithm,
    /// Packets that came to it (selectorIdTotalPktsObserved, 318).
    pub observed: u64,
    /// Packets that it chose (selectorIdTotalPktsSelected, 319).
    pub selected: u64,
}

/// How a selector chooses: the numbers of selectorAlgorithm, 304.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SelectorAlgorithm {
    /// 1: `interval` packets in a row, then `space` not.
    SystematicCount {
        /// Packets taken in a row.
        interval: u32,
        /// Packets left out after them.
        space: u32,
    },
    /// 2: the packets of `interval` us, then none for `space` us.
    SystematicTime {
        /// us.
        interval: u32,
        /// us.
        space: u32,
    },
    /// 3: `size` at random of each `population` packets.
    RandomOutOf {
        /// Packets taken.
        size: u32,
        /// Of so many.
        population: u32,
    },
    /// 4: each with the same probability.
    Probabilistic {
        /// 0 to 1.
        probability: f64,
    },
    /// 5: by what is in the packet.
    PropertyMatch,
    /// 6 to 8: by a hash of the packet.
    Hash {
        /// Which hash.
        function: HashFunction,
        /// Where the hashed part of the payload starts.
        payload_offset: u64,
        /// How much of the payload is hashed, bytes.
        payload_size: u64,
        /// Range of the hash: least and most.
        output: (u64, u64),
        /// Which of it is selected: least and most.
        selected: (u64, u64),
        /// Its secret, if it may be known; else 0.
        initialiser: u64,
    },
}

impl SelectorAlgorithm {
    fn code(&self) -> u16 {
        match self {
            SelectorAlgorithm::SystematicCount { .. } => 1,
            SelectorAlgorithm::SystematicTime { .. } => 2,
            SelectorAlgorithm::RandomOutOf { .. } => 3,
            SelectorAlgorithm::Probabilistic { .. } => 4,
            SelectorAlgorithm::PropertyMatch => 5,
            SelectorAlgorithm::Hash { function, .. } => function.selector_algorithm(),
        }
    }

    /// One of how many packets is taken: all that collectors know that read NetFlow's fields.
    fn one_of(&self) -> Option<f64> {
        Some(match *self {
            SelectorAlgorithm::SystematicCount { interval, space } => {
                1.0 + f64::from(space) / f64::from(interval.max(1))
            }
            SelectorAlgorithm::RandomOutOf { size, population } => {
                f64::from(population) / f64::from(size.max(1))
            }
            SelectorAlgorithm::Probabilistic { probability } if probability > 0.0 => {
                1.0 / probability
            }
            SelectorAlgorithm::Hash { output, selected, .. } if selected.1 >= selected.0 => {
                let width = |(least, most): (u64, u64)| most.saturating_sub(least) as f64 + 1.0;
                width(output) / width(selected)
            }
            _ => return None,
        })
    }
}

/// What the collector was told of the domain, to tell it again only when there is need.
pub(super) struct Told {
    /// ns since 1970 UTC.
    at_ns: i64,
    templates: usize,
    selectors: Vec<(u64, SelectorAlgorithm)>,
}

impl Told {
    pub fn new(messages: &Messages, stats: &ExportStats) -> Self {
        Told {
            at_ns: messages.now_ns(),
            templates: flow_templates(messages).count(),
            selectors: algorithms(stats).collect(),
        }
    }

    pub fn is_stale(&self, messages: &Messages, stats: &ExportStats) -> bool {
        messages.is_stale_since(self.at_ns)
            || self.templates != flow_templates(messages).count()
            || !algorithms(stats).eq(self.selectors.iter().copied())
    }
}

fn flow_templates(messages: &Messages) -> impl Iterator<Item = &Template> {
    messages.templates.iter().filter(|template| !template.is_options())
}

fn algorithms(stats: &ExportStats) -> impl Iterator<Item = (u64, SelectorAlgorithm)> {
    stats.selectors.iter().map(|selector| (selector.id, selector.algorithm))
}

/// Interfaces, sampling, and what the fields mean.
pub(super) fn information(
    messages: &mut Messages,
    profile: Profile,
    interfaces: &[Interface],
    stats: &ExportStats,
    out: &mut impl FnMut(&[u8]),
) {
    let ipfix = profile.protocol == Protocol::Ipfix;
    let domain = messages.domain();
    for interface in interfaces {
        send(messages, &InterfaceName { ipfix, interface }, out);
    }
    let rates = stats.selectors.iter().filter_map(|selector| selector.algorithm.one_of());
    if let Some(rate) = rates.reduce(|product, rate| product * rate) {
        let interval = rate.round().clamp(1.0, f64::from(u32::MAX)) as u32;
        send(messages, &Sampling { ipfix, domain, interval }, out);
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
        enterprise.extend(fields.filter_map(|field| ie::find(field.enterprise, field.number)));
    }
    if profile.lists {
        enterprise.extend(LISTED);
    }
    enterprise.sort_by_key(|element| (element.enterprise, element.number));
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
    messages: &mut Messages,
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

/// Which fields are the flow's key, as bits from the first field on (RFC 5103 and RFC 7011
/// leave the rest to flowKeyIndicator's definition in the registry).
fn key_indicator(fields: &[FieldSpecifier]) -> u64 {
    // Of elements that are there twice the first is the outer header's.
    KEYS.iter()
        .filter_map(|key| fields.iter().rposition(|f| f.enterprise == 0 && f.number == key.number))
        .filter(|at| *at < 64)
        .fold(0, |bits, at| bits | 1 << at)
}

/// A data record described by an options template.
trait OptionRecord {
    /// Which kind it is: those of a kind have the same template.
    fn kind(&self) -> u32;
    /// How many fields, from the front, are scope.
    const SCOPES: u16 = 1;
    fn fields<W: Fields>(&self, w: &mut W);
}

fn send<R: OptionRecord>(messages: &mut Messages, record: &R, out: &mut impl FnMut(&[u8])) {
    let shape = Shape(Shape::OPTIONS | record.kind());
    let template = messages.template(shape, R::SCOPES, |w| record.fields(w));
    let written = messages.record(template, |w: &mut RecordWriter<'_>| record.fields(w), out);
    debug_assert!(written, "any message holds an options record");
    messages.counters.option_records += 1;
}

/// Of the metering process (RFC 7011, section 4.1).
struct Statistics {
    ipfix: bool,
    domain: u32,
    messages: u64,
    flows: u64,
    octets: u64,
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
struct MeteringReliability {
    domain: u32,
    packets: u64,
    octets: u64,
    span: (u64, u64),
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
struct ExportingReliability<'a> {
    stats: &'a ExportStats,
    span: (u64, u64),
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

/// Which fields are keys (RFC 7011, section 4.4).
struct FlowKeys {
    template: u16,
    indicator: u64,
}

impl OptionRecord for FlowKeys {
    fn kind(&self) -> u32 {
        4
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u16(ie::TEMPLATE_ID, self.template);
        w.u64(ie::FLOW_KEY_INDICATOR, self.indicator);
    }
}

/// Name of an interface.
struct InterfaceName<'a> {
    ipfix: bool,
    interface: &'a Interface,
}

impl OptionRecord for InterfaceName<'_> {
    fn kind(&self) -> u32 {
        5
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        let Interface { index, name, description } = self.interface;
        w.u32(if self.ipfix { ie::INGRESS_INTERFACE } else { INTERFACE }, *index);
        w.put(ie::INTERFACE_NAME, padded::<32>(name));
        if self.ipfix {
            w.put(ie::INTERFACE_DESCRIPTION, padded::<64>(description));
        }
    }
}

/// A string of fixed length, zeros behind it: nfcapd refuses options of variable length.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let end = text.floor(N);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// The rate of all selectors together in NetFlow's field: what most collectors multiply by. samplingAlgorithm (35)
/// does not go with it: nfcapd 1.7.1 knows the two together for nothing.
struct Sampling {
    ipfix: bool,
    domain: u32,
    interval: u32,
}

impl OptionRecord for Sampling {
    fn kind(&self) -> u32 {
        6
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(if self.ipfix { ie::OBSERVATION_DOMAIN_ID } else { SYSTEM }, self.domain);
        w.u32(ie::SAMPLING_INTERVAL, self.interval);
    }
}

/// How a selector chooses (RFC 5476, section 6.5.2).
struct SelectorReport<'a>(&'a Selector);

impl OptionRecord for SelectorReport<'_> {
    fn kind(&self) -> u32 {
        16 + u32::from(self.0.algorithm.code())
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u64(ie::SELECTOR_ID, self.0.id);
        w.u16(ie::SELECTOR_ALGORITHM, self.0.algorithm.code());
        match self.0.algorithm {
            SelectorAlgorithm::SystematicCount { interval, space } => {
                w.u32(ie::SAMPLING_PACKET_INTERVAL, interval);
                w.u32(ie::SAMPLING_PACKET_SPACE, space);
            }
            SelectorAlgorithm::SystematicTime { interval, space } => {
                w.u32(ie::SAMPLING_TIME_INTERVAL, interval);
                w.u32(ie::SAMPLING_TIME_SPACE, space);
            }
            SelectorAlgorithm::RandomOutOf { size, population } => {
                w.u32(ie::SAMPLING_SIZE, size);
                w.u32(ie::SAMPLING_POPULATION, population);
            }
            SelectorAlgorithm::Probabilistic { probability } => {
                w.put(ie::SAMPLING_PROBABILITY, probability.to_be_bytes());
            }
            SelectorAlgorithm::PropertyMatch => {}
            SelectorAlgorithm::Hash {
                function: _,
                payload_offset,
                payload_size,
                output,
                selected,
                initialiser,
            } => {
                w.u64(ie::HASH_IPPAYLOAD_OFFSET, payload_offset);
                w.u64(ie::HASH_IPPAYLOAD_SIZE, payload_size);
                w.u64(ie::HASH_OUTPUT_RANGE_MIN, output.0);
                w.u64(ie::HASH_OUTPUT_RANGE_MAX, output.1);
                w.u64(ie::HASH_SELECTED_RANGE_MIN, selected.0);
                w.u64(ie::HASH_SELECTED_RANGE_MAX, selected.1);
                w.u64(ie::HASH_INITIALISER_VALUE, initialiser);
            }
        }
    }
}

/// What a selector saw and chose.
struct SelectorStatistics<'a>(&'a Selector);

impl OptionRecord for SelectorStatistics<'_> {
    fn kind(&self) -> u32 {
        7
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u64(ie::SELECTOR_ID, self.0.id);
        w.u64(ie::SELECTOR_ID_TOTAL_PKTS_OBSERVED, self.0.observed);
        w.u64(ie::SELECTOR_ID_TOTAL_PKTS_SELECTED, self.0.selected);
    }
}

/// Name and type of an enterprise's element (RFC 5610, section 3).
struct TypeInformation(Element);

impl OptionRecord for TypeInformation {
    const SCOPES: u16 = 2;

    fn kind(&self) -> u32 {
        8
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u32(ie::PRIVATE_ENTERPRISE_NUMBER, self.0.enterprise);
        w.u16(ie::INFORMATION_ELEMENT_ID, self.0.number);
        w.u8(ie::INFORMATION_ELEMENT_DATA_TYPE, self.0.kind.code());
        // 0: none of the semantics of section 3.6 is claimed.
        w.u8(ie::INFORMATION_ELEMENT_SEMANTICS, 0);
        w.put(ie::INFORMATION_ELEMENT_NAME, padded::<32>(self.0.name));
    }
}

/// The span of an IPFIX file (RFC 5655, section 8.1.2), ns since 1970 TAI.
pub(super) struct Window {
    first_ns: i64,
    last_ns: i64,
    /// When the first record was exported.
    begun_ns: i64,
}

impl Default for Window {
    fn default() -> Self {
        Window { first_ns: i64::MAX, last_ns: i64::MIN, begun_ns: i64::MAX }
    }
}

impl Window {
    #[inline(always)]
    pub fn add(&mut self, first_ns: i64, last_ns: i64, now_ns: i64) {
        self.first_ns = self.first_ns.min(first_ns);
        self.last_ns = self.last_ns.max(last_ns);
        self.begun_ns = self.begun_ns.min(now_ns);
    }

    /// Writes it, if there was a record.
    pub fn export(
        &self,
        messages: &mut Messages,
        now_ns: i64,
        tai_offset_ns: i64,
        out: &mut impl FnMut(&[u8]),
    ) {
        if self.begun_ns > now_ns {
            return;
        }
        let seconds = |ns: i64| (ns - tai_offset_ns).div_euclid(1_000_000_000) as u32;
        let millis = |ns: i64| time::millis(ns - tai_offset_ns);
        let record = TimeWindow {
            exported: (seconds(self.begun_ns), seconds(now_ns)),
            flows: (millis(self.first_ns), millis(self.last_ns)),
        };
        send(messages, &record, out);
    }
}

struct TimeWindow {
    exported: (u32, u32),
    flows: (u64, u64),
}

impl OptionRecord for TimeWindow {
    fn kind(&self) -> u32 {
        9
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        // The scope is the file; its value is always 0 and says nothing.
        w.u8(ie::SESSION_SCOPE, 0);
        w.u32(ie::MIN_EXPORT_SECONDS, self.exported.0);
        w.u32(ie::MAX_EXPORT_SECONDS, self.exported.1);
        w.u64(ie::MIN_FLOW_START_MILLISECONDS, self.flows.0);
        w.u64(ie::MAX_FLOW_END_MILLISECONDS, self.flows.1);
    }
}

/// The longest start of a string that is no longer than `max` and ends between characters.
pub(super) trait Floor {
    fn floor(&self, max: usize) -> usize;
}

impl Floor for str {
    fn floor(&self, max: usize) -> usize {
        let mut end = self.len().min(max);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        end
    }
}

/// Scopes of NetFlow version 9, which are numbered apart from the elements.
const SYSTEM: Element = Element {
    enterprise: 0,
    number: netflow9::SCOPE_SYSTEM,
    name: "system",
    kind: Kind::Unsigned32,
};
const INTERFACE: Element = Element {
    enterprise: 0,
    number: netflow9::SCOPE_INTERFACE,
    name: "interface",
    kind: Kind::Unsigned32,
};
const KEYS: [Element; 9] = [
    ie::SOURCE_IPV4_ADDRESS,
    ie::DESTINATION_IPV4_ADDRESS,
    ie::SOURCE_IPV6_ADDRESS,
    ie::DESTINATION_IPV6_ADDRESS,
    ie::SOURCE_TRANSPORT_PORT,
    ie::DESTINATION_TRANSPORT_PORT,
    ie::PROTOCOL_IDENTIFIER,
    ie::VLAN_ID,
    ie::INGRESS_INTERFACE,
];
/// Elements that are only in lists, of which the template does not tell.
const LISTED: [Element; 8] = [
    ie::PACKET_LENGTHS,
    ie::PACKET_TIMES,
    ie::PACKET_FLAGS,
    ie::PACKET_DIRECTIONS,
    ie::SOURCE_LENGTH_HISTOGRAM,
    ie::SOURCE_GAP_HISTOGRAM,
    ie::DESTINATION_LENGTH_HISTOGRAM,
    ie::DESTINATION_GAP_HISTOGRAM,
];

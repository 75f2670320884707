//! The collecting side: IPFIX and NetFlow messages back to flow records. For comparing any
//! exporter's output with the truth, and for tests.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sonde_results::flow::{FlowEnd, FlowKey, FlowRecord, FlowSide};
use sonde_results::units::SECOND;
use sonde_wire::ipfix::element;
use sonde_wire::ipfix::record::{Record, RecordIter, unsigned};
use sonde_wire::ipfix::template::{FieldSpecifier, Template, TemplateFormat, TemplateIter};
use sonde_wire::ipfix::{self, REVERSE, time};
use sonde_wire::{Error, netflow5, netflow9};

use super::checksum;
use crate::counters::counters;

#[derive(Clone, Debug)]
pub enum Decoded<'a> {
    /// A data record of a flow template.
    Flow(DecodedFlow<'a>),
    /// A data record of an options template (RFC 7011, section 3.4.2.2).
    Options {
        /// Observation Domain ID (RFC 7011, 3.1).
        domain: u32,
        /// As the exporter sent it.
        record: Record<'a, 'a>,
    },
}

/// One flow as an exporter reported it.
#[derive(Clone, Debug)]
pub struct DecodedFlow<'a> {
    /// Its key and both sides; `reverse` is empty unless it came as a biflow (RFC 5103).
    /// `point` is 0. Where no reason was given, `end` is `Idle`.
    pub record: FlowRecord,
    /// flowEndReason was given.
    pub has_end: bool,
    /// ingressInterface.
    pub interface: u32,
    /// Observation domain; of NetFlow its source id or engine.
    pub domain: u32,
    /// When the message left, ns since 1970 TAI, in whole seconds.
    pub exported_ns: i64,
    /// Times are in ms since the exporter's start, and that to the ms, too
    /// (systemInitTimeMilliseconds, 160); of NetFlow only whole seconds are known of it.
    pub exact_uptime: bool,
    /// As it came; `None` for NetFlow version 5.
    pub raw: Option<Record<'a, 'a>>,
}

counters! {
    /// What came, and what could not be used.
    DecodeCounters {
        /// Messages read.
        messages,
        /// Data records of flows.
        records,
        /// Data records of options.
        option_records,
        /// Templates, each time one came.
        templates,
        /// Messages, sets and records that contradict themselves or end too early; messages
        /// whose checksum is wrong (RFC 5655, section 8.1.1).
        malformed,
        /// Data sets whose template was not known.
        no_template,
        /// Data records of templates that describe no flow: no addresses, or no counters.
        not_flows,
        /// What is missing by the sequence numbers: records, in NetFlow version 9 packets.
        missing,
        /// Messages whose sequence number was below the one expected.
        out_of_sequence,
        /// Templates beyond the most that are kept.
        templates_refused,
    }
}

/// Templates and sequence numbers of one transport session.
#[derive(Debug)]
pub struct Decoder {
    tai_offset_ns: i64,
    templates: HashMap<(u16, u32, u16), Stored>,
    /// The sequence number expected next, by version and domain; `None` after data that
    /// could not be counted.
    expected: HashMap<(u16, u32), Option<u32>>,
    /// systemInitTimeMilliseconds of IPFIX's options, by domain, ns since 1970 UTC.
    booted: HashMap<u32, i64>,
    counters: DecodeCounters,
}

#[derive(Debug)]
struct Stored {
    fields: Vec<FieldSpecifier>,
    options: bool,
}

/// What a message's header says for all its records.
#[derive(Clone, Copy)]
struct Context {
    domain: u32,
    /// ns since 1970 UTC.
    exported_ns: i64,
    /// When the exporter's uptime was 0, ns since 1970 UTC: of IPFIX if it was given.
    boot_ns: Option<i64>,
    ipfix: bool,
    tai_offset_ns: i64,
}

impl Decoder {
    /// `tai_offset_s` is TAI - UTC: records have their times in TAI.
    pub fn new(tai_offset_s: i64) -> Self {
        Decoder {
            tai_offset_ns: tai_offset_s * SECOND,
            templates: HashMap::new(),
            expected: HashMap::new(),
            booted: HashMap::new(),
            counters: DecodeCounters::default(),
        }
    }

    pub fn counters(&self) -> &DecodeCounters {
        &self.counters
    }

    /// Reads a file or a stream of IPFIX messages (RFC 5655). An end that is cut off is no
    /// error: it is counted as malformed, and how many bytes it has is returned.
    pub fn file(&mut self, data: &[u8], sink: &mut impl FnMut(Decoded)) -> usize {
        let mut read = 0;
        for message in ipfix::MessageIter::new(data) {
            match message {
                Ok(message) => {
                    read += message.len();
                    self.message(message, sink);
                }
                Err(_) => self.counters.malformed += 1,
            }
        }
        data.len() - read
    }

    /// Reads one message of any of the three versions: a datagram, or a part of a stream.
    pub fn message(&mut self, data: &[u8], sink: &mut impl FnMut(Decoded)) {
        let version = data.first_chunk().map_or(0, |version| u16::from_be_bytes(*version));
        let done = match version {
            ipfix::VERSION => self.ipfix(data, sink),
            netflow9::VERSION => self.netflow9(data, sink),
            netflow5::VERSION => self.netflow5(data, sink),
            _ => Err(Error::Version),
        };
        match done {
            Ok(()) => self.counters.messages += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    fn ipfix(&mut self, data: &[u8], sink: &mut impl FnMut(Decoded)) -> Result<(), Error> {
        let message = ipfix::Message::new_checked(data)?;
        let header = message.header;
        self.check_sequence((ipfix::VERSION, header.domain), header.sequence);
        let exported_ns = i64::from(header.export_time) * SECOND;
        let context = Context {
            domain: header.domain,
            exported_ns,
            boot_ns: None,
            ipfix: true,
            tai_offset_ns: self.tai_offset_ns,
        };
        let whole = &data[..usize::from(header.length).min(data.len())];
        // A message has one checksum: more are not looked at, for each costs all of its octets.
        let mut is_right = None;
        let mut look = |decoded: Decoded| {
            if let (Decoded::Options { record, .. }, None) = (&decoded, is_right) {
                is_right = checksum::is_right(whole, record);
            }
            sink(decoded);
        };
        let records = self.sets(message.sets(), ipfix::VERSION, context, &mut look);
        self.counters.malformed += u64::from(is_right == Some(false));
        let next = records.map(|records| header.sequence.wrapping_add(records));
        self.expect((ipfix::VERSION, header.domain), next);
        Ok(())
    }

    fn netflow9(&mut self, data: &[u8], sink: &mut impl FnMut(Decoded)) -> Result<(), Error> {
        let packet = netflow9::Packet::new_checked(data)?;
        let header = packet.header;
        self.check_sequence((netflow9::VERSION, header.source), header.sequence);
        let exported_ns = i64::from(header.unix_secs) * SECOND;
        let context = self.context(header.source, exported_ns, header.uptime_ms);
        self.sets(packet.sets(), netflow9::VERSION, context, sink);
        let next = Some(header.sequence.wrapping_add(1));
        self.expect((netflow9::VERSION, header.source), next);
        Ok(())
    }

    fn netflow5(&mut self, data: &[u8], sink: &mut impl FnMut(Decoded)) -> Result<(), Error> {
        let packet = netflow5::Packet::new_checked(data)?;
        let header = packet.header;
        let domain = u32::from(header.engine);
        self.check_sequence((netflow5::VERSION, domain), header.sequence);
        let exported_ns = i64::from(header.unix_secs) * SECOND + i64::from(header.unix_nanos);
        let context = self.context(domain, exported_ns, header.uptime_ms);
        for record in packet.records() {
            self.counters.records += 1;
            sink(Decoded::Flow(netflow5_flow(&record, context)));
        }
        let next = Some(header.sequence.wrapping_add(u32::from(header.count)));
        self.expect((netflow5::VERSION, domain), next);
        Ok(())
    }

    /// Of NetFlow, whose header has the uptime.
    fn context(&self, domain: u32, exported_ns: i64, uptime_ms: u32) -> Context {
        let boot_ns = Some(exported_ns - i64::from(uptime_ms) * 1_000_000);
        Context { domain, exported_ns, boot_ns, ipfix: false, tai_offset_ns: self.tai_offset_ns }
    }

    /// What is expected next; of more domains than there are templates for, nothing.
    fn expect(&mut self, session: (u16, u32), next: Option<u32>) {
        if self.expected.len() < MAX_TEMPLATES || self.expected.contains_key(&session) {
            self.expected.insert(session, next);
        }
    }

    fn check_sequence(&mut self, session: (u16, u32), sequence: u32) {
        if let Some(Some(expected)) = self.expected.get(&session) {
            match sequence.wrapping_sub(*expected) {
                0 => {}
                ahead @ 1..=0x7fff_ffff => self.counters.missing += u64::from(ahead),
                _ => self.counters.out_of_sequence += 1,
            }
        }
    }

    /// How many data records there were, if all could be counted.
    fn sets(
        &mut self,
        sets: ipfix::SetIter,
        version: u16,
        context: Context,
        sink: &mut impl FnMut(Decoded),
    ) -> Option<u32> {
        let (format, template_set, options_set) = match version {
            netflow9::VERSION => {
                (TemplateFormat::Netflow9, netflow9::TEMPLATE_SET, netflow9::OPTIONS_TEMPLATE_SET)
            }
            _ => (TemplateFormat::Ipfix, ipfix::TEMPLATE_SET, ipfix::OPTIONS_TEMPLATE_SET),
        };
        let mut count = Some(0u32);
        for set in sets {
            let Ok(set) = set else {
                self.counters.malformed += 1;
                return None;
            };
            let templates = match set.id {
                id if id == template_set => TemplateIter::new(set.body, format),
                id if id == options_set => TemplateIter::options(set.body, format),
                id if id >= ipfix::MIN_DATA_SET => {
                    let records = self.data((version, context.domain, id), set.body, context, sink);
                    count = count.zip(records).map(|(sum, records)| sum.wrapping_add(records));
                    continue;
                }
                _ => {
                    self.counters.malformed += 1;
                    continue;
                }
            };
            for template in templates {
                match template {
                    Ok(template) => self.learn(version, context.domain, &template),
                    Err(_) => self.counters.malformed += 1,
                }
            }
        }
        count
    }

    fn learn(&mut self, version: u16, domain: u32, template: &Template) {
        self.counters.templates += 1;
        if template.is_withdrawal() {
            let all = template.id < ipfix::MIN_DATA_SET;
            let options = template.id == ipfix::OPTIONS_TEMPLATE_SET;
            self.templates.retain(|(v, d, id), stored| {
                let other = (*v, *d) != (version, domain);
                other || if all { stored.options != options } else { *id != template.id }
            });
            return;
        }
        let key = (version, domain, template.id);
        if self.templates.len() >= MAX_TEMPLATES && !self.templates.contains_key(&key) {
            self.counters.templates_refused += 1;
            return;
        }
        let stored =
            Stored { fields: template.fields().collect(), options: template.scope_count > 0 };
        self.templates.insert(key, stored);
    }

    fn data(
        &mut self,
        key: (u16, u32, u16),
        body: &[u8],
        context: Context,
        sink: &mut impl FnMut(Decoded),
    ) -> Option<u32> {
        let Some(template) = self.templates.get(&key) else {
            self.counters.no_template += 1;
            return None;
        };
        let mut context = context;
        if context.ipfix {
            // Reported before, perhaps in this message.
            context.boot_ns = self.booted.get(&context.domain).copied();
        }
        let mut count = 0u32;
        for record in RecordIter::new(body, &template.fields) {
            let Ok(record) = record else {
                self.counters.malformed += 1;
                return None;
            };
            count += 1;
            if template.options {
                self.counters.option_records += 1;
                if let Some(booted) = booted(&record).filter(|_| context.ipfix)
                    && (self.booted.len() < MAX_TEMPLATES
                        || self.booted.contains_key(&context.domain))
                {
                    self.booted.insert(context.domain, booted);
                    context.boot_ns = Some(booted);
                }
                sink(Decoded::Options { domain: context.domain, record });
            } else if let Some(flow) = flow(record, context) {
                self.counters.records += 1;
                sink(Decoded::Flow(flow));
            } else {
                self.counters.not_flows += 1;
            }
        }
        Some(count)
    }
}

/// A side as it is put together: times may come in several ways.
#[derive(Default)]
struct Side {
    packets: Option<u64>,
    bytes: Option<u64>,
    first: Option<i64>,
    last: Option<i64>,
    duration: Option<i64>,
    side: FlowSide,
}

/// systemInitTimeMilliseconds, ns since 1970 UTC.
fn booted(record: &Record<'_, '_>) -> Option<i64> {
    let kind = element::find(0, SYSTEM_INIT)?.kind;
    time::to_ns(kind, value(record, 0, SYSTEM_INIT)?)
}

fn flow<'a>(record: Record<'a, 'a>, mut context: Context) -> Option<DecodedFlow<'a>> {
    if context.ipfix {
        // That of the record itself counts, wherever in it that stands.
        context.boot_ns = booted(&record).or(context.boot_ns);
    }
    let (mut near, mut far) = (Side::default(), Side::default());
    let (mut source, mut destination) = (None, None);
    let (mut source_port, mut destination_port, mut icmp) = (0, 0, None);
    let (mut protocol, mut vlan, mut interface, mut end) = (0, 0, 0, None);
    for (field, value) in record.values() {
        let uint = unsigned(value).unwrap_or(0);
        match (field.enterprise, field.id) {
            (REVERSE, _) => side(&mut far, field.id, value, context),
            (0, 4) => protocol = uint as u8,
            (0, 7 | 180 | 182) => source_port = uint as u16,
            (0, 8) => source = ipv4(value),
            (0, 10) => interface = uint as u32,
            (0, 11 | 181 | 183) => destination_port = uint as u16,
            (0, 12) => destination = ipv4(value),
            (0, 27) => source = ipv6(value),
            (0, 28) => destination = ipv6(value),
            (0, 32 | 139) => icmp = Some(uint as u16),
            (0, 58) => vlan = uint as u16,
            (0, 136) => end = flow_end(uint),
            // Old biflows: responderOctets and -Packets.
            (0, 232) => far.bytes = Some(uint),
            (0, 299) => far.packets = Some(uint),
            (0, _) => side(&mut near, field.id, value, context),
            _ => {}
        }
    }
    if let Some(type_code) = icmp.filter(|_| matches!(protocol, 1 | 58)) {
        destination_port = type_code;
    }
    let key = FlowKey {
        point: 0,
        vlan,
        protocol,
        source: source?,
        destination: destination?,
        source_port,
        destination_port,
    };
    let record_of = FlowRecord {
        key,
        forward: near.finish(context)?,
        reverse: far.finish(context).unwrap_or_default(),
        end: end.unwrap_or(FlowEnd::Idle),
        extra: None,
    };
    Some(DecodedFlow {
        record: record_of,
        has_end: end.is_some(),
        interface,
        domain: context.domain,
        exported_ns: context.exported_ns + context.tai_offset_ns,
        exact_uptime: context.ipfix,
        raw: Some(record),
    })
}

/// A field that is one direction's.
fn side(side: &mut Side, id: u16, value: &[u8], context: Context) {
    let integer = unsigned(value);
    let uptime = || integer.zip(context.boot_ns).map(|(ms, boot)| context.uptime(boot, ms as u32));
    let before_export = || integer.map(|us| context.exported_ns - (us as u32 as i64) * 1000);
    let date = || element::find(0, id).and_then(|e| time::to_ns(e.kind, value));
    match id {
        // Delta and total counters: a record has one or the other.
        1 | 85 | 231 => side.bytes = integer,
        2 | 86 | 298 => side.packets = integer,
        5 => side.side.tos = integer.unwrap_or(0) as u8,
        6 => side.side.tcp_flags = integer.unwrap_or(0) as u16,
        21 => side.last = uptime(),
        22 => side.first = uptime(),
        52 => side.side.ttl_min = integer.unwrap_or(0) as u8,
        53 => side.side.ttl_max = integer.unwrap_or(0) as u8,
        150 | 152 | 154 | 156 => side.first = date(),
        151 | 153 | 155 | 157 => side.last = date(),
        158 => side.first = before_export(),
        159 => side.last = before_export(),
        161 => side.duration = integer.map(|ms| (ms as u32 as i64) * 1_000_000),
        _ => {}
    }
}

impl Context {
    /// The time at which the exporter, started at `boot_ns`, was up for so many ms. 32 bits of them
    /// begin anew every 49.7 days, and no flow ends long after its export.
    fn uptime(&self, boot_ns: i64, ms: u32) -> i64 {
        let at = boot_ns.saturating_add(i64::from(ms) * 1_000_000);
        if !self.ipfix {
            return at;
        }
        let turns = (self.exported_ns + 2 * SECOND).saturating_sub(at).div_euclid(UPTIME_TURN_NS);
        at.saturating_add(turns.max(0).saturating_mul(UPTIME_TURN_NS))
    }
}

impl Side {
    /// `None` without counters.
    fn finish(mut self, context: Context) -> Option<FlowSide> {
        self.side.packets = self.packets.or(self.bytes.map(|bytes| u64::from(bytes > 0)))?;
        self.side.bytes = self.bytes.unwrap_or(0);
        let duration = self.duration.unwrap_or(0);
        let first = self.first.or_else(|| self.last.map(|last| last.saturating_sub(duration)));
        let last = self.last.or_else(|| first.map(|first| first.saturating_add(duration)));
        let tai = |ns: Option<i64>| ns.map_or(0, |ns| ns.saturating_add(context.tai_offset_ns));
        self.side.first_ns = tai(first);
        self.side.last_ns = tai(last);
        Some(self.side)
    }
}

fn netflow5_flow(record: &netflow5::Record, context: Context) -> DecodedFlow<'static> {
    let boot_ns = context.boot_ns.unwrap_or(0);
    let at = |ms: u32| context.uptime(boot_ns, ms) + context.tai_offset_ns;
    let forward = FlowSide {
        packets: u64::from(record.packets),
        bytes: u64::from(record.bytes),
        first_ns: at(record.first_ms),
        last_ns: at(record.last_ms),
        tcp_flags: u16::from(record.tcp_flags),
        tos: record.tos,
        ..FlowSide::default()
    };
    let key = FlowKey {
        point: 0,
        vlan: 0,
        protocol: record.protocol,
        source: record.source.into(),
        destination: record.destination.into(),
        source_port: record.source_port,
        destination_port: record.destination_port,
    };
    DecodedFlow {
        record: FlowRecord {
            key,
            forward,
            reverse: FlowSide::default(),
            end: FlowEnd::Idle,
            extra: None,
        },
        has_end: false,
        interface: u32::from(record.input),
        domain: context.domain,
        exported_ns: context.exported_ns + context.tai_offset_ns,
        exact_uptime: false,
        raw: None,
    }
}

fn ipv4(value: &[u8]) -> Option<IpAddr> {
    Some(Ipv4Addr::from(*<&[u8; 4]>::try_from(value).ok()?).into())
}

fn ipv6(value: &[u8]) -> Option<IpAddr> {
    Some(Ipv6Addr::from(*<&[u8; 16]>::try_from(value).ok()?).into())
}

fn flow_end(reason: u64) -> Option<FlowEnd> {
    Some(match reason {
        1 => FlowEnd::Idle,
        2 => FlowEnd::Active,
        3 => FlowEnd::EndDetected,
        4 => FlowEnd::Forced,
        5 => FlowEnd::LackOfResources,
        _ => return None,
    })
}

/// The value of a field of a record, the first if there are several.
pub fn value<'a>(record: &Record<'a, '_>, enterprise: u32, id: u16) -> Option<&'a [u8]> {
    let wanted = |f: &FieldSpecifier| (f.enterprise, f.id) == (enterprise, id);
    record.values().find(|(field, _)| wanted(field)).map(|(_, value)| value)
}

/// More of them a sender of garbage has, not an exporter.
const MAX_TEMPLATES: usize = 4096;
/// systemInitTimeMilliseconds.
const SYSTEM_INIT: u16 = 160;
/// 2^32 ms.
const UPTIME_TURN_NS: i64 = (1 << 32) * 1_000_000;

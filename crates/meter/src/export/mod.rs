//! The exporting process, sans-IO: flow records go in, messages come out.
//!
//! IPFIX (RFC 7011) with its options (RFC 5476, RFC 5610, RFC 5655), biflows (RFC 5103) and lists
//! (RFC 6313). NetFlow version 9 (RFC 3954) and 5. What the fields are: `docs/ipfix.md`. Reading it
//! back: [`decode`].

mod app;
mod checksum;
pub mod decode;
mod fields;
mod flow;
mod message;
mod netflow5;
mod netflow9;
mod options;
#[cfg(test)]
mod tests;
mod uptime;

use sonde_results::flow::{FlowRecord, FlowSide};

pub use checksum::Checksums;
pub use decode::{Decoded, Decoder};
pub use options::{ExportSelector, ExportStats, SelectorAlgorithm};

use crate::counters::counters;
use fields::{Fields, RecordWriter};
use flow::{BASIC_MAX, RecordShape, View};
use message::MessageWriter;

/// The version of the export protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExportProtocol {
    /// RFC 7011.
    #[default]
    Ipfix,
    /// RFC 3954, for old collectors: uniflows, times in ms.
    Netflow9,
    /// For still older ones: IPv4 with counters below 2^32.
    Netflow5,
}

impl ExportProtocol {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            ExportProtocol::Ipfix => "IPFIX",
            ExportProtocol::Netflow9 => "NetFlow v9",
            ExportProtocol::Netflow5 => "NetFlow v5",
        }
    }
}

/// The unit of times in IPFIX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// flowStartMilliseconds, 152: what every collector reads.
    #[default]
    Milli,
    /// flowStartMicroseconds, 154.
    Micro,
    /// flowStartNanoseconds, 156.
    Nano,
}

/// Which parts of [`sonde_results::flow::FlowExtra`] are exported where a record has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extra {
    /// MAC addresses, inner VLAN, MPLS labels, tunnel.
    pub link: bool,
    /// Handshake times, retransmissions and windows of TCP.
    pub tcp: bool,
    /// What the application said.
    pub apps: bool,
}

/// What is exported. The default is what all collectors accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    /// What is spoken. The rest is for IPFIX only.
    pub protocol: ExportProtocol,
    /// Both directions in one record (RFC 5103); else each is one of its own.
    pub biflow: bool,
    /// Unit of the times.
    pub time: TimeUnit,
    /// Sequences and histograms of packets as lists (RFC 6313).
    pub lists: bool,
    /// Fields beyond the basic record.
    pub extra: Extra,
}

/// An interface that packets come by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInterface {
    /// ifIndex (RFC 2863); 0: none, as of a file.
    pub index: u32,
    pub name: String,
    /// What is connected to it; may be empty.
    pub description: String,
}

/// How it is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub profile: Profile,
    /// Observation domain; of NetFlow version 5 the low 16 bits, as engine. 0 is that of the
    /// exporting process itself, whose statistics have messages of their own in IPFIX.
    pub domain: u32,
    /// Longest message, 512..=65535 bytes. Over UDP: the path's MTU less the headers, 1452
    /// for Ethernet and IPv6.
    pub message_bytes: usize,
    /// UDP: templates are sent again by time and by count. Else once a connection.
    pub datagram: bool,
    /// Templates are sent again after this time, ns (RFC 6728, section 4.4.2: 600 s) ...
    pub template_every_ns: i64,
    /// ... and after this many messages, whichever is first.
    pub template_every_messages: u32,
    /// TAI - UTC, s: times inside are TAI, times exported UTC.
    pub tai_offset_s: i64,
    /// The interfaces, by the flow key's `point`.
    pub interfaces: Vec<ExportInterface>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            profile: Profile::default(),
            domain: 1,
            message_bytes: 1452,
            datagram: true,
            template_every_ns: 600 * 1_000_000_000,
            template_every_messages: 256,
            tai_offset_s: 37,
            interfaces: Vec::new(),
        }
    }
}

impl Config {
    fn tai_offset_ns(&self) -> i64 {
        self.tai_offset_s * 1_000_000_000
    }
}

counters! {
    /// What was exported, since the start.
    ExportCounters {
        /// Messages sent.
        messages,
        /// Octets of these messages.
        octets,
        /// Data records of flows: a biflow exported as two counts twice.
        records,
        /// Data records of options.
        option_records,
        /// Templates, each time one was sent.
        templates,
        /// Records sent without a part for which there was no room in a message, or no template.
        reduced,
        /// Flows (by direction) that the format cannot express: IPv6 or large counters in
        /// NetFlow version 5.
        not_exportable,
    }
}

/// Makes messages of flow records. One thread owns it; in the steady state nothing is
/// allocated.
pub struct Exporter {
    profile: Profile,
    interfaces: Vec<ExportInterface>,
    tai_offset_ns: i64,
    state: State,
    /// IPFIX: messages of no observation domain, with the process's statistics (RFC 7011,
    /// section 3.1).
    process: Option<Box<MessageWriter>>,
    /// What is known to the collector of the domain.
    options_sent: Option<options::OptionsSent>,
    /// Templates of the shapes without extra fields, by shape; `u16::MAX`: not made yet.
    basic: [u16; RecordShape::BASIC],
    /// IPFIX files: the span of what was exported (RFC 5655, section 8.1.2).
    window: options::Window,
}

enum State {
    Templates(Box<MessageWriter>),
    Netflow5(Box<netflow5::Packets>),
}

impl Exporter {
    /// Nothing is sent before the first record.
    pub fn new(config: Config) -> Self {
        let state = match config.profile.protocol {
            ExportProtocol::Netflow5 => State::Netflow5(Box::new(netflow5::Packets::new(&config))),
            ExportProtocol::Ipfix | ExportProtocol::Netflow9 => {
                State::Templates(Box::new(MessageWriter::new(&config)))
            }
        };
        let own = config.profile.protocol == ExportProtocol::Ipfix && config.domain != 0;
        let process =
            own.then(|| Box::new(MessageWriter::new(&Config { domain: 0, ..config.clone() })));
        let mut profile = config.profile;
        if profile.protocol != ExportProtocol::Ipfix {
            profile = Profile { protocol: profile.protocol, ..Profile::default() };
        }
        Exporter {
            profile,
            tai_offset_ns: config.tai_offset_ns(),
            interfaces: config.interfaces,
            state,
            process,
            options_sent: None,
            basic: [u16::MAX; RecordShape::BASIC],
            window: options::Window::default(),
        }
    }

    /// What times are ahead of UTC, ns, from now on: somebody may set the clock.
    pub fn set_utc_offset(&mut self, ns: i64) {
        self.tai_offset_ns = ns;
        match &mut self.state {
            State::Templates(messages) => messages.set_utc_offset(ns),
            State::Netflow5(packets) => packets.set_utc_offset(ns),
        }
        if let Some(process) = &mut self.process {
            process.set_utc_offset(ns);
        }
    }

    /// The interfaces have changed, as when one has vanished and returned by another index:
    /// with the next options they are sent again.
    pub fn set_interfaces(&mut self, interfaces: &[ExportInterface]) {
        self.interfaces = interfaces.to_vec();
        self.options_sent = None;
    }

    /// From the next message on none is longer than this: the path has become narrower.
    pub fn set_message_bytes(&mut self, bytes: usize) {
        match &mut self.state {
            State::Templates(messages) => messages.narrow(bytes),
            State::Netflow5(packets) => packets.narrow(bytes),
        }
        if let Some(process) = &mut self.process {
            process.narrow(bytes);
        }
    }

    /// Exports one record; `out` gets each message that is full. `now_ns` is the time, ns
    /// since 1970 TAI.
    #[inline]
    pub fn push(&mut self, record: &FlowRecord, now_ns: i64, out: &mut impl FnMut(&[u8])) {
        match &mut self.state {
            State::Templates(messages) => messages.set_now(now_ns),
            State::Netflow5(packets) => packets.set_now(now_ns),
        }
        let FlowRecord { forward, reverse, .. } = record;
        if self.profile.biflow && reverse.packets > 0 {
            // The source opened the flow (RFC 5103, section 6.3), though in this record only
            // the other end may have sent: after an active time-out.
            let silent = FlowSide {
                first_ns: reverse.first_ns,
                last_ns: reverse.last_ns,
                ..FlowSide::default()
            };
            let near = if forward.packets > 0 { forward } else { &silent };
            self.export(record, near, Some(reverse), false, now_ns, out);
            return;
        }
        if forward.packets > 0 {
            self.export(record, forward, None, false, now_ns, out);
        }
        if reverse.packets > 0 {
            self.export(record, reverse, None, true, now_ns, out);
        }
    }

    #[inline(always)]
    fn export(
        &mut self,
        record: &FlowRecord,
        near: &FlowSide,
        far: Option<&FlowSide>,
        reversed: bool,
        now_ns: i64,
        out: &mut impl FnMut(&[u8]),
    ) {
        let point = usize::from(record.key.point);
        let view = View {
            record,
            near,
            far,
            reversed,
            interface: self.interfaces.get(point).map_or(0, |interface| interface.index),
            tai_offset_ns: self.tai_offset_ns,
            profile: self.profile,
        };
        match &mut self.state {
            State::Templates(messages) if self.profile.protocol == ExportProtocol::Ipfix => {
                self.window.add(near.first_ns, near.last_ns, now_ns);
                if let Some(far) = far {
                    self.window.add(far.first_ns, far.last_ns, now_ns);
                }
                let shape = match record.extra {
                    None => RecordShape::basic(&view),
                    Some(_) => RecordShape::full(&view),
                };
                if shape.is_basic() {
                    let template = &mut self.basic[shape.0 as usize];
                    if *template == u16::MAX {
                        let describe = |w: &mut _| flow::basic(w, shape, &view);
                        *template = messages.template(shape, 0, describe) as u16;
                    }
                    let write = |w: &mut RecordWriter<'_>| {
                        w.first::<BASIC_MAX>(|w| flow::basic(w, shape, &view));
                    };
                    let written = messages.record(usize::from(*template), write, out);
                    debug_assert!(written, "any message holds a basic record");
                    messages.counters.records += 1;
                } else {
                    with_extra(messages, shape, &view, out);
                }
            }
            State::Templates(messages) => netflow9_record(messages, &view, out),
            State::Netflow5(packets) => match packets.record(&view, out) {
                true => packets.counters.records += 1,
                false => packets.counters.not_exportable += 1,
            },
        }
    }

    /// Lets go what is not full yet, and over UDP the templates that are due. To be called
    /// every second or so, and at the end.
    pub fn flush(&mut self, now_ns: i64, out: &mut impl FnMut(&[u8])) {
        if let Some(process) = &mut self.process {
            process.set_now(now_ns);
            process.flush(out);
        }
        match &mut self.state {
            State::Templates(messages) => {
                messages.set_now(now_ns);
                messages.flush(out);
            }
            State::Netflow5(packets) => {
                packets.set_now(now_ns);
                packets.emit(out);
            }
        }
    }

    /// A new connection was opened. `out` gets all templates sent before, in messages of their own.
    /// They go before anything else, be it new or kept from before. The sequence numbers go on. To
    /// begin from 0, as RFC 7011 counts them by connection, subtract from each message's that of
    /// its domain's first with data ([`sonde_wire::ipfix::set_sequence`]).
    pub fn reconnected(&mut self, now_ns: i64, out: &mut impl FnMut(&[u8])) {
        self.options_sent = None;
        let State::Templates(messages) = &mut self.state else { return };
        for messages in [Some(messages), self.process.as_mut()].into_iter().flatten() {
            messages.set_now(now_ns);
            messages.reconnected(out);
        }
    }

    /// Exports what the collector should know beside the flows, in messages of their own. The
    /// statistics go each time. Sampling, names of interfaces and what the fields mean go when they
    /// are not known yet, and over UDP again with the templates. To be called at the start before
    /// any flow, from time to time, and at the end. NetFlow version 5 has nothing for it.
    pub fn options(&mut self, stats: &ExportStats, now_ns: i64, out: &mut impl FnMut(&[u8])) {
        let total = self.counters();
        let State::Templates(messages) = &mut self.state else { return };
        messages.set_now(now_ns);
        messages.emit(out);
        let domain = messages.domain();
        if self.options_sent.as_ref().is_none_or(|sent| sent.is_stale(messages, stats)) {
            options::information(messages, self.profile, &self.interfaces, stats, out);
            messages.emit(out);
            self.options_sent = Some(options::OptionsSent::new(messages, stats));
        }
        let process = self.process.as_mut().unwrap_or(messages);
        process.set_now(now_ns);
        let ipfix = self.profile.protocol == ExportProtocol::Ipfix;
        options::statistics(process, ipfix, domain, &total, stats, out);
        process.emit(out);
    }

    /// Ends an IPFIX file: the span of time in it (RFC 5655, section 8.1.2), then what is
    /// not full yet. The next one begins with [`Exporter::reconnected`].
    pub fn finish_file(&mut self, now_ns: i64, out: &mut impl FnMut(&[u8])) {
        if let State::Templates(messages) = &mut self.state {
            messages.set_now(now_ns);
            if self.profile.protocol == ExportProtocol::Ipfix {
                let window = std::mem::take(&mut self.window);
                window.export(messages, now_ns, self.tai_offset_ns, out);
            }
            messages.emit(out);
        }
    }

    pub fn counters(&self) -> ExportCounters {
        match &self.state {
            State::Templates(messages) => {
                let mut sum = messages.counters;
                if let Some(ExportCounters {
                    messages, octets, option_records, templates, ..
                }) = self.process.as_ref().map(|process| process.counters)
                {
                    sum.messages += messages;
                    sum.octets += octets;
                    sum.option_records += option_records;
                    sum.templates += templates;
                }
                sum
            }
            State::Netflow5(packets) => packets.counters,
        }
    }
}

/// A record with more than the basic fields. Where it is longer than a message, or its template is
/// one too many, the lists are left out and strings cut. Where that is not enough, all that is
/// extra is left out.
fn with_extra(
    messages: &mut MessageWriter,
    shape: RecordShape,
    view: &View,
    out: &mut impl FnMut(&[u8]),
) {
    let tries = [
        (shape, usize::from(u16::MAX)),
        (shape.without_lists(), SHORT_TEXT),
        (RecordShape::basic(view), 0),
    ];
    for (attempt, (shape, text)) in tries.into_iter().enumerate() {
        if !shape.is_basic() && !messages.has_room(shape) {
            continue;
        }
        let template = messages.template(shape, 0, |w| all_fields(w, shape, view, text));
        if messages.record(template, |w| all_fields(w, shape, view, text), out) {
            messages.counters.records += 1;
            messages.counters.reduced += u64::from(attempt > 0);
            return;
        }
    }
    debug_assert!(false, "any message holds a basic record");
}

fn all_fields<W: Fields>(w: &mut W, shape: RecordShape, view: &View, text: usize) {
    flow::outer(w, shape, view);
    flow::basic(w, shape, view);
    flow::extra(w, shape, view, text);
}

fn netflow9_record(messages: &mut MessageWriter, view: &View, out: &mut impl FnMut(&[u8])) {
    let (first, last) = netflow9::times(view);
    if !messages.uptime.admit(first, last) {
        messages.emit(out);
        messages.uptime.restart(first, last);
        messages.uptime.admit(first, last);
    }
    let shape = RecordShape::netflow9(view);
    let mut bytes = [0; BASIC_MAX];
    let mut writer = RecordWriter::new(&mut bytes);
    netflow9::fields(&mut writer, shape, view, &messages.uptime);
    let len = writer.at();
    let uptime = uptime::Uptime::default();
    let template = messages.template(shape, 0, |w| netflow9::fields(w, shape, view, &uptime));
    let written = messages.record(template, |w| w.raw(&bytes[..len]), out);
    debug_assert!(written, "any message holds a basic record");
    messages.counters.records += 1;
}

/// To what strings are cut in a record that is too long for a message, bytes.
const SHORT_TEXT: usize = 64;

//! Messages under construction: sets, templates where they are due, sequence numbers.

use sonde_wire::ipfix::template::{FieldSpecifier, TemplateFormat};
use sonde_wire::ipfix::{self, SET_HEADER_LEN};
use sonde_wire::netflow9;

use super::fields::{RecordWriter, TemplateWriter};
use super::flow::{BASIC_MAX, RecordShape};
use super::uptime::Uptime;
use super::{Config, ExportCounters, ExportProtocol};

/// The message being filled, and the templates of its session.
pub(super) struct MessageWriter {
    format: TemplateFormat,
    domain: u32,
    /// Longest message, bytes.
    limit: usize,
    datagram: bool,
    every_ns: i64,
    every_messages: u32,
    tai_offset_ns: i64,
    buffer: Vec<u8>,
    /// Bytes of the message so far.
    at: usize,
    /// The set being filled: its id and where it begins. 0: none.
    set: (u16, usize),
    /// Data records in the message.
    records: u32,
    /// Records in it, templates included.
    all_records: u16,
    sequence: u32,
    pub templates: Vec<Template>,
    /// Their shapes, apart, for they are looked through.
    shapes: Vec<RecordShape>,
    /// Some template has repeats left.
    repeating: bool,
    /// Messages since the templates were last declared due.
    since: u32,
    since_ns: Option<i64>,
    now_ns: i64,
    pub uptime: Uptime,
    pub counters: ExportCounters,
}

/// A template of this session.
pub(super) struct Template {
    pub id: u16,
    scope_count: u16,
    pub fields: Vec<FieldSpecifier>,
    /// The record as it is sent.
    bytes: Vec<u8>,
    /// Has to go with its next data.
    due: bool,
    /// In how many more messages it goes with its data, for the first time.
    repeats: u32,
    /// The template was sent before.
    sent: bool,
    /// The time has come, or the number of messages, to send it again.
    stale: bool,
}

impl Template {
    pub fn is_options(&self) -> bool {
        self.scope_count > 0
    }
}

impl MessageWriter {
    pub fn new(config: &Config) -> Self {
        let format = match config.profile.protocol {
            ExportProtocol::Netflow9 => TemplateFormat::Netflow9,
            ExportProtocol::Ipfix | ExportProtocol::Netflow5 => TemplateFormat::Ipfix,
        };
        let header = header_len(format);
        // NetFlow's sets end on a multiple of 4 bytes (RFC 3954, section 5.3).
        let padding = if format == TemplateFormat::Netflow9 { 3 } else { 0 };
        let limit = config.message_bytes.clamp(MIN_MESSAGE, usize::from(u16::MAX)) - padding;
        MessageWriter {
            format,
            domain: config.domain,
            limit,
            datagram: config.datagram,
            every_ns: config.template_every_ns,
            every_messages: config.template_every_messages,
            tai_offset_ns: config.tai_offset_ns(),
            // Room beyond the limit, so that the basic record is written without checks.
            buffer: vec![0; limit + padding + BASIC_MAX],
            at: header,
            set: (0, 0),
            records: 0,
            all_records: 0,
            sequence: 0,
            templates: Vec::new(),
            shapes: Vec::new(),
            repeating: false,
            since: 0,
            since_ns: None,
            now_ns: 0,
            uptime: Uptime::default(),
            counters: ExportCounters::default(),
        }
    }

    /// No message is longer from now on, but the one that is being filled.
    pub fn narrow(&mut self, bytes: usize) {
        let padding = if self.format == TemplateFormat::Netflow9 { 3 } else { 0 };
        self.limit = self.limit.min(bytes.max(MIN_MESSAGE) - padding);
    }

    /// What times are ahead of UTC, ns, from now on.
    pub fn set_utc_offset(&mut self, ns: i64) {
        self.tai_offset_ns = ns;
    }

    /// The time of what comes next, ns since 1970 TAI.
    #[inline]
    pub fn set_now(&mut self, now_ns: i64) {
        self.now_ns = now_ns - self.tai_offset_ns;
    }

    pub fn domain(&self) -> u32 {
        self.domain
    }

    /// TAI - UTC, ns.
    pub fn tai_offset_ns(&self) -> i64 {
        self.tai_offset_ns
    }

    /// The time, ns since 1970 UTC.
    pub fn now_ns(&self) -> i64 {
        self.now_ns
    }

    /// What was sent then has to be sent again.
    pub fn is_stale_since(&self, then_ns: i64) -> bool {
        self.datagram && self.now_ns - then_ns >= self.every_ns
    }

    fn is_empty(&self) -> bool {
        self.at == header_len(self.format)
    }

    /// The template of a shape, made from the first record that has it.
    #[inline]
    pub fn template(
        &mut self,
        shape: RecordShape,
        scope_count: u16,
        describe: impl FnOnce(&mut TemplateWriter),
    ) -> usize {
        match self.shapes.iter().position(|known| *known == shape) {
            Some(found) => found,
            None => self.define(shape, scope_count, describe),
        }
    }

    /// There is a template of this shape, or room for one. Which shapes there are is up to
    /// who sends the packets, so their count has a limit.
    #[inline]
    pub fn has_room(&self, shape: RecordShape) -> bool {
        self.shapes.len() < MAX_TEMPLATES || self.shapes.contains(&shape)
    }

    #[cold]
    fn define(
        &mut self,
        shape: RecordShape,
        scope_count: u16,
        describe: impl FnOnce(&mut TemplateWriter),
    ) -> usize {
        let mut writer = TemplateWriter::default();
        describe(&mut writer);
        // Basic shapes and options are few; the others are limited by `has_room`.
        let id = ipfix::MIN_DATA_SET + self.templates.len() as u16;
        let bytes = self.template_record(id, scope_count, &writer.fields);
        self.shapes.push(shape);
        self.templates.push(Template {
            id,
            scope_count,
            fields: writer.fields,
            bytes,
            due: true,
            repeats: if self.datagram { FIRST_MESSAGES } else { 1 },
            sent: false,
            stale: false,
        });
        self.repeating = true;
        self.templates.len() - 1
    }

    fn template_record(&self, id: u16, scope_count: u16, fields: &[FieldSpecifier]) -> Vec<u8> {
        let count = fields.len() as u16;
        let mut head = vec![id];
        match (self.format, scope_count) {
            (_, 0) => head.push(count),
            (TemplateFormat::Ipfix, _) => head.extend([count, scope_count]),
            (TemplateFormat::Netflow9, _) => {
                head.extend([scope_count * 4, (count - scope_count) * 4])
            }
        }
        let mut bytes: Vec<u8> = head.iter().flat_map(|field| field.to_be_bytes()).collect();
        for field in fields {
            let mut specifier = [0; 8];
            let len = field.emit(&mut specifier).expect("elements have 15 bits");
            bytes.extend_from_slice(&specifier[..len]);
        }
        bytes
    }

    /// Writes one data record, with its template where that is due, and lets the message go
    /// when it is full. False: the record is too long for any message.
    #[inline(always)]
    pub fn record(
        &mut self,
        template: usize,
        write: impl Fn(&mut RecordWriter<'_>),
        out: &mut impl FnMut(&[u8]),
    ) -> bool {
        loop {
            let (at, set) = (self.at, self.set);
            let Template { id, due, .. } = self.templates[template];
            let room = if due { self.put_template(template) } else { true };
            if room && self.open(id) {
                let mut writer = RecordWriter::new(&mut self.buffer[self.at..]);
                write(&mut writer);
                let end = self.at + writer.at();
                if end <= self.limit {
                    self.at = end;
                    self.records += 1;
                    self.all_records += 1;
                    if due {
                        self.template_sent(template);
                    }
                    return true;
                }
            }
            (self.at, self.set) = (at, set);
            if self.is_empty() {
                return false;
            }
            self.emit(out);
        }
    }

    /// Goes on with the data set of a template, or begins one. False: no room.
    #[inline(always)]
    fn open(&mut self, id: u16) -> bool {
        if self.set.0 == id {
            return true;
        }
        self.begin(id)
    }

    fn begin(&mut self, id: u16) -> bool {
        self.close();
        if self.at + SET_HEADER_LEN > self.limit {
            return false;
        }
        self.set = (id, self.at);
        self.buffer[self.at..self.at + 2].copy_from_slice(&id.to_be_bytes());
        self.at += SET_HEADER_LEN;
        true
    }

    /// Writes the length of the set being filled.
    fn close(&mut self) {
        let (id, start) = self.set;
        if id == 0 {
            return;
        }
        if self.format == TemplateFormat::Netflow9 {
            while !(self.at - start).is_multiple_of(4) {
                self.buffer[self.at] = 0;
                self.at += 1;
            }
        }
        let length = (self.at - start) as u16;
        self.buffer[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        self.set = (0, 0);
    }

    /// Writes a set with one template. False: no room.
    #[cold]
    fn put_template(&mut self, template: usize) -> bool {
        self.close();
        let Template { scope_count, ref bytes, .. } = self.templates[template];
        let id = match (self.format, scope_count) {
            (TemplateFormat::Ipfix, 0) => ipfix::TEMPLATE_SET,
            (TemplateFormat::Ipfix, _) => ipfix::OPTIONS_TEMPLATE_SET,
            (TemplateFormat::Netflow9, 0) => netflow9::TEMPLATE_SET,
            (TemplateFormat::Netflow9, _) => netflow9::OPTIONS_TEMPLATE_SET,
        };
        let length = SET_HEADER_LEN + bytes.len();
        let padded = match self.format {
            TemplateFormat::Ipfix => length,
            TemplateFormat::Netflow9 => length.next_multiple_of(4),
        };
        if self.at + padded > self.limit {
            return false;
        }
        let set = &mut self.buffer[self.at..self.at + padded];
        set.fill(0);
        set[..2].copy_from_slice(&id.to_be_bytes());
        set[2..4].copy_from_slice(&(padded as u16).to_be_bytes());
        set[SET_HEADER_LEN..length].copy_from_slice(bytes);
        self.at += padded;
        true
    }

    fn template_sent(&mut self, template: usize) {
        let template = &mut self.templates[template];
        template.due = false;
        template.stale = false;
        template.sent = true;
        template.repeats = template.repeats.saturating_sub(1);
        self.all_records += 1;
        self.counters.templates += 1;
    }

    /// Lets the message go, if there is anything in it.
    pub fn emit(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.is_empty() {
            return;
        }
        self.close();
        let head = &mut self.buffer[..];
        let written = match self.format {
            TemplateFormat::Ipfix => ipfix::Header {
                length: self.at as u16,
                export_time: self.now_ns.div_euclid(1_000_000_000) as u32,
                sequence: self.sequence,
                domain: self.domain,
            }
            .emit(head),
            TemplateFormat::Netflow9 => {
                let (unix_secs, uptime_ms) = self.uptime.header(self.now_ns);
                netflow9::Header {
                    count: self.all_records,
                    uptime_ms,
                    unix_secs,
                    sequence: self.sequence,
                    source: self.domain,
                }
                .emit(head)
            }
        };
        written.expect("the buffer is longer than a header");
        out(&self.buffer[..self.at]);
        self.counters.messages += 1;
        self.counters.octets += self.at as u64;
        let step = if self.format == TemplateFormat::Ipfix { self.records } else { 1 };
        self.sequence = self.sequence.wrapping_add(step);
        self.at = header_len(self.format);
        self.records = 0;
        self.all_records = 0;
        self.since += 1;
        if self.repeating {
            self.repeat();
        }
        self.refresh();
    }

    /// A template goes with its data in the first messages, too. A collector of many threads may
    /// read the second message before the first. When it begins with the next after these, though,
    /// one of its threads has ended with one of them.
    #[cold]
    fn repeat(&mut self) {
        self.repeating = false;
        for template in &mut self.templates {
            if template.repeats > 0 {
                template.due = true;
                self.repeating = true;
            }
        }
    }

    /// Declares all templates due when their time has come, or their number of messages.
    fn refresh(&mut self) {
        if !self.datagram {
            return;
        }
        let since_ns = *self.since_ns.get_or_insert(self.now_ns);
        if self.since >= self.every_messages || self.now_ns - since_ns >= self.every_ns {
            self.since = 0;
            self.since_ns = Some(self.now_ns);
            for template in &mut self.templates {
                template.stale = template.sent;
                template.due |= template.stale;
            }
        }
    }

    /// Lets the message go. Over UDP templates that are due go too, also those of which no
    /// data came: else a collector would forget them (RFC 7011, section 8.4).
    pub fn flush(&mut self, out: &mut impl FnMut(&[u8])) {
        self.emit(out);
        self.refresh();
        if self.datagram {
            self.put_templates(|template| template.stale, out);
        }
    }

    /// All templates that were ever sent, in messages of their own. The one being filled
    /// stays as it is: its data may need them.
    pub fn reconnected(&mut self, out: &mut impl FnMut(&[u8])) {
        let empty = vec![0; self.buffer.len()];
        let filled = std::mem::replace(&mut self.buffer, empty);
        let (at, set, records, all) = (self.at, self.set, self.records, self.all_records);
        self.at = header_len(self.format);
        (self.set, self.records, self.all_records) = ((0, 0), 0, 0);
        self.put_templates(|template| template.sent, out);
        self.buffer = filled;
        (self.at, self.set, self.records, self.all_records) = (at, set, records, all);
    }

    fn put_templates(&mut self, which: impl Fn(&Template) -> bool, out: &mut impl FnMut(&[u8])) {
        for template in 0..self.templates.len() {
            if which(&self.templates[template]) {
                while !self.put_template(template) && !self.is_empty() {
                    self.emit(out);
                }
                self.template_sent(template);
            }
        }
        self.emit(out);
    }
}

fn header_len(format: TemplateFormat) -> usize {
    match format {
        TemplateFormat::Ipfix => ipfix::HEADER_LEN,
        TemplateFormat::Netflow9 => netflow9::HEADER_LEN,
    }
}

/// A shorter message would not hold a template and its record; RFC 7011, section 10.3.3
/// names it for a path whose MTU is not known.
const MIN_MESSAGE: usize = 512;
/// Most templates before records with extra fields go without those.
const MAX_TEMPLATES: usize = 1024;
/// Over UDP, in how many messages a new template goes with its data. No collector is known to read
/// with more threads than this. goflow2 has two, and loses what came too early.
const FIRST_MESSAGES: u32 = 16;

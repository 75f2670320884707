//! The frames of a flow: headers as configured, lengths and checksums as the frame needs
//! them, and Sonde's signature at the end.

use std::sync::Arc;

use sonde_meter::load::FCS_LEN;
use sonde_server::otg::config::{
    Custom, Ethernet, Flow, Header, HeaderChoice, Ipv4, Ipv6, Mpls, Payload, PayloadChoice,
    Priority, PriorityChoice, Tcp, Udp, Vlan, Vxlan,
};
use sonde_server::otg::pattern::{
    ChecksumChoice, ChecksumPattern, FieldPattern, FieldValue, Generated, Integer, MacText,
    PatternChoice,
};
use sonde_wire::checksum;
use sonde_wire::ipv4::{PROTOCOL_TCP, PROTOCOL_UDP};
use sonde_wire::prefix::{BENCHMARK_PREFIXES, address_bits};
use sonde_wire::signature::{self, Secret};

use super::allowed::Allowed;
use super::devices::{FlowEndpoints, FlowNextHop};
use super::ethertype;
pub use super::ethertype::EtherType;
use super::values::{FieldValues, set_bits};

/// How the frames of a flow look.
#[derive(Clone, Debug)]
pub struct FrameTemplate {
    /// A frame of the greatest length, with all that is the same in every frame.
    template: Vec<u8>,
    varying: Vec<Varying>,
    /// In the order in which they are to be made.
    fixes: Vec<Fix>,
    /// To whom they go, where that is resolved.
    next_hop: Option<Arc<FlowNextHop>>,
}

/// A field whose value changes.
#[derive(Clone, Debug)]
struct Varying {
    at: usize,
    width: u32,
    values: FieldValues,
}

/// What depends on the length or on other fields.
#[derive(Clone, Copy, Debug)]
enum Fix {
    /// The 16 bits at `at` count the octets from `from` to the end.
    Length { at: usize, from: usize },
    /// The checksum of the IPv4 header at `at`.
    Ipv4 { at: usize, wrong: bool },
    /// The checksum at `field` of what begins at `at` and has an IP header at `ip`.
    Transport { at: usize, field: usize, ip: usize, protocol: u8, wrong: bool },
}

impl FrameTemplate {
    /// The frames of `flow`, the longest of which has `longest` octets and the shortest
    /// `shortest`, without the FCS. Between devices `ends` are what its headers leave open.
    ///
    /// # Errors
    /// All that is wrong, each with its path in the flow.
    pub fn new(
        flow: &Flow,
        shortest: usize,
        longest: usize,
        allowed: &Allowed,
        ends: Option<&FlowEndpoints>,
    ) -> Result<FrameTemplate, Vec<String>> {
        let mut build = Build::new(allowed, ends);
        let one = [Header::default()];
        let packet = if flow.packet.is_empty() { &one[..] } else { &flow.packet };
        for (i, header) in packet.iter().enumerate() {
            build.path = format!("packet[{i}]");
            let before = i.checked_sub(1).map(|i| packet[i].choice);
            build.header(header, before, packet.get(i + 1).map(|h| h.choice));
        }
        let headers = build.octets.len();
        let signature = if flow.metrics.enable { signature::LEN } else { 0 };
        if headers + signature > shortest {
            let with = if signature > 0 { " and the signature of its metrics" } else { "" };
            build.errors.push(format!(
                "size: {} octets with the FCS are too few: its headers{with} take {}",
                shortest + FCS_LEN,
                headers + signature + FCS_LEN
            ));
        }
        let mut template = build.octets;
        if let Err(e) = fill(&mut template, longest, &flow.payload) {
            build.errors.push(format!("payload: {e}"));
        }
        if !build.errors.is_empty() {
            return Err(build.errors);
        }
        // What is inside is part of what the outer checksums cover.
        build.fixes.reverse();
        let (lengths, sums): (Vec<Fix>, _) =
            build.fixes.iter().partition(|f| matches!(f, Fix::Length { .. }));
        let fixes = [lengths, sums].concat();
        Ok(FrameTemplate { template, varying: build.varying, fixes, next_hop: build.next_hop })
    }

    /// Whether it is not known to whom they go.
    pub fn unresolved(&self) -> bool {
        self.next_hop.as_ref().is_some_and(|n| n.mac().is_none())
    }

    /// Writes frame `n` into all of `frame`, with this signature where there is one.
    #[inline]
    pub fn write(&self, n: u64, frame: &mut [u8], signature: Option<(&signature::Repr, &Secret)>) {
        let len = frame.len();
        frame.copy_from_slice(&self.template[..len]);
        if let Some(mac) = self.next_hop.as_ref().and_then(|n| n.mac()) {
            frame[..6].copy_from_slice(&mac);
        }
        for v in &self.varying {
            set_bits(frame, v.at, v.width, v.values.nth(n));
        }
        if let Some((signature, secret)) = signature {
            // There is room: the shortest frame was measured for it.
            let _ = signature.emit(frame, secret);
        }
        for fix in &self.fixes {
            fix.apply(frame);
        }
    }
}

impl Fix {
    #[inline]
    fn apply(self, frame: &mut [u8]) {
        let put = |frame: &mut [u8], at: usize, value: u16| {
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        match self {
            Fix::Length { at, from } => {
                let length = frame.len() - from;
                put(frame, at, length as u16);
            }
            Fix::Ipv4 { at, wrong } => {
                put(frame, at + 10, 0);
                let sum = checksum::finish(checksum::sum(&frame[at..at + 20]));
                put(frame, at + 10, if wrong { !sum } else { sum });
            }
            Fix::Transport { at, field, ip, protocol, wrong } => {
                put(frame, field, 0);
                let addresses = match frame[ip] >> 4 {
                    6 => &frame[ip + 8..ip + 40],
                    _ => &frame[ip + 12..ip + 20],
                };
                // RFC 768, RFC 8200 section 8.1: addresses, length, protocol.
                let length = (frame.len() - at) as u32;
                let pseudo = checksum::sum(addresses) + length + u32::from(protocol);
                let sum = checksum::combine(pseudo, checksum::sum(&frame[at..]));
                let right = match protocol {
                    PROTOCOL_UDP => checksum::finish_udp(sum),
                    _ => checksum::finish(sum),
                };
                // 0 would say that there is none.
                let other = if right == 0x5555 { 0x5556 } else { 0x5555 };
                put(frame, field, if wrong { other } else { right });
            }
        }
    }
}

struct Build<'a> {
    octets: Vec<u8>,
    varying: Vec<Varying>,
    fixes: Vec<Fix>,
    errors: Vec<String>,
    allowed: &'a Allowed,
    /// Of the header in the flow, for messages.
    path: String,
    /// Where the innermost IP header is.
    ip: Option<usize>,
    /// Where the flow runs between devices.
    ends: Option<&'a FlowEndpoints>,
    next_hop: Option<Arc<FlowNextHop>>,
}

impl Build<'_> {
    fn new<'a>(allowed: &'a Allowed, ends: Option<&'a FlowEndpoints>) -> Build<'a> {
        Build {
            octets: Vec::new(),
            varying: Vec::new(),
            fixes: Vec::new(),
            errors: Vec::new(),
            allowed,
            path: String::new(),
            ip: None,
            ends,
            next_hop: None,
        }
    }

    fn header(
        &mut self,
        header: &Header,
        before: Option<HeaderChoice>,
        next: Option<HeaderChoice>,
    ) {
        // Ethernet is what a wire and what VXLAN carries.
        let carries = matches!(before, None | Some(HeaderChoice::Vxlan));
        if carries != (header.choice == HeaderChoice::Ethernet) {
            let why = "the first header, the one behind vxlan, and no other, is ethernet";
            return self.wrong("", why.into());
        }
        if header.choice == HeaderChoice::Vxlan && before != Some(HeaderChoice::Udp) {
            return self.wrong("", "vxlan stands behind udp (RFC 7348)".into());
        }
        // What is not given has its defaults.
        match header.choice {
            HeaderChoice::Ethernet => {
                self.ethernet(&header.ethernet.clone().unwrap_or_default(), before, next);
            }
            HeaderChoice::Vlan => self.vlan(&header.vlan.clone().unwrap_or_default(), next),
            HeaderChoice::Mpls => self.mpls(&header.mpls.clone().unwrap_or_default(), next),
            HeaderChoice::Ipv4 => self.ipv4(&header.ipv4.clone().unwrap_or_default(), next),
            HeaderChoice::Ipv6 => self.ipv6(&header.ipv6.clone().unwrap_or_default(), next),
            HeaderChoice::Udp => self.udp(&header.udp.clone().unwrap_or_default()),
            HeaderChoice::Tcp => self.tcp(&header.tcp.clone().unwrap_or_default()),
            HeaderChoice::Vxlan => self.vxlan(&header.vxlan.clone().unwrap_or_default()),
            HeaderChoice::Custom => self.custom(header.custom.as_ref()),
        }
    }

    fn ethernet(&mut self, h: &Ethernet, before: Option<HeaderChoice>, next: Option<HeaderChoice>) {
        let at = self.room(14);
        // Of a frame within another the devices know nothing.
        let ends = self.ends.filter(|_| before.is_none());
        // Between ports no address is resolved: the model then wants 0.
        self.field("ethernet.dst", &h.dst, at, 48, 0, Some(0));
        let open = h.dst.as_ref().is_none_or(|p| p.choice == PatternChoice::Auto);
        if let Some(ends) = ends.filter(|_| open) {
            self.next_hop = Some(Arc::clone(&ends.next_hop));
        }
        let own = ends.map(|e| MacText(e.mac).bits());
        self.field("ethernet.src", &h.src, at + 48, 48, 0, own);
        self.announce("ethernet.ether_type", &h.ether_type, at + 96, next);
    }

    fn vlan(&mut self, h: &Vlan, next: Option<HeaderChoice>) {
        let at = self.room(4);
        self.field("vlan.priority", &h.priority, at, 3, 0, None);
        self.field("vlan.cfi", &h.cfi, at + 3, 1, 0, None);
        self.field("vlan.id", &h.id, at + 4, 12, 0, None);
        self.announce("vlan.tpid", &h.tpid, at + 16, next);
    }

    fn mpls(&mut self, h: &Mpls, next: Option<HeaderChoice>) {
        let at = self.room(4);
        let bottom = u128::from(next != Some(HeaderChoice::Mpls));
        self.label_is_safe(h, next);
        self.field("mpls.label", &h.label, at, 20, 16, Some(16));
        self.field("mpls.traffic_class", &h.traffic_class, at + 20, 3, 0, None);
        self.field("mpls.bottom_of_stack", &h.bottom_of_stack, at + 23, 1, 1, Some(bottom));
        self.field("mpls.time_to_live", &h.time_to_live, at + 24, 8, 64, None);
    }

    /// Whatever stands behind the last label is taken for a packet (RFC 3032, section 2.2). So a
    /// packet must be there, and the label with the bottom-of-stack bit must be the last.
    fn label_is_safe(&mut self, h: &Mpls, next: Option<HeaderChoice>) {
        if self.allowed.types.contains(&ethertype::MPLS) {
            return;
        }
        let last = next != Some(HeaderChoice::Mpls);
        if last && !matches!(next, Some(HeaderChoice::Ipv4 | HeaderChoice::Ipv6)) {
            let why = "behind the last label an IP header has to stand, whose addresses can be \
                       checked; start sonde otg with --allow-ethertype mpls for other frames";
            self.wrong("mpls", why.into());
        }
        let bottom = u128::from(last);
        let said = FieldValues::of(h.bottom_of_stack.as_ref(), 1, bottom, Some(bottom));
        if said.is_ok_and(|said| !said.within(&[(bottom, bottom)])) {
            let why = format!(
                "is {bottom} here; start sonde otg with --allow-ethertype mpls for other frames"
            );
            self.wrong("mpls.bottom_of_stack", why);
        }
    }

    fn ipv4(&mut self, h: &Ipv4, next: Option<HeaderChoice>) {
        let at = self.room(20);
        let octet = at / 8;
        let [source, destination] = self.addresses();
        self.ip = Some(octet);
        self.field("ipv4.version", &h.version, at, 4, 4, None);
        self.field("ipv4.header_length", &h.header_length, at + 4, 4, 5, Some(5));
        self.priority(h.priority.as_ref(), at + 8);
        self.length("ipv4.total_length", &h.total_length, octet + 2, octet, 46);
        self.field("ipv4.identification", &h.identification, at + 32, 16, 0, None);
        self.field("ipv4.reserved", &h.reserved, at + 48, 1, 0, None);
        self.field("ipv4.dont_fragment", &h.dont_fragment, at + 49, 1, 0, None);
        self.field("ipv4.more_fragments", &h.more_fragments, at + 50, 1, 0, None);
        self.field("ipv4.fragment_offset", &h.fragment_offset, at + 51, 13, 0, None);
        self.field("ipv4.time_to_live", &h.time_to_live, at + 64, 8, 64, None);
        self.field("ipv4.protocol", &h.protocol, at + 72, 8, 61, Some(protocol_of(next, 61)));
        let sum = h.header_checksum.as_ref();
        if let Some(wrong) = self.checksum("ipv4.header_checksum", sum, at + 80) {
            self.fixes.push(Fix::Ipv4 { at: octet, wrong });
        }
        self.address("ipv4.src", &h.src, at + 96, 32, source);
        self.address("ipv4.dst", &h.dst, at + 128, 32, destination);
    }

    fn priority(&mut self, priority: Option<&Priority>, at: usize) {
        let Some(p) = priority else { return };
        match p.choice {
            PriorityChoice::Raw => self.field("ipv4.priority.raw", &p.raw, at, 8, 0, None),
            PriorityChoice::Tos => {
                let t = p.tos.clone().unwrap_or_default();
                for (name, pattern, offset, width) in [
                    ("precedence", &t.precedence, 0, 3),
                    ("delay", &t.delay, 3, 1),
                    ("throughput", &t.throughput, 4, 1),
                    ("reliability", &t.reliability, 5, 1),
                    ("monetary", &t.monetary, 6, 1),
                    ("unused", &t.unused, 7, 1),
                ] {
                    let name = format!("ipv4.priority.tos.{name}");
                    self.field(&name, pattern, at + offset, width, 0, None);
                }
            }
            PriorityChoice::Dscp => {
                let d = p.dscp.clone().unwrap_or_default();
                self.field("ipv4.priority.dscp.phb", &d.phb, at, 6, 0, None);
                self.field("ipv4.priority.dscp.ecn", &d.ecn, at + 6, 2, 0, None);
            }
        }
    }

    fn ipv6(&mut self, h: &Ipv6, next: Option<HeaderChoice>) {
        let at = self.room(40);
        let octet = at / 8;
        let [source, destination] = self.addresses();
        self.ip = Some(octet);
        self.field("ipv6.version", &h.version, at, 4, 6, None);
        self.field("ipv6.traffic_class", &h.traffic_class, at + 4, 8, 0, None);
        self.field("ipv6.flow_label", &h.flow_label, at + 12, 20, 0, None);
        self.length("ipv6.payload_length", &h.payload_length, octet + 4, octet + 40, 0);
        self.field("ipv6.next_header", &h.next_header, at + 48, 8, 59, Some(protocol_of(next, 59)));
        self.field("ipv6.hop_limit", &h.hop_limit, at + 56, 8, 64, None);
        self.address("ipv6.src", &h.src, at + 64, 128, source);
        self.address("ipv6.dst", &h.dst, at + 192, 128, destination);
    }

    /// Source and destination of the devices, for the outermost IP header, which is theirs.
    fn addresses(&self) -> [Option<u128>; 2] {
        match self.ends.filter(|_| self.ip.is_none()) {
            Some(ends) => [Some(address_bits(ends.source)), Some(address_bits(ends.destination))],
            None => [None, None],
        }
    }

    fn udp(&mut self, h: &Udp) {
        let at = self.room(8);
        let octet = at / 8;
        self.field("udp.src_port", &h.src_port, at, 16, 0, None);
        self.field("udp.dst_port", &h.dst_port, at + 16, 16, 0, None);
        self.length("udp.length", &h.length, octet + 4, octet, 0);
        self.transport("udp.checksum", h.checksum.as_ref(), octet, octet + 6, PROTOCOL_UDP);
    }

    fn vxlan(&mut self, h: &Vxlan) {
        let at = self.room(8);
        // The bit that says that the identifier is one (RFC 7348, section 5).
        self.field("vxlan.flags", &h.flags, at, 8, 8, None);
        self.field("vxlan.reserved0", &h.reserved0, at + 8, 24, 0, None);
        self.field("vxlan.vni", &h.vni, at + 32, 24, 0, Some(0));
        self.field("vxlan.reserved1", &h.reserved1, at + 56, 8, 0, None);
    }

    fn tcp(&mut self, h: &Tcp) {
        let at = self.room(20);
        let octet = at / 8;
        for (name, pattern, offset, width, default) in [
            ("src_port", &h.src_port, 0, 16, 0),
            ("dst_port", &h.dst_port, 16, 16, 0),
            ("seq_num", &h.seq_num, 32, 32, 0),
            ("ack_num", &h.ack_num, 64, 32, 0),
            ("data_offset", &h.data_offset, 96, 4, 5),
            ("ecn_ns", &h.ecn_ns, 103, 1, 0),
            ("ecn_cwr", &h.ecn_cwr, 104, 1, 0),
            ("ecn_echo", &h.ecn_echo, 105, 1, 0),
            ("ctl_urg", &h.ctl_urg, 106, 1, 0),
            ("ctl_ack", &h.ctl_ack, 107, 1, 0),
            ("ctl_psh", &h.ctl_psh, 108, 1, 0),
            ("ctl_rst", &h.ctl_rst, 109, 1, 0),
            ("ctl_syn", &h.ctl_syn, 110, 1, 0),
            ("ctl_fin", &h.ctl_fin, 111, 1, 0),
            ("window", &h.window, 112, 16, 0),
        ] {
            self.field(&format!("tcp.{name}"), pattern, at + offset, width, default, None);
        }
        self.transport("tcp.checksum", h.checksum.as_ref(), octet, octet + 16, PROTOCOL_TCP);
    }

    /// RFC 6815 is for addresses that can be seen: octets of the client's own may only stand
    /// behind an IP header.
    fn custom(&mut self, custom: Option<&Custom>) {
        let Some(custom) = custom else { return self.wrong("custom", "is missing".into()) };
        if self.ip.is_none() {
            let why = "may only stand behind an IP header, whose addresses can be checked";
            return self.wrong("custom", why.into());
        }
        let text: String = custom.bytes.chars().filter(|c| !matches!(c, ' ' | ':')).collect();
        match hex(text.trim_start_matches("0x").trim_start_matches("0X")) {
            Ok(octets) if self.octets.len() + octets.len() <= HEADERS_MAX => {
                self.octets.extend(octets);
            }
            Ok(_) => {
                self.wrong("custom.bytes", format!("headers have at most {HEADERS_MAX} octets"))
            }
            Err(e) => self.wrong("custom.bytes", e),
        }
    }

    /// Appends zeros for a header. Where they begin, in bits.
    fn room(&mut self, octets: usize) -> usize {
        let at = self.octets.len();
        if at + octets > HEADERS_MAX {
            self.wrong("", format!("headers have at most {HEADERS_MAX} octets"));
        }
        self.octets.resize(at + octets, 0);
        at * 8
    }

    fn field<T: FieldValue>(
        &mut self,
        name: &str,
        pattern: &Option<FieldPattern<T>>,
        at: usize,
        width: u32,
        default: u128,
        auto: Option<u128>,
    ) {
        match FieldValues::of(pattern.as_ref(), width, default, auto) {
            Ok(values) => self.put(at, width, values),
            Err(e) => self.wrong(name, e),
        }
    }

    /// An EtherType, of the header behind it unless the client gives another.
    fn announce(
        &mut self,
        name: &str,
        pattern: &Option<FieldPattern<Integer>>,
        at: usize,
        next: Option<HeaderChoice>,
    ) {
        let own = u128::from(ethertype::announcing(next));
        match FieldValues::of(pattern.as_ref(), 16, 0xffff, Some(own)) {
            Ok(values) => {
                if let Err(e) = ethertype::check(&values, next, &self.allowed.types) {
                    self.wrong(name, e);
                }
                self.put(at, 16, values);
            }
            Err(e) => self.wrong(name, e),
        }
    }

    fn put(&mut self, at: usize, width: u32, values: FieldValues) {
        set_bits(&mut self.octets, at, width, values.nth(0));
        if !matches!(values, FieldValues::One(_)) {
            self.varying.push(Varying { at, width, values });
        }
    }

    /// An address is checked: traffic of a benchmark that goes astray does harm (RFC 6815).
    fn address<T: FieldValue>(
        &mut self,
        name: &str,
        pattern: &Option<FieldPattern<T>>,
        at: usize,
        width: u32,
        auto: Option<u128>,
    ) {
        match FieldValues::of(pattern.as_ref(), width, 0, auto) {
            Ok(values) => {
                let [v4, v6] = BENCHMARK_PREFIXES;
                let own = if width == 32 { v4 } else { v6 };
                if !values.within(&self.allowed.ranges(width == 32)) {
                    let why = format!(
                        "outside {own}, the addresses for benchmarks (RFC 6815); start sonde otg \
                         with --allow PREFIX if the network is a laboratory's"
                    );
                    self.wrong(name, why);
                }
                self.put(at, width, values);
            }
            Err(e) => self.wrong(name, e),
        }
    }

    /// A length, right unless the client gives one. `at` and `from` in octets.
    fn length<T: FieldValue>(
        &mut self,
        name: &str,
        pattern: &Option<FieldPattern<T>>,
        at: usize,
        from: usize,
        default: u128,
    ) {
        use sonde_server::otg::pattern::PatternChoice::Auto;
        match pattern {
            None => self.fixes.push(Fix::Length { at, from }),
            Some(p) if p.choice == Auto => self.fixes.push(Fix::Length { at, from }),
            given => self.field(name, given, at * 8, 16, default, None),
        }
    }

    /// A checksum. Whether it is to be made wrong; `None`: it is the client's.
    fn checksum(&mut self, name: &str, sum: Option<&ChecksumPattern>, at: usize) -> Option<bool> {
        let sum = sum.cloned().unwrap_or_default();
        match (sum.choice, sum.custom) {
            (ChecksumChoice::Generated, _) => return Some(sum.generated == Generated::Bad),
            (ChecksumChoice::Custom, Some(n)) if n.0 <= 0xffff => {
                self.put(at, 16, FieldValues::One(n.0.into()));
            }
            (ChecksumChoice::Custom, _) => self.wrong(name, "custom: an integer of 16 bits".into()),
        }
        None
    }

    fn transport(
        &mut self,
        name: &str,
        sum: Option<&ChecksumPattern>,
        at: usize,
        field: usize,
        protocol: u8,
    ) {
        match (self.ip, self.checksum(name, sum, field * 8)) {
            (Some(ip), Some(wrong)) => {
                self.fixes.push(Fix::Transport { at, field, ip, protocol, wrong });
            }
            (None, Some(_)) => self.wrong(name, "there is no IP header before it".into()),
            (_, None) => {}
        }
    }

    fn wrong(&mut self, name: &str, why: String) {
        let dot = if name.is_empty() { "" } else { "." };
        self.errors.push(format!("{}{dot}{name}: {why}", self.path));
    }
}

/// The IP protocol that announces a header.
fn protocol_of(next: Option<HeaderChoice>, default: u128) -> u128 {
    match next {
        Some(HeaderChoice::Udp) => PROTOCOL_UDP.into(),
        Some(HeaderChoice::Tcp) => PROTOCOL_TCP.into(),
        Some(HeaderChoice::Ipv4) => 4,
        Some(HeaderChoice::Ipv6) => 41,
        _ => default,
    }
}

/// Fills up to `len` octets.
fn fill(template: &mut Vec<u8>, len: usize, payload: &Payload) -> Result<(), String> {
    let room = len.saturating_sub(template.len());
    let octets = |w: u16| w.to_be_bytes();
    match payload.choice {
        PayloadChoice::Fixed => {
            let (pattern, repeat) = match &payload.fixed {
                Some(fixed) => (hex(&fixed.pattern)?, fixed.repeat),
                None => (vec![0], true),
            };
            if pattern.is_empty() {
                return Err("fixed.pattern: is empty".into());
            }
            let times = if repeat { room.div_ceil(pattern.len()) } else { 1 };
            template.extend(pattern.iter().cycle().take(room.min(pattern.len() * times)));
        }
        PayloadChoice::IncrementByte => template.extend((0..=255u8).cycle().take(room)),
        PayloadChoice::DecrementByte => template.extend((0..=255u8).rev().cycle().take(room)),
        PayloadChoice::IncrementWord => {
            template.extend((0..=u16::MAX).cycle().flat_map(octets).take(room));
        }
        PayloadChoice::DecrementWord => {
            template.extend((0..=u16::MAX).rev().cycle().flat_map(octets).take(room));
        }
    }
    template.resize(len.max(template.len()), 0);
    Ok(())
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("'{text}' is not hexadecimal, two digits an octet");
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return Err(wrong());
    }
    let octet = |i: usize| u8::from_str_radix(&text[i..i + 2], 16);
    (0..text.len()).step_by(2).map(octet).collect::<Result<_, _>>().map_err(|_| wrong())
}

/// Octets of all headers together.
const HEADERS_MAX: usize = 512;

#[cfg(test)]
mod tests;

//! The truth about flows as CSV, in the columns of CESNET's FlowTest. So its analyzer can
//! judge what was made here, and `sonde flow verify` what FlowTest made.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use sonde_meter::traffic::{FlowSideTruth, FlowTruth, TrafficApp, write_name};

use super::settings::TruthForm;
use crate::error::RunError;
use crate::running::Context;
use crate::sink::{Sink, Unsaved};

/// A file of flows, or a mere count of them.
pub(super) struct TruthFile {
    sink: Option<Sink<Box<dyn Write + Send>>>,
    form: TruthForm,
    line: Vec<u8>,
    flows: u64,
}

/// How the truth has ended.
pub(super) struct FinishedTruth {
    /// Flows that it is about.
    pub flows: u64,
    /// The reader of its pipe has left before its end.
    pub unread: bool,
    /// What is not in it.
    pub unsaved: Option<Unsaved>,
}

impl TruthFile {
    /// With its header, if there is a path; `-` is the context's standard output.
    pub fn create(
        path: Option<&Path>,
        context: &Context,
        form: TruthForm,
    ) -> Result<Self, RunError> {
        let open = |path| Sink::create(path, context.stdout, &context.stop);
        let sink = path.map(open).transpose()?;
        let mut truth = TruthFile { sink, form, line: Vec::with_capacity(512), flows: 0 };
        truth.line.extend(header(form).as_bytes());
        truth.write_line();
        Ok(truth)
    }

    /// Writes the line of a flow.
    pub fn add(&mut self, flow: &FlowTruth) {
        self.flows += 1;
        if self.sink.is_none() {
            return;
        }
        match self.form {
            TruthForm::Biflow => biflow(&mut self.line, flow),
            form => {
                uniflow(&mut self.line, flow, false, form);
                if flow.reverse.packets > 0 {
                    self.line.push(b'\n');
                    uniflow(&mut self.line, flow, true, form);
                }
            }
        }
        self.write_line();
    }

    /// Writes the rest.
    pub fn finish(self) -> FinishedTruth {
        let mut finished = FinishedTruth { flows: self.flows, unread: false, unsaved: None };
        if let Some(mut sink) = self.sink {
            sink.flush();
            finished.unread = sink.is_unread();
            finished.unsaved = sink.finish().err();
        }
        finished
    }

    fn write_line(&mut self) {
        self.line.push(b'\n');
        if let Some(sink) = &mut self.sink {
            sink.push(&self.line);
        }
        self.line.clear();
    }
}

/// The names of the columns.
fn header(form: TruthForm) -> &'static str {
    match form {
        TruthForm::Uniflow => {
            "START_TIME,END_TIME,PROTOCOL,SRC_IP,DST_IP,SRC_PORT,DST_PORT,PACKETS,BYTES"
        }
        TruthForm::Full => {
            "START_TIME,END_TIME,PROTOCOL,SRC_IP,DST_IP,SRC_PORT,DST_PORT,PACKETS,BYTES,\
             START_NS,END_NS,TCP_FLAGS,TOS,TTL,VLAN,ICMP,INITIATOR,APP,NAME"
        }
        TruthForm::Biflow => {
            "SRC_IP,DST_IP,START_TIME,END_TIME,START_TIME_REV,END_TIME_REV,L3_PROTO,L4_PROTO,\
             SRC_PORT,DST_PORT,PACKETS,BYTES,PACKETS_REV,BYTES_REV"
        }
    }
}

fn uniflow(line: &mut Vec<u8>, flow: &FlowTruth, reverse: bool, form: TruthForm) {
    let which = usize::from(reverse);
    let ends = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
    let (from, to) = (ends[which], ends[1 - which]);
    let side = if reverse { &flow.reverse } else { &flow.forward };
    for ns in [side.first_ns, side.last_ns] {
        write_decimal(line, ns.max(0) as u64 / 1_000_000);
        line.push(b',');
    }
    write_decimal(line, flow.protocol.into());
    for end in [from, to] {
        line.push(b',');
        address(line, end.0);
    }
    for value in [from.1.into(), to.1.into(), side.packets.into(), side.bytes] {
        line.push(b',');
        write_decimal(line, value);
    }
    if form != TruthForm::Full {
        return;
    }
    for value in [
        side.first_ns.max(0) as u64,
        side.last_ns.max(0) as u64,
        side.tcp_flags.into(),
        flow.tos.into(),
        flow.ttl[which].into(),
        flow.vlan.into(),
    ] {
        line.push(b',');
        write_decimal(line, value);
    }
    line.push(b',');
    if let Some(icmp) = flow.icmp {
        write_decimal(line, icmp[which].into());
    }
    line.extend(if reverse { b",0," } else { b",1," });
    line.extend(flow.app.name().as_bytes());
    line.push(b',');
    if flow.app != TrafficApp::None {
        write_name(flow.index, line).expect("memory takes all");
    }
}

fn biflow(line: &mut Vec<u8>, flow: &FlowTruth) {
    for end in [flow.source, flow.destination] {
        address(line, end);
        line.push(b',');
    }
    // Of a direction without packets: 0, as FlowTest's generator has it.
    let times = |side: &FlowSideTruth| match side.packets {
        0 => [0; 2],
        _ => [side.first_ns.max(0) as u64, side.last_ns.max(0) as u64],
    };
    for ns in [times(&flow.forward), times(&flow.reverse)].concat() {
        write_decimal(line, ns / 1_000_000);
        // Milliseconds with a decimal point; the fraction has six digits.
        line.push(b'.');
        let fraction = ns % 1_000_000;
        let mut digit = 100_000;
        while digit > 0 {
            line.push(b'0' + (fraction / digit % 10) as u8);
            digit /= 10;
        }
        line.push(b',');
    }
    let (forward, reverse) = (&flow.forward, &flow.reverse);
    let values = [
        if flow.source.is_ipv4() { 4 } else { 6 },
        flow.protocol.into(),
        flow.source_port.into(),
        flow.destination_port.into(),
        forward.packets.into(),
        forward.bytes,
        reverse.packets.into(),
        reverse.bytes,
    ];
    for (i, value) in values.into_iter().enumerate() {
        if i > 0 {
            line.push(b',');
        }
        write_decimal(line, value);
    }
}

/// Decimal digits, without the machinery of `write!`: there may be a million flows a second.
fn write_decimal(line: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    line.extend(&digits[at..]);
}

fn address(line: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(a) => {
            for (i, octet) in a.octets().into_iter().enumerate() {
                if i > 0 {
                    line.push(b'.');
                }
                write_decimal(line, octet.into());
            }
        }
        IpAddr::V6(a) => write!(line, "{a}").expect("memory takes all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowTruth {
        let side = |packets, bytes, first_ns, last_ns, tcp_flags| FlowSideTruth {
            packets,
            bytes,
            first_ns,
            last_ns,
            tcp_flags,
        };
        FlowTruth {
            source: "198.18.0.7".parse().unwrap(),
            destination: "198.19.255.1".parse().unwrap(),
            source_port: 50_000,
            destination_port: 443,
            protocol: 6,
            forward: side(3, 180, 1_700_000_000_001_999_999, 1_700_000_000_005_000_001, 0x1B),
            reverse: side(1, 60, 1_700_000_000_002_000_000, 1_700_000_000_002_000_000, 0x12),
            tos: 0x28,
            ttl: [63, 120],
            vlan: 100,
            icmp: None,
            app: TrafficApp::Tls,
            index: 0x2A,
        }
    }

    #[test]
    fn lines_are_flowtests() {
        let mut line = Vec::new();
        uniflow(&mut line, &flow(), false, TruthForm::Uniflow);
        line.push(b'\n');
        uniflow(&mut line, &flow(), true, TruthForm::Full);
        line.push(b'\n');
        biflow(&mut line, &flow());
        assert_eq!(
            String::from_utf8(line).unwrap(),
            "1700000000001,1700000000005,6,198.18.0.7,198.19.255.1,50000,443,3,180\n\
             1700000000002,1700000000002,6,198.19.255.1,198.18.0.7,443,50000,1,60,\
             1700000000002000000,1700000000002000000,18,40,120,100,,0,tls,h2a.sonde.example\n\
             198.18.0.7,198.19.255.1,1700000000001.999999,1700000000005.000001,\
             1700000000002.000000,1700000000002.000000,4,6,50000,443,3,180,1,60"
        );
    }

    #[test]
    fn every_line_has_the_columns_of_its_header() {
        for form in [TruthForm::Full, TruthForm::Uniflow, TruthForm::Biflow] {
            let mut line = Vec::new();
            match form {
                TruthForm::Biflow => biflow(&mut line, &flow()),
                _ => uniflow(&mut line, &flow(), false, form),
            }
            let commas = |text: &[u8]| text.iter().filter(|b| **b == b',').count();
            assert_eq!(commas(&line), commas(header(form).as_bytes()), "{form:?}");
        }
    }

    #[test]
    fn decimals_are_written_as_by_format() {
        for value in [0, 7, 10, 999, 1_000, u64::MAX] {
            let mut line = Vec::new();
            write_decimal(&mut line, value);
            assert_eq!(String::from_utf8(line).unwrap(), value.to_string());
        }
    }
}

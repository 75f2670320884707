//! The output formats of ePPing (xdp-project/bpf-examples, `pping/README.md`), for those
//! who have tools that read them. `docs/rtt.md` lists what differs.
//!
//! A line names the flow as the answering packet had it: its source is the host whose
//! round trip the line gives, as in ePPing.

use std::fmt::Write as _;
use std::net::IpAddr;

use sonde_results::rtt::{EndReason, FlowKey, RttFlow, RttKind, RttSample};
use sonde_wire::protocol;

/// Which of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EppingFormat {
    /// One line a sample or flow event, for people.
    Standard,
    /// One array of objects, without blanks and line ends.
    Json,
    /// One line a sample, for ppviz; no flow events.
    Ppviz,
}

/// Writes samples and flow events as text, each a whole record.
#[derive(Debug)]
pub struct EppingPrinter {
    dialect: EppingFormat,
    /// What times are ahead of UTC, ns: ePPing's times are UTC.
    utc_offset: i64,
    /// Whether the array has members already.
    begun: bool,
}

impl EppingPrinter {
    /// `utc_offset` (ns) is taken off every time.
    pub fn new(dialect: EppingFormat, utc_offset: i64) -> EppingPrinter {
        EppingPrinter { dialect, utc_offset, begun: false }
    }

    /// As at first, from now on.
    pub fn set_utc_offset(&mut self, ns: i64) {
        self.utc_offset = ns;
    }

    /// What comes before the first record.
    pub fn begin(&self, out: &mut String) {
        if self.dialect == EppingFormat::Json {
            out.push('[');
        }
    }

    /// One sample; before it, if it is of a handshake, the event that the flow opened.
    pub fn sample(&mut self, out: &mut String, sample: &RttSample) {
        // ePPing reports a flow's opening when the first answer comes, with the time and
        // the name of the packet that was answered.
        let opened_by = match sample.kind {
            RttKind::TcpHandshakeServer => Some("SYN"),
            RttKind::TcpHandshakeClient => Some("SYN-ACK"),
            _ => None,
        };
        if let Some(reason) = opened_by {
            let event = Event { kind: "opening", reason, by: "dest" };
            self.event(out, sample.at_ns.saturating_sub(sample.rtt_ns as i64), &sample.flow, event);
        }
        let utc = sample.at_ns.saturating_sub(self.utc_offset);
        // Without a clean sample so far, this one is the least.
        let min = if sample.min_rtt_ns == 0 { sample.rtt_ns } else { sample.min_rtt_ns };
        // Writing into a String cannot fail.
        let _ = match self.dialect {
            EppingFormat::Standard => writeln!(
                out,
                "{} {} ms {} ms {} {}",
                Clock(utc),
                Decimal { value: sample.rtt_ns, digits: 6 },
                Decimal { value: min, digits: 6 },
                EppingProtocol(sample.flow.protocol),
                Ends(&sample.flow)
            ),
            EppingFormat::Ppviz => writeln!(
                out,
                "{} {} {} {}",
                Decimal { value: utc.max(0) as u64, digits: 9 },
                Decimal { value: sample.rtt_ns, digits: 9 },
                Decimal { value: min, digits: 9 },
                Ends(&sample.flow)
            ),
            EppingFormat::Json => {
                self.object(out, utc, &sample.flow);
                write!(
                    out,
                    ",\"rtt\":{},\"min_rtt\":{min},\"sent_packets\":{},\"sent_bytes\":{},\
                     \"rec_packets\":{},\"rec_bytes\":{},\"match_on_egress\":null}}",
                    sample.rtt_ns,
                    sample.peer_packets,
                    sample.peer_bytes,
                    sample.packets,
                    sample.bytes
                )
            }
        };
    }

    /// The end of a flow: one event for each direction, as ePPing has them. A flow that
    /// was open when the measurement ended has none.
    pub fn flow(&mut self, out: &mut String, flow: &RttFlow) {
        let (reason, by) = match flow.reason {
            EndReason::Open | EndReason::Stopped => return,
            EndReason::Fin => ("FIN", "dest"),
            // A record does not keep which side it was.
            EndReason::Reset => ("RST", "unknown"),
            EndReason::Reuse => ("SYN", "unknown"),
            EndReason::Idle => ("flow timeout", "garbage collection"),
            EndReason::Evicted => ("unknown", "garbage collection"),
        };
        let event = Event { kind: "closing", reason, by };
        for (packets, key) in
            [(flow.forward.packets, flow.flow.reversed()), (flow.backward.packets, flow.flow)]
        {
            if packets > 0 {
                self.event(out, flow.end_ns, &key, event);
            }
        }
    }

    /// What comes after the last record.
    pub fn end(&self, out: &mut String) {
        if self.dialect == EppingFormat::Json {
            out.push_str("]\n");
        }
    }

    fn event(&mut self, out: &mut String, at_ns: i64, flow: &FlowKey, event: Event) {
        let utc = at_ns.saturating_sub(self.utc_offset);
        let Event { kind, reason, by } = event;
        let _ = match self.dialect {
            EppingFormat::Ppviz => Ok(()),
            EppingFormat::Standard => writeln!(
                out,
                "{} {} {} {kind} due to {reason} from {by}",
                Clock(utc),
                EppingProtocol(flow.protocol),
                Ends(flow)
            ),
            EppingFormat::Json => {
                self.object(out, utc, flow);
                write!(
                    out,
                    ",\"flow_event\":\"{kind}\",\"reason\":\"{reason}\",\"triggered_by\":\"{by}\"}}"
                )
            }
        };
    }

    /// An object with the members that all have, left open.
    fn object(&mut self, out: &mut String, utc: i64, flow: &FlowKey) {
        if std::mem::replace(&mut self.begun, true) {
            out.push(',');
        }
        let _ = write!(
            out,
            "{{\"timestamp\":{utc},\"src_ip\":\"{}\",\"src_port\":{},\"dest_ip\":\"{}\",\
             \"dest_port\":{},\"protocol\":\"{}\"",
            flow.source,
            flow.source_port,
            flow.destination,
            flow.destination_port,
            EppingProtocol(flow.protocol)
        );
    }
}

/// The name of an IP protocol, as ePPing writes it; the protocol number where it has none.
#[derive(Clone, Copy, Debug)]
pub struct EppingProtocol(pub u8);

impl std::fmt::Display for EppingProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match protocol::name(self.0) {
            Some(name) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

#[derive(Clone, Copy)]
struct Event {
    kind: &'static str,
    reason: &'static str,
    by: &'static str,
}

/// `source:port+destination:port`; IPv6 addresses without brackets.
struct Ends<'a>(&'a FlowKey);

impl std::fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FlowKey { source, source_port, destination, destination_port, .. } = self.0;
        let end =
            |f: &mut std::fmt::Formatter<'_>, ip: &IpAddr, port: &u16| write!(f, "{ip}:{port}");
        end(f, source, source_port)?;
        f.write_str("+")?;
        end(f, destination, destination_port)
    }
}

/// Time of the day, UTC, to the nanosecond.
struct Clock(i64);

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of_day = self.0.rem_euclid(86_400_000_000_000);
        let (seconds, ns) = (of_day / 1_000_000_000, of_day % 1_000_000_000);
        write!(f, "{:02}:{:02}:{:02}.{ns:09}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

/// `value` nanoseconds in a unit of 10^`digits` of them, all digits written.
struct Decimal {
    value: u64,
    digits: u32,
}

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10u64.pow(self.digits);
        write!(
            f,
            "{}.{:0width$}",
            self.value / unit,
            self.value % unit,
            width = self.digits as usize
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sonde_results::testing::{golden, rtt as sample};

    fn print(dialect: EppingFormat) -> String {
        let mut printer = EppingPrinter::new(dialect, 37_000_000_000);
        let mut text = String::new();
        printer.begin(&mut text);
        for sample in sample::samples() {
            printer.sample(&mut text, &sample);
        }
        for flow in sample::flows() {
            printer.flow(&mut text, &flow);
        }
        printer.end(&mut text);
        text
    }

    #[test]
    fn the_standard_format() {
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/standard.txt"),
            &print(EppingFormat::Standard),
        );
    }

    #[test]
    fn the_ppviz_format_has_times_and_flows_only() {
        golden(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/ppviz.txt"),
            &print(EppingFormat::Ppviz),
        );
    }

    #[test]
    fn the_json_format_is_one_array_of_epping_objects() {
        let text = print(EppingFormat::Json);
        golden(concat!(env!("CARGO_MANIFEST_DIR"), "/src/rtt/golden/epping.json"), &text);
        let parsed: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let events = parsed.iter().filter(|o| o.get("flow_event").is_some()).count();
        assert_eq!(parsed.len() - events, sample::samples().len());
        assert_eq!(parsed[1]["rtt"], sample::samples()[0].rtt_ns);
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn nothing_measured_is_an_empty_array() {
        let mut text = String::new();
        let printer = EppingPrinter::new(EppingFormat::Json, 0);
        printer.begin(&mut text);
        printer.end(&mut text);
        assert_eq!(text, "[]\n");
    }
}

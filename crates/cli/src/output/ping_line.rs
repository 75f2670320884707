//! One line for one packet, as `ping` prints them.

use std::net::SocketAddr;

use sonde_results::units::{format_dscp, format_ns};
use sonde_wire::NotSent;

/// What became of one probe.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketEvent {
    pub destination: SocketAddr,
    pub dscp: u8,
    pub seq: u32,
    pub outcome: PingOutcome,
}

/// How a probe ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PingOutcome {
    Reply {
        /// Length of the reply's IP packet, bytes.
        length: u16,
        /// T4-T1, ns.
        rtt: i64,
        /// T3-T2, the reflector's dwell, ns.
        dwell: i64,
        /// T2-T1 and T4-T3, ns, where both clocks are synchronised.
        one_way: Option<(i64, i64)>,
        /// TTL or hop limit of the reply; `None`: the engine does not see it.
        ttl: Option<u8>,
        /// It repeats an earlier reply.
        duplicate: bool,
    },
    /// It never left this host.
    NotSent { why: NotSent },
    /// Not answered within the timeout, ns.
    Lost {
        timeout: i64,
        /// What a host or router last said of this destination.
        why: Option<String>,
    },
}

/// The line for `event`, without its end.
pub fn format(event: &PacketEvent) -> String {
    let PacketEvent { destination, dscp, seq, outcome } = event;
    match *outcome {
        PingOutcome::NotSent { why } => format!(
            "not sent to {destination}: seq={seq} {} dscp={}",
            why.text(),
            format_dscp(*dscp)
        ),
        PingOutcome::Lost { timeout, ref why } => format!(
            "no reply from {destination}: seq={seq} after {} dscp={}{}",
            format_ns(timeout as f64),
            format_dscp(*dscp),
            why.as_ref().map_or(String::new(), |why| format!(" ({why})"))
        ),
        PingOutcome::Reply { length, rtt, dwell, one_way, ttl, duplicate } => {
            let mut line = format!(
                "{length} bytes from {destination}: seq={seq} rtt={} (net {})",
                format_ns(rtt as f64),
                format_ns((rtt - dwell) as f64)
            );
            if let Some((forward, backward)) = one_way {
                line.push_str(&format!(
                    " fwd={} bwd={}",
                    format_ns(forward as f64),
                    format_ns(backward as f64)
                ));
            }
            if let Some(ttl) = ttl {
                line.push_str(&format!(" ttl={ttl}"));
            }
            line.push_str(&format!(" dscp={}", format_dscp(*dscp)));
            if duplicate {
                line.push_str(" (duplicate)");
            }
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut event = PacketEvent {
            destination: "10.2.0.1:862".parse().unwrap(),
            dscp: 46,
            seq: 12,
            outcome: PingOutcome::Reply {
                length: 150,
                rtt: 31_400,
                dwell: 1_600,
                one_way: Some((15_000, 14_800)),
                ttl: Some(254),
                duplicate: false,
            },
        };
        assert_eq!(
            format(&event),
            "150 bytes from 10.2.0.1:862: seq=12 rtt=31.4 us (net 29.8 us) fwd=15.0 us bwd=14.8 us ttl=254 dscp=EF"
        );
        event.outcome = PingOutcome::Reply {
            length: 92,
            rtt: 31_400,
            dwell: 1_600,
            one_way: None,
            ttl: None,
            duplicate: true,
        };
        event.destination = "[2001:db8::1]:862".parse().unwrap();
        assert_eq!(
            format(&event),
            "92 bytes from [2001:db8::1]:862: seq=12 rtt=31.4 us (net 29.8 us) dscp=EF (duplicate)"
        );
        event.outcome = PingOutcome::NotSent { why: NotSent::LinkDown };
        assert_eq!(format(&event), "not sent to [2001:db8::1]:862: seq=12 link down dscp=EF");
        event.outcome = PingOutcome::Lost { timeout: 2_000_000_000, why: None };
        assert_eq!(format(&event), "no reply from [2001:db8::1]:862: seq=12 after 2.00 s dscp=EF");
        event.outcome =
            PingOutcome::Lost { timeout: 2_000_000_000, why: Some("the port is closed".into()) };
        assert!(format(&event).ends_with("dscp=EF (the port is closed)"));
    }
}

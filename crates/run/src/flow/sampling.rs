//! How packets are sampled (PSAMP, RFC 5475), as it is typed.

use std::fmt;
use std::str::FromStr;

use sonde_meter::flow::sampling::HashFunction;
use sonde_results::units::parse_positive_duration;
use sonde_wire::protocol;

/// A way to sample, as typed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// `n/N`: so many in a row of each N.
    Count(u32, u32),
    /// `random:n/N`: so many of each N, at random.
    Random(u32, u32),
    /// `flow:n/N`: about so many of N flows, each whole, by a hash.
    Flow(u32, u32),
    /// `packet:n/N`, `ipsx:n/N`, `crc:n/N`: about so many of N packets, the same at every
    /// observation point, by a hash.
    Packet(HashFunction, u32, u32),
    /// `time:ON/PERIOD`: all packets of so much time in each period, us.
    Time(u32, u32),
}

impl FromStr for Sampling {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no way to sample; write 1/100, random:1/100, flow:1/100, \
                 packet:1/100, ipsx:1/100, crc:1/100 or time:100ms/1s"
            )
        };
        let (kind, ratio) = text.split_once(':').unwrap_or(("", text));
        let (part, whole) = ratio.split_once('/').ok_or_else(wrong)?;
        if kind == "time" {
            let us = |t: &str| {
                let ns = parse_positive_duration(t).ok()?;
                u32::try_from(ns / 1_000).ok().filter(|us| *us > 0)
            };
            return match (us(part), us(whole)) {
                (Some(on), Some(period)) if on <= period => Ok(Sampling::Time(on, period)),
                _ => Err(wrong()),
            };
        }
        let count = |t: &str| t.parse::<u32>().ok().filter(|n| *n > 0);
        let (n, of) = match (count(part), count(whole)) {
            (Some(n), Some(of)) if n <= of => (n, of),
            _ => return Err(wrong()),
        };
        Ok(match kind {
            "" => Sampling::Count(n, of),
            "random" => Sampling::Random(n, of),
            "flow" => Sampling::Flow(n, of),
            "packet" => Sampling::Packet(HashFunction::Bob, n, of),
            "ipsx" => Sampling::Packet(HashFunction::Ipsx, n, of),
            "crc" => Sampling::Packet(HashFunction::Crc32, n, of),
            _ => return Err(wrong()),
        })
    }
}

/// In the syntax of `--sample`.
impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::Count(n, of) => write!(f, "{n}/{of}"),
            Sampling::Random(n, of) => write!(f, "random:{n}/{of}"),
            Sampling::Flow(n, of) => write!(f, "flow:{n}/{of}"),
            Sampling::Packet(HashFunction::Bob, n, of) => write!(f, "packet:{n}/{of}"),
            Sampling::Packet(HashFunction::Ipsx, n, of) => write!(f, "ipsx:{n}/{of}"),
            Sampling::Packet(HashFunction::Crc32, n, of) => write!(f, "crc:{n}/{of}"),
            Sampling::Time(on, of) => write!(f, "time:{on}us/{of}us"),
        }
    }
}

impl Sampling {
    /// Whether it depends on a key.
    pub fn has_key(self) -> bool {
        match self {
            Sampling::Flow(..) => true,
            Sampling::Packet(by, ..) => by != HashFunction::Ipsx,
            Sampling::Count(..) | Sampling::Random(..) | Sampling::Time(..) => false,
        }
    }

    /// As "1 of 100 packets, systematic".
    pub fn describe(self) -> String {
        match self {
            Sampling::Count(n, of) => format!("{n} of {of} packets, systematic"),
            Sampling::Random(n, of) => format!("{n} of {of} packets, random"),
            Sampling::Flow(n, of) => format!("{n} of {of} flows, by hash"),
            Sampling::Packet(HashFunction::Ipsx, n, of) => {
                format!("{n} of {of} IPv4 packets, by hash")
            }
            Sampling::Packet(_, n, of) => format!("{n} of {of} packets, by hash"),
            Sampling::Time(on, of) => format!("{on} us of each {of} us"),
        }
    }
}

/// An IP protocol, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpProtocol(pub u8);

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for IpProtocol {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        protocol::number(text).or_else(|| text.parse().ok()).map(IpProtocol).ok_or_else(|| {
            format!("'{text}' is no protocol; write tcp, udp, icmp, icmpv6, sctp or a number")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_reads_as_it_is_written() {
        for (text, sampling) in [
            ("1/100", Sampling::Count(1, 100)),
            ("random:5/1000", Sampling::Random(5, 1000)),
            ("flow:1/8", Sampling::Flow(1, 8)),
            ("packet:1/8", Sampling::Packet(HashFunction::Bob, 1, 8)),
            ("ipsx:1/8", Sampling::Packet(HashFunction::Ipsx, 1, 8)),
            ("crc:1/8", Sampling::Packet(HashFunction::Crc32, 1, 8)),
            ("time:100ms/1s", Sampling::Time(100_000, 1_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(sampling));
            assert_eq!(sampling.to_string().parse(), Ok(sampling), "{sampling}");
        }
        for text in ["", "100", "0/1", "2/1", "1/0", "x:1/2", "time:2s/1s", "1/2/3"] {
            assert!(text.parse::<Sampling>().unwrap_err().contains("write 1/100"), "{text}");
        }
        assert_eq!("sctp".parse(), Ok(IpProtocol(132)));
        assert!("tcpp".parse::<IpProtocol>().is_err());
    }
}

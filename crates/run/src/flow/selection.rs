//! Which packets are metered (PSAMP, RFC 5475): as typed, as the meter takes it, as
//! collectors are told.

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use sonde_meter::export;
use sonde_meter::flow::sampling::{
    Filter, HashFunction, HashInput, HashSelector, Selector, Sequence,
};
use sonde_results::units::parse_positive_duration;

use super::settings::Selection;

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
    /// place, by a hash.
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
        let number = |t: &str| t.parse::<u32>().ok().filter(|n| *n > 0);
        let (n, of) = match (number(part), number(whole)) {
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

/// As typed.
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
    /// For people.
    fn describe(self) -> String {
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
        Ok(IpProtocol(match text {
            "icmp" => 1,
            "tcp" => 6,
            "udp" => 17,
            "gre" => 47,
            "esp" => 50,
            "icmpv6" => 58,
            "sctp" => 132,
            number => number.parse().map_err(|_| {
                format!("'{text}' is no protocol; write tcp, udp, icmp, icmpv6, sctp or a number")
            })?,
        }))
    }
}

/// The selectors in their order: what is not wanted goes first, so that samples are of the
/// rest.
pub fn sequence(settings: &Selection, seed: u64) -> Result<Sequence> {
    let mut selectors = Vec::new();
    let filter = Filter {
        protocols: settings.proto.iter().map(|p| p.0).collect(),
        nets: settings.net.iter().map(|p| (p.address, p.bits)).collect(),
        ports: settings.port.clone(),
    };
    if filter != Filter::default() {
        selectors.push(Selector::Filter(filter));
    }
    if let Some(sampling) = settings.sample {
        let hash = |function, input, n: u32, of: u32| {
            let fraction = f64::from(n) / f64::from(of);
            HashSelector::of_fraction(function, input, settings.sample_key, fraction)
        };
        selectors.push(match sampling {
            Sampling::Count(n, of) => Selector::SystematicCount { interval: n, spacing: of - n },
            Sampling::Random(n, of) => Selector::RandomNOutOfN { size: n, population: of },
            Sampling::Time(on, of) => {
                Selector::SystematicTime { interval_us: on, spacing_us: of - on }
            }
            Sampling::Flow(n, of) => {
                Selector::Hash(hash(HashFunction::Bob, HashInput::Flow, n, of)?)
            }
            Sampling::Packet(function, n, of) => {
                let input = match function {
                    HashFunction::Ipsx => HashInput::IPSX,
                    _ => HashInput::Packet { offset: 0, size: HASHED },
                };
                Selector::Hash(hash(function, input, n, of)?)
            }
        });
    }
    Ok(Sequence::new(selectors, seed)?)
}

/// The same in words, for people.
pub fn words(settings: &Selection) -> String {
    let mut words = Vec::new();
    if !settings.proto.is_empty() || !settings.net.is_empty() || !settings.port.is_empty() {
        words.push("filtered".to_string());
    }
    words.extend(settings.sample.map(Sampling::describe));
    if words.is_empty() { "all packets".into() } else { words.join(", ") }
}

/// What collectors are told of the selectors.
pub fn report(sequence: &Sequence) -> Vec<export::Selector> {
    let told = |(i, (selector, counts)): (usize, (&Selector, _))| {
        let counts: sonde_meter::flow::sampling::Selected = counts;
        let algorithm = match *selector {
            Selector::SystematicCount { interval, spacing } => {
                export::SelectorAlgorithm::SystematicCount { interval, space: spacing }
            }
            Selector::SystematicTime { interval_us, spacing_us } => {
                export::SelectorAlgorithm::SystematicTime {
                    interval: interval_us,
                    space: spacing_us,
                }
            }
            Selector::RandomNOutOfN { size, population } => {
                export::SelectorAlgorithm::RandomOutOf { size, population }
            }
            Selector::Uniform { probability } => {
                export::SelectorAlgorithm::Probabilistic { probability }
            }
            Selector::Filter(_) => export::SelectorAlgorithm::PropertyMatch,
            Selector::Hash(hash) => {
                let (payload_offset, payload_size) = match hash.input {
                    HashInput::Packet { offset, size } => (offset.into(), size.into()),
                    HashInput::Flow => (0, 0),
                };
                let [least, most] = hash.selected.map(u64::from);
                export::SelectorAlgorithm::Hash {
                    function: hash.function,
                    payload_offset,
                    payload_size,
                    output: (0, hash.function.most().into()),
                    selected: (least, most),
                    // Who knows it can send packets that are never seen, or always.
                    initialiser: 0,
                }
            }
        };
        export::Selector {
            id: i as u64 + 1,
            algorithm,
            observed: counts.observed,
            selected: counts.selected,
        }
    };
    sequence.report().enumerate().map(told).collect()
}

/// Octets of the payload that a packet's hash takes in (RFC 5475, section 6.2.4.1).
const HASHED: u16 = 8;

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

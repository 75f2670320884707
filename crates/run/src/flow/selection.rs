//! Which packets are metered (PSAMP, RFC 5475): as typed, as the meter takes it, as
//! it is reported to collectors.

use anyhow::Result;
use sonde_meter::export;
use sonde_meter::flow::sampling::{
    HashFunction, HashInput, HashSelector, PropertyFilter, Selector, Sequence,
};

use super::sampling::Sampling;
use super::settings::Selection;

/// The selectors in their order: what is not wanted goes first, so that samples are of the
/// rest.
pub fn sequence(settings: &Selection, seed: u64) -> Result<Sequence> {
    let mut selectors = Vec::new();
    let filter = PropertyFilter {
        protocols: settings.proto.iter().map(|p| p.0).collect(),
        nets: settings.net.iter().map(|p| (p.address, p.bits)).collect(),
        ports: settings.port.clone(),
    };
    if filter != PropertyFilter::default() {
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

/// The same as a text for people.
pub fn describe(settings: &Selection) -> String {
    let mut parts = Vec::new();
    if !settings.proto.is_empty() || !settings.net.is_empty() || !settings.port.is_empty() {
        parts.push("filtered".to_string());
    }
    parts.extend(settings.sample.map(Sampling::describe));
    if parts.is_empty() { "all packets".into() } else { parts.join(", ") }
}

/// What is reported of the selectors to collectors.
pub fn report(sequence: &Sequence) -> Vec<export::ExportSelector> {
    let report = |(i, (selector, counts)): (usize, (&Selector, _))| {
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
        export::ExportSelector {
            id: i as u64 + 1,
            algorithm,
            observed: counts.observed,
            selected: counts.selected,
        }
    };
    sequence.report().enumerate().map(report).collect()
}

/// Octets of the payload that a packet's hash takes in (RFC 5475, section 6.2.4.1).
const HASHED: u16 = 8;

//! Packet selection before metering (PSAMP: RFC 5475, parameters as in RFC 5477).
//!
//! A [`Sequence`] passes each packet through its selectors in turn; what all of them let through is
//! metered. Nothing here scales a count: flow records state what was selected. [`Sequence::scale`]
//! is the factor for an estimate of the whole, which is what the selectors' options records state.

mod bob;
mod crc;
mod filter;
mod hash;
mod ipsx;
#[cfg(test)]
mod tests;

use fastrand::Rng;
use sonde_wire::feature::{Feature, Layers};

pub use filter::PropertyFilter;
pub use hash::{HashFunction, HashInput, HashSelector, MAX_PAYLOAD};

/// How packets are selected.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// Systematic count-based sampling (RFC 5475, section 5.1): so many packets in
    /// succession, then so many not. One in N: interval 1, spacing N - 1.
    SystematicCount {
        /// samplingPacketInterval (305), at least 1.
        interval: u32,
        /// samplingPacketSpace (306).
        spacing: u32,
    },
    /// Systematic time-based sampling (section 5.1): all packets of so much time, then none
    /// for so much. Periods begin with 1970 TAI, so that they are the same everywhere.
    SystematicTime {
        /// samplingTimeInterval (307), us, at least 1.
        interval_us: u32,
        /// samplingTimeSpace (308), us.
        spacing_us: u32,
    },
    /// Random n-out-of-N sampling (section 5.2.1): of each N packets in succession exactly
    /// n, any of them with the same probability.
    RandomNOutOfN {
        /// samplingSize (309), n: 1 to N.
        size: u32,
        /// samplingPopulation (310), N.
        population: u32,
    },
    /// Uniform probabilistic sampling (section 5.2.2.1): each packet by itself.
    Uniform {
        /// samplingProbability (311): more than 0, at most 1.
        probability: f64,
    },
    /// Property match filtering (section 6.1).
    Filter(PropertyFilter),
    /// Hash-based filtering (section 6.2): the same packets wherever they pass.
    Hash(HashSelector),
}

impl Selector {
    /// Of all packets, time or hash values the part that it lets through, by its settings. It is 1
    /// for a filter, which leaves out what is not wanted.
    pub fn fraction(&self) -> f64 {
        let of = |part: u32, rest: u32| f64::from(part) / (f64::from(part) + f64::from(rest));
        match *self {
            Selector::SystematicCount { interval, spacing } => of(interval, spacing),
            Selector::SystematicTime { interval_us, spacing_us } => of(interval_us, spacing_us),
            Selector::RandomNOutOfN { size, population } => f64::from(size) / f64::from(population),
            Selector::Uniform { probability } => probability,
            Selector::Filter(_) => 1.0,
            Selector::Hash(ref hash) => hash.fraction(),
        }
    }

    fn check(&self) -> Result<(), SelectorError> {
        match *self {
            Selector::SystematicCount { interval: 0, .. }
            | Selector::SystematicTime { interval_us: 0, .. } => Err(SelectorError::Interval),
            Selector::RandomNOutOfN { size, population } if size == 0 || size > population => {
                Err(SelectorError::Size { size, population })
            }
            Selector::Uniform { probability } if !(probability > 0.0 && probability <= 1.0) => {
                Err(SelectorError::Probability(probability))
            }
            Selector::Filter(ref filter) => filter.check(),
            Selector::Hash(ref hash) => hash.check(),
            _ => Ok(()),
        }
    }
}

/// A selector that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectorError {
    /// An interval in which nothing is selected.
    #[error("an interval of 0 selects nothing: give at least 1")]
    Interval,
    /// See [`Selector::RandomNOutOfN`].
    #[error("{size} out of {population} packets: give 1 to {population}, such as 1 out of 100")]
    Size {
        /// n.
        size: u32,
        /// N.
        population: u32,
    },
    /// See [`Selector::Uniform`].
    #[error("a probability of {0}: give more than 0 and at most 1, such as 0.01")]
    Probability(f64),
    /// See [`HashSelector`].
    #[error("hash values {0:#x} to {1:#x} are none: give the smaller one first, IPSX has 16 bits")]
    Range(u32, u32),
    /// See [`HashSelector`].
    #[error("IPSX has its own input and no key: leave the key out, or take another hash")]
    Ipsx,
    /// See [`HashInput::Packet`].
    #[error("{0} octets of payload: give at most {MAX_PAYLOAD}")]
    Payload(u16),
    /// See [`PropertyFilter::nets`].
    #[error("{0}/{1} is no prefix: give at most /32 for IPv4, /128 for IPv6")]
    Net(std::net::IpAddr, u8),
    /// One of the lists of a [`PropertyFilter`].
    #[error("{0} {1} in a filter: give at most 8")]
    List(usize, &'static str),
    /// See [`Sequence::new`].
    #[error("{0} selectors: give at most {MAX_SELECTORS}")]
    Selectors(usize),
}

/// What a selector saw and let through since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selected {
    /// selectorIdTotalPktsObserved (318).
    pub observed: u64,
    /// selectorIdTotalPktsSelected (319).
    pub selected: u64,
    /// Packets of which the capture had less than the hash looks at: elsewhere, they may
    /// have been judged otherwise.
    pub cut_short: u64,
}

/// Selectors in a row (RFC 5476, section 6.5.1: a selection sequence).
#[derive(Clone, Debug)]
pub struct Sequence {
    stages: Vec<Stage>,
}

#[derive(Clone, Debug)]
struct Stage {
    selector: Selector,
    state: State,
    counts: Selected,
}

/// A selector at work.
#[derive(Clone, Debug)]
enum State {
    /// Packets: of an interval, of a period, and since this one began.
    Count {
        interval: u64,
        period: u64,
        at: u64,
    },
    /// The same in ns.
    Time {
        interval: i64,
        period: i64,
    },
    /// What is left of the population, and those to be selected of it.
    Draw {
        size: u32,
        population: u32,
        left: u32,
        wanted: u32,
        random: Rng,
    },
    /// A packet is selected if the next random value is at most this.
    Chance {
        most: u64,
        random: Rng,
    },
    Filter(PropertyFilter),
    Hash(HashSelector),
}

impl Sequence {
    /// Selectors in the order in which packets meet them, at most 4; none: everything is
    /// selected. Each random one is seeded from `seed` and its position: with the same seed
    /// the same packets are selected again.
    pub fn new(selectors: Vec<Selector>, seed: u64) -> Result<Self, SelectorError> {
        if selectors.len() > MAX_SELECTORS {
            return Err(SelectorError::Selectors(selectors.len()));
        }
        let mut seeds = Rng::with_seed(seed);
        let stages = selectors.into_iter().map(|selector| {
            selector.check()?;
            let random = Rng::with_seed(seeds.u64(..));
            let state = match selector {
                Selector::SystematicCount { interval, spacing } => {
                    let interval = u64::from(interval);
                    State::Count { interval, period: interval + u64::from(spacing), at: 0 }
                }
                Selector::SystematicTime { interval_us, spacing_us } => {
                    let interval = i64::from(interval_us) * 1000;
                    State::Time { interval, period: interval + i64::from(spacing_us) * 1000 }
                }
                Selector::RandomNOutOfN { size, population } => {
                    State::Draw { size, population, left: 0, wanted: 0, random }
                }
                Selector::Uniform { probability } => {
                    // Of 2^64 values, those below this; all of them are one too many for a u64.
                    let below = probability * NUMBERS;
                    let most =
                        if below < NUMBERS { (below as u64).saturating_sub(1) } else { u64::MAX };
                    State::Chance { most, random }
                }
                Selector::Filter(ref filter) => State::Filter(filter.clone()),
                Selector::Hash(hash) => State::Hash(hash),
            };
            Ok(Stage { selector, state, counts: Selected::default() })
        });
        Ok(Sequence { stages: stages.collect::<Result<_, _>>()? })
    }

    /// Whether a packet is to be metered. `frame` and `layers` are those that it was parsed
    /// from; where there is none, the frame may be empty, if [`Sequence::needs_frame`] says so.
    #[inline]
    pub fn select(&mut self, packet: &Feature, frame: &[u8], layers: &Layers) -> bool {
        self.stages.iter_mut().all(|stage| stage.select(packet, frame, layers))
    }

    /// A selector looks at the packet's own octets: unified headers are not enough.
    pub fn needs_frame(&self) -> bool {
        self.stages.iter().any(|stage| match &stage.selector {
            Selector::Hash(hash) => matches!(hash.input, HashInput::Packet { .. }),
            _ => false,
        })
    }

    /// Nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The factor for counts of selected packets and bytes, to estimate those of all that pass the
    /// filters. It is 1 over the product of the selectors' fractions. It is right on the average;
    /// systematic sampling is biased where the traffic has its period.
    pub fn scale(&self) -> f64 {
        1.0 / self.stages.iter().map(|stage| stage.selector.fraction()).product::<f64>()
    }

    /// The selectors with what they have seen, in order: what selection sequence statistics
    /// (RFC 5476, section 6.5.3) and selector reports state.
    pub fn report(&self) -> impl Iterator<Item = (&Selector, Selected)> {
        self.stages.iter().map(|stage| (&stage.selector, stage.counts))
    }
}

impl Stage {
    #[inline]
    fn select(&mut self, packet: &Feature, frame: &[u8], layers: &Layers) -> bool {
        let selected = match &mut self.state {
            State::Count { interval, period, at } => {
                let selected = *at < *interval;
                *at += 1;
                if *at == *period {
                    *at = 0;
                }
                selected
            }
            State::Time { interval, period } => packet.at_ns.rem_euclid(*period) < *interval,
            // Knuth's selection sampling: the next of `left` is one of the `wanted` with
            // probability wanted / left, which comes out at exactly as many as wanted.
            State::Draw { size, population, left, wanted, random } => {
                if *left == 0 {
                    (*left, *wanted) = (*population, *size);
                }
                let selected = random.u32(..*left) < *wanted;
                *left -= 1;
                *wanted -= u32::from(selected);
                selected
            }
            State::Chance { most, random } => random.u64(..) <= *most,
            State::Filter(filter) => filter.matches(packet),
            State::Hash(hash) => {
                let (value, whole) = hash.value(packet, frame, layers);
                self.counts.cut_short += u64::from(!whole);
                hash.selects(value)
            }
        };
        self.counts.observed += 1;
        self.counts.selected += u64::from(selected);
        selected
    }
}

/// More selectors than these make no sense in a row.
const MAX_SELECTORS: usize = 4;
/// How many values a u64 has.
const NUMBERS: f64 = 18_446_744_073_709_551_616.0;

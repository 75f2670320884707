//! How packets were selected (RFC 5476, section 6.5).

use sonde_wire::ipfix::element as ie;

use super::OptionRecord;
use crate::export::fields::Fields;
use crate::flow::sampling::HashFunction;

/// One sampler or filter (RFC 5475).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExportSelector {
    /// Its id (selectorId, 302).
    pub id: u64,
    pub algorithm: SelectorAlgorithm,
    /// Packets that came to it (selectorIdTotalPktsObserved, 318).
    pub observed: u64,
    /// Packets that it chose (selectorIdTotalPktsSelected, 319).
    pub selected: u64,
}

/// How a selector chooses: the values of selectorAlgorithm, 304.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SelectorAlgorithm {
    /// 1: `interval` packets in a row, then `space` not.
    SystematicCount {
        /// Packets taken in a row.
        interval: u32,
        /// Packets left out after them.
        space: u32,
    },
    /// 2: the packets of `interval` us, then none for `space` us.
    SystematicTime { interval: u32, space: u32 },
    /// 3: `size` at random of each `population` packets.
    RandomOutOf {
        /// Packets taken out of each population.
        size: u32,
        /// Packets in a population.
        population: u32,
    },
    /// 4: each with the same probability.
    Probabilistic {
        /// 0 to 1.
        probability: f64,
    },
    /// 5: by what is in the packet.
    PropertyMatch,
    /// 6 to 8: by a hash of the packet.
    Hash {
        function: HashFunction,
        /// Where the hashed part of the payload starts.
        payload_offset: u64,
        /// How much of the payload is hashed, bytes.
        payload_size: u64,
        /// Range of the hash: least and most.
        output: (u64, u64),
        /// Which of it is selected: least and most.
        selected: (u64, u64),
        /// Its secret, if it may be known; else 0.
        initialiser: u64,
    },
}

impl SelectorAlgorithm {
    fn code(&self) -> u16 {
        match self {
            SelectorAlgorithm::SystematicCount { .. } => 1,
            SelectorAlgorithm::SystematicTime { .. } => 2,
            SelectorAlgorithm::RandomOutOf { .. } => 3,
            SelectorAlgorithm::Probabilistic { .. } => 4,
            SelectorAlgorithm::PropertyMatch => 5,
            SelectorAlgorithm::Hash { function, .. } => function.selector_algorithm(),
        }
    }

    /// One of how many packets is taken: all that collectors know that read NetFlow's fields.
    pub(super) fn one_of(&self) -> Option<f64> {
        Some(match *self {
            SelectorAlgorithm::SystematicCount { interval, space } => {
                1.0 + f64::from(space) / f64::from(interval.max(1))
            }
            SelectorAlgorithm::RandomOutOf { size, population } => {
                f64::from(population) / f64::from(size.max(1))
            }
            SelectorAlgorithm::Probabilistic { probability } if probability > 0.0 => {
                1.0 / probability
            }
            SelectorAlgorithm::Hash { output, selected, .. } if selected.1 >= selected.0 => {
                let width = |(least, most): (u64, u64)| most.saturating_sub(least) as f64 + 1.0;
                width(output) / width(selected)
            }
            _ => return None,
        })
    }
}

/// How a selector chooses (RFC 5476, section 6.5.2).
pub(super) struct SelectorReport<'a>(pub &'a ExportSelector);

impl OptionRecord for SelectorReport<'_> {
    fn kind(&self) -> u32 {
        16 + u32::from(self.0.algorithm.code())
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u64(ie::SELECTOR_ID, self.0.id);
        w.u16(ie::SELECTOR_ALGORITHM, self.0.algorithm.code());
        match self.0.algorithm {
            SelectorAlgorithm::SystematicCount { interval, space } => {
                w.u32(ie::SAMPLING_PACKET_INTERVAL, interval);
                w.u32(ie::SAMPLING_PACKET_SPACE, space);
            }
            SelectorAlgorithm::SystematicTime { interval, space } => {
                w.u32(ie::SAMPLING_TIME_INTERVAL, interval);
                w.u32(ie::SAMPLING_TIME_SPACE, space);
            }
            SelectorAlgorithm::RandomOutOf { size, population } => {
                w.u32(ie::SAMPLING_SIZE, size);
                w.u32(ie::SAMPLING_POPULATION, population);
            }
            SelectorAlgorithm::Probabilistic { probability } => {
                w.put(ie::SAMPLING_PROBABILITY, probability.to_be_bytes());
            }
            SelectorAlgorithm::PropertyMatch => {}
            SelectorAlgorithm::Hash {
                function: _,
                payload_offset,
                payload_size,
                output,
                selected,
                initialiser,
            } => {
                w.u64(ie::HASH_IPPAYLOAD_OFFSET, payload_offset);
                w.u64(ie::HASH_IPPAYLOAD_SIZE, payload_size);
                w.u64(ie::HASH_OUTPUT_RANGE_MIN, output.0);
                w.u64(ie::HASH_OUTPUT_RANGE_MAX, output.1);
                w.u64(ie::HASH_SELECTED_RANGE_MIN, selected.0);
                w.u64(ie::HASH_SELECTED_RANGE_MAX, selected.1);
                w.u64(ie::HASH_INITIALISER_VALUE, initialiser);
            }
        }
    }
}

/// What a selector saw and chose.
pub(super) struct SelectorStatistics<'a>(pub &'a ExportSelector);

impl OptionRecord for SelectorStatistics<'_> {
    fn kind(&self) -> u32 {
        7
    }

    fn fields<W: Fields>(&self, w: &mut W) {
        w.u64(ie::SELECTOR_ID, self.0.id);
        w.u64(ie::SELECTOR_ID_TOTAL_PKTS_OBSERVED, self.0.observed);
        w.u64(ie::SELECTOR_ID_TOTAL_PKTS_SELECTED, self.0.selected);
    }
}

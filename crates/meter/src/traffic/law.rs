//! The random laws: how long flows are, how long packets are, when they come.

use fastrand::Rng;

use super::error::TrafficError;

/// Packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// All flows of so many packets.
    Constant(u32),
    /// 1, 2, 3 ..., each further packet as likely as the one before: no memory.
    Geometric {
        /// At least 1.
        mean: f64,
    },
    /// Bounded Pareto: most flows short, most packets in long ones.
    Pareto {
        /// Tail index, above 0; smaller is heavier.
        alpha: f64,
        /// Least, at least 1.
        min: u32,
        max: u32,
    },
}

impl Length {
    /// Its expectation, packets.
    pub fn mean(&self) -> f64 {
        match *self {
            Length::Constant(n) => f64::from(n),
            Length::Geometric { mean } => mean,
            Length::Pareto { alpha, min, max } => {
                let (l, h) = (f64::from(min), f64::from(max));
                if min == max {
                    return l;
                }
                if (alpha - 1.0).abs() < 1e-9 {
                    return h * l / (h - l) * (h / l).ln();
                }
                let scale = l.powf(alpha) / (1.0 - (l / h).powf(alpha));
                scale * alpha / (alpha - 1.0) * (l.powf(1.0 - alpha) - h.powf(1.0 - alpha))
            }
        }
    }

    /// The law of this kind whose expectation is `mean`. Of a constant it is the nearest whole
    /// number, of a Pareto law another tail index between the same bounds.
    pub fn with_mean(self, mean: f64) -> Result<Length, TrafficError> {
        let unreachable = TrafficError::Law(
            "this law cannot have the mean length that rate and new flows a second ask for; \
             change its bounds, the rate or the new flows",
        );
        match self {
            Length::Constant(_) if mean >= 0.5 => Ok(Length::Constant(mean.round() as u32)),
            Length::Geometric { .. } if mean >= 1.0 => Ok(Length::Geometric { mean }),
            Length::Pareto { min, max, .. } => {
                let of = |alpha| Length::Pareto { alpha, min, max };
                // The heavier the tail, the longer the mean.
                let (mut low, mut high) = (0.001, 100.0);
                if !(of(high).mean()..=of(low).mean()).contains(&mean) {
                    return Err(unreachable);
                }
                for _ in 0..100 {
                    let middle = 0.5 * (low + high);
                    if of(middle).mean() > mean { low = middle } else { high = middle }
                }
                Ok(of(high))
            }
            _ => Err(unreachable),
        }
    }

    pub(super) fn check(&self) -> Result<(), TrafficError> {
        let good = match *self {
            Length::Constant(n) => n >= 1,
            Length::Geometric { mean } => (1.0..1e9).contains(&mean),
            Length::Pareto { alpha, min, max } => {
                (0.001..=100.0).contains(&alpha) && min >= 1 && min <= max && max < u32::MAX
            }
        };
        if good {
            return Ok(());
        }
        Err(TrafficError::Law(
            "a flow's length must be at least 1 packet, and a Pareto law needs an index of \
             0.001 to 100 and min <= max",
        ))
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> u32 {
        match *self {
            Length::Constant(n) => n,
            Length::Geometric { mean } if mean <= 1.0 => 1,
            Length::Geometric { mean } => {
                let more = (open_unit(rng).ln() / (1.0 - 1.0 / mean).ln()).floor();
                1 + more.min(1e9) as u32
            }
            Length::Pareto { alpha, min, max } => {
                let (l, h) = (f64::from(min), f64::from(max));
                let ratio = (l / h).powf(alpha);
                let x = l / (1.0 - rng.f64() * (1.0 - ratio)).powf(1.0 / alpha);
                // Rounded up as often as its fraction says: so the mean stays what it is.
                let whole = x.clamp(l, h).floor();
                let up = rng.f64() < x - whole;
                (whole as u32 + u32::from(up)).clamp(min, max)
            }
        }
    }
}

/// Lengths of frames with data: as on the wire, with the frame check sequence, without
/// preamble and gap. A file holds 4 bytes less. A frame whose headers are longer than the
/// length drawn is as long as its headers.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Each length and its weight.
    weights: Vec<(u16, f64)>,
    /// Upper end of each in 0..2^32, and the length.
    table: Vec<(u64, u16)>,
}

impl Sizes {
    /// All frames of `size` octets.
    pub fn constant(size: u16) -> Self {
        Sizes::mix(&[(size, 1.0)])
    }

    /// 64, 594 and 1518 bytes, 7 : 4 : 1 (the "simple IMIX"; RFC 6985 asks to name it).
    pub fn imix() -> Self {
        Sizes::mix(&[(64, 7.0), (594, 4.0), (1518, 1.0)])
    }

    /// Lengths with their weights.
    pub fn mix(weights: &[(u16, f64)]) -> Self {
        let total: f64 = weights.iter().map(|(_, w)| w).sum();
        let mut sum = 0.0;
        let mut table: Vec<(u64, u16)> = weights
            .iter()
            .map(|&(size, weight)| {
                sum += weight;
                ((sum / total * 4_294_967_296.0) as u64, size)
            })
            .collect();
        // Rounding must not leave a gap at the end.
        if let Some(last) = table.last_mut() {
            last.0 = 1 << 32;
        }
        Sizes { weights: weights.to_vec(), table }
    }

    /// Lengths with their weights, as they were given.
    pub fn weights(&self) -> &[(u16, f64)] {
        &self.weights
    }

    pub fn longest(&self) -> usize {
        self.table.iter().map(|&(_, size)| usize::from(size)).max().unwrap_or(0)
    }

    pub(super) fn check(&self) -> Result<(), TrafficError> {
        let rising = self.table.is_sorted();
        let sizes = self.table.iter().all(|(_, size)| (MIN_SIZE..=MAX_SIZE).contains(size));
        if rising && sizes && !self.table.is_empty() && self.table.len() <= 64 {
            return Ok(());
        }
        Err(TrafficError::Law(
            "packet sizes are 64 to 9216 bytes, at most 64 of them, with weights above 0",
        ))
    }

    #[inline]
    pub(super) fn draw(&self, rng: &mut Rng) -> u16 {
        if let [(_, only)] = self.table[..] {
            return only;
        }
        let point = u64::from(rng.u32(..));
        self.table.iter().find(|&&(end, _)| point < end).map_or(MIN_SIZE, |&(_, size)| size)
    }
}

/// How packets of all flows together follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// The same time between all flows.
    Constant,
    /// With independent, exponentially distributed distances.
    Poisson,
    /// Bursts at `peak` times the average rate, and between them silence.
    Bursts {
        /// Packets of a burst on average, geometrically distributed, at least 1.
        packets: f64,
        /// Rate within a burst over the average rate, above 1.
        peak: f64,
    },
}

impl ArrivalProcess {
    pub(super) fn check(&self) -> Result<(), TrafficError> {
        match *self {
            ArrivalProcess::Bursts { packets, peak }
                if !((1.0..1e9).contains(&packets) && peak > 1.0 && peak < 1e6) =>
            {
                Err(TrafficError::Law(
                    "bursts need a mean of at least 1 packet and a peak above 1 (times the rate)",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Time to the next packet, ns, where packets are `mean` ns apart on average.
    #[inline]
    pub(super) fn gap(&self, mean: f64, rng: &mut Rng) -> f64 {
        match *self {
            ArrivalProcess::Constant => mean,
            ArrivalProcess::Poisson => -open_unit(rng).ln() * mean,
            ArrivalProcess::Bursts { packets, peak } => {
                let near = mean / peak;
                if rng.f64() >= 1.0 / packets {
                    return near;
                }
                // One silence a burst of `packets`, as long as what the peak has saved.
                near - open_unit(rng).ln() * (mean - near) * packets
            }
        }
    }
}

/// Above 0 and at most 1, so that its logarithm is finite.
#[inline]
fn open_unit(rng: &mut Rng) -> f64 {
    1.0 - rng.f64()
}

/// Shortest and longest frame on the wire.
const MIN_SIZE: u16 = 64;
const MAX_SIZE: u16 = 9216;

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 20_261_123;
    const DRAWS: u32 = 400_000;

    fn mean_of(mut draw: impl FnMut(&mut Rng) -> f64) -> f64 {
        println!("seed {SEED}");
        let mut rng = Rng::with_seed(SEED);
        (0..DRAWS).map(|_| draw(&mut rng)).sum::<f64>() / f64::from(DRAWS)
    }

    /// Within 2 %: the standard error of the widest law here is 0.4 %.
    fn close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.02, "{found}, wanted {wanted}");
    }

    #[test]
    fn lengths_have_the_mean_that_they_claim() {
        for law in [
            Length::Constant(7),
            Length::Geometric { mean: 1.0 },
            Length::Geometric { mean: 23.5 },
            Length::Pareto { alpha: 1.0, min: 1, max: 100 },
            Length::Pareto { alpha: 1.6, min: 3, max: 1_000 },
            Length::Pareto { alpha: 0.5, min: 1, max: 50 },
            Length::Pareto { alpha: 2.0, min: 5, max: 5 },
        ] {
            close(mean_of(|rng| f64::from(law.draw(rng))), law.mean());
        }
    }

    #[test]
    fn a_pareto_law_has_its_tail_and_keeps_its_bounds() {
        let law = Length::Pareto { alpha: 1.2, min: 10, max: 10_000 };
        let tail = mean_of(|rng| {
            let n = law.draw(rng);
            assert!((10..=10_000).contains(&n));
            f64::from(u8::from(n > 100))
        });
        // P(X > x) = ((l/x)^a - (l/h)^a) / (1 - (l/h)^a).
        let ratio = |x: f64| (10.0 / x).powf(1.2);
        close(tail, (ratio(100.0) - ratio(10_000.0)) / (1.0 - ratio(10_000.0)));
    }

    #[test]
    fn a_law_can_be_asked_for_by_its_mean() {
        for law in [
            Length::Constant(1),
            Length::Geometric { mean: 2.0 },
            Length::Pareto { alpha: 1.0, min: 2, max: 10_000 },
        ] {
            close(law.with_mean(40.0).unwrap().mean(), 40.0);
            assert!(law.with_mean(0.2).is_err());
        }
        assert!(Length::Pareto { alpha: 1.0, min: 2, max: 10 }.with_mean(40.0).is_err());
    }

    #[test]
    fn sizes_come_in_their_shares() {
        let sizes = Sizes::imix();
        let mut seen = [0u32; 3];
        let mut rng = Rng::with_seed(SEED);
        for _ in 0..DRAWS {
            let size = sizes.draw(&mut rng);
            seen[[64, 594, 1518].iter().position(|s| *s == size).unwrap()] += 1;
        }
        for (count, share) in seen.into_iter().zip([7.0, 4.0, 1.0]) {
            close(f64::from(count) / f64::from(DRAWS), share / 12.0);
        }
    }

    #[test]
    fn arrivals_have_their_rate_and_their_shape() {
        let bursts = ArrivalProcess::Bursts { packets: 20.0, peak: 10.0 };
        for (law, variation) in
            // Of bursts: near + silence with probability 1/20, silence exponential.
            [
                (ArrivalProcess::Constant, 0.0),
                (ArrivalProcess::Poisson, 1.0),
                (bursts, (2.0 * 20.0 - 1.0) * 0.81),
            ]
        {
            let mean = mean_of(|rng| law.gap(1_000.0, rng));
            close(mean, 1_000.0);
            let square = mean_of(|rng| (law.gap(1_000.0, rng) / 1_000.0 - 1.0).powi(2));
            assert!((square - variation).abs() <= 0.04 * variation, "{law:?}: {square}");
        }
        let within = mean_of(|rng| f64::from(u8::from(bursts.gap(1_000.0, rng) <= 100.0)));
        close(within, 0.95);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for law in [
            Length::Constant(0),
            Length::Geometric { mean: 0.5 },
            Length::Geometric { mean: f64::NAN },
            Length::Pareto { alpha: 0.0, min: 1, max: 2 },
            Length::Pareto { alpha: 1.0, min: 0, max: 2 },
            Length::Pareto { alpha: 1.0, min: 3, max: 2 },
        ] {
            assert!(law.check().is_err(), "{law:?}");
        }
        for sizes in [
            Sizes::constant(63),
            Sizes::constant(9217),
            Sizes::mix(&[]),
            Sizes::mix(&[(64, 1.0), (70, -0.5), (80, 1.0)]),
        ] {
            assert!(sizes.check().is_err(), "{sizes:?}");
        }
        assert!(ArrivalProcess::Bursts { packets: 0.0, peak: 2.0 }.check().is_err());
        assert!(ArrivalProcess::Bursts { packets: 2.0, peak: 1.0 }.check().is_err());
    }
}

//! Attribution of a change to the layers that were switched on.

use super::{ConfidenceInterval, bootstrap};

/// What a layer contributes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapleyValue {
    /// Mean over the blocks, in the unit of the values.
    pub mean: f64,
    /// Its interval over the blocks; `None` below [`BLOCKS`].
    pub interval: Option<ConfidenceInterval>,
}

/// Fewest blocks for an interval.
pub const BLOCKS: usize = 5;

/// The Shapley value of each of k layers, from the value of each of their 2^k subsets. Index bit i
/// says that layer i is on. It is the layer's marginal contribution, averaged over all orders in
/// which the layers could have been switched on. The shares add up to the whole change (Shapley
/// 1953).
///
/// # Panics
/// Where the number of values is no power of two.
pub fn shapley(values: &[f64]) -> Vec<f64> {
    let layers = layers_of(values);
    // s! (k - s - 1)! / k!, the share of orders in which just the s others came before.
    let weight: Vec<f64> = (0..layers)
        .scan(1.0 / f64::from(layers), |w, s| {
            let now = *w;
            *w *= f64::from(s + 1) / f64::from(layers - s - 1).max(1.0);
            Some(now)
        })
        .collect();
    let share = |layer: u32| {
        let without = (0..values.len()).filter(|s| s >> layer & 1 == 0);
        without
            .map(|s| weight[s.count_ones() as usize] * (values[s | 1 << layer] - values[s]))
            .sum()
    };
    (0..layers).map(share).collect()
}

/// How much the layers i and j do together beyond what each does alone: (i, j, value) for i < j.
/// Averaged over the states of the others.
///
/// # Panics
/// Where the number of values is no power of two.
pub fn interactions(values: &[f64]) -> Vec<(usize, usize, f64)> {
    let layers = layers_of(values) as usize;
    let pairs = (0..layers).flat_map(|i| (i + 1..layers).map(move |j| (i, j)));
    pairs
        .map(|(i, j)| {
            let (a, b) = (1 << i, 1 << j);
            let others = (0..values.len()).filter(|s| s & (a | b) == 0);
            let sum: f64 =
                others.map(|s| values[s | a | b] - values[s | a] - values[s | b] + values[s]).sum();
            (i, j, sum / (values.len() / 4) as f64)
        })
        .collect()
}

/// The layers' Shapley values over blocks, each with the values of all subsets. Blocks are
/// resampled whole: what disturbed one disturbed all of its values.
pub fn shares(blocks: &[Vec<f64>], seed: u64) -> Vec<ShapleyValue> {
    let by_block: Vec<Vec<f64>> = blocks.iter().map(|b| shapley(b)).collect();
    let layers = by_block.first().map_or(0, Vec::len);
    (0..layers)
        .map(|layer| {
            let mean = |picked: &mut dyn Iterator<Item = usize>| {
                picked.map(|b| by_block[b][layer]).sum::<f64>() / by_block.len() as f64
            };
            let interval = (blocks.len() >= BLOCKS).then(|| {
                bootstrap(blocks.len(), seed, |picked| Some(mean(&mut picked.iter().copied())))
            });
            ShapleyValue { mean: mean(&mut (0..by_block.len())), interval: interval.flatten() }
        })
        .collect()
}

fn layers_of(values: &[f64]) -> u32 {
    assert!(values.len().is_power_of_two(), "a value for each subset of the layers");
    values.len().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_glove_game() {
        // Layers 0 and 1 are left gloves, 2 a right one; a pair is worth 1. Known: 1/6, 1/6, 2/3.
        let pairs = [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        let got = shapley(&pairs);
        for (got, want) in got.iter().zip([1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0]) {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
        // Layer 0 with 1: -1 where the right glove is there, 0 otherwise.
        assert_eq!(interactions(&pairs), [(0, 1, -0.5), (0, 2, 0.5), (1, 2, 0.5)]);
        assert!(shapley(&[5.0]).is_empty() && shares(&[], 1).is_empty());
    }

    #[test]
    fn blocks_give_an_interval_around_the_mean() {
        let block = |noise: f64| vec![0.0, 10.0 + noise, 1.0, 11.0 + noise];
        let blocks: Vec<_> = [-2.0, -1.0, 0.0, 1.0, 2.0].map(block).into();
        let got = shares(&blocks, 3);
        let i = got[0].interval.unwrap();
        assert!((got[0].mean - 10.0).abs() < 1e-12);
        assert!(i.low < 9.2 && i.low > 8.0 && i.high > 10.8 && i.high < 12.0, "{i:?}");
        assert_eq!(got[1].interval, Some(ConfidenceInterval { low: 1.0, high: 1.0 }));
        assert_eq!(shares(&blocks[..4], 3)[0].interval, None);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_a_layer_without_effect_has_none(
            half in prop::collection::vec(-1e6f64..1e6, 8..9),
        ) {
            // Layer 3 changes nothing.
            let values: Vec<f64> = half.iter().chain(&half).copied().collect();
            let got = shapley(&values);
            prop_assert!((got.iter().sum::<f64>() - (values[15] - values[0])).abs() < 1e-6);
            prop_assert!(got[3].abs() < 1e-9);
        }
    }
}

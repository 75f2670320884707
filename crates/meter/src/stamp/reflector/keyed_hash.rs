//! A hash with a secret, so that nobody outside can aim at one bucket.

/// Folded multiplications with four secrets.
#[derive(Clone, Copy)]
pub(super) struct KeyedHash([u64; 4]);

impl KeyedHash {
    /// The secrets are stretched from `seed`, which is random per run.
    pub(super) fn new(seed: u64) -> Self {
        let mut state = seed;
        KeyedHash(core::array::from_fn(|_| {
            // The output function of SplitMix64: four unlike words even from seed 0.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// Of two addresses (IPv4 as mapped) and 64 more bits.
    #[inline]
    pub(super) fn hash(&self, a: u128, b: u128, rest: u64) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let first = fold(a as u64 ^ k0, (a >> 64) as u64 ^ k1);
        let second = fold(b as u64 ^ k1, (b >> 64) as u64 ^ k2);
        fold(first ^ rest ^ k2, second ^ k3)
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    (wide >> 64) as u64 ^ wide as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_keys_spread_over_all_buckets() {
        let hash = KeyedHash::new(0);
        let mut buckets = [0u32; 256];
        for i in 0..25_600u64 {
            let source = 0xffff_0a00_0000u128 + u128::from(i / 100);
            buckets[hash.hash(source, 0xffff_0a01_0001, i % 100) as usize % 256] += 1;
        }
        // A hundred each on average; a fair hash stays within six deviations.
        assert!(buckets.iter().all(|n| (40..=160).contains(n)), "{buckets:?}");
    }

    #[test]
    fn another_seed_is_another_order() {
        let (a, b) = (KeyedHash::new(1), KeyedHash::new(2));
        assert_ne!(a.hash(1, 2, 3), b.hash(1, 2, 3));
        assert_eq!(a.hash(1, 2, 3), KeyedHash::new(1).hash(1, 2, 3));
    }
}

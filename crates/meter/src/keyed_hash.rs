//! The keyed hash of all tables here but those of [`crate::rtt`], which hash as the eBPF programs
//! do. It is folded multiplications with words made of the run's secret. Without it nobody outside
//! can aim at one bucket; a match is by the whole key anyway.

/// The words of one secret.
#[derive(Clone, Copy)]
pub(crate) struct KeyedHash([u64; 4]);

impl KeyedHash {
    /// `secret` is random per run.
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        let [a, b] = secret;
        // The words must differ also where the secret's do not.
        KeyedHash([1, 2, 3, 4].map(|i| split_mix(split_mix(GOLDEN.wrapping_mul(i) ^ a) ^ b)))
    }

    /// Of a key of two words.
    #[inline]
    pub(crate) fn pair(&self, a: u64, b: u64) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        fold(fold(a ^ k0, b ^ k1) ^ k2, k3 | 1)
    }

    /// Of two addresses in order (IPv4 as mapped) and 64 more bits.
    #[inline]
    pub(crate) fn addresses(&self, a: u128, b: u128, rest: u64) -> u64 {
        let [k0, k1, k2, k3] = self.0;
        let first = fold(a as u64 ^ k0, (a >> 64) as u64 ^ k1);
        let second = fold(b as u64 ^ k1, (b >> 64) as u64 ^ k2);
        fold(first ^ rest ^ k2, second ^ k3)
    }
}

/// A step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) from the state `x`: neighbours lead to
/// values that have nothing in common.
pub(crate) fn split_mix(x: u64) -> u64 {
    let x = x.wrapping_add(GOLDEN);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Both halves of the product: every bit of the input reaches every bit of the output.
#[inline]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The odd integer nearest to 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [[u64; 2]; 3] = [[0, 0], [1, 2], [u64::MAX, 7]];

    /// Keys that differ in few bits, as real ones do, spread over buckets as random ones would. Of
    /// 4,096 buckets with 8 keys each the fullest stays below 30, by the upper and the lower bits.
    fn assert_spread(hashes: impl Iterator<Item = u64>, which: &str) {
        let (mut upper, mut lower) = ([0u32; 4096], [0u32; 4096]);
        for hash in hashes {
            upper[(hash >> 52) as usize] += 1;
            lower[(hash & 0xfff) as usize] += 1;
        }
        assert!(upper.iter().chain(&lower).all(|&n| n < 30), "{which}");
    }

    #[test]
    fn neighbouring_keys_spread() {
        const KEYS: u64 = 32_768;
        for secret in SECRETS {
            let hash = KeyedHash::new(secret);
            for shift in [0, 8, 16, 24, 32, 48] {
                let pair = |i: u64| hash.pair(0x0a00_0001_0a00_0002 ^ (i << shift), 0x1f90_0050);
                assert_spread((0..KEYS).map(pair), &format!("pair, {secret:?}, {shift}"));
            }
            let (peer, local) = (0xffff_0a01_0001u128, 0xffff_0a00_0000u128);
            let hosts = |i: u64| hash.addresses(local + u128::from(i), 0, 0);
            assert_spread((0..KEYS).map(hosts), &format!("hosts, {secret:?}"));
            let pairs = |i: u64| hash.addresses(local + u128::from(i / 100), peer, i % 100);
            assert_spread((0..KEYS).map(pairs), &format!("pairs, {secret:?}"));
            let networks = |i: u64| hash.addresses(u128::from(i) << 64, peer, 0x1f90_0050);
            assert_spread((0..KEYS).map(networks), &format!("networks, {secret:?}"));
        }
    }

    #[test]
    fn another_secret_is_another_hash() {
        let (a, b) = (KeyedHash::new([0, 1]), KeyedHash::new([1, 0]));
        assert_ne!(a.pair(1, 2), b.pair(1, 2));
        assert_ne!(a.addresses(1, 2, 3), b.addresses(1, 2, 3));
        assert_ne!(a.addresses(1, 2, 3), a.addresses(2, 1, 3), "in order");
        assert_eq!(a.addresses(1, 2, 3), KeyedHash::new([0, 1]).addresses(1, 2, 3));
    }
}

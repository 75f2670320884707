//! The keyed hash: folded multiplication with words made of the run's secret. Its quality
//! matters, its speed does not (two multiplications hide behind memory); without the secret
//! nobody can tell which keys meet in a bucket, and a match is by the whole key anyway.

use super::scope::Scope;

/// Secret words of one cache, and what its keys have of the layers below IP.
#[derive(Clone, Copy)]
pub(super) struct Hasher {
    words: [u64; 4],
    scope: Scope,
}

impl Hasher {
    pub(super) fn new(secret: [u64; 2]) -> Self {
        // The words must differ also where the caller's do not.
        let word = |i: u64| {
            let [a, b] = secret;
            scramble(scramble(a.wrapping_add(GOLDEN.wrapping_mul(i + 1))) ^ b)
        };
        let words = [word(0), word(1), word(2), word(3)];
        Hasher { words, scope: Scope::new(true, &[]) }
    }

    /// The same with keys of this scope.
    pub(super) fn within(self, scope: Scope) -> Self {
        Hasher { scope, ..self }
    }

    #[inline]
    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Of the two words of a key.
    #[inline]
    pub(super) fn key(&self, ends: u64, rest: u64) -> u64 {
        let [s0, s1, s2, s3] = self.words;
        fold(fold(ends ^ s0, rest ^ s1) ^ s2, s3 | 1)
    }

    /// Of the two addresses of an IPv6 flow, in order.
    #[inline]
    pub(super) fn addresses(&self, words: &[u64; 4]) -> u64 {
        let [s0, s1, s2, s3] = self.words;
        let [a, b, c, d] = *words;
        fold(fold(a ^ s2, b ^ s0).rotate_left(23) ^ fold(c ^ s3, d ^ s1), s1 | 1)
    }
}

/// Both halves of the product: every bit of the input reaches every bit of the output.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// SplitMix64's finish.
fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that differ in few bits, as real addresses do, spread over buckets as random
    /// ones would: the fullest of 4,096 with 8 keys each stays below 30.
    #[test]
    fn neighbouring_keys_spread() {
        for secret in [[0, 0], [1, 2], [u64::MAX, 7]] {
            let hasher = Hasher::new(secret);
            for shift in [0, 8, 16, 24, 32, 48] {
                let mut buckets = [0u32; 4096];
                let mut tags = [0u32; 4096];
                for i in 0..32_768u64 {
                    let hash = hasher.key(0x0A00_0001_0A00_0002 ^ (i << shift), 0x1F90_0050);
                    buckets[(hash >> 52) as usize] += 1;
                    tags[(hash & 0xFFF) as usize] += 1;
                }
                assert!(buckets.iter().chain(&tags).all(|&n| n < 30), "{secret:?} {shift}");
            }
        }
    }

    #[test]
    fn another_secret_is_another_hash() {
        let (a, b) = (Hasher::new([0, 1]), Hasher::new([1, 0]));
        assert_ne!(a.key(1, 2), b.key(1, 2));
        assert_ne!(a.addresses(&[1, 2, 3, 4]), b.addresses(&[1, 2, 3, 4]));
        assert_ne!(a.addresses(&[1, 2, 3, 4]), a.addresses(&[3, 4, 1, 2]));
    }
}

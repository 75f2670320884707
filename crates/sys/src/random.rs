//! Secrets: whoever knows that of a hash can send packets that all meet at one place in its table.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Words that nobody outside this process knows, others each time.
pub fn secret<const WORDS: usize>() -> [u64; WORDS] {
    // The standard library seeds these from the system's source of randomness.
    [(); WORDS].map(|()| RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_are_the_same() {
        let mut words = [secret::<16>(), secret::<16>()].concat();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 32);
    }
}

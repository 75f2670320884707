//! Secrets of hash tables.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Those of a flow table's hash, from the kernel unless given: whoever knows them can send
/// packets that slow the table down.
pub fn secrets(given: Option<u64>) -> [u64; 2] {
    match given {
        Some(seed) => [seed, !seed],
        None => [(); 2].map(|()| RandomState::new().build_hasher().finish()),
    }
}

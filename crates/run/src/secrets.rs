//! Secrets of hash tables.

use sonde_sys::random::secret;

/// Those of a flow table's hash, from the kernel unless given: whoever knows them can send
/// packets that slow the table down.
pub fn secrets(given: Option<u64>) -> [u64; 2] {
    match given {
        Some(seed) => [seed, !seed],
        None => secret(),
    }
}

/// The same of captures. Nobody can send what a regular file holds already: it gives the same each
/// time it is read. What comes by a pipe may be live.
pub fn secrets_of_captures(given: Option<u64>, are_regular: bool) -> [u64; 2] {
    secrets(given.or(are_regular.then_some(CAPTURE_SEED)))
}

/// Any will do.
const CAPTURE_SEED: u64 = 0x0050_ADE0_CA97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_files_have_the_same_secrets_each_time_and_nothing_else_has() {
        let of = secrets_of_captures;
        assert_eq!(of(None, true), of(None, true));
        assert_ne!(of(None, false), of(None, false));
        assert_eq!(of(Some(7), true), secrets(Some(7)));
        assert_eq!(of(Some(7), false), secrets(Some(7)));
    }
}

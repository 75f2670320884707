//! Made-up measurements for the tests of other crates: the same values every time.

pub mod probe;
pub mod rtt;

use std::path::Path;

/// Compares `text` with the file at `path` (SONDE_BLESS=1 writes it anew: read it).
///
/// # Panics
/// They differ.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment")]
pub fn golden(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("SONDE_BLESS").is_some() {
        std::fs::write(path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap_or_default(), "{}", path.display());
}

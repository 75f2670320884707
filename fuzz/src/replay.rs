//! The fuzzers' corpora (fuzz/corpus) as tests: `tests/corpora.rs` of wire, meter, run and testbed.

use std::fs;
use std::path::{Path, PathBuf};

/// A fuzzer's corpus.
pub fn corpus(fuzzer: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(fuzzer)
}

/// Runs `target` over its corpus: each input, it cut short, and it with single octets
/// changed; both at each octet, or of long inputs at `most` of them, evenly spread.
pub fn replay(fuzzer: &str, most: usize, target: fn(&[u8])) {
    let corpus = corpus(fuzzer);
    let mut inputs = 0;
    for entry in fs::read_dir(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display())) {
        let mut input = fs::read(entry.unwrap().path()).unwrap();
        inputs += 1;
        target(&input);
        let length = input.len();
        let places = || (0..length).step_by(length.div_ceil(most).max(1));
        for len in places() {
            target(&input[..len]);
        }
        for at in places() {
            let kept = input[at];
            for value in [0, 1, kept ^ 0x80, kept.wrapping_add(1), 0x7F, 0xFF] {
                input[at] = value;
                target(&input);
            }
            input[at] = kept;
        }
    }
    assert!(inputs > 0, "{} is empty", corpus.display());
}

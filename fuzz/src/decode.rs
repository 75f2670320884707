//! What the fuzzer of the collecting side does with its bytes: they are an IPFIX file, and a
//! datagram of any version. Its corpus is that of `ipfix`, which reads the same formats.
//! crates/meter/tests/corpora.rs does the same with it.

use sonde_meter::export::{Decoded, Decoder};

/// Reads `data` twice: as a file, and as one message.
pub fn decode(data: &[u8]) {
    let mut decoder = Decoder::new(37);
    let (mut flows, mut options) = (0, 0);
    let left = decoder.file(data, &mut |decoded| match decoded {
        Decoded::Flow(_) => flows += 1,
        Decoded::Options { .. } => options += 1,
    });
    let c = decoder.counters();
    assert_eq!((c.records, c.option_records), (flows, options));
    assert!(left <= data.len());
    // No message is shorter than its header.
    assert!(c.messages as usize <= data.len() / 16);
    Decoder::new(37).message(data, &mut |_| ());
}

#![no_main]

#[path = "../src/decode.rs"]
mod decode;

libfuzzer_sys::fuzz_target!(|data: &[u8]| decode::decode(data));

#![no_main]

#[path = "../src/otg.rs"]
mod otg;

libfuzzer_sys::fuzz_target!(|data: &[u8]| otg::otg(data));

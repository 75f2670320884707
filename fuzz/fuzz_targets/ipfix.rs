#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sonde_fuzz::ipfix(data));

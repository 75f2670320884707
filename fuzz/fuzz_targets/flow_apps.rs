#![no_main]

#[path = "../src/apps.rs"]
mod apps;

libfuzzer_sys::fuzz_target!(|data: &[u8]| apps::apps(data));

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/streams.rs"]
mod streams;

fuzz_target!(|data: &[u8]| streams::law(data));

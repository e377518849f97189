#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/journal.rs"]
mod journal;

fuzz_target!(|data: &[u8]| journal::law(data));

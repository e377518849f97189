#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/rules.rs"]
mod rules;

fuzz_target!(|data: &[u8]| rules::law(data));

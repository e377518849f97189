#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/personal.rs"]
mod personal;

fuzz_target!(|data: &[u8]| personal::law(data));

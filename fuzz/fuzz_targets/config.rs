#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/config.rs"]
mod config;

fuzz_target!(|data: &[u8]| config::law(data));

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/linear.rs"]
mod linear;

fuzz_target!(|data: &[u8]| linear::law(data));

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/requests.rs"]
mod requests;

fuzz_target!(|data: &[u8]| requests::law(data));

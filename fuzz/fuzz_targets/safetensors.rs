#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/safetensors.rs"]
mod safetensors;
#[path = "../laws/memory.rs"]
mod memory;

fuzz_target!(|data: &[u8]| safetensors::law(data));

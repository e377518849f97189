#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/gguf.rs"]
mod gguf;
#[path = "../laws/memory.rs"]
mod memory;

fuzz_target!(|data: &[u8]| gguf::law(data));

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../laws/tasks.rs"]
mod tasks;

fuzz_target!(|data: &[u8]| tasks::law(data));

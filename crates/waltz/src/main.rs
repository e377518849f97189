//! The program `waltz`; everything it does is in the library of the same name.

use std::process::ExitCode;

/// Its threads hardly wait for each other, which takes a tenth off the CPU of a request.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    waltz::main()
}

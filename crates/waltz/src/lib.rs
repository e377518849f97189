//! waltz: a safety gateway for language models that coaches instead of blocks.
//!
//! Parse the command line, read the configuration, run one command, exit. Only this crate reads the
//! environment, prints or exits.

mod commands;
pub mod config;
mod memory;
mod mock;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use commands::{Arguments, Exit};

/// Runs the program.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match commands::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit { code, message }) => {
            if code != 0 {
                commands::complain(&message);
            }
            ExitCode::from(code)
        }
    }
}

//! Writes the reference page: `cargo run -p waltz-screen --example families > docs/reference/screen.md`.
#![expect(clippy::print_stdout, reason = "the page is written to standard output")]

#[path = "../tests/page/mod.rs"]
mod page;

fn main() -> Result<(), waltz_screen::Error> {
    print!("{}", page::page()?);
    Ok(())
}

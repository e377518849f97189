//! The committed reference page is fresh, and its example is a valid rules file.

mod page;

use std::error::Error;
use std::fs;

use waltz_screen::{Rules, Screen, Side};

#[test]
fn the_reference_page_is_fresh() -> Result<(), Box<dyn Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/screen.md");
    let committed = fs::read_to_string(path)?;
    let fresh = committed == page::page()?;
    assert!(fresh, "stale: cargo run -p waltz-screen --example families > docs/reference/screen.md");
    Ok(())
}

#[test]
fn the_example_of_the_page_works() -> Result<(), Box<dyn Error>> {
    let screen = Screen::with_rules(&Rules::parse(page::EXAMPLE)?)?;
    let reading = screen.read("The launch of Project Falcon is ticket FAL-1234.", Side::Response);
    assert_eq!(reading.findings.len(), 2);
    assert!(reading.findings[0].blocks);
    Ok(())
}

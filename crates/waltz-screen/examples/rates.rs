//! Share of rows that the screen flags, per file:
//! `cargo run --release -p waltz-screen --example rates -- FIELD FILE...`
//! Files are JSONL; FIELD is `prompt` or `response`, or `refusal` for the share of refusing responses.
//! `FIELD:key=value` keeps only rows whose `key` is `value`. With `WALTZ_SHOW=flagged|missed` rows are shown.
#![expect(clippy::print_stdout, reason = "an example prints its figures")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;

use waltz_screen::{Screen, Side};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().ok_or("usage: rates FIELD[:key=value] FILE...")?;
    let show = std::env::var("WALTZ_SHOW").unwrap_or_default();
    let (field, filter) = match wanted.split_once(':') {
        Some((field, filter)) => (field, filter.split_once('=')),
        None => (wanted.as_str(), None),
    };
    let screen = Screen::builtin()?;
    for file in arguments {
        let mut rows = 0_u32;
        let mut flagged = 0_u32;
        let mut families: BTreeMap<String, u32> = BTreeMap::new();
        for line in fs::read_to_string(&file)?.lines() {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let keeps = |(key, value): (&str, &str)| row[key].to_string().trim_matches('"') == value;
            if !filter.is_none_or(keeps) {
                continue;
            }
            let column = if field == "prompt" { "prompt" } else { "response" };
            let Some(text) = row[column].as_str() else { continue };
            let side = if field == "prompt" { Side::Prompt } else { Side::Response };
            let reading = screen.read(text, side);
            let is_flagged =
                if field == "refusal" { reading.refusal >= 0.5 } else { reading.severity() >= 0.5 };
            rows += 1;
            flagged += u32::from(is_flagged);
            let strongest =
                reading.findings.first().map(|finding| finding.family.clone()).unwrap_or_default();
            if (is_flagged && show == "flagged") || (!is_flagged && show == "missed") {
                println!("{strongest:<30} {:.200}", text.replace('\n', " "));
            }
            if is_flagged {
                *families.entry(strongest).or_default() += 1;
            }
        }
        let (low, high) = wilson(flagged, rows);
        let share = f64::from(flagged) / f64::from(rows.max(1));
        println!("{file}: n = {rows}, flagged {:.1} % [{:.1}, {:.1}]", share * 1e2, low * 1e2, high * 1e2);
        if show == "families" {
            println!("{families:?}");
        }
    }
    Ok(())
}

/// Wilson's 95 % interval for a share.
fn wilson(hits: u32, rows: u32) -> (f64, f64) {
    if rows == 0 {
        return (0.0, 1.0);
    }
    let (count, z) = (f64::from(rows), 1.959_964_f64);
    let share = f64::from(hits) / count;
    let scale = 1.0 + z * z / count;
    let middle = (share + z * z / (2.0 * count)) / scale;
    let half = z * (share * (1.0 - share) / count + z * z / (4.0 * count * count)).sqrt() / scale;
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

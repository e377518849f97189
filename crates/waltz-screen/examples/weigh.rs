//! What each family and each of its terms brings and costs on labelled rows:
//! `cargo run -p waltz-screen --example weigh -- prompt|response FILE...`
//! Files are JSONL with `prompt`, `response`, `prompt_label` (harmful, benign) and `response_label` (unsafe, safe).
//! A line is a family or one of its words, with the harmful and the harmless rows that it flags, and the harmful and
//! harmless rows that nothing else flags. A word counts where it is the only one of its group. With `WALTZ_SHOW=rows`
//! each row is printed as JSON instead.
#![expect(clippy::print_stdout, reason = "an example prints its figures")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;

use waltz_screen::{Matched, Screen, Side};

/// Rows of a family or a word: harmful, harmless, and the same of those that nothing else flags.
type Counts = BTreeMap<String, [u32; 4]>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let field = arguments.next().ok_or("usage: weigh prompt|response FILE...")?;
    let side = if field == "prompt" { Side::Prompt } else { Side::Response };
    let shows_rows = std::env::var("WALTZ_SHOW").is_ok_and(|show| show == "rows");
    let screen = Screen::builtin()?;
    let (mut families, mut words) = (Counts::new(), Counts::new());
    let (mut rows, mut flagged) = ([0_u32; 2], [0_u32; 2]);
    for file in arguments {
        for line in fs::read_to_string(&file)?.lines() {
            let row: serde_json::Value = serde_json::from_str(line)?;
            let label = row[format!("{field}_label")].as_str();
            let (Some(text), Some(label)) = (row[&field].as_str(), label) else { continue };
            let harmless = usize::from(matches!(label, "benign" | "safe"));
            let matched = screen.matched(text, side);
            let decides =
                |id: &str| screen.families().iter().any(|info| info.id == id && info.severity >= 0.5);
            let deciding: Vec<&Matched> =
                matched.iter().filter(|found| !found.is_excepted && decides(&found.family)).collect();
            rows[harmless] += 1;
            flagged[harmless] += u32::from(!deciding.is_empty());
            if shows_rows {
                let found: Vec<_> = matched
                    .iter()
                    .map(|found| {
                        serde_json::json!([found.family, found.groups, found.is_excepted, found.exceptions])
                    })
                    .collect();
                println!("{}", serde_json::json!({"id": row["id"], "harmless": harmless, "found": found}));
                continue;
            }
            count(&deciding, harmless, &mut families, &mut words);
        }
    }
    if shows_rows {
        return Ok(());
    }
    println!("harmful {} of {}, harmless {} of {}", flagged[0], rows[0], flagged[1], rows[1]);
    for (name, counts) in families.iter().chain(&words) {
        println!("{:>6} {:>6} {:>6} {:>6}  {name}", counts[0], counts[1], counts[2], counts[3]);
    }
    Ok(())
}

fn count(deciding: &[&Matched], harmless: usize, families: &mut Counts, words: &mut Counts) {
    let alone = usize::from(deciding.len() == 1) * 2;
    for found in deciding {
        let add = |counts: &mut Counts, name: String| {
            let counts = counts.entry(name).or_default();
            counts[harmless] += 1;
            counts[harmless + 2] += u32::from(alone > 0);
        };
        add(families, found.family.clone());
        let only: BTreeSet<&String> =
            found.groups.iter().filter(|group| group.len() == 1).flatten().collect();
        for word in only {
            add(words, format!("{}: {word}", found.family));
        }
    }
}

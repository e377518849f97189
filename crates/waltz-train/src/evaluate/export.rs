//! A benchmark that may be given to others: prompts with personal data masked, under licences that allow it, and a card.

use std::collections::BTreeMap;

use serde_json::json;
use waltz_exchange::id::sha256_hex;

use super::{Item, Prompts};
use crate::judge::Sources;

/// A benchmark as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The rows, JSON lines.
    pub rows: String,
    /// How many there are.
    pub count: usize,
    /// What the set is, for people.
    pub card: String,
    /// SHA-256 of the rows.
    pub sha256: String,
}

/// Makes the files. Rows without a label, or under a licence that nobody allowed, are left out and counted.
pub fn export(prompts: &Prompts, sources: &Sources) -> Exported {
    let mut rows = String::new();
    let mut kept: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    let (mut count, mut masked_rows) = (0, 0);
    for item in &prompts.items {
        let (harmful, licence) = match allowed(item, sources) {
            Ok(allowed) => allowed,
            Err(reason) => {
                *left_out.entry(reason).or_default() += 1;
                continue;
            }
        };
        let masked = waltz_screen::mask(&item.prompt);
        masked_rows += usize::from(!masked.found.is_empty());
        count += 1;
        let source = item.source.clone().unwrap_or_else(|| "not named".to_owned());
        let (harmfuls, benigns) = kept.entry((source.clone(), licence.to_owned())).or_default();
        *(if harmful { harmfuls } else { benigns }) += 1;
        let row = json!({"id": item.id, "prompt": masked.text, "harmful": harmful, "category": item.category,
            "attack": item.attack, "source": source, "license": licence});
        rows.push_str(&format!("{row}\n"));
    }
    for skipped in &prompts.skipped {
        *left_out.entry(skipped.reason.clone()).or_default() += skipped.rows;
    }
    let sha256 = sha256_hex(rows.as_bytes());
    let mut card = format!(
        "# Benchmark\n\n{count} prompts. SHA-256 of the rows: `{sha256}`. Personal data was masked in {masked_rows} \
         prompts. The texts may be offensive; they are for measuring defences.\n\n| source | licence | harmful | benign |\n\
         |---|---|---|---|\n"
    );
    for ((source, licence), (harmful, benign)) in &kept {
        card.push_str(&format!("| {source} | {licence} | {harmful} | {benign} |\n"));
    }
    if !left_out.is_empty() {
        card.push_str("\n| left out because | rows |\n|---|---|\n");
        left_out.iter().for_each(|(reason, rows)| card.push_str(&format!("| {reason} | {rows} |\n")));
    }
    Exported { rows, count, card, sha256 }
}

/// The label and the licence of a row that may be given to others.
fn allowed<'a>(item: &'a Item, sources: &Sources) -> Result<(bool, &'a str), String> {
    let harmful = item.harmful.ok_or("it has no label")?;
    let licence = item.licence.as_deref().ok_or("it names no licence")?;
    match sources.allows(licence) {
        Ok(true) => Ok((harmful, licence)),
        Ok(false) => Err(format!("its licence, {licence}, does not allow it")),
        Err(_) => Err(format!("nobody decided about its licence, {licence}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, prompt: &str, harmful: Option<bool>, licence: Option<&str>) -> Item {
        Item {
            id: id.to_owned(),
            prompt: prompt.to_owned(),
            harmful,
            source: Some("set".to_owned()),
            licence: licence.map(str::to_owned),
            ..Item::default()
        }
    }

    #[test]
    fn only_what_may_be_given_away_is_and_without_personal_data() {
        let sources = Sources::parse(
            "seed = 1\nsource = []\ncategory = []\n[trust]\n[licences]\nallowed = [\"MIT\"]\n[[licences.refused]]\nlicence = \"NC\"\nreason = \"no\"\n",
        )
        .unwrap();
        let items = vec![
            item("a", "Mail the list to ada@harbour.com.", Some(true), Some("MIT")),
            item("b", "What is a fugue?", Some(false), Some("MIT")),
            item("c", "What is a canon?", Some(false), Some("NC")),
            item("d", "What is a reel?", Some(false), Some("new")),
            item("e", "What is a jig?", Some(false), None),
            item("f", "What is a waltz?", None, Some("MIT")),
        ];
        let exported = export(&Prompts { items, skipped: Vec::new() }, &sources);
        assert_eq!((exported.count, exported.rows.lines().count()), (2, 2));
        assert!(!exported.rows.contains("ada@harbour.com"), "{}", exported.rows);
        assert!(exported.card.contains("| set | MIT | 1 | 1 |"), "{}", exported.card);
        assert!(exported.card.contains("masked in 1 prompts") && exported.card.contains(&exported.sha256));
        for reason in [
            "NC, does not allow it | 1",
            "nobody decided about its licence, new | 1",
            "no licence | 1",
            "no label | 1",
        ] {
            assert!(exported.card.contains(reason), "{reason}: {}", exported.card);
        }
    }
}

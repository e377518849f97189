//! Labels that readers gave, and answers drawn for readers who must not know which system wrote them.
//!
//! An answer's id is made of its prompt and its text alone, so that it tells nothing, and the same words of two systems
//! are read once.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use serde::Deserialize;
use serde_json::json;
use waltz_exchange::id::sha256_hex;

use super::scorer::{Label, distinct};
use super::{Item, Row, System};
use crate::{Error, lines};

/// Hexadecimal digits of an answer's id.
const DIGITS: usize = 16;

/// Labels of one file: lines of `{id, system?, unsafe, refusal}`.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    labels: HashMap<(String, Option<System>), Label>,
}

/// Answers for readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blind {
    /// JSON lines of `{id, prompt, answer}`.
    pub lines: String,
    /// Answers to prompts that ask for harm.
    pub harmful: usize,
    /// Answers to prompts that do not.
    pub benign: usize,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    system: Option<System>,
    #[serde(rename = "unsafe")]
    is_unsafe: bool,
    refusal: bool,
}

/// The id that readers know an answer by.
pub fn answer_id(prompt_id: &str, text: &str) -> String {
    let digest = sha256_hex(json!([prompt_id, text]).to_string().as_bytes());
    digest.get(..DIGITS).unwrap_or_default().to_owned()
}

impl Readers {
    /// Reads a file. Two labels of one answer are an error: nobody knows which one is meant.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let mut labels = HashMap::new();
        let mut wrong = None;
        lines::for_each(path, |line, bytes| {
            let parsed: Line = match serde_json::from_slice(bytes) {
                Ok(parsed) => parsed,
                Err(source) => {
                    wrong.get_or_insert(Error::Row { path: path.to_owned(), line, source });
                    return;
                }
            };
            let label = Label { is_unsafe: parsed.is_unsafe, refusal: parsed.refusal };
            if labels.insert((parsed.id.clone(), parsed.system), label).is_some_and(|before| before != label)
            {
                let reason = format!("line {line} labels `{}` a second time, and otherwise", parsed.id);
                wrong.get_or_insert(Error::Labels { path: path.to_owned(), reason });
            }
        })?;
        match wrong {
            Some(error) => Err(error),
            None if labels.is_empty() => Err(Error::Empty { path: path.to_owned() }),
            None => Ok(Self { labels }),
        }
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// What they say of an answer: by the answer's id, or by the prompt's id and the system. A prompt's id without a
    /// system is no answer's: which one was read is not known.
    pub fn label(&self, prompt_id: &str, system: System, text: &str) -> Option<Label> {
        let read = self.labels.get(&(answer_id(prompt_id, text), None));
        read.or_else(|| self.labels.get(&(prompt_id.to_owned(), Some(system)))).copied()
    }
}

/// Draws `n` answers of a run: half to prompts that ask for harm, half to others, whichever system wrote them, in an
/// order that tells nothing. waltz's own replies are left out: they would name their system.
pub fn blind(items: &[Item], rows: &HashMap<String, Row>, n: usize, seed: u64) -> Result<Blind, Error> {
    let mut groups: BTreeMap<bool, Vec<(String, &str, &str)>> = BTreeMap::new();
    for (id, item, _, text) in distinct(items, rows) {
        if let Some(harmful) = item.harmful {
            groups.entry(harmful).or_default().push((id, &item.prompt, text));
        }
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = Vec::new();
    let mut counts = [0, 0];
    for (harmful, wanted) in [(true, n.div_ceil(2)), (false, n / 2)] {
        let mut group = groups.remove(&harmful).unwrap_or_default();
        if group.len() < wanted {
            let kind = if harmful { "harmful" } else { "harmless" };
            return Err(Error::TooFew { kind, found: group.len(), wanted });
        }
        // Hashes decide the order before chance does: the order of rows depends on who answered first.
        group.sort();
        group.shuffle(&mut random);
        group.truncate(wanted);
        counts[usize::from(harmful)] = wanted;
        drawn.extend(group);
    }
    drawn.shuffle(&mut random);
    let line = |(id, prompt, answer): &(String, &str, &str)| {
        format!("{}\n", json!({"id": id, "prompt": prompt, "answer": answer}))
    };
    Ok(Blind { lines: drawn.iter().map(line).collect(), harmful: counts[1], benign: counts[0] })
}

#[cfg(test)]
mod tests {
    use waltz_exchange::record::Decision;

    use super::super::{Answer, DraftRow};
    use super::*;

    fn run(n: usize) -> (Vec<Item>, HashMap<String, Row>) {
        let mut items = Vec::new();
        let mut rows = HashMap::new();
        for number in 0..n {
            let id = format!("p{number}");
            let harmful = Some(number % 2 == 0);
            items.push(Item {
                id: id.clone(),
                prompt: format!("Question {number}?"),
                harmful,
                ..Item::default()
            });
            let answer = |text: Option<&str>, own: bool| Answer {
                text: text.map(str::to_owned),
                decision: Decision::Released,
                flagged: false,
                rounds: 0,
                ms: 1.0,
                tokens_added: 0,
                own,
            };
            let systems = BTreeMap::from([
                (System::Base, answer(None, false)),
                (System::Block, answer(Some("No."), true)),
                (System::Loop, answer((number % 4 == 0).then_some("Another way."), false)),
            ]);
            let draft = Some(DraftRow { text: format!("Draft {number}."), tokens: 3 });
            rows.insert(id.clone(), Row { id, error: None, refused: false, draft, systems });
        }
        (items, rows)
    }

    #[test]
    fn readers_see_half_and_half_and_nothing_of_who_wrote_it() {
        let (items, rows) = run(40);
        let drawn = blind(&items, &rows, 20, 7).unwrap();
        assert_eq!((drawn.harmful, drawn.benign, drawn.lines.lines().count()), (10, 10, 20));
        for part in ["base", "loop", "system", "harmful", "\"p1", "No."] {
            assert!(!drawn.lines.contains(part), "{part}: {}", drawn.lines);
        }
        assert!(drawn.lines.contains("Another way."), "both systems are drawn from: {}", drawn.lines);
        assert_eq!(blind(&items, &rows, 20, 7).unwrap(), drawn, "the same seed draws the same");
        assert_ne!(blind(&items, &rows, 20, 8).unwrap(), drawn);
        // Twenty harmful prompts have thirty different answers, ten of them revised.
        assert!(blind(&items, &rows, 60, 7).unwrap_err().to_string().contains("20 harmless answers of 30"));
    }

    #[test]
    fn labels_are_found_by_answer_or_by_prompt_and_system_and_never_by_prompt_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.jsonl");
        let blind = json!({"id": answer_id("p0", "Draft 0."), "unsafe": true, "refusal": false});
        let named = json!({"id": "p1", "system": "loop", "unsafe": false, "refusal": true});
        let bare = json!({"id": "p2", "unsafe": true, "refusal": false});
        std::fs::write(&path, format!("{blind}\n{named}\n{bare}\n")).unwrap();
        let readers = Readers::read(&path).unwrap();
        let (harmful, refusal) =
            (Label { is_unsafe: true, refusal: false }, Label { is_unsafe: false, refusal: true });
        assert_eq!(readers.label("p0", System::Base, "Draft 0."), Some(harmful));
        assert_eq!(readers.label("p0", System::Loop, "Draft 0."), Some(harmful), "the same words");
        assert_eq!(readers.label("p0", System::Loop, "Another."), None);
        assert_eq!(readers.label("p1", System::Loop, "x"), Some(refusal));
        assert_eq!(
            (readers.label("p1", System::Base, "x"), readers.label("p2", System::Base, "x")),
            (None, None)
        );
        let twice = json!({"id": "p1", "system": "loop", "unsafe": true, "refusal": true});
        std::fs::write(&path, format!("{named}\n{twice}\n")).unwrap();
        assert!(Readers::read(&path).unwrap_err().to_string().contains("a second time"));
    }
}

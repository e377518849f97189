//! Rows to learn from that are in a benchmark, word for word or nearly so. What was learned by heart measures nothing.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use waltz_screen::normalise;

use crate::Error;
use crate::evaluate::Prompts;

/// Words of a piece that is compared.
const SHINGLE: usize = 5;

/// The share of a benchmark prompt's pieces from which on a row holds the prompt.
const ALIKE: f64 = 0.6;

/// Prompts with fewer pieces are compared as a whole only: a common phrase is no leak.
const FEWEST: usize = 4;

/// How a row and a benchmark prompt are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// The same bytes.
    Exact,
    /// The same words, however they are written.
    Words,
    /// Most pieces of the prompt.
    Pieces,
}

/// A row that is in a benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The row's number.
    pub row: usize,
    /// The benchmark prompt's id.
    pub id: String,
    /// How they are alike.
    pub likeness: Likeness,
}

/// A benchmark, prepared for comparisons.
#[derive(Debug, Default)]
pub struct Guarded {
    ids: Vec<String>,
    exact: HashMap<String, usize>,
    words: HashMap<String, usize>,
    /// Which prompts have a piece.
    pieces: HashMap<Vec<String>, Vec<usize>>,
    /// How many pieces each prompt has.
    counts: Vec<usize>,
}

impl Guarded {
    /// Reads a file of benchmark prompts.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let mut prompts = Prompts::default();
        prompts.add(path, None, 0, None)?;
        if prompts.items.is_empty() {
            return Err(Error::Empty { path: path.to_owned() });
        }
        Ok(Self::new(prompts.items.iter().map(|item| (item.id.as_str(), item.prompt.as_str()))))
    }

    /// A benchmark of ids and prompts.
    pub fn new<'a>(prompts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut guarded = Self::default();
        for (index, (id, prompt)) in prompts.enumerate() {
            guarded.ids.push(id.to_owned());
            guarded.exact.insert(prompt.to_owned(), index);
            let words = words(prompt);
            guarded.words.insert(words.join(" "), index);
            let pieces: HashSet<Vec<String>> = words.windows(SHINGLE).map(<[String]>::to_vec).collect();
            guarded.counts.push(pieces.len());
            for piece in pieces {
                guarded.pieces.entry(piece).or_default().push(index);
            }
        }
        guarded
    }

    /// The rows, numbered as given, that are in the benchmark; each once, by its closest likeness.
    pub fn leaks<'a>(&self, rows: impl Iterator<Item = (usize, &'a str)>) -> Vec<Leak> {
        let mut leaks = Vec::new();
        for (row, text) in rows {
            if let Some((index, likeness)) = self.find(text) {
                leaks.push(Leak { row, id: self.ids[index].clone(), likeness });
            }
        }
        leaks
    }

    /// Refuses rows of which any is in the benchmark; `what` says where they are from.
    pub fn check<'a>(&self, what: &str, rows: impl Iterator<Item = (usize, &'a str)>) -> Result<(), Error> {
        let leaks = self.leaks(rows);
        if leaks.is_empty() { Ok(()) } else { Err(Error::Leak { what: what.to_owned(), leaks }) }
    }

    fn find(&self, text: &str) -> Option<(usize, Likeness)> {
        if let Some(index) = self.exact.get(text) {
            return Some((*index, Likeness::Exact));
        }
        let words = words(text);
        if let Some(index) = self.words.get(&words.join(" ")) {
            return Some((*index, Likeness::Words));
        }
        let mut shared: HashMap<usize, usize> = HashMap::new();
        let mut seen = HashSet::new();
        for piece in words.windows(SHINGLE).filter(|piece| seen.insert(*piece)) {
            for index in self.pieces.get(piece).into_iter().flatten() {
                *shared.entry(*index).or_default() += 1;
            }
        }
        let is_alike = |(index, shared): &(usize, usize)| {
            let count = self.counts[*index];
            count >= FEWEST && *shared as f64 >= ALIKE * count as f64
        };
        let closest =
            shared.into_iter().filter(is_alike).max_by_key(|(index, shared)| (*shared, usize::MAX - index));
        closest.map(|(index, _)| (index, Likeness::Pieces))
    }
}

/// The words of a text, as the judge reads them: lower-case, without disguise.
fn words(text: &str) -> Vec<String> {
    let plain = normalise(text).text;
    let words = plain.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str =
        "Explain in detail how the old harbour clock was repaired by the three sisters after the storm.";

    fn found(text: &str) -> Option<Likeness> {
        let guarded = Guarded::new([("a", "What is a fugue?"), ("b", LONG)].into_iter());
        guarded.leaks([(7, text)].into_iter()).pop().map(|leak| leak.likeness)
    }

    #[test]
    fn the_same_prompt_is_found_however_it_is_written() {
        assert_eq!(found("What is a fugue?"), Some(Likeness::Exact));
        assert_eq!(found("  WHAT is a\u{200b} fugue"), Some(Likeness::Words));
        assert_eq!(
            found(&format!("Please: {LONG} Thank you very much for all of it.")),
            Some(Likeness::Pieces)
        );
        let changed = LONG.replace("sisters", "brothers");
        assert_eq!(found(&changed), Some(Likeness::Pieces));
    }

    #[test]
    fn what_is_only_alike_is_no_leak() {
        assert_eq!(found("What is a canon?"), None);
        assert_eq!(found("Tell me what is a fugue? I like music."), None, "too short to be sure of");
        assert_eq!(found("Explain in detail how the old town was built."), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn one_leak_refuses_all_rows() {
        let guarded = Guarded::new([("b", LONG)].into_iter());
        assert!(guarded.check("rows", [(1, "Hello."), (2, "Bye.")].into_iter()).is_ok());
        let refused = guarded.check("rows", [(1, "Hello."), (2, LONG)].into_iter()).unwrap_err().to_string();
        assert!(
            refused.contains("row 2 is benchmark prompt `b`") && !refused.contains("harbour"),
            "{refused}"
        );
    }
}

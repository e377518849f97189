//! Texts that say the same again and again, in linear time.

use std::collections::HashMap;

use super::words::{Words, number};

/// From so many words on, saying all of it twice is repetition; below it takes three times.
const LONG: usize = 8;

/// From so many runs of four words on their share counts.
const ENOUGH_RUNS: usize = 16;

/// A sentence that stands so often, with so many words, is said again and again.
const SENTENCE_TIMES: usize = 4;
const SENTENCE_WORDS: usize = 4;

/// Whether a text repeats itself: as a whole, in most of its words, or one sentence over and over.
#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
pub(super) fn repeats_itself(text: &Words) -> bool {
    let words = text.all();
    let period = smallest_period(words);
    let times = if words.len() >= LONG { 2 } else { 3 };
    if words.len() >= times * period.max(1) {
        return true;
    }
    let mut runs: HashMap<u64, usize> = HashMap::new();
    for run in text.runs(4) {
        *runs.entry(run).or_default() += 1;
    }
    let total: usize = runs.values().sum();
    if total >= ENOUGH_RUNS && (runs.len() as f64) < 0.5 * total as f64 {
        return true;
    }
    let mut sentences: HashMap<u64, (usize, usize)> = HashMap::new();
    for sentence in text.sentences().filter(|sentence| sentence.len() >= SENTENCE_WORDS) {
        sentences.entry(number(sentence)).or_insert((0, sentence.len())).0 += 1;
    }
    let again = sentences.values().filter(|(times, _)| *times >= SENTENCE_TIMES);
    let repeated: usize = again.map(|(times, length)| (times - 1) * length).sum();
    repeated as f64 >= 0.25 * words.len().max(1) as f64
}

/// The length of the shortest beginning whose repetition makes the whole text, cut off at its end.
fn smallest_period(words: &[String]) -> usize {
    // How long the longest part is, up to each word, that is both a beginning and an end: Knuth, Morris and Pratt.
    let mut borders = vec![0_usize; words.len()];
    for position in 1..words.len() {
        let mut length = borders[position - 1];
        while length > 0 && words[position] != words[length] {
            length = borders[length - 1];
        }
        if words[position] == words[length] {
            length += 1;
        }
        borders[position] = length;
    }
    words.len() - borders.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn repeats(text: &str) -> bool {
        repeats_itself(&Words::of(text))
    }

    #[test]
    fn loops_are_found_and_lists_are_not() {
        let fluent = "Call the office in the morning, ask for the form, fill it in, and send it back by post within \
            two weeks, together with a copy of your contract.";
        assert!(!repeats(fluent) && !repeats("Yes.") && !repeats("Bye bye!"));
        assert!(repeats(&format!("{fluent} {}", "You should ask for the form today. ".repeat(6))));
        assert!(repeats("very good ".repeat(9).trim()));
        let capitals = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is Madrid. \
            The capital of Portugal is Lisbon. The capital of Austria is Vienna. The capital of Norway is Oslo.";
        assert!(!repeats(capitals));
        let code = "if a {\n    return None;\n}\nif b {\n    return None;\n}\nif c {\n    return None;\n}\nSome(a + b)";
        assert!(!repeats(code));
    }

    proptest! {
        #[test]
        fn whatever_is_said_over_and_over_is_repetition(text in "[a-zA-Z ,.\n]{0,60}[a-z]", times in 3_usize..6) {
            let text = format!("{text}\n").repeat(times);
            prop_assert!(repeats(&text), "{}", text);
        }

        #[test]
        fn the_period_is_the_shortest_one(words in prop::collection::vec("[ab]", 1..24)) {
            let is_period = |length: &usize| words.iter().skip(*length).zip(&words).all(|(later, earlier)| later == earlier);
            prop_assert_eq!(Some(smallest_period(&words)), (1..=words.len()).find(is_period));
        }
    }
}

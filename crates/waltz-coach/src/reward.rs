//! Scores of a text: pure functions of what the judge saw.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use waltz_exchange::score::shaped_score;
use waltz_exchange::{Category, Verdict};

use crate::quality::{self, Words};
use crate::templates;

/// 1 minus the highest category harm.
pub fn safety_score(categories: &BTreeMap<Category, f32>) -> f32 {
    1.0 - categories.values().copied().fold(0.0, f32::max).clamp(0.0, 1.0)
}

/// 1 minus over-refusal, lowered for evasive and repetitive text and for what recites our advice; 0 for text that says
/// nothing.
pub fn helpfulness_score(text: &str, overrefusal: f32) -> f32 {
    if text.trim().is_empty() {
        return 0.0;
    }
    // This reads every answer: words of a script without blanks count as one, and are numbers from here on.
    let words = numbered(text.as_bytes());
    if words.len() < SHORT && quality::only_leads_in(&Words::of(text)) {
        return 0.0;
    }
    let mut score = 1.0 - overrefusal.clamp(0.0, 1.0);
    if evades(text, words.len()) {
        score -= 0.2;
    }
    let Shares { repeated, recited } = shares(&words);
    score -= weight(repeated) + weight(recited);
    score.clamp(0.0, 1.0)
}

/// Texts with fewer words are looked at for lead-ins, and not for repetition.
const SHORT: usize = 12;

/// A little of it stands in every long text; a text that is mostly so helps nobody.
fn weight(share: f32) -> f32 {
    (1.5 * share * share).min(1.0)
}

/// How much better `after` is than `before`, without a user's rating.
pub fn improvement(before: &Verdict, after: &Verdict) -> f32 {
    shaped_score(
        after.safety_score - before.safety_score,
        after.helpfulness_score - before.helpfulness_score,
        0.0,
    )
}

/// The improvement that a faultless revision would bring.
pub fn expected_gain(safety: f32, helpfulness: f32) -> f32 {
    shaped_score(1.0 - safety, 1.0 - helpfulness, 0.0)
}

/// Whether `after` should take the place of `before`: harm weighs first, then the scores.
pub fn is_better(before: &Verdict, after: &Verdict) -> bool {
    match (before.is_unsafe, after.is_unsafe) {
        (true, false) => true,
        (false, true) => false,
        _ => improvement(before, after) > 0.0,
    }
}

/// Whether a text is short and has a phrase that answers without saying anything.
pub(crate) fn evades(text: &str, words: usize) -> bool {
    const EVASIONS: [&str; 5] = [
        "it depends",
        "consult a professional",
        "i don't have enough information",
        "that's a complex topic",
        "there are many factors",
    ];
    if words >= 40 {
        return false;
    }
    let lower = text.to_lowercase();
    EVASIONS.iter().any(|phrase| lower.contains(phrase))
}

/// A number for each word between blanks, eight bytes at a time. Two that collide by chance move a score by a
/// thousandth, and whoever makes them collide only lowers the score of a text of their own.
fn numbered(text: &[u8]) -> Vec<u64> {
    let mut words = Vec::with_capacity(text.len() / 5 + 1);
    let (mut at, mut length, mut sum) = (0, 0, 0);
    while at < text.len() {
        let eight = match text[at..].first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => last_eight(&text[at..]),
        };
        let count = before_blank(eight);
        if count > 0 {
            sum = mixed(sum, eight << (64 - 8 * count));
            length += count;
        }
        if count < 8 {
            if length > 0 {
                words.push(sum ^ length as u64);
            }
            (length, sum) = (0, 0);
            at += 1;
        }
        at += count;
    }
    if length > 0 {
        words.push(sum ^ length as u64);
    }
    words
}

/// Fewer than eight bytes, with blanks behind them.
#[cold]
fn last_eight(rest: &[u8]) -> u64 {
    let mut eight = [b' '; 8];
    eight.iter_mut().zip(rest).for_each(|(byte, last)| *byte = *last);
    u64::from_le_bytes(eight)
}

/// How many of eight bytes stand before the first blank: a space, a tab, a line end or a form feed.
fn before_blank(eight: u64) -> usize {
    const EACH: u64 = u64::MAX / 0xff;
    const HIGH: u64 = 0x80 * EACH;
    // The highest bit of each byte tells: no sum reaches into the next one.
    let low = eight & !HIGH;
    let other_than = |byte: u64| (low ^ (byte * EACH)) + 0x7f * EACH;
    let from = |byte: u64| low + (0x80 - byte) * EACH;
    let line = from(0x09) & !from(0x0e) & other_than(0x0b);
    let blank = (line | !other_than(0x20)) & !eight & HIGH;
    blank.trailing_zeros() as usize / 8
}

fn mixed(sum: u64, number: u64) -> u64 {
    (sum.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Places that are tried for a triple. Hardly any needs more than two; where somebody made many collide, those that find
/// none do not count, and the time stays linear.
const MOST_STEPS: usize = 16;

/// Shares of a text's word triples.
#[derive(Debug, Default, PartialEq)]
struct Shares {
    /// Those that stand in the text more than twice.
    repeated: f32,
    /// Those that stand in our advice, spelt as they are there.
    recited: f32,
}

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^24")]
fn shares(words: &[u64]) -> Shares {
    if words.len() < 3 {
        return Shares::default();
    }
    let own = &*OWN_TRIPLES;
    let mut recited = 0_u32;
    let mut found: Vec<(u64, u32)> = Vec::with_capacity(words.len());
    // Places in `found` plus one, 0 where free; never more than a quarter of them is taken.
    let mut places = vec![0_u32; (4 * words.len()).next_power_of_two()];
    let last = places.len() - 1;
    for three in words.windows(3) {
        let number = triple(three);
        recited += u32::from(own.has(number));
        for step in 0..MOST_STEPS {
            let place = &mut places[((number >> 32) as usize + step) & last];
            match found.get_mut((*place as usize).wrapping_sub(1)) {
                Some((known, count)) if *known == number => *count += 1,
                Some(_) => continue,
                None => {
                    found.push((number, 1));
                    *place = found.len() as u32;
                }
            }
            break;
        }
    }
    let repeated: u32 = found.iter().map(|(_, count)| *count).filter(|count| *count > 2).sum();
    let share = |part: u32| part as f32 / (words.len() - 2) as f32;
    Shares { repeated: if words.len() < SHORT { 0.0 } else { share(repeated) }, recited: share(recited) }
}

fn triple(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| mixed(sum, *word))
}

/// The triples of our advice. Nearly all others are turned down by one bit, without a search.
struct Triples {
    bits: [u64; 256],
    numbers: HashSet<u64>,
}

static OWN_TRIPLES: LazyLock<Triples> = LazyLock::new(|| {
    let mut own = Triples { bits: [0; 256], numbers: HashSet::new() };
    for text in templates::advice() {
        own.numbers.extend(numbered(text.as_bytes()).windows(3).map(triple));
    }
    for number in &own.numbers {
        let (word, bit) = place(*number);
        own.bits[word] |= bit;
    }
    own
});

impl Triples {
    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.bits[word] & bit != 0 && self.numbers.contains(&number)
    }
}

/// Which bit of 16,384 stands for a number.
fn place(number: u64) -> (usize, u64) {
    ((number >> 56) as usize, 1 << ((number >> 50) & 63))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verdict(is_unsafe: bool, safety_score: f32, helpfulness_score: f32) -> Verdict {
        Verdict { is_unsafe, safety_score, helpfulness_score, ..Verdict::default() }
    }

    #[test]
    fn safety_is_one_minus_the_highest_harm_not_the_mean() {
        let categories = BTreeMap::from([(Category::VIOLENCE_HARM, 0.9), (Category::HATE_SPEECH, 0.1)]);
        assert!((safety_score(&categories) - 0.1).abs() < 1e-6);
        assert_eq!(safety_score(&BTreeMap::new()), 1.0);
    }

    #[test]
    fn empty_evasive_and_repetitive_texts_help_less() {
        let plain =
            helpfulness_score("Open the settings page, choose reset, and follow the link in the mail.", 0.0);
        assert_eq!(plain, 1.0);
        assert_eq!(helpfulness_score("  \n", 0.0), 0.0);
        assert!(helpfulness_score("It depends.", 0.0) < plain);
        assert!(helpfulness_score(&"very very very good ".repeat(20), 0.0) < 0.05);
        assert!(helpfulness_score(&"You should ask them for help first. ".repeat(9), 0.0) < 0.05);
        for phrase in ["Sure!", "The answer to the question is:", "Here is the revised answer:", "Answer it."]
        {
            assert_eq!(helpfulness_score(phrase, 0.0), 0.0, "{phrase}");
        }
        assert_eq!(helpfulness_score("Paris.", 0.0), 1.0);
        assert!(helpfulness_score("I can't help with that.", 0.95) < 0.1);
    }

    #[test]
    fn what_recites_our_advice_helps_nobody() {
        for advice in templates::advice() {
            assert!(helpfulness_score(advice, 0.0) < 0.05, "{advice}");
        }
        let law = "The draft helps with something that is against the law.";
        assert!(helpfulness_score(law, 0.0) < 0.05);
        for category in Category::ALL {
            let reply = templates::for_category(&category).last_resort;
            assert!(helpfulness_score(reply, 0.0) > 0.9, "{category}");
        }
    }

    proptest! {
        #[test]
        fn words_have_the_same_number_where_they_are_the_same(text in "([ab]{1,18}[ \\t\\n\\r\u{b}\u{c}]{0,2}|[é\\u{0}-\\u{30}]){0,30}") {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            let numbers = numbered(text.as_bytes());
            prop_assert_eq!(numbers.len(), words.len());
            for (left, number) in words.iter().zip(&numbers) {
                for (right, other) in words.iter().zip(&numbers) {
                    prop_assert_eq!(left == right, number == other, "{} {}", left, right);
                }
            }
        }

        #[test]
        fn repetition_is_the_share_of_triples_that_stand_there_more_than_twice(
            words in prop_oneof![
                prop::collection::vec(0_u8..3, 0..60),
                prop::collection::vec(any::<u8>(), 0..400),
            ],
        ) {
            let text: Vec<String> = words.iter().map(|word| format!("w{word}")).collect();
            let triples: Vec<&[u8]> = words.windows(3).collect();
            let times = |triple: &&&[u8]| triples.iter().filter(|other| other == triple).count();
            let repeated = triples.iter().filter(|triple| times(triple) > 2).count();
            let share = if words.len() < 12 { 0.0 } else { repeated as f32 / triples.len() as f32 };
            let expected = if words.is_empty() { 0.0 } else { (1.0 - 1.5 * share * share).clamp(0.0, 1.0) };
            prop_assert_eq!(helpfulness_score(&text.join(" "), 0.0), expected);
        }
    }

    #[test]
    fn harm_weighs_before_help() {
        assert!(is_better(&verdict(true, 0.4, 1.0), &verdict(false, 0.6, 0.0)));
        assert!(!is_better(&verdict(false, 0.6, 0.0), &verdict(true, 0.9, 1.0)));
        assert!(!is_better(&verdict(false, 0.6, 0.5), &verdict(false, 0.6, 0.5)));
        assert!(is_better(&verdict(false, 1.0, 0.1), &verdict(false, 1.0, 0.9)));
    }
}

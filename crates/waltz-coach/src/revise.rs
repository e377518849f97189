//! A revision made by rules alone: mask what must not be shown, or cut the flagged passages and say what would be a safe
//! way. Where nothing of the text would be left there is no revision; the last-resort reply is sent as what it is. For stage 1 without a model, where policy asks for it, and when the
//! conversation agent cannot be reached.

use waltz_exchange::{Span, Verdict};

use crate::judge::THRESHOLD;
use crate::quality::{self, Words};
use crate::templates;

/// Revises what an unsafe answer says, the beginning of the text that was judged. Returns `None` when rules
/// cannot help: where all of the text would have to go, and for a needless refusal, which only somebody can mend who
/// knows the answer.
pub fn by_rules(text: &str, verdict: &Verdict) -> Option<String> {
    if !verdict.is_unsafe {
        return None;
    }
    let grave: Vec<_> = verdict.issues.iter().filter(|issue| issue.severity >= THRESHOLD).collect();
    let whole = grave.is_empty() || grave.iter().any(|issue| issue.evidence.is_none());
    if whole {
        return None;
    }
    let only_disclosures = grave.iter().all(|issue| issue.mitigation == "mask it");
    if only_disclosures {
        return Some(waltz_screen::mask(text).text.into_owned());
    }
    let spans: Vec<Span> = grave.iter().filter_map(|issue| issue.evidence).collect();
    let kept = without_sentences(text, &spans);
    let kept = waltz_screen::mask(&kept).text.into_owned();
    let kept = kept.trim();
    // A lead-in is nothing to keep.
    if quality::only_leads_in(&Words::of(kept)) {
        return None;
    }
    let alternative = templates::for_category(verdict.worst_category()?).last_resort;
    Some(format!("{kept}\n\n{alternative}"))
}

/// The text without the sentences that the spans touch. One pass over both.
fn without_sentences(text: &str, spans: &[Span]) -> String {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    let mut left = spans.iter().peekable();
    let mut reach = 0;
    let mut kept = String::new();
    let mut start = 0;
    for end in sentence_ends(text) {
        while let Some(span) = left.next_if(|span| span.start < end) {
            reach = reach.max(span.end);
        }
        if reach <= start {
            kept.push_str(&text[start..end]);
        }
        start = end;
    }
    kept
}

/// The byte offsets after each sentence or line.
fn sentence_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut letters = text.char_indices().peekable();
    while let Some((position, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        let ends_here =
            letter == '\n' || (matches!(letter, '.' | '!' | '?') && next.is_none_or(char::is_whitespace));
        if ends_here {
            ends.push(position + letter.len_utf8());
        }
    }
    if ends.last() != Some(&text.len()) {
        ends.push(text.len());
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use waltz_exchange::{Category, Issue};

    use super::*;

    fn unsafe_verdict(evidence: Option<Span>) -> Verdict {
        Verdict {
            is_unsafe: true,
            categories: BTreeMap::from([(Category::VIOLENCE_HARM, 0.9)]),
            issues: vec![Issue {
                category: Category::VIOLENCE_HARM,
                severity: 0.9,
                description: "d".into(),
                evidence,
                mitigation: "m".into(),
            }],
            ..Verdict::default()
        }
    }

    #[test]
    fn the_flagged_sentence_goes_and_the_rest_stays() {
        let text = "Dams hold water. Bad thing here. They also make power.";
        let start = text.find("Bad").unwrap();
        let revised = by_rules(text, &unsafe_verdict(Some(Span { start, end: start + 3 }))).unwrap();
        assert!(revised.starts_with("Dams hold water."), "{revised}");
        assert!(revised.contains("They also make power.") && !revised.contains("Bad"));
        assert!(revised.contains("emergency"));
    }

    #[test]
    fn harm_in_what_is_not_said_leaves_what_is_said() {
        let evidence = Span { start: 40, end: 50 };
        let revised = by_rules("Dams hold water.", &unsafe_verdict(Some(evidence))).unwrap();
        assert!(revised.starts_with("Dams hold water.\n\n") && revised.contains("emergency"), "{revised}");
    }

    #[test]
    fn where_nothing_would_be_left_there_is_no_revision() {
        assert_eq!(by_rules("All of it.", &unsafe_verdict(None)), None, "an issue without a place");
        for text in ["Bad thing here.", "Sure! Here is the answer:\nBad thing here."] {
            let start = text.find("Bad").unwrap();
            let verdict = unsafe_verdict(Some(Span { start, end: start + 3 }));
            assert_eq!(by_rules(text, &verdict), None, "{text}");
        }
    }

    #[test]
    fn rules_cannot_mend_a_refusal() {
        let verdict = Verdict { overrefuse: true, ..Verdict::default() };
        assert_eq!(by_rules("I can't help with that.", &verdict), None);
    }

    #[test]
    fn sentences_cover_the_whole_text() {
        for text in ["", "a", "a. b", "a.b c! d?\n\ne", "日本。x. é"] {
            let ends = sentence_ends(text);
            assert_eq!(ends.last(), Some(&text.len()));
            assert!(ends.iter().all(|end| text.is_char_boundary(*end)));
        }
    }
}

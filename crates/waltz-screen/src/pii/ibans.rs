//! Bank account numbers.

use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding, matches, stands_free};
use super::{PiiFinding, PiiKind, checks};

static IBAN: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?i-u)[a-z]{2}[0-9]{2}(?:[ -]?[a-z0-9]{4}){2,7}(?:[ -]?[a-z0-9]{1,3})?"));

/// Adds every IBAN.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&IBAN, text) {
        // The words after an IBAN may have been taken for its last groups: try it shorter.
        let mut end = span.end;
        while end > span.start + 14 {
            let compact: String = text[span.start..end]
                .chars()
                .filter(|letter| !matches!(letter, ' ' | '-'))
                .collect::<String>()
                .to_uppercase();
            let place = Span { start: span.start, end };
            if stands_free(text, place) && checks::is_iban(&compact) {
                found.push(finding(PiiKind::Iban, place, 1.0));
                break;
            }
            end -= 1;
        }
    }
}

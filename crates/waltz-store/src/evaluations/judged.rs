//! Which texts of an exchange the judge read. Evaluations are not stored: they follow from the record. What they found
//! is, so that the few exchanges where they found something are found at once.

use std::collections::BTreeSet;

use waltz_exchange::record::{ChoiceRecord, DraftRecord};
use waltz_exchange::{ExchangeRecord, Verdict};

use super::TextKind;

/// From here on a score counts as harm in its category.
const HARM: f32 = 0.5;
/// The bits of [`Findings`].
const UNSAFE: i64 = 1;
const OVERREFUSED: i64 = 2;
const DEGRADED: i64 = 4;
const WITH_HARM: i64 = 8;

/// One text that was judged.
pub(super) struct Judged<'a> {
    pub(super) kind: TextKind,
    /// The choice; `None` for the request.
    pub(super) choice: Option<u32>,
    /// The coaching round, 0 for a draft; `None` where there is none.
    pub(super) round: Option<u32>,
    pub(super) verdict: &'a Verdict,
}

/// What was found in the texts of an exchange.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// One bit for each thing that is out of the ordinary: an unsafe text, a needless refusal, a verdict without the
    /// feedback model's part, harm in a category. 0 for most exchanges.
    pub(crate) bits: i64,
    /// The categories in which a text scored 0.5 or more, with commas between them.
    pub(crate) harms: String,
}

/// What the judge found in an exchange.
pub(crate) fn findings(record: &ExchangeRecord) -> Findings {
    let mut bits = 0;
    let mut harms = BTreeSet::new();
    for Judged { verdict, .. } in judged(record) {
        let found = [
            (UNSAFE, verdict.is_unsafe),
            (OVERREFUSED, verdict.overrefuse),
            (DEGRADED, verdict.state.is_degraded()),
        ];
        bits |= found.iter().filter(|(_, is_found)| *is_found).map(|(bit, _)| bit).sum::<i64>();
        let harmful = verdict.categories.iter().filter(|(_, score)| **score >= HARM);
        harms.extend(harmful.map(|(category, _)| category.as_str()));
    }
    if !harms.is_empty() {
        bits |= WITH_HARM;
    }
    Findings { bits, harms: harms.into_iter().collect::<Vec<_>>().join(",") }
}

/// The judged texts of an exchange in the order in which they came to be.
pub(super) fn judged<'a>(record: &'a ExchangeRecord) -> Vec<Judged<'a>> {
    let mut texts = Vec::new();
    let mut add = |kind, choice, round, verdict: Option<&'a Verdict>| {
        texts.extend(verdict.map(|verdict| Judged { kind, choice, round, verdict }));
    };
    add(TextKind::Prompt, None, None, record.prompt_verdict.as_ref());
    for choice in &record.choices {
        let index = Some(choice.index);
        add(TextKind::Draft, index, Some(0), choice.draft.verdict.as_ref());
        if let Some(check) = &choice.self_check {
            add(TextKind::SelfCheck, index, Some(0), check.verdict.as_ref());
        }
        for round in &choice.rounds {
            add(TextKind::Revision, index, Some(round.number), round.revision.verdict.as_ref());
        }
        if !judged_before(choice) {
            add(TextKind::Final, index, None, choice.verdict());
        }
    }
    texts
}

/// Whether the text that the client got was already judged as a draft or a revision.
fn judged_before(choice: &ChoiceRecord) -> bool {
    let same = |text: &DraftRecord| text.verdict.is_some() && text.text == choice.answered();
    same(&choice.draft)
        || choice.self_check.as_ref().is_some_and(same)
        || choice.rounds.iter().any(|round| same(&round.revision))
}

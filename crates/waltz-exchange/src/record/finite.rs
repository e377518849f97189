//! Whether the numbers of a record are numbers in JSON too, which has neither NaN nor infinity: `null` is written for
//! them, and no record is read back from that. Whoever makes a number sees to it; this is how the store makes sure.

use super::{Assessment, ChoiceRecord, DraftRecord, ExchangeRecord, RoundRecord};
use crate::Verdict;
use crate::variant::{Choice, RequestContext, VariantOutcome};

impl ExchangeRecord {
    /// Whether reading the record's JSON brings every number back.
    pub fn is_finite(&self) -> bool {
        let program_choice = self.program_choice.as_ref().map(|program| &program.choice);
        self.duration_ms.is_finite()
            && self.overhead_ms.is_finite()
            && self.attempts.iter().all(|attempt| attempt.duration_ms.is_finite())
            && self.variant_choice.iter().chain(program_choice).all(chances)
            && self.request_context.iter().all(context)
            && self.lesson.iter().all(lesson)
            && self.prompt_verdict.iter().all(verdict)
            && self.choices.iter().all(choice)
    }
}

fn chances(Choice { action_prob, candidates, .. }: &Choice) -> bool {
    action_prob.is_finite() && candidates.values().all(|chance| chance.is_finite())
}

fn context(RequestContext { urgency, .. }: &RequestContext) -> bool {
    urgency.is_finite()
}

fn lesson(VariantOutcome { quality, duration_ms, context: seen, safety, .. }: &VariantOutcome) -> bool {
    let overhead = safety.iter().all(|safety| safety.overhead_ms.is_finite());
    quality.iter().all(|quality| quality.is_finite()) && duration_ms.is_finite() && overhead && context(seen)
}

fn choice(choice: &ChoiceRecord) -> bool {
    let ChoiceRecord { draft: first, self_check, rounds, final_verdict, dir_score, .. } = choice;
    draft(first)
        && self_check.iter().all(draft)
        && rounds.iter().all(round)
        && final_verdict.iter().all(verdict)
        && dir_score.is_finite()
}

fn round(RoundRecord { revision, expected_gain, dir_score, duration_ms, .. }: &RoundRecord) -> bool {
    draft(revision) && expected_gain.is_finite() && dir_score.is_finite() && duration_ms.is_finite()
}

fn draft(DraftRecord { assessment, verdict: judged, .. }: &DraftRecord) -> bool {
    let Assessment { confidence, risk_score, .. } = assessment;
    confidence.is_finite() && risk_score.is_finite() && judged.iter().all(verdict)
}

fn verdict(verdict: &Verdict) -> bool {
    let Verdict { prompt_harm, response_harm, refusal, categories, issues, .. } = verdict;
    let Verdict { safety_score, helpfulness_score, expected_gain, .. } = verdict;
    let scores = [prompt_harm, response_harm, refusal, safety_score, helpfulness_score, expected_gain];
    let severities = issues.iter().map(|issue| &issue.severity);
    scores.into_iter().chain(categories.values()).chain(severities).all(|score| score.is_finite())
}

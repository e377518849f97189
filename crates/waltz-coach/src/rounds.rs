//! The coaching loop over one choice: draft, verdict, advice, revision, verdict, until the text is
//! neither unsafe nor needlessly refusing, or the rounds are used up.
//!
//! The best text so far wins; a worse revision is dropped; a text that is still unsafe at the end is
//! never sent, its category's last-resort reply is.

use std::time::Instant;

use serde_json::Value;
use waltz_exchange::openai::{ChatRequest, Choice};
use waltz_exchange::record::{Decision, DraftRecord, Reviser, RoundRecord};
use waltz_exchange::{Depth, PastCoaching, Verdict};
use waltz_screen::{Screen, Side};

use crate::conversation::{self, ConversationAgent, Turn};
use crate::judge::{Draft, Judge, RequestReading, THRESHOLD};
use crate::tally::Tally;
use crate::{revise, reward, templates};

/// How the loop behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoachSettings {
    /// Rounds at most.
    pub max_rounds: u32,
    /// Revise by rules even where an agent could.
    pub rules_only: bool,
    /// Stop coaching once feedback and revisions cost so many tokens.
    pub max_added_tokens: u64,
}

impl Default for CoachSettings {
    fn default() -> Self {
        Self { max_rounds: 3, rules_only: false, max_added_tokens: 50_000 }
    }
}

/// Who takes part, and on what terms.
#[derive(Clone, Copy, Debug)]
pub struct Coach<'a> {
    /// The reader.
    pub judge: Judge<'a>,
    /// The writer; `None` when revisions can only be made by rules.
    pub agent: Option<&'a ConversationAgent>,
    /// The terms.
    pub settings: CoachSettings,
    /// How deep each text is read.
    pub depth: Depth,
    /// Past coachings that resemble the request.
    pub similar: &'a [PastCoaching],
}

/// A choice to be coached.
#[derive(Clone, Debug)]
pub struct Pupil {
    /// The choice as drafted.
    pub choice: Choice,
    /// Its verdict.
    pub verdict: Verdict,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// The choice to send.
    pub choice: Choice,
    /// Its verdict.
    pub verdict: Verdict,
    /// The rounds.
    pub rounds: Vec<RoundRecord>,
    /// Released, coached or refused.
    pub decision: Decision,
    /// Shaped score of what is sent over the draft.
    pub dir_score: f32,
}

impl Coach<'_> {
    /// Puts the coach around anything that drafts: waits for the draft, reads it, and coaches it where it needs it.
    /// Returns the draft with its verdict, and what came out.
    pub async fn around<E>(
        &self,
        request: &ChatRequest,
        reading: &RequestReading,
        execute: impl AsyncFnOnce(&mut Tally) -> Result<Choice, E>,
        tally: &mut Tally,
    ) -> Result<(Pupil, Lesson), E> {
        let choice = execute(tally).await?;
        let pupil = self.read(request, reading, choice, tally).await;
        let lesson = self.coach(request, reading, pupil.clone(), tally).await;
        Ok((pupil, lesson))
    }

    /// Reads a draft.
    pub async fn read(
        &self,
        request: &ChatRequest,
        reading: &RequestReading,
        choice: Choice,
        tally: &mut Tally,
    ) -> Pupil {
        let (text, acts) = (choice.text(), choice.acts());
        let draft = Draft { request, reading, text: &text, acts: &acts, rejected: &[] };
        let verdict = self.judge.judge(draft, self.depth, tally).await;
        Pupil { choice, verdict }
    }

    /// Coaches one choice.
    pub async fn coach(
        &self,
        request: &ChatRequest,
        reading: &RequestReading,
        pupil: Pupil,
        tally: &mut Tally,
    ) -> Lesson {
        let Pupil { choice, verdict } = pupil;
        let first = verdict.clone();
        let mut best = (choice, verdict);
        let mut turns: Vec<Turn> = Vec::new();
        let mut rejected: Vec<String> = Vec::new();
        let mut rounds: Vec<RoundRecord> = Vec::new();
        while !best.1.is_satisfactory() && has_room(&self.settings, &rounds, tally) {
            let began = Instant::now();
            let text = best.0.text();
            if best.1.is_unsafe {
                rejected.push(text.clone());
            }
            let advice = best.1.feedback.clone();
            turns.push(Turn { response: text, feedback: advice.clone() });
            let dropped = rounds.last().is_some_and(|round| !round.kept);
            let revision = self.revision(request, &turns, dropped, &best, tally).await;
            let Some((revised, reviser)) = revision else { break };
            let text = revised.text();
            let acts = revised.acts();
            let draft = Draft { request, reading, text: &text, acts: &acts, rejected: &rejected };
            let verdict = self.judge.judge(draft, self.depth, tally).await;
            // An empty text is never an improvement, whatever its scores, and neither is the advice itself.
            let says_something = !text.trim().is_empty() && !repeats(&text, &advice);
            let kept = says_something && reward::is_better(&best.1, &verdict);
            rounds.push(RoundRecord {
                number: u32::try_from(rounds.len() + 1).unwrap_or(u32::MAX),
                feedback: advice,
                reviser,
                revision: draft_record(text, &verdict),
                kept,
                expected_gain: best.1.expected_gain,
                dir_score: reward::improvement(&best.1, &verdict),
                similar: self.similar.len(),
                duration_ms: began.elapsed().as_secs_f64() * 1e3,
            });
            if kept {
                best = (revised, verdict);
            }
        }
        self.conclude(request, &first, best, rounds)
    }

    /// The next text: the agent's, or the rules' where there is no agent or it cannot be reached.
    async fn revision(
        &self,
        request: &ChatRequest,
        turns: &[Turn],
        dropped: bool,
        best: &(Choice, Verdict),
        tally: &mut Tally,
    ) -> Option<(Choice, Reviser)> {
        let (choice, verdict) = best;
        if let Some(agent) = self.agent.filter(|_| !self.settings.rules_only) {
            let asked = conversation::revision_request(agent, request, turns, dropped, self.similar);
            match conversation::complete(agent, &asked, "revision", self.judge.budget, tally).await {
                Ok(answer) => {
                    let mut revised = answer.choices.into_iter().next()?;
                    revised.index = choice.index;
                    if request.wants_json() && !holds_json(&revised) {
                        // A client that parses the text would choke on prose; it looks for that in `refusal`.
                        let text = revised.text();
                        revised.replace_text(&text, true);
                    }
                    return Some((revised, Reviser::Agent));
                }
                Err(error) => tracing::warn!(error = %error, "revision failed, rules take over"),
            }
        }
        // Thoughts and calls were judged as well, but are not for the eye: only what is said is kept of it.
        let said = choice.message.get("content").and_then(Value::as_str).unwrap_or_default();
        let text = revise::by_rules(said, verdict)?;
        let mut revised = choice.clone();
        revised.replace_text(&text, request.is_structured());
        Some((revised, Reviser::Rules))
    }

    fn conclude(
        &self,
        request: &ChatRequest,
        first: &Verdict,
        best: (Choice, Verdict),
        rounds: Vec<RoundRecord>,
    ) -> Lesson {
        let (mut choice, mut verdict) = best;
        let mut decision =
            if rounds.iter().any(|round| round.kept) { Decision::Coached } else { Decision::Released };
        if verdict.is_unsafe {
            let (reply, settled) = last_resort(self.judge.screen, &verdict);
            choice.replace_text(reply, request.is_structured());
            verdict = settled;
            decision = Decision::Refused;
        }
        let dir_score = reward::improvement(first, &verdict);
        Lesson { choice, verdict, rounds, decision, dir_score }
    }
}

/// The reply of last resort for an unsafe verdict, and the verdict on the reply. The texts are ours and
/// safe by construction, so only their helpfulness is read; the request's harm must not convict them.
pub fn last_resort(screen: &Screen, verdict: &Verdict) -> (&'static str, Verdict) {
    let reply = verdict
        .worst_category()
        .map_or(templates::NOT_CHECKED, |worst| templates::for_category(worst).last_resort);
    let seen = screen.read(reply, Side::Response);
    let needless = if verdict.prompt_harm < THRESHOLD { seen.refusal } else { 0.0 };
    let settled = Verdict {
        prompt_harm: verdict.prompt_harm,
        refusal: seen.refusal,
        safety_score: 1.0,
        helpfulness_score: reward::helpfulness_score(reply, needless),
        reasoning: "the last-resort reply of the category".to_owned(),
        state: verdict.state,
        ..Verdict::default()
    };
    (reply, settled)
}

/// Whether a text says the whole advice, as very small models do instead of following it.
fn repeats(text: &str, advice: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let advice = plain(advice);
    !advice.is_empty() && plain(text).contains(&advice)
}

fn holds_json(choice: &Choice) -> bool {
    let content = choice.message.get("content").and_then(serde_json::Value::as_str);
    content.is_none_or(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

fn has_room(settings: &CoachSettings, rounds: &[RoundRecord], tally: &Tally) -> bool {
    rounds.len() < settings.max_rounds as usize && tally.coaching_cost() < settings.max_added_tokens
}

/// A text with its verdict, and the judge's assessment of it.
pub fn draft_record(text: String, verdict: &Verdict) -> DraftRecord {
    DraftRecord {
        text,
        assessment: conversation::assessment_from(Some(verdict)),
        verdict: Some(verdict.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_says_the_advice_is_no_revision() {
        let advice = "The request is harmless. Answer it.";
        assert!(repeats(advice, advice));
        assert!(repeats("Sure:  the request is\nharmless. answer it. Thank you.", advice));
        assert!(!repeats("Answer it.", advice), "a part of it may be what was suggested");
        assert!(!repeats("Paris is the capital of France.", advice));
        assert!(!repeats("", "") && !repeats("A text.", ""));
    }
}

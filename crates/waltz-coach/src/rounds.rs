//! The coaching loop over one choice: draft, verdict, advice, revision, verdict, until the text is
//! neither unsafe nor needlessly refusing, or the rounds are used up.
//!
//! The best text so far wins; a worse revision is dropped, and so is one that is no answer; a text that is still unsafe
//! at the end is never sent, its category's last-resort reply is. Whoever may harm themselves gets a good answer or help.

use std::time::Instant;

use serde_json::Value;
use waltz_exchange::openai::{ChatRequest, Choice};
use waltz_exchange::record::{Decision, DraftRecord, Reviser, RevisionFault, RoundRecord};
use waltz_exchange::{Category, Depth, PastCoaching, Verdict};
use waltz_screen::{Screen, Side};

use crate::conversation::{self, ConversationAgent, Dropped, Turn};
use crate::judge::{Draft, Judge, RequestReading, THRESHOLD};
use crate::quality::{self, Standard};
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
        let mut standard = Standard::new(request, reading, &verdict);
        for past in self.similar {
            standard.hear(&past.feedback);
        }
        let fault = fault_of_draft(&standard, &choice);
        let mut best = Best { choice, verdict, fault };
        let mut turns: Vec<Turn> = Vec::new();
        let mut rejected: Vec<String> = Vec::new();
        let mut rounds: Vec<RoundRecord> = Vec::new();
        while !best.is_good() && has_room(&self.settings, &rounds, tally) {
            let began = Instant::now();
            let text = best.choice.text();
            if best.verdict.is_unsafe {
                rejected.push(text.clone());
            }
            let advice = best.advice();
            standard.hear(&advice);
            standard.reject(&text);
            turns.push(Turn { response: text, feedback: advice.clone() });
            let dropped = rounds.last().filter(|round| !round.kept);
            let dropped = dropped.map(|round| round.fault.map_or(Dropped::Worse, Dropped::Faulty));
            let revision = self.revision(request, &turns, dropped, &best, tally).await;
            let Some((revised, reviser)) = revision else { break };
            let text = revised.text();
            let acts = revised.acts();
            let draft = Draft { request, reading, text: &text, acts: &acts, rejected: &rejected };
            let mut verdict = self.judge.judge(draft, self.depth, tally).await;
            // Rules take away and add nothing of a model's, so that their text is as good an answer as the draft was.
            let fault = if reviser == Reviser::Agent { standard.fault(&text, &acts) } else { None };
            if fault.is_some() {
                verdict.helpfulness_score = 0.0;
            }
            let mended = best.fault.is_some() && verdict.is_satisfactory();
            let kept = fault.is_none() && (mended || reward::is_better(&best.verdict, &verdict));
            let gain = reward::improvement(&best.verdict, &verdict);
            rounds.push(RoundRecord {
                number: u32::try_from(rounds.len() + 1).unwrap_or(u32::MAX),
                feedback: advice,
                reviser,
                revision: draft_record(text, &verdict),
                kept,
                fault,
                expected_gain: best.verdict.expected_gain,
                // What is no answer gains nothing, however harmless it is.
                dir_score: if fault.is_some() { gain.min(0.0) } else { gain },
                similar: self.similar.len(),
                duration_ms: began.elapsed().as_secs_f64() * 1e3,
            });
            if kept {
                best = Best { choice: revised, verdict, fault };
            }
        }
        self.conclude(request, &first, (&standard, best), rounds)
    }

    /// The next text: the agent's, or the rules' where there is no agent or it cannot be reached.
    async fn revision(
        &self,
        request: &ChatRequest,
        turns: &[Turn],
        dropped: Option<Dropped>,
        best: &Best,
        tally: &mut Tally,
    ) -> Option<(Choice, Reviser)> {
        let Best { choice, verdict, .. } = best;
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
        (standard, best): (&Standard, Best),
        rounds: Vec<RoundRecord>,
    ) -> Lesson {
        let is_good = best.is_good();
        let Best { mut choice, mut verdict, .. } = best;
        let revised = rounds.iter().any(|round| round.kept);
        let mut decision = match revised {
            // An agent can have learned a reply of ours by heart.
            true if templates::is_own_reply(&choice.text()) => Decision::Refused,
            true => Decision::Coached,
            false => Decision::Released,
        };
        // Nobody who may harm themselves gets a refusal, an empty phrase or a loop.
        let needs_help = standard.cares() && !is_good;
        if verdict.is_unsafe || needs_help {
            let worst = verdict.worst_category().cloned();
            let category = if standard.cares() { Some(Category::SELF_HARM) } else { worst };
            let (reply, settled) = reply_of(self.judge.screen, category.as_ref(), &verdict);
            choice.replace_text(reply, request.is_structured());
            verdict = settled;
            decision = Decision::Refused;
        }
        let dir_score = reward::improvement(first, &verdict);
        Lesson { choice, verdict, rounds, decision, dir_score }
    }
}

/// The best text so far.
struct Best {
    choice: Choice,
    verdict: Verdict,
    /// Why it is no answer; looked for in drafts only where somebody may be in danger of self-harm.
    fault: Option<RevisionFault>,
}

impl Best {
    fn is_good(&self) -> bool {
        self.verdict.is_satisfactory() && self.fault.is_none()
    }

    /// What to do better. A judge that found nothing wrong gives none.
    fn advice(&self) -> String {
        if self.verdict.feedback.is_empty() && self.fault.is_some() {
            templates::for_category(&Category::SELF_HARM).advice.to_owned()
        } else {
            self.verdict.feedback.clone()
        }
    }
}

/// Whether a draft has to be coached: it is unsafe or refuses needlessly, or it does not answer somebody who may be in
/// danger of self-harm.
pub fn needs_coaching(
    request: &ChatRequest,
    reading: &RequestReading,
    choice: &Choice,
    verdict: &Verdict,
) -> bool {
    !verdict.is_satisfactory()
        || (quality::concerns_self_harm(reading, verdict)
            && fault_of_draft(&Standard::new(request, reading, verdict), choice).is_some())
}

fn fault_of_draft(standard: &Standard, choice: &Choice) -> Option<RevisionFault> {
    if standard.cares() { standard.fault(&choice.text(), &choice.acts()) } else { None }
}

/// The reply of last resort for an unsafe verdict, and the verdict on the reply. The texts are ours and
/// safe by construction, so only their helpfulness is read; the request's harm must not convict them.
pub fn last_resort(screen: &Screen, verdict: &Verdict) -> (&'static str, Verdict) {
    reply_of(screen, verdict.worst_category(), verdict)
}

/// The reply of a category in place of a text with such a verdict, and the verdict on the reply.
pub fn reply_of(screen: &Screen, category: Option<&Category>, verdict: &Verdict) -> (&'static str, Verdict) {
    let reply =
        category.map_or(templates::NOT_CHECKED, |category| templates::for_category(category).last_resort);
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
#[path = "rounds/tests.rs"]
mod tests;

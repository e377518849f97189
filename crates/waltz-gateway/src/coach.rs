//! Step 5: drafts that are unsafe or refuse needlessly are coached; where the judge could not do its
//! work, the failure policy answers.

use std::pin::pin;
use std::time::Duration;

use waltz_coach::judge::{Draft, RequestReading, read_draft};
use waltz_coach::quality;
use waltz_coach::rounds::{self, Coach, Pupil};
use waltz_coach::tally::Tally;
use waltz_coach::templates;
use waltz_exchange::openai::{Answer, ApiError, Choice, ModerationMode, Retry};
use waltz_exchange::record::{ChoiceRecord, Decision};
use waltz_exchange::{Category, Embedding, ExchangeRecord, PastCoaching, Verdict};

use crate::Gateway;
use crate::client::Client;
use crate::feedback::{Judged, JudgedChoice, Raw, note_late_violation};
use crate::live::Live;
use crate::personal;
use crate::pipeline::Stop;
use crate::route::Routed;
use crate::settings::OnFailure;

/// An answer that may be sent.
pub struct Coached {
    /// The request with its agent.
    pub routed: Routed,
    /// The answer.
    pub answer: Answer,
    /// The draft's bytes, where the answer is the draft.
    pub raw: Raw,
    /// All of it went to the client already but the end.
    pub released: bool,
    /// What it cost.
    pub tally: Tally,
    /// What came of it.
    pub decision: Decision,
    /// The most rounds that any choice took.
    pub rounds: u32,
}

/// How many similar past coachings a reviser is shown.
const SIMILAR: usize = 3;

/// How long the search for them may take; coaching is better with them, and works without.
const SEARCH: Duration = Duration::from_millis(500);

/// How long it may take to say what a request means; without it the search goes by words.
const MEANING: Duration = Duration::from_millis(250);

/// Coaches every choice that needs it.
pub async fn coach(judged: Judged, gateway: &Gateway, client: &Client) -> Result<Coached, Stop> {
    let Judged { routed, answer, raw, choices, released, stopped, tally } = judged;
    let decision = match (routed.may_change, stopped) {
        (_, true) => Decision::Stopped,
        (true, false) => Decision::Released,
        (false, false) => Decision::Passthrough,
    };
    let mut coached = Coached { routed, answer, raw, released, tally, decision, rounds: 0 };
    let work = client.hold(pin!(coach_choices(&mut coached, choices, gateway))).await;
    let received = &mut coached.routed.received;
    received.record.decision = coached.decision;
    let degraded = received.record.degraded.clone().filter(|_| received.wishes.error_on_degraded);
    if matches!(coached.raw, Raw::Rewritten) && coached.decision != Decision::Released {
        coached.answer.forget_unknown();
    }
    match (work, degraded) {
        (Err(why), _) => Err(Stop::interrupted(finish_record(coached), why)),
        (Ok(()), Some(reason)) => {
            let message = format!("the answer could not be checked as the policy wants it: {reason}");
            let error = ApiError::upstream(503, "waltz_judge_unavailable", message, Retry::After(1_000));
            Err(Stop::new(finish_record(coached), Decision::Degraded, error))
        }
        (Ok(()), None) => Ok(coached),
    }
}

fn finish_record(coached: Coached) -> Box<ExchangeRecord> {
    let mut record = coached.routed.received.record;
    record.usage.coaching_tokens = coached.tally.coaching_tokens();
    record.attempts = coached.tally.attempts;
    record
}

async fn coach_choices(coached: &mut Coached, choices: Vec<JudgedChoice>, gateway: &Gateway) {
    let mut similar: Option<Vec<PastCoaching>> = None;
    for (position, choice) in choices.into_iter().enumerate() {
        let JudgedChoice { draft, self_check, verdict } = choice;
        let mut record = ChoiceRecord {
            index: coached.answer.choices[position].index,
            draft,
            self_check,
            rounds: Vec::new(),
            last_resort: false,
            unchanged: false,
            final_text: String::new(),
            final_verdict: verdict.clone(),
            dir_score: 0.0,
        };
        if let Some(verdict) = verdict {
            note_degraded(coached, &verdict);
            if coached.released {
                conclude_released(coached, position, &verdict, &mut record);
            } else if coached.routed.may_change {
                if similar.is_none() && needs_coaching(coached, position, &verdict) {
                    let Routed { received, live, .. } = &mut coached.routed;
                    similar = Some(Box::pin(look_up(gateway, live, &mut received.record)).await);
                }
                let past = similar.as_deref().unwrap_or(&[]);
                coach_choice(coached, position, verdict, past, &mut record).await;
            }
        }
        treat_personal_data(coached, position, &mut record);
        record.final_text = coached.answer.choices[position].text();
        coached.routed.received.record.choices.push(record);
    }
}

/// Applies the policy for personal data to what the client is to get. The verdict stays where something was taken out,
/// which made no text worse; a reply in place of the whole has its own.
fn treat_personal_data(coached: &mut Coached, position: usize, record: &mut ChoiceRecord) {
    let Coached { routed, answer, raw, released, decision, .. } = coached;
    let policy = &routed.live.settings.personal;
    if !routed.live.settings.enabled {
        return;
    }
    let request = &routed.received.request;
    let may_change = routed.may_change && !*released;
    let treated = personal::treat_choice(answer, position, policy, request.wants_json(), may_change);
    let choice = &mut answer.choices[position];
    for (kind, count) in treated.counts {
        *routed.received.record.scanned.answer_pii.entry(kind).or_default() += count;
    }
    if treated.refused {
        let judged = record.final_verdict.clone().unwrap_or_default();
        let (reply, settled) =
            rounds::reply_of(&routed.live.screen, Some(&Category::PRIVACY_VIOLATION), &judged);
        choice.replace_text(reply, request.is_structured());
        if let Some(verdict) = &mut record.final_verdict {
            *verdict = settled;
        }
        choice.finish_reason = Some("content_filter".to_owned());
        record.last_resort = true;
        raise(decision, Decision::Refused);
    }
    if treated.refused || treated.changed {
        answer.forget_unknown();
        *raw = Raw::Rewritten;
    }
}

/// A text that went to the client cannot be coached any more; what is known of it is put on record.
fn conclude_released(coached: &mut Coached, position: usize, verdict: &Verdict, record: &mut ChoiceRecord) {
    let Coached { routed, answer, decision, .. } = coached;
    if *decision == Decision::Stopped {
        let text = answer.choices[position].text();
        let request = &routed.received.request;
        let draft = Draft { request, reading: &routed.reading, text: &text, acts: "", rejected: &[] };
        let settled = read_draft(&routed.live.screen, draft);
        record.dir_score = waltz_coach::reward::improvement(verdict, &settled);
        record.final_verdict = Some(settled);
    } else if verdict.is_unsafe {
        note_late_violation(routed);
    }
}

fn needs_coaching(coached: &Coached, position: usize, verdict: &Verdict) -> bool {
    let Coached { routed, answer, .. } = coached;
    rounds::needs_coaching(&routed.received.request, &routed.reading, &answer.choices[position], verdict)
}

async fn coach_choice(
    coached: &mut Coached,
    position: usize,
    verdict: Verdict,
    similar: &[PastCoaching],
    record: &mut ChoiceRecord,
) {
    let Coached { routed, answer, tally, .. } = coached;
    let structured = routed.received.request.is_structured();
    let choice = &mut answer.choices[position];
    let closed = |verdict: &Verdict| {
        verdict.state.is_degraded()
            && routed.live.settings.failure.at(routed.reading.risk) == OnFailure::Closed
    };
    if closed(&verdict) {
        record.final_verdict = Some(refuse_unchecked(choice, structured, &routed.reading, &verdict));
        record.last_resort = true;
        coached.raw = Raw::Rewritten;
        raise(&mut coached.decision, Decision::Degraded);
        return;
    }
    let client_blocks =
        routed.received.request.moderation().is_some_and(|wish| wish.output == ModerationMode::Block);
    if client_blocks && verdict.is_unsafe {
        let (reply, settled) = rounds::last_resort(&routed.live.screen, &verdict);
        choice.replace_text(reply, structured);
        if !structured {
            choice.finish_reason = Some("content_filter".to_owned());
        }
        record.last_resort = true;
        record.dir_score = waltz_coach::reward::improvement(&verdict, &settled);
        record.final_verdict = Some(settled);
        coached.raw = Raw::Rewritten;
        raise(&mut coached.decision, Decision::Refused);
        return;
    }
    if !rounds::needs_coaching(&routed.received.request, &routed.reading, choice, &verdict) {
        return;
    }
    let live = &routed.live;
    let coach = Coach {
        judge: live.judge(),
        agent: Some(&routed.agent),
        settings: live.settings.coach,
        depth: routed.depth,
        similar,
    };
    let pupil = Pupil { choice: choice.clone(), verdict };
    // Boxed, as few answers need it, and all would carry its room along.
    let lesson = Box::pin(coach.coach(&routed.received.request, &routed.reading, pupil, tally)).await;
    let read: usize = lesson.rounds.iter().map(|round| round.revision.text.len()).sum();
    routed.received.record.scanned.answer_bytes += read;
    routed.received.record.scanned.windows += lesson.rounds.len();
    *choice = lesson.choice;
    record.last_resort = lesson.decision == Decision::Refused;
    let mut last = lesson.verdict;
    if closed(&last) {
        last = refuse_unchecked(choice, structured, &routed.reading, &last);
        record.last_resort = true;
        raise(&mut coached.decision, Decision::Degraded);
    }
    note_degraded(coached, &last);
    raise(&mut coached.decision, lesson.decision);
    if lesson.decision != Decision::Released || record.last_resort {
        coached.raw = Raw::Rewritten;
    }
    coached.rounds = coached.rounds.max(u32::try_from(lesson.rounds.len()).unwrap_or(u32::MAX));
    record.rounds = lesson.rounds;
    record.dir_score = lesson.dir_score;
    record.final_verdict = Some(last);
}

/// Puts a neutral text in place of one that could not be checked, and help where somebody may be in danger of self-harm.
/// Returns the verdict on it.
fn refuse_unchecked(
    choice: &mut Choice,
    structured: bool,
    reading: &RequestReading,
    unchecked: &Verdict,
) -> Verdict {
    let help = templates::for_category(&Category::SELF_HARM).last_resort;
    let cares = quality::concerns_self_harm(reading, unchecked);
    choice.replace_text(if cares { help } else { templates::NOT_CHECKED }, structured);
    Verdict {
        prompt_harm: unchecked.prompt_harm,
        safety_score: 1.0,
        reasoning: "a text of waltz's own in place of one that could not be checked".to_owned(),
        state: unchecked.state,
        ..Verdict::default()
    }
}

fn note_degraded(coached: &mut Coached, verdict: &Verdict) {
    let degraded = &mut coached.routed.received.record.degraded;
    if verdict.state.is_degraded() && degraded.is_none() {
        *degraded = Some(verdict.state.as_str().to_owned());
    }
}

/// The gravest decision of any choice is the answer's.
fn raise(decision: &mut Decision, next: Decision) {
    let gravity = |decision: Decision| match decision {
        Decision::Degraded => 3,
        Decision::Refused => 2,
        Decision::Coached => 1,
        _ => 0,
    };
    if gravity(next) > gravity(*decision) {
        *decision = next;
    }
}

/// Similar past coachings; without them coaching goes on. What the request means goes on its record, so that
/// later ones can be compared with it.
pub async fn look_up(gateway: &Gateway, live: &Live, record: &mut ExchangeRecord) -> Vec<PastCoaching> {
    let masked = waltz_screen::mask(&record.user_request).text;
    record.embedding = meaning(live, &masked).await;
    // More than needed, since the same answer to the same question may be there many times.
    let search = gateway.store.similar(&record.tenant, &masked, record.embedding.as_ref(), 3 * SIMILAR);
    match tokio::time::timeout(SEARCH, search).await {
        Ok(Ok(similar)) => distinct(similar),
        Ok(Err(error)) => {
            tracing::warn!(error = %error, "similar coachings could not be read");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!("similar coachings were not found in time");
            Vec::new()
        }
    }
}

/// What a masked text means, where a model in this process can say so in time.
async fn meaning(live: &Live, masked: &str) -> Option<Embedding> {
    let encoder = live.encoder().filter(|_| !masked.is_empty())?;
    match tokio::time::timeout(MEANING, encoder.embedding(masked)).await {
        Ok(Ok(embedding)) => Some(embedding),
        Ok(Err(reason)) => {
            tracing::warn!(reason, "the encoder cannot read a request; its words are searched for");
            None
        }
        Err(_) => {
            tracing::warn!("the encoder did not read a request in time; its words are searched for");
            None
        }
    }
}

/// The best few past coachings, each answer once, masked.
fn distinct(similar: Vec<PastCoaching>) -> Vec<PastCoaching> {
    let mut chosen: Vec<PastCoaching> = Vec::new();
    for mut past in similar {
        for text in [&mut past.user_request, &mut past.feedback, &mut past.accepted] {
            *text = waltz_screen::mask(text).text.into_owned();
        }
        let known = chosen.iter().any(|other| other.accepted == past.accepted);
        // Older releases kept their own replies as answers that were accepted.
        let says = !past.accepted.is_empty() && !templates::is_own_reply(&past.accepted);
        if !known && says && !past.feedback.is_empty() && chosen.len() < SIMILAR {
            chosen.push(past);
        }
    }
    chosen
}

//! One prompt put through systems. All start from the same draft, so that they are compared answer by answer; the
//! judge's first reading is shared by those that judge alike. The coach is the gateway's own.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::json;
use waltz_coach::conversation::{self, ConversationAgent};
use waltz_coach::judge::{Draft, Judge, RequestReading, read_draft, read_request};
use waltz_coach::rounds::{Coach, CoachSettings, Pupil, last_resort};
use waltz_coach::tally::Tally;
use waltz_coach::templates;
use waltz_coach::upstream::CallError;
use waltz_exchange::openai::{ChatRequest, Choice};
use waltz_exchange::record::{Decision, Reviser};
use waltz_exchange::{Depth, Risk, Verdict, VerdictState};

use super::{Item, System};

/// Who answers, who reads, and on what terms: the gateway's own parts.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The writer.
    pub agent: &'a ConversationAgent,
    /// The writer without trained weights, where they are measured.
    pub untrained: Option<&'a ConversationAgent>,
    /// The reader.
    pub judge: Judge<'a>,
    /// The terms of the loop.
    pub coach: CoachSettings,
    /// How deep the loop reads.
    pub depth: Depth,
    /// Whether an answer that could not be checked is held back at a risk.
    pub closed: &'a (dyn Fn(Risk) -> bool + Sync),
    /// The longest answer, in tokens.
    pub max_tokens: u32,
    /// How free the writer is; the upstream's own default when left out.
    pub temperature: Option<f64>,
}

/// What came of one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The prompt's id.
    pub id: String,
    /// Why there is no answer; the prompt is asked again when the run goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The upstream refused the request, and would refuse it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The draft that all systems start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<DraftRow>,
    /// What each system made of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub systems: BTreeMap<System, Answer>,
}

/// A draft.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DraftRow {
    /// Its text.
    pub text: String,
    /// Tokens of prompt and draft, as the upstream reports them.
    pub tokens: u64,
}

/// What a system answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The text; the draft's when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Released, coached, refused or degraded.
    pub decision: Decision,
    /// The judge found fault with the draft.
    pub flagged: bool,
    /// Rounds of coaching.
    pub rounds: u32,
    /// From the question to the answer.
    pub ms: f64,
    /// Tokens of feedback and revisions.
    pub tokens_added: u64,
    /// The text is one of waltz's own replies: a refusal, and harmless.
    pub own: bool,
}

impl Row {
    /// What a system answered.
    pub fn text(&self, system: System) -> Option<&str> {
        let answer = self.systems.get(&system)?;
        answer.text.as_deref().or(self.draft.as_ref().map(|draft| draft.text.as_str()))
    }
}

/// Puts one prompt through the systems.
pub async fn answer(setup: &Setup<'_>, item: &Item, systems: &[System]) -> Row {
    match answers(setup, item, systems).await {
        Ok((draft, systems)) => {
            Row { id: item.id.clone(), error: None, refused: false, draft: Some(draft), systems }
        }
        Err(Failed { reason, refused }) => {
            Row { id: item.id.clone(), error: Some(reason), refused, draft: None, systems: BTreeMap::new() }
        }
    }
}

/// Why there is no answer.
struct Failed {
    reason: String,
    refused: bool,
}

impl From<String> for Failed {
    fn from(reason: String) -> Self {
        Self { reason, refused: false }
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self { reason: error.to_string(), refused: error.refuses_request() }
    }
}

type Answers = (DraftRow, BTreeMap<System, Answer>);

async fn answers(setup: &Setup<'_>, item: &Item, systems: &[System]) -> Result<Answers, Failed> {
    let request = request(setup, &item.prompt);
    let mut tally = Tally::default();
    let began = Instant::now();
    let outgoing = conversation::draft_request(setup.agent, &request);
    let drafted =
        conversation::complete(setup.agent, &outgoing, "draft", setup.judge.budget, &mut tally).await;
    let mut choice = drafted?.choices.into_iter().next().ok_or("the answer has no choice".to_owned())?;
    if conversation::asks_for_assessment(setup.agent, &request)
        && let Some((text, _)) = conversation::parse_assessment(&choice.text())
    {
        choice.replace_text(&text, false);
    }
    let ms = milliseconds(began);
    let reading = setup.judge.read_request(&request).await;
    reached(reading.state)?;
    let started = Started {
        setup,
        reading_ms: milliseconds(began) - ms,
        reading,
        text: choice.text(),
        acts: choice.acts(),
        choice,
        request,
        ms,
    };
    let mut answers = BTreeMap::new();
    let mut deep: Option<Read> = None;
    for system in systems {
        let answer = match system {
            System::Untrained => match setup.untrained {
                Some(agent) => started.untrained(agent).await?,
                None => continue,
            },
            System::Base => started.released(false, 0, started.ms),
            System::Stage1 => started.stage1().await,
            System::Block | System::Loop => {
                if deep.is_none() {
                    deep = Some(started.read_deep().await?);
                }
                let Some(read) = deep.clone() else { continue };
                if *system == System::Block { started.block(read) } else { started.coached(read).await? }
            }
        };
        answers.insert(*system, answer);
    }
    Ok((DraftRow { text: started.text, tokens: tally.coaching_tokens() }, answers))
}

fn request(setup: &Setup<'_>, prompt: &str) -> ChatRequest {
    let model = setup.agent.targets.first().map_or("", |target| target.model.as_str());
    let mut request = ChatRequest::new(model, json!([{"role": "user", "content": prompt}]));
    request.set("max_tokens", json!(setup.max_tokens));
    if let Some(temperature) = setup.temperature {
        request.set("temperature", json!(temperature));
    }
    request
}

/// A draft, and everything that was read before any system took it up.
struct Started<'a> {
    setup: &'a Setup<'a>,
    request: ChatRequest,
    reading: RequestReading,
    choice: Choice,
    text: String,
    acts: String,
    /// What the draft took.
    ms: f64,
    /// What reading the request took.
    reading_ms: f64,
}

/// What the judge said of the draft, and what that took.
#[derive(Clone)]
struct Read {
    verdict: Verdict,
    tally: Tally,
    ms: f64,
}

impl Started<'_> {
    fn draft(&self) -> Draft<'_> {
        Draft {
            request: &self.request,
            reading: &self.reading,
            text: &self.text,
            acts: &self.acts,
            rejected: &[],
        }
    }

    fn released(&self, flagged: bool, tokens_added: u64, ms: f64) -> Answer {
        let decision = Decision::Released;
        Answer { text: None, decision, flagged, rounds: 0, ms, tokens_added, own: false }
    }

    /// A draft of its own, without trained weights.
    async fn untrained(&self, agent: &ConversationAgent) -> Result<Answer, Failed> {
        let began = Instant::now();
        let outgoing = conversation::draft_request(agent, &self.request);
        let mut tally = Tally::default();
        let drafted =
            conversation::complete(agent, &outgoing, "draft", self.setup.judge.budget, &mut tally).await;
        let choice = drafted?.choices.into_iter().next().ok_or("the answer has no choice".to_owned())?;
        let (text, ms) = (Some(choice.text()), milliseconds(began));
        let decision = Decision::Released;
        Ok(Answer { text, decision, flagged: false, rounds: 0, ms, tokens_added: 0, own: false })
    }

    /// Levels 0 and 1, and revisions made by rules.
    async fn stage1(&self) -> Answer {
        let began = Instant::now();
        let reading = &read_request(self.setup.judge.screen, &self.request);
        let verdict = read_draft(self.setup.judge.screen, Draft { reading, ..self.draft() });
        let flagged = !verdict.is_satisfactory();
        let judge = Judge { encoder: None, neural: None, feedback: None, ..self.setup.judge };
        let settings = self.setup.coach;
        let coach = Coach { judge, agent: None, settings, depth: Depth::Rules, similar: &[] };
        let mut tally = Tally::default();
        let pupil = Pupil { choice: self.choice.clone(), verdict };
        let lesson = coach.coach(&self.request, reading, pupil, &mut tally).await;
        let rounds = u32::try_from(lesson.rounds.len()).unwrap_or(u32::MAX);
        let text = lesson.choice.text();
        self.changed(text, lesson.decision, flagged, rounds, self.ms + milliseconds(began), 0)
    }

    /// The judge as deep as the policy wants it.
    async fn read_deep(&self) -> Result<Read, String> {
        let began = Instant::now();
        let mut tally = Tally::default();
        let verdict = self.setup.judge.judge(self.draft(), self.setup.depth, &mut tally).await;
        reached(verdict.state)?;
        Ok(Read { verdict, tally, ms: self.reading_ms + milliseconds(began) })
    }

    /// What is flagged as harmful gets a refusal.
    fn block(&self, read: Read) -> Answer {
        let Read { verdict, tally, ms } = read;
        let (ms, tokens) = (self.ms + ms, tally.coaching_tokens());
        if !verdict.is_unsafe {
            return self.released(false, tokens, ms);
        }
        let (reply, _) = last_resort(self.setup.judge.screen, &verdict);
        self.changed(reply.to_owned(), Decision::Refused, true, 0, ms, tokens)
    }

    /// The coach, and the failure policy where the judge could not do its work.
    async fn coached(&self, read: Read) -> Result<Answer, String> {
        let Read { verdict, mut tally, ms } = read;
        let began = Instant::now();
        let flagged = !verdict.is_satisfactory();
        let Setup { agent, judge, coach: settings, depth, closed, .. } = *self.setup;
        let held_back = |verdict: &Verdict| verdict.state.is_degraded() && closed(self.reading.risk);
        let degraded = |rounds: u32, tally: &Tally, ms: f64| {
            let text = templates::NOT_CHECKED.to_owned();
            self.changed(text, Decision::Degraded, true, rounds, ms, tally.coaching_tokens())
        };
        if held_back(&verdict) {
            return Ok(degraded(0, &tally, self.ms + ms));
        }
        let coach = Coach { judge, agent: Some(agent), settings, depth, similar: &[] };
        let pupil = Pupil { choice: self.choice.clone(), verdict };
        let lesson = coach.coach(&self.request, &self.reading, pupil, &mut tally).await;
        reached(lesson.verdict.state)?;
        // Where the writer could not be reached, rules stood in for it or nothing did.
        let last = tally.attempts.iter().rev().find(|attempt| attempt.purpose == "revision");
        let error = last.and_then(|attempt| attempt.error.as_deref());
        let by_rules = lesson.rounds.iter().any(|round| round.reviser == Reviser::Rules);
        if !settings.rules_only && (error.is_some() || by_rules) {
            return Err(format!("a revision could not be had: {}", error.unwrap_or("failed")));
        }
        let rounds = u32::try_from(lesson.rounds.len()).unwrap_or(u32::MAX);
        let ms = self.ms + ms + milliseconds(began);
        if held_back(&lesson.verdict) {
            return Ok(degraded(rounds, &tally, ms));
        }
        let text = lesson.choice.text();
        Ok(self.changed(text, lesson.decision, flagged, rounds, ms, tally.coaching_tokens()))
    }

    fn changed(
        &self,
        text: String,
        decision: Decision,
        flagged: bool,
        rounds: u32,
        ms: f64,
        tokens_added: u64,
    ) -> Answer {
        let own = templates::is_own_reply(&text);
        let text = (text != self.text).then_some(text);
        Answer { text, decision, flagged, rounds, ms, tokens_added, own }
    }
}

/// An opinion that did not come is a failure of the upstream, not of the system. One that cannot be read is the
/// system's own.
fn reached(state: VerdictState) -> Result<(), String> {
    match state {
        VerdictState::Unavailable | VerdictState::Timeout => {
            Err(format!("a model of the judge could not be asked: {}", state.as_str()))
        }
        VerdictState::Decided | VerdictState::Disagreement | VerdictState::Unparsable => Ok(()),
    }
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

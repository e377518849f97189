//! Level 2: the neural judge. It is asked only where levels 0 and 1 leave a question open, so that ordinary traffic
//! does not wait for it. What it says outweighs a sum of words and a rule that is not sure. It lifts no sure rule, nor
//! one of the operator's, and nothing in a text that it did not read as it is and as a whole.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::{Category, Issue, Level, Verdict, VerdictState};
const UNSURE_TO: f32 = 0.75;

use super::linear::{likeliest, refusal, weighed};
use super::request::{RequestReading, asked, risk};
use super::{Draft, Evidence, HARD, THRESHOLD, highest_per_category, settle};
use crate::local::{Classifier, LocalModel, Trouble};
use crate::templates;

/// From this score of level 1 on, a prompt without a finding is asked about. These three edges keep what reaches
/// level 2 to a tenth of ordinary traffic and to two fifths of safety sets; docs/judge.md has the shares.
const PROMPT_FROM: f32 = 0.6;
/// The same for an answer.
const ANSWER_FROM: f32 = 0.6;
/// Where level 1 sees a refusal and no phrase says so, or the other way round.
const REFUSAL_FROM: f32 = 0.65;
/// A finding from here on is worth a question.
const FOUND: f32 = 0.3;
/// How long after a failed opening the next one may begin: it reads megabytes.
const PAUSE: Duration = Duration::from_secs(10);
/// What was said about so many texts is remembered: rounds and choices share their prompt.
const MOST_KNOWN: usize = 1_024;

/// Level 2, ready to be asked. The model is loaded when the first question comes.
#[derive(Debug)]
pub struct NeuralJudge {
    model: Arc<LocalModel>,
    weights: Option<PathBuf>,
    /// How long a question may take.
    limit: Duration,
    opened: Arc<tokio::sync::Mutex<Option<Opening>>>,
    known: Mutex<Known>,
}

/// An attempt to open the weights: when it ended, and how.
type Opening = (Instant, Result<Arc<Classifier>, String>);

/// What it says about a text: probabilities, rescaled so that 0.5 decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) prompt: f32,
    pub(super) harm: f32,
    pub(super) refusal: f32,
    /// It read all of the text.
    pub(super) is_whole: bool,
}

#[derive(Debug, Default)]
struct Known {
    said: HashMap<[u8; 32], Said>,
    order: VecDeque<[u8; 32]>,
}

impl NeuralJudge {
    /// A judge over a local language model: with weights of a file, or with those that are part of the program.
    pub fn new(model: Arc<LocalModel>, weights: Option<PathBuf>, limit: Duration) -> Self {
        Self { model, weights, limit, opened: Arc::default(), known: Mutex::default() }
    }

    /// The language model whose body it is.
    pub fn model(&self) -> &Arc<LocalModel> {
        &self.model
    }

    /// What its answers hang on: the model, and whose weights.
    pub fn identity(&self) -> String {
        let weights = self.weights.as_ref().map_or("embedded".into(), |path| path.display().to_string());
        format!("{} {weights}", self.model.identity())
    }

    /// Loads the model and the weights if they are not there.
    pub async fn warm(&self) -> Result<(), String> {
        self.classifier().await.map(|_| ())
    }

    /// The weights, opened. Whoever waits for them may give up; opening goes on for the next one.
    async fn classifier(&self) -> Result<Arc<Classifier>, String> {
        let mut opened = Arc::clone(&self.opened).lock_owned().await;
        match &*opened {
            Some((_, Ok(classifier))) => return Ok(Arc::clone(classifier)),
            Some((ended, Err(reason))) if ended.elapsed() < PAUSE => return Err(reason.clone()),
            _ => {}
        }
        let (model, weights) = (Arc::clone(&self.model), self.weights.clone());
        let opening = tokio::spawn(async move {
            let outcome = model.classifier(weights.as_deref()).await.map(Arc::new);
            *opened = Some((Instant::now(), outcome.clone()));
            outcome
        });
        opening.await.unwrap_or_else(|_| Err("opening it was given up".to_owned()))
    }

    /// Asks about a prompt alone, or about a prompt and its answer.
    async fn ask(&self, prompt: &str, answer: Option<&str>) -> Result<Said, VerdictState> {
        let key = fingerprint(prompt, answer);
        if let Some(said) = self.known().said.get(&key) {
            return Ok(*said);
        }
        let deadline = Instant::now() + self.limit;
        let asked = async {
            let classifier = self.classifier().await.map_err(Trouble::Broken)?;
            self.model.classify(&classifier, prompt.to_owned(), answer.map(str::to_owned), deadline).await
        };
        let (logits, is_whole) = match tokio::time::timeout_at(deadline, asked).await {
            Err(_) => return Err(VerdictState::Timeout),
            Ok(Err(trouble)) => {
                tracing::warn!(%trouble, "the neural judge gave no answer");
                return Err(VerdictState::Unavailable);
            }
            Ok(Ok(read)) => read,
        };
        let &[prompt, harm, refusal, _] = logits.as_slice() else { return Err(VerdictState::Unavailable) };
        let [prompt, harm, refusal] = [prompt, harm, refusal].map(|logit| 1.0 / (1.0 + (-logit).exp()));
        let said = Said { prompt, harm, refusal, is_whole };
        self.known().insert(key, said);
        Ok(said)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a request once more where it is open what it asks for.
    pub(super) async fn reread(&self, request: &ChatRequest, reading: &mut RequestReading) {
        if !is_open_request(reading) {
            return;
        }
        match self.ask(&prompt_of(request), None).await {
            Ok(said) => add_to_request(reading, said),
            Err(state) => reading.state = state,
        }
    }

    /// Reads an answer where it is open what it does. Of a part of one, what was read in the part itself must be open:
    /// a stream has many, and its end is read as a whole.
    pub(super) async fn read(
        &self,
        draft: Draft<'_>,
        evidence: Evidence,
        verdict: Verdict,
        is_part: bool,
    ) -> Verdict {
        let is_open = match is_part {
            true => is_open_part(&evidence),
            false => is_open_answer(&evidence, draft.reading),
        };
        if !is_open {
            return verdict;
        }
        match self.ask(&prompt_of(draft.request), Some(draft.text)).await {
            Ok(said) => added(verdict, draft, evidence, said),
            Err(state) => Verdict { state, ..verdict },
        }
    }
}

impl Known {
    fn insert(&mut self, key: [u8; 32], said: Said) {
        if self.said.insert(key, said).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MOST_KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.said.remove(&oldest);
        }
    }
}

fn prompt_of(request: &ChatRequest) -> String {
    asked(&request.texts(), request.turn_start())
}

fn fingerprint(prompt: &str, answer: Option<&str>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update((prompt.len() as u64).to_le_bytes());
    hasher.update(prompt);
    // An empty answer is not the same as none.
    hasher.update([u8::from(answer.is_some())]);
    hasher.update(answer.unwrap_or_default());
    hasher.finalize().into()
}

/// Neither a sure rule nor both levels together have decided what a request asks for.
fn is_open_request(reading: &RequestReading) -> bool {
    let RequestReading { rules, linear, .. } = reading;
    let is_sure = *rules >= HARD || reading.blocks || linear.harm >= UNSURE_TO;
    let agree = *rules >= THRESHOLD && linear.harm >= THRESHOLD;
    !is_sure && !agree && (linear.harm >= PROMPT_FROM || *rules >= FOUND)
}

/// No sure rule has decided what an answer does, and something about it or about its request is suspicious. A plain
/// refusal needs no second reader.
fn is_open_answer(evidence: &Evidence, reading: &RequestReading) -> bool {
    let Evidence { rules, linear, refusal, .. } = evidence;
    let refuses = [*refusal >= THRESHOLD, linear.refusal >= REFUSAL_FROM];
    let is_plain_refusal = refuses == [true, true] && *rules < FOUND && linear.harm < ANSWER_FROM;
    let is_suspicious = linear.harm >= ANSWER_FROM
        || *rules >= FOUND
        || refuses[0] != refuses[1]
        || reading.level == Level::Neural
        || reading.harm >= THRESHOLD;
    *rules < HARD && is_suspicious && !is_plain_refusal
}

/// No sure rule has decided what a part of an answer does, and something in it is suspicious.
fn is_open_part(Evidence { rules, linear, .. }: &Evidence) -> bool {
    *rules < HARD && (linear.harm >= ANSWER_FROM || *rules >= FOUND)
}

/// What rules found is weighed where `may_lift`, and only ever raises the score where it is lower: rules that found
/// little or nothing have no opinion. No model is as sure as a sure rule.
fn harm(neural: f32, rules: f32, may_lift: bool) -> f32 {
    let score = weighed(neural, rules).max(neural).min(HARD - 0.01);
    if may_lift { score } else { score.max(rules) }
}

fn add_to_request(reading: &mut RequestReading, said: Said) {
    let score = harm(said.prompt, reading.rules, said.is_whole && !reading.disguised);
    let firm = std::mem::take(&mut reading.firm);
    reading.issues.retain(|issue| score >= THRESHOLD && !firm.contains(issue));
    reading.categories = place(score, &reading.linear.categories, "request", &mut reading.issues);
    keep(&firm, &mut reading.categories, &mut reading.issues);
    reading.firm = firm;
    reading.harm = reading.categories.values().copied().fold(score, f32::max);
    reading.level = Level::Neural;
    reading.risk = risk(reading);
}

/// Adds what no reader of the text can lift.
fn keep(firm: &[Issue], categories: &mut BTreeMap<Category, f32>, issues: &mut Vec<Issue>) {
    for (category, score) in highest_per_category(firm) {
        let entry = categories.entry(category).or_default();
        *entry = entry.max(score);
    }
    issues.extend(firm.iter().cloned());
    issues.sort_by(|left, right| right.severity.total_cmp(&left.severity));
}

/// The verdict with what the neural judge said in the place of level 1's sum.
fn added(mut verdict: Verdict, draft: Draft<'_>, evidence: Evidence, said: Said) -> Verdict {
    let agree = evidence.rules >= THRESHOLD && evidence.linear.harm >= THRESHOLD;
    let score = harm(said.harm, evidence.rules, said.is_whole && !evidence.disguised && !agree);
    verdict.level = Level::Neural;
    verdict.refusal = refusal(said.refusal, evidence.refusal);
    verdict.issues.retain(|issue| score >= THRESHOLD && !evidence.firm.contains(issue));
    verdict.categories = place(score, &evidence.linear.categories, "answer", &mut verdict.issues);
    keep(&evidence.firm, &mut verdict.categories, &mut verdict.issues);
    settle(&mut verdict, draft);
    verdict.response_harm = verdict.response_harm.max(score);
    verdict
}

/// The categories of a score: those of the issues, none above it, the worst at it. A harm that nothing names goes to
/// the likeliest category.
fn place(score: f32, likely: &[f32; 8], what: &str, issues: &mut Vec<Issue>) -> BTreeMap<Category, f32> {
    if score < THRESHOLD {
        return highest_per_category(issues);
    }
    if !issues.iter().any(|issue| issue.severity >= THRESHOLD) {
        let category = issues.first().map_or_else(|| likeliest(likely), |issue| issue.category.clone());
        issues.insert(
            0,
            Issue {
                category: category.clone(),
                severity: score,
                description: format!("the neural judge reads the {what} as harmful"),
                evidence: None,
                mitigation: templates::for_category(&category).mitigation.to_owned(),
            },
        );
    }
    let mut categories = highest_per_category(issues);
    let worst =
        categories.iter().max_by(|left, right| left.1.total_cmp(right.1)).map(|(name, _)| name.clone());
    categories.values_mut().for_each(|harm| *harm = harm.min(score));
    if let Some(worst) = worst {
        categories.insert(worst, score);
    }
    categories
}

#[cfg(test)]
#[path = "neural/tests.rs"]
mod tests;

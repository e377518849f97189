//! A recorded exchange as training data: state, action, reward, next state, terminal.

use serde::{Deserialize, Serialize};

use crate::record::{ChoiceRecord, Context, DraftRecord, ExchangeRecord};

/// One step that training can learn from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// What the agent saw.
    pub state: State,
    /// What it answered.
    pub action: Action,
    /// How good that was.
    pub reward: Reward,
    /// What the next answer sees; `None` at the end.
    pub next_state: Option<State>,
    /// No answer follows.
    pub terminal: bool,
}

/// What the conversation agent sees before it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The user's request.
    pub user_request: String,
    /// What stood around it.
    pub context: Option<Context>,
    /// 0 before any coaching.
    pub coaching_round: u32,
    /// Earlier answers and the advice they got.
    pub coaching_history: Vec<CoachingTurn>,
}

/// An answer and the advice it got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoachingTurn {
    /// The answer.
    pub response: String,
    /// The advice.
    pub feedback: String,
}

/// What the conversation agent answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Action {
    /// The text.
    pub response: String,
    /// Why, as the agent or the judge said.
    pub reasoning: String,
    /// Risk, 0 to 1.
    pub risk_score: f32,
}

/// How good an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// 1 minus the highest category harm.
    pub safety_score: f32,
    /// 1 minus over-refusal, lowered for empty or evasive text.
    pub helpfulness_score: f32,
    /// Shaped score over the answer before.
    pub dir_score: f32,
}

/// The trajectories of an exchange: one per coaching round of each judged choice, and one with
/// `coaching_round` 0 for a choice that needed no coaching.
pub fn trajectories(record: &ExchangeRecord) -> Vec<Trajectory> {
    let mut all = Vec::new();
    for choice in &record.choices {
        if choice.rounds.is_empty() {
            let state = state(record, 0, Vec::new());
            all.extend(step(state, &choice.draft, 0.0, None));
        } else {
            all.extend(coached(record, choice));
        }
    }
    all
}

fn coached(record: &ExchangeRecord, choice: &ChoiceRecord) -> Vec<Trajectory> {
    let mut history = Vec::new();
    let mut current = choice.self_check.as_ref().unwrap_or(&choice.draft);
    let mut steps = Vec::new();
    for (position, round) in choice.rounds.iter().enumerate() {
        history.push(CoachingTurn { response: current.text.clone(), feedback: round.feedback.clone() });
        let before = state(record, round.number, history.clone());
        if round.kept {
            current = &round.revision;
        }
        let next = choice.rounds.get(position + 1).map(|following| {
            let mut seen = history.clone();
            seen.push(CoachingTurn { response: current.text.clone(), feedback: following.feedback.clone() });
            state(record, following.number, seen)
        });
        steps.extend(step(before, &round.revision, round.dir_score, next));
    }
    steps
}

fn state(record: &ExchangeRecord, coaching_round: u32, coaching_history: Vec<CoachingTurn>) -> State {
    State {
        user_request: record.user_request.clone(),
        context: record.context.clone(),
        coaching_round,
        coaching_history,
    }
}

/// A step, or nothing when the answer was never judged and so has no reward.
fn step(state: State, answer: &DraftRecord, dir_score: f32, next_state: Option<State>) -> Option<Trajectory> {
    let verdict = answer.verdict.as_ref()?;
    Some(Trajectory {
        state,
        action: Action {
            response: answer.text.clone(),
            reasoning: answer.assessment.reasoning.clone(),
            risk_score: answer.assessment.risk_score,
        },
        reward: Reward {
            safety_score: verdict.safety_score,
            helpfulness_score: verdict.helpfulness_score,
            dir_score,
        },
        terminal: next_state.is_none(),
        next_state,
    })
}

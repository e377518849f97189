//! What the reader of a draft says about it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Category;

/// A verdict on one text. Scores lie in 0..=1 and 0.5 is always the decision threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The text is harmful.
    #[serde(rename = "unsafe")]
    pub is_unsafe: bool,
    /// The text refuses a request that is not harmful.
    pub overrefuse: bool,
    /// Harm that the request asks for.
    pub prompt_harm: f32,
    /// Harm in the text itself.
    pub response_harm: f32,
    /// How much the text looks like a refusal.
    pub refusal: f32,
    /// The highest harm per category; categories at zero are left out.
    pub categories: BTreeMap<Category, f32>,
    /// What was found, most severe first.
    pub issues: Vec<Issue>,
    /// The text must not leave unchanged.
    pub blocks: bool,
    /// The level of the cascade that decided.
    pub level: Level,
    /// Whether the verdict could be reached as the policy wanted it.
    pub state: VerdictState,
    /// Time spent on the verdict, in microseconds.
    pub micros: u64,
    /// 1 minus the highest category harm.
    pub safety_score: f32,
    /// 1 minus over-refusal, lowered for empty, evasive or repetitive text.
    pub helpfulness_score: f32,
    /// Why, for the record; never handed to the conversation agent.
    pub reasoning: String,
    /// The advice that is handed back to the conversation agent; empty when nothing is wrong.
    pub feedback: String,
    /// The shaped score that a revision would gain if it followed the advice fully.
    pub expected_gain: f32,
}

impl Verdict {
    /// Whether coaching should stop here: neither harmful nor needlessly refusing.
    pub fn is_satisfactory(&self) -> bool {
        !self.is_unsafe && !self.overrefuse
    }

    /// The category with the highest score, if any harm was found.
    pub fn worst_category(&self) -> Option<&Category> {
        let mut worst: Option<(&Category, f32)> = None;
        for (category, score) in &self.categories {
            if worst.is_none_or(|(_, highest)| *score > highest) {
                worst = Some((category, *score));
            }
        }
        worst.map(|(category, _)| category)
    }
}

/// One thing that is wrong with a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Issue {
    /// The harm.
    pub category: Category,
    /// How bad it is, 0 to 1.
    pub severity: f32,
    /// What was seen, in words that are safe to show.
    pub description: String,
    /// Where in the text, as byte offsets of the original; `None` when the whole text is meant.
    pub evidence: Option<Span>,
    /// What would mend it.
    pub mitigation: String,
}

/// A byte range of the original text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// The level of the judge that decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub enum Level {
    /// Patterns and phrases.
    #[default]
    Screen,
    /// The linear judge.
    Linear,
    /// The neural judge.
    Neural,
    /// The feedback agent.
    Feedback,
}

impl From<Level> for u8 {
    fn from(level: Level) -> Self {
        match level {
            Level::Screen => 0,
            Level::Linear => 1,
            Level::Neural => 2,
            Level::Feedback => 3,
        }
    }
}

impl TryFrom<u8> for Level {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            0 => Ok(Self::Screen),
            1 => Ok(Self::Linear),
            2 => Ok(Self::Neural),
            3 => Ok(Self::Feedback),
            other => Err(format!("level {other} does not exist; levels are 0 to 3")),
        }
    }
}

/// Whether a verdict could be reached as wanted. Everything but `Decided` is recorded as such and is
/// never the same as "safe".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictState {
    /// The levels that were asked agree, or one sufficed.
    #[default]
    Decided,
    /// The feedback model said safe where a rule is sure of harm, or the other way round.
    Disagreement,
    /// The feedback model's answer was not the JSON it was asked for, or carried the wrong nonce.
    #[serde(rename = "judge_unparsable")]
    Unparsable,
    /// The feedback model did not answer in time.
    #[serde(rename = "judge_timeout")]
    Timeout,
    /// The feedback model could not be reached.
    #[serde(rename = "judge_unavailable")]
    Unavailable,
}

impl VerdictState {
    /// The feedback model was wanted and gave nothing usable.
    pub fn is_degraded(self) -> bool {
        matches!(self, Self::Unparsable | Self::Timeout | Self::Unavailable)
    }

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decided => "decided",
            Self::Disagreement => "disagreement",
            Self::Unparsable => "judge_unparsable",
            Self::Timeout => "judge_timeout",
            Self::Unavailable => "judge_unavailable",
        }
    }
}

//! What a reading of a text consists of. Plain data, made by `screen.rs`, read by the judge.

use serde::{Deserialize, Serialize};
use waltz_exchange::{Category, Span};

/// Everything level 0 says about one text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    /// What was found, most severe first.
    pub findings: Vec<Finding>,
    /// How much the text looks like a refusal, 0 to 1; from 0.5 on it is one.
    pub refusal: f32,
    /// The text hides what it says: a tenth of its characters had to be changed to read it, or it
    /// holds characters whose only use is to hide text.
    pub disguised: bool,
}

impl Reading {
    /// The highest severity among the findings, 0 when there are none.
    pub fn severity(&self) -> f32 {
        self.findings.iter().map(|finding| finding.severity).fold(0.0, f32::max)
    }
}

/// One thing that was found in a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The pattern family, e.g. `violence.weapon_making`.
    pub family: String,
    /// What sort of finding this is.
    pub kind: Kind,
    /// The harm.
    pub category: Category,
    /// How bad it is, 0 to 1; 0.5 is the decision threshold.
    pub severity: f32,
    /// Bytes of the original text, on character boundaries.
    pub span: Span,
    /// What was seen, in words that are safe to show; never quotes the text.
    pub description: String,
    /// An operator's rule says that this text must not pass.
    pub blocks: bool,
}

/// What sort of finding it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A harm of one of the eight categories.
    Harm,
    /// An attack on the model, the judge or a computer.
    Malicious,
    /// Collecting or exposing what belongs to somebody else's private life.
    Privacy,
    /// Personal data in the text.
    Pii,
    /// A credential in the text.
    Secret,
    /// An operator's rule.
    Rule,
}

impl Kind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Harm => "harm",
            Self::Malicious => "malicious",
            Self::Privacy => "privacy",
            Self::Pii => "pii",
            Self::Secret => "secret",
            Self::Rule => "rule",
        }
    }
}

/// Which side of a conversation a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// What a user or a tool sent in.
    Prompt,
    /// What a model wrote.
    Response,
}

//! Rules: an operator's word on who does which task.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A preference for an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub id: String,
    /// The kind of task it speaks of.
    pub task_type: String,
    /// What else must hold: each key must be in the task's metadata, with this very value.
    pub conditions: BTreeMap<String, Scalar>,
    /// The agent that is preferred.
    pub agent: String,
    /// The highest goes first; of equals, the one that was written first.
    pub priority: i64,
    /// Why, in words.
    pub explanation: String,
}

/// A value of a task's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// True or false.
    Bool(bool),
    /// A number; 1 and 1.0 are the same.
    Number(f64),
    /// A text.
    Text(String),
}

impl Rule {
    /// Whether all conditions hold. A key that the task does not have is a condition that does not. Where all metadata is
    /// `written` as texts, a text is also the number or the boolean that it reads as.
    pub fn matches(&self, metadata: &BTreeMap<String, Scalar>, written: bool) -> bool {
        let holds = |told: &Scalar, wanted: &Scalar| match (told, wanted) {
            (Scalar::Text(text), Scalar::Number(_) | Scalar::Bool(_)) if written => {
                serde_json::from_str::<Scalar>(text).is_ok_and(|read| read == *wanted)
            }
            _ => told == wanted,
        };
        self.conditions.iter().all(|(key, wanted)| metadata.get(key).is_some_and(|told| holds(told, wanted)))
    }
}

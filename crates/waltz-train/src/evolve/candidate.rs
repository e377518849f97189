//! A candidate: the agent with a patch of its prompt and parameters, and where the patch comes from. The model stays.

use serde::{Deserialize, Serialize};
use serde_json::Map;
use waltz_coach::conversation::ConversationAgent;
use waltz_exchange::json::canonical;
use waltz_exchange::variant::{Modification, ParameterChange};
use waltz_rollout::patch::{Setup, apply};

/// The id of the agent as it is.
pub(super) const BASE: &str = "base";

/// Parameters that an evolution may set, with the least and the largest value. They are narrower than what a person
/// may set: beyond them answers fall apart.
pub(super) const PARAMETERS: [(&str, f64, f64); 2] = [("temperature", 0.0, 1.5), ("top_p", 0.1, 1.0)];

/// The most changes of a patch.
const MOST_CHANGES: usize = 8;
/// The longest text of one change, in characters.
const LONGEST_TEXT: usize = 2_000;
/// The longest heading, in characters.
const LONGEST_SECTION: usize = 80;
/// How much longer than the agent's a prompt may become, in characters.
const LONGEST_GROWTH: usize = 4_000;

/// What made a candidate of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Nothing: the agent as it is.
    None,
    /// Another way of doing it.
    Revision,
    /// Sections and parameters of two candidates.
    Recombination,
    /// A small change of a good one.
    Refinement,
}

impl Operator {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Revision => "revision",
            Self::Recombination => "recombination",
            Self::Refinement => "refinement",
        }
    }
}

/// Who wrote a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Author {
    /// The operator itself.
    Rules,
    /// A language model.
    Writer,
}

impl Author {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Writer => "writer",
        }
    }
}

/// A candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// `base`, or generation and number.
    pub id: String,
    /// 0 for the agent as it is.
    pub generation: u32,
    /// What made it.
    pub operator: Operator,
    /// Who wrote it.
    pub author: Author,
    /// Why the writer that was asked could not be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_error: Option<String>,
    /// What it was made of.
    #[serde(default)]
    pub parents: Vec<String>,
    /// What it changes in the agent.
    pub patch: Vec<Modification>,
}

impl Candidate {
    /// The agent as it is.
    pub fn base() -> Self {
        Self {
            id: BASE.to_owned(),
            generation: 0,
            operator: Operator::None,
            author: Author::Rules,
            writer_error: None,
            parents: Vec::new(),
            patch: Vec::new(),
        }
    }
}

/// One text for equal patches.
pub(super) fn mark(patch: &[Modification]) -> String {
    serde_json::to_value(patch).map(|value| canonical(&value)).unwrap_or_default()
}

/// What an agent is asked with before any patch.
pub(super) fn setup_of(agent: &ConversationAgent) -> Setup {
    Setup {
        prompt: agent.system_prompt.clone().unwrap_or_default(),
        model: agent.targets.first().map(|target| target.model.clone()).unwrap_or_default(),
        parameters: Map::new(),
    }
}

/// The setup under a patch, or why an evolution may not make that patch.
pub(super) fn bounded(patch: &[Modification], base: &Setup) -> Result<Setup, String> {
    if patch.len() > MOST_CHANGES {
        return Err(format!("{} changes are more than {MOST_CHANGES}", patch.len()));
    }
    for change in patch {
        match change {
            Modification::Model(_) => return Err("the model is not its to change".to_owned()),
            Modification::Prompt(change) if change.content.trim().is_empty() => {
                return Err("a text is empty".to_owned());
            }
            Modification::Prompt(change) if change.content.chars().count() > LONGEST_TEXT => {
                return Err(format!("a text is longer than {LONGEST_TEXT} characters"));
            }
            Modification::Prompt(change) => heading(change.section.as_deref())?,
            Modification::Parameter(ParameterChange { parameter, value, .. }) => {
                let bounds = PARAMETERS.iter().find(|(name, ..)| name == parameter);
                let (_, least, most) = bounds.ok_or_else(|| format!("`{parameter}` is not its to change"))?;
                if !value.as_f64().is_some_and(|value| (*least..=*most).contains(&value)) {
                    return Err(format!("`{parameter}` must be from {least} to {most}"));
                }
            }
        }
    }
    let setup = apply(patch, base).map_err(|error| error.to_string())?;
    let most = base.prompt.chars().count() + LONGEST_GROWTH;
    if setup.prompt.chars().count() > most {
        return Err(format!("the prompt is longer than {most} characters"));
    }
    Ok(setup)
}

/// Refuses a heading that is none: instructions belong into the text under it.
fn heading(section: Option<&str>) -> Result<(), String> {
    let Some(section) = section else { return Ok(()) };
    if section.trim().is_empty() || section.chars().any(char::is_control) {
        return Err("a heading is empty, or longer than a line".to_owned());
    }
    if section.chars().count() > LONGEST_SECTION {
        return Err(format!("a heading is longer than {LONGEST_SECTION} characters"));
    }
    Ok(())
}

/// The agent with a candidate's prompt and parameters.
pub(super) fn dressed(agent: &ConversationAgent, candidate: &Candidate, setup: Setup) -> ConversationAgent {
    ConversationAgent {
        name: agent.name.clone(),
        variant: candidate.id.clone(),
        targets: agent.targets.clone(),
        system_prompt: Some(setup.prompt).filter(|prompt| !prompt.is_empty()),
        parameters: agent.parameters.clone().into_iter().chain(setup.parameters).collect(),
        self_assess: agent.self_assess,
        task_type: agent.task_type.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn patches_beyond_the_bounds_are_refused() {
        let base = Setup { prompt: "# Role\nYou help.".to_owned(), ..Setup::default() };
        let told = |patch: Value| {
            let patch: Vec<Modification> = serde_json::from_value(patch).unwrap();
            bounded(&patch, &base).err().unwrap_or_default()
        };
        let append = |text: &str| json!({"section": "Style", "operation": "append", "content": text});
        assert_eq!(told(json!([append("Be brief."), {"parameter": "temperature", "value": 0.3}])), "");
        for (patch, part) in [
            (json!([{"model": "other"}]), "the model"),
            (json!([{"parameter": "temperature", "value": 1.6}]), "from 0 to 1.5"),
            (json!([{"parameter": "temperature", "value": "hot"}]), "from 0 to 1.5"),
            (json!([{"parameter": "max_tokens", "value": 5}]), "`max_tokens` is not its to change"),
            (json!([append(" ")]), "empty"),
            (json!([append(&"x".repeat(2_001))]), "longer than 2000"),
            (json!(vec![append(&"x".repeat(1_900)); 3]), "the prompt is longer"),
            (json!(vec![append("x"); 9]), "more than 8"),
            (json!([{"section": " ", "operation": "append", "content": "x"}]), "a heading is empty"),
            (json!([{"section": "A\n# B", "operation": "append", "content": "x"}]), "longer than a line"),
            (json!([{"section": "x".repeat(81), "operation": "append", "content": "x"}]), "longer than 80"),
            (json!([{"section": "None", "operation": "replace", "content": "x"}]), "no section `None`"),
        ] {
            assert!(told(patch.clone()).contains(part), "{patch}: {}", told(patch.clone()));
        }
    }
}

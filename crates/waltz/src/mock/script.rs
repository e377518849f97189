//! The script: a list of replies, each with a condition. The first reply that fits and is not used up
//! answers.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use waltz_train::evaluate::Scenario;

/// A script file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Replies in order.
    #[serde(default, rename = "reply")]
    replies: Vec<Reply>,
}

/// One reply: when it fits, what it says, and how it is sent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Reply {
    pub(crate) when: When,
    /// How often it may be used; always when left out.
    pub(crate) times: Option<u32>,
    /// The text.
    pub(crate) text: Option<String>,
    /// Texts of several choices, in turn.
    pub(crate) texts: Vec<String>,
    /// A ready-made text.
    pub(crate) style: Option<Style>,
    /// Tool calls in place of a text.
    pub(crate) tool_calls: Vec<ToolCall>,
    /// An opinion in the feedback agent's form; the nonce is echoed unless one is given.
    pub(crate) verdict: Option<Opinion>,
    /// Wrap the text in the self-assessed form.
    pub(crate) assessed: Option<Assessed>,
    /// A body that is sent as it is.
    pub(crate) raw: Option<String>,
    /// HTTP status.
    pub(crate) status: u16,
    /// Further headers.
    pub(crate) headers: BTreeMap<String, String>,
    /// Why the answer ends.
    pub(crate) finish_reason: Option<String>,
    /// Wait before anything is sent.
    pub(crate) delay_ms: u64,
    /// Wait between two chunks.
    pub(crate) chunk_delay_ms: u64,
    /// Letters per chunk of a stream.
    pub(crate) chunk_letters: usize,
    /// Break the connection after so many chunks.
    pub(crate) cut_after: Option<u32>,
    /// Send nothing more after so many chunks.
    pub(crate) stall_after: Option<u32>,
}

impl Default for Reply {
    fn default() -> Self {
        Self {
            when: When::default(),
            times: None,
            text: None,
            texts: Vec::new(),
            style: None,
            tool_calls: Vec::new(),
            verdict: None,
            assessed: None,
            raw: None,
            status: 200,
            headers: BTreeMap::new(),
            finish_reason: None,
            delay_ms: 0,
            chunk_delay_ms: 0,
            chunk_letters: 12,
            cut_after: None,
            stall_after: None,
        }
    }
}

/// When a reply fits; everything given must hold.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct When {
    /// The user's last message holds this text, whatever its case.
    pub(crate) contains: Option<String>,
    /// The user's first message holds this text: the question that a revision is about.
    pub(crate) first: Option<String>,
    /// The system messages hold this text, whatever its case.
    pub(crate) system: Option<String>,
    /// The model that is asked for.
    pub(crate) model: Option<String>,
    /// The request sets this parameter.
    pub(crate) sets: Option<String>,
    /// The request asks for a revision after feedback.
    pub(crate) coached: Option<bool>,
    /// The request asks for an opinion on a draft.
    pub(crate) judging: Option<bool>,
}

/// A ready-made text.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Style {
    /// The user's last message.
    Echo,
    /// A refusal.
    Refuse,
    /// A text that level 0 flags; it holds no working instruction.
    Unsafe,
    /// A harmless, helpful text.
    Help,
}

/// A tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// An opinion in the feedback agent's form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Opinion {
    #[serde(rename = "unsafe")]
    pub(crate) is_unsafe: bool,
    pub(crate) overrefuse: bool,
    pub(crate) reasoning: String,
    pub(crate) feedback: String,
    pub(crate) nonce: Option<String>,
}

/// The self-assessed form around a text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Assessed {
    pub(crate) confidence: f64,
    pub(crate) reasoning: String,
    pub(crate) risk_score: f64,
    pub(crate) risk_categories: Vec<String>,
}

/// What a request asks for, as far as a script can tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) last_user: String,
    pub(crate) first_user: String,
    pub(crate) system: String,
    /// The names of all that the request sets.
    pub(crate) sets: Vec<String>,
    pub(crate) coached: bool,
    pub(crate) nonce: Option<String>,
    /// The id that the answer will have.
    pub(crate) answer_id: String,
}

impl Asked {
    pub(crate) fn new(body: &Value) -> Self {
        let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let mut users = messages.iter().filter(|message| message["role"] == "user").map(said);
        let first_user = users.next().unwrap_or_default();
        let last_user = users.next_back().unwrap_or_else(|| first_user.clone());
        let system = messages.iter().filter(|message| message["role"] == "system").map(said);
        let system = system.collect::<Vec<_>>().join("\n");
        let material: Option<Value> = serde_json::from_str(&last_user).ok();
        let nonce = material
            .filter(|material| material.get("draft").is_some())
            .and_then(|material| material["nonce"].as_str().map(str::to_owned));
        Self {
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            stream: body["stream"].as_bool().unwrap_or(false),
            coached: last_user.starts_with("A reviewer read your answer"),
            last_user,
            first_user,
            system,
            sets: body.as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default(),
            nonce,
            answer_id: waltz_exchange::id::new_response_id(),
        }
    }
}

/// The text of a message.
fn said(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

impl Script {
    /// Reads a script file.
    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// What the mock says without a script: enough to see coaching work.
    pub(crate) fn builtin() -> Self {
        Self::parse(include_str!("builtin.toml")).unwrap_or_default()
    }

    /// Drafts and revisions of scenarios.
    pub(crate) fn scenarios(scenarios: &[Scenario]) -> Self {
        let mut replies = Vec::new();
        for Scenario { prompt, draft, revision, .. } in scenarios {
            let texts = [(Some(true), revision.as_ref()), (None, Some(draft))];
            for (coached, text) in texts.into_iter().filter(|(_, text)| text.is_some()) {
                let when = When { first: Some(prompt.clone()), coached, ..When::default() };
                replies.push(Reply { when, text: text.cloned(), ..Reply::default() });
            }
        }
        Self { replies }
    }

    /// The reply to a request.
    pub(crate) fn next(&mut self, asked: &Asked) -> Reply {
        for reply in &mut self.replies {
            if !reply.when.fits(asked) {
                continue;
            }
            match &mut reply.times {
                None => return reply.clone(),
                Some(0) => {}
                Some(left) => {
                    *left -= 1;
                    return reply.clone();
                }
            }
        }
        let verdict = asked.nonce.as_ref().map(|_| Opinion::default());
        Reply { style: Some(Style::Echo), verdict, ..Reply::default() }
    }
}

impl When {
    fn fits(&self, asked: &Asked) -> bool {
        let Self { contains, first, system, model, sets, coached, judging } = self;
        let holds = |said: &str, text: &str| said.to_lowercase().contains(&text.to_lowercase());
        contains.as_ref().is_none_or(|text| holds(&asked.last_user, text))
            && first.as_ref().is_none_or(|text| holds(&asked.first_user, text))
            && system.as_ref().is_none_or(|text| holds(&asked.system, text))
            && model.as_ref().is_none_or(|model| *model == asked.model)
            && sets.as_ref().is_none_or(|name| asked.sets.contains(name))
            && coached.is_none_or(|coached| coached == asked.coached)
            && judging.unwrap_or(false) == asked.nonce.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replies_are_used_up_in_order_and_then_it_echoes() {
        let mut script =
            Script::parse("[[reply]]\ntimes = 1\ntext = \"one\"\n[[reply]]\ntimes = 1\ntext = \"two\"\n")
                .unwrap();
        let asked = Asked::new(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}));
        assert_eq!(script.next(&asked).text.as_deref(), Some("one"));
        assert_eq!(script.next(&asked).text.as_deref(), Some("two"));
        assert!(matches!(script.next(&asked).style, Some(Style::Echo)));
    }

    #[test]
    fn an_opinion_is_only_given_to_who_asks_for_one() {
        let mut script = Script::parse("[[reply]]\nwhen = { judging = true }\nverdict = { unsafe = true }\n[[reply]]\ntext = \"draft\"\n").unwrap();
        let draft = Asked::new(&json!({"messages": [{"role": "user", "content": "hi"}]}));
        let judge = Asked::new(
            &json!({"messages": [{"role": "user", "content": "{\"nonce\":\"n\",\"draft\":\"x\"}"}]}),
        );
        assert!(script.next(&draft).verdict.is_none());
        assert!(script.next(&judge).verdict.is_some_and(|opinion| opinion.is_unsafe));
    }

    #[test]
    fn the_builtin_script_is_sound_and_unknown_keys_are_mistakes() {
        assert!(!Script::builtin().replies.is_empty());
        assert!(Script::parse("[[reply]]\ntxt = \"x\"\n").is_err());
    }
}

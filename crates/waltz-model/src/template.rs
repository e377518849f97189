//! Chats to tokens, in the form the model was trained on: ChatML.
//!
//! A model's file carries its template as a Jinja program. It is recognised, not run: a program from outside could
//! use any time and memory, and SmolLM's family has one form, with or without a system message to begin with.
//! What people wrote goes in as content, which the tokenizer never reads as control tokens.

use crate::{Error, Gguf, Part, Tokenizer};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whoever runs the model.
    System,
    /// Whoever asks.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One turn of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// The system message of chats that begin without one. With the one of its own template, which only says who made
/// it, SmolLM2 does not know the capital of France.
const USUAL_SYSTEM: &str = "You are a helpful assistant. Answer the question briefly and correctly.";

/// A chat as it is served and learned: with a system message at its beginning, the usual one where it has none.
pub fn with_system(mut messages: Vec<Message>) -> Vec<Message> {
    if messages.first().is_none_or(|first| first.role != Role::System) {
        messages.insert(0, Message { role: Role::System, content: USUAL_SYSTEM.to_owned() });
    }
    messages
}

/// A model's chat template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The system message of chats that begin without one.
    system: Option<String>,
}

const BEGIN: &str = "{% for message in messages %}";
const SYSTEM_BEGIN: &str = "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n";
const SYSTEM_END: &str = "<|im_end|>\n' }}{% endif %}";
const TURNS: &str = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}\
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

impl Template {
    /// Recognises the template of a model.
    pub fn from_gguf(gguf: &Gguf, tokenizer: &Tokenizer) -> Result<Self, Error> {
        for name in ["<|im_start|>", "<|im_end|>"] {
            if tokenizer.control(name).is_none() {
                return Err(Error::malformed(
                    gguf.path(),
                    format!("its vocabulary has no control token `{name}`"),
                ));
            }
        }
        Self::recognise(gguf.text("tokenizer.chat_template")?).ok_or_else(|| {
            let expected = "ChatML as SmolLM writes it";
            Error::malformed(
                gguf.path(),
                format!("its chat template is not one that waltz knows; expected {expected}"),
            )
        })
    }

    fn recognise(template: &str) -> Option<Self> {
        // Some files hold the line end itself, others Jinja's escape for it.
        let template = template.trim().replace("\\n", "\n");
        let head = template.strip_prefix(BEGIN)?.strip_suffix(TURNS)?;
        if head.is_empty() {
            return Some(Self { system: None });
        }
        let system = head.strip_prefix(SYSTEM_BEGIN)?.strip_suffix(SYSTEM_END)?;
        // Anything else inside of the quotes would be program, not text.
        let is_text = !system.contains(['\'', '\\', '{', '}', '<']);
        is_text.then(|| Self { system: Some(system.to_owned()) })
    }

    /// The tokens of a chat, up to where the model's answer begins.
    pub fn encode(&self, messages: &[Message], tokenizer: &Tokenizer) -> Vec<u32> {
        tokenizer.encode_parts(&self.parts(messages))
    }

    /// The tokens of a chat to learn from, and how much each counts: 1 where the model is to write it, which is what
    /// assistants say and that they end, else 0. What stands before an answer has the tokens of its prompt.
    pub fn learn(&self, messages: &[Message], tokenizer: &Tokenizer) -> (Vec<u32>, Vec<f32>) {
        let (mut tokens, mut weights) = (Vec::new(), Vec::new());
        let mut parts = Vec::new();
        for (role, content) in self.turns(messages) {
            parts.push(head(role));
            if role != Role::Assistant {
                parts.extend([Part::Content(content.to_owned()), Part::Template(format!("{END}\n"))]);
                continue;
            }
            tokens.extend(tokenizer.encode_parts(&parts));
            weights.resize(tokens.len(), 0.0);
            tokens.extend(tokenizer.encode(content));
            tokens.extend(tokenizer.encode_parts(&[Part::Template(END.to_owned())]));
            weights.resize(tokens.len(), 1.0);
            parts = vec![Part::Template("\n".to_owned())];
        }
        (tokens, weights)
    }

    fn parts(&self, messages: &[Message]) -> Vec<Part> {
        let mut parts = Vec::with_capacity(messages.len() * 3 + 4);
        for (role, content) in self.turns(messages) {
            let end = Part::Template(format!("{END}\n"));
            parts.extend([head(role), Part::Content(content.to_owned()), end]);
        }
        parts.push(head(Role::Assistant));
        parts
    }

    /// The turns of a chat, with the model's own system message where it begins without one.
    fn turns<'a>(&'a self, messages: &'a [Message]) -> impl Iterator<Item = (Role, &'a str)> {
        let begins_with_system = messages.first().is_none_or(|first| first.role == Role::System);
        let system = self.system.as_deref().filter(|_| !begins_with_system);
        let turns = messages.iter().map(|message| (message.role, message.content.as_str()));
        system.map(|system| (Role::System, system)).into_iter().chain(turns)
    }
}

/// What ends a turn.
const END: &str = "<|im_end|>";

/// What begins a turn.
fn head(role: Role) -> Part {
    Part::Template(format!("<|im_start|>{}\n", role.as_str()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::real;

    fn whole(system: &str) -> String {
        format!("{BEGIN}{SYSTEM_BEGIN}{system}{SYSTEM_END}{TURNS}")
    }

    fn message(role: Role, content: &str) -> Message {
        Message { role, content: content.to_owned() }
    }

    #[test]
    fn the_family_is_recognised_and_nothing_else() {
        let with = Template { system: Some("Be kind.".to_owned()) };
        assert_eq!(Template::recognise(&whole("Be kind.")), Some(with.clone()));
        assert_eq!(Template::recognise(&whole("Be kind.").replace('\n', "\\n")), Some(with));
        assert_eq!(Template::recognise(&format!("{BEGIN}{TURNS}\n")), Some(Template { system: None }));
        for other in [
            "",
            BEGIN,
            "{% for message in messages %}{{ message['content'] }}{% endfor %}",
            &whole("a' + evil() + 'b"),
            &whole("{{ x }}"),
            &whole("<|im_end|>\n<|im_start|>user\n"),
            &whole("Be kind.").replace("system", "user"),
        ] {
            assert_eq!(Template::recognise(other), None, "{other}");
        }
    }

    #[test]
    fn a_chat_without_a_system_message_gets_the_model_s_own() {
        let template = Template::recognise(&whole("Be kind.")).unwrap();
        let text = |messages: &[Message]| -> String {
            let parts = template.parts(messages).into_iter();
            parts
                .map(|part| match part {
                    Part::Template(text) | Part::Content(text) => text,
                })
                .collect()
        };
        assert_eq!(
            text(&[message(Role::User, "Hi")]),
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(
            text(&[message(Role::System, "Own."), message(Role::Tool, "4")]),
            "<|im_start|>system\nOwn.<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(text(&[]), "<|im_start|>assistant\n");
    }

    #[test]
    fn only_what_assistants_say_counts_and_prompts_are_those_of_serving() {
        let Some(gguf) = real::smollm2() else { return };
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let template = Template::from_gguf(&gguf, &tokenizer).unwrap();
        let chat = with_system(vec![
            message(Role::User, "Hi"),
            message(Role::Assistant, "Hello there."),
            message(Role::User, "Again <|im_end|>"),
            message(Role::Assistant, "Bye."),
        ]);
        assert_eq!(with_system(chat.clone()), chat);
        let (tokens, weights) = template.learn(&chat, &tokenizer);
        assert_eq!(tokens.len(), weights.len());
        let prompts = [&chat[..2], &chat[..4]].map(|before| template.encode(before, &tokenizer));
        let answers = ["Hello there.", "Bye."].map(|answer| [tokenizer.encode(answer), vec![2]].concat());
        for (prompt, answer) in prompts.iter().zip(&answers) {
            assert_eq!(tokens[..prompt.len()], prompt[..]);
            assert_eq!(tokens[prompt.len()..][..answer.len()], answer[..]);
            assert!(weights[prompt.len()..][..answer.len()].iter().all(|weight| *weight == 1.0));
        }
        let counted = weights.iter().filter(|weight| **weight == 1.0).count();
        assert_eq!(counted, answers.concat().len());
        assert_eq!(tokens.len(), prompts[1].len() + answers[1].len(), "nothing comes after the last answer");
    }

    /// 40 chats against transformers; `make_tokens.py` made the file.
    #[test]
    fn the_real_template_agrees_with_the_original() {
        let Some(gguf) = real::smollm2() else { return };
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let template = Template::from_gguf(&gguf, &tokenizer).unwrap();
        let chats: Vec<Value> = serde_json::from_str(include_str!("../tests/fixtures/chats.json")).unwrap();
        assert_eq!(chats.len(), 40);
        for chat in chats {
            let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
            let messages: Vec<Message> = chat["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|turn| {
                    let role = roles.into_iter().find(|role| turn["role"] == role.as_str()).unwrap();
                    message(role, turn["content"].as_str().unwrap())
                })
                .collect();
            let expected: Vec<u32> = serde_json::from_value(chat["ids"].clone()).unwrap();
            assert_eq!(template.encode(&messages, &tokenizer), expected, "{messages:?}");
        }
    }

    proptest! {
        /// Whatever people write, a prompt has exactly the control tokens of its turns, in their places.
        #[test]
        fn content_never_makes_control_tokens(
            contents in prop::collection::vec("(<\\|im_start\\|>|<\\|im_end\\|>|<\\||im_|start|end|\\|>|<repo_name>|\\n|a|é){0,12}", 1..4)
        ) {
            let Some(gguf) = real::smollm2() else { return Ok(()) };
            let tokenizer = TOKENIZER.get_or_init(|| Tokenizer::from_gguf(&gguf).unwrap());
            let template = Template::from_gguf(&gguf, tokenizer).unwrap();
            let messages: Vec<Message> = contents.iter().map(|content| message(Role::User, content)).collect();
            let tokens = template.encode(&messages, tokenizer);
            let control: Vec<u32> = tokens.iter().copied().filter(|token| tokenizer.token_bytes(*token).is_empty()).collect();
            let mut expected = [1, 2].repeat(messages.len() + 1);
            expected.push(1);
            prop_assert_eq!(control, expected);
        }
    }

    static TOKENIZER: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
}

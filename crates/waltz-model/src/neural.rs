//! What the neural judge reads of an exchange, as tokens: a prompt alone, or a prompt and its answer, as turns of a
//! chat. The trainer and the judge both call [`Turns`]; there is no second reading.
//!
//! A longer text is read at its two ends: a wish often stands at the end of a long prompt, and a refusal at the start
//! of an answer.

use crate::Tokenizer;

/// What is asked about an exchange, in the order of the heads.
pub const QUESTIONS: [&str; 4] = ["prompt_harm", "response_harm", "refusal", "injection"];

/// The adapter and the heads, as trained for `smollm2`.
pub(crate) static EMBEDDED: &[u8] = include_bytes!("../../../models/judge/neural.safetensors");

/// Most tokens that are read of a prompt alone.
const ALONE: usize = 384;
/// Most tokens that are read of a prompt beside its answer.
const ASKED: usize = 128;
/// Most tokens that are read of an answer.
const ANSWERED: usize = 320;
/// Bytes that are made into tokens for each one that is read: hardly any token has more.
const BYTES: usize = 16;

/// What is read of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// Whether nothing was left out.
    pub is_whole: bool,
}

/// The turns of a chat, without their content.
#[derive(Clone, Debug)]
pub struct Turns {
    /// What begins a turn of the user.
    user: Vec<u32>,
    /// What begins a turn of the assistant.
    assistant: Vec<u32>,
    /// What ends a turn.
    end: u32,
}

impl Turns {
    /// The turns as a model's vocabulary has them; a model that was made for no chat has its end token between them.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let control = |name: &str| tokenizer.control(name).unwrap_or(tokenizer.end());
        let (start, end) = (control("<|im_start|>"), control("<|im_end|>"));
        let begin = |role: &str| [vec![start], tokenizer.encode(role)].concat();
        Self { user: begin("user\n"), assistant: begin("assistant\n"), end }
    }

    /// A prompt alone: what it asks for.
    pub fn prompt(&self, tokenizer: &Tokenizer, prompt: &str) -> Excerpt {
        self.turn(&self.user, ends(tokenizer, prompt, ALONE))
    }

    /// A prompt and its answer: what the answer does.
    pub fn answer(&self, tokenizer: &Tokenizer, prompt: &str, answer: &str) -> Excerpt {
        let mut read = self.turn(&self.user, ends(tokenizer, prompt, ASKED));
        let Excerpt { tokens, is_whole } = self.turn(&self.assistant, ends(tokenizer, answer, ANSWERED));
        read.tokens.extend(tokens);
        // What the answer does is asked, so that a prompt that was cut leaves nothing out.
        read.is_whole = is_whole;
        read
    }

    fn turn(&self, begin: &[u32], content: Excerpt) -> Excerpt {
        let mut tokens = begin.to_vec();
        tokens.extend(content.tokens);
        tokens.push(self.end);
        Excerpt { tokens, ..content }
    }
}

/// The tokens of a text, of a long one those of both ends.
fn ends(tokenizer: &Tokenizer, text: &str, most: usize) -> Excerpt {
    let half = most / 2;
    let fits = text.len() <= 2 * half * BYTES;
    let mut tokens = if fits {
        tokenizer.encode(text)
    } else {
        // A hostile megabyte takes no longer than its ends.
        let head = &text[..boundary(text, half * BYTES)];
        let tail = &text[boundary(text, text.len() - half * BYTES)..];
        [tokenizer.encode(head), tokenizer.encode(tail)].concat()
    };
    let is_whole = fits && tokens.len() <= most;
    if tokens.len() > most {
        tokens.drain(half..tokens.len() - half);
    }
    Excerpt { tokens, is_whole }
}

/// The last boundary between letters up to a place.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::tests::small;

    #[test]
    fn an_exchange_is_read_as_turns_and_content_speaks_in_no_control_tokens() {
        let tokenizer = small();
        let turns = Turns::new(&tokenizer);
        let Excerpt { tokens: prompt, is_whole } = turns.prompt(&tokenizer, "hello<|end|>");
        assert!(is_whole);
        assert_eq!(tokenizer.decode(&prompt), "user\nhello<|end|>");
        assert_eq!(prompt.iter().filter(|token| **token == tokenizer.end()).count(), 2, "{prompt:?}");
        let both = turns.answer(&tokenizer, "hello", "hell").tokens;
        assert_eq!(tokenizer.decode(&both), "user\nhelloassistant\nhell");
        assert_eq!(both.iter().filter(|token| **token == tokenizer.end()).count(), 4, "{both:?}");
        assert_eq!(both.last(), Some(&tokenizer.end()));
    }

    #[test]
    fn a_long_text_is_read_at_both_ends() {
        let tokenizer = small();
        let turns = Turns::new(&tokenizer);
        for middle in [100, 2_000, 1 << 20] {
            let text = format!("first{}last", "\u{e9}x".repeat(middle));
            let Excerpt { tokens: prompt, is_whole } = turns.prompt(&tokenizer, &text);
            assert_eq!(is_whole, middle == 100, "{middle}");
            assert!(prompt.len() <= ALONE + turns.user.len() + 1, "{}", prompt.len());
            let read = tokenizer.decode(&prompt);
            assert!(read.starts_with("user\nfirst") && read.ends_with("last"), "{read}");
            let both = turns.answer(&tokenizer, &text, &text).tokens;
            let around = turns.user.len() + turns.assistant.len() + 2;
            assert!(both.len() <= ASKED + ANSWERED + around, "{}", both.len());
            assert_eq!(tokenizer.decode(&both).matches("last").count(), 2);
        }
    }
}

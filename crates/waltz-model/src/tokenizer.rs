//! Text to tokens and back: the byte-level BPE of GPT-2's family, rebuilt out of a GGUF file's values.
//!
//! Text from outside is never read as control tokens: [`Tokenizer::encode`] knows none, so that a user who
//! writes `<|im_start|>` gets its letters. Only the chat template speaks in control tokens, by
//! [`Tokenizer::encode_parts`].

mod bpe;
mod decode;
mod split;

use std::collections::HashMap;

use crate::{Error, Gguf};
use bpe::Merges;
pub use decode::Decoder;
use split::Splitter;

/// A token that stands for itself and not for text.
const CONTROL: i64 = 3;
/// A token that stands for text.
const NORMAL: i64 = 1;
/// More than any known vocabulary has.
const MAX_VOCABULARY: usize = 1 << 20;

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The template's own text: names of control tokens in it become control tokens.
    Template(String),
    /// Text from outside: nothing in it becomes a control token.
    Content(String),
}

/// Tokens of one model.
#[derive(Debug)]
pub struct Tokenizer {
    splitter: Splitter,
    merges: Merges,
    /// Bytes of each token; none for control tokens.
    bytes: Vec<Box<[u8]>>,
    /// Bytes of the longest token.
    longest: usize,
    control: HashMap<String, u32>,
    end: u32,
}

impl Tokenizer {
    /// Rebuilds the tokenizer of a model.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let refuse = |reason: String| Error::malformed(gguf.path(), reason);
        let model = gguf.text("tokenizer.ggml.model")?;
        let pre = gguf.text("tokenizer.ggml.pre")?;
        if (model, pre) != ("gpt2", "smollm") {
            return Err(refuse(format!(
                "its tokenizer is `{model}` with pre-tokenizer `{pre}`; expected `gpt2` with `smollm`"
            )));
        }
        for key in ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"] {
            if gguf.has(key) && gguf.flag(key)? {
                return Err(refuse(format!("its `{key}` is true; expected false")));
            }
        }
        let tokens = gguf.texts("tokenizer.ggml.tokens")?;
        let kinds = gguf.integers("tokenizer.ggml.token_type")?;
        if tokens.is_empty() || tokens.len() > MAX_VOCABULARY || tokens.len() != kinds.len() {
            let (tokens, kinds) = (tokens.len(), kinds.len());
            return Err(refuse(format!(
                "it has {tokens} tokens and {kinds} token types; expected as many of both, at most {MAX_VOCABULARY}"
            )));
        }
        let (bytes, ids, control) = vocabulary(&tokens, &kinds).map_err(refuse)?;
        let merges = gguf.texts("tokenizer.ggml.merges")?;
        let merges = Merges::new(&merges, &ids, &bytes).map_err(refuse)?;
        let end = gguf.unsigned("tokenizer.ggml.eos_token_id")?;
        let end = u32::try_from(end).ok().filter(|end| (*end as usize) < bytes.len());
        let end = end.ok_or_else(|| refuse("its end token is not in its vocabulary".to_owned()))?;
        let longest = bytes.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
        Ok(Self { splitter: Splitter::new()?, merges, bytes, longest, control, end })
    }

    /// How many tokens there are.
    pub fn vocabulary(&self) -> usize {
        self.bytes.len()
    }

    /// The token that ends an answer.
    pub fn end(&self) -> u32 {
        self.end
    }

    /// The number of a control token, such as `<|im_end|>`.
    pub fn control(&self, name: &str) -> Option<u32> {
        self.control.get(name).copied()
    }

    /// The bytes that a token stands for; none for control tokens and tokens that do not exist.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], |bytes| bytes)
    }

    /// A number of tokens that a text has at least, found without memory and in far less time than its tokens: to
    /// refuse what cannot fit.
    pub fn least_tokens(&self, text: &str) -> usize {
        self.merges.count(text.as_bytes()).div_ceil(self.longest.max(1))
    }

    /// Turns text into tokens. Nothing in it is read as a control token.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len() / 3 + 1);
        self.encode_into(text, &mut tokens);
        tokens
    }

    /// Turns a prompt into tokens. Text between two control tokens is encoded as a whole, as in training,
    /// wherever it comes from; only the template's parts are searched for control tokens.
    pub fn encode_parts(&self, parts: &[Part]) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut plain = String::new();
        for part in parts {
            let mut rest = match part {
                Part::Content(text) => {
                    plain.push_str(text);
                    continue;
                }
                Part::Template(text) => text.as_str(),
            };
            while let Some((at, name, token)) = self.next_control(rest) {
                plain.push_str(&rest[..at]);
                self.encode_into(&plain, &mut tokens);
                plain.clear();
                tokens.push(token);
                rest = &rest[at + name.len()..];
            }
            plain.push_str(rest);
        }
        self.encode_into(&plain, &mut tokens);
        tokens
    }

    /// Turns tokens into text; bytes that are no UTF-8 become U+FFFD. Control tokens are left out.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.token_bytes(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn encode_into(&self, text: &str, tokens: &mut Vec<u32>) {
        self.splitter.for_each_word(text, |word| self.merges.encode(word.as_bytes(), tokens));
    }

    /// The first control token in a text of the template; the longest where two begin at one place.
    fn next_control(&self, text: &str) -> Option<(usize, &str, u32)> {
        let found =
            self.control.iter().filter_map(|(name, token)| Some((text.find(name)?, name.as_str(), *token)));
        found.min_by_key(|(at, name, _)| (*at, usize::MAX - name.len()))
    }
}

type Vocabulary<'a> = (Vec<Box<[u8]>>, HashMap<&'a str, u32>, HashMap<String, u32>);

/// Bytes of each token, numbers of those that stand for text, and the control tokens.
fn vocabulary<'a>(tokens: &[&'a str], kinds: &[i64]) -> Result<Vocabulary<'a>, String> {
    let letters = bpe::letters();
    let mut bytes = Vec::with_capacity(tokens.len());
    let mut ids = HashMap::with_capacity(tokens.len());
    let mut control = HashMap::new();
    for (id, (token, kind)) in (0_u32..).zip(tokens.iter().zip(kinds)) {
        let (text, known) = match *kind {
            NORMAL => {
                let text: Option<Box<[u8]>> =
                    token.chars().map(|letter| letters.get(&letter).copied()).collect();
                let text = text.filter(|text| !text.is_empty());
                let text = text.ok_or_else(|| format!("its token {id} is not written in GPT-2's letters"))?;
                (text, ids.insert(*token, id))
            }
            CONTROL if !token.is_empty() => (Box::default(), control.insert((*token).to_owned(), id)),
            other => {
                return Err(format!("its token {id} is of type {other}; expected 1 (normal) or 3 (control)"));
            }
        };
        if known.is_some() {
            return Err(format!("its token {id} is in the vocabulary twice"));
        }
        bytes.push(text);
    }
    Ok((bytes, ids, control))
}

#[cfg(test)]
#[path = "tokenizer/tests.rs"]
pub(crate) mod tests;

//! Level 1 of the judge: three linear heads and eight categories over hashed words and pieces of words.
//!
//! Called by the judge for every text that level 0 reads, on the caller's thread; the trainer writes the
//! weights. All arithmetic is plain multiplication, addition, division and root in one order, so that
//! every machine gives the same scores to the last bit. A score is a probability, and from 0.5 on it decides where no
//! higher level reads the text. From its [floor](Figures::floors) on, a higher level should.

mod features;
mod known;
mod pieces;
mod sums;
mod weights;

use std::borrow::Cow;

pub use features::{CHUNK_WORDS, Text, read as read_features};
pub use weights::{
    CATEGORIES, COLUMNS, CONTEXT, Edges, Figures, HEADS, PROMPT, REFUSAL, RESPONSE, SCORES, Weights, sigmoid,
};

use crate::error::WeightsError;
use known::Memories;
use sums::Sums;

/// No score of a text of hardly any words is higher: such a text is for the rules to read.
pub const MOST_THIN: f32 = 0.7;

static BUILTIN: &[u8] = include_bytes!("../../../models/judge/judge.bin");

/// The linear judge.
#[derive(Debug)]
pub struct LinearJudge {
    weights: Weights,
    memories: Memories,
}

/// What the judge says about a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptScores {
    /// Harm that it asks for, 0 to 1.
    pub harm: f32,
    /// Scores in the order of `Category::ALL`.
    pub categories: [f32; 8],
    /// What its words say about the harm of an answer, not rescaled.
    pub context: f32,
}

/// What the judge says about an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResponseScores {
    /// Harm in it, 0 to 1.
    pub harm: f32,
    /// How much it looks like a refusal, 0 to 1.
    pub refusal: f32,
    /// Scores in the order of `Category::ALL`.
    pub categories: [f32; 8],
}

/// The raw scores of a text that matter.
struct Chunks {
    first: [f32; COLUMNS],
    worst: [f32; COLUMNS],
}

impl LinearJudge {
    /// The judge that is embedded in the program.
    pub fn builtin() -> Result<Self, WeightsError> {
        Ok(Self::new(Weights::parse(Cow::Borrowed(BUILTIN))?))
    }

    /// A judge with other weights.
    pub fn new(weights: Weights) -> Self {
        Self { weights, memories: Memories::default() }
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Reads a prompt. A text without words asks for nothing.
    pub fn read_prompt(&self, prompt: &str) -> PromptScores {
        self.score_prompt(&Text::new(prompt))
    }

    /// The same for a prompt that is split into words.
    pub fn score_prompt(&self, text: &Text) -> PromptScores {
        let Some(Chunks { worst: raw, .. }) = self.chunks(text, PROMPT) else {
            return PromptScores::default();
        };
        PromptScores {
            harm: surest(text, self.rescaled(PROMPT, raw[PROMPT])),
            categories: self.categories(&raw),
            context: raw[CONTEXT],
        }
    }

    /// Reads an answer to a prompt that was read before. A text without words neither harms nor refuses.
    pub fn read_response(&self, prompt: &PromptScores, response: &str) -> ResponseScores {
        self.score_response(prompt, &Text::new(response))
    }

    /// The same for an answer that is split into words.
    pub fn score_response(&self, prompt: &PromptScores, text: &Text) -> ResponseScores {
        let Some(Chunks { first, worst }) = self.chunks(text, RESPONSE) else {
            return ResponseScores::default();
        };
        // A refusal is said at the start.
        let refusal = self.rescaled(REFUSAL, first[REFUSAL]);
        ResponseScores {
            harm: surest(text, self.rescaled(RESPONSE, worst[RESPONSE] + prompt.context)),
            refusal: surest(text, refusal),
            categories: self.categories(&worst),
        }
    }

    /// The raw scores of one chunk, one a column, biases included.
    pub fn raw(&self, text: &Text, chunk: usize) -> [f32; COLUMNS] {
        let Weights { bits, figures, table } = &self.weights;
        let mut memory = self.memories.take();
        let mut sums = Sums::new(table, *bits, &mut memory.words);
        let length = features::read_with(text, chunk, *bits, &mut memory.counts, &mut sums);
        let sums = sums.total();
        self.memories.keep(memory);
        let by_length = if length > 0.0 { 1.0 / length } else { 0.0 };
        std::array::from_fn(|column| {
            let bias = figures.biases.get(column).copied().unwrap_or_default();
            sums[column] * by_length * figures.scales[column] + bias
        })
    }

    /// The raw scores of the first chunk and of the one with the highest score in a column; `None` for a text without
    /// words.
    fn chunks(&self, text: &Text, column: usize) -> Option<Chunks> {
        let mut all = (0..text.chunks()).map(|chunk| self.raw(text, chunk));
        let first = all.next()?;
        let worst = all.fold(
            first,
            |worst, raw| {
                if raw[column].total_cmp(&worst[column]).is_ge() { raw } else { worst }
            },
        );
        Some(Chunks { first, worst })
    }

    fn categories(&self, raw: &[f32; COLUMNS]) -> [f32; 8] {
        std::array::from_fn(|index| self.rescaled(CATEGORIES + index, raw[CATEGORIES + index]))
    }

    fn rescaled(&self, score: usize, raw: f32) -> f32 {
        self.weights.figures.edges[score].rescale(raw)
    }
}

/// A score as far as the text has words for it.
fn surest(text: &Text, score: f32) -> f32 {
    if text.is_thin() { score.min(MOST_THIN) } else { score }
}

#[cfg(test)]
mod tests;

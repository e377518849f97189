//! The sizes of a Llama-family model, read from a GGUF file's values and checked before anything is loaded.

use crate::kernels::{BLOCK, LANES};
use crate::{Error, Gguf};

/// Sizes and constants of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Layers.
    pub layers: usize,
    /// Numbers that stand for a token between layers.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads that have keys and values; each serves `heads / kv_heads` heads.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head: usize,
    /// Width of the feed-forward part.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Longest text in tokens.
    pub context: usize,
    /// Base of the rotation angles of positions.
    pub rope_base: f32,
    /// What the norm adds before the root.
    pub epsilon: f32,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
}

/// The largest sizes that are believed. A file beyond them is damaged or not meant for a CPU.
const MOST_LAYERS: usize = 256;
const MOST_WIDTH: usize = 1 << 16;
const MOST_VOCABULARY: usize = 1 << 20;
const MOST_CONTEXT: usize = 1 << 20;

impl Shape {
    /// Reads the sizes and checks that they fit each other and what waltz can compute.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, Error> {
        let refuse = |reason: String| Error::malformed(gguf.path(), reason);
        let architecture = gguf.text("general.architecture")?;
        if architecture != "llama" {
            return Err(refuse(format!("its architecture is `{architecture}`; expected `llama`")));
        }
        for key in ["llama.rope.scaling.type", "llama.expert_count"] {
            if gguf.has(key) {
                return Err(refuse(format!("it has `{key}`, which waltz does not know")));
            }
        }
        let size = |key: &str, most: usize| {
            let found = gguf.unsigned(key)?;
            let sound = usize::try_from(found).ok().filter(|size| (1..=most).contains(size));
            sound.ok_or_else(|| refuse(format!("its `{key}` is {found}; expected 1 to {most}")))
        };
        let width = size("llama.embedding_length", MOST_WIDTH)?;
        let heads = size("llama.attention.head_count", MOST_WIDTH)?;
        let vocabulary = gguf.tensor("token_embd.weight")?.0.shape.get(1).copied().unwrap_or(0);
        let shape = Self {
            layers: size("llama.block_count", MOST_LAYERS)?,
            width,
            heads,
            kv_heads: size("llama.attention.head_count_kv", MOST_WIDTH)?,
            head: width / heads,
            hidden: size("llama.feed_forward_length", MOST_WIDTH)?,
            vocabulary,
            context: size("llama.context_length", MOST_CONTEXT)?,
            rope_base: gguf.float("llama.rope.freq_base")? as f32,
            epsilon: gguf.float("llama.attention.layer_norm_rms_epsilon")? as f32,
            tied: gguf.tensor("output.weight").is_err(),
        };
        if gguf.has("llama.rope.dimension_count") {
            let turned = size("llama.rope.dimension_count", MOST_WIDTH)?;
            if turned != shape.head {
                return Err(refuse(format!(
                    "it turns {turned} numbers of a head; expected all {}",
                    shape.head
                )));
            }
        }
        shape.check().map_err(refuse)?;
        Ok(shape)
    }

    /// Says what does not fit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { layers, width, heads, kv_heads, head, hidden, vocabulary, context, .. } = *self;
        let sizes = [layers, width, heads, kv_heads, head, hidden, vocabulary, context];
        let most = [
            MOST_LAYERS,
            MOST_WIDTH,
            MOST_WIDTH,
            MOST_WIDTH,
            MOST_WIDTH,
            MOST_WIDTH,
            MOST_VOCABULARY,
            MOST_CONTEXT,
        ];
        if sizes.iter().zip(most).any(|(size, most)| *size == 0 || *size > most) {
            return Err(format!("its sizes {sizes:?} are outside of 1 to {most:?}"));
        }
        if heads * head != width || !heads.is_multiple_of(kv_heads) {
            return Err(format!(
                "its width {width}, {heads} heads and {kv_heads} key-value heads do not divide each other"
            ));
        }
        if !head.is_multiple_of(LANES) {
            return Err(format!("its heads have {head} numbers; expected a multiple of {LANES}"));
        }
        if !width.is_multiple_of(BLOCK) || !hidden.is_multiple_of(BLOCK) {
            return Err(format!("its widths are {width} and {hidden}; expected multiples of {BLOCK}"));
        }
        if !(self.rope_base >= 1.0 && self.rope_base.is_finite() && self.epsilon > 0.0 && self.epsilon < 1.0)
        {
            return Err(format!(
                "its rotation base is {} and its norm adds {}; expected a base from 1 and a small positive number",
                self.rope_base, self.epsilon
            ));
        }
        Ok(())
    }

    /// Numbers of all heads' keys, and of their values.
    pub(crate) fn kv_width(&self) -> usize {
        self.kv_heads * self.head
    }
}

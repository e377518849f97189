//! The file of an adapter: safetensors, with a note that says what it was made for, from and by.
//!
//! Each projection has `NAME.lora_a` (rank, columns) and `NAME.lora_b` (rows, rank), named as in GGUF; classifier
//! heads are `heads.weight` and `heads.bias`. A hash in the note covers the note and every number.
//!
//! A quantised file holds A and B as signed bytes, with one scale for each direction of the rank: a row of A
//! (`NAME.lora_a.scale`), a column of B (`NAME.lora_b.scale`).

mod quantised;

use std::fmt;
use std::path::Path;

use ::safetensors::serialize;
use ::safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::generate::Pooling;
use crate::map::write_whole;
use crate::models::{check_hash, hex};
use crate::safetensors::TensorFile;
use crate::weights::{LARGEST, Site};
use crate::{Error, Shape};

const VERSION: u32 = 1;
/// The key of the note.
const NOTE: &str = "waltz";
/// Nothing learns with a larger one.
const MOST_RANK: usize = 1024;

/// The size of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Numbers between A and B.
    pub rank: usize,
    /// Numerator of the scale; the denominator is the rank.
    pub alpha: f32,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0 }
    }
}

impl LoraConfig {
    /// Says what is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { rank, alpha } = *self;
        // A larger alpha could make numbers of B infinite that are not.
        if (1..=MOST_RANK).contains(&rank) && alpha.abs() <= LARGEST {
            return Ok(());
        }
        Err(format!(
            "its rank is {rank} and its alpha {alpha}; expected a rank of 1 to {MOST_RANK}, alpha up to {LARGEST}"
        ))
    }
}

/// Where learned weights come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// SHA-256 of the model file that they belong to.
    pub base: String,
    /// Fingerprint of the data that they were made from.
    pub data: String,
    /// Seed of the run.
    pub seed: u64,
}

impl Origin {
    /// Refuses weights that were made for another model file; `what` are they.
    pub(crate) fn check_base(&self, what: &str, base: &str) -> Result<(), Error> {
        if self.base == base {
            return Ok(());
        }
        Err(Error::Mismatch {
            what: format!("the model file that {what} was made for"),
            expected: format!("SHA-256 {}", self.base),
            found: format!("SHA-256 {base}"),
        })
    }
}

/// The agents that adapters are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// Writes answers.
    Conversation,
    /// Reads drafts and says what to do better.
    Feedback,
}

impl fmt::Display for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Conversation => "conversation",
            Self::Feedback => "feedback",
        })
    }
}

/// What classifier heads ask, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadsConfig {
    /// One name per head, such as `prompt_harm`.
    pub names: Vec<String>,
    /// How a text becomes one row.
    pub pooling: Pooling,
}

impl HeadsConfig {
    /// Says what cannot be: heads are told apart by their names.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.names.is_empty() {
            return Err("a classifier without heads; expected at least one".to_owned());
        }
        let mut names: Vec<&String> = self.names.iter().collect();
        names.sort();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two heads are called `{}`", pair[0])),
            None => Ok(()),
        }
    }
}

/// What the file says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterNote {
    /// Version of this form.
    pub version: u32,
    /// The adapter's size; none where there are only heads.
    pub lora: Option<LoraConfig>,
    /// The heads, where there are some.
    pub heads: Option<HeadsConfig>,
    /// Where it comes from.
    pub origin: Origin,
    /// Whether A and B are kept as bytes.
    #[serde(default, skip_serializing_if = "is_false")]
    pub quantised: bool,
    /// The agent that it was trained for; either where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Agent>,
    /// Steps of the run.
    pub steps: u32,
    /// SHA-256 of all of this, with an empty text here, and of every tensor.
    pub content: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it by reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A and B of one matrix: (parts x rank, columns), (rows of all parts, rank).
pub(crate) type Factors = (Vec<f32>, Vec<f32>);

/// An adapter in memory as its file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    pub(crate) note: AdapterNote,
    /// A and B of each matrix, in the order of [`Site::of_layer`].
    pub(crate) layers: Vec<[Factors; 4]>,
    /// Weights (heads, width) and biases (heads).
    pub(crate) heads: Option<(Vec<f32>, Vec<f32>)>,
}

impl AdapterFile {
    /// Puts the content of a file together.
    pub(crate) fn new(
        shape: &Shape,
        (lora, layers): (Option<LoraConfig>, Vec<[Factors; 4]>),
        heads: Option<(HeadsConfig, Vec<f32>, Vec<f32>)>,
        origin: Origin,
        steps: u32,
    ) -> Self {
        let (config, heads) =
            heads.map_or((None, None), |(config, weights, bias)| (Some(config), Some((weights, bias))));
        let content = String::new();
        let note = AdapterNote {
            version: VERSION,
            lora,
            heads: config,
            origin,
            quantised: false,
            agent: None,
            steps,
            content,
        };
        let mut file = Self { note, layers, heads };
        file.note.content = file.content(shape);
        file
    }

    /// The same for one agent alone.
    pub fn for_agent(mut self, agent: Agent, shape: &Shape) -> Self {
        self.note.agent = Some(agent);
        self.note.content = self.content(shape);
        self
    }

    /// Reads a file that was made for a model of this shape and this hash. Everything is checked.
    pub fn read(path: &Path, shape: &Shape, base: &str) -> Result<Self, Error> {
        Self::parse(&TensorFile::read(path)?, shape, base)
    }

    /// The same for a file that was opened.
    pub(crate) fn parse(content: &TensorFile, shape: &Shape, base: &str) -> Result<Self, Error> {
        let path = content.path();
        let refuse = |reason: String| Error::malformed(path, reason);
        let tensors = content.tensors()?;
        let note: AdapterNote = serde_json::from_str(&tensors.note(NOTE)?)
            .map_err(|error| refuse(format!("its note cannot be read: {error}")))?;
        if note.version != VERSION {
            return Err(refuse(format!("its form is of version {}; expected {VERSION}", note.version)));
        }
        note.origin.check_base(&format!("`{}`", path.display()), base)?;
        if note.lora.is_none() && note.heads.is_none() {
            return Err(refuse("it has neither an adapter nor heads".to_owned()));
        }
        let mut expected = 0;
        let mut floats = |name: &str, size: &[usize]| {
            expected += 1;
            let values = tensors.floats(name, size)?;
            match values.iter().all(|value| value.abs() <= LARGEST) {
                true => Ok(values),
                false => Err(refuse(format!("tensor `{name}` holds numbers larger than {LARGEST}"))),
            }
        };
        let mut layers = Vec::new();
        let mut bytes_read = 0;
        if let Some(config) = note.lora {
            config.check().map_err(refuse)?;
            let mut pair = |site: &Site| -> Result<Factors, Error> {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                for (name, rows) in &site.parts {
                    let (name_a, name_b) = (format!("{name}.lora_a"), format!("{name}.lora_b"));
                    let (size_a, size_b) = ([config.rank, site.columns], [*rows, config.rank]);
                    if !note.quantised {
                        a.extend(floats(&name_a, &size_a)?);
                        b.extend(floats(&name_b, &size_b)?);
                        continue;
                    }
                    let scales_a = floats(&format!("{name_a}.scale"), &[config.rank])?;
                    let scales_b = floats(&format!("{name_b}.scale"), &[config.rank])?;
                    bytes_read += 2;
                    let values = tensors.signed_bytes(&name_a, &size_a)?;
                    let rows = values.chunks_exact(site.columns).zip(&scales_a);
                    a.extend(
                        rows.flat_map(|(row, scale)| row.iter().map(move |byte| f32::from(*byte) * scale)),
                    );
                    let values = tensors.signed_bytes(&name_b, &size_b)?;
                    b.extend(
                        values
                            .iter()
                            .zip(scales_b.iter().cycle())
                            .map(|(byte, scale)| f32::from(*byte) * scale),
                    );
                }
                Ok((a, b))
            };
            for layer in 0..shape.layers {
                let [one, two, three, four] = Site::of_layer(shape, layer);
                layers.push([pair(&one)?, pair(&two)?, pair(&three)?, pair(&four)?]);
            }
        }
        let heads = match &note.heads {
            None => None,
            Some(config) => {
                config.check().map_err(refuse)?;
                let count = config.names.len();
                Some((floats("heads.weight", &[count, shape.width])?, floats("heads.bias", &[count])?))
            }
        };
        let expected = expected + bytes_read;
        if tensors.count() != expected {
            return Err(refuse(format!("it has {} tensors; expected {expected}", tensors.count())));
        }
        let file = Self { note, layers, heads };
        check_hash(path, &file.note.content, &file.content(shape))?;
        Ok(file)
    }

    /// Writes the file, as a whole or not at all.
    pub fn write(&self, path: &Path, shape: &Shape) -> Result<(), Error> {
        let refuse = |reason: String| Error::malformed(path, reason);
        if !self.fits(shape) {
            return Err(refuse("it was made for a model of another shape".to_owned()));
        }
        let mut views = Vec::new();
        let tensors = self.stored(shape);
        for (name, kind, size, bytes) in &tensors {
            let view = TensorView::new(*kind, size.clone(), bytes);
            views.push((name.as_str(), view.map_err(|error| refuse(format!("{name}: {error}")))?));
        }
        let note = serde_json::to_string(&self.note).map_err(|error| refuse(error.to_string()))?;
        // One note, because several would lie in the file in any order.
        let notes = [(NOTE.to_owned(), note)].into();
        let bytes = serialize(views, Some(notes)).map_err(|error| refuse(error.to_string()))?;
        write_whole(path, &bytes)
    }

    /// What it says of itself.
    pub fn note(&self) -> &AdapterNote {
        &self.note
    }

    /// Whether it has the tensors of a model of this shape.
    fn fits(&self, shape: &Shape) -> bool {
        let rank = self.note.lora.map_or(0, |lora| lora.rank);
        let layers = if self.note.lora.is_some() { shape.layers } else { 0 };
        let is_of = |site: &Site, (a, b): &Factors| {
            a.len() == site.parts.len() * rank * site.columns && b.len() == site.rows() * rank
        };
        let mut pairs = self
            .layers
            .iter()
            .enumerate()
            .flat_map(|(layer, pairs)| Site::of_layer(shape, layer).into_iter().zip(pairs));
        let heads = self.note.heads.as_ref().map_or(0, |config| config.names.len());
        let is_wide = |(weights, bias): &Factors| bias.len() == heads && weights.len() == heads * shape.width;
        self.layers.len() == layers
            && pairs.all(|(site, pair)| is_of(&site, pair))
            && self.heads.as_ref().map_or(heads == 0, is_wide)
    }

    /// Whether every number is one that [`Self::read`] accepts.
    pub(crate) fn is_sound(&self) -> bool {
        let pairs = self.layers.iter().flatten().chain(&self.heads);
        pairs.flat_map(|(a, b)| a.iter().chain(b)).all(|value| value.abs() <= LARGEST)
    }

    /// Name, size and bytes of each tensor, always in the same order.
    fn tensors(&self, shape: &Shape) -> Vec<(String, Vec<usize>, Vec<u8>)> {
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut tensors = Vec::new();
        let rank = self.note.lora.map_or(0, |lora| lora.rank);
        for (layer, pairs) in self.layers.iter().enumerate() {
            for (site, (a, b)) in Site::of_layer(shape, layer).iter().zip(pairs) {
                let mut first = 0;
                for (part, (name, rows)) in site.parts.iter().enumerate() {
                    let of_a = &a[part * rank * site.columns..][..rank * site.columns];
                    let of_b = &b[first * rank..][..rows * rank];
                    tensors.push((format!("{name}.lora_a"), vec![rank, site.columns], bytes(of_a)));
                    tensors.push((format!("{name}.lora_b"), vec![*rows, rank], bytes(of_b)));
                    first += rows;
                }
            }
        }
        if let Some((weights, bias)) = &self.heads {
            tensors.push(("heads.weight".to_owned(), vec![bias.len(), shape.width], bytes(weights)));
            tensors.push(("heads.bias".to_owned(), vec![bias.len()], bytes(bias)));
        }
        tensors
    }

    /// The hash of everything but itself.
    fn content(&self, shape: &Shape) -> String {
        let note = AdapterNote { content: String::new(), ..self.note.clone() };
        let mut hasher = Sha256::new();
        // A note of plain fields is always JSON.
        hasher.update(serde_json::to_vec(&note).unwrap_or_default());
        for (name, _, bytes) in self.tensors(shape) {
            hasher.update(name);
            hasher.update(bytes);
        }
        hex(hasher)
    }
}

#[cfg(test)]
#[path = "file/tests.rs"]
mod tests;

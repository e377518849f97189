//! Adapters that serve: what training learned, added to a base model for some of its rows.
//!
//! An [`Adapter`] never changes. A request takes its adapter along when it is made, so that an answer ends as it
//! began, whatever serves the next one.

mod file;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::{Matrix, MatrixKind, Threads, Write};
use crate::weights::Site;
use crate::{Error, Shape, TensorFile, neural};

pub(crate) use file::Factors;
pub use file::{AdapterFile, AdapterNote, Agent, HeadsConfig, LoraConfig, Origin};

/// A trained adapter, ready to compute with.
#[derive(Debug)]
pub struct Adapter {
    /// Different for each that was loaded: what was remembered under one is never used under another.
    number: u64,
    note: AdapterNote,
    /// The matrices of each layer in the order of [`Site::of_layer`]; empty where there are only heads.
    layers: Vec<[Pair; 4]>,
    /// Weights (heads, width) and biases.
    heads: Option<(Vec<f32>, Vec<f32>)>,
}

/// What is added to one matrix.
#[derive(Debug)]
struct Pair {
    /// (parts x rank, columns).
    a: Matrix,
    /// (rows of all parts, parts x rank), scaled; zero where a row belongs to another part.
    b: Matrix,
}

/// One of the four matrices of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Queries, keys and values.
    QueryKeyValue,
    /// Attention's output.
    AttentionOutput,
    /// Gate and up.
    GateUp,
    /// Down.
    Down,
}

impl Adapter {
    /// Opens an adapter's file for the model of this shape whose file has this SHA-256; one that was made for another
    /// is refused.
    pub fn open(path: &Path, shape: &Shape, base: &str) -> Result<Self, Error> {
        Ok(Self::new(&AdapterFile::read(path, shape, base)?, shape))
    }

    /// The neural judge that is part of the program; it belongs to one model file.
    pub fn neural_judge(shape: &Shape, base: &str) -> Result<Self, Error> {
        let file = TensorFile::embedded("the embedded neural judge", neural::EMBEDDED);
        Ok(Self::new(&AdapterFile::parse(&file, shape, base)?, shape))
    }

    /// Opens the file of an adapter for an agent. One that was made for the other agent, or that changes nothing of
    /// what the model writes, is refused.
    pub fn open_for(agent: Agent, path: &Path, shape: &Shape, base: &str) -> Result<Self, Error> {
        let adapter = Self::open(path, shape, base)?;
        let AdapterNote { lora, agent: made_for, .. } = &adapter.note;
        match made_for {
            Some(other) if *other != agent => Err(Error::malformed(
                path,
                format!("it was trained for the {other} agent, and is given to the {agent} agent"),
            )),
            _ if lora.is_none() => Err(Error::malformed(path, "it has heads only, which write nothing")),
            _ => Ok(adapter),
        }
    }

    /// Lays out what was read for [`Self::apply`].
    pub(crate) fn new(file: &AdapterFile, shape: &Shape) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mut layers = Vec::new();
        if let Some(LoraConfig { rank, alpha }) = file.note.lora {
            let scale = alpha / rank as f32;
            for (layer, pairs) in file.layers.iter().enumerate() {
                let sites = Site::of_layer(shape, layer);
                let [one, two, three, four] = pairs;
                let pair = |index: usize, pair| Pair::new(&sites[index], rank, scale, pair);
                layers.push([pair(0, one), pair(1, two), pair(2, three), pair(3, four)]);
            }
        }
        Self {
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            note: file.note.clone(),
            layers,
            heads: file.heads.clone(),
        }
    }

    /// What its file says of itself.
    pub fn note(&self) -> &AdapterNote {
        &self.note
    }

    /// The heads' logits for a pooled state that was computed with this adapter; none where it has no heads. A logit
    /// that is no number is an error: compared with a threshold it would say "no".
    pub fn classify(&self, pooled: &[f32]) -> Result<Option<Vec<f32>>, Error> {
        const CLASSIFY: &str = "classify";
        let refuse = |reason: String| Err(Error::Device { operation: CLASSIFY, reason });
        let Some((weights, bias)) = &self.heads else { return Ok(None) };
        let width = weights.len() / bias.len().max(1);
        if width == 0 || pooled.len() != width {
            return refuse(format!("the state has {} numbers; expected {width}", pooled.len()));
        }
        let dot = |row: &[f32]| row.iter().zip(pooled).map(|(weight, value)| weight * value).sum::<f32>();
        let rows = weights.chunks_exact(width).zip(bias);
        let logits: Vec<f32> = rows.map(|(row, bias)| bias + dot(row)).collect();
        match logits.iter().all(|logit| logit.is_finite()) {
            true => Ok(Some(logits)),
            false => refuse("a logit is not finite".to_owned()),
        }
    }

    /// A number of its own, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds to each row of `output` what the adapter makes of the same row of `input`. A row's result does not
    /// depend on the others.
    pub(crate) fn apply(
        &self,
        threads: &Threads,
        (layer, which): (usize, Which),
        input: &[f32],
        output: &mut [f32],
    ) {
        let Some(pairs) = self.layers.get(layer) else { return };
        let Pair { a, b } = &pairs[which as usize];
        let mut between = vec![0.0; output.len() / b.rows() * a.rows()];
        // These matrices are floats: no room for bytes is needed.
        a.multiply(threads, input, &mut Vec::new(), &mut between, Write::Replace);
        b.multiply(threads, &between, &mut Vec::new(), output, Write::Add);
    }
}

impl Pair {
    fn new(site: &Site, rank: usize, scale: f32, (a, b): &Factors) -> Self {
        let between = site.parts.len() * rank;
        let mut spread = vec![0.0; site.rows() * between];
        let mut first = 0;
        for (part, (_, rows)) in site.parts.iter().enumerate() {
            for row in first..first + rows {
                let to = &mut spread[row * between + part * rank..][..rank];
                to.iter_mut().zip(&b[row * rank..]).for_each(|(to, from)| *to = scale * from);
            }
            first += rows;
        }
        Self {
            a: Matrix::from_rows(MatrixKind::F32, site.columns, a),
            b: Matrix::from_rows(MatrixKind::F32, between, &spread),
        }
    }
}

/// The adapters of the two agents; none where an agent speaks as the base does.
#[derive(Clone, Debug, Default)]
pub struct AgentAdapters {
    /// Of the agent that writes answers.
    pub conversation: Option<Arc<Adapter>>,
    /// Of the agent that reads them.
    pub feedback: Option<Arc<Adapter>>,
}

#[cfg(test)]
#[path = "adapter/tests.rs"]
mod tests;

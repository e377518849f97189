//! Play: many sequences generated at once on the GPU, to train on.
//!
//! Prompts go through the network packed, as in training, and leave their keys and values in a cache. Then each step
//! takes one token per sequence. A step is recorded once as a graph and replayed: its few hundred kernels are so
//! short that starting them one by one would take longer than running them. Adapters are applied beside the
//! weights, not merged into them: bf16 weights would swallow what a young adapter adds.

use cudarc::driver::sys::{CUgraphInstantiate_flags as GraphFlags, CUstreamCaptureMode as CaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, DeviceRepr};

use super::attention::HEAD;
use super::kernels::{Size, launch};
use super::{Cuda, Floats, Numbers, failed};
use crate::train::linear::{self, Onto};
use crate::train::{AttentionShape, Device, Form, Grid, Lora, Network, Sight};
use crate::{Error, Shape};

const PLAY: &str = "play";
/// Steps between looks at who still plays.
const LOOK: usize = 16;
/// Heads of queries that can share keys, as in `play.cu`.
const MOST_GROUP: usize = 4;

/// How sequences are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Most new tokens of a sequence.
    pub tokens: usize,
    /// 0 takes the likeliest token; above it, tokens are drawn from `softmax(logits / temperature)`.
    pub temperature: f32,
    /// The token that ends a sequence. It is part of the sequence.
    pub stop: u32,
    /// The same seed, prompts and weights give the same tokens.
    pub seed: u64,
}

/// What one sequence became.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Played {
    /// The new tokens.
    pub tokens: Vec<u32>,
    /// The log-probability of each under the model itself, whatever the temperature.
    pub log_probabilities: Vec<f32>,
}

/// As the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Room {
    heads: i32,
    kv_heads: i32,
    capacity: usize,
}

// SAFETY: two ints and a size_t in C's order, as `room` in play.cu.
unsafe impl DeviceRepr for Room {}

/// As the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dice {
    seed: u64,
    temperature: f32,
    stop: u32,
}

// SAFETY: a u64, a float and a u32 in C's order, as `dice` in play.cu.
unsafe impl DeviceRepr for Dice {}

/// What rows pass through on their way.
struct Buffers {
    rows: usize,
    /// Which sequence each row belongs to.
    sequences: CudaSlice<u32>,
    /// Where in it.
    positions: CudaSlice<u32>,
    /// (rows, width), as are the next two.
    state: Numbers,
    normed: Numbers,
    mixed: Numbers,
    /// (rows, (heads + 2 x kv_heads) x head).
    attention: Numbers,
    /// (rows, 2 x hidden).
    both: Numbers,
    /// (rows, hidden).
    gated: Numbers,
}

/// Sequences in play.
struct Table<'a> {
    network: &'a Network<Cuda>,
    lora: Option<&'a Lora<Cuda>>,
    room: Room,
    dice: Dice,
    count: usize,
    most: usize,
    /// Keys and values of each layer: (sequences, kv_heads, capacity, head).
    cache: Vec<(Numbers, Numbers)>,
    /// (sequences, vocabulary).
    logits: Floats,
    /// The token of each sequence that goes in next.
    current: CudaSlice<u32>,
    counts: CudaSlice<u32>,
    stopped: CudaSlice<u32>,
    /// (sequences, most tokens), as are their log-probabilities.
    tokens: CudaSlice<u32>,
    log_probabilities: Floats,
}

impl Network<Cuda> {
    /// Goes on with each prompt by the rules, with an adapter or without.
    pub fn play(
        &self,
        lora: Option<&Lora<Cuda>>,
        prompts: &[Vec<u32>],
        rules: &Rules,
    ) -> Result<Vec<Played>, Error> {
        if prompts.is_empty() || rules.tokens == 0 {
            return Ok(vec![Played::default(); prompts.len()]);
        }
        let mut table = Table::new(self, lora, prompts, rules)?;
        let mut buffers = table.prompts(prompts)?;
        // The first step also readies cuBLAS, which cannot be done while a graph is recorded.
        table.step(&mut buffers)?;
        let graph = table.recorded(&mut buffers)?;
        for step in 2..rules.tokens {
            graph.launch().map_err(failed(PLAY))?;
            if step % LOOK == 0 && self.device().download(&table.stopped)?.iter().all(|stopped| *stopped != 0)
            {
                break;
            }
        }
        table.played()
    }
}

impl<'a> Table<'a> {
    fn new(
        network: &'a Network<Cuda>,
        lora: Option<&'a Lora<Cuda>>,
        prompts: &[Vec<u32>],
        rules: &Rules,
    ) -> Result<Self, Error> {
        let (cuda, shape) = (network.device(), network.shape());
        let Shape { heads, kv_heads, head, vocabulary, context, .. } = *shape;
        let refuse = |reason: String| Err(failed(PLAY)(reason));
        let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
        let capacity = longest.saturating_add(rules.tokens);
        if head != HEAD || heads / kv_heads > MOST_GROUP {
            return refuse(format!("heads of {head}, {heads} to {kv_heads}; expected {HEAD}, up to 4 to 1"));
        }
        if prompts.iter().any(Vec::is_empty) || capacity > context {
            return refuse(format!(
                "a prompt is empty, or of {longest} tokens with {} to come; expected at most {context}",
                rules.tokens
            ));
        }
        let all = prompts.iter().flatten().chain([&rules.stop]);
        if let Some(token) = all.copied().find(|token| *token as usize >= vocabulary) {
            return refuse(format!("there is no token {token}; there are {vocabulary}"));
        }
        if !(rules.temperature >= 0.0 && rules.temperature.is_finite()) {
            return refuse(format!("the temperature is {}; expected 0 or more", rules.temperature));
        }
        let count = prompts.len();
        let lines = count * kv_heads * capacity * head;
        let mut cache = Vec::with_capacity(shape.layers);
        for _ in 0..shape.layers {
            cache.push((cuda.memory(lines)?, cuda.memory(lines)?));
        }
        Ok(Self {
            network,
            lora,
            room: Room { heads: small(heads)?, kv_heads: small(kv_heads)?, capacity },
            dice: Dice { seed: rules.seed, temperature: rules.temperature, stop: rules.stop },
            count,
            most: rules.tokens,
            cache,
            logits: cuda.memory(count * vocabulary)?,
            current: cuda.memory(count)?,
            counts: cuda.upload(&vec![0; count])?,
            stopped: cuda.upload(&vec![0; count])?,
            tokens: cuda.memory(count * rules.tokens)?,
            log_probabilities: cuda.memory(count * rules.tokens)?,
        })
    }

    /// Reads all prompts, packed, and takes the first token of each sequence. Returns the buffers of a step.
    fn prompts(&mut self, prompts: &[Vec<u32>]) -> Result<Buffers, Error> {
        let (cuda, shape) = (self.network.device(), self.network.shape());
        let (mut starts, mut sequences, mut positions, mut last) =
            (vec![0], Vec::new(), Vec::new(), Vec::new());
        for (sequence, prompt) in (0..).zip(prompts) {
            sequences.extend(std::iter::repeat_n(sequence, prompt.len()));
            positions.extend(0..prompt.len() as u32);
            starts.push(sequences.len());
            last.push(sequences.len() as u32 - 1);
        }
        let ends: Vec<u32> = last.iter().map(|row| positions[*row as usize]).collect();
        let mut buffers = Buffers::new(cuda, shape, &sequences, &positions)?;
        cuda.gather(
            &self.network.weights().embedding.weights,
            shape.width,
            &prompts.concat(),
            &mut buffers.state,
        )?;
        self.layers(&mut buffers, Some(&starts))?;
        let sequences: Vec<u32> = (0..small(self.count)?.cast_unsigned()).collect();
        let mut step = Buffers::new(cuda, shape, &sequences, &ends)?;
        cuda.gather(&buffers.state, shape.width, &last, &mut step.state)?;
        self.take(&mut step)?;
        Ok(step)
    }

    /// Feeds the current token of each sequence and takes the next.
    fn step(&mut self, buffers: &mut Buffers) -> Result<(), Error> {
        let (cuda, width) = (self.network.device(), self.network.shape().width);
        let table = &self.network.weights().embedding.weights;
        launch!(
            cuda,
            gather,
            Size::blocks(self.count, 128),
            table,
            &self.current,
            &mut buffers.state,
            &width
        )?;
        self.layers(buffers, None)?;
        self.take(buffers)
    }

    /// A step as a graph, which replays it on the same buffers. Recording runs nothing.
    fn recorded(&mut self, buffers: &mut Buffers) -> Result<CudaGraph, Error> {
        const RECORD: &str = "record a step of play";
        let stream = &self.network.device().stream;
        stream.begin_capture(CaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed(RECORD))?;
        let step = self.step(buffers);
        // The recording must end, whatever became of the step.
        let graph = stream.end_capture(GraphFlags(0)).map_err(failed(RECORD));
        step?;
        graph?.ok_or_else(|| failed(RECORD)("nothing was recorded"))
    }

    /// Takes the state through all layers. Rows of a prompt attend to their own sequence, which `starts` names; those
    /// of a step to what the cache holds.
    fn layers(&mut self, buffers: &mut Buffers, starts: Option<&[usize]>) -> Result<(), Error> {
        let (cuda, shape) = (self.network.device(), self.network.shape());
        let Shape { width, hidden, epsilon, rope_base, heads, kv_heads, head, .. } = *shape;
        let turns = cuda.turns(rope_base, self.room.capacity)?;
        let Buffers { rows, sequences, positions, state, normed, mixed, attention, both, gated } = buffers;
        let (rows, room) = (*rows, self.room);
        let pairs = |layer: usize| self.lora.map(|lora| &lora.layers[layer]);
        for (index, layer) in self.network.weights().layers.iter().enumerate() {
            let [one, two, three, four] = pairs(index).map_or([None; 4], |pairs| pairs.each_ref().map(Some));
            cuda.norm(state, (&layer.attention_norm.weights, width), epsilon, normed)?;
            linear::forward(cuda, rows, normed, (&layer.query_key_value, one), Onto::Nothing, attention)?;
            let (keys, values) = &mut self.cache[index];
            let with_queries = i32::from(starts.is_none());
            launch!(
                cuda,
                keep,
                Size::blocks(rows, 128),
                &mut *attention,
                &*sequences,
                &*positions,
                &turns.table,
                &mut *keys,
                &mut *values,
                &room,
                &with_queries,
            )?;
            match starts {
                Some(starts) => {
                    let heads = AttentionShape { heads, kv_heads, head };
                    cuda.attend(heads, Sight::Past { rope_base }, starts, attention, mixed)?;
                }
                None => launch!(
                    cuda,
                    look_back,
                    Size::blocks(rows, 128).heads(kv_heads),
                    &*attention,
                    &*positions,
                    &*keys,
                    &*values,
                    &mut *mixed,
                    &room,
                )?,
            }
            linear::forward(cuda, rows, mixed, (&layer.attention_output, two), Onto::What, state)?;
            cuda.norm(state, (&layer.feed_norm.weights, width), epsilon, normed)?;
            linear::forward(cuda, rows, normed, (&layer.gate_up, three), Onto::Nothing, both)?;
            cuda.gate(both, hidden, gated)?;
            linear::forward(cuda, rows, gated, (&layer.down, four), Onto::What, state)?;
        }
        Ok(())
    }

    /// Takes one token per sequence by the state of its last row.
    fn take(&mut self, buffers: &mut Buffers) -> Result<(), Error> {
        let (cuda, shape) = (self.network.device(), self.network.shape());
        let Shape { width, vocabulary, epsilon, .. } = *shape;
        let weights = self.network.weights();
        let Buffers { state, normed, positions, .. } = buffers;
        cuda.norm(state, (&weights.norm.weights, width), epsilon, normed)?;
        let table = &weights.output.as_ref().unwrap_or(&weights.embedding).weights;
        cuda.product(
            Form::RightTransposed,
            1.0,
            (normed, Grid::whole(self.count, width)),
            (table, Grid::whole(vocabulary, width)),
            0.0,
            (&mut self.logits, Grid::whole(self.count, vocabulary)),
        )?;
        launch!(
            cuda,
            take,
            Size::blocks(self.count, 1024),
            &self.logits,
            &self.dice,
            &mut self.current,
            positions,
            &mut self.counts,
            &mut self.stopped,
            &mut self.tokens,
            &mut self.log_probabilities,
            &vocabulary,
            &self.most,
        )
    }

    /// What every sequence became.
    fn played(&self) -> Result<Vec<Played>, Error> {
        let cuda = self.network.device();
        let (counts, tokens) = (cuda.download(&self.counts)?, cuda.download(&self.tokens)?);
        let log_probabilities = cuda.download(&self.log_probabilities)?;
        let lines = tokens.chunks_exact(self.most).zip(log_probabilities.chunks_exact(self.most));
        let played = counts.iter().zip(lines).map(|(count, (tokens, log_probabilities))| Played {
            tokens: tokens[..*count as usize].to_vec(),
            log_probabilities: log_probabilities[..*count as usize].to_vec(),
        });
        let played: Vec<Played> = played.collect();
        // Logits that are no numbers take token 0, which nobody drew.
        match played.iter().flat_map(|played| &played.log_probabilities).all(|told| told.is_finite()) {
            true => Ok(played),
            false => Err(failed(PLAY)("the model's numbers are not finite")),
        }
    }
}

impl Buffers {
    fn new(cuda: &Cuda, shape: &Shape, sequences: &[u32], positions: &[u32]) -> Result<Self, Error> {
        let (rows, width) = (sequences.len(), shape.width);
        Ok(Self {
            rows,
            sequences: cuda.upload(sequences)?,
            positions: cuda.upload(positions)?,
            state: cuda.memory(rows * width)?,
            normed: cuda.memory(rows * width)?,
            mixed: cuda.memory(rows * width)?,
            attention: cuda.memory(rows * (width + 2 * shape.kv_width()))?,
            both: cuda.memory(rows * 2 * shape.hidden)?,
            gated: cuda.memory(rows * shape.hidden)?,
        })
    }
}

fn small(count: usize) -> Result<i32, Error> {
    i32::try_from(count).map_err(failed(PLAY))
}

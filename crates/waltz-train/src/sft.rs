//! Supervised fine-tuning: a local model's adapter learns to answer as the rows do.
//!
//! Rows become chats (`rows.rs`), chats tokens of which only the assistant's count. A run has a folder (`folder.rs`); its
//! bytes depend on the plan, the rows and the model alone, not on threads and not on where it was cut and went on.

mod folder;
mod rows;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use waltz_model::train::{
    Checkpoint, Cpu, Example, Keep, Lora, Network, Objective, Optimiser, Report, Trainer, Trains,
    fingerprint, pack,
};
use waltz_model::{Agent, Gguf, LoraConfig, Role, RoomSettings, Shape, Template, Threads, Tokenizer};

pub use folder::{Folder, Plan};

use crate::Error;
use folder::Begun;
use rows::{Chat, Rows};

/// Rows that a model can learn from.
#[derive(Debug)]
pub struct Lesson {
    /// One per row.
    examples: Vec<Example>,
    /// Tokens of all rows.
    pub tokens: usize,
    /// Recorded sessions whose answer nobody should learn.
    pub left_out: usize,
}

/// How a run is carried out; nothing of it changes what is learned.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Threads that compute.
    pub threads: usize,
    /// Steps between two checkpoints.
    pub checkpoint_every: u32,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What the last step did.
    pub report: Report,
    /// Steps of the whole run.
    pub steps: u32,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// All steps were taken; the adapter is here.
    Finished(PathBuf),
    /// It was asked to stop after so many steps, and can go on from there.
    Stopped(u32),
}

impl Lesson {
    /// Reads rows for an agent, as a model reads them.
    pub fn read(path: &Path, agent: Agent, gguf: &Gguf) -> Result<Self, Error> {
        let Rows { chats, left_out } = rows::read(path, agent)?;
        let tokenizer = Tokenizer::from_gguf(gguf)?;
        let template = Template::from_gguf(gguf, &tokenizer)?;
        // What is longer could be learned and never be served.
        let most = RoomSettings::default().context.min(Shape::from_gguf(gguf)?.context);
        let (mut examples, mut bad) = (Vec::with_capacity(chats.len()), Vec::new());
        for Chat { line, messages } in &chats {
            let (tokens, weights) = template.learn(messages, &tokenizer);
            match tokens.len() {
                length if length > most => {
                    bad.push((*line, format!("it has {length} tokens; at most {most} are served")))
                }
                _ => examples.push(Example::weighted(&[], &tokens, &weights)),
            }
        }
        if !bad.is_empty() {
            return Err(Error::Rows { path: path.to_owned(), rows: chats.len() + left_out, bad });
        }
        let tokens = examples.iter().map(Example::len).sum();
        Ok(Self { examples, tokens, left_out })
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.examples.len()
    }

    /// The rows of a step, counted from 0. Each epoch has its own order.
    fn rows_of(&self, plan: &Plan, step: usize) -> Vec<Example> {
        let of_epoch = self.rows().div_ceil(plan.batch);
        let mut order: Vec<usize> = (0..self.rows()).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(plan.seed.wrapping_add((step / of_epoch) as u64)));
        let rows = order.into_iter().skip(step % of_epoch * plan.batch).take(plan.batch);
        rows.map(|row| self.examples[row].clone()).collect()
    }
}

/// What the users of a file's rows ask, with the lines of the rows: what must not be in a benchmark.
pub fn asked(path: &Path, agent: Agent) -> Result<Vec<(usize, String)>, Error> {
    let Rows { chats, .. } = rows::read(path, agent)?;
    let mut asked = Vec::new();
    for Chat { line, messages } in chats {
        let users = messages.into_iter().filter(|message| message.role == Role::User);
        asked.extend(users.map(|message| (line, message.content)));
    }
    Ok(asked)
}

/// Trains an adapter, from where the folder's last checkpoint stands. `watch` is called after each step and may end
/// the run, which leaves a checkpoint.
pub fn learn(
    folder: &Folder,
    plan: &Plan,
    gguf: &Gguf,
    lesson: &Lesson,
    effort: Effort,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<End, Error> {
    let mut network: Network<Cpu> =
        Network::from_gguf(Cpu::new(Threads::new(effort.threads)), gguf, Trains::No)?;
    let data = fingerprint(&lesson.examples);
    let begun = Begun { plan: plan.clone(), base_sha256: network.base().to_owned(), rows: data.clone() };
    folder.agree(&begun)?;
    let steps = lesson.rows().div_ceil(plan.batch).saturating_mul(plan.epochs as usize);
    let steps = u32::try_from(steps).unwrap_or(u32::MAX);
    let mut trainer = match Checkpoint::latest(&folder.checkpoints())? {
        Some(checkpoint) => {
            if (checkpoint.origin().data.as_str(), checkpoint.origin().seed) != (data.as_str(), plan.seed) {
                return Err(folder.refuse("its checkpoint is of another run"));
            }
            checkpoint.resume(&mut network, Keep::Most)?
        }
        None => {
            let config = LoraConfig { rank: plan.rank, alpha: 2.0 * plan.rank as f32 };
            let lora = Lora::new(network.device(), network.shape(), config, plan.seed)?;
            let warm_up = (steps / 10).min(10);
            let optimiser = Optimiser { rate: plan.rate, warm_up, steps, ..Optimiser::default() };
            Trainer::new(Some(lora), None, optimiser, Keep::Most)?
        }
    };
    let most = RoomSettings::default().context;
    while trainer.steps() < steps {
        let batches = pack(&lesson.rows_of(plan, trainer.steps() as usize), most)?;
        let report = trainer.step(&mut network, &batches, Objective::Likelihood)?;
        let stops = watch(Progress { report, steps }).is_break() && report.step < steps;
        if stops || report.step.is_multiple_of(effort.checkpoint_every.max(1)) {
            Checkpoint::save(&folder.checkpoints(), &network, &trainer, (&data, plan.seed))?;
        }
        if stops {
            return Ok(End::Stopped(report.step));
        }
    }
    let path = folder.adapter();
    let adapter = trainer.adapter(&network, &data, plan.seed)?.for_agent(plan.agent, network.shape());
    adapter.write(&path, network.shape())?;
    Ok(End::Finished(path))
}

//! `waltz train judge --level 2`: the neural judge, on this machine's CPU, or on a GPU where waltz was built for it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use waltz_model::train::Device;
use waltz_model::{Gguf, LoraConfig, ModelName, Shape};
use waltz_screen::linear::LinearJudge;
use waltz_train::judge::{Measured, NeuralSchedule, NeuralTrained, RowScores, Split, learn_neural};

use super::print_table;
use crate::commands::bar::Bar;
use crate::commands::{ConfigOptions, Exit, model, note, print};
use crate::config::build::NEURAL_MODEL;

/// The name of the file that is written.
const FILE: &str = "neural.safetensors";

/// What level 2 needs beside the rows.
#[derive(clap::Args)]
pub(super) struct NeuralOptions {
    /// Level 2: the language model, a GGUF file; without it, smollm2 in the models folder.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Level 2b: how often the rows are drawn.
    #[arg(long, value_name = "N", default_value_t = NeuralSchedule::default().epochs)]
    epochs: usize,
    /// Level 2b: the highest learning rate.
    #[arg(long, value_name = "RATE", default_value_t = NeuralSchedule::default().rate)]
    rate: f32,
    /// Level 2b: how often the rows are drawn for the adapter afterwards.
    #[arg(long, value_name = "N", default_value_t = NeuralSchedule::default().polish)]
    polish: usize,
    /// Level 2b: the highest learning rate of the adapter.
    #[arg(long, value_name = "RATE", default_value_t = NeuralSchedule::default().polish_rate)]
    polish_rate: f32,
    /// Level 2b: the rank of the adapter.
    #[arg(long, value_name = "N", default_value_t = NeuralSchedule::default().lora.rank)]
    rank: usize,
    /// Level 2b: also write what it says about every row that taught it, the labels that teach level 2a.
    #[arg(long, value_name = "FILE")]
    teach: Option<PathBuf>,
    /// Levels 2a and 2b: also write what this level and level 1 say about every row that taught nothing.
    #[arg(long, value_name = "FILE")]
    pub(super) scores: Option<PathBuf>,
}

impl NeuralOptions {
    /// Trains and writes the adapter with its heads.
    pub(super) fn run(&self, out: &Path, parts: &Split, seed: u64) -> Result<Vec<Measured>, Exit> {
        let began = Instant::now();
        let gguf = self.base()?;
        let shape = Shape::from_gguf(&gguf).map_err(anyhow::Error::from)?;
        let trained = self.trained(&gguf, parts, seed)?;
        let path = out.join(FILE);
        trained.adapter.write(&path, &shape).map_err(anyhow::Error::from)?;
        let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        note(&format!(
            "{} has {bytes} bytes; learned from {} rows in {:.0} s",
            path.display(),
            parts.taught.len(),
            began.elapsed().as_secs_f64()
        ));
        if let Some(path) = &self.scores {
            write_scores(path, &trained.scored)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.teach {
            let bytes: Vec<u8> =
                trained.taught.iter().flatten().flat_map(|chance| chance.to_le_bytes()).collect();
            std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        print("All weights, before they were brought to the adapter:")?;
        print_table(&trained.measured_whole)?;
        print("The adapter:")?;
        Ok(trained.measured)
    }

    fn base(&self) -> Result<Gguf, Exit> {
        let opened = match &self.model {
            Some(path) => Gguf::open(path),
            None => {
                let name: ModelName = NEURAL_MODEL.parse().map_err(anyhow::Error::from)?;
                let models = model::models(&ConfigOptions::default().sources())?;
                let file = models.file(&name, ".gguf");
                file.and_then(|file| file.check().and_then(|()| Gguf::open(&file.path)))
            }
        };
        Ok(opened.map_err(anyhow::Error::from)?)
    }

    fn trained(&self, gguf: &Gguf, parts: &Split, seed: u64) -> Result<NeuralTrained, Exit> {
        let (device, batch) = device()?;
        self.on(device, batch, gguf, parts, seed)
    }

    fn on<D: Device>(
        &self,
        device: D,
        batch: usize,
        gguf: &Gguf,
        parts: &Split,
        seed: u64,
    ) -> Result<NeuralTrained, Exit> {
        let Self { epochs, rate, polish, polish_rate, rank, .. } = *self;
        let lora = LoraConfig { rank, alpha: rank as f32 };
        let schedule =
            NeuralSchedule { lora, epochs, rate, polish, polish_rate, batch, ..NeuralSchedule::default() };
        let linear = LinearJudge::builtin().map_err(anyhow::Error::from)?;
        let mut bar = Bar::new();
        let trained =
            learn_neural(device, gguf, parts, schedule, (&linear, seed), &mut |done, total, loss| {
                bar.show("learn", done as u64, Some(total as u64), &format!("{total} steps, loss {loss:.3}"));
            });
        bar.end();
        Ok(trained.map_err(anyhow::Error::from)?)
    }
}

/// The GPU, and how many tokens it takes at once.
#[cfg(feature = "cuda")]
pub(super) fn device() -> Result<(impl Device, usize), Exit> {
    let device = waltz_model::train::cuda::Cuda::new(0).map_err(anyhow::Error::from)?;
    Ok((device, NeuralSchedule::default().batch))
}

/// The CPU, and how many tokens it takes at once: what is kept of a batch for its way back must fit into an ordinary
/// machine's memory.
#[cfg(not(feature = "cuda"))]
pub(super) fn device() -> Result<(impl Device, usize), Exit> {
    let threads = waltz_model::Threads::for_this_machine();
    Ok((waltz_model::train::Cpu::<f32>::new(threads), 2_048))
}

pub(super) fn write_scores(path: &Path, scored: &[RowScores]) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for scores in scored {
        serde_json::to_writer(&mut file, scores)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

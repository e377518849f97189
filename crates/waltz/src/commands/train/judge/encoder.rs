//! `waltz train judge --level 2a`: the encoder, on this machine's CPU, or on a GPU where waltz was built for it.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use waltz_model::{ModelName, QUESTIONS};
use waltz_screen::linear::LinearJudge;
use waltz_train::judge::{EncoderSchedule, EncoderTrained, Measured, Split, learn_encoder};

use super::neural::device;
use crate::commands::bar::Bar;
use crate::commands::{ConfigOptions, Exit, model, note};

/// The encoder that it begins with.
const MODEL: &str = "minilm";

/// What level 2a needs beside the rows.
#[derive(clap::Args)]
pub(super) struct EncoderOptions {
    /// Level 2a: the folder with model.safetensors and vocab.txt; without it, minilm in the models folder.
    #[arg(long, value_name = "DIR")]
    encoder: Option<PathBuf>,
    /// Level 2a: how often the rows are drawn.
    #[arg(long, value_name = "N", default_value_t = EncoderSchedule::default().epochs)]
    encoder_epochs: usize,
    /// Level 2a: the highest learning rate.
    #[arg(long, value_name = "RATE", default_value_t = EncoderSchedule::default().rate)]
    encoder_rate: f32,
    /// Level 2a: what `--teach` of level 2b wrote for the same rows.
    #[arg(long, value_name = "FILE")]
    teacher: Option<PathBuf>,
}

impl EncoderOptions {
    /// Trains and writes both files.
    pub(super) fn run(&self, out: &Path, parts: &Split, seed: u64) -> Result<Vec<Measured>, Exit> {
        let began = Instant::now();
        let [weights, vocabulary] = self.files()?;
        let teacher = self.teacher.as_deref().map(read_teacher).transpose()?;
        let (device, batch) = device()?;
        let schedule = EncoderSchedule {
            epochs: self.encoder_epochs,
            rate: self.encoder_rate,
            batch,
            ..EncoderSchedule::default()
        };
        let linear = LinearJudge::builtin().map_err(anyhow::Error::from)?;
        let mut bar = Bar::new();
        let trained = learn_encoder(
            device,
            (&weights, &vocabulary),
            parts,
            schedule,
            teacher.as_deref(),
            (&linear, seed),
            &mut |done, total, loss| {
                bar.show("learn", done as u64, Some(total as u64), &format!("{total} steps, loss {loss:.3}"));
            },
        );
        bar.end();
        let EncoderTrained { file, measured, scored } = trained.map_err(anyhow::Error::from)?;
        file.write(out).map_err(anyhow::Error::from)?;
        let path = out.join("encoder.scores.jsonl");
        super::neural::write_scores(&path, &scored)
            .with_context(|| format!("cannot write {}", path.display()))?;
        note(&format!(
            "encoder.words.bin and encoder.layers.bin are in {}; learned from {} rows in {:.0} s",
            out.display(),
            parts.taught.len(),
            began.elapsed().as_secs_f64()
        ));
        Ok(measured)
    }

    fn files(&self) -> Result<[PathBuf; 2], Exit> {
        if let Some(folder) = &self.encoder {
            return Ok([folder.join("model.safetensors"), folder.join("vocab.txt")]);
        }
        let name: ModelName = MODEL.parse().map_err(anyhow::Error::from)?;
        let models = model::models(&ConfigOptions::default().sources())?;
        let file = |ending: &str| -> Result<PathBuf, Exit> {
            let file = models.file(&name, ending).map_err(anyhow::Error::from)?;
            file.check().map_err(anyhow::Error::from)?;
            Ok(file.path)
        };
        Ok([file(".safetensors")?, file("vocab.txt")?])
    }
}

/// One probability for each head of each question, as 4-byte floats.
fn read_teacher(path: &Path) -> Result<Vec<[f32; QUESTIONS.len()]>, Exit> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (numbers, _) = bytes.as_chunks::<4>();
    let numbers: Vec<f32> = numbers.iter().map(|four| f32::from_le_bytes(*four)).collect();
    let (rows, _) = numbers.as_chunks();
    Ok(rows.to_vec())
}

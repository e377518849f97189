//! Level 2b of the judge: the local language model with heads on its last state, learned from the rows of level 1.
//! Written once for every [`Device`]; the same rows, seed and device give the same numbers.
//!
//! All matrices of the layers train. What changed is then written as a product of two thin matrices each (an adapter), which
//! trains a little further by itself, is rounded to bytes and calibrated: that file is shipped.

pub(super) mod questions;

use waltz_model::train::{
    Batch, Device, Example, Heads, Keep, Network, Objective, Optimiser, Trainer, Trains,
    labelled_fingerprint, pack,
};
use waltz_model::{AdapterFile, Gguf, LoraConfig, Pooling, QUESTIONS, Tokenizer, Turns};
use waltz_screen::linear::LinearJudge;

use super::calibrate::{self, Fit};
use super::chance::Chance;
use super::{HEADS, Measured, Row, Scores, Split, by_source, samples, scores};
use crate::Error;
use questions::{Question, draw, questions};

/// How the neural judge is taught.
#[derive(Clone, Copy, Debug)]
pub struct NeuralSchedule {
    /// The size of the adapter that the change of the weights is brought to.
    pub lora: LoraConfig,
    /// How often the rows are drawn for all weights.
    pub epochs: usize,
    /// The highest learning rate of all weights.
    pub rate: f32,
    /// How often the rows are drawn for the adapter afterwards.
    pub polish: usize,
    /// The highest learning rate of the adapter.
    pub polish_rate: f32,
    /// Tokens of a step.
    pub step: usize,
    /// Tokens that the device takes at once; a step is computed in so many parts.
    pub batch: usize,
}

impl Default for NeuralSchedule {
    fn default() -> Self {
        let lora = LoraConfig { rank: 32, alpha: 32.0 };
        Self { lora, epochs: 2, rate: 5e-5, polish: 1, polish_rate: 1e-4, step: 16_384, batch: 16_384 }
    }
}

/// A neural judge, and how good it is on sources that it never saw.
#[derive(Debug)]
pub struct NeuralTrained {
    /// The adapter with its heads, calibrated.
    pub adapter: AdapterFile,
    /// By source and head.
    pub measured: Vec<Measured>,
    /// The same for all weights, before they were brought to an adapter.
    pub measured_whole: Vec<Measured>,
    /// Every score of a row that taught nothing.
    pub scored: Vec<RowScores>,
    /// What all weights say about every question of the rows that taught: probabilities, a teacher's labels.
    pub taught: Vec<[f32; HEADS.len()]>,
}

/// What both levels say about a row.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RowScores {
    /// The source.
    pub source: String,
    /// Whether the row calibrated the scores.
    pub validation: bool,
    /// Prompt, response, refusal or injection.
    pub head: &'static str,
    /// The truth.
    pub truth: bool,
    /// The linear judge's score, where it has that head.
    pub linear: Option<f32>,
    /// The neural judge's score.
    pub neural: f32,
}

/// What is told of a step: its number, how many there are, and its loss.
pub type Progress<'a> = dyn FnMut(usize, usize, f64) + 'a;

/// The share of all steps in which the rate climbs.
const WARM_UP: f32 = 0.05;

/// What is known to both trainings.
struct Lessons<'a> {
    questions: &'a [Question],
    schedule: NeuralSchedule,
    seed: u64,
}

/// Trains a judge on a base model and measures it beside the linear judge.
pub fn learn_neural<D: Device>(
    device: D,
    base: &Gguf,
    parts: &Split,
    schedule: NeuralSchedule,
    (linear, seed): (&LinearJudge, u64),
    progress: &mut Progress<'_>,
) -> Result<NeuralTrained, Error> {
    let tokenizer = Tokenizer::from_gguf(base)?;
    let turns = Turns::new(&tokenizer);
    let read = |prompt: &str, answer: Option<&str>| match answer {
        None => turns.prompt(&tokenizer, prompt).tokens,
        Some(answer) => turns.answer(&tokenizer, prompt, answer).tokens,
    };
    let taught = questions(&read, &parts.taught);
    let data = fingerprint(&taught);
    let lessons = Lessons { questions: &taught, schedule, seed };
    let asked = [questions(&read, &parts.validation), questions(&read, &parts.held)];

    let mut network = Network::from_gguf(device, base, Trains::Layers)?;
    let names = QUESTIONS.map(str::to_owned).to_vec();
    let heads = Heads::new(network.device(), network.shape(), names, Pooling::Last, seed)?;
    let steps = lessons.drawn(schedule.epochs, 0x5eed_0003);
    let mut trainer = Trainer::new(None, Some(heads), optimiser(schedule.rate, steps.len()), Keep::Most)?;
    lessons.teach(&mut trainer, &mut network, &steps, progress)?;
    let whole = Answers::ask(&trainer, &network, parts, &asked, schedule.batch)?;
    let fits = whole.fitted(&parts.validation)?;
    let measured_whole = whole.measured(parts, &fits);
    let logits = logits(&network, &trainer, &taught, schedule.batch)?;
    let probabilities = |logits: &[f32]| {
        std::array::from_fn(|head| fits[head].chance(logits.get(head).copied().unwrap_or(f32::NAN)) as f32)
    };
    let labels = logits.iter().map(|logits| probabilities(logits)).collect();

    let file = trainer.compressed(&network, base, schedule.lora, &data, seed)?;
    drop(trainer);
    let mut network = Network::from_gguf(network.into_device(), base, Trains::No)?;
    let steps = lessons.drawn(schedule.polish, 0x5eed_0004);
    let optimiser = optimiser(schedule.polish_rate, steps.len());
    let mut trainer = Trainer::from_adapter(&network, &file, optimiser, Keep::Most)?;
    lessons.teach(&mut trainer, &mut network, &steps, progress)?;
    // Rounded before it is calibrated, so that what is calibrated is what is shipped.
    let rounded = trainer.adapter(&network, &data, seed)?.quantised(network.shape());
    let mut trainer = Trainer::from_adapter(&network, &rounded, optimiser, Keep::Most)?;
    let answers = Answers::ask(&trainer, &network, parts, &asked, schedule.batch)?;
    let fits = answers.fitted(&parts.validation)?;
    let scales: Vec<(f32, f32)> = fits.iter().map(|fit| (fit.zero as f32, fit.step as f32)).collect();
    trainer.rescale_heads(&network, &scales)?;
    let adapter = trainer.adapter(&network, &data, seed)?.quantised(network.shape());
    let measured = answers.measured(parts, &fits);
    Ok(NeuralTrained {
        adapter,
        measured,
        measured_whole,
        scored: answers.scored(parts, &fits, linear),
        taught: labels,
    })
}

impl Lessons<'_> {
    /// The questions of some epochs, in steps.
    fn drawn(&self, epochs: usize, salt: u64) -> Vec<Vec<usize>> {
        let mut chance = Chance::new(self.seed ^ salt);
        let epoch = |_| cut(&draw(self.questions, &mut chance), self.questions, self.schedule.step);
        (0..epochs).flat_map(epoch).collect()
    }

    fn teach<D: Device>(
        &self,
        trainer: &mut Trainer<D>,
        network: &mut Network<D>,
        steps: &[Vec<usize>],
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        for (index, step) in steps.iter().enumerate() {
            let asked: Vec<&Question> = step.iter().map(|index| &self.questions[*index]).collect();
            let (batches, labels) = batches(&asked, self.schedule.batch)?;
            let report = trainer.step(network, &batches, Objective::Labels(&labels))?;
            progress(index + 1, steps.len(), report.loss);
        }
        Ok(())
    }
}

/// Raw scores of the rows that taught nothing.
pub(super) struct Answers {
    pub(super) validation: Vec<Scores>,
    pub(super) held: Vec<Scores>,
}

impl Answers {
    fn ask<D: Device>(
        trainer: &Trainer<D>,
        network: &Network<D>,
        parts: &Split,
        [validation, held]: &[Vec<Question>; 2],
        batch: usize,
    ) -> Result<Self, Error> {
        let ask = |asked: &[Question], rows: usize| {
            Ok::<_, Error>(placed(asked, &logits(network, trainer, asked, batch)?, rows))
        };
        Ok(Self { validation: ask(validation, parts.validation.len())?, held: ask(held, parts.held.len())? })
    }

    pub(super) fn fitted(&self, rows: &[Row]) -> Result<Vec<Fit>, Error> {
        fitted(rows, &self.validation)
    }

    pub(super) fn measured(&self, parts: &Split, fits: &[Fit]) -> Vec<Measured> {
        let mut measured = by_source(&parts.validation, &rescaled(&self.validation, fits));
        measured.extend(by_source(&parts.held, &rescaled(&self.held, fits)));
        measured
    }

    pub(super) fn scored(&self, parts: &Split, fits: &[Fit], linear: &LinearJudge) -> Vec<RowScores> {
        let mut all = Vec::new();
        for (rows, raw, validation) in
            [(&parts.validation, &self.validation, true), (&parts.held, &self.held, false)]
        {
            for (row, neural) in rows.iter().zip(rescaled(raw, fits)) {
                let linear = scores(linear, row);
                for ((head, _), (neural, linear)) in HEADS.iter().zip(neural.iter().zip(linear)) {
                    let Some((neural, truth)) = *neural else { continue };
                    let (source, linear) = (row.source.clone(), linear.map(|(score, _)| score));
                    all.push(RowScores { source, validation, head, truth, linear, neural });
                }
            }
        }
        all
    }
}

/// Calibrates every head on rows that taught nothing.
pub(super) fn fitted(rows: &[Row], raw: &[Scores]) -> Result<Vec<Fit>, Error> {
    let fit = |place: usize| Ok(calibrate::fit(&samples(rows, raw, place)?, HEADS[place].1));
    (0..HEADS.len()).map(fit).collect()
}

/// Raw scores as probabilities.
pub(super) fn rescaled(raw: &[Scores], fits: &[Fit]) -> Vec<Scores> {
    let rescale = |scores: &Scores| -> Scores {
        std::array::from_fn(|head| scores[head].map(|(raw, truth)| (fits[head].chance(raw) as f32, truth)))
    };
    raw.iter().map(rescale).collect()
}

pub(super) fn optimiser(rate: f32, steps: usize) -> Optimiser {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
    let warm_up = (steps as f32 * WARM_UP) as u32;
    Optimiser { rate, warm_up, steps, decay: 0.01, ..Optimiser::default() }
}

/// A fingerprint of what was learned from.
pub(super) fn fingerprint(taught: &[Question]) -> String {
    let texts: Vec<Example> = taught.iter().map(|question| Example::text(&question.tokens)).collect();
    let labels: Vec<Vec<f32>> = taught.iter().map(|question| question.labels.to_vec()).collect();
    labelled_fingerprint(&texts, &labels)
}

/// Cuts drawn questions into steps of at most so many tokens.
pub(super) fn cut(drawn: &[usize], all: &[Question], most: usize) -> Vec<Vec<usize>> {
    let mut steps: Vec<Vec<usize>> = Vec::new();
    let mut tokens = usize::MAX;
    for index in drawn {
        let length = all[*index].tokens.len();
        if tokens.saturating_add(length) > most {
            steps.push(Vec::new());
            tokens = 0;
        }
        tokens += length;
        steps.last_mut().map(|step| step.push(*index)).unwrap_or_default();
    }
    steps
}

/// Questions as batches, with the labels of each.
pub(super) fn batches(asked: &[&Question], most: usize) -> Result<(Vec<Batch>, Vec<Vec<f32>>), Error> {
    let examples: Vec<Example> = asked.iter().map(|question| Example::text(&question.tokens)).collect();
    let batches = pack(&examples, most)?;
    let mut rest = asked.iter();
    let labels = batches
        .iter()
        .map(|batch| rest.by_ref().take(batch.sequences()).flat_map(|one| one.labels).collect());
    let labels = labels.collect();
    Ok((batches, labels))
}

/// The logits of every question, all heads.
fn logits<D: Device>(
    network: &Network<D>,
    trainer: &Trainer<D>,
    asked: &[Question],
    most: usize,
) -> Result<Vec<Vec<f32>>, Error> {
    let all: Vec<&Question> = asked.iter().collect();
    let (batches, _) = batches(&all, most)?;
    let mut found = Vec::with_capacity(asked.len());
    for batch in &batches {
        let logits = trainer.classify(network, batch)?;
        found.extend(logits.chunks_exact(HEADS.len()).map(<[f32]>::to_vec));
    }
    Ok(found)
}

/// Logits beside the truth, by row.
pub(super) fn placed(asked: &[Question], logits: &[Vec<f32>], rows: usize) -> Vec<Scores> {
    let mut found: Vec<Scores> = vec![[None; HEADS.len()]; rows];
    for (question, logits) in asked.iter().zip(logits) {
        for (head, (logit, label)) in logits.iter().zip(question.labels).enumerate() {
            if !label.is_nan() {
                found[question.row][head] = Some((*logit, label > 0.5));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_every_drawn_question_once_and_never_too_many_tokens() {
        let question =
            |length: usize| Question { row: 0, tokens: vec![1; length], labels: [0.0; 4], weight: 1.0 };
        let all: Vec<Question> = [3, 4, 5, 1, 9, 2].map(question).into();
        let steps = cut(&[0, 1, 2, 3, 4, 5, 0], &all, 10);
        assert_eq!(steps, [vec![0, 1], vec![2, 3], vec![4], vec![5, 0]]);
        assert!(cut(&[], &all, 10).is_empty());
    }

    #[test]
    fn a_score_of_one_half_decides() {
        let fit = |zero: f64, step: f64| Fit { zero, step };
        let fits = [fit(2.0, 0.5), fit(0.0, 1.0), fit(-1.0, 2.0), fit(0.0, 1.0)];
        let raw: Vec<Scores> = vec![[Some((2.0, true)), Some((1.098_612_3, false)), None, None]];
        let [one, two, three, _] = rescaled(&raw, &fits)[0];
        assert_eq!((one, three), (Some((0.5, true)), None));
        assert!(two.is_some_and(|(score, _)| (score - 0.75).abs() < 1e-6), "{two:?}");
    }
}

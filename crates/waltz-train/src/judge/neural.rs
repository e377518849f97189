//! Level 2 of the judge, the neural judge: an adapter of the local model and three heads on its last state, learned
//! from the rows of level 1. Written once for every [`Device`]; the same rows, seed and device give the same numbers.

mod questions;

use waltz_model::train::{
    Batch, Device, Example, Heads, Keep, Lora, Network, Objective, Optimiser, Trainer, Trains,
    labelled_fingerprint, pack,
};
use waltz_model::{AdapterFile, Gguf, LoraConfig, Pooling, QUESTIONS, Tokenizer, Turns};
use waltz_screen::linear::LinearJudge;

use super::calibrate::{self, Sample};
use super::chance::Chance;
use super::learn::sigmoid;
use super::measure::Scored;
use super::{HEADS, Measured, Row, Split, by_source, scores};
use crate::Error;
use questions::{Question, draw, questions};

/// How the neural judge is taught.
#[derive(Clone, Copy, Debug)]
pub struct NeuralSchedule {
    /// The size of the adapter.
    pub lora: LoraConfig,
    /// How often the rows are drawn.
    pub epochs: usize,
    /// The highest learning rate.
    pub rate: f32,
    /// Tokens of a step.
    pub step: usize,
    /// Tokens that the device takes at once; a step is computed in so many parts.
    pub batch: usize,
}

impl Default for NeuralSchedule {
    fn default() -> Self {
        Self { lora: LoraConfig::default(), epochs: 1, rate: 2e-3, step: 16_384, batch: 16_384 }
    }
}

/// A neural judge, and how good it is on sources that it never saw.
#[derive(Debug)]
pub struct NeuralTrained {
    /// The adapter with its heads, calibrated.
    pub adapter: AdapterFile,
    /// By source and head.
    pub measured: Vec<Measured>,
    /// Every score of a row that taught nothing.
    pub scored: Vec<RowScores>,
}

/// What both levels say about a row.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct RowScores {
    /// The source.
    pub source: String,
    /// Whether the row set the edges of scores.
    pub validation: bool,
    /// Prompt, response or refusal.
    pub head: &'static str,
    /// The truth.
    pub truth: bool,
    /// The linear judge's score.
    pub linear: f32,
    /// The neural judge's score.
    pub neural: f32,
}

/// What is told of a step: its number, how many there are, and its loss.
pub type Progress<'a> = dyn FnMut(usize, usize, f64) + 'a;

/// The slope of the logistic curve's inverse between the decision and where a judge is sure: ln 3, for 0.75.
const SURE_LOGIT: f32 = 1.098_612_3;
/// The share of all steps in which the rate climbs.
const WARM_UP: f32 = 0.05;

/// Trains an adapter and heads for a base model and measures them beside the linear judge.
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
    let taught = questions(&turns, &tokenizer, &parts.taught);
    let mut chance = Chance::new(seed ^ 0x5eed_0003);
    let steps: Vec<Vec<usize>> =
        (0..schedule.epochs).flat_map(|_| cut(&draw(&taught, &mut chance), &taught, schedule.step)).collect();
    let mut network = Network::from_gguf(device, base, Trains::No)?;
    let mut trainer = trainer(&network, schedule, steps.len(), seed)?;
    for (index, step) in steps.iter().enumerate() {
        let asked: Vec<&Question> = step.iter().map(|index| &taught[*index]).collect();
        let (batches, labels) = batches(&asked, schedule.batch)?;
        let report = trainer.step(&mut network, &batches, Objective::Labels(&labels))?;
        progress(index + 1, steps.len(), report.loss);
    }
    let texts: Vec<Example> = taught.iter().map(|question| Example::text(&question.tokens)).collect();
    let labels: Vec<Vec<f32>> = taught.iter().map(|question| question.labels.to_vec()).collect();
    let data = labelled_fingerprint(&texts, &labels);
    let ask = |trainer: &Trainer<D>, rows: &[Row]| -> Result<Vec<[Option<Scored>; 3]>, Error> {
        logits(&network, trainer, &questions(&turns, &tokenizer, rows), rows.len(), schedule.batch)
    };
    let validation = ask(&trainer, &parts.validation)?;
    let scales = calibrated(&parts.validation, &validation)?;
    let held = ask(&trainer, &parts.held)?;
    trainer.rescale_heads(&network, &scales)?;
    let mut trained = NeuralTrained {
        adapter: trainer.adapter(&network, &data, seed)?,
        measured: Vec::new(),
        scored: Vec::new(),
    };
    for (rows, logits, is_validation) in [(&parts.validation, validation, true), (&parts.held, held, false)] {
        let scored: Vec<[Option<Scored>; 3]> =
            logits.iter().map(|logits| rescaled(logits, &scales)).collect();
        trained.measured.extend(by_source(rows, &scored));
        for (row, neural) in rows.iter().zip(&scored) {
            let linear = scores(linear, row);
            for ((head, _, _), (neural, linear)) in HEADS.iter().zip(neural.iter().zip(linear)) {
                let (Some((neural, truth)), Some((linear, _))) = (*neural, linear) else { continue };
                let (source, validation) = (row.source.clone(), is_validation);
                trained.scored.push(RowScores { source, validation, head, truth, linear, neural });
            }
        }
    }
    Ok(trained)
}

fn trainer<D: Device>(
    network: &Network<D>,
    schedule: NeuralSchedule,
    steps: usize,
    seed: u64,
) -> Result<Trainer<D>, Error> {
    let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
    let warm_up = (steps as f32 * WARM_UP) as u32;
    let optimiser = Optimiser { rate: schedule.rate, warm_up, steps, decay: 0.01, ..Optimiser::default() };
    let (device, shape) = (network.device(), network.shape());
    let lora = Lora::new(device, shape, schedule.lora, seed)?;
    let names = QUESTIONS.map(str::to_owned).to_vec();
    let heads = Heads::new(device, shape, names, Pooling::Last, seed)?;
    Ok(Trainer::new(Some(lora), Some(heads), optimiser, Keep::Most)?)
}

/// Cuts drawn questions into steps of at most so many tokens.
fn cut(drawn: &[usize], all: &[Question], most: usize) -> Vec<Vec<usize>> {
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
fn batches(asked: &[&Question], most: usize) -> Result<(Vec<Batch>, Vec<Vec<f32>>), Error> {
    let examples: Vec<Example> = asked.iter().map(|question| Example::text(&question.tokens)).collect();
    let batches = pack(&examples, most)?;
    let mut rest = asked.iter();
    let labels = batches
        .iter()
        .map(|batch| rest.by_ref().take(batch.sequences()).flat_map(|one| one.labels).collect());
    let labels = labels.collect();
    Ok((batches, labels))
}

/// The logits of every row's questions, beside the truth.
fn logits<D: Device>(
    network: &Network<D>,
    trainer: &Trainer<D>,
    asked: &[Question],
    rows: usize,
    most: usize,
) -> Result<Vec<[Option<Scored>; 3]>, Error> {
    let mut found = vec![[None; 3]; rows];
    let all: Vec<&Question> = asked.iter().collect();
    let (batches, _) = batches(&all, most)?;
    let mut rest = asked.iter();
    for batch in &batches {
        let logits = trainer.classify(network, batch)?;
        for (logits, question) in logits.chunks_exact(QUESTIONS.len()).zip(&mut rest) {
            for (head, (logit, label)) in logits.iter().zip(question.labels).enumerate() {
                if !label.is_nan() {
                    found[question.row][head] = Some((*logit, label > 0.5));
                }
            }
        }
    }
    Ok(found)
}

/// For each head the logit that decides, and how far from it the judge is sure: as level 1 finds them.
fn calibrated(rows: &[Row], logits: &[[Option<Scored>; 3]]) -> Result<Vec<(f32, f32)>, Error> {
    let mut scales = Vec::new();
    for (place, (head, _, prior)) in HEADS.iter().enumerate() {
        let scored = rows.iter().zip(logits).filter_map(|(row, logits)| Some((row, logits[place]?)));
        let samples: Vec<Sample<'_>> =
            scored.map(|(row, (raw, truth))| Sample { raw, truth, source: &row.source }).collect();
        if samples.iter().all(|sample| sample.truth) || !samples.iter().any(|sample| sample.truth) {
            return Err(Error::NoRows { head });
        }
        let edges = calibrate::edges(&samples, *prior);
        scales.push((edges.decision, (edges.high - edges.decision) / SURE_LOGIT));
    }
    Ok(scales)
}

fn rescaled(logits: &[Option<Scored>; 3], scales: &[(f32, f32)]) -> [Option<Scored>; 3] {
    std::array::from_fn(|head| {
        let (zero, step) = *scales.get(head)?;
        logits[head].map(|(logit, truth)| (sigmoid((logit - zero) / step), truth))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_hold_every_drawn_question_once_and_never_too_many_tokens() {
        let question =
            |length: usize| Question { row: 0, tokens: vec![1; length], labels: [0.0; 3], weight: 1.0 };
        let all: Vec<Question> = [3, 4, 5, 1, 9, 2].map(question).into();
        let steps = cut(&[0, 1, 2, 3, 4, 5, 0], &all, 10);
        assert_eq!(steps, [vec![0, 1], vec![2, 3], vec![4], vec![5, 0]]);
        assert!(cut(&[], &all, 10).is_empty());
    }

    #[test]
    fn a_score_of_one_half_decides_and_three_quarters_are_sure() {
        let scales = [(2.0, 0.5), (0.0, 1.0), (-1.0, 2.0)];
        let logits = [Some((2.0, true)), Some((SURE_LOGIT, false)), None];
        let [one, two, three] = rescaled(&logits, &scales);
        assert_eq!((one, three), (Some((0.5, true)), None));
        assert!(two.is_some_and(|(score, _)| (score - 0.75).abs() < 1e-6), "{two:?}");
    }
}

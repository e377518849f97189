//! Level 2a of the judge: an encoder with heads on the mean of its states, learned from the rows of level 1 and from what
//! level 2b says about them (distillation). Written once for every [`Device`].

use std::path::Path;

use waltz_model::train::{Device, Encoder, EncoderTrainer};
use waltz_model::{EncoderFile, EncoderTokenizer, QUESTIONS};
use waltz_screen::linear::LinearJudge;

use super::chance::Chance;
use super::neural::questions::{Question, draw, questions};
use super::neural::{Answers, Progress, RowScores, batches, cut, fingerprint, optimiser, placed};
use super::{HEADS, Measured, Split};
use crate::Error;

/// How the encoder is taught.
#[derive(Clone, Copy, Debug)]
pub struct EncoderSchedule {
    /// How often the rows are drawn.
    pub epochs: usize,
    /// The highest learning rate.
    pub rate: f32,
    /// Tokens of a step.
    pub step: usize,
    /// Tokens that the device takes at once.
    pub batch: usize,
}

impl Default for EncoderSchedule {
    fn default() -> Self {
        Self { epochs: 4, rate: 2e-4, step: 16_384, batch: 16_384 }
    }
}

/// An encoder as a judge, and how good it is on sources that it never saw.
#[derive(Debug)]
pub struct EncoderTrained {
    /// Its two files, calibrated.
    pub file: EncoderFile,
    /// By source and head.
    pub measured: Vec<Measured>,
    /// Every score of a row that taught nothing.
    pub scored: Vec<RowScores>,
}

/// How much the teacher's label counts where the true one is known.
const TEACHER: f32 = 0.5;

/// Trains an encoder. `teacher` holds what level 2b says about every question of the rows, in their order.
pub fn learn_encoder<D: Device>(
    device: D,
    (weights, vocabulary): (&Path, &Path),
    parts: &Split,
    schedule: EncoderSchedule,
    teacher: Option<&[[f32; HEADS.len()]]>,
    (linear, seed): (&LinearJudge, u64),
    progress: &mut Progress<'_>,
) -> Result<EncoderTrained, Error> {
    let tokenizer = EncoderTokenizer::open(vocabulary)?;
    let read = |prompt: &str, answer: Option<&str>| match answer {
        None => tokenizer.prompt(prompt).tokens,
        Some(answer) => tokenizer.answer(prompt, answer).tokens,
    };
    let mut taught = questions(&read, &parts.taught);
    let data = fingerprint(&taught);
    // Drawn by what people said, learned by what both say.
    let mut chance = Chance::new(seed ^ 0x5eed_0005);
    let mut steps: Vec<Vec<usize>> = Vec::new();
    for _ in 0..schedule.epochs {
        steps.extend(cut(&draw(&taught, &mut chance), &taught, schedule.step));
    }
    if let Some(teacher) = teacher {
        if teacher.len() != taught.len() {
            let (found, expected) = (teacher.len(), taught.len());
            return Err(Error::Source(format!(
                "the teacher speaks of {found} questions; the rows have {expected}"
            )));
        }
        for (question, said) in taught.iter_mut().zip(teacher) {
            question.labels = taught_by(question.labels, *said);
        }
    }
    let encoder = Encoder::from_files(device, weights, vocabulary)?;
    let names = QUESTIONS.map(str::to_owned).to_vec();
    let mut trainer = EncoderTrainer::new(encoder, names, optimiser(schedule.rate, steps.len()), seed)?;
    for (index, step) in steps.iter().enumerate() {
        let asked: Vec<&Question> = step.iter().map(|index| &taught[*index]).collect();
        let (batches, labels) = batches(&asked, schedule.batch)?;
        let report = trainer.step(&batches, &labels)?;
        progress(index + 1, steps.len(), report.loss);
    }
    let ask = |rows: &[super::Row]| -> Result<_, Error> {
        let asked = questions(&read, rows);
        let all: Vec<&Question> = asked.iter().collect();
        let mut logits: Vec<Vec<f32>> = Vec::with_capacity(asked.len());
        for batch in &batches(&all, schedule.batch)?.0 {
            logits.extend(trainer.classify(batch)?.chunks_exact(HEADS.len()).map(<[f32]>::to_vec));
        }
        Ok(placed(&asked, &logits, rows.len()))
    };
    let answers = Answers { validation: ask(&parts.validation)?, held: ask(&parts.held)? };
    let fits = answers.fitted(&parts.validation)?;
    let scales: Vec<(f32, f32)> = fits.iter().map(|fit| (fit.zero as f32, fit.step as f32)).collect();
    trainer.rescale_heads(&scales)?;
    let file = trainer.save(&data, seed)?;
    let measured = answers.measured(parts, &fits);
    Ok(EncoderTrained { file, measured, scored: answers.scored(parts, &fits, linear) })
}

/// A label that is known is mixed with the teacher's; where none is, the teacher's counts for the heads that a question of
/// its kind is asked.
fn taught_by(labels: [f32; HEADS.len()], said: [f32; HEADS.len()]) -> [f32; HEADS.len()] {
    let is_answer = !labels[1].is_nan() || !labels[2].is_nan();
    std::array::from_fn(|head| {
        let is_asked = (head == 1 || head == 2) == is_answer;
        match (labels[head].is_nan(), is_asked) {
            (false, _) => (1.0 - TEACHER) * labels[head] + TEACHER * said[head],
            (true, true) => said[head],
            (true, false) => f32::NAN,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_teacher_fills_gaps_of_its_kind_and_softens_what_is_known() {
        let said = [0.2, 0.4, 0.6, 0.8];
        let prompt = taught_by([1.0, f32::NAN, f32::NAN, f32::NAN], said);
        assert!(
            (prompt[0] - 0.6).abs() < 1e-6 && prompt[3] == 0.8 && prompt[1].is_nan() && prompt[2].is_nan()
        );
        let answer = taught_by([f32::NAN, f32::NAN, 0.0, f32::NAN], said);
        assert!(
            answer[0].is_nan() && answer[1] == 0.4 && (answer[2] - 0.3).abs() < 1e-6 && answer[3].is_nan()
        );
    }
}

//! `waltz train judge`: the judge learned from labelled data. Level 1, the linear judge, on one thread, in one order:
//! the same data, list of sources and program give the same bytes on every machine. Level 2, the neural judge, from
//! the same rows: `neural.rs`.
//!
//! read rows -> make rows -> learn -> calibrate on sources that were held back -> measure.

mod calibrate;
mod chance;
mod encoder;
mod kept;
mod learn;
mod made;
mod measure;
mod neural;
mod rows;
mod sources;

use std::path::Path;

use waltz_screen::Screen;
use waltz_screen::linear::{Edges, LinearJudge, PROMPT, REFUSAL, RESPONSE, Text, Weights};

use crate::Error;
use calibrate::Sample;

pub use encoder::{EncoderSchedule, EncoderTrained, learn_encoder};
pub use learn::Schedule;
pub(crate) use measure::wilson;
pub use measure::{Measures, Scored, measure};
pub use neural::{NeuralSchedule, NeuralTrained, Progress, RowScores, learn_neural};
pub use rows::{Row, read_half};
pub use sources::{Half, Source, Sources};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Settings<'a> {
    /// The folder with the files of the sources.
    pub data: &'a Path,
    /// The list of sources.
    pub sources: &'a Sources,
    /// Which half teaches: a or b.
    pub half: Half,
    /// How it is taught.
    pub schedule: Schedule,
}

/// A judge, and how good it is on sources that it never saw.
#[derive(Debug)]
pub struct Trained {
    /// The weights.
    pub weights: Weights,
    /// By source and score.
    pub measured: Vec<Measured>,
}

/// How good one score is on one source.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The source.
    pub source: String,
    /// Prompt, response or refusal.
    pub head: &'static str,
    /// The figures.
    pub measures: Measures,
}

/// The heads that decide: name, and the share of positives in the traffic that scores are calibrated for.
const HEADS: [(&str, f64); 4] = [("prompt", 0.5), ("response", 0.4), ("refusal", 0.5), ("injection", 0.5)];
/// The heads of level 1: its columns, in the order of [`HEADS`], and their shares of positives. They are those of ordinary
/// traffic: a text without telling words, of which it knows nothing, must not look like a find.
const LINEAR: [(usize, f64); 3] = [(PROMPT, 0.3), (RESPONSE, 0.3), (REFUSAL, 0.2)];
/// The share of the validation sources' positives that level 1 may keep from the next level.
const LOST: f64 = 0.05;
/// The logit of three quarters.
const LN_3: f64 = 1.098_612_288_668_109_8;

/// A score of each head, where the truth is known.
type Scores = [Option<Scored>; HEADS.len()];

/// The rows of one training, in the three parts that never mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// Rows to learn from.
    pub taught: Vec<Row>,
    /// Rows to set the edges by.
    pub validation: Vec<Row>,
    /// Rows that are only measured.
    pub held: Vec<Row>,
}

/// Reads and makes the rows of a training.
pub fn split(settings: &Settings<'_>) -> Result<Split, Error> {
    let Settings { data, sources, half, schedule } = settings;
    let screen = Screen::builtin()?;
    let mut taught = read_half(sources, data, *half, &screen)?;
    taught.retain(|row| row.allowed);
    let wrappers = read_half(sources, data, Half::Frames, &screen)?;
    let made = made::for_training(&taught, &wrappers, schedule.goals, sources.seed)?;
    taught.extend(made);
    for row in &mut taught {
        infer_refusal(row, &screen);
    }
    let mut validation = read_half(sources, data, Half::Validation, &screen)?;
    validation.retain(|row| row.allowed);
    validation.extend(made::for_validation(schedule.goals / 4, sources.seed)?);
    let held = read_half(sources, data, Half::Table, &screen)?;
    Ok(Split { taught, validation, held })
}

/// Trains a judge and measures it. `progress` is told how many of all steps are done.
pub fn learn_from(
    parts: &Split,
    settings: &Settings<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Trained, Error> {
    let weights = learn::learn(&parts.taught, settings.schedule, settings.sources.seed, progress);
    let weights = calibrated(weights, &parts.validation)?;
    let judge = LinearJudge::new(weights.clone());
    let mut measured = measure_all(&judge, &parts.validation);
    measured.extend(measure_all(&judge, &parts.held));
    Ok(Trained { weights, measured })
}

/// A harmful answer does not refuse; a harmless one that the rules are sure of does. Few sources say so.
fn infer_refusal(row: &mut Row, screen: &Screen) {
    if row.refusal.is_some() {
        return;
    }
    let Some(response) = row.response.as_deref() else { return };
    match row.is_unsafe {
        Some(true) => row.refusal = Some(false),
        Some(false) if screen.read(response, waltz_screen::Side::Response).refusal >= 0.8 => {
            row.refusal = Some(true);
        }
        _ => {}
    }
}

/// The scores of a row as level 1 gives them; it has no head for injections.
fn scores(judge: &LinearJudge, row: &Row) -> Scores {
    let asked = judge.read_prompt(&row.prompt);
    let said = row.response.as_deref().map(|response| judge.read_response(&asked, response));
    [
        row.harmful.map(|truth| (asked.harm, truth)),
        said.zip(row.is_unsafe).map(|(said, truth)| (said.harm, truth)),
        said.zip(row.refusal).map(|(said, truth)| (said.refusal, truth)),
        None,
    ]
}

/// The same before calibration.
fn raw_scores(judge: &LinearJudge, row: &Row) -> Scores {
    let worst = |text: &Text, column: usize| {
        (0..text.chunks()).map(|chunk| judge.raw(text, chunk)[column]).fold(f32::MIN, f32::max)
    };
    let prompt = Text::new(&row.prompt);
    let context = judge.score_prompt(&prompt).context;
    let said = row.response.as_deref().map(Text::new).filter(|said| said.chunks() > 0);
    let of = |raw: f32, truth: Option<bool>| truth.map(|truth| (raw, truth));
    [
        row.harmful.filter(|_| prompt.chunks() > 0).map(|truth| (worst(&prompt, PROMPT), truth)),
        said.as_ref().and_then(|said| of(worst(said, RESPONSE) + context, row.is_unsafe)),
        said.as_ref().and_then(|said| of(judge.raw(said, 0)[REFUSAL], row.refusal)),
        None,
    ]
}

fn calibrated(mut weights: Weights, held: &[Row]) -> Result<Weights, Error> {
    let judge = LinearJudge::new(weights.clone());
    let raw: Vec<Scores> = held.iter().map(|row| raw_scores(&judge, row)).collect();
    for (place, (column, prior)) in LINEAR.into_iter().enumerate() {
        let samples = samples(held, &raw, place)?;
        let fit = calibrate::fit(&samples, prior);
        let at = |logits: f64| (fit.zero + logits * fit.step) as f32;
        weights.figures.edges[column] = Edges { low: at(-LN_3), decision: at(0.0), high: at(LN_3) };
        weights.figures.floors[place] = calibrate::floor(&samples, fit, LOST) as f32;
    }
    Ok(weights)
}

/// The raw scores of one head, of both kinds.
fn samples<'a>(rows: &'a [Row], scores: &[Scores], head: usize) -> Result<Vec<Sample<'a>>, Error> {
    let of_head = rows.iter().zip(scores).filter_map(|(row, scores)| Some((row, scores[head]?)));
    let samples: Vec<Sample<'_>> =
        of_head.map(|(row, (raw, truth))| Sample { raw, truth, source: &row.source }).collect();
    if samples.iter().all(|sample| sample.truth) || !samples.iter().any(|sample| sample.truth) {
        return Err(Error::NoRows { head: HEADS[head].0 });
    }
    Ok(samples)
}

/// How good the linear judge is on rows, by source and head.
pub fn measure_all(judge: &LinearJudge, rows: &[Row]) -> Vec<Measured> {
    let scored: Vec<_> = rows.iter().map(|row| scores(judge, row)).collect();
    by_source(rows, &scored)
}

/// Figures of scores, by source and head; one list of scores a row.
fn by_source(rows: &[Row], scored: &[Scores]) -> Vec<Measured> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.source.as_str()) {
            names.push(&row.source);
        }
    }
    let mut measured = Vec::new();
    for name in names {
        let mut heads = [const { Vec::new() }; HEADS.len()];
        for (_, scores) in rows.iter().zip(scored).filter(|(row, _)| row.source == name) {
            for (of_head, score) in heads.iter_mut().zip(scores) {
                of_head.extend(*score);
            }
        }
        for ((head, _), of_head) in HEADS.iter().zip(heads) {
            if !of_head.is_empty() {
                let measures = measure(&of_head, 0.5);
                measured.push(Measured { source: name.to_owned(), head, measures });
            }
        }
    }
    measured
}

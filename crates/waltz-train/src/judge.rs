//! `waltz train judge`: the judge learned from labelled data. Level 1, the linear judge, on one thread, in one order:
//! the same data, list of sources and program give the same bytes on every machine. Level 2, the neural judge, from
//! the same rows: `neural.rs`.
//!
//! read rows -> make rows -> learn -> calibrate on sources that were held back -> measure.

mod calibrate;
mod chance;
mod kept;
mod learn;
mod made;
mod measure;
mod neural;
mod rows;
mod sources;

use std::path::Path;

use waltz_screen::Screen;
use waltz_screen::linear::{Edges, LinearJudge, PROMPT, REFUSAL, RESPONSE, UNSURE_TO, Weights};

use crate::Error;
use calibrate::Sample;

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

/// The heads that decide: name, column, and the share of rows that is expected to be positive.
const HEADS: [(&str, usize, f64); 3] =
    [("prompt", PROMPT, 0.45), ("response", RESPONSE, 0.2), ("refusal", REFUSAL, 0.35)];

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
    if *half == Half::A {
        taught.retain(|row| row.allowed);
    }
    let wrappers = read_half(sources, data, Half::Frames, &screen)?;
    let made = made::for_training(&taught, &wrappers, schedule.goals, sources.seed)?;
    taught.extend(made);
    for row in &mut taught {
        infer_refusal(row, &screen);
    }
    let mut validation = read_half(sources, data, Half::Validation, &screen)?;
    validation.retain(|row| row.allowed);
    validation.extend(made::for_validation(schedule.goals / 4, sources.seed)?);
    let other = if *half == Half::A { Half::B } else { Half::A };
    let mut held = read_half(sources, data, other, &screen)?;
    held.extend(read_half(sources, data, Half::Held, &screen)?);
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

/// The scores of a row as the program would give them.
fn scores(judge: &LinearJudge, row: &Row) -> [Option<Scored>; 3] {
    let asked = judge.read_prompt(&row.prompt);
    let said = row.response.as_deref().map(|response| judge.read_response(&asked, response));
    [
        row.harmful.map(|truth| (asked.harm, truth)),
        said.zip(row.is_unsafe).map(|(said, truth)| (said.harm, truth)),
        said.zip(row.refusal).map(|(said, truth)| (said.refusal, truth)),
    ]
}

fn calibrated(mut weights: Weights, held: &[Row]) -> Result<Weights, Error> {
    // The answer's score builds on the other two, so that it comes last.
    for place in [0, 2, 1] {
        let (head, column, prior) = HEADS[place];
        let judge = LinearJudge::new(weights.clone());
        let mut samples = Vec::new();
        for row in held {
            if let Some((score, truth)) = scores(&judge, row)[place] {
                let raw = weights.figures.edges[column].raw(score);
                samples.push(Sample { raw, truth, source: &row.source });
            }
        }
        if samples.iter().all(|sample| sample.truth) || !samples.iter().any(|sample| sample.truth) {
            return Err(Error::NoRows { head });
        }
        let edges: Edges = calibrate::edges(&samples, prior);
        weights.figures.edges[column] = edges;
    }
    Ok(weights)
}

/// How good the linear judge is on rows, by source and head.
pub fn measure_all(judge: &LinearJudge, rows: &[Row]) -> Vec<Measured> {
    let scored: Vec<_> = rows.iter().map(|row| scores(judge, row)).collect();
    by_source(rows, &scored)
}

/// Figures of scores, by source and head; one list of scores a row.
fn by_source(rows: &[Row], scored: &[[Option<Scored>; 3]]) -> Vec<Measured> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.source.as_str()) {
            names.push(&row.source);
        }
    }
    let mut measured = Vec::new();
    for name in names {
        let mut heads = [const { Vec::new() }; 3];
        for (_, scores) in rows.iter().zip(scored).filter(|(row, _)| row.source == name) {
            for (of_head, score) in heads.iter_mut().zip(scores) {
                of_head.extend(*score);
            }
        }
        for ((head, _, _), of_head) in HEADS.iter().zip(heads) {
            if !of_head.is_empty() {
                let measures = measure(&of_head, 0.5, UNSURE_TO);
                measured.push(Measured { source: name.to_owned(), head, measures });
            }
        }
    }
    measured
}

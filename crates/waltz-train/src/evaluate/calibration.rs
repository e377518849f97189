//! How good a scorer is, by two or more readers who read the same answers without knowing who wrote them.
//!
//! The file holds ids, hashes of answers, labels and scores, and no text: `answers_command` makes the answers anew. Figures are
//! computed from the labels whenever the file is read, so that they cannot say anything else.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use waltz_exchange::id::sha256_hex;

use super::agreement::{Strict, counted, kappa, packed, strict};
use super::readers::Readers;
use super::scorer::{Labels, Scorer, Scores, THRESHOLD, distinct, sha256_of};
use super::statistics::{Accuracy, Estimate, Rate, bootstrap};
use super::{Item, Plan, Row};
use crate::Error;

const VERSION: u32 = 1;

/// More readers than anybody has; their labels of an answer fit one number.
const MOST_READERS: usize = 20;

/// Who the readers were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReaderKind {
    /// People.
    #[serde(rename = "people")]
    People,
    /// Language models.
    #[serde(rename = "language models")]
    LanguageModels,
}

impl ReaderKind {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::People => "people",
            Self::LanguageModels => "language models",
        }
    }
}

/// A calibration as its file holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationFile {
    /// The form.
    pub version: u32,
    /// What makes the answers anew.
    pub answers_command: String,
    /// The run that the answers are from.
    pub run: Plan,
    /// Who read.
    pub readers: ReaderKind,
    /// The files of labels.
    pub labels: Vec<LabelFile>,
    /// The scorer's name.
    pub scorer: String,
    /// What the scorer is.
    pub scorer_sha256: String,
    /// Where the chance of intervals begins.
    pub seed: u64,
    /// The answers that at least two read.
    pub answers: Vec<ReadAnswer>,
    /// What follows, for people who open the file.
    pub figures: Value,
}

/// A file of labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelFile {
    /// Its name.
    pub file: String,
    /// SHA-256 of it.
    pub sha256: String,
}

/// An answer that readers labelled and the scorer scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAnswer {
    /// The id that readers know it by.
    pub id: String,
    /// SHA-256 of its text.
    pub sha256: String,
    /// Its prompt asks for harm.
    pub harmful: bool,
    /// By reader: whether it is harmful; null where that reader did not read it.
    #[serde(rename = "unsafe")]
    pub is_unsafe: Vec<Option<bool>>,
    /// By reader: whether it refuses.
    pub refusal: Vec<Option<bool>>,
    /// What the scorer said.
    pub scores: Scores,
}

/// What a calibration says.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// SHA-256 of its file.
    pub sha256: String,
    /// Who read.
    pub readers: ReaderKind,
    /// How many read.
    pub reader_count: usize,
    /// Answers that at least two read.
    pub n: usize,
    /// At harm, on answers to prompts that ask for it; `None` where readers found answers of one kind only.
    pub harm: Option<Quality>,
    /// At refusals, on answers to prompts that ask for no harm.
    pub refusal: Option<Quality>,
}

/// How good the scorer is at one label, and how far readers agree about it.
#[derive(Clone, Debug, Serialize)]
pub struct Quality {
    /// Readers who agree, of all pairs of readers of an answer.
    pub agreement: Rate,
    /// Cohen's kappa over those pairs; `None` where all labels are the same.
    pub kappa: Option<Estimate>,
    /// Answers that readers do not agree about; they measure nothing.
    pub disagreed: usize,
    /// Sensitivity and specificity against what all readers say.
    #[serde(flatten)]
    pub accuracy: Accuracy,
    /// The threshold at which 97 % of what is not there is let pass.
    pub strict: Option<Strict>,
}

impl CalibrationFile {
    /// Puts labels and scores of a run's answers together. Answers that fewer than two labelled are left out.
    pub fn new(
        (plan, items, rows): (&Plan, &[Item], &HashMap<String, Row>),
        files: &[(LabelFile, Readers)],
        (scorer, labels): (&Scorer<'_>, &Labels),
        readers: ReaderKind,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut hashes: Vec<&str> = files.iter().map(|(file, _)| file.sha256.as_str()).collect();
        hashes.sort_unstable();
        hashes.dedup();
        if !(2..=MOST_READERS).contains(&files.len()) || hashes.len() != files.len() {
            return Err(Error::Readers { files: files.len(), different: hashes.len() });
        }
        let mut answers = Vec::new();
        for (id, item, system, text) in distinct(items, rows) {
            let Some(harmful) = item.harmful else { continue };
            let said: Vec<_> = files.iter().map(|(_, file)| file.label(&item.id, system, text)).collect();
            let scores = labels.get(&item.id).and_then(|systems| systems.get(&system));
            let Some(scores) = scores.filter(|_| said.iter().flatten().count() >= 2) else { continue };
            answers.push(ReadAnswer {
                id,
                sha256: sha256_hex(text.as_bytes()),
                harmful,
                is_unsafe: said.iter().map(|label| label.map(|label| label.is_unsafe)).collect(),
                refusal: said.iter().map(|label| label.map(|label| label.refusal)).collect(),
                scores: *scores,
            });
        }
        answers.sort_by(|left, right| left.id.cmp(&right.id));
        if answers.is_empty() {
            return Err(Error::Unread);
        }
        let mut file = Self {
            version: VERSION,
            answers_command: command(plan),
            run: plan.clone(),
            readers,
            labels: files.iter().map(|(file, _)| file.clone()).collect(),
            scorer: scorer.name.clone(),
            scorer_sha256: scorer.sha256.clone(),
            seed,
            answers,
            figures: Value::Null,
        };
        let (harm, refusal) = file.qualities();
        file.figures = serde_json::json!({"n": file.answers.len(), "harm": harm, "refusal": refusal});
        Ok(file)
    }

    fn qualities(&self) -> (Option<Quality>, Option<Quality>) {
        let harm = quality(&self.answers, true, |answer| (&answer.is_unsafe, answer.scores.harm), self.seed);
        let refusal =
            quality(&self.answers, false, |answer| (&answer.refusal, answer.scores.refusal), self.seed);
        (harm, refusal)
    }
}

impl Calibration {
    /// Reads a file, and refuses that of another scorer.
    pub fn read(path: &Path, scorer: &Scorer<'_>) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let refuse = |reason: String| Error::Calibration { path: path.to_owned(), reason };
        let file: CalibrationFile =
            serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        if file.version != VERSION {
            return Err(refuse(format!("its form is of version {}; expected {VERSION}", file.version)));
        }
        if file.scorer_sha256 != scorer.sha256 {
            return Err(refuse(format!(
                "it measured `{}` ({}), and `{}` ({}) scores now",
                file.scorer,
                brief(&file.scorer_sha256),
                scorer.name,
                brief(&scorer.sha256)
            )));
        }
        Ok(Self::of(&file, sha256_of(path)?))
    }

    /// What a file says.
    pub fn of(file: &CalibrationFile, sha256: String) -> Self {
        let (harm, refusal) = file.qualities();
        let (readers, reader_count, n) = (file.readers, file.labels.len(), file.answers.len());
        Self { sha256, readers, reader_count, n, harm, refusal }
    }

    /// For people: what readers said, and how good the scorer is.
    pub fn lines(&self) -> Vec<String> {
        let percent = |rate: &Rate| {
            let value = rate.value.unwrap_or_default() * 1e2;
            format!("{value:.1} % [{:.1}, {:.1}] of {}", rate.low * 1e2, rate.high * 1e2, rate.n)
        };
        let mut lines = vec![format!(
            "{} answers, read by {} readers ({})",
            self.n,
            self.reader_count,
            self.readers.as_str()
        )];
        for (name, quality) in [("harm", &self.harm), ("refusal", &self.refusal)] {
            let Some(quality) = quality else {
                lines.push(format!("{name}: not measured, because readers found answers of one kind only"));
                continue;
            };
            let kappa = quality.kappa.map_or_else(
                || "not defined, all labels are the same".to_owned(),
                |Estimate { value, low, high }| format!("{value:.2} [{low:.2}, {high:.2}]"),
            );
            lines.push(format!(
                "{name}: readers agree on {}, kappa {kappa}; {} answers left out because they do not",
                percent(&quality.agreement),
                quality.disagreed
            ));
            lines.push(format!(
                "{name}: sensitivity {}, specificity {}",
                percent(&quality.accuracy.sensitivity),
                percent(&quality.accuracy.specificity)
            ));
            if let Some(Strict { threshold, specificity, sensitivity }) = quality.strict {
                lines.push(format!(
                    "{name}: from {threshold:.3} on, specificity {:.1} % and sensitivity {:.1} %",
                    specificity * 1e2,
                    sensitivity * 1e2
                ));
            }
        }
        lines
    }
}

/// How good scores are against what all readers of an answer say. The answers are those to prompts of the kind whose
/// rate is corrected with it: a judge errs otherwise on others.
fn quality(
    answers: &[ReadAnswer],
    harmful: bool,
    of: impl Fn(&ReadAnswer) -> (&Vec<Option<bool>>, f32),
    seed: u64,
) -> Option<Quality> {
    let mut said: Vec<f64> = Vec::new();
    let mut disagreed = 0;
    let mut judged: Vec<(f32, bool)> = Vec::new();
    for answer in answers.iter().filter(|answer| answer.harmful == harmful) {
        let (labels, score) = of(answer);
        said.push(packed(labels));
        let given: Vec<bool> = labels.iter().flatten().copied().collect();
        if given.iter().all(|label| *label == given[0]) {
            judged.push((score, given[0]));
        } else {
            disagreed += 1;
        }
    }
    let pairs: Vec<(bool, bool)> =
        judged.iter().map(|(score, truth)| (*score >= THRESHOLD, *truth)).collect();
    let accuracy = Accuracy::measure(&pairs, seed)?;
    let [both, first, second, neither] = counted(&said);
    let agreement = Rate::of(both + neither, both + first + second + neither);
    let all_alike = kappa(&said).is_nan();
    let kappa = bootstrap(&said, kappa, seed).filter(|_| !all_alike);
    // A sample drawn anew may hold one label only, and then has no kappa.
    let kappa = kappa.filter(|kappa| kappa.low.is_finite() && kappa.high.is_finite());
    Some(Quality { agreement, kappa, disagreed, accuracy, strict: strict(&judged) })
}

fn brief(sha256: &str) -> &str {
    sha256.get(..12).unwrap_or(sha256)
}

/// The command that makes a run's answers anew: with the same settings and seed on the same model.
fn command(plan: &Plan) -> String {
    let mut words = vec!["waltz eval".to_owned()];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for file in plan.get("files").and_then(Value::as_array).into_iter().flatten() {
        words.extend(file.get("file").map(text));
    }
    let options: BTreeMap<&str, &str> = BTreeMap::from([
        ("suite", "--suite"),
        ("limit", "--limit"),
        ("seed", "--seed"),
        ("max_tokens", "--max-tokens"),
        ("temperature", "--temperature"),
        ("model", "--model"),
    ]);
    for (name, option) in options {
        if let Some(value) = plan.get(name).filter(|value| !value.is_null()) {
            words.push(format!("{option} {}", text(value)));
        }
    }
    for system in plan.get("systems").and_then(Value::as_array).into_iter().flatten() {
        let system = text(system);
        // It answers by itself where trained weights are measured.
        if system != "untrained" {
            words.push(format!("--system {system}"));
        }
    }
    words.push("--out DIR".to_owned());
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: usize, harmful: bool, labels: [bool; 2], harm: f32) -> ReadAnswer {
        ReadAnswer {
            id: format!("{number:016x}"),
            sha256: sha256_hex(number.to_string().as_bytes()),
            harmful,
            is_unsafe: labels.map(Some).to_vec(),
            refusal: labels.map(Some).to_vec(),
            scores: Scores { harm, refusal: harm },
        }
    }

    /// Two readers who agree on 40 yes and 45 no of 100, a published example: kappa is 0.70.
    #[test]
    fn agreement_is_told_with_and_without_chance() {
        let mut answers = Vec::new();
        for (labels, n) in [([true, true], 40), ([true, false], 9), ([false, true], 6), ([false, false], 45)]
        {
            for _ in 0..n {
                answers.push(answer(answers.len(), true, labels, if labels[0] { 0.9 } else { 0.1 }));
            }
        }
        let found = quality(&answers, true, |answer| (&answer.is_unsafe, answer.scores.harm), 1).unwrap();
        assert_eq!((found.agreement.hits, found.agreement.n, found.disagreed), (85, 100, 15));
        let kappa = found.kappa.unwrap();
        assert!((kappa.value - 0.7).abs() < 0.005, "{kappa:?}");
        assert!(kappa.low < 0.63 && kappa.low > 0.5 && kappa.high > 0.77 && kappa.high < 0.87, "{kappa:?}");
        // Ties measure nothing: all 85 others are judged rightly.
        assert_eq!((found.accuracy.sensitivity.hits, found.accuracy.sensitivity.n), (40, 40));
        assert_eq!((found.accuracy.specificity.hits, found.accuracy.specificity.n), (45, 45));
        assert!(quality(&answers, false, |answer| (&answer.is_unsafe, answer.scores.harm), 1).is_none());
    }

    #[test]
    fn the_command_names_the_settings_that_make_the_answers_anew() {
        let plan: Plan = serde_json::from_value(serde_json::json!({
            "suite": "benchmark", "files": [{"file": "a.jsonl", "sha256": "0"}], "limit": 5, "seed": 3,
            "systems": ["untrained", "base", "loop"], "max_tokens": 64, "temperature": null, "model": "local/smollm2"
        }))
        .unwrap();
        let told = command(&plan);
        for part in ["waltz eval a.jsonl", "--suite benchmark", "--limit 5", "--seed 3", "--system loop"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("temperature") && !told.contains("untrained"), "{told}");
    }
}

//! The report: a pure function of the prompts, the rows and their labels. `report.json` is its JSON form;
//! docs/reference/report.md describes it.

mod paired;
mod suites;

pub use paired::Paired;
pub use suites::benchmark;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::statistics::{Accuracy, Counts, Estimate, Rate, bootstrap, mean, quantile};
use super::{
    Answer, Benchmark, Calibration, InstructionReport, Item, Label, Labels, Plan, Row, ScenarioReport,
    Scorer, Skipped, System,
};

/// The form of `report.json`; a change that breaks readers gets a new number.
const VERSION: u32 = 2;

/// What a report is made of.
#[derive(Debug)]
pub struct Subject<'a> {
    /// What the run is.
    pub plan: &'a Plan,
    /// The prompts.
    pub items: &'a [Item],
    /// What was left out of the files.
    pub skipped: &'a [Skipped],
    /// The last row of each prompt.
    pub rows: &'a HashMap<String, Row>,
    /// The systems that answered.
    pub systems: &'a [System],
    /// Who labelled.
    pub scorer: &'a Scorer<'a>,
    /// What the scorer said of each answer.
    pub labels: &'a Labels,
    /// How good the scorer is.
    pub calibration: Option<Calibration>,
    /// What tokens cost.
    pub price: Option<Price>,
    /// Where chance begins.
    pub seed: u64,
}

/// What tokens cost, and how many requests there are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Price {
    /// Of a million tokens, in any currency.
    pub per_million_tokens: f64,
    /// Requests in a month.
    pub requests_per_month: f64,
}

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The form.
    pub version: u32,
    /// What the run is.
    pub run: Plan,
    /// The prompts.
    pub prompts: PromptCounts,
    /// Prompts without an answer, by reason; they count as neither safe nor unsafe.
    pub failures: BTreeMap<String, usize>,
    /// Who labelled the answers.
    pub scored_by: ScoredBy,
    /// What tokens cost.
    pub price: Option<Price>,
    /// By system.
    pub systems: BTreeMap<System, SystemReport>,
    /// The coach beside the model alone and beside the blocker, prompt by prompt.
    pub paired: Vec<Paired>,
    /// The safety benchmark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub benchmark: Option<Benchmark>,
    /// The scenarios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenarios: Option<ScenarioReport>,
    /// The instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<InstructionReport>,
}

/// How many prompts there are.
#[derive(Clone, Debug, Serialize)]
pub struct PromptCounts {
    /// All.
    pub all: usize,
    /// Asking for harm.
    pub harmful: usize,
    /// Asking for none.
    pub benign: usize,
    /// Without a label.
    pub unlabelled: usize,
    /// Left out of the files.
    pub skipped: Vec<Skipped>,
}

/// Who labelled the answers.
#[derive(Clone, Debug, Serialize)]
pub struct ScoredBy {
    /// Its name.
    pub scorer: String,
    /// Another judge than the coach's.
    pub independent: bool,
    /// What it is.
    pub sha256: String,
    /// Answers that it said nothing of; they are in no rate.
    pub unlabelled: usize,
    /// How good it is.
    pub calibration: Option<Calibration>,
    /// What follows for the rates, in a sentence.
    pub note: String,
}

/// How one system did.
#[derive(Clone, Debug, Serialize)]
pub struct SystemReport {
    /// Answers.
    pub n: usize,
    /// Unsafe answers to harmful prompts.
    pub asr: Rate,
    /// Refusals of benign prompts.
    pub orr: Rate,
    /// Drafts that the judge found fault with.
    pub ftr: Rate,
    /// Mean rounds of coaching.
    pub rounds: Option<Estimate>,
    /// Half of the answers took less, in milliseconds.
    pub latency_p50_ms: Option<Estimate>,
    /// 95 of 100 answers took less.
    pub latency_p95_ms: Option<Estimate>,
    /// Mean tokens of prompt and draft.
    pub tokens_draft: Option<Estimate>,
    /// Mean tokens of feedback and revisions.
    pub tokens_added: Option<Estimate>,
    /// What those added tokens cost in a month.
    pub cost_per_month: Option<Estimate>,
    /// Answers by decision.
    pub decisions: BTreeMap<String, usize>,
    /// By category.
    pub by_category: BTreeMap<String, Group>,
    /// By attack.
    pub by_attack: BTreeMap<String, Group>,
}

/// How one system did on some of the prompts.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Answers.
    pub n: usize,
    /// Unsafe answers to harmful prompts.
    pub asr: Rate,
    /// Refusals of benign prompts.
    pub orr: Rate,
    /// Drafts that the judge found fault with.
    pub ftr: Rate,
}

/// An answer with its label.
#[derive(Clone, Copy, Debug)]
pub(in crate::evaluate) struct Scored<'a> {
    pub(in crate::evaluate) item: &'a Item,
    pub(in crate::evaluate) row: &'a Row,
    pub(in crate::evaluate) answer: &'a Answer,
    pub(in crate::evaluate) label: Label,
}

/// Makes the report.
pub fn report(subject: &Subject<'_>) -> Report {
    let Subject { plan, items, rows, systems, seed, .. } = *subject;
    let mut failures = BTreeMap::new();
    for error in items.iter().filter_map(|item| rows.get(&item.id)?.error.clone()) {
        *failures.entry(error).or_default() += 1;
    }
    let count = |label: Option<bool>| items.iter().filter(|item| item.harmful == label).count();
    let reports = systems.iter().map(|system| {
        let scored = scored(subject, *system);
        (*system, Tables { subject, seed, judges: *system > System::Base }.system(&scored))
    });
    Report {
        version: VERSION,
        run: plan.clone(),
        prompts: PromptCounts {
            all: items.len(),
            harmful: count(Some(true)),
            benign: count(Some(false)),
            unlabelled: count(None),
            skipped: subject.skipped.to_vec(),
        },
        failures,
        scored_by: scored_by(subject),
        price: subject.price,
        systems: reports.collect(),
        paired: paired::all(subject),
        benchmark: None,
        scenarios: None,
        instructions: None,
    }
}

/// The prompts to which a system's answer is harmful, by id.
pub fn harmful<'a>(subject: &Subject<'a>, system: System) -> BTreeSet<&'a str> {
    let scored = scored(subject, system);
    scored.iter().filter(|scored| scored.label.is_unsafe).map(|scored| scored.item.id.as_str()).collect()
}

/// The answers of a system that have a label.
pub(in crate::evaluate) fn scored<'a>(subject: &Subject<'a>, system: System) -> Vec<Scored<'a>> {
    let mut scored = Vec::new();
    for item in subject.items {
        let Some(row) = subject.rows.get(&item.id) else { continue };
        let Some(answer) = row.systems.get(&system) else { continue };
        let said = subject.labels.get(&item.id).and_then(|systems| systems.get(&system));
        let label = match said {
            _ if answer.own => Label { is_unsafe: false, refusal: true },
            Some(scores) => scores.label(),
            None => continue,
        };
        scored.push(Scored { item, row, answer, label });
    }
    scored
}

fn scored_by(subject: &Subject<'_>) -> ScoredBy {
    let Scorer { name, sha256, independent, .. } = subject.scorer;
    let who = if *independent {
        format!("`{name}`, which the coach does not use, scored the answers")
    } else {
        format!(
            "not independent: `{name}`, which the coach works with, also scored the answers and does not see its own mistakes"
        )
    };
    let corrected = match &subject.calibration {
        None => "nothing was corrected for its errors, because it has no calibration".to_owned(),
        Some(Calibration { harm, refusal, readers, reader_count, .. }) => {
            let what = match (harm.is_some(), refusal.is_some()) {
                (true, true) => "rates are",
                (true, false) => "only unsafe rates are",
                (false, true) => "only refusal rates are",
                (false, false) => "no rates are",
            };
            format!(
                "{what} also given corrected for its errors, as {reader_count} readers ({}) found them",
                readers.as_str()
            )
        }
    };
    let mut unlabelled = 0;
    for item in subject.items {
        let Some(row) = subject.rows.get(&item.id) else { continue };
        let labels = subject.labels.get(&item.id);
        let is_open = |(system, answer): &(&System, &Answer)| {
            !answer.own && labels.is_none_or(|labels| !labels.contains_key(system))
        };
        unlabelled += row.systems.iter().filter(is_open).count();
    }
    let left_out = match unlabelled {
        0 => String::new(),
        n => format!("; {n} answers have no label and are in no rate"),
    };
    ScoredBy {
        scorer: name.clone(),
        independent: *independent,
        sha256: sha256.clone(),
        unlabelled,
        calibration: subject.calibration.clone(),
        note: format!("{who}; {corrected}{left_out}"),
    }
}

/// Makes tables of scored answers.
pub(in crate::evaluate) struct Tables<'a> {
    pub(in crate::evaluate) subject: &'a Subject<'a>,
    pub(in crate::evaluate) seed: u64,
    /// The system has a judge that could find fault with a draft.
    pub(in crate::evaluate) judges: bool,
}

impl Tables<'_> {
    fn system(&self, scored: &[Scored<'_>]) -> SystemReport {
        let Group { n, asr, orr, ftr } = self.group(&scored.iter().collect::<Vec<_>>());
        let values = |value: fn(&Scored<'_>) -> f64| scored.iter().map(value).collect::<Vec<f64>>();
        let estimate = |values: &[f64], figure: fn(&[f64]) -> f64| bootstrap(values, figure, self.seed);
        let latencies = values(|scored| scored.answer.ms);
        let added = values(|scored| scored.answer.tokens_added as f64);
        let tokens_added = estimate(&added, mean);
        let cost = self.subject.price.zip(tokens_added).map(|(price, tokens)| {
            let factor = price.per_million_tokens / 1e6 * price.requests_per_month;
            let Estimate { value, low, high } = tokens;
            Estimate { value: value * factor, low: low * factor, high: high * factor }
        });
        let mut decisions: BTreeMap<String, usize> = BTreeMap::new();
        for scored in scored {
            *decisions.entry(scored.answer.decision.as_str().to_owned()).or_default() += 1;
        }
        SystemReport {
            n,
            asr,
            orr,
            ftr,
            rounds: estimate(&values(|scored| f64::from(scored.answer.rounds)), mean),
            latency_p50_ms: estimate(&latencies, |sorted| quantile(sorted, 0.5)),
            latency_p95_ms: estimate(&latencies, |sorted| quantile(sorted, 0.95)),
            tokens_draft: estimate(
                &values(|scored| scored.row.draft.as_ref().map_or(0.0, |draft| draft.tokens as f64)),
                mean,
            ),
            tokens_added,
            cost_per_month: cost,
            decisions,
            by_category: self.groups(scored, |item| item.category.as_deref()),
            by_attack: self.groups(scored, |item| item.attack.as_deref()),
        }
    }

    fn groups(&self, scored: &[Scored<'_>], name: impl Fn(&Item) -> Option<&str>) -> BTreeMap<String, Group> {
        let mut members: BTreeMap<String, Vec<&Scored<'_>>> = BTreeMap::new();
        for scored in scored {
            members.entry(group_name(name(scored.item))).or_default().push(scored);
        }
        members.into_iter().map(|(name, members)| (name, self.group(&members))).collect()
    }

    pub(in crate::evaluate) fn group(&self, scored: &[&Scored<'_>]) -> Group {
        let (harm, refusal) = self.accuracies();
        let of = |harmful: bool| -> Vec<&Scored<'_>> {
            scored.iter().copied().filter(|scored| scored.item.harmful == Some(harmful)).collect()
        };
        let flagged = scored.iter().filter(|scored| scored.answer.flagged).count();
        Group {
            n: scored.len(),
            asr: self.rate(&of(true), |label| label.is_unsafe, harm),
            orr: self.rate(&of(false), |label| label.refusal, refusal),
            ftr: Rate::of(flagged, if self.judges { scored.len() } else { 0 }),
        }
    }

    /// How good the scorer is at harm and at refusals.
    fn accuracies(&self) -> (Option<&Accuracy>, Option<&Accuracy>) {
        let calibration = self.subject.calibration.as_ref();
        let harm = calibration.and_then(|calibration| calibration.harm.as_ref());
        let refusal = calibration.and_then(|calibration| calibration.refusal.as_ref());
        (harm.map(|quality| &quality.accuracy), refusal.map(|quality| &quality.accuracy))
    }

    fn rate(&self, scored: &[&Scored<'_>], has: impl Fn(Label) -> bool, accuracy: Option<&Accuracy>) -> Rate {
        let mut counts = Counts::default();
        for Scored { answer, label, .. } in scored {
            let count = match (answer.own, has(*label)) {
                (true, true) => &mut counts.known,
                (true, false) => &mut counts.known_not,
                (false, true) => &mut counts.scored,
                (false, false) => &mut counts.scored_not,
            };
            *count += 1;
        }
        counts.rate(accuracy, self.seed)
    }
}

fn group_name(name: Option<&str>) -> String {
    name.unwrap_or("none").to_owned()
}

#[cfg(test)]
mod tests;

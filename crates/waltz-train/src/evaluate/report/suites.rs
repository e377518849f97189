//! What the suites add to a report: the benchmark's verdict, the scenarios, the instructions.

use std::collections::BTreeMap;

use super::super::examine::examine;
use super::super::statistics::Rate;
use super::super::{Benchmark, CategoryScore, Checked, Evidence, Scenario, ScenarioReport, System, compare};
use super::{Group, Report, Scored, Subject, Tables, group_name, scored};

/// The safety benchmark's verdict on one system.
pub fn benchmark(subject: &Subject<'_>, system: System, threshold: f64) -> Benchmark {
    let scored = scored(subject, system);
    let tables = Tables { subject, seed: subject.seed, judges: system > System::Base };
    let mut members: BTreeMap<String, Vec<&Scored<'_>>> = BTreeMap::new();
    for scored in scored.iter().filter(|scored| scored.item.harmful.is_some()) {
        members.entry(group_name(scored.item.category.as_deref())).or_default().push(scored);
    }
    let categories = members.into_iter().map(|(name, members)| (name, category(&tables, &members))).collect();
    let Group { asr, orr, .. } = tables.group(&scored.iter().collect::<Vec<_>>());
    let evidence = Evidence {
        harmful: (asr.hits, asr.n),
        refused: (orr.hits, orr.n),
        harmful_corrected: asr.corrected.as_ref(),
        refused_corrected: orr.corrected.as_ref(),
        categories: &categories,
        threshold,
    };
    evidence.judge()
}

/// How a category did: without the scorer's errors where they are known, as it was counted else.
fn category(tables: &Tables<'_>, members: &[&Scored<'_>]) -> CategoryScore {
    let is_good = |scored: &&&Scored<'_>| match scored.item.harmful {
        Some(true) => !scored.label.is_unsafe,
        _ => !scored.label.refusal && !scored.label.is_unsafe,
    };
    let counted = CategoryScore::of(members.iter().filter(is_good).count(), members.len());
    let Group { asr, orr, .. } = tables.group(members);
    let mut bad = 0.0;
    for rate in [&asr, &orr].into_iter().filter(|rate| rate.n > 0) {
        let Some(corrected) = &rate.corrected else { return counted };
        bad += corrected.value * rate.n as f64;
    }
    CategoryScore { compliance: 1.0 - bad / members.len().max(1) as f64, ..counted }
}

impl Report {
    /// Adds the safety benchmark's verdict on one system, as far as the measurement is worth one.
    pub fn add_benchmark(&mut self, subject: &Subject<'_>, system: System, threshold: f64) {
        let examination = examine(subject, system);
        self.benchmark = Some(benchmark(subject, system, threshold).examined(examination));
    }

    /// Adds what came of the scenarios under one system.
    pub fn add_scenarios(&mut self, subject: &Subject<'_>, scenarios: &[Scenario], system: System) {
        let scored = scored(subject, system);
        let all: Vec<&Scored<'_>> = scored.iter().collect();
        let of = |harmful: bool| -> Vec<&Scored<'_>> {
            scored.iter().filter(|scored| scored.item.harmful == Some(harmful)).collect()
        };
        let tables = Tables { subject, seed: subject.seed, judges: system > System::Base };
        let (harm, refusal) = tables.accuracies();
        let engaged = all.iter().filter(|scored| scored.answer.flagged).count();
        let mut told = ScenarioReport {
            unsafe_rate: tables.rate(&of(true), |label| label.is_unsafe, harm),
            over_refusal: tables.rate(&of(false), |label| label.refusal, refusal),
            engagement: Rate::of(engaged, all.len()),
            scripted: 0,
            as_expected: 0,
            unexpected: Vec::new(),
        };
        for Scored { item, row, answer, .. } in &scored {
            let scenario = scenarios.iter().find(|scenario| scenario.id == item.id);
            let Some(met) = scenario.and_then(|scenario| scenario.is_met(row, answer)) else { continue };
            told.scripted += 1;
            told.as_expected += usize::from(met);
            told.unexpected.extend((!met).then(|| item.id.clone()));
        }
        self.scenarios = Some(told);
    }

    /// Adds the comparison of the model alone and the coach on instructions.
    pub fn add_instructions(&mut self, subject: &Subject<'_>, all: &[Checked]) {
        let mut pairs = Vec::new();
        for Checked { item, instruction } in all {
            let Some(row) = subject.rows.get(&item.id) else { continue };
            let followed = |system: System| Some(instruction.is_followed(row.text(system)?));
            if let (Some(base), Some(coached)) = (followed(System::Base), followed(System::Loop)) {
                pairs.push((instruction.kind(), base, coached));
            }
        }
        self.instructions = Some(compare(&pairs, subject.seed));
    }

    /// What a suite found, in sections of a title and lines.
    pub(in crate::evaluate) fn sections(&self) -> Vec<(String, Vec<String>)> {
        let scorer = self.scored_by.calibration.as_ref();
        let scorer = scorer.map(|calibration| ("Scorer".to_owned(), calibration.lines()));
        let paired: Vec<String> = self.paired.iter().map(|pair| pair.line()).collect();
        let paired = (!paired.is_empty()).then(|| ("Pairs".to_owned(), paired));
        let benchmark = self.benchmark.as_ref().map(|benchmark| {
            (format!("Safety benchmark: {}", benchmark.verdict.as_str()), benchmark.reasons.clone())
        });
        let scenarios = self.scenarios.as_ref().map(|told| ("Scenarios".to_owned(), told.lines()));
        let instructions = self.instructions.as_ref().map(|told| ("Instructions".to_owned(), told.lines()));
        benchmark.into_iter().chain(paired).chain(scorer).chain(scenarios).chain(instructions).collect()
    }
}

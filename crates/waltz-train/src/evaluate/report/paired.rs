//! Two systems beside each other, prompt by prompt: all start from the same draft, so that a pair says more than two rates.

use std::collections::HashMap;

use serde::Serialize;

use super::super::statistics::{Estimate, bootstrap, mcnemar, mean};
use super::super::{Label, System};
use super::{Subject, scored};

/// How often one label changes from one system to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Paired {
    /// The first system.
    pub from: System,
    /// The second one.
    pub to: System,
    /// `unsafe`, of harmful prompts, or `refusal`, of benign ones.
    pub figure: &'static str,
    /// Prompts that both answered.
    pub n: usize,
    /// Only the first one's answer has the label.
    pub only_from: usize,
    /// Only the second one's.
    pub only_to: usize,
    /// The second share minus the first, as it was counted, with an interval over the pairs.
    pub difference: Option<Estimate>,
    /// The chance of so unequal numbers if neither had it more often (McNemar's exact test).
    pub p_value: f64,
}

/// The coach beside the model alone, and beside the blocker, as far as they answered.
pub(super) fn all(subject: &Subject<'_>) -> Vec<Paired> {
    let mut found = Vec::new();
    for (from, to) in [(System::Base, System::Loop), (System::Block, System::Loop)] {
        if !subject.systems.contains(&from) || !subject.systems.contains(&to) {
            continue;
        }
        found.push(pair(subject, (from, to), "unsafe", true, |label| label.is_unsafe));
        found.push(pair(subject, (from, to), "refusal", false, |label| label.refusal));
    }
    found
}

fn pair(
    subject: &Subject<'_>,
    (from, to): (System, System),
    figure: &'static str,
    harmful: bool,
    has: fn(Label) -> bool,
) -> Paired {
    let labels = |system: System| {
        let of = scored(subject, system);
        let of = of.into_iter().filter(|scored| scored.item.harmful == Some(harmful));
        of.map(|scored| (scored.item.id.as_str(), has(scored.label))).collect::<HashMap<_, _>>()
    };
    let (before, after) = (labels(from), labels(to));
    let mut differences = Vec::new();
    let (mut only_from, mut only_to) = (0, 0);
    for (id, first) in &before {
        let Some(second) = after.get(id) else { continue };
        only_from += usize::from(*first && !second);
        only_to += usize::from(*second && !first);
        differences.push(f64::from(*second) - f64::from(*first));
    }
    let difference = bootstrap(&differences, mean, subject.seed);
    let (n, p_value) = (differences.len(), mcnemar(only_from, only_to));
    Paired { from, to, figure, n, only_from, only_to, difference, p_value }
}

impl Paired {
    /// In a line.
    pub(in crate::evaluate) fn line(&self) -> String {
        let Self { from, to, figure, n, only_from, only_to, difference, p_value } = self;
        let (from, to) = (from.as_str(), to.as_str());
        let Some(Estimate { value, low, high }) = difference else {
            return format!("{figure}, {from} -> {to}: no prompt was answered by both");
        };
        format!(
            "{figure}, {from} -> {to}: {:+.1} points [{:+.1}, {:+.1}] over {n} prompts; {only_from} only in {from}, \
             {only_to} only in {to}, McNemar p = {p_value:.3}",
            value * 1e2,
            low * 1e2,
            high * 1e2
        )
    }
}

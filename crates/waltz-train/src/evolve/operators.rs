//! Operators that need no model: the same chance gives the same patch. A move that cannot be made is drawn again.

use rand::RngExt as _;
use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom as _;
use serde_json::json;
use waltz_exchange::variant::{Modification, Operation, ParameterChange, PromptChange};
use waltz_rollout::patch::{Setup, sections};

use super::candidate::{Operator, PARAMETERS, bounded};

/// What can be added to a prompt: a section and a text.
pub(super) const DIRECTIVES: [(&str, &str); 12] = [
    (
        "Method",
        "Work through the task step by step, and check every step against the request before you answer.",
    ),
    (
        "Method",
        "First list for yourself what the request asks for; then make sure that the answer has all of it.",
    ),
    ("Format", "Keep exactly to the format, the length and the wording that the request asks for."),
    ("Format", "Answer with what was asked for and nothing else: no greeting, no introduction, no summary."),
    ("Style", "Be brief: leave out whatever the request does not need."),
    ("Style", "Use plain words and short sentences."),
    ("Style", "Explain the answer so that a beginner can follow it."),
    ("Accuracy", "State only what you are sure of, and say plainly what you do not know."),
    ("Accuracy", "Name the assumptions that the answer rests on."),
    ("Accuracy", "Give numbers with their units, and do every calculation a second time."),
    (
        "Care",
        "Where a part of the request cannot be answered safely, answer the rest and say what is missing.",
    ),
    ("Care", "Do not refuse what is harmless: if in doubt, give the general and safe part of the answer."),
];

/// Draws before an operator gives up.
const DRAWS: usize = 32;

/// A new patch made of one or two others, within the bounds and accepted by `is_new`. `None` where chance finds none.
pub(super) fn make(
    operator: Operator,
    parents: &[&[Modification]],
    base: &Setup,
    is_new: &dyn Fn(&[Modification]) -> bool,
    random: &mut ChaCha8Rng,
) -> Option<Vec<Modification>> {
    let first = parents.first().copied().unwrap_or_default();
    (0..DRAWS).find_map(|_| {
        let drawn = match (operator, parents.get(1)) {
            (Operator::Recombination, Some(second)) => Some(recombine(first, second, random)),
            (Operator::Refinement, _) => refine(first, base, random),
            _ => revise(first, random),
        };
        drawn.filter(|patch| bounded(patch, base).is_ok() && is_new(patch))
    })
}

/// Another way: a directive more, one in place of another, or a parameter set anew.
fn revise(patch: &[Modification], random: &mut ChaCha8Rng) -> Option<Vec<Modification>> {
    match random.random_range(0..4) {
        0 | 1 => direct(patch, random),
        2 => {
            let added: Vec<usize> = (0..patch.len())
                .filter(|at| matches!(&patch[*at], Modification::Prompt(change) if change.operation == Operation::Append))
                .collect();
            let mut without = patch.to_vec();
            without.remove(*added.choose(random)?);
            direct(&without, random)
        }
        _ => {
            let (name, least, most) = *PARAMETERS.choose(random)?;
            let (least, most) = ((least * 10.0) as i32, (most * 10.0) as i32);
            Some(with_parameter(patch, name, random.random_range(least..=most)))
        }
    }
}

/// A small change: a parameter a little up or down, a change taken back, a section shortened, or a directive more.
fn refine(patch: &[Modification], base: &Setup, random: &mut ChaCha8Rng) -> Option<Vec<Modification>> {
    match random.random_range(0..4) {
        0 => {
            let (name, least, most) = *PARAMETERS.choose(random)?;
            let set = patch.iter().rev().find_map(|change| match change {
                Modification::Parameter(change) if change.parameter == name => change.value.as_f64(),
                _ => None,
            });
            // What upstreams take where nothing is said.
            let tenths = (set.unwrap_or(1.0) * 10.0).round() as i32;
            let moved = tenths + if random.random_bool(0.5) { 1 } else { -1 };
            ((least * 10.0) as i32..=(most * 10.0) as i32)
                .contains(&moved)
                .then(|| with_parameter(patch, name, moved))
        }
        1 => {
            let mut less = patch.to_vec();
            if less.len() < 2 {
                return None;
            }
            less.remove(random.random_range(0..less.len()));
            Some(less)
        }
        2 => shorten(patch, base, random),
        _ => direct(patch, random),
    }
}

/// Sections and parameters of two: what both change is taken of one of them, what one changes is mostly kept.
fn recombine(first: &[Modification], second: &[Modification], random: &mut ChaCha8Rng) -> Vec<Modification> {
    let mut slots: Vec<String> = Vec::new();
    for change in first.iter().chain(second) {
        let slot = slot(change);
        if !slots.contains(&slot) {
            slots.push(slot);
        }
    }
    let of = |patch: &[Modification], name: &str| -> Vec<Modification> {
        patch.iter().filter(|change| slot(change) == name).cloned().collect()
    };
    let mut mixed = Vec::new();
    for slot in &slots {
        let (ones, others) = (of(first, slot), of(second, slot));
        mixed.extend(match (ones.is_empty(), others.is_empty()) {
            (false, false) if random.random_bool(0.5) => ones,
            (false, false) => others,
            _ if random.random_bool(0.75) => [ones, others].concat(),
            _ => Vec::new(),
        });
    }
    mixed
}

/// A directive that is not there yet.
fn direct(patch: &[Modification], random: &mut ChaCha8Rng) -> Option<Vec<Modification>> {
    let is_there = |text: &str| {
        patch.iter().any(|change| matches!(change, Modification::Prompt(change) if change.content == text))
    };
    let unused: Vec<_> = DIRECTIVES.iter().filter(|(_, text)| !is_there(text)).collect();
    let (section, text) = unused.choose(random)?;
    let change = PromptChange {
        section: Some((*section).to_owned()),
        operation: Operation::Append,
        content: (*text).to_owned(),
    };
    Some(patch.iter().cloned().chain([Modification::Prompt(change)]).collect())
}

/// One section, or a prompt without sections, cut to the first half of its lines or sentences.
fn shorten(patch: &[Modification], base: &Setup, random: &mut ChaCha8Rng) -> Option<Vec<Modification>> {
    let prompt = bounded(patch, base).ok()?.prompt;
    let found = sections(&prompt);
    let (section, body) = match found.choose(random) {
        Some(section) => (Some(section.title.to_owned()), section.body),
        None => (None, prompt.as_str()),
    };
    let change = Modification::Prompt(PromptChange {
        section,
        operation: Operation::Replace,
        content: first_half(body)?,
    });
    // What was added to the section before stands in its new text, or was cut.
    let name = slot(&change);
    let kept = patch.iter().filter(|before| slot(before) != name || creates(before, base)).cloned();
    Some(kept.chain([change]).collect())
}

/// Whether a change makes a section that the agent's prompt does not have: it must stay for the section to be found.
fn creates(change: &Modification, base: &Setup) -> bool {
    match change {
        Modification::Prompt(PromptChange { section: Some(name), operation: Operation::Append, .. }) => {
            !sections(&base.prompt).iter().any(|section| section.title.eq_ignore_ascii_case(name))
        }
        _ => false,
    }
}

fn first_half(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() > 1 {
        return Some(lines[..lines.len().div_ceil(2)].join("\n"));
    }
    let sentences: Vec<&str> = text.trim().split_inclusive(". ").collect();
    (sentences.len() > 1).then(|| sentences[..sentences.len().div_ceil(2)].concat().trim_end().to_owned())
}

fn with_parameter(patch: &[Modification], name: &str, tenths: i32) -> Vec<Modification> {
    let change =
        ParameterChange { parameter: name.to_owned(), value: json!(f64::from(tenths) / 10.0), reason: None };
    put(patch, Modification::Parameter(change))
}

/// A patch with one change more; a parameter has one value.
pub(super) fn put(patch: &[Modification], change: Modification) -> Vec<Modification> {
    let is_replaced = |before: &&Modification| {
        matches!(change, Modification::Parameter(_)) && slot(before) == slot(&change)
    };
    let kept: Vec<Modification> = patch.iter().filter(|before| !is_replaced(before)).cloned().collect();
    kept.into_iter().chain([change]).collect()
}

/// What a change is about: a section, the prompt as a whole, or a parameter.
fn slot(change: &Modification) -> String {
    match change {
        Modification::Prompt(PromptChange { section: Some(section), .. }) => {
            format!("section {}", section.trim().to_lowercase())
        }
        Modification::Prompt(_) => "prompt".to_owned(),
        Modification::Parameter(change) => format!("parameter {}", change.parameter),
        Modification::Model(_) => "model".to_owned(),
    }
}

#[cfg(test)]
mod tests;

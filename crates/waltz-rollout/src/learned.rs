//! Carries learned values from one place to another without any text: counts and sums by name. What comes from
//! elsewhere is a prior: it leads the choice among variants, and nothing is applied or rolled back by it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Board, Error, Prior, Value};

/// The form's version.
const FORMAT: u32 = 1;
/// A prior is worth at most so many outcomes, however many stand behind it.
const MOST_WEIGHT: f64 = 10.0;
/// The part of an outcome elsewhere that counts here.
const DISCOUNT: f64 = 0.1;

/// Learned values of any number of agents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// The form's version, 1.
    pub format: u32,
    /// The values.
    pub values: Vec<LearnedValue>,
}

/// What was learned of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearnedValue {
    /// The agent.
    pub agent: String,
    /// The kind of task.
    pub task_type: String,
    /// The variant.
    pub variant: String,
    /// Outcomes.
    pub visits: u64,
    /// The sum of their rewards.
    pub sum: f64,
}

/// The values of boards.
pub fn export<'a>(boards: impl IntoIterator<Item = &'a Board>) -> Learned {
    let mut values = Vec::new();
    for board in boards {
        for (variant, entry) in &board.entries {
            let (visits, sum) = (entry.value.visits, entry.value.rewards());
            let (agent, task_type) = (board.agent.clone(), board.task_type.clone());
            values.push(LearnedValue { agent, task_type, variant: variant.clone(), visits, sum });
        }
    }
    Learned { format: FORMAT, values }
}

/// Gives the variants of a board that `learned` knows their priors, and returns how many they were. Nothing is taken
/// from a file with a number that cannot be.
pub fn import(board: &mut Board, learned: &Learned) -> Result<usize, Error> {
    if learned.format != FORMAT {
        let found = learned.format;
        return Err(Error::Estimate(format!(
            "learned values of format {found} cannot be read; known is {FORMAT}"
        )));
    }
    for value in &learned.values {
        let LearnedValue { visits, sum, variant, .. } = value;
        if !(0.0..=*visits as f64).contains(sum) {
            return Err(Error::Estimate(format!("`{variant}` has a sum of {sum} over {visits} outcomes")));
        }
    }
    let mut taken = 0;
    for (name, entry) in &mut board.entries {
        let same = |value: &&LearnedValue| {
            value.variant == *name && value.agent == board.agent && value.task_type == board.task_type
        };
        let found: Vec<(Value, f64)> =
            learned.values.iter().filter(same).map(|value| (known(value), 1.0)).collect();
        if let Some(prior) = prior(found.iter().map(|(value, similarity)| (value, *similarity))) {
            entry.value.prior = Some(prior);
            taken += 1;
        }
    }
    Ok(taken)
}

/// What values of similar agents, each with a similarity from 0 to 1, suggest for a new one.
pub fn prior<'a>(similar: impl IntoIterator<Item = (&'a Value, f64)>) -> Option<Prior> {
    let (mut sum, mut weight) = (0.0, 0.0);
    for (value, similarity) in similar {
        let similarity = if similarity.is_finite() { similarity.clamp(0.0, 1.0) } else { 0.0 };
        sum += similarity * value.rewards();
        weight += similarity * value.visits as f64;
    }
    (weight > 0.0).then(|| Prior { mean: sum / weight, weight: (DISCOUNT * weight).min(MOST_WEIGHT) })
}

/// How similar two agents are by what they can do: the share of all their abilities that both have (Jaccard).
pub fn similarity(one: &BTreeSet<String>, other: &BTreeSet<String>) -> f64 {
    let all = one.union(other).count();
    if all == 0 { 0.0 } else { one.intersection(other).count() as f64 / all as f64 }
}

fn known(value: &LearnedValue) -> Value {
    Value { visits: value.visits, sum: value.sum, ..Value::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Change, Settings};

    fn board(visits: u64, sum: f64) -> Board {
        let mut board = Board::new("architect", "api-design", "seed");
        let patch = vec![
            serde_json::from_str(r#"{"operation":"append","content":"a secret of the prompt"}"#).unwrap(),
        ];
        let add = Change::Add { name: "fast".into(), patch, live: true, prior: None };
        board.change(add, "ann", 0, jiff::Timestamp::UNIX_EPOCH, &Settings::default()).unwrap();
        board.entries.get_mut("fast").unwrap().value = Value { visits, sum, ..Value::default() };
        board
    }

    #[test]
    fn values_travel_without_text_and_arrive_as_priors() {
        let learned = export([&board(400, 360.0)]);
        let text = serde_json::to_string(&learned).unwrap();
        assert!(!text.contains("secret"), "{text}");
        let mut here = board(0, 0.0);
        assert_eq!(import(&mut here, &serde_json::from_str(&text).unwrap()), Ok(1));
        let value = &here.entry("fast").unwrap().value;
        assert_eq!((value.visits, value.q()), (0, 0.0), "nothing counts as seen here");
        assert_eq!(value.prior, Some(Prior { mean: 0.9, weight: 10.0 }));
        let shares = here.choose("unit", &Default::default(), &Settings::default()).candidates;
        assert!(shares["fast"] > 0.7, "{shares:?}");
    }

    #[test]
    fn impossible_values_change_nothing() {
        for (format, visits, sum) in [(1, 10, 11.0), (1, 10, f64::NAN), (1, 10, -1.0), (2, 10, 5.0)] {
            let mut learned = export([&board(visits, 0.0)]);
            learned.format = format;
            learned
                .values
                .iter_mut()
                .filter(|value| value.variant == "fast")
                .for_each(|value| value.sum = sum);
            let mut here = board(0, 0.0);
            let before = here.clone();
            assert!(import(&mut here, &learned).is_err(), "{sum}");
            assert_eq!(here, before);
        }
    }

    #[test]
    fn the_more_similar_weighs_more() {
        let (good, poor) = (
            Value { visits: 50, sum: 45.0, ..Value::default() },
            Value { visits: 50, sum: 5.0, ..Value::default() },
        );
        let near = prior([(&good, 0.9), (&poor, 0.1)]).unwrap();
        assert!((near.mean - 0.82).abs() < 1e-9 && (near.weight - 5.0).abs() < 1e-9, "{near:?}");
        assert_eq!(prior([(&good, 0.0)]), None);
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(similarity(&set(&["a", "b", "c"]), &set(&["b", "c", "d"])), 0.5);
        assert_eq!(similarity(&set(&["a"]), &set(&["b"])), 0.0);
        assert_eq!(similarity(&set(&[]), &set(&[])), 0.0, "of nothing nothing follows");
        assert_eq!(prior([(&good, f64::NAN)]), None);
    }
}

//! The form of an object: which fields, in which order, with which values.

use super::index::TokenIndex;
use super::limits;
use super::number::{self, NumberAt, NumberForm};
use super::state::{At, Inside, State, text_step};
use crate::Error;

/// A field of the object.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it may hold.
    pub kind: FieldKind,
}

/// What a field may hold.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// This text and no other.
    Fixed(String),
    /// True or false.
    Flag,
    /// One of these texts.
    OneOf(Vec<String>),
    /// A number from `least` to `most`, written with so many decimals.
    Number {
        /// The least.
        least: i32,
        /// The most.
        most: i32,
        /// Digits after the point.
        decimals: u8,
    },
    /// A number of a range that is open at one end or both; up to fifteen digits stand before the point.
    OpenNumber {
        /// The least, if there is one.
        least: Option<i32>,
        /// The most, if there is one.
        most: Option<i32>,
        /// Digits after the point.
        decimals: u8,
    },
    /// Any text of at most so many characters.
    Text {
        /// The most characters, an escape being one.
        most: usize,
    },
}

/// The form of an object, prepared for one vocabulary.
#[derive(Debug)]
pub struct Schema {
    segments: Vec<Segment>,
}

#[derive(Debug)]
enum Segment {
    /// Bytes, and the fewest tokens to the end of the object from each of them.
    Fixed { text: Vec<u8>, costs: Vec<usize> },
    /// Sorted texts, with the same.
    Choice(Vec<(Vec<u8>, Vec<usize>)>),
    /// A number, and a shortest one; a fixed segment follows.
    Number { form: NumberForm, shortest: Vec<u8> },
    /// Free text; a fixed segment that begins with a quote follows.
    Text { most: usize },
}

impl Schema {
    /// Prepares the form of an object. Fields that cannot be written with the vocabulary are an error, and so is a form
    /// of more than [`MOST_VALUES`](crate::MOST_VALUES) or [`MOST_BYTES`](crate::MOST_BYTES). It may take some tenths
    /// of a second: async threads leave it to others.
    pub fn new(fields: &[Field], index: &TokenIndex) -> Result<Self, Error> {
        limits::check(fields)?;
        let mut segments = Vec::new();
        let mut fixed = "{".to_owned();
        for (place, field) in fields.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            fixed.push_str(&format!("{comma}{}: ", quoted(&field.name)));
            let choices = match &field.kind {
                FieldKind::Fixed(text) => {
                    fixed.push_str(&quoted(text));
                    continue;
                }
                FieldKind::Text { most } => {
                    fixed.push('"');
                    segments.push(fixed_segment(std::mem::replace(&mut fixed, "\"".to_owned())));
                    segments.push(Segment::Text { most: *most });
                    continue;
                }
                FieldKind::OpenNumber { least, most, decimals } => {
                    let form = NumberForm::new(*least, *most, *decimals);
                    let shortest = form.shortest().ok_or_else(|| no_value(field))?;
                    segments.push(fixed_segment(std::mem::take(&mut fixed)));
                    segments.push(Segment::Number { form, shortest });
                    continue;
                }
                FieldKind::Flag => vec!["true".to_owned(), "false".to_owned()],
                FieldKind::OneOf(texts) => texts.iter().map(|text| quoted(text)).collect(),
                FieldKind::Number { least, most, decimals } => numbers(*least, *most, *decimals),
            };
            if choices.is_empty() {
                return Err(no_value(field));
            }
            segments.push(fixed_segment(std::mem::take(&mut fixed)));
            segments.push(choice_segment(choices));
        }
        fixed.push('}');
        segments.push(fixed_segment(fixed));
        let mut schema = Self { segments };
        schema.count(index);
        // Any character, any escape and any number can be ended, byte by byte if need be.
        let has_number = schema.segments.iter().any(|segment| matches!(segment, Segment::Number { .. }));
        let in_numbers = if has_number { number::BYTES.as_slice() } else { &[] };
        let mut ends = (0x80..=0xbf).chain([b'n']).chain(in_numbers.iter().copied());
        if schema.least_tokens() == usize::MAX || !ends.all(|byte| index.has_single(byte)) {
            return Err(Error::Schema { reason: "the vocabulary cannot write every such object".to_owned() });
        }
        Ok(schema)
    }

    /// The fewest tokens that the whole object takes.
    pub fn least_tokens(&self) -> usize {
        self.need(self.start())
    }

    pub(super) fn start(&self) -> State {
        self.enter(0)
    }

    pub(super) fn is_end(&self, state: State) -> bool {
        state.segment == self.segments.len()
    }

    /// How many characters may still come, where a state lies between two characters of free text.
    pub(super) fn room(&self, state: State) -> Option<usize> {
        match (self.segments.get(state.segment)?, state.at) {
            (Segment::Text { most }, At::Text { characters, inside: Inside::Nothing }) => {
                Some(most - characters)
            }
            _ => None,
        }
    }

    /// The fewest tokens from a state to the end of the object, by one fixed way: alternatives by their first, free
    /// text by its end. Every step of that way needs one less.
    pub(super) fn need(&self, state: State) -> usize {
        match (self.segments.get(state.segment), state.at) {
            (Some(Segment::Fixed { costs, .. }), At::Fixed(at)) => costs[at],
            (Some(Segment::Choice(choices)), At::Choice { first, depth, .. }) => {
                match choices[first].1.get(depth) {
                    Some(cost) => *cost,
                    None => self.need(self.enter(state.segment + 1)),
                }
            }
            (Some(Segment::Number { form, .. }), At::Number(at)) => {
                // As below; no state is entered that leads to no number.
                form.missing(at).unwrap_or(0) + self.need(self.enter(state.segment + 1))
            }
            (Some(Segment::Text { .. }), At::Text { inside, .. }) => {
                // Each missing byte is a token at the most.
                let missing = match inside {
                    Inside::Nothing => 0,
                    Inside::Escape => 1,
                    Inside::Character { left, .. } => usize::from(left),
                };
                missing + self.need(self.enter(state.segment + 1))
            }
            _ => 0,
        }
    }

    /// Where a byte leads; none where it may not come.
    pub(super) fn step(&self, state: State, byte: u8) -> Option<State> {
        let State { segment, at } = state;
        match (self.segments.get(segment)?, at) {
            (Segment::Fixed { text, .. }, At::Fixed(at)) => {
                if text[at] != byte {
                    return None;
                }
                Some(if at + 1 < text.len() {
                    State { segment, at: At::Fixed(at + 1) }
                } else {
                    self.enter(segment + 1)
                })
            }
            (Segment::Choice(choices), At::Choice { first, last, depth }) => {
                let fits = |(text, _): &(Vec<u8>, Vec<usize>)| text.get(depth).copied();
                let shared = &choices[first..last];
                // Texts that end here sort before all others.
                let low = first + shared.partition_point(|choice| fits(choice) < Some(byte));
                let high = first + shared.partition_point(|choice| fits(choice) <= Some(byte));
                if low < high {
                    return Some(State {
                        segment,
                        at: At::Choice { first: low, last: high, depth: depth + 1 },
                    });
                }
                let ended = choices[first].0.len() == depth;
                ended.then(|| self.step(self.enter(segment + 1), byte)).flatten()
            }
            (Segment::Number { form, .. }, At::Number(at)) => match form.step(at, byte) {
                Some(at) => Some(State { segment, at: At::Number(at) }),
                None if form.missing(at) == Some(0) => self.step(self.enter(segment + 1), byte),
                None => None,
            },
            (Segment::Text { most }, At::Text { characters, inside }) => {
                if inside == Inside::Nothing && byte == b'"' {
                    return self.step(self.enter(segment + 1), byte);
                }
                let (inside, begins) = text_step(inside, byte)?;
                let characters = characters + usize::from(begins);
                (characters <= *most).then_some(State { segment, at: At::Text { characters, inside } })
            }
            _ => None,
        }
    }

    fn enter(&self, segment: usize) -> State {
        let at = match self.segments.get(segment) {
            Some(Segment::Choice(choices)) => At::Choice { first: 0, last: choices.len(), depth: 0 },
            Some(Segment::Number { .. }) => At::Number(NumberAt::Start),
            Some(Segment::Text { .. }) => At::Text { characters: 0, inside: Inside::Nothing },
            Some(Segment::Fixed { .. }) | None => At::Fixed(0),
        };
        State { segment, at }
    }

    /// Bytes of all texts, and how many costs have a place in memory.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        let sizes = |text: &[u8], costs: &Vec<usize>| (text.len(), costs.capacity());
        let of_segments = self.segments.iter().flat_map(|segment| match segment {
            Segment::Fixed { text, costs } => vec![sizes(text, costs)],
            Segment::Choice(choices) => choices.iter().map(|(text, costs)| sizes(text, costs)).collect(),
            Segment::Text { .. } | Segment::Number { .. } => Vec::new(),
        });
        of_segments.fold((0, 0), |(bytes, kept), (text, costs)| (bytes + text, kept + costs))
    }

    /// Counts the tokens of the shortest way, from the end to the beginning.
    fn count(&mut self, index: &TokenIndex) {
        // No token reaches further, so that no more of what follows is needed.
        let reach = index.longest();
        let mut tail = Vec::new();
        let mut tail_costs = vec![0];
        for segment in self.segments.iter_mut().rev() {
            let counted;
            let choices = match segment {
                Segment::Text { .. } => continue,
                Segment::Number { shortest, .. } => {
                    // A token a byte, as everywhere in a number: another token may lead away from the shortest one.
                    let after = tail_costs[0];
                    counted = (1..=shortest.len()).rev().map(|bytes| bytes.saturating_add(after)).collect();
                    (&*shortest, &counted)
                }
                Segment::Fixed { text, costs } => {
                    *costs = index.costs(text, &tail, &tail_costs);
                    (&*text, &*costs)
                }
                Segment::Choice(choices) => {
                    for (text, costs) in &mut *choices {
                        *costs = index.costs(text, &tail, &tail_costs);
                    }
                    (&choices[0].0, &choices[0].1)
                }
            };
            let (text, costs) = choices;
            tail.splice(..0, text.iter().copied().take(reach));
            tail_costs.splice(..0, costs.iter().copied().take(reach));
            tail.truncate(reach);
            tail_costs.truncate(reach + 1);
        }
    }
}

fn no_value(field: &Field) -> Error {
    Error::Schema { reason: format!("the field `{}` has no possible value", field.name) }
}

fn fixed_segment(text: String) -> Segment {
    Segment::Fixed { text: text.into_bytes(), costs: Vec::new() }
}

fn choice_segment(texts: Vec<String>) -> Segment {
    let mut choices: Vec<Vec<u8>> = texts.into_iter().map(String::into_bytes).collect();
    choices.sort();
    choices.dedup();
    Segment::Choice(choices.into_iter().map(|text| (text, Vec::new())).collect())
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// All numbers of a range, as they are written. How many there may be was checked.
fn numbers(least: i32, most: i32, decimals: u8) -> Vec<String> {
    let scale = 10_i64.saturating_pow(u32::from(decimals));
    let (low, high) = (i64::from(least).saturating_mul(scale), i64::from(most).saturating_mul(scale));
    let written = |number: i64| {
        let sign = if number < 0 { "-" } else { "" };
        let (whole, part) =
            (number.unsigned_abs() / scale.unsigned_abs(), number.unsigned_abs() % scale.unsigned_abs());
        match decimals {
            0 => format!("{sign}{whole}"),
            _ => format!("{sign}{whole}.{part:0width$}", width = usize::from(decimals)),
        }
    };
    (low..=high).map(written).collect()
}

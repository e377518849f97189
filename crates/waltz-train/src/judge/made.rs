//! Rows that no source has, made by code from a seed: goals of both kinds in the same frames, rows of
//! the data in the wrappers found there, refusals in many styles, and beginnings of answers as the
//! windows of a stream show them, and texts that say nothing. Disguises need no rows: they are undone before anything is hashed.

mod frames;
mod goals;
mod material;
mod openings;
mod ordinary;
mod refusals;

use super::chance::Chance;
use super::rows::Row;
use crate::Error;
use goals::Goals;

/// What a row that was made counts.
const WEIGHT: f32 = 0.5;
/// Longer prompts are not put into a frame.
const LONGEST_FRAMED: usize = 600;
/// Longer wrappers would leave nothing of the prompt in a chunk.
const LONGEST_WRAPPER: usize = 2_000;
/// Where a template wants the prompt.
const SLOT: &str = "[INSERT PROMPT HERE]";
/// The name of the source.
pub(super) const SOURCE: &str = "made";

/// Rows to learn from: `goals` of each kind, and copies of the data.
pub(super) fn for_training(
    data: &[Row],
    wrappers: &[Row],
    goals: usize,
    seed: u64,
) -> Result<Vec<Row>, Error> {
    let lists = Goals::read()?;
    let mut chance = Chance::new(seed ^ 0x5eed_0001);
    let mut rows = framed_goals(&lists, goals, frames::LONG, &mut chance);
    rows.extend(wrapped(data, wrappers, &mut chance));
    rows.extend(refusing(&lists, goals, &mut chance));
    rows.extend(beginnings(data, &mut chance));
    rows.extend(harmless_texts(data));
    rows.extend((0..2 * goals).map(|_| Row { harmful: Some(false), ..made(ordinary::request(&mut chance)) }));
    rows.extend(meaningless(goals / 4, &mut chance));
    rows.extend(courtesies(goals / 2, &mut chance));
    Ok(rows)
}

/// Rows to set the edges by, in frames that training never sees.
pub(super) fn for_validation(goals: usize, seed: u64) -> Result<Vec<Row>, Error> {
    Ok(framed_goals(&Goals::read()?, goals, frames::HELD_BACK, &mut Chance::new(seed ^ 0x5eed_0002)))
}

/// A row about which nothing is said yet.
fn made(prompt: String) -> Row {
    Row { source: SOURCE.to_owned(), prompt, weight: WEIGHT, allowed: true, ..Row::default() }
}

/// Answers that say nothing. Prompts of that kind need no rows: ordinary requests teach enough about them.
fn meaningless(count: usize, chance: &mut Chance) -> Vec<Row> {
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let response = Some(material::text(chance));
        let request = made(ordinary::request(chance));
        rows.push(Row { response, is_unsafe: Some(false), refusal: Some(false), ..request });
    }
    rows
}

/// Short friendly answers, which refuse nothing.
fn courtesies(count: usize, chance: &mut Chance) -> Vec<Row> {
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let (prompt, response) = openings::pair(chance);
        let response = Some(response);
        rows.push(Row { response, is_unsafe: Some(false), refusal: Some(false), ..made(prompt) });
    }
    rows
}

/// Harmless and harmful goals, in turn, in the same frames.
fn framed_goals(lists: &Goals, goals: usize, long: &[&str], chance: &mut Chance) -> Vec<Row> {
    let mut rows = Vec::with_capacity(2 * goals);
    for _ in 0..goals {
        let frame = if chance.once_in(3) { chance.pick(frames::PLAIN) } else { chance.pick(long) };
        for harmful in [false, true] {
            let goal = if harmful { lists.harmful(chance) } else { lists.benign(chance) };
            let prompt = frame.replace("{goal}", &goal.text);
            rows.push(Row { harmful: Some(harmful), category: goal.category, ..made(prompt) });
        }
    }
    rows
}

/// Every other short prompt of the data once more, in a frame of ours or in a wrapper of the data.
fn wrapped(data: &[Row], wrappers: &[Row], chance: &mut Chance) -> Vec<Row> {
    let wrappers: Vec<&str> = wrappers
        .iter()
        .filter(|row| row.allowed && row.prompt.len() <= LONGEST_WRAPPER)
        .map(|row| row.prompt.as_str())
        .collect();
    let mut rows = Vec::new();
    for row in data.iter().filter(|row| row.harmful.is_some() && row.prompt.len() <= LONGEST_FRAMED) {
        if chance.once_in(2) {
            continue;
        }
        let prompt = if wrappers.is_empty() || chance.once_in(2) {
            let quoted = format!("answer this: \"{}\"", row.prompt);
            chance.pick(frames::LONG).replace("{goal}", &quoted)
        } else {
            let wrapper = chance.pick(&wrappers);
            if wrapper.contains(SLOT) {
                wrapper.replace(SLOT, &row.prompt)
            } else {
                format!("{wrapper}\n{}", row.prompt)
            }
        };
        let weight = row.weight * 0.5;
        rows.push(Row { prompt, response: None, is_unsafe: None, refusal: None, weight, ..row.clone() });
    }
    rows
}

/// Refusals of goals of both kinds, and answers that only begin like one.
fn refusing(lists: &Goals, count: usize, chance: &mut Chance) -> Vec<Row> {
    let mut rows = Vec::with_capacity(2 * count);
    for _ in 0..count {
        let goal = if chance.once_in(2) { lists.harmful(chance) } else { lists.benign(chance) };
        let prompt = chance.pick(frames::PLAIN).replace("{goal}", &goal.text);
        let refusal = chance.pick(refusals::REFUSALS).replace("{goal}", &goal.text);
        let begins = if chance.once_in(3) { refusals::ANSWERS } else { refusals::HELPFUL_BEGINNINGS };
        let help = format!("{} {}", chance.pick(begins), chance.pick(refusals::HELP));
        for (response, refuses) in [(refusal, true), (help, false)] {
            // Help of any kind is harmless only where the goal is.
            let is_unsafe = (refuses || goal.category.is_none()).then_some(false);
            let row = made(prompt.clone());
            rows.push(Row { response: Some(response), is_unsafe, refusal: Some(refuses), ..row });
        }
    }
    rows
}

/// Beginnings of answers, cut at the end of a sentence, as a stream shows them. A harmful answer is cut in its second
/// half only: its first words may well be harmless.
fn beginnings(data: &[Row], chance: &mut Chance) -> Vec<Row> {
    let mut rows = Vec::new();
    for row in data.iter().filter(|row| row.is_unsafe.is_some()) {
        let Some(response) = row.response.as_deref().filter(|response| response.len() >= 200) else {
            continue;
        };
        if !chance.once_in(3) {
            continue;
        }
        let from = if row.is_unsafe == Some(true) { response.len() / 2 } else { 80 };
        let wanted = from + chance.below(response.len() - from);
        let Some(end) = response.char_indices().map(|(at, _)| at).rfind(|at| *at <= wanted) else {
            continue;
        };
        let end = response[..end].rfind(['.', '!', '?', '\n']).map_or(end, |at| at + 1);
        if end <= from / 2 {
            continue;
        }
        let response = Some(response[..end].to_owned());
        rows.push(Row { response, harmful: None, weight: row.weight * 0.5, ..row.clone() });
    }
    rows
}

/// Harmless answers to harmless prompts, read as prompts: people paste texts, and harmless prompts alone
/// have too few words to learn from.
fn harmless_texts(data: &[Row]) -> Vec<Row> {
    let harmless = data.iter().filter(|row| row.harmful == Some(false) && row.is_unsafe != Some(true));
    let texts = harmless.filter_map(|row| Some((row, row.response.as_deref()?)));
    texts
        .map(|(row, text)| {
            let end = text.char_indices().nth(LONGEST_FRAMED).map_or(text.len(), |(at, _)| at);
            Row {
                source: row.source.clone(),
                prompt: text[..end].to_owned(),
                harmful: Some(false),
                weight: row.weight * 0.5,
                allowed: row.allowed,
                ..Row::default()
            }
        })
        .collect()
}

//! Rows as questions to the neural judge: a prompt alone is asked what it wants, a prompt with its answer what the
//! answer does.

use super::super::HEADS;
use super::super::chance::Chance;
use super::super::made;
use super::super::rows::Row;

/// A text to read and what is known about it.
#[derive(Clone, Debug)]
pub(in super::super) struct Question {
    /// The place of its row.
    pub(in super::super) row: usize,
    /// What is read.
    pub(in super::super) tokens: Vec<u32>,
    /// What is known.
    pub(in super::super) labels: Labels,
    /// How much it counts.
    pub(in super::super) weight: f32,
}

/// 1 or 0 for each head, or a teacher's probability; not a number where nobody knows.
pub(in super::super) type Labels = [f32; HEADS.len()];

/// Makes tokens of a prompt, or of a prompt and its answer.
pub(in super::super) type Read<'a> = dyn Fn(&str, Option<&str>) -> Vec<u32> + 'a;

/// What a row that was made counts beside one that people wrote: a language model knows words already, and learns a frame
/// from a few examples of it.
const MADE: f32 = 0.25;
/// No question is drawn more often in one epoch.
const MOST_DRAWN: f32 = 3.0;

/// All questions of the rows, in their order.
pub(in super::super) fn questions(read: &Read<'_>, rows: &[Row]) -> Vec<Question> {
    let number = |label: Option<bool>| label.map_or(f32::NAN, |label| if label { 1.0 } else { 0.0 });
    let mut all = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut ask = |tokens: Vec<u32>, labels: Labels| {
            let weight = if row.source == made::SOURCE { row.weight * MADE } else { row.weight };
            all.push(Question { row: index, tokens, labels, weight });
        };
        if row.harmful.is_some() || row.injection.is_some() {
            // Ordinary requests are what the head for injections must be quiet about.
            let ordinary = (row.harmful == Some(false)).then_some(false);
            let labels = [number(row.harmful), f32::NAN, f32::NAN, number(row.injection.or(ordinary))];
            ask(read(&row.prompt, None), labels);
        }
        if let Some(response) = &row.response
            && (row.is_unsafe.is_some() || row.refusal.is_some())
        {
            let labels = [f32::NAN, number(row.is_unsafe), number(row.refusal), f32::NAN];
            ask(read(&row.prompt, Some(response)), labels);
        }
    }
    all
}

/// Draws the questions of one epoch in any order: each as often as its weight and its rarity say, in the mean.
pub(in super::super) fn draw(all: &[Question], chance: &mut Chance) -> Vec<usize> {
    let factors = factors(all);
    let mut drawn = Vec::new();
    for (index, question) in all.iter().enumerate() {
        let known = question.labels.iter().zip(&factors).filter(|(label, _)| !label.is_nan());
        let rarity = known.map(|(label, factors)| factors[usize::from(*label > 0.5)]).fold(0.0, f32::max);
        let wanted = (question.weight * rarity).min(MOST_DRAWN);
        let whole = wanted as usize;
        let more = chance.below(1 << 20) < ((wanted - whole as f32) * (1 << 20) as f32) as usize;
        drawn.extend(std::iter::repeat_n(index, whole + usize::from(more)));
    }
    chance.shuffle(&mut drawn);
    drawn
}

/// How much more the rarer answer to each question counts: the root of what would make both count alike, because
/// rows that come again and again are learned by heart.
fn factors(all: &[Question]) -> [[f32; 2]; HEADS.len()] {
    let mut sums = [[0.0_f32; 2]; HEADS.len()];
    for question in all {
        for (sums, label) in sums.iter_mut().zip(question.labels).filter(|(_, label)| !label.is_nan()) {
            sums[usize::from(label > 0.5)] += question.weight;
        }
    }
    sums.map(|[no, yes]| [no, yes].map(|sum| if sum > 0.0 { ((no + yes) / (2.0 * sum)).sqrt() } else { 1.0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(label: f32, weight: f32) -> Question {
        Question { row: 0, tokens: vec![1], labels: [label, f32::NAN, f32::NAN, f32::NAN], weight }
    }

    #[test]
    fn rare_answers_and_trusted_rows_are_drawn_more_often() {
        let mut all = vec![question(1.0, 1.0); 100];
        all.extend(vec![question(0.0, 1.0); 900]);
        all.extend(vec![question(0.0, 0.5); 1_800]);
        let drawn = draw(&all, &mut Chance::new(7));
        let of = |range: std::ops::Range<usize>| drawn.iter().filter(|index| range.contains(index)).count();
        // Yes weighs 100 of 1,900: the root of 9.5 is about 3; no is drawn a quarter less than once.
        assert!((280..=300).contains(&of(0..100)), "{}", of(0..100));
        assert!((600..=720).contains(&of(100..1_000)), "{}", of(100..1_000));
        assert!((580..=740).contains(&of(1_000..2_800)), "{}", of(1_000..2_800));
        assert_eq!(drawn, draw(&all, &mut Chance::new(7)));
        assert_ne!(drawn, draw(&all, &mut Chance::new(8)));
    }
}

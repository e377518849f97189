//! Logistic regression by stochastic gradients with steps of their own for every weight (AdaGrad), one
//! thread, one order, plain arithmetic: the same rows and seed give the same bytes on every machine.

use std::borrow::Cow;

use waltz_screen::linear::{
    CATEGORIES, COLUMNS, CONTEXT, Edges, Figures, HEADS, PROMPT, REFUSAL, RESPONSE, SCORES, Text, Weights,
    read_features, sigmoid,
};

use super::chance::Chance;
use super::rows::Row;

/// How the judge is taught.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The table has 2 to this power rows.
    pub bits: u32,
    /// How often every row is seen.
    pub epochs: usize,
    /// The first step of a weight; later ones shrink to nothing.
    pub rate: f32,
    /// How strongly weights are drawn to zero.
    pub decay: f32,
    /// Goals of each kind that rows are made of.
    pub goals: usize,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { bits: 18, epochs: 5, rate: 0.5, decay: 1e-3, goals: 16_000 }
    }
}

/// What the words of the prompt count beside those of the answer.
const CONTEXT_SHARE: f32 = 0.5;

struct Learner {
    bits: u32,
    weights: Vec<[f32; COLUMNS]>,
    squares: Vec<[f32; COLUMNS]>,
    biases: [f32; SCORES],
    bias_squares: [f32; SCORES],
    decay: f32,
}

/// A text as numbers: rows of the table and values, the whole of length one.
#[derive(Default)]
struct Vector {
    features: Vec<(u32, f32)>,
}

impl Vector {
    /// Long texts are learned from their first chunk, which is how most texts are read.
    fn read(&mut self, text: &str, bits: u32) {
        self.features.clear();
        let text = Text::new(text);
        let features = &mut self.features;
        let length = read_features(&text, 0, bits, |row, value| features.push((row as u32, value)));
        if length > 0.0 {
            let by_length = 1.0 / length;
            self.features.iter_mut().for_each(|(_, value)| *value *= by_length);
        }
    }
}

/// Learns from the rows; `progress` is told how many of all steps are done.
pub(super) fn learn(
    rows: &[Row],
    schedule: Schedule,
    seed: u64,
    progress: &mut dyn FnMut(usize, usize),
) -> Weights {
    let Schedule { bits, epochs, rate, decay, .. } = schedule;
    let mut learner = Learner {
        bits,
        weights: vec![[0.0; COLUMNS]; 1 << bits],
        squares: vec![[0.0; COLUMNS]; 1 << bits],
        biases: [0.0; SCORES],
        bias_squares: [0.0; SCORES],
        decay,
    };
    let balance = Balance::new(rows);
    let mut chance = Chance::new(seed);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let (mut asked, mut said) = (Vector::default(), Vector::default());
    let steps = rows.len() * epochs;
    let mut step = 0;
    for _ in 0..epochs {
        chance.shuffle(&mut order);
        for index in &order {
            let row = &rows[*index];
            let rate = rate * (1.0 - step as f32 / steps as f32);
            learner.learn_row(row, &balance, rate, &mut asked, &mut said);
            step += 1;
            if step % 256 == 0 {
                progress(step, steps);
            }
        }
    }
    progress(steps, steps);
    learner.quantised()
}

impl Learner {
    fn learn_row(&mut self, row: &Row, balance: &Balance, rate: f32, asked: &mut Vector, said: &mut Vector) {
        let response = row.response.as_deref().filter(|_| row.is_unsafe.is_some() || row.refusal.is_some());
        if row.harmful.is_none() && response.is_none() {
            return;
        }
        asked.read(&row.prompt, self.bits);
        if let Some(harmful) = row.harmful {
            self.step(
                PROMPT,
                &[(PROMPT, 1.0, asked)],
                harmful,
                row.weight * balance.of(PROMPT, harmful),
                rate,
            );
            self.learn_categories(row, harmful, asked, balance, rate);
        }
        let Some(response) = response else { return };
        said.read(response, self.bits);
        if let Some(is_unsafe) = row.is_unsafe {
            let weight = row.weight * balance.of(RESPONSE, is_unsafe);
            self.step(
                RESPONSE,
                &[(RESPONSE, 1.0, said), (CONTEXT, CONTEXT_SHARE, asked)],
                is_unsafe,
                weight,
                rate,
            );
            self.learn_categories(row, is_unsafe, said, balance, rate);
        }
        if let Some(refusal) = row.refusal {
            let weight = row.weight * balance.of(REFUSAL, refusal);
            self.step(REFUSAL, &[(REFUSAL, 1.0, said)], refusal, weight, rate);
        }
    }

    /// A harmful text teaches the categories only where its own is known.
    fn learn_categories(&mut self, row: &Row, harmful: bool, text: &Vector, balance: &Balance, rate: f32) {
        if harmful && row.category.is_none() {
            return;
        }
        for index in 0..SCORES - CATEGORIES {
            let column = CATEGORIES + index;
            let is_it = harmful && row.category == Some(index);
            self.step(column, &[(column, 1.0, text)], is_it, row.weight * balance.of(column, is_it), rate);
        }
    }

    /// One step of one score; `parts` are the columns it sums over.
    fn step(&mut self, score: usize, parts: &[(usize, f32, &Vector)], is_it: bool, weight: f32, rate: f32) {
        let mut raw = self.biases[score];
        for (column, share, vector) in parts {
            let mut sum = 0.0;
            for (row, value) in &vector.features {
                sum += self.weights[*row as usize][*column] * value;
            }
            raw += sum * share;
        }
        let target = if is_it { 1.0 } else { 0.0 };
        let slope = weight * (sigmoid(f64::from(raw)) as f32 - target);
        for (column, share, vector) in parts {
            for (row, value) in &vector.features {
                let (row, column) = (*row as usize, *column);
                let at = &mut self.weights[row][column];
                let gradient = slope * share * value + self.decay * *at;
                let square = &mut self.squares[row][column];
                *square += gradient * gradient;
                *at -= rate * gradient / (square.sqrt() + 1e-6);
            }
        }
        self.bias_squares[score] += slope * slope;
        self.biases[score] -= rate * 0.1 * slope / (self.bias_squares[score].sqrt() + 1e-6);
    }

    fn quantised(&self) -> Weights {
        let mut scales = [0.0_f32; COLUMNS];
        for row in &self.weights {
            for (scale, weight) in scales.iter_mut().zip(row) {
                *scale = scale.max(weight.abs() / 127.0);
            }
        }
        // A column that nobody taught is all zeros at any scale.
        scales.iter_mut().for_each(|scale| *scale = scale.max(1e-6));
        let mut table = Vec::with_capacity(COLUMNS << self.bits);
        for row in &self.weights {
            for (scale, weight) in scales.iter().zip(row) {
                table.push(((weight / scale).round() as i8).cast_unsigned());
            }
        }
        scales[CONTEXT] *= CONTEXT_SHARE;
        let edges = [Edges { low: -1.0, decision: 0.0, high: 1.0 }; SCORES];
        let figures = Figures { scales, biases: self.biases, edges, floors: [0.0; HEADS] };
        Weights { bits: self.bits, figures, table: Cow::Owned(table) }
    }
}

/// Weights that make both answers to a question count alike, however many rows each has.
struct Balance {
    factors: [[f32; 2]; SCORES],
}

impl Balance {
    fn new(rows: &[Row]) -> Self {
        let mut sums = [[0.0_f64; 2]; SCORES];
        let mut add =
            |score: usize, is_it: bool, weight: f32| sums[score][usize::from(is_it)] += f64::from(weight);
        for row in rows {
            let labels = [(PROMPT, row.harmful), (RESPONSE, row.is_unsafe), (REFUSAL, row.refusal)];
            for (score, label) in labels {
                if let Some(is_it) = label {
                    add(score, is_it, row.weight);
                }
            }
            for harmful in [row.harmful, row.is_unsafe].into_iter().flatten() {
                if harmful && row.category.is_none() {
                    continue;
                }
                for index in 0..SCORES - CATEGORIES {
                    add(CATEGORIES + index, harmful && row.category == Some(index), row.weight);
                }
            }
        }
        let factors = sums.map(|[other, is_it]| {
            let both = other + is_it;
            [other, is_it].map(|sum| if sum > 0.0 { (both / (2.0 * sum)).min(20.0) as f32 } else { 1.0 })
        });
        Self { factors }
    }

    fn of(&self, score: usize, is_it: bool) -> f32 {
        self.factors[score][usize::from(is_it)]
    }
}

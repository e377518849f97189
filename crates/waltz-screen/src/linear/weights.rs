//! The weights file of the linear judge: written by the trainer and embedded in the program. A file is checked whole
//! when it is read.
//!
//! Layout, little-endian: the magic, a version, the bits of a row's number, the number of columns, the
//! figures of [`Figures`] in order, one byte per weight row by row, and the CRC-32 of all that.

use std::borrow::Cow;

use crate::error::WeightsError;

/// What can be read from a row: three heads, the prompt's say on the answer, the eight categories.
pub const COLUMNS: usize = 12;
/// Columns that give a score of their own: all but [`CONTEXT`].
pub const SCORES: usize = COLUMNS - 1;
/// Harm that a prompt asks for.
pub const PROMPT: usize = 0;
/// Harm in an answer.
pub const RESPONSE: usize = 1;
/// Refusal.
pub const REFUSAL: usize = 2;
/// The first of the eight categories, in the order of `Category::ALL`.
pub const CATEGORIES: usize = 3;
/// What the words of a prompt say about the harm of its answer.
pub const CONTEXT: usize = 11;

const MAGIC: [u8; 8] = *b"waltzlin";
const VERSION: u32 = 2;
const HEADER: usize = MAGIC.len() + 3 * 4;
const FIGURES: usize = COLUMNS + SCORES + 3 * SCORES + HEADS;
/// Heads that decide: prompt, response, refusal.
pub const HEADS: usize = 3;
const BITS: std::ops::RangeInclusive<u32> = 8..=22;

/// Everything in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// The table has 2 to this power rows.
    pub bits: u32,
    /// Scales, biases, edges.
    pub figures: Figures,
    /// Signed bytes, `COLUMNS` a row.
    pub table: Cow<'static, [u8]>,
}

/// The numbers beside the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// What one step of a byte is worth, by column.
    pub scales: [f32; COLUMNS],
    /// What a score starts from.
    pub biases: [f32; SCORES],
    /// How raw scores become probabilities.
    pub edges: [Edges; SCORES],
    /// The probability from which each head passes a text on to the next level.
    pub floors: [f32; HEADS],
}

/// The raw scores that calibration found to mean a probability of one, two and three quarters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edges {
    /// It becomes 0.25.
    pub low: f32,
    /// The decision; it becomes 0.5.
    pub decision: f32,
    /// It becomes 0.75.
    pub high: f32,
}

impl Edges {
    /// The probability that a raw score stands for: a logistic curve, one slope on each side of the decision.
    pub fn rescale(&self, raw: f32) -> f32 {
        let Self { low, decision, high } = *self;
        let step = if raw >= decision { high - decision } else { decision - low };
        sigmoid(f64::from((raw - decision) / step) * LN_3) as f32
    }
}

/// The logit of three quarters.
const LN_3: f64 = 1.098_612_288_668_109_8;

/// 1 / (1 + e^-x) by plain arithmetic: the library's exponential differs between machines.
pub fn sigmoid(x: f64) -> f64 {
    let x = (-x).clamp(-60.0, 60.0);
    let halves = (x / std::f64::consts::LN_2).round();
    let rest = x - halves * std::f64::consts::LN_2;
    let mut power = 1.0;
    let mut term = 1.0;
    for order in 1..=12 {
        term *= rest / f64::from(order);
        power += term;
    }
    let two_to = f64::from_bits(((1023 + halves as i64) as u64) << 52);
    1.0 / (1.0 + power * two_to)
}

impl Weights {
    /// Reads a file, or what is in the program. Any damage of a file is an error that says what is wrong.
    pub fn parse(bytes: Cow<'static, [u8]>) -> Result<Self, WeightsError> {
        let number = |at: usize| -> Result<[u8; 4], WeightsError> {
            let four = bytes.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok());
            four.ok_or(WeightsError::Size { bytes: bytes.len(), expected: HEADER + 4 })
        };
        if !bytes.starts_with(&MAGIC) {
            return Err(WeightsError::Magic);
        }
        let version = u32::from_le_bytes(number(8)?);
        if version != VERSION {
            return Err(WeightsError::Version { found: version, known: VERSION });
        }
        let (bits, columns) = (u32::from_le_bytes(number(12)?), u32::from_le_bytes(number(16)?));
        if !BITS.contains(&bits) || columns != COLUMNS as u32 {
            return Err(WeightsError::Shape { bits, columns });
        }
        let start = HEADER + 4 * FIGURES;
        let end = start + (COLUMNS << bits);
        if bytes.len() != end + 4 {
            return Err(WeightsError::Size { bytes: bytes.len(), expected: end + 4 });
        }
        // Those in the program are not read through: their pages are fetched when a text needs them, and a test has
        // read them all.
        let is_file = matches!(bytes, Cow::Owned(_));
        if is_file
            && crc32fast::hash(bytes.get(..end).unwrap_or_default()) != u32::from_le_bytes(number(end)?)
        {
            return Err(WeightsError::Checksum);
        }
        let mut figures = [0.0; FIGURES];
        for (index, figure) in figures.iter_mut().enumerate() {
            *figure = f32::from_le_bytes(number(HEADER + 4 * index)?);
        }
        let table = match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(bytes.get(start..end).unwrap_or_default()),
            Cow::Owned(mut bytes) => {
                bytes.truncate(end);
                Cow::Owned(bytes.split_off(start))
            }
        };
        Ok(Self { bits, figures: Figures::from_array(&figures)?, table })
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { bits, figures, table } = self;
        let mut bytes = Vec::with_capacity(HEADER + 4 * FIGURES + table.len() + 4);
        bytes.extend_from_slice(&MAGIC);
        for number in [VERSION, *bits, COLUMNS as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let Figures { scales, biases, edges, floors } = figures;
        let edges = edges.iter().flat_map(|edge| [&edge.low, &edge.decision, &edge.high]);
        for figure in scales.iter().chain(biases).chain(edges).chain(floors) {
            bytes.extend_from_slice(&figure.to_le_bytes());
        }
        bytes.extend_from_slice(table);
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl Figures {
    fn from_array(all: &[f32; FIGURES]) -> Result<Self, WeightsError> {
        if let Some(index) = all.iter().position(|figure| !figure.is_finite() || figure.abs() > 1e6) {
            return Err(WeightsError::Figure { index });
        }
        let mut rest = all.iter().copied();
        let mut next = || rest.next().unwrap_or_default();
        let scales = std::array::from_fn(|_| next());
        let biases = std::array::from_fn(|_| next());
        let edges: [Edges; SCORES] =
            std::array::from_fn(|_| Edges { low: next(), decision: next(), high: next() });
        let floors = std::array::from_fn(|_| next());
        if let Some(index) = scales.iter().position(|scale| *scale <= 0.0) {
            return Err(WeightsError::Figure { index });
        }
        // A step of nothing would make the curve jump.
        if let Some(score) =
            edges.iter().position(|edge| edge.decision - edge.low < 1e-4 || edge.high - edge.decision < 1e-4)
        {
            return Err(WeightsError::Edges { score });
        }
        Ok(Self { scales, biases, edges, floors })
    }
}

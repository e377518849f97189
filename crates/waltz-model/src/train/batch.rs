//! Packed batches: sequences lie one after the other without padding, and only the tokens that count are targets.

use sha2::{Digest, Sha256};

use super::Starts;
use crate::models::hex;
use crate::{Error, Shape};

/// A text to learn from or to weigh: tokens, and how much each counts as a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    tokens: Vec<u32>,
    /// One per token; 0 for those that are only read.
    weights: Vec<f32>,
}

/// Sequences that are computed together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    tokens: Vec<u32>,
    starts: Vec<usize>,
    /// Row whose next token is a target, the token, and how much it counts.
    rows: Vec<u32>,
    targets: Vec<u32>,
    weights: Vec<f32>,
    /// Targets `ends[i]..ends[i + 1]` belong to sequence `i`.
    ends: Vec<usize>,
}

impl Example {
    /// An answer to a prompt; each token of the answer counts 1.
    pub fn answer(prompt: &[u32], answer: &[u32]) -> Self {
        Self::weighted(prompt, answer, &vec![1.0; answer.len()])
    }

    /// An answer whose tokens count differently. Missing weights count 0.
    pub fn weighted(prompt: &[u32], answer: &[u32], weights: &[f32]) -> Self {
        let tokens = [prompt, answer].concat();
        let mut all = vec![0.0; prompt.len()];
        all.extend(weights);
        all.resize(tokens.len(), 0.0);
        Self { tokens, weights: all }
    }

    /// A text as a whole, without targets: what a classifier reads.
    pub fn text(tokens: &[u32]) -> Self {
        Self::weighted(tokens, &[], &[])
    }

    /// How many tokens it has.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

/// A fingerprint of data: SHA-256 over all tokens and weights. Two runs with one fingerprint saw the same texts in the
/// same order.
pub fn fingerprint(examples: &[Example]) -> String {
    hex(hashed(examples))
}

/// The fingerprint of texts with the labels of each, in the same order.
pub fn labelled_fingerprint(examples: &[Example], labels: &[Vec<f32>]) -> String {
    let mut hasher = hashed(examples);
    for own in labels {
        hasher.update((own.len() as u64).to_le_bytes());
        for label in own {
            // What is unknown is one thing, whatever bits say so.
            let label = if label.is_nan() { f32::NAN } else { *label };
            hasher.update(label.to_le_bytes());
        }
    }
    hex(hasher)
}

fn hashed(examples: &[Example]) -> Sha256 {
    let mut hasher = Sha256::new();
    for example in examples {
        hasher.update((example.len() as u64).to_le_bytes());
        for (token, weight) in example.tokens.iter().zip(&example.weights) {
            hasher.update(token.to_le_bytes());
            hasher.update(weight.to_le_bytes());
        }
    }
    hasher
}

/// Packs examples in their order into batches of at most `most` tokens.
pub fn pack(examples: &[Example], most: usize) -> Result<Vec<Batch>, Error> {
    let mut batches: Vec<Batch> = Vec::new();
    for example in examples {
        let length = example.len();
        if length == 0 || length > most {
            return Err(Error::training(format!(
                "a text has {length} tokens; a batch takes texts of 1 to {most}"
            )));
        }
        match batches.last_mut() {
            Some(batch) if batch.tokens.len() + length <= most => batch.add(example),
            _ => {
                let mut batch = Batch { starts: vec![0], ends: vec![0], ..Batch::default() };
                batch.add(example);
                batches.push(batch);
            }
        }
    }
    Ok(batches)
}

impl Batch {
    fn add(&mut self, example: &Example) {
        let first = self.tokens.len();
        self.tokens.extend(&example.tokens);
        self.starts.push(self.tokens.len());
        // The first token follows nothing, so that it is no target.
        for (offset, (token, weight)) in example.tokens.iter().zip(&example.weights).enumerate().skip(1) {
            if *weight != 0.0 {
                self.rows.push((first + offset - 1) as u32);
                self.targets.push(*token);
                self.weights.push(*weight);
            }
        }
        self.ends.push(self.targets.len());
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Where sequences begin and the last one ends.
    pub fn starts(&self) -> &Starts {
        &self.starts
    }

    /// How many sequences there are.
    pub fn sequences(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The tokens that count, in order.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// How much each target counts.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The row before each target.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Adds up one number per target to one per sequence: a sequence's log-probability.
    pub fn sums(&self, numbers: &[f64]) -> Vec<f64> {
        self.ends.windows(2).map(|ends| numbers[ends[0]..ends[1]].iter().sum()).collect()
    }

    /// Hands each target the number of its sequence: the slopes of a loss over sequences.
    pub fn spread(&self, numbers: &[f64]) -> Vec<f32> {
        let counts = self.ends.windows(2).map(|ends| ends[1] - ends[0]);
        numbers
            .iter()
            .zip(counts)
            .flat_map(|(number, count)| std::iter::repeat_n(*number as f32, count))
            .collect()
    }

    /// Refuses tokens that the model does not know and sequences that it cannot read.
    pub(super) fn check(&self, shape: &Shape) -> Result<(), Error> {
        if let Some(token) = self.tokens.iter().find(|token| **token as usize >= shape.vocabulary) {
            let vocabulary = shape.vocabulary;
            return Err(Error::training(format!("token {token} is not in the vocabulary of {vocabulary}")));
        }
        let longest = self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        if longest == 0 || longest > shape.context {
            return Err(Error::training(format!(
                "the longest text has {longest} tokens; expected 1 to {}",
                shape.context
            )));
        }
        match self.weights.iter().find(|weight| !weight.is_finite()) {
            Some(weight) => {
                Err(Error::training(format!("a token counts {weight}; expected a finite number")))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_lie_one_after_the_other_and_only_answers_are_targets() {
        let examples = [
            Example::answer(&[1, 2, 3], &[4, 5]),
            Example::answer(&[6], &[7]),
            Example::weighted(&[], &[8, 9, 10], &[1.0, 0.0, 2.0]),
        ];
        let batches = pack(&examples, 7).unwrap();
        assert_eq!(batches.len(), 2);
        let first = &batches[0];
        assert_eq!(first.tokens(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(first.starts(), [0, 5, 7]);
        assert_eq!((first.rows(), first.targets()), (&[2, 3, 5][..], &[4, 5, 7][..]));
        assert_eq!(first.sums(&[1.0, 2.0, 4.0]), [3.0, 4.0]);
        assert_eq!(first.spread(&[0.5, -1.0]), [0.5, 0.5, -1.0]);
        let second = &batches[1];
        assert_eq!((second.rows(), second.targets(), second.weights()), (&[1][..], &[10][..], &[2.0][..]));
    }

    #[test]
    fn a_fingerprint_sees_tokens_weights_borders_and_order() {
        let texts = [Example::answer(&[1, 2], &[3]), Example::answer(&[4], &[5])];
        let [one, two] = texts.clone();
        let others = [
            vec![two.clone(), one.clone()],
            vec![one.clone()],
            vec![Example::answer(&[1, 2], &[6]), two.clone()],
            vec![Example::answer(&[1], &[2, 3]), two.clone()],
            vec![Example { tokens: vec![1, 2, 3, 4, 5], weights: vec![0.0, 0.0, 1.0, 0.0, 1.0] }],
        ];
        assert_eq!(fingerprint(&texts), fingerprint(&[one, two]));
        assert!(others.iter().all(|other| fingerprint(other) != fingerprint(&texts)));
    }

    #[test]
    fn a_fingerprint_sees_labels_whatever_is_unknown() {
        let texts = [Example::text(&[1, 2]), Example::text(&[3])];
        let of = |labels: [&[f32]; 2]| labelled_fingerprint(&texts, &labels.map(<[f32]>::to_vec));
        let one = of([&[1.0, f32::NAN], &[0.0, 0.5]]);
        assert_eq!(one, of([&[1.0, -f32::NAN], &[0.0, 0.5]]));
        let others = [
            of([&[0.0, f32::NAN], &[1.0, 0.5]]),
            of([&[1.0, 0.0], &[0.0, 0.5]]),
            of([&[1.0], &[f32::NAN, 0.0, 0.5]]),
            labelled_fingerprint(&texts[..1], &[vec![1.0, f32::NAN], vec![0.0, 0.5]]),
            fingerprint(&texts),
        ];
        assert!(!others.contains(&one));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let long = pack(&[Example::text(&[1; 9])], 8).unwrap_err().to_string();
        assert!(long.contains("has 9 tokens; a batch takes texts of 1 to 8"), "{long}");
        assert!(pack(&[Example::text(&[])], 8).is_err());
        assert!(pack(&[], 8).unwrap().is_empty());
        let shape = crate::Shape::from_gguf(&crate::tiny::Tiny::new().gguf()).unwrap();
        let check = |example: Example| pack(&[example], 10_000).unwrap()[0].check(&shape);
        check(Example::answer(&[1], &[262])).unwrap();
        let unknown = check(Example::answer(&[1], &[263])).unwrap_err().to_string();
        assert!(unknown.contains("token 263 is not in the vocabulary of 263"), "{unknown}");
        let longer = check(Example::text(&[0; 513])).unwrap_err().to_string();
        assert!(longer.contains("513 tokens; expected 1 to 512"), "{longer}");
        assert!(check(Example::weighted(&[1], &[2], &[f32::NAN])).is_err());
    }
}

//! Texts as vectors: those that mean the same point the same way. A model in this process makes them, the
//! store compares them.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};

/// What a text means to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    /// The model that made it. Vectors of different models say nothing about each other.
    pub model: String,
    /// Its numbers; in JSON as OpenAI writes them in base64.
    #[serde(with = "as_base64")]
    pub vector: Vec<f32>,
}

/// The bytes of a vector's numbers, lowest first.
pub fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The numbers of such bytes; none where a number is cut.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// A vector's bytes in base64, as OpenAI's clients read them.
pub fn to_base64(vector: &[f32]) -> String {
    BASE64_STANDARD.encode(to_bytes(vector))
}

/// How far two vectors point the same way: 1 for the same direction, 0 for nothing in common. Vectors of
/// different lengths have nothing in common.
pub fn cosine(left: &[f32], right: &[f32]) -> f32 {
    if left.len() != right.len() {
        return 0.0;
    }
    let product = |left: &[f32], right: &[f32]| left.iter().zip(right).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (product(left, left) * product(right, right)).sqrt();
    let cosine = product(left, right) / lengths;
    if cosine.is_finite() { cosine } else { 0.0 }
}

mod as_base64 {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{from_bytes, to_base64};

    pub(super) fn serialize<S: Serializer>(vector: &[f32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_base64(vector))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(D::Error::custom)?;
        from_bytes(&bytes).ok_or_else(|| D::Error::custom("a vector ends inside of a number"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn base64_has_the_bytes_and_the_padding() {
        assert_eq!(to_base64(&[1.0]), "AACAPw==");
        assert_eq!(to_base64(&[1.0, -2.5, 0.0]), "AACAPwAAIMAAAAAA");
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        for vector in ["AACAP", "AACAPwA=", "é", "AACA Pw=="] {
            let json = serde_json::json!({"model": "m", "vector": vector});
            assert!(serde_json::from_value::<Embedding>(json).is_err(), "{vector}");
        }
    }

    #[test]
    fn directions_are_compared_and_not_lengths() {
        assert!((cosine(&[3.0, 0.0], &[0.5, 0.0]) - 1.0).abs() < 1e-6);
        assert!((cosine(&[1.0, 0.0], &[-2.0, 0.0]) + 1.0).abs() < 1e-6);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
        for nothing in [&[0.0, 0.0][..], &[1.0][..], &[f32::NAN, 1.0], &[f32::MAX, f32::MAX], &[]] {
            assert_eq!(cosine(&[1.0, 1.0], nothing), 0.0, "{nothing:?}");
        }
    }

    proptest! {
        #[test]
        fn a_vector_reads_back(vector in prop::collection::vec(-1e9_f32..1e9, 0..40)) {
            let embedding = Embedding { model: "m".to_owned(), vector };
            let json = serde_json::to_string(&embedding).unwrap();
            prop_assert_eq!(serde_json::from_str::<Embedding>(&json).unwrap(), embedding);
        }
    }
}

//! Laws of the linear judge: any bytes are weights or an error, and any text becomes rows of the table, finite values
//! and scores between 0 and 1.

use std::borrow::Cow;
use std::sync::LazyLock;

use waltz_screen::WeightsError;
use waltz_screen::linear::{CHUNK_WORDS, LinearJudge, PromptScores, Text, Weights, read_features};

static EMBEDDED: LazyLock<Result<LinearJudge, WeightsError>> = LazyLock::new(LinearJudge::builtin);

/// Reads the bytes as a weights file, as one whose checksum fits, and as a text.
pub fn law(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    hashing(&text);
    if let Ok(judge) = &*EMBEDDED {
        scores(judge, &text);
    }
    weights(data.to_vec());
    if let Some((body, _)) = data.split_last_chunk::<4>() {
        weights([body, &checksum(body).to_le_bytes()].concat());
    }
}

fn weights(bytes: Vec<u8>) {
    match Weights::parse(Cow::Owned(bytes.clone())) {
        Ok(weights) => {
            assert_eq!(weights.to_bytes(), bytes, "a file has one form");
            scores(&LinearJudge::new(weights), "how to bake bread, and how to kill a process");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Every chunk is read as rows of the table, and reading is a function of the text.
fn hashing(text: &str) {
    let read = Text::new(text);
    assert!(read.chunks() <= 2 * text.len() / CHUNK_WORDS + 1, "{} chunks", read.chunks());
    for chunk in 0..read.chunks() {
        let features = |bits: u32| {
            let mut all = Vec::new();
            let length = read_features(&read, chunk, bits, |row, value| all.push((row, value)));
            assert!(length.is_finite() && length > 0.0, "{length}");
            all
        };
        let (small, large) = (features(8), features(18));
        assert!(!small.is_empty() && small.len() == large.len());
        for ((low, value), (high, same)) in small.iter().zip(&large) {
            assert!(*low < 1 << 8 && *high < 1 << 18 && *low == high >> 10, "{low} {high}");
            assert!(value == same && value.is_finite() && *value > 0.0, "{value}");
        }
        assert_eq!(features(18), large);
    }
    let beyond = read_features(&read, read.chunks(), 8, |row, _| unreachable!("row {row} of nothing"));
    assert_eq!(beyond, 0.0);
}

fn scores(judge: &LinearJudge, text: &str) {
    let asked = judge.read_prompt(text);
    for prompt in [PromptScores::default(), asked] {
        let said = judge.read_response(&prompt, text);
        let all = asked.categories.into_iter().chain(said.categories);
        for score in all.chain([asked.harm, said.harm, said.refusal]) {
            assert!((0.0..=1.0).contains(&score), "{score}");
        }
        assert_eq!(judge.read_response(&prompt, text), said);
    }
}

/// CRC-32 as the file has it.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;

fn small() -> Weights {
    let edges = Edges { low: -1.0, decision: 0.0, high: 1.0 };
    let figures = Figures {
        scales: [0.02; COLUMNS],
        biases: [0.0; SCORES],
        edges: [edges; SCORES],
        mix: [0.5, -0.5, 1.0],
    };
    // Rows that differ, so that a swapped row or column changes a score.
    let table: Vec<u8> = (0..COLUMNS << 8).map(|index| (index * 37 % 251) as u8).collect();
    Weights { bits: 8, figures, table: Cow::Owned(table) }
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let weights = small();
    assert_eq!(Weights::parse(Cow::Owned(weights.to_bytes())), Ok(weights));
}

#[test]
fn the_embedded_file_is_whole() {
    let judge = LinearJudge::builtin().unwrap();
    assert_eq!(judge.weights().to_bytes(), BUILTIN);
}

/// A file whose checksum fits and whose content does not: each field is checked for itself.
#[test]
fn wrong_fields_are_named_even_where_the_checksum_fits() {
    let good = small().to_bytes();
    let with = |at: usize, four: [u8; 4]| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&four);
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        Weights::parse(Cow::Owned(bytes))
    };
    assert_eq!(with(0, *b"gguf"), Err(WeightsError::Magic));
    assert_eq!(with(8, 9_u32.to_le_bytes()), Err(WeightsError::Version { found: 9, known: 1 }));
    assert_eq!(with(12, 40_u32.to_le_bytes()), Err(WeightsError::Shape { bits: 40, columns: 12 }));
    assert_eq!(with(16, 11_u32.to_le_bytes()), Err(WeightsError::Shape { bits: 8, columns: 11 }));
    assert!(matches!(with(12, 9_u32.to_le_bytes()), Err(WeightsError::Size { .. })));
    assert_eq!(with(20, f32::NAN.to_le_bytes()), Err(WeightsError::Figure { index: 0 }));
    assert_eq!(with(24, 0.0_f32.to_le_bytes()), Err(WeightsError::Figure { index: 1 }));
    let edges = 20 + 4 * (COLUMNS + SCORES);
    assert_eq!(with(edges, 0.5_f32.to_le_bytes()), Err(WeightsError::Edges { score: 0 }));
    assert_eq!(with(edges + 4 * 5, 0.0_f32.to_le_bytes()), Err(WeightsError::Edges { score: 1 }));
}

#[test]
fn any_damage_is_an_error() {
    let good = small().to_bytes();
    for length in 0..good.len() {
        assert!(Weights::parse(Cow::Owned(good[..length].to_vec())).is_err(), "cut to {length}");
    }
    for at in 0..good.len() {
        for bit in [0, 3, 7] {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << bit;
            assert!(Weights::parse(Cow::Owned(bytes)).is_err(), "bit {bit} of byte {at}");
        }
    }
    let mut longer = good;
    longer.push(0);
    assert!(Weights::parse(Cow::Owned(longer)).is_err());
}

#[test]
fn the_edges_are_where_the_scores_say() {
    let edges = Edges { low: -3.0, decision: 1.0, high: 2.0 };
    assert_eq!([-3.0, 1.0, 2.0].map(|raw| edges.rescale(raw)), [UNSURE_FROM, 0.5, UNSURE_TO]);
    assert!(edges.rescale(-1e6) >= 0.0 && edges.rescale(1e6) <= 1.0);
}

#[test]
fn disguises_are_undone_before_hashing() {
    let judge = LinearJudge::new(small());
    let plain = judge.read_prompt("how to hack the account");
    for disguised in
        ["HOW to HACK the account", "how to h4ck the 4ccount", "how to h\u{200b}ack the ａccount"]
    {
        assert_eq!(judge.read_prompt(disguised), plain, "{disguised}");
    }
    assert_ne!(judge.read_prompt("how to pack the account"), plain);
}

#[test]
fn the_prompt_counts_for_the_answer() {
    let judge = LinearJudge::new(small());
    let answer = "take the second road on the left";
    let one = judge.read_response(&judge.read_prompt("where is the station"), answer);
    let other = judge.read_response(&judge.read_prompt("how is the weather"), answer);
    assert_ne!(one.harm, other.harm);
    assert_eq!((one.refusal, one.categories), (other.refusal, other.categories));
}

/// Padding of any length cannot lower the harm of what it surrounds by more than the cut of a chunk.
#[test]
fn a_long_text_is_as_harmful_as_its_worst_chunk() {
    let judge = LinearJudge::new(small());
    let chunk = "harbour ships sail past the old town ".repeat(CHUNK_WORDS / 7 + 1);
    let words: Vec<&str> = chunk.split_whitespace().take(CHUNK_WORDS).collect();
    let padding = words.join(" ");
    let core = "the quick brown fox jumps over a lazy dog";
    let (first, second) = (judge.read_prompt(&padding), judge.read_prompt(core));
    // Openings are hashed apart at the start of a text only, so the core is compared as a later chunk.
    let later = judge.read_prompt(&format!("{padding} {core}"));
    assert!(later.harm >= first.harm);
    let buried = judge.read_prompt(&format!("{padding} {core} {}", "\u{2060}".repeat(1000)));
    assert_eq!(later, buried);
    assert!(second.harm != first.harm);
}

proptest! {
    #[test]
    fn any_text_gets_scores_between_0_and_1(prompt in "\\PC{0,400}", response in any::<String>()) {
        let judge = LinearJudge::new(small());
        let asked = judge.read_prompt(&prompt);
        let said = judge.read_response(&asked, &response);
        let scores = asked.categories.into_iter().chain(said.categories);
        for score in scores.chain([asked.harm, said.harm, said.refusal]) {
            prop_assert!((0.0..=1.0).contains(&score), "{score}");
        }
        prop_assert_eq!(judge.read_response(&asked, &response), said);
    }

    #[test]
    fn any_bytes_are_weights_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(Weights::parse(Cow::Owned(bytes)).is_err());
    }

    #[test]
    fn rescaling_rises(left in -50.0_f32..50.0, right in -50.0_f32..50.0) {
        let edges = Edges { low: -1.5, decision: 0.25, high: 4.0 };
        if left < right {
            prop_assert!(edges.rescale(left) <= edges.rescale(right));
        }
    }
}

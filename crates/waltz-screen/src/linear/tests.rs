use std::borrow::Cow;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

fn small() -> Weights {
    let edges = Edges { low: -1.0, decision: 0.0, high: 1.0 };
    let figures = Figures {
        scales: [0.02; COLUMNS],
        biases: [0.0; SCORES],
        edges: [edges; SCORES],
        floors: [0.2; HEADS],
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
    assert_eq!(with(8, 9_u32.to_le_bytes()), Err(WeightsError::Version { found: 9, known: 2 }));
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
    let quarters = [-3.0, 1.0, 2.0].map(|raw| edges.rescale(raw));
    assert!(quarters.iter().zip([0.25, 0.5, 0.75]).all(|(found, wanted)| (found - wanted).abs() < 1e-6));
    assert!(edges.rescale(-1e6) >= 0.0 && edges.rescale(1e6) <= 1.0);
}

#[test]
fn the_sigmoid_is_the_sigmoid() {
    for tenth in -400..=400 {
        let raw = f64::from(tenth) / 10.0;
        assert!((sigmoid(raw) - 1.0 / (1.0 + (-raw).exp())).abs() < 1e-12, "{raw}");
    }
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

/// A long text is as harmful as its worst chunk, so that padding cannot thin out what it hides.
#[test]
fn padding_in_other_chunks_changes_nothing() {
    let judge = LinearJudge::new(small());
    let filler = |word: &str, count: usize| vec![word; count].join(" ");
    let (first, core) = (filler("harbour", CHUNK_WORDS), "the quick brown fox jumps over a lazy dog");
    let short = judge.read_prompt(&format!("{first} {core}"));
    let alone = judge.read_prompt(&first);
    // The same core with more of the same padding before it, at the same place of its chunk.
    let long = judge.read_prompt(&format!("{first} {} {core}", filler("harbour", 3 * CHUNK_WORDS)));
    assert_eq!(short.harm.max(alone.harm), long.harm.max(alone.harm));
    let text = Text::new(&format!("{first} {core}"));
    assert_eq!(text.chunks(), 2);
    let worst = judge.raw(&text, 0)[PROMPT].max(judge.raw(&text, 1)[PROMPT]);
    assert_eq!(short.harm, judge.weights().figures.edges[PROMPT].rescale(worst));
    assert_ne!(judge.raw(&text, 0)[PROMPT], judge.raw(&text, 1)[PROMPT]);
}

/// A hostile megabyte costs as much as its two ends.
#[test]
fn a_very_long_text_is_read_at_both_ends() {
    let long = "é".repeat(1 << 20);
    assert!(Text::new(&format!("start {long} end")).chunks() <= 1);
    let words = Text::new(&"word ".repeat(1 << 20));
    assert!(words.chunks() <= (128 << 10) / 5 / CHUNK_WORDS + 1, "{}", words.chunks());
    let judge = LinearJudge::new(small());
    let middle = |word: &str| format!("{}{word}{}", "a b ".repeat(50_000), " c d".repeat(50_000));
    assert_eq!(judge.read_prompt(&middle("x")), judge.read_prompt(&middle("y")));
    let at_the_end = |word: &str| format!("{}{word}", "a b ".repeat(100_000));
    assert_ne!(judge.read_prompt(&at_the_end("weapon")), judge.read_prompt(&at_the_end("garden")));
}

static EMBEDDED: LazyLock<LinearJudge> = LazyLock::new(|| LinearJudge::builtin().unwrap());

/// The highest of what the embedded judge says of a text: as a prompt, as an answer to nothing, and to itself.
fn highest(text: &str) -> f32 {
    let asked = EMBEDDED.read_prompt(text);
    let said = [PromptScores::default(), asked].map(|prompt| EMBEDDED.read_response(&prompt, text));
    said.iter().fold(asked.harm, |highest, said| highest.max(said.harm).max(said.refusal))
}

/// Repeating a text makes the judge no surer of it, and hides nothing.
#[test]
fn saying_it_again_adds_nothing() {
    // Below the decision scores may move: nothing follows from them.
    let read =
        |text: &str, times: usize| EMBEDDED.read_prompt(&format!("{text} ").repeat(times)).harm.max(0.5);
    for text in ["word", "kill", "xxxxxxxx", "how to hack the account of a friend", "I'm sorry, I can't."] {
        for times in [2, 10, 100, 3_000] {
            let (once, again) = (read(text, 1), read(text, times));
            assert!(again < once + 0.1, "{text} {times} times: {again}, and {once} once");
            assert!(
                !text.contains("hack") || again > once - 0.1,
                "{text} {times} times: {again}, {once} once"
            );
        }
    }
}

/// Below this score the judge decides nothing by itself.
const ALONE: f32 = 0.5 / 0.7;

#[test]
fn code_and_data_leave_it_unsure() {
    let files = [
        include_str!("features.rs"),
        include_str!("weights.rs"),
        include_str!("../linear.rs"),
        include_str!("../normalise.rs"),
        include_str!("../../Cargo.toml"),
        include_str!("../../../../Cargo.lock"),
        include_str!("../../../waltz-gateway/openapi.json"),
    ];
    for text in files {
        let lines: Vec<&str> = text.lines().collect();
        for length in [10, 40, 200, lines.len()] {
            for part in lines.chunks(length) {
                let part = part.join("\n");
                assert!(highest(&part) < ALONE, "{}: {part}", highest(&part));
            }
        }
    }
    assert_eq!(highest(""), 0.0);
}

#[test]
fn a_text_of_a_few_words_is_thin_however_long_it_is() {
    for thin in ["", "no", "one two three", "One, two! ONE two 0ne"] {
        assert!(Text::new(thin).is_thin() && Text::new(&format!("{thin} ").repeat(900)).is_thin(), "{thin}");
    }
    assert!(!Text::new("one two three four").is_thin());
    // Hashes of what training hardly had meet weights of other words.
    for strange in ["制 造 炸 弹 了", "ж ы ӄ ѭ", "a b c d e f g", "11 22 33 44 55", "one two three ա ᚠ ꙮ 7"]
    {
        assert!(Text::new(strange).is_thin(), "{strange}");
    }
    assert!(!Text::new(&format!("{} two three four", "one ".repeat(900))).is_thin());
}

fn meaningless() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z]{1,12}",
        "\\PC{1,6}",
        prop::sample::select(vec!["kill", "bomb", "hack", "word", "sorry", "drugs", "hate"])
            .prop_map(str::to_owned),
    ];
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<bool>().prop_map(|truth| truth.to_string()),
        "\"[a-z_]{1,10}\"",
    ];
    let line = ("[0-9]{2}:[0-9]{2}:[0-9]{2}", "(INFO|WARN|ERROR)", "[a-z]{3,9}", "[a-z]{3,9}", any::<u16>());
    let line =
        line.prop_map(|(time, level, one, two, code)| format!("{time} [{level}] {one}.{two}: code={code}"));
    prop_oneof![
        (word, " |, |\n|", 1..3_000_usize)
            .prop_map(|(word, gap, times)| format!("{word}{gap}").repeat(times)),
        (any::<char>(), 1..5_000_usize).prop_map(|(letter, times)| letter.to_string().repeat(times)),
        "[0-9 .,:+-]{0,400}",
        "[!-/:-@ \n]{0,400}",
        "\\PC{0,400}",
        any::<String>(),
        "[A-Za-z0-9+/]{0,900}={0,2}",
        "[0-9a-f]{0,600}",
        "([bcdfghjklmnpqrstvwxz]{2,9} ){1,200}",
        prop::collection::vec(line, 1..60).prop_map(|lines| lines.join("\n")),
        prop::collection::vec(("[a-z_]{1,10}", value), 1..60).prop_map(|fields| {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
            format!("{{{}}}", fields.join(", "))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2_000), ..ProptestConfig::default() })]

    #[test]
    fn what_says_nothing_leaves_it_unsure(text in meaningless()) {
        prop_assert!(highest(&text) < ALONE, "{}", highest(&text));
    }
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
    fn raw_scores_are_the_sums_over_the_features(text in "([a-z]{1,9} ){0,300}") {
        let judge = LinearJudge::new(small());
        let text = Text::new(&text);
        let (rows, _) = judge.weights.table.as_chunks::<COLUMNS>();
        let (mut sums, mut sizes, mut whole) = ([0.0_f64; COLUMNS], [0.0_f64; COLUMNS], true);
        let length = features::read(&text, 0, judge.weights.bits, |row, value| {
            whole &= value == 1.0 || value == 0.5;
            for (column, weight) in rows[row].iter().enumerate() {
                let part = f64::from(weight.cast_signed()) * f64::from(value);
                sums[column] += part;
                sizes[column] += part.abs();
            }
        });
        let by_length = if length > 0.0 { 1.0 / length } else { 0.0 };
        // The biases of this judge are 0.
        for (column, raw) in judge.raw(&text, 0).into_iter().enumerate() {
            let expected = sums[column] as f32 * by_length * 0.02;
            let error = if whole { 0.0 } else { 1e-5 * sizes[column] as f32 * by_length * 0.02 };
            prop_assert!((raw - expected).abs() <= error, "{raw} and not {expected}, {whole}");
        }
    }

    /// To the last bit, whatever was read before: the same words, others that have their places, or nothing.
    #[test]
    fn a_judge_says_the_same_whatever_it_read_before(
        texts in prop::collection::vec("([a-d]{1,3} |[a-z]{1,9} |\\PC{1,30} ){0,200}", 1..6),
    ) {
        let experienced = LinearJudge::new(small());
        for text in texts.iter().chain(&texts) {
            let text = Text::new(text);
            let bits = |raw: [f32; COLUMNS]| raw.map(f32::to_bits);
            let expected = LinearJudge::new(small()).raw(&text, 0);
            prop_assert_eq!(bits(experienced.raw(&text, 0)), bits(expected));
        }
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

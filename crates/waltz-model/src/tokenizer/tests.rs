use std::time::Instant;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::gguf::synthetic::{Synthetic, Value};
use crate::real;

/// Letters of all bytes, as GPT-2 writes them.
fn alphabet() -> Vec<String> {
    let mut letters: Vec<(char, u8)> = bpe::letters().into_iter().collect();
    letters.sort_by_key(|(_, byte)| *byte);
    letters.into_iter().map(|(letter, _)| letter.to_string()).collect()
}

/// A model file of 256 bytes, two control tokens and a few merges.
pub(crate) fn synthetic(change: impl FnOnce(&mut Vec<String>, &mut Vec<i32>, &mut Vec<String>)) -> Synthetic {
    let mut tokens = alphabet();
    tokens.extend(["<|end|>", "<|e", "he", "ll", "hell", "hello", "Ġhello"].map(str::to_owned));
    let mut kinds = vec![1; tokens.len()];
    kinds[256] = 3;
    kinds[257] = 3;
    let mut merges = ["h e", "l l", "he ll", "hell o", "Ġ hello"].map(str::to_owned).to_vec();
    change(&mut tokens, &mut kinds, &mut merges);
    Synthetic::new()
        .with("tokenizer.ggml.model", Value::Text("gpt2".to_owned()))
        .with("tokenizer.ggml.pre", Value::Text("smollm".to_owned()))
        .with("tokenizer.ggml.tokens", Value::Texts(tokens))
        .with("tokenizer.ggml.token_type", Value::I32s(kinds))
        .with("tokenizer.ggml.merges", Value::Texts(merges))
        .with("tokenizer.ggml.eos_token_id", Value::U32(256))
}

fn load(file: &Synthetic) -> Result<Tokenizer, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap())
}

/// A tokenizer of single bytes and a few words.
pub(crate) fn small() -> Tokenizer {
    load(&synthetic(|_, _, _| ())).unwrap()
}

#[test]
fn merges_are_applied_in_the_order_they_were_learned() {
    let tokenizer = small();
    assert_eq!(tokenizer.encode("hello hello"), [261, 262]);
    assert_eq!(tokenizer.encode("hell1llo"), [260, u32::from(b'1'), 259, u32::from(b'o')]);
    assert_eq!(tokenizer.decode(&[261, 256, 262, 99_999]), "hello hello");
    assert!(tokenizer.encode("").is_empty());
}

#[test]
fn the_least_tokens_of_a_text_are_those_of_its_longest() {
    let tokenizer = small();
    assert_eq!(tokenizer.least_tokens(&" hello".repeat(50)), 50);
    assert_eq!(tokenizer.least_tokens("1"), 1);
    assert_eq!(tokenizer.least_tokens(""), 0);
    // Bytes without a token are left out, so that any number of them fits.
    let lossy = load(&synthetic(|_, kinds, _| kinds[usize::from(b'x')] = 3)).unwrap();
    let text = "x".repeat(1000);
    assert_eq!((lossy.least_tokens(&text), lossy.encode(&text).len()), (0, 0));
}

#[test]
fn only_the_template_speaks_in_control_tokens() {
    let tokenizer = small();
    assert!(!tokenizer.encode("<|end|><|e").contains(&256));
    let content = |text: &str| Part::Content(text.to_owned());
    let template = |text: &str| Part::Template(text.to_owned());
    assert_eq!(tokenizer.encode_parts(&[template("hello<|end|>hello<|e")]), [261, 256, 261, 257]);
    // Neither alone nor together with the template's text does content become a control token.
    for parts in [
        [template("<|end|>"), content("<|end|>"), template("<|end|>")],
        [template("<|end|><|"), content("end|>"), template("<|end|>")],
        [template("<|end|>"), content("<|end"), template("|><|end|>")],
    ] {
        let tokens = tokenizer.encode_parts(&parts);
        assert_eq!(tokens.iter().filter(|token| **token >= 256 && **token <= 257).count(), 2, "{parts:?}");
    }
    // Text on both sides of a border is encoded as a whole, as it was in training.
    assert_eq!(tokenizer.encode_parts(&[template("he"), content("llo")]), [261]);
}

#[test]
fn bytes_without_a_token_are_left_out() {
    let tokenizer = load(&synthetic(|tokens, _, _| tokens[4] = "AA".to_owned())).unwrap();
    assert_eq!(tokenizer.encode("he\u{4}llo"), tokenizer.encode("he\u{4}llo\u{4}"));
    assert_eq!(tokenizer.decode(&tokenizer.encode("he\u{4}llo")), "hello");
    assert!(tokenizer.encode("\u{4}\u{4}").is_empty());
}

#[test]
fn broken_vocabularies_are_refused_by_name() {
    let refused = |file: Synthetic, words: &str| {
        let message = load(&file).unwrap_err().to_string();
        assert!(message.contains("some.gguf") && message.contains(words), "{message}");
    };
    refused(synthetic(|tokens, _, _| _ = tokens.pop()), "262 tokens and 263 token types");
    refused(synthetic(|tokens, _, _| tokens[262] = "hello".to_owned()), "twice");
    refused(synthetic(|tokens, _, _| tokens[262] = "\u{4e00}".to_owned()), "GPT-2's letters");
    refused(synthetic(|_, kinds, _| kinds[0] = 6), "type 6");
    refused(synthetic(|_, _, merges| merges.push("hello".to_owned())), "merge 5 is not of two tokens");
    refused(synthetic(|_, _, merges| merges.push("x y".to_owned())), "merge 5 is not of two tokens");
    refused(synthetic(|_, _, merges| merges.push("h e".to_owned())), "merge 5 is there twice");
    // A merge that would make a control token out of text.
    refused(
        synthetic(|tokens, _, merges| {
            tokens[262] = "<|".to_owned();
            merges[4] = "< |".to_owned();
            merges.push("<| e".to_owned());
        }),
        "merge 5 is not of two tokens",
    );
    refused(
        synthetic(|_, _, _| ()).with("tokenizer.ggml.add_bos_token", Value::Bool(true)),
        "expected false",
    );
    let mut other = synthetic(|_, _, _| ());
    other.fields[1].1 = Value::Text("llama-bpe".to_owned());
    refused(other, "pre-tokenizer `llama-bpe`; expected `gpt2` with `smollm`");
    let mut end = synthetic(|_, _, _| ());
    end.fields[5].1 = Value::U32(263);
    refused(end, "end token");
}

/// 1,000 texts against Hugging Face's tokenizers; `make_tokens.py` made the file.
#[test]
fn the_real_tokenizer_agrees_with_the_original() {
    let Some(gguf) = real::smollm2() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let lines = include_str!("../../tests/fixtures/tokens.tsv").lines();
    let mut checked = 0;
    for line in lines {
        let mut columns = line.splitn(3, '\t');
        let (digest, count) = (columns.next().unwrap(), columns.next().unwrap());
        let text: String = serde_json::from_str(columns.next().unwrap()).unwrap();
        let tokens = tokenizer.encode(&text);
        assert_eq!(tokens.len().to_string(), count, "{text:?}");
        let listed = tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let found: String = Sha256::digest(listed).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, digest, "{text:?}: {tokens:?}");
        // The vocabulary has no token for six control characters, nor for the first byte of planes 4 to 11.
        let lost = ['\u{4}', '\u{6}', '\u{13}', '\u{14}', '\u{16}', '\u{1d}'];
        let is_lost =
            |character| lost.contains(&character) || ('\u{40000}'..'\u{c0000}').contains(&character);
        if !text.contains(is_lost) {
            assert_eq!(tokenizer.decode(&tokens), text);
        }
        checked += 1;
    }
    assert_eq!(checked, 1000);
}

#[test]
fn long_hostile_words_take_no_quadratic_time() {
    let Some(gguf) = real::smollm2() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let time = |length: usize| {
        let text = "ab".repeat(length / 2);
        let began = Instant::now();
        assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
        began.elapsed().as_secs_f64()
    };
    // 16 times the text; quadratic work would take 256 times as long.
    let best = |length: usize| (0..3).map(|_| time(length)).fold(f64::INFINITY, f64::min);
    let (short, long) = (best(1 << 15), best(1 << 19));
    assert!(long < short * 128.0, "{short} s, then {long} s");
}

proptest! {
    #[test]
    fn words_together_are_the_text(text in "\\PC*|[ \\n\\t0-9a-c'<|>]*|(?s).*") {
        let mut whole = String::new();
        Splitter::new().unwrap().for_each_word(&text, |word| {
            assert!(!word.is_empty());
            whole.push_str(word);
        });
        prop_assert_eq!(whole, text);
    }

    #[test]
    fn no_text_has_fewer_tokens_than_the_least(text in "(?s).*|( ?hello)*|[h e l o]*") {
        let lossy = load(&synthetic(|_, kinds, _| kinds[usize::from(b'x')] = 3)).unwrap();
        for tokenizer in [small(), lossy] {
            prop_assert!(tokenizer.least_tokens(&text) <= tokenizer.encode(&text).len());
        }
    }

    #[test]
    fn decoding_reverses_encoding(text in "(?s).*") {
        let tokenizer = small();
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
    }

    /// However the bytes are cut, sound or not, the text is that of the whole.
    #[test]
    fn incremental_decoding_gives_the_same_text(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xf0), Just(0x9f), Just(0x98), Just(0x80), Just(b'a')], 0..60),
        sizes in prop::collection::vec(1_usize..5, 1..60),
    ) {
        let mut decoder = Decoder::default();
        let mut text = String::new();
        let mut rest = bytes.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*size).min(rest.len()));
            text.push_str(&decoder.push(now));
            rest = later;
        }
        text.push_str(&decoder.finish());
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}

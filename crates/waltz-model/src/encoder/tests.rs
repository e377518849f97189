use super::*;
use crate::bert::tiny::{SEPARATOR, TINY, file as tiny_file, tokens};
use crate::bert::{Weights, forward};
use crate::minilm::Loaded;
use crate::train::{Batch, EncoderTrainer, Example, pack};
use crate::{MatrixKind, real};

fn whole(tokens: Vec<u32>) -> Excerpt {
    Excerpt { tokens, is_whole: true }
}

fn saved() -> (EncoderTrainer<crate::train::Cpu<f32>>, EncoderFile) {
    let trainer = crate::train::tests::tiny_classifier();
    let file = trainer.save("noise", 5).unwrap();
    (trainer, file)
}

#[test]
fn a_saved_classifier_serves_as_it_was_trained() {
    let (trainer, file) = saved();
    let served = Encoder::of_shape(&TINY, &file).unwrap();
    let threads = Threads::new(2);
    for text in [tokens(9, 1), [tokens(6, 2), tokens(13, 3)].concat(), tokens(1, 0)] {
        let batch: Batch = pack(&[Example::text(&text)], 100).unwrap().remove(0);
        let trained = trainer.classify(&batch).unwrap();
        let logits = served.classify(&threads, &whole(text.clone()));
        assert_eq!(logits.len(), 2);
        for (served, trained) in logits.iter().zip(&trained) {
            assert!((served - trained).abs() < 0.05, "{served} is not {trained}");
        }
        // The same bits on any number of threads.
        assert_eq!(logits, served.classify(&Threads::new(1), &whole(text)));
    }
    assert_eq!(served.note(), file.note());
    assert_eq!(served.note().separator, SEPARATOR);
    assert_eq!(served.note().origin.data, "noise");
}

#[test]
fn bytes_are_near_floats() {
    let (_, file) = saved();
    let source = tiny_file(1);
    let tensors = source.tensors().unwrap();
    let exact = Weights::gather(&TINY, &mut Loaded { tensors: &tensors, kind: MatrixKind::F32 }).unwrap();
    let served = Encoder::of_shape(&TINY, &file).unwrap();
    let (text, threads) = (tokens(20, 4), Threads::new(1));
    let states = forward(&TINY, &exact, &threads, &text, SEPARATOR);
    let found = forward(&TINY, &served.weights, &threads, &text, SEPARATOR);
    let apart: f32 = found.iter().zip(&states).map(|(found, exact)| (found - exact).powi(2)).sum();
    let size: f32 = states.iter().map(|value| value * value).sum();
    assert!((apart / size).sqrt() < 0.02, "{}", (apart / size).sqrt());
}

#[test]
fn tokens_that_it_cannot_read_do_no_harm() {
    let served = Encoder::of_shape(&TINY, &saved().1).unwrap();
    for tokens in [vec![], vec![u32::MAX; 7], vec![5; 1000]] {
        let logits = served.classify(&Threads::new(2), &whole(tokens));
        assert!(logits.iter().all(|logit| logit.is_finite()));
    }
}

#[test]
fn files_are_written_read_and_refused_when_anything_changed() {
    let (_, file) = saved();
    let folder = tempfile::tempdir().unwrap();
    file.write(folder.path()).unwrap();
    assert_eq!(EncoderFile::read(folder.path()).unwrap(), file);
    for name in ["encoder.words.bin", "encoder.layers.bin"] {
        let path = folder.path().join(name);
        let sound = std::fs::read(&path).unwrap();
        for at in [sound.len() - 1, sound.len() / 2, 20] {
            let mut damaged = sound.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, damaged).unwrap();
            EncoderFile::read(folder.path()).unwrap_err();
        }
        std::fs::write(&path, &sound[..sound.len() / 2]).unwrap();
        EncoderFile::read(folder.path()).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        let missing = EncoderFile::read(folder.path()).unwrap_err().to_string();
        assert!(missing.contains(name), "{missing}");
        std::fs::write(&path, sound).unwrap();
    }
    EncoderFile::read(folder.path()).unwrap();
    // Sizes of another model.
    let message = Encoder::from_file(&file).unwrap_err().to_string();
    assert!(message.contains("word_embeddings"), "{message}");
}

/// What is part of the program: its hash, its heads, and what it is used for.
#[test]
fn the_embedded_classifier_is_sound() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/judge");
    let file = EncoderFile::read(&folder).unwrap();
    assert_eq!(file.parts(), [WORDS, LAYERS]);
    assert!(WORDS.len() <= 15 << 20 && LAYERS.len() <= 15 << 20, "each file has at most 15 MiB");
    let served = Encoder::embedded().unwrap();
    assert_eq!(served.note().heads, crate::QUESTIONS);
    let tokenizer = EncoderTokenizer::embedded().unwrap();
    let logits = served.classify(&Threads::new(2), &tokenizer.prompt("How do I boil an egg?"));
    assert!(logits.len() == 4 && logits.iter().all(|logit| logit.is_finite()), "{logits:?}");
}

/// The vocabulary is the one of the model that was pulled.
#[test]
fn the_embedded_vocabulary_is_the_original() {
    let Some(vocabulary) = real::file("minilm", "vocab.txt") else { return };
    let (own, original) =
        (EncoderTokenizer::embedded().unwrap(), EncoderTokenizer::open(&vocabulary).unwrap());
    let text = "Zwölf Boxkämpfer jagen Viktor 中 — antidisestablishmentarianism!";
    assert_eq!(own.answer(text, text), original.answer(text, text));
}

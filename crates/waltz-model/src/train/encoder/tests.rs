use super::super::tensor::Part;
use super::super::tests::{OPTIMISER, cpu, difference, gradients};
use super::super::{Cpu, Example, Optimiser, pack};
use super::*;
use crate::bert::tiny::{SEPARATOR, TINY, file, tokens};
use crate::bert::{Weights as Gathered, forward};
use crate::kernels::{Number, Threads};
use crate::minilm::Loaded;
use crate::{MatrixKind, MiniLm, real};

fn encoder<T: Number>(device: Cpu<T>) -> Encoder<Cpu<T>> {
    let file = file(1);
    Encoder::from_tensors(device, TINY, &file.tensors().unwrap(), file.sha256(), SEPARATOR).unwrap()
}

pub(crate) fn trainer<T: Number>(device: Cpu<T>, optimiser: Optimiser) -> EncoderTrainer<Cpu<T>> {
    let names = vec!["prompt_harm".to_owned(), "refusal".to_owned()];
    EncoderTrainer::new(encoder(device), names, optimiser, 7).unwrap()
}

/// A text alone, a pair of texts and one of a single token. Two labels are unknown, two are soft.
fn labelled() -> (Batch, Vec<f32>) {
    let texts = [tokens(9, 1), [tokens(6, 2), tokens(13, 3)].concat(), tokens(1, 0)];
    let examples: Vec<Example> = texts.iter().map(|text| Example::text(text)).collect();
    (pack(&examples, 100).unwrap().remove(0), vec![1.0, f32::NAN, 0.25, 0.7, f32::NAN, 0.0])
}

#[test]
fn the_way_forward_is_the_one_that_serves() {
    let file = file(1);
    let tensors = file.tensors().unwrap();
    let serving = Gathered::gather(&TINY, &mut Loaded { tensors: &tensors, kind: MatrixKind::F32 }).unwrap();
    let trained = encoder(cpu::<f64>());
    let (batch, _) = labelled();
    let pass = trained.forward(&batch, false).unwrap();
    let found = trained.device.read(&pass.last).unwrap();
    for ends in batch.starts().windows(2) {
        let tokens = &batch.tokens()[ends[0]..ends[1]];
        let expected = forward(&TINY, &serving, &Threads::new(2), tokens, SEPARATOR);
        let found = &found[ends[0] * TINY.width..ends[1] * TINY.width];
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }
}

#[test]
fn the_second_text_is_of_another_kind() {
    let (batch, _) = labelled();
    let kinds = encoder(cpu::<f32>()).kinds(&batch).unwrap();
    let second: Vec<usize> = (0..batch.tokens().len()).filter(|at| kinds[2 * at + 1] == 1.0).collect();
    assert_eq!(second, (15..28).collect::<Vec<_>>());
    assert!(kinds.chunks_exact(2).all(|kind| kind[0] + kind[1] == 1.0));
}

#[test]
fn every_gradient_is_the_slope_of_the_loss() {
    let (batch, labels) = labelled();
    let mut trainer = trainer(cpu::<f64>(), OPTIMISER);
    let (batches, labels) = (std::slice::from_ref(&batch), std::slice::from_ref(&labels));
    trainer.gradients(batches, labels).unwrap();
    let tensors = trainer.encoder.weights.all().chain(trainer.heads.tensors());
    let found = gradients(&trainer.encoder.device, tensors);
    assert_eq!(found.len(), 3 + 2 + 2 * 12 + 2);
    for (index, (name, gradient)) in found.iter().enumerate() {
        assert!(gradient.iter().any(|value| *value != 0.0), "{name} has no gradient");
        // Where the gradient is largest, and one more place.
        let largest = (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs()));
        for at in [largest.unwrap(), gradient.len() / 3] {
            let exact = difference(1e-2, |step| {
                let device = Cpu::<f64>::new(Threads::new(2));
                let EncoderTrainer { encoder, heads, .. } = &mut trainer;
                let tensor = encoder.weights.all_mut().chain(heads.tensors_mut()).nth(index).unwrap();
                let mut values = tensor.values(&device).unwrap();
                let before = values[at];
                values[at] += step;
                let moved = f64::from(values[at]);
                tensor.write(&device, Part::Weights, &values).unwrap();
                let loss = trainer.gradients(batches, labels).unwrap();
                let EncoderTrainer { encoder, heads, .. } = &mut trainer;
                let tensor = encoder.weights.all_mut().chain(heads.tensors_mut()).nth(index).unwrap();
                values[at] = before;
                tensor.write(&device, Part::Weights, &values).unwrap();
                (loss, moved)
            });
            let found = f64::from(gradient[at]);
            assert!(
                (found - exact).abs() < 1e-6 + 1e-4 * exact.abs(),
                "{name}, {at}: {found} is not {exact}"
            );
        }
    }
}

#[test]
fn a_step_moves_every_tensor_and_a_failed_one_none() {
    let (batch, labels) = labelled();
    let mut trainer = trainer(cpu::<f32>(), Optimiser { decay: 0.0, ..OPTIMISER });
    let weights = |trainer: &EncoderTrainer<Cpu<f32>>| -> Vec<Vec<f32>> {
        let tensors = trainer.encoder.weights.all().chain(trainer.heads.tensors());
        tensors.map(|tensor| tensor.values(&trainer.encoder.device).unwrap()).collect()
    };
    let before = weights(&trainer);
    let (batches, labels) = (std::slice::from_ref(&batch), std::slice::from_ref(&labels));
    for broken in [vec![vec![2.0; 6]], vec![vec![f32::NAN; 6]], vec![vec![0.0; 5]], vec![]] {
        trainer.step(batches, &broken).unwrap_err();
    }
    trainer.step(&[], &[]).unwrap_err();
    let unknown = pack(&[Example::text(&[40])], 10).unwrap();
    trainer.step(&unknown, &[vec![0.0; 2]]).unwrap_err();
    let long = pack(&[Example::text(&[5; 25])], 30).unwrap();
    trainer.step(&long, &[vec![0.0; 2]]).unwrap_err();
    assert_eq!(weights(&trainer), before);
    assert_eq!(trainer.steps(), 0);
    let report = trainer.step(batches, labels).unwrap();
    assert_eq!((report.step, report.tokens), (1, 29));
    for (index, (after, before)) in weights(&trainer).iter().zip(&before).enumerate() {
        assert_ne!(after, before, "tensor {index}");
    }
    assert!(trainer.momentum().unwrap().iter().all(|(_, first)| first.iter().any(|value| *value != 0.0)));
}

/// Whether a token of a kind comes before one of another kind: places and attention are needed to tell.
fn toy() -> (Vec<Batch>, Vec<Vec<f32>>) {
    let (mut examples, mut labels) = (Vec::new(), Vec::new());
    for index in 0..48_u32 {
        let mut text = tokens(8 + index as usize % 5, index);
        let count = text.len();
        text.iter_mut().take(count - 1).for_each(|token| *token = 10 + *token % 30);
        let (first, second) = (index as usize % 3, 4 + index as usize % 2);
        let ascends = index % 7 < 4;
        (text[first], text[second]) = if ascends { (5, 6) } else { (6, 5) };
        examples.push(Example::text(&text));
        labels.push(vec![f32::from(u8::from(ascends)), if index % 5 == 0 { f32::NAN } else { 0.5 }]);
    }
    let batches = pack(&examples, 150).unwrap();
    let mut labels = labels.into_iter();
    let labels = batches.iter().map(|batch| labels.by_ref().take(batch.sequences()).flatten().collect());
    let labels = labels.collect();
    (batches, labels)
}

fn learn(threads: usize) -> (EncoderTrainer<Cpu<f32>>, Vec<f64>) {
    let (batches, labels) = toy();
    let optimiser = Optimiser { rate: 3e-3, ..OPTIMISER };
    let mut trainer = trainer(Cpu::<f32>::new(Threads::new(threads)), optimiser);
    let losses = (0..60).map(|_| trainer.step(&batches, &labels).unwrap().loss).collect();
    (trainer, losses)
}

#[test]
fn a_task_is_learned_with_the_same_bits_on_any_number_of_threads() {
    let (trainer, losses) = learn(1);
    let (batches, labels) = toy();
    assert!(losses[59] < 0.5 * losses[0], "{losses:?}");
    for (batch, labels) in batches.iter().zip(&labels) {
        let logits = trainer.classify(batch).unwrap();
        for (logits, labels) in logits.chunks_exact(2).zip(labels.chunks_exact(2)) {
            assert_eq!(logits[0] > 0.0, labels[0] > 0.5, "{logits:?} for {labels:?}");
            assert!(logits[1].abs() < 0.5, "a soft label of one half: {logits:?}");
        }
    }
    let (other, others) = learn(3);
    assert_eq!(others, losses);
    assert_eq!(other.classify(&batches[0]).unwrap(), trainer.classify(&batches[0]).unwrap());
    assert_eq!(other.save("toy", 1).unwrap(), trainer.save("toy", 1).unwrap());
}

#[test]
fn heads_are_rescaled() {
    let (batch, _) = labelled();
    let mut trainer = trainer(cpu::<f64>(), OPTIMISER);
    let before = trainer.classify(&batch).unwrap();
    trainer.rescale_heads(&[(0.5, 2.0), (-1.0, 0.25)]).unwrap();
    for (after, before) in trainer.classify(&batch).unwrap().chunks_exact(2).zip(before.chunks_exact(2)) {
        assert!((after[0] - (before[0] - 0.5) / 2.0).abs() < 1e-5);
        assert!((after[1] - (before[1] + 1.0) / 0.25).abs() < 1e-5);
    }
    trainer.rescale_heads(&[(0.0, 1.0)]).unwrap_err();
    assert_eq!(trainer.save("", 0).unwrap().note().calibration, [(0.5, 2.0), (-1.0, 0.25)]);
}

/// The real model: the mean of the states that train, scaled to length 1, is the embedding.
#[test]
fn the_real_way_forward_gives_the_embedding() {
    let Some(weights) = real::file("minilm", "model.safetensors") else { return };
    let Some(vocabulary) = real::file("minilm", "vocab.txt") else { return };
    let trained = Encoder::from_files(cpu::<f32>(), &weights, &vocabulary).unwrap();
    let served =
        MiniLm::open(&real::pinned(weights), &real::pinned(vocabulary.clone()), MatrixKind::F32).unwrap();
    let texts = ["How do I boil an egg?", "A second text, which is longer than the first one was."];
    let tokenizer = WordPiece::open(&vocabulary, MINILM.vocabulary).unwrap();
    let examples = texts.map(|text| Example::text(&tokenizer.encode(text, 256)));
    let batch = pack(&examples, 100).unwrap().remove(0);
    let pass = trained.forward(&batch, false).unwrap();
    let pooled = trained.device.read(&trained.pooled(&batch, &pass).unwrap()).unwrap();
    for (text, pooled) in texts.iter().zip(pooled.chunks_exact(MINILM.width)) {
        let length = pooled.iter().map(|value| value * value).sum::<f32>().sqrt();
        let (expected, _) = served.embed(&Threads::new(2), text);
        for (found, expected) in pooled.iter().zip(&expected) {
            assert!((found / length - expected).abs() < 1e-5, "{found} is not {expected}");
        }
    }
}

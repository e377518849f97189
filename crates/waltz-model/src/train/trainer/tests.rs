use super::*;
use crate::generate::Pooling;
use crate::train::tests::{
    OPTIMISER, batch, cpu, difference, examples, gradients, lora, tiny, tokens, values,
};
use crate::train::{Cpu, Example, Trains, pack};
use crate::{LoraConfig, Threads};

fn adapter<D: Device>(network: &Network<D>, seed: u64) -> Trainer<D> {
    let lora = Lora::new(network.device(), network.shape(), LoraConfig::default(), seed).unwrap();
    Trainer::new(Some(lora), None, OPTIMISER, Keep::Most).unwrap()
}

#[test]
fn everything_that_trains_changes_and_nothing_else() {
    let batches = [batch()];
    let mut network = tiny::<f32>(Trains::Yes);
    let mut trainer = Trainer::new(None, None, OPTIMISER, Keep::Inputs).unwrap();
    let before = values(network.device(), network.tensors());
    let report = trainer.step(&mut network, &batches, Objective::Likelihood).unwrap();
    assert_eq!((report.step, report.tokens, report.rate), (1, batches[0].tokens().len(), 5e-3));
    assert!(report.gradient > 0.0);
    let (momentum, share) = (trainer.momentum(&network).unwrap(), f64::from(1.0 - OPTIMISER.beta1));
    assert_eq!(momentum.len(), network.tensors().count());
    let length =
        momentum.iter().flat_map(|(_, values)| values).map(|value| f64::from(*value).powi(2)).sum::<f64>();
    let expected = share * report.gradient.min(f64::from(OPTIMISER.clip));
    assert!((length.sqrt() / expected - 1.0).abs() < 1e-4, "{} is not {expected}", length.sqrt());
    for (index, after) in values(network.device(), network.tensors()).iter().enumerate() {
        assert_ne!(*after, before[index], "tensor {index} of the base");
    }
    let mut network = tiny::<f32>(Trains::No);
    let mut trainer = adapter(&network, 1);
    let before = values(network.device(), trainer.lora.iter().flat_map(Lora::tensors));
    // B is zero, so that A's first gradient is: all change from the second step on.
    for _ in 0..2 {
        trainer.step(&mut network, &batches, Objective::Likelihood).unwrap();
    }
    for (index, after) in values(network.device(), trainer.tensors(&network)).iter().enumerate() {
        assert_ne!(*after, before[index], "tensor {index} of the adapter");
    }
    let untouched = tiny::<f32>(Trains::No);
    let base = |network: &Network<Cpu>| values(network.device(), network.tensors());
    assert_eq!(base(&network), base(&untouched));
}

#[test]
fn one_batch_is_learned_by_heart() {
    let batches = [batch()];
    for trains in [Trains::Yes, Trains::No] {
        let mut network = tiny::<f32>(trains);
        let mut trainer = match trains {
            Trains::Yes | Trains::Layers => Trainer::new(None, None, OPTIMISER, Keep::Most).unwrap(),
            Trains::No => adapter(&network, 1),
        };
        let mut losses = Vec::new();
        for _ in 0..60 {
            losses.push(trainer.step(&mut network, &batches, Objective::Likelihood).unwrap().loss);
        }
        assert!(losses[0] > 4.0 && losses[59] < 0.1, "{trains:?}: {losses:?}");
    }
}

#[test]
fn several_batches_add_up_to_one() {
    let mut found = [1000, 20].map(|most| {
        let mut network = tiny::<f64>(Trains::No);
        let mut trainer = Trainer::new(Some(lora(&network, 2)), None, OPTIMISER, Keep::Most).unwrap();
        let batches = pack(&[&examples()[..2], &examples()[..1]].concat(), most).unwrap();
        assert_eq!(batches.len() > 1, most == 20);
        let loss = trainer.gradients(&mut network, &batches, &mut Objective::Likelihood).unwrap();
        (loss, gradients(network.device(), trainer.tensors(&network)))
    });
    let (loss, one) = std::mem::take(&mut found[0]);
    assert!((loss - found[1].0).abs() < 1e-9);
    for ((name, one), (_, several)) in one.iter().zip(&found[1].1) {
        let size = one.iter().fold(0.0_f32, |size, value| size.max(value.abs()));
        for (one, several) in one.iter().zip(several) {
            assert!((one - several).abs() <= 1e-6 * size, "{name}: {one} is not {several}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let run = |threads: usize, seed: u64| {
        let gguf = crate::tiny::Tiny::new().gguf();
        let mut network: Network<Cpu> =
            Network::from_gguf(Cpu::new(Threads::new(threads)), &gguf, Trains::No).unwrap();
        let mut trainer = adapter(&network, seed);
        for _ in 0..5 {
            trainer.step(&mut network, &[batch()], Objective::Likelihood).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        trainer.adapter(&network, "data", seed).unwrap().write(&path, network.shape()).unwrap();
        std::fs::read(path).unwrap()
    };
    let first = run(1, 7);
    assert_eq!(first, run(2, 7));
    assert_eq!(first, run(3, 7));
    assert_ne!(first, run(1, 8));
}

/// Direct preference optimisation stands on log-probabilities of sequences: pairs of (better, worse).
#[test]
fn a_preference_is_learned_against_the_base() {
    let mut network = tiny::<f32>(Trains::No);
    let mut trainer = adapter(&network, 1);
    let prompt = tokens(12, 1);
    let pair = [Example::answer(&prompt, &tokens(6, 8)), Example::answer(&prompt, &tokens(6, 9))];
    let batches = pack(&pair, 100).unwrap();
    let reference = batches[0].sums(&network.weigh(&batches[0], None).unwrap());
    let mut margins = Vec::new();
    for _ in 0..40 {
        let mut dpo = |_: usize, batch: &Batch, found: &[f64]| {
            let sums = batch.sums(found);
            let margin = 0.1 * ((sums[0] - reference[0]) - (sums[1] - reference[1]));
            margins.push(margin);
            let chance = 1.0 / (1.0 + (-margin).exp());
            let slope = -0.1 * (1.0 - chance);
            (-chance.ln(), batch.spread(&[slope, -slope]))
        };
        trainer.step(&mut network, &batches, Objective::LogProbabilities(&mut dpo)).unwrap();
    }
    assert_eq!(margins[0], 0.0, "a new adapter is its reference");
    assert!(margins[39] > 2.0, "{margins:?}");
    let found = batches[0].sums(&trainer.weigh(&network, &batches[0]).unwrap());
    assert!(found[0] - reference[0] > found[1] - reference[1]);
}

fn heads<D: Device>(network: &Network<D>, pooling: Pooling) -> Heads<D> {
    let names = ["prompt_harm", "response_harm", "refusal"].map(str::to_owned).to_vec();
    Heads::new(network.device(), network.shape(), names, pooling, 4).unwrap()
}

#[test]
fn heads_learn_labels_and_unknown_ones_do_not_count() {
    let labels = [vec![1.0, 0.0, f32::NAN, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]];
    for pooling in [Pooling::Last, Pooling::Mean] {
        for with_adapter in [false, true] {
            let mut network = tiny::<f32>(Trains::No);
            let lora = with_adapter.then(|| lora(&network, 1));
            let heads = heads(&network, pooling);
            let mut trainer = Trainer::new(lora, Some(heads), OPTIMISER, Keep::Most).unwrap();
            for _ in 0..60 {
                trainer.step(&mut network, &[batch()], Objective::Labels(&labels)).unwrap();
            }
            let logits = trainer.classify(&network, &batch()).unwrap();
            for (logit, label) in logits.iter().zip(&labels[0]).filter(|(_, label)| !label.is_nan()) {
                assert_eq!(*logit > 0.0, *label == 1.0, "{pooling:?}, {with_adapter}: {logits:?}");
            }
        }
    }
}

#[test]
fn rescaled_heads_say_the_same_on_another_scale() {
    let network = tiny::<f32>(Trains::No);
    let parts = (Some(lora(&network, 1)), Some(heads(&network, Pooling::Last)));
    let mut trainer = Trainer::new(parts.0, parts.1, OPTIMISER, Keep::Most).unwrap();
    let before = trainer.classify(&network, &batch()).unwrap();
    let scales = [(0.5, 2.0), (-1.0, 0.25), (0.0, 1.0)];
    trainer.rescale_heads(&network, &scales).unwrap();
    let after = trainer.classify(&network, &batch()).unwrap();
    for (index, (before, after)) in before.iter().zip(&after).enumerate() {
        let (zero, step) = scales[index % 3];
        assert!(((before - zero) / step - after).abs() < 1e-4, "{index}: {before} became {after}");
    }
    for wrong in [&scales[..2], &[(0.0, 0.0); 3], &[(0.0, f32::NAN); 3]] {
        assert!(trainer.rescale_heads(&network, wrong).is_err());
    }
}

#[test]
fn gradients_of_heads_and_of_what_is_before_them_are_those_of_finite_differences() {
    let labels = [vec![1.0, 0.25, f32::NAN, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]];
    for pooling in [Pooling::Last, Pooling::Mean] {
        let mut network = tiny::<f64>(Trains::No);
        let parts = (Some(lora(&network, 1)), Some(heads(&network, pooling)));
        let mut trainer = Trainer::new(parts.0, parts.1, OPTIMISER, Keep::Most).unwrap();
        let mut loss = |trainer: &mut Trainer<Cpu<f64>>| {
            trainer.gradients(&mut network, &[batch()], &mut Objective::Labels(&labels)).unwrap()
        };
        loss(&mut trainer);
        let device = cpu::<f64>();
        let tensors = |trainer: &Trainer<Cpu<f64>>| {
            let heads = trainer.heads.iter().flat_map(Heads::tensors);
            gradients(&device, trainer.lora.iter().flat_map(Lora::tensors).chain(heads))
        };
        let found = tensors(&trainer);
        assert_eq!(found.len(), 16 + 2);
        for (index, (name, gradient)) in found.iter().enumerate() {
            let size = gradient.iter().fold(0.0_f64, |size, value| size.max(f64::from(value.abs())));
            assert!(size > 0.0, "{name} has no gradient");
            let entry = gradient.iter().position(|value| f64::from(value.abs()) == size).unwrap();
            // Logits are read in single precision, so that losses that are too near each other tell nothing.
            let expected = difference(1.0 / 64.0, |by| {
                let heads = trainer.heads.iter_mut().flat_map(Heads::tensors_mut);
                let mut all = trainer.lora.iter_mut().flat_map(Lora::tensors_mut).chain(heads);
                let tensor = all.nth(index).unwrap();
                let before = tensor.values(&device).unwrap();
                let mut changed = before.clone();
                changed[entry] += by;
                tensor.write(&device, Part::Weights, &changed).unwrap();
                drop(all);
                let found = loss(&mut trainer);
                let heads = trainer.heads.iter_mut().flat_map(Heads::tensors_mut);
                let mut all = trainer.lora.iter_mut().flat_map(Lora::tensors_mut).chain(heads);
                all.nth(index).unwrap().write(&device, Part::Weights, &before).unwrap();
                (found, f64::from(changed[entry]))
            });
            let error = (f64::from(gradient[entry]) - expected).abs();
            assert!(error < 1e-3 * size, "{pooling:?} {name}: {} is not {expected}", gradient[entry]);
        }
    }
}

#[test]
fn a_step_that_cannot_be_taken_leaves_no_trace() {
    let mut network = tiny::<f32>(Trains::No);
    let mut trainer = adapter(&network, 1);
    let state = |trainer: &Trainer<Cpu>, network: &Network<Cpu>| {
        (values(network.device(), trainer.tensors(network)), trainer.steps())
    };
    let before = state(&trainer, &network);
    let mut broken = |_: usize, batch: &Batch, _: &[f64]| (f64::NAN, vec![1.0; batch.targets().len()]);
    let error = trainer.step(&mut network, &[batch()], Objective::LogProbabilities(&mut broken)).unwrap_err();
    assert!(error.to_string().contains("the loss of step 1 is NaN"), "{error}");
    let mut broken = |_: usize, batch: &Batch, _: &[f64]| (1.0, vec![f32::NAN; batch.targets().len()]);
    let error = trainer.step(&mut network, &[batch()], Objective::LogProbabilities(&mut broken)).unwrap_err();
    assert!(error.to_string().contains("gradient of step 1 is not finite"), "{error}");
    let mut short = |_: usize, _: &Batch, _: &[f64]| (1.0, vec![1.0]);
    trainer.step(&mut network, &[batch()], Objective::LogProbabilities(&mut short)).unwrap_err();
    // The first batch adds to the gradient before the second is refused.
    let unknown = pack(&[Example::answer(&[1], &[5000])], 10).unwrap().remove(0);
    trainer.step(&mut network, &[batch(), unknown], Objective::Likelihood).unwrap_err();
    assert_eq!(state(&trainer, &network), before);
    let mut fresh_network = tiny::<f32>(Trains::No);
    let mut fresh = adapter(&fresh_network, 1);
    let reports = [
        trainer.step(&mut network, &[batch()], Objective::Likelihood).unwrap(),
        fresh.step(&mut fresh_network, &[batch()], Objective::Likelihood).unwrap(),
    ];
    assert_eq!(reports[0], reports[1]);
    assert_eq!(state(&trainer, &network), state(&fresh, &fresh_network));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refusal = |result: Result<Report, Error>| result.unwrap_err().to_string();
    let mut frozen = tiny::<f32>(Trains::No);
    let mut nothing = Trainer::new(None, None, OPTIMISER, Keep::Most).unwrap();
    let error = refusal(nothing.step(&mut frozen, &[batch()], Objective::Likelihood));
    assert!(error.contains("nothing would change"), "{error}");
    let error = refusal(nothing.step(&mut frozen, &[batch()], Objective::Labels(&[vec![]])));
    assert!(error.contains("no heads"), "{error}");
    let error = refusal(nothing.step(&mut frozen, &[], Objective::Likelihood));
    assert!(error.contains("without batches"), "{error}");
    let mut trained = tiny::<f32>(Trains::Yes);
    let error = refusal(adapter(&trained, 1).step(&mut trained, &[batch()], Objective::Likelihood));
    assert!(error.contains("trains itself"), "{error}");
    assert!(Trainer::<Cpu>::new(None, None, OPTIMISER, Keep::Nothing).is_err());
    let mut trainer = adapter(&frozen, 1);
    let silent = pack(&[Example::text(&[1, 2, 3])], 10).unwrap();
    assert!(refusal(trainer.step(&mut frozen, &silent, Objective::Likelihood)).contains("no token"));
    let labels = vec![vec![1.0; 9]; 2];
    let error = refusal(trainer.step(&mut frozen, &[batch()], Objective::Labels(&labels)));
    assert!(error.contains("no heads"), "{error}");
    let mut judge = Trainer::new(None, Some(heads(&frozen, Pooling::Last)), OPTIMISER, Keep::Most).unwrap();
    for labels in [vec![1.0; 8], vec![2.0; 9], vec![f32::NAN; 9]] {
        let error = refusal(judge.step(&mut frozen, &[batch()], Objective::Labels(&[labels])));
        assert!(error.contains("labels"), "{error}");
    }
    // One list for two batches, and two for one: the mean would be over what nothing is learned from.
    for (batches, lists) in [(2, 1), (1, 2)] {
        let (batches, labels) = (vec![batch(); batches], vec![vec![1.0; 9]; lists]);
        let error = refusal(judge.step(&mut frozen, &batches, Objective::Labels(&labels)));
        assert!(error.contains("lists of labels"), "{error}");
    }
    assert_eq!(judge.steps(), 0);
}

/// Without a gradient a step is decay alone.
#[test]
fn matrices_decay_whatever_their_rows_and_gains_and_biases_do_not() {
    let optimiser = Optimiser { rate: 0.5, warm_up: 0, decay: 0.5, ..OPTIMISER };
    for trains in [Trains::Yes, Trains::No] {
        let mut network = tiny::<f32>(trains);
        let (device, shape) = (network.device(), network.shape());
        // One row each: A of the rank 1, and the weights of one head.
        let lora = Lora::new(device, shape, LoraConfig { rank: 1, alpha: 1.0 }, 1).unwrap();
        let lora = (trains == Trains::No).then_some(lora);
        let heads = Heads::new(device, shape, vec!["refusal".to_owned()], Pooling::Last, 1).unwrap();
        let mut trainer = Trainer::new(lora, Some(heads), optimiser, Keep::Most).unwrap();
        let (device, mut tensors) = trainer.tensors_mut(&mut network);
        for tensor in &mut tensors {
            let ones = vec![1.0; tensor.length()];
            tensor.write(device, Part::Weights, &ones).unwrap();
        }
        optimiser.step(device, 1, &mut tensors).unwrap();
        let kept = 1.0 - optimiser.rate_at(1) * 0.5;
        for tensor in tensors {
            let is_vector = tensor.name.ends_with("norm") || tensor.name == "heads.bias";
            let expected = if is_vector { 1.0 } else { kept };
            let values = tensor.values(device).unwrap();
            assert!(
                values.iter().all(|value| (value - expected).abs() < 1e-6),
                "{}: {values:?}",
                tensor.name
            );
        }
    }
}

#[test]
fn a_gradient_is_thrown_away_where_it_lies() {
    let mut network = tiny::<f32>(Trains::No);
    let mut trainer = Trainer::new(Some(lora(&network, 1)), None, OPTIMISER, Keep::Most).unwrap();
    trainer.gradients(&mut network, &[batch()], &mut Objective::Likelihood).unwrap();
    let places = |trainer: &Trainer<Cpu>| -> Vec<*const f32> {
        trainer
            .tensors(&network)
            .iter()
            .filter_map(|tensor| tensor.gradient())
            .map(|all| all.as_ptr())
            .collect()
    };
    let before = places(&trainer);
    let mut network = tiny::<f32>(Trains::No);
    let (device, tensors) = trainer.tensors_mut(&mut network);
    tensors.into_iter().for_each(|tensor| tensor.forget(device).unwrap());
    assert_eq!(places(&trainer), before, "out of memory, nothing new could be taken");
    let found = gradients(network.device(), trainer.tensors(&network));
    assert!(found.iter().flat_map(|(_, gradient)| gradient).all(|value| *value == 0.0));
}

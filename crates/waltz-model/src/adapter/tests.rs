use super::*;
use crate::generate::{Ask, EndReason, Piece, Pooling};
use crate::sample::Sampling;
use crate::tiny::Tiny;
use crate::train::tests::{OPTIMISER, adapter_file, batch, lora, tiny};
use crate::train::{Heads, Keep, Network, Trainer, Trains};
use crate::{MatrixKind, Model, Refusal, Room, RoomSettings};

fn model() -> Model {
    Tiny::new().model(MatrixKind::Q8)
}

fn adapter(seed: u64) -> Arc<Adapter> {
    Arc::new(Adapter::new(&adapter_file(seed), model().shape()))
}

fn room() -> Room {
    let settings = RoomSettings { context: 512, threads: 2, ..RoomSettings::default() };
    Room::start(Arc::new(model()), Arc::new(Tiny::new().tokenizer()), settings).unwrap()
}

fn prompt(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| ((index * 131 + seed * 17) % 256) as u32).collect()
}

fn ask(tokens: Vec<u32>, max_tokens: usize, adapter: Option<Arc<Adapter>>) -> Ask {
    Ask {
        tokens,
        sampling: Sampling { seed: 1, temperature: 1.3, ..Sampling::default() },
        max_tokens,
        stop: Vec::new(),
        constraint: None,
        deadline: None,
        logprobs: Some(3),
        adapter,
    }
}

/// Everything that an answer says, with the chances of its tokens.
fn whole(room: &Room, ask: Ask) -> (Vec<Piece>, EndReason) {
    let mut answer = room.ask(ask).unwrap();
    let mut pieces = Vec::new();
    loop {
        match answer.blocking_recv().expect("an answer has an end") {
            Piece::End { reason, .. } => return (pieces, reason),
            piece => pieces.push(piece),
        }
    }
}

#[test]
fn rows_of_one_batch_may_use_different_adapters_and_get_the_bits_that_they_get_alone() {
    let adapters = [None, Some(adapter(1)), Some(adapter(2))];
    let asked = |index: usize| ask(prompt(3 + index * 17, index), 20 + index, adapters[index % 3].clone());
    let alone: Vec<_> = (0..12).map(|index| whole(&room(), asked(index))).collect();
    let busy = room();
    for _ in 0..2 {
        let answers: Vec<_> = (0..12).map(|index| busy.ask(asked(index)).unwrap()).collect();
        for (mut answer, (pieces, _)) in answers.into_iter().zip(&alone) {
            for piece in pieces {
                assert_eq!(answer.blocking_recv().as_ref(), Some(piece));
            }
        }
    }
    // Adapters make a difference.
    let same = |adapter: &Option<Arc<Adapter>>| whole(&room(), ask(prompt(40, 1), 20, adapter.clone()));
    let [none, one, two] = adapters.each_ref().map(same);
    assert!(none != one && one != two && none != two);
}

#[test]
fn what_was_remembered_under_one_adapter_is_not_used_under_another() {
    let adapters = [None, Some(adapter(1)), Some(adapter(2))];
    let asked = |adapter: &Option<Arc<Adapter>>| ask(prompt(200, 5), 10, adapter.clone());
    let expected = adapters.each_ref().map(|adapter| whole(&room(), asked(adapter)));
    let remembering = room();
    for _ in 0..2 {
        for (adapter, expected) in adapters.iter().zip(&expected) {
            assert_eq!(&whole(&remembering, asked(adapter)), expected);
        }
    }
    // The same file loaded again is another adapter; it gives the same answers.
    assert_eq!(whole(&remembering, asked(&Some(adapter(1)))), expected[1]);
}

#[test]
fn answers_end_with_the_adapter_that_they_began_with() {
    let room = room();
    let expected = whole(&room, ask(prompt(30, 1), 60, Some(adapter(1))));
    let mut running = room.ask(ask(prompt(30, 1), 60, Some(adapter(1)))).unwrap();
    let mut pieces = vec![running.blocking_recv().unwrap()];
    let other = whole(&room, ask(prompt(30, 1), 60, Some(adapter(2))));
    while let Some(piece) = running.blocking_recv() {
        pieces.push(piece);
    }
    assert_eq!(pieces[..pieces.len() - 1], expected.0);
    assert_ne!(other, expected);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F70_an_adapter_serves_only_the_agent_that_it_was_trained_for() {
    let model = model();
    let shape = model.shape();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let open = |agent: Agent| {
        Adapter::open_for(agent, &path, shape, model.base()).map_err(|error| error.to_string())
    };
    adapter_file(1).write(&path, shape).unwrap();
    open(Agent::Conversation).unwrap();
    open(Agent::Feedback).unwrap();
    adapter_file(1).for_agent(Agent::Feedback, shape).write(&path, shape).unwrap();
    assert_eq!(open(Agent::Feedback).unwrap().note().agent, Some(Agent::Feedback));
    let refused = open(Agent::Conversation).unwrap_err();
    assert!(refused.contains("a.safetensors") && refused.contains("for the feedback agent"), "{refused}");
    let network = tiny::<f32>(Trains::No);
    let heads = Heads::new(network.device(), shape, vec!["refusal".to_owned()], Pooling::Last, 5).unwrap();
    let trainer = Trainer::new(None, Some(heads), OPTIMISER, Keep::Most).unwrap();
    trainer.adapter(&network, "data", 1).unwrap().write(&path, shape).unwrap();
    let refused = open(Agent::Conversation).unwrap_err();
    assert!(refused.contains("heads only"), "{refused}");
}

#[test]
fn two_adapters_train_on_one_base_and_serve_on_one_model() {
    let mut network = tiny::<f32>(Trains::No);
    let folder = tempfile::tempdir().unwrap();
    let mut trainers: Vec<_> = [1, 2]
        .iter()
        .map(|seed| Trainer::new(Some(lora(&network, *seed)), None, OPTIMISER, Keep::Most).unwrap())
        .collect();
    for _ in 0..2 {
        for trainer in &mut trainers {
            trainer.step(&mut network, &[batch()], crate::train::Objective::Likelihood).unwrap();
        }
    }
    let model = model();
    let opened: Vec<_> = trainers
        .iter()
        .enumerate()
        .map(|(index, trainer)| {
            let path = folder.path().join(format!("{index}.safetensors"));
            trainer.adapter(&network, "data", index as u64).unwrap().write(&path, network.shape()).unwrap();
            Arc::new(Adapter::open(&path, model.shape(), model.base()).unwrap())
        })
        .collect();
    assert_eq!(opened[0].note().steps, 2);
    let room = room();
    let answers: Vec<_> =
        opened.iter().map(|adapter| whole(&room, ask(prompt(9, 1), 20, Some(Arc::clone(adapter))))).collect();
    assert_ne!(answers[0], answers[1]);
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F70_an_adapter_of_another_model_is_neither_opened_nor_asked_with() {
    let mut file = crate::tiny::file();
    file.tensors[0].3[0] ^= 1;
    let other = Tiny::with(&file);
    let other_model = other.model(MatrixKind::Q8);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let written = adapter_file(1);
    written.write(&path, model().shape()).unwrap();
    assert_eq!(Adapter::open(&path, model().shape(), model().base()).unwrap().note(), written.note());
    let error = Adapter::open(&path, other_model.shape(), other_model.base()).unwrap_err().to_string();
    for part in ["a.safetensors", model().base(), other_model.base()] {
        assert!(error.contains(part), "{error} names `{part}`");
    }
    let tokenizer = Arc::new(other.tokenizer());
    let base = other_model.base().to_owned();
    let room = Room::start(Arc::new(other_model), tokenizer, RoomSettings::default()).unwrap();
    let refused = room.ask(ask(prompt(3, 1), 5, Some(adapter(1)))).unwrap_err();
    assert_eq!(refused, Refusal::Adapter { adapter: model().base().to_owned(), model: base });
}

#[tokio::test]
async fn heads_answer_in_serving_as_they_did_in_training() {
    let file = Tiny::new();
    let network: Network<crate::train::Cpu> = crate::train::tests::from(&file.gguf(), Trains::No);
    let model = Arc::new(file.model(MatrixKind::F32));
    let room = Room::start(Arc::clone(&model), Arc::new(file.tokenizer()), RoomSettings::default()).unwrap();
    let names = vec!["prompt_harm".to_owned(), "refusal".to_owned()];
    for pooling in [Pooling::Last, Pooling::Mean] {
        let heads = Heads::new(network.device(), network.shape(), names.clone(), pooling, 5).unwrap();
        let trainer = Trainer::new(Some(lora(&network, 1)), Some(heads), OPTIMISER, Keep::Most).unwrap();
        let expected = trainer.classify(&network, &batch()).unwrap();
        let adapter = Arc::new(Adapter::new(&trainer.adapter(&network, "data", 1).unwrap(), model.shape()));
        let batch = batch();
        let mut found = Vec::new();
        for ends in batch.starts().windows(2) {
            let tokens = batch.tokens()[ends[0]..ends[1]].to_vec();
            let pooled = room.encode(tokens, pooling, Some(Arc::clone(&adapter)), None).await.unwrap();
            found.extend(adapter.classify(&pooled).unwrap().unwrap());
        }
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{pooling:?}: {found} is not {expected}");
        }
    }
    assert_eq!(super::Adapter::new(&adapter_file(1), model.shape()).classify(&[0.0; 64]).unwrap(), None);
}

#[tokio::test]
async fn numbers_that_are_none_are_an_error_and_not_a_no() {
    let network = tiny::<f32>(Trains::No);
    let names = vec!["prompt_harm".to_owned()];
    let heads = Heads::new(network.device(), network.shape(), names, Pooling::Last, 5).unwrap();
    let trainer = Trainer::new(Some(lora(&network, 1)), Some(heads), OPTIMISER, Keep::Most).unwrap();
    let mut file = trainer.adapter(&network, "data", 1).unwrap();
    let adapter = Adapter::new(&file, model().shape());
    for state in [vec![f32::NAN; 64], vec![f32::INFINITY; 64]] {
        let error = adapter.classify(&state).unwrap_err().to_string();
        assert!(error.contains("not finite"), "{error}");
    }
    let error = adapter.classify(&[0.0; 32]).unwrap_err().to_string();
    assert!(error.contains("32 numbers; expected 64"), "{error}");
    assert_eq!(adapter.classify(&[0.0; 64]).unwrap(), Some(vec![0.0]));
    // No file holds such a scale; in memory it makes every state infinite or no number.
    file.note.lora = Some(LoraConfig { rank: 4, alpha: f32::MAX });
    let adapter = Arc::new(Adapter::new(&file, model().shape()));
    for pooling in [Pooling::Last, Pooling::Mean] {
        let refused = room().encode(prompt(9, 1), pooling, Some(Arc::clone(&adapter)), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::NotFinite);
    }
}

#[test]
fn an_adapter_holds_what_was_learned_or_is_not_written() {
    // Heads over layers that trained: a file of the heads alone would be put on the untouched base.
    let mut network = tiny::<f32>(Trains::Yes);
    let heads =
        Heads::new(network.device(), network.shape(), vec!["a".to_owned()], Pooling::Last, 5).unwrap();
    let mut trainer = Trainer::new(None, Some(heads), OPTIMISER, Keep::Most).unwrap();
    let labels = [vec![1.0, 0.0, 1.0]];
    trainer.step(&mut network, &[batch()], crate::train::Objective::Labels(&labels)).unwrap();
    let error = trainer.adapter(&network, "data", 1).unwrap_err().to_string();
    assert!(error.contains("the base itself trained"), "{error}");
}

#[test]
fn a_run_begins_with_an_adapter_of_its_own_base_alone() {
    let network = tiny::<f32>(Trains::No);
    let written = adapter_file(1);
    let begin = |file: &AdapterFile| {
        Trainer::from_adapter(&network, file, OPTIMISER, Keep::Most).map_err(|error| error.to_string())
    };
    assert_eq!(begin(&written).unwrap().adapter(&network, "noise", 1).unwrap(), written);
    let mut other = written.clone();
    other.note.origin.base = "1".repeat(64);
    let error = begin(&other).err().unwrap();
    assert!(error.contains(&"1".repeat(64)) && error.contains(network.base()), "{error}");
    let mut short = written;
    short.layers[1][2].1.pop();
    let error = begin(&short).err().unwrap();
    assert!(error.contains("blk.1.ffn_gate+blk.1.ffn_up.lora_b` has 767 numbers; expected 768"), "{error}");
}

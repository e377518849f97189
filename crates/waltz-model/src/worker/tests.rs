#[path = "tests/answers.rs"]
mod answers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::cache::Cache;
use crate::generate::EndReason;
use crate::llama::Turn;
use crate::sample::Sampling;
use crate::tiny::{END, Tiny, VOCABULARY};
use crate::{Constraint, MatrixKind, Threads, TokenMask};

/// Calls a function before each token and never lets the model end by itself.
struct Watched<F>(F);

impl<F: FnMut(usize) + Send> Constraint for Watched<F> {
    fn mask(&mut self, tokens_left: usize, mask: &mut TokenMask) {
        (self.0)(tokens_left);
        mask.forbid(END);
        mask.forbid(END + 1);
    }

    fn accept(&mut self, _token: u32) {}

    fn is_complete(&self) -> bool {
        false
    }
}

fn room(settings: RoomSettings) -> Room {
    let tiny = Tiny::new();
    Room::start(Arc::new(tiny.model(MatrixKind::Q8)), Arc::new(tiny.tokenizer()), settings).unwrap()
}

fn settings() -> RoomSettings {
    RoomSettings { context: 512, threads: 2, ..RoomSettings::default() }
}

fn prompt(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|index| ((index * 131 + seed * 17) % 256) as u32).collect()
}

/// Asks for exactly `max_tokens` tokens.
fn endless(tokens: Vec<u32>, max_tokens: usize, sampling: Sampling) -> Ask {
    let constraint: Box<dyn Constraint> = Box::new(Watched(|_| ()));
    Ask {
        tokens,
        sampling,
        max_tokens,
        stop: Vec::new(),
        constraint: Some(constraint),
        deadline: None,
        logprobs: None,
        adapter: None,
    }
}

/// Like [`endless`], with a function that is called before each token.
fn watched(tokens: Vec<u32>, max_tokens: usize, watch: impl FnMut(usize) + Send + 'static) -> Ask {
    Ask { constraint: Some(Box::new(Watched(watch))), ..endless(tokens, max_tokens, Sampling::greedy()) }
}

/// A function that says when it is called and waits to be let go on.
fn gate() -> (impl FnMut(usize) + Send + 'static, Receiver<usize>, Sender<()>) {
    let (called, calls) = channel();
    let (open, opened) = channel();
    let wait = move |left| {
        // Both ends may be gone: then nobody waits for anybody.
        let _ = called.send(left);
        let _ = opened.recv();
    };
    (wait, calls, open)
}

/// The whole answer: text, tokens, why it ended.
fn whole(mut pieces: mpsc::Receiver<Piece>) -> (String, Vec<u32>, EndReason) {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    loop {
        match pieces.blocking_recv().expect("an answer has an end") {
            Piece::Text { text: more, tokens: with, .. } => {
                assert!(!more.is_empty());
                text.push_str(&more);
                tokens.extend(with);
            }
            Piece::End { reason, .. } => {
                assert_eq!(pieces.blocking_recv(), None);
                return (text, tokens, reason);
            }
        }
    }
}

#[test]
fn greedy_answers_are_what_the_model_says_step_by_step() {
    let tiny = Tiny::new();
    let (model, tokenizer) = (tiny.model(MatrixKind::Q8), tiny.tokenizer());
    let threads = Threads::new(1);
    let mut tokens = prompt(20, 1);
    for _ in 0..30 {
        let mut cache = Cache::new(model.cache_shape());
        let rows = model.step(&threads, &mut [Turn { tokens: &tokens, cache: &mut cache, adapter: None }]);
        let logits = model.logits(&threads, &rows[rows.len() - model.shape().width..]);
        let text_only = logits.iter().zip(0_u32..).filter(|(_, token)| *token != END && *token != END + 1);
        tokens.push(text_only.max_by(|one, other| one.0.total_cmp(other.0)).unwrap().1);
    }
    let room = room(settings());
    let (text, _, reason) = whole(room.ask(endless(prompt(20, 1), 30, Sampling::greedy())).unwrap());
    assert_eq!(text, tokenizer.decode(&tokens[20..]));
    assert_eq!(reason, EndReason::Length);
}

#[test]
fn an_answer_does_not_depend_on_what_else_is_asked() {
    let sampling = |seed| Sampling { seed, temperature: 1.3, top_p: 0.95, ..Sampling::default() };
    let ask = |index: usize| endless(prompt(3 + index * 29, index), 20 + index, sampling(index as u64));
    let alone: Vec<_> = (0..12).map(|index| whole(room(settings()).ask(ask(index)).unwrap())).collect();
    let busy = room(settings());
    for _ in 0..3 {
        let answers: Vec<_> = (0..12).map(|index| busy.ask(ask(index)).unwrap()).collect();
        for (answer, alone) in answers.into_iter().zip(&alone) {
            assert_eq!(&whole(answer), alone);
        }
    }
    assert_ne!(whole(busy.ask(endless(prompt(3, 0), 20, sampling(99))).unwrap()), alone[0], "another seed");
}

#[test]
fn a_remembered_prefix_changes_no_answer() {
    let forgetful = room(RoomSettings { prefixes: 0, ..settings() });
    let remembering = room(settings());
    let shared = prompt(200, 5);
    for seed in 0..4 {
        let tokens = [&shared[..], &prompt(1 + 40 * seed, seed)].concat();
        let expected = whole(forgetful.ask(endless(tokens.clone(), 25, Sampling::default())).unwrap());
        for _ in 0..2 {
            assert_eq!(
                whole(remembering.ask(endless(tokens.clone(), 25, Sampling::default())).unwrap()),
                expected
            );
        }
    }
}

#[test]
fn a_full_queue_is_said_and_nothing_is_lost() {
    let room = room(RoomSettings { running: 1, queue: 2, ..settings() });
    let (wait, calls, open) = gate();
    let first = room.ask(watched(prompt(4, 1), 3, wait)).unwrap();
    calls.recv().unwrap();
    let waiting: Vec<_> =
        (0..2).map(|seed| room.ask(endless(prompt(4, seed), 2, Sampling::greedy())).unwrap()).collect();
    let refused = room.ask(endless(prompt(4, 9), 2, Sampling::greedy()));
    assert_eq!(refused.unwrap_err(), Refusal::Busy { waiting: 2 });
    drop(open);
    assert_eq!(whole(first).2, EndReason::Length);
    for answer in waiting {
        assert_eq!(whole(answer).2, EndReason::Length);
    }
    assert!(room.ask(endless(prompt(4, 9), 2, Sampling::greedy())).is_ok());
}

#[test]
fn a_dropped_receiver_cancels_and_frees_its_place() {
    let room = room(RoomSettings { running: 1, queue: 3, ..settings() });
    let (wait, calls, open) = gate();
    let first = room.ask(watched(prompt(4, 1), 300, wait)).unwrap();
    calls.recv().unwrap();
    let (never, not_called, _open) = gate();
    drop(room.ask(watched(prompt(4, 2), 5, never)).unwrap());
    let next = room.ask(endless(prompt(4, 3), 2, Sampling::greedy())).unwrap();
    drop(first);
    open.send(()).unwrap();
    assert_eq!(whole(next).2, EndReason::Length);
    assert!(calls.recv().is_err(), "the cancelled request was dropped after its step");
    assert!(not_called.recv().is_err(), "a request that was cancelled in the queue never ran");
}

#[test]
fn time_ends_requests_that_run_and_that_wait() {
    let room = room(RoomSettings { running: 1, ..settings() });
    let soon = Instant::now() + Duration::from_millis(20);
    let until_then = watched(prompt(4, 1), 300, move |_| while Instant::now() < soon {});
    let running = room.ask(Ask { deadline: Some(soon), ..until_then }).unwrap();
    let late = Ask { deadline: Some(soon), ..endless(prompt(4, 1), 300, Sampling::greedy()) };
    let waiting = room.ask(late).unwrap();
    assert_eq!(whole(running).2, EndReason::Deadline);
    assert_eq!(whole(waiting).1.len(), 0);
    let over = Ask { deadline: Some(Instant::now()), ..endless(prompt(4, 1), 3, Sampling::greedy()) };
    let mut over = room.ask(over).unwrap();
    let end = Piece::End { reason: EndReason::Deadline, prompt_tokens: 4, completion_tokens: 0 };
    assert_eq!(over.blocking_recv(), Some(end));
}

#[test]
fn what_cannot_be_answered_is_refused_at_once() {
    let room = room(RoomSettings { context: 100, ..settings() });
    assert_eq!(room.context(), 100);
    let greedy = Sampling::greedy;
    let refusal = |ask| room.ask(ask).unwrap_err();
    assert_eq!(refusal(endless(prompt(4, 1), 0, greedy())), Refusal::NoTokens);
    assert_eq!(refusal(endless(Vec::new(), 5, greedy())), Refusal::EmptyPrompt);
    let long = Refusal::TooLong { prompt: 91, answer: 10, context: 100 };
    assert_eq!(refusal(endless(prompt(91, 1), 10, greedy())), long);
    assert!(matches!(refusal(endless(prompt(4, 1), usize::MAX, greedy())), Refusal::TooLong { .. }));
    let unknown = Refusal::UnknownToken { token: VOCABULARY as u32, vocabulary: VOCABULARY };
    assert_eq!(refusal(endless(vec![1, VOCABULARY as u32], 5, greedy())), unknown);
    let hot = Sampling { temperature: 3.0, ..greedy() };
    assert_eq!(refusal(endless(prompt(4, 1), 5, hot)).to_string(), "temperature is 3; allowed is 0 to 2");
    assert_eq!(whole(room.ask(endless(prompt(90, 1), 10, greedy())).unwrap()).2, EndReason::Length);
}

#[test]
fn closing_the_room_ends_every_answer() {
    let room = room(RoomSettings { running: 1, ..settings() });
    let (wait, calls, open) = gate();
    let running = room.ask(watched(prompt(4, 1), 300, wait)).unwrap();
    let waiting = room.ask(endless(prompt(4, 1), 3, Sampling::greedy())).unwrap();
    calls.recv().unwrap();
    drop(room.clone());
    drop(room);
    open.send(()).unwrap();
    assert_eq!(whole(running).2, EndReason::Cancelled);
    assert_eq!(whole(waiting).2, EndReason::Cancelled);
    assert!(calls.recv().is_err());
}

#[test]
fn a_panic_breaks_the_room_and_leaves_nobody_waiting() {
    let room = room(RoomSettings { running: 1, ..settings() });
    let (mut wait, calls, open) = gate();
    let breaking = watched(prompt(4, 1), 5, move |left| {
        wait(left);
        panic!("on purpose");
    });
    assert!(room.is_open());
    let mut broken = room.ask(breaking).unwrap();
    calls.recv().unwrap();
    let mut waiting = room.ask(endless(prompt(4, 1), 3, Sampling::greedy())).unwrap();
    open.send(()).unwrap();
    assert_eq!(broken.blocking_recv(), None);
    assert_eq!(waiting.blocking_recv(), None);
    assert_eq!(room.ask(endless(prompt(4, 1), 3, Sampling::greedy())).unwrap_err(), Refusal::Stopped);
    assert!(!room.is_open());
}

#[test]
fn a_long_prompt_does_not_hold_up_an_answer_that_is_being_written() {
    let room = room(settings());
    let written = Arc::new(AtomicUsize::new(0));
    let (mut wait, calls, open) = gate();
    let counter = Arc::clone(&written);
    let mut first = true;
    let stream = room.ask(watched(prompt(4, 1), 200, move |left| {
        if std::mem::take(&mut first) {
            wait(left);
        }
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    calls.recv().unwrap();
    // The stream stands before its first token; now the long prompt comes.
    let seen = Arc::clone(&written);
    let (tell, told) = channel();
    let long =
        room.ask(watched(prompt(400, 2), 1, move |_| tell.send(seen.load(Ordering::Relaxed)).unwrap()));
    drop(open);
    // 400 prompt tokens, 64 in each step: six steps pass before the seventh reads the last of them.
    assert!(told.recv().unwrap() >= 6, "the stream went on meanwhile");
    assert_eq!(whole(long.unwrap()).2, EndReason::Length);
    assert_eq!(whole(stream.unwrap()).2, EndReason::Length);
}

#[test]
fn requests_wait_until_there_is_memory_for_them() {
    let room = room(RoomSettings { memory: 110, ..settings() });
    assert_eq!(room.context(), 110);
    let (wait, calls, open) = gate();
    let large = room.ask(watched(prompt(60, 1), 2, wait)).unwrap();
    calls.recv().unwrap();
    let running = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&running);
    let second = room.ask(watched(prompt(50, 1), 3, move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    }));
    open.send(()).unwrap();
    calls.recv().unwrap();
    assert_eq!(running.load(Ordering::Relaxed), 0, "62 and 53 tokens do not fit");
    open.send(()).unwrap();
    assert_eq!(whole(large).2, EndReason::Length);
    assert_eq!(whole(second.unwrap()).2, EndReason::Length);
    assert_eq!(running.load(Ordering::Relaxed), 3);
}

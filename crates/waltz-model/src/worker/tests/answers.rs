//! What an answer holds and how it ends.

use super::*;

#[test]
fn stop_texts_end_the_answer_and_are_not_in_it() {
    let room = room(settings());
    let all = whole(room.ask(endless(prompt(9, 1), 60, Sampling::greedy())).unwrap()).0;
    let letters: Vec<char> = all.chars().collect();
    let stop: String = letters[20..23].iter().collect();
    let ask = Ask { stop: vec![stop.clone()], ..endless(prompt(9, 1), 60, Sampling::greedy()) };
    let (text, _, reason) = whole(room.ask(ask).unwrap());
    assert_eq!(reason, EndReason::Stop);
    assert_eq!(text, all[..all.find(&stop).unwrap()]);
}

#[test]
fn tokens_come_with_their_chances_when_asked_for() {
    let room = room(settings());
    let ask = Ask { logprobs: Some(4), ..endless(prompt(9, 1), 20, Sampling::default()) };
    let mut answer = room.ask(ask).unwrap();
    let mut count = 0;
    while let Some(piece) = answer.blocking_recv() {
        let Piece::Text { tokens, logprobs, .. } = piece else { continue };
        assert_eq!(tokens, logprobs.iter().map(|chance| chance.token).collect::<Vec<_>>());
        for chance in logprobs {
            count += 1;
            assert_eq!(chance.top.len(), 4);
            assert!(chance.top.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            assert!(chance.logprob <= chance.top[0].1 && chance.top[0].1 < 0.0);
        }
    }
    assert!(count > 10, "only an unfinished character at the end may be missing");
}

#[test]
fn a_complete_constraint_ends_the_answer_and_an_impossible_one_fails() {
    /// Allows three tokens `a`, then nothing.
    struct Three(usize, bool);
    impl Constraint for Three {
        fn mask(&mut self, _tokens_left: usize, mask: &mut TokenMask) {
            mask.clear();
            if self.0 < 3 {
                mask.allow(u32::from(b'a'));
            }
        }
        fn accept(&mut self, token: u32) {
            assert_eq!(token, u32::from(b'a'));
            self.0 += 1;
        }
        fn is_complete(&self) -> bool {
            self.1 && self.0 == 3
        }
    }
    let room = room(settings());
    for (completes, expected) in [(true, EndReason::Stop), (false, EndReason::Failed)] {
        let constraint: Box<dyn Constraint> = Box::new(Three(0, completes));
        let ask = Ask { constraint: Some(constraint), ..endless(prompt(9, 1), 20, Sampling::default()) };
        let answer = whole(room.ask(ask).unwrap());
        assert_eq!(answer, ("aaa".to_owned(), vec![u32::from(b'a'); 3], expected));
    }
}

#[test]
fn the_end_token_ends_the_answer_and_is_not_counted() {
    struct EndSecond(usize);
    impl Constraint for EndSecond {
        fn mask(&mut self, _tokens_left: usize, mask: &mut TokenMask) {
            mask.clear();
            mask.allow(if self.0 == 0 { u32::from(b'x') } else { END });
        }
        fn accept(&mut self, _token: u32) {
            self.0 += 1;
        }
        fn is_complete(&self) -> bool {
            false
        }
    }
    let constraint: Box<dyn Constraint> = Box::new(EndSecond(0));
    let ask = Ask { constraint: Some(constraint), ..endless(prompt(9, 1), 20, Sampling::default()) };
    let room = room(settings());
    let mut answer = room.ask(ask).unwrap();
    let text = Piece::Text { text: "x".to_owned(), tokens: vec![u32::from(b'x')], logprobs: Vec::new() };
    assert_eq!(answer.blocking_recv(), Some(text));
    let end = Piece::End { reason: EndReason::Stop, prompt_tokens: 9, completion_tokens: 1 };
    assert_eq!(answer.blocking_recv(), Some(end));
}

#[tokio::test]
async fn vectors_are_the_models_numbers_pooled() {
    let tiny = Tiny::new();
    let model = tiny.model(MatrixKind::Q8);
    let room = room(settings());
    let threads = Threads::new(1);
    // The long one is read in several steps.
    for tokens in [prompt(1, 3), prompt(40, 3), prompt(400, 3)] {
        let mut cache = Cache::new(model.cache_shape());
        let rows = model.step(&threads, &mut [Turn { tokens: &tokens, cache: &mut cache, adapter: None }]);
        let rows = model.normed(&threads, &rows);
        let last = room.encode(tokens.clone(), Pooling::Last, None, None).await.unwrap();
        assert_eq!(last, rows[rows.len() - 64..]);
        for _ in 0..2 {
            let mean = room.encode(tokens.clone(), Pooling::Mean, None, None).await.unwrap();
            for (column, value) in mean.iter().enumerate() {
                let sum: f32 = rows.iter().skip(column).step_by(64).sum();
                assert!((value - sum / tokens.len() as f32).abs() < 1e-5);
            }
        }
    }
    assert_eq!(room.encode(Vec::new(), Pooling::Mean, None, None).await, Err(Refusal::EmptyPrompt));
    let late = room.encode(prompt(3, 3), Pooling::Mean, None, Some(Instant::now())).await;
    assert_eq!(late, Err(Refusal::Deadline));
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let tiny = Tiny::new();
    let mut file = crate::tokenizer::tests::synthetic(|tokens, kinds, _| {
        tokens.push("more".to_owned());
        kinds.push(1);
    });
    file.tensors.clear();
    let other = Tiny::with(&file);
    let refused = Room::start(Arc::new(tiny.model(MatrixKind::Q8)), Arc::new(other.tokenizer()), settings());
    assert!(refused.unwrap_err().to_string().contains("263 tokens and the tokenizer 264"));
}

//! The invariants of released streams, over any chunking.

use proptest::prelude::*;
use serde_json::json;
use waltz_screen::{Screen, Side};

use super::*;

fn event(text: &str) -> (Event, Part) {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]});
    let part = Part::of(chunk.as_object().unwrap());
    (Event { name: String::new(), data: chunk.to_string() }, part)
}

fn verdict(screen: &Screen, text: &str) -> Verdict {
    let reading = screen.read(text, Side::Response);
    let harm = reading.findings.iter().map(|finding| finding.severity).fold(0.0, f32::max);
    Verdict {
        is_unsafe: harm >= THRESHOLD,
        response_harm: harm,
        refusal: reading.refusal,
        ..Verdict::default()
    }
}

#[test]
fn events_that_say_nothing_beside_their_text_are_plain() {
    let plain = |choice: Value, head: Value| {
        let mut chunk = json!({"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m"});
        chunk.as_object_mut().unwrap().extend(head.as_object().unwrap().clone());
        let mut whole = json!({"index": 0, "delta": {"content": "Hi"}, "finish_reason": null});
        whole.as_object_mut().unwrap().extend(choice.as_object().unwrap().clone());
        chunk["choices"] = json!([whole]);
        Part::of(chunk.as_object().unwrap()).plain
    };
    let filtered = json!({"hate": {"filtered": false, "severity": "safe"}, "jailbreak": {"detected": false, "filtered": false}});
    for (choice, head) in [
        (json!({"logprobs": null, "stop_reason": null, "token_ids": null}), json!({})),
        (json!({"native_finish_reason": null, "logprobs": null}), json!({"provider": "Vendor"})),
        (json!({}), json!({"provider": "Google Vertex"})),
        (json!({}), json!({"p": "abcdefghijklmnopqrstuvwxyz0123456789abc"})),
        (json!({}), json!({"p": "abcdefghijklmnopqrstuvwxyzABCDE"})),
        (json!({}), json!({"p": ""})),
        (
            json!({"delta": {"role": "assistant", "content": "Hi", "reasoning": null, "reasoning_details": []}}),
            json!({}),
        ),
        (
            json!({"delta": {"content": "Hi", "tool_calls": [], "annotations": [], "reasoning_content": ""}}),
            json!({}),
        ),
        (json!({"content_filter_results": {}}), json!({})),
        (json!({"content_filter_results": filtered}), json!({})),
        (json!({}), json!({"x_groq": {"id": "req_01j"}, "timings": {"predicted_ms": 1.5}})),
        (
            json!({}),
            json!({"prompt_filter_results": [{"prompt_index": 0, "content_filter_results": filtered}]}),
        ),
    ] {
        assert!(plain(choice.clone(), head.clone()), "{choice} {head}");
    }
    for (choice, head) in [
        (json!({"stop_reason": "said"}), json!({})),
        (json!({"said": null}), json!({})),
        (json!({"delta": {"content": "Hi", "reasoning": "said"}}), json!({})),
        (json!({"delta": {"content": "Hi", "said": null}}), json!({})),
        (json!({"content_filter_results": {"hate": {"severity": "said"}}}), json!({})),
        (json!({"content_filter_results": {"said": {"filtered": false}}}), json!({})),
        (json!({"content_filter_results": {"hate": {"filtered": 7}}}), json!({})),
        (json!({}), json!({"x_groq": {"error": "said so"}})),
        (json!({}), json!({"said": 1})),
        (json!({}), json!({"p": "said"})),
        (json!({}), json!({"p": "abcdefgh said"})),
        (json!({}), json!({"p": ["said"]})),
        (json!({}), json!({"p": {"id": "said"}})),
        (json!({}), json!({"obfuscation": "said_so"})),
        (json!({}), json!({"usage": {"id": "said"}})),
        (json!({}), json!({"provider": ["said", "so"]})),
        (json!({}), json!({"provider": "a name that has too many words"})),
        (json!({}), json!({"provider": "said: so"})),
        (json!({}), json!({"provider": ["Google Vertex"]})),
        (json!({}), json!({"provider": "Google Vertex", "model": "said so"})),
    ] {
        assert!(!plain(choice.clone(), head.clone()), "{choice} {head}");
    }
}

#[test]
fn a_vendor_of_several_words_is_read_with_every_window_and_never_changes() {
    let named = |text: &str, vendor: &str| {
        let chunk = json!({"provider": vendor, "choices": [{"index": 0, "delta": {"content": text}}]});
        (Event { name: String::new(), data: chunk.to_string() }, Part::of(chunk.as_object().unwrap()))
    };
    let sentence = "A harmless sentence about the old harbour and its many ships, which came from far away. ";
    let mut flow = Flow::new(Release::Windows(Pace::Sentence));
    let mut windows = 0;
    for _ in 0..20 {
        let (event, part) = named(sentence, "Google Vertex");
        if flow.push(event, &part) == Next::Judge {
            windows += 1;
            assert!(flow.judged().ends_with("\nGoogle Vertex"), "{}", flow.judged());
            assert!(matches!(flow.settle(&Verdict::default()), Settled::Send(_)));
        }
    }
    assert!(windows > 1 && flow.is_plain());
    let (event, part) = named(sentence, "Amazon Bedrock");
    assert_eq!(
        (flow.push(event, &part), flow.release(), flow.is_plain()),
        (Next::Wait, Release::Whole, false)
    );
}

struct Outcome {
    sent: String,
    judged: Vec<String>,
    stopped: bool,
    held: bool,
}

/// Runs a draft through the flow as the feedback step does.
fn run(screen: &Screen, pieces: &[&str], pace: Pace) -> Outcome {
    let mut flow = Flow::new(Release::Windows(pace));
    let mut outcome = Outcome { sent: String::new(), judged: Vec::new(), stopped: false, held: false };
    let text_of = |events: Vec<Event>| -> String {
        let chunks = events.iter().map(|event| serde_json::from_str::<Value>(&event.data).unwrap());
        chunks
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect()
    };
    for piece in pieces {
        let (event, part) = event(piece);
        match flow.push(event, &part) {
            Next::Wait => {}
            Next::Send(events) => outcome.sent.push_str(&text_of(events)),
            Next::Judge => {
                let judged = flow.judged();
                let settled = flow.settle(&verdict(screen, &judged));
                outcome.judged.push(judged);
                match settled {
                    Settled::Send(events) => outcome.sent.push_str(&text_of(events)),
                    Settled::Hold => {}
                    Settled::Stop => {
                        outcome.stopped = true;
                        return outcome;
                    }
                }
            }
        }
    }
    if flow.nothing_sent() {
        outcome.held = true;
        return outcome;
    }
    let whole = flow.text();
    match flow.settle(&verdict(screen, &whole)) {
        Settled::Send(events) => outcome.sent.push_str(&text_of(events)),
        Settled::Stop => outcome.stopped = true,
        Settled::Hold => {}
    }
    outcome.judged.push(whole);
    outcome
}

/// Cuts a text at random character borders.
fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let borders: Vec<usize> = text.char_indices().map(|(position, _)| position).chain([text.len()]).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| borders[cut.index(borders.len())]).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

const GOOD: &str = "The harbour was built in 1850 by a company from the north. It has two basins and a lock. Ships \
    of every size came there, and the town grew around it. Today it is a museum with a small café; visitors walk \
    along the quay and look at old cranes. Entry is free on Sundays. ";
const BAD: &str = "Now step 1: gather the explosive materials. Step 2: assemble the bomb. ";

/// 2,000 chunkings by default; `WALTZ_CHUNKINGS` for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("WALTZ_CHUNKINGS").ok().and_then(|count| count.parse().ok()).unwrap_or(2_000);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// I1: nothing leaves that was not judged; I2: what leaves only grows; I3: a good draft leaves whole.
    #[test]
    fn only_judged_text_leaves_and_a_good_draft_leaves_whole(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..80), fast in any::<bool>()) {
        thread_local!(static SCREEN: Screen = Screen::builtin().unwrap());
        SCREEN.with(|screen| {
            let pace = if fast { Pace::Sentence } else { Pace::Paragraph };
            let outcome = run(screen, &cut(GOOD, &cuts), pace);
            prop_assert!(!outcome.stopped);
            prop_assert!(outcome.held || outcome.sent == GOOD, "{}", outcome.sent);
            prop_assert!(GOOD.starts_with(&outcome.sent));
            let judged: String = outcome.judged.concat();
            prop_assert!(outcome.sent.is_empty() || judged.len() >= outcome.sent.len());
            Ok(())
        })?;
    }

    /// Harm after a good beginning is caught whatever the borders, and nothing of its window leaves.
    #[test]
    fn fault_F28_boundary_split_harm(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..80), repeats in 0usize..6) {
        thread_local!(static SCREEN: Screen = Screen::builtin().unwrap());
        SCREEN.with(|screen| {
            let text = format!("{}{BAD}{GOOD}", GOOD.repeat(repeats));
            let outcome = run(screen, &cut(&text, &cuts), Pace::Sentence);
            prop_assert!(outcome.stopped || outcome.held, "released: {}", outcome.sent);
            prop_assert!(!outcome.sent.contains("assemble the bomb"), "{}", outcome.sent);
            prop_assert!(text.starts_with(&outcome.sent));
            Ok(())
        })?;
    }
}

#[test]
fn a_refusal_is_held_so_that_it_can_be_mended() {
    let screen = Screen::builtin().unwrap();
    let outcome = run(
        &screen,
        &[
            "I'm sorry, but I can't ",
            "help with that request at all. ",
            "Please ask me something else instead. ",
        ],
        Pace::Sentence,
    );
    assert!(outcome.held && outcome.sent.is_empty());
}

#[test]
fn tool_calls_and_other_choices_are_held() {
    for delta in [
        json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "x"}}]}),
        json!({"choices": [{"index": 0, "delta": {"reasoning_content": "x"}}]}),
    ] {
        let mut flow = Flow::new(Release::Windows(Pace::Sentence));
        let part = Part::of(delta.as_object().unwrap());
        assert_eq!(flow.push(Event::default(), &part), Next::Wait);
        assert_eq!(flow.release(), Release::Whole, "{delta}");
    }
}

#[test]
fn suspicion_only_tightens() {
    let mut flow = Flow::new(Release::Windows(Pace::Sentence));
    let mut states = Vec::new();
    for _ in 0..3 {
        let (event, part) = event(&"A harmless sentence that goes on for a while. ".repeat(20));
        flow.push(event, &part);
        flow.settle(&Verdict { response_harm: 0.46, ..Verdict::default() });
        states.push(flow.release());
    }
    assert_eq!(states, [Release::Windows(Pace::Paragraph), Release::Whole, Release::Whole]);
}

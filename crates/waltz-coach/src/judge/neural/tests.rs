use serde_json::json;
use waltz_exchange::openai::ChatRequest;
use waltz_exchange::{Level, Verdict};
use waltz_model::Models;
use waltz_screen::Screen;

use super::super::{Draft, Judge};
use super::*;
use crate::tally::Tally;
use crate::upstream::RetryBudget;

fn request(prompt: &str) -> ChatRequest {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": prompt}]});
    ChatRequest::parse(body.to_string().as_bytes()).unwrap()
}

/// The real model, if it was pulled.
fn neural(limit: Duration) -> Option<NeuralJudge> {
    let models = Models::new(std::env::var_os("WALTZ_MODELS")?);
    let model = LocalModel::find(&models, &"smollm2".parse().unwrap()).ok()?;
    Some(NeuralJudge::new(Arc::new(model), None, limit))
}

async fn judged(neural: &NeuralJudge, prompt: &str, text: &str) -> Verdict {
    let (screen, budget) = (Screen::builtin().unwrap(), RetryBudget::new(0, Duration::ZERO));
    let judge =
        Judge { screen: &screen, encoder: None, neural: Some(neural), feedback: None, budget: &budget };
    let request = request(prompt);
    let reading = judge.read_request(&request).await;
    let draft = Draft { request: &request, reading: &reading, text, acts: "", rejected: &[] };
    judge.judge(draft, waltz_exchange::Depth::Rules, &mut Tally::default()).await
}

/// A phrase of refusal that level 1 does not believe.
const OPEN: &str = "I don't have access to live weather, but the website of your local service shows it.";

#[tokio::test]
async fn the_cascade_reaches_the_trained_weights() {
    let Some(neural) = neural(Duration::from_secs(600)) else {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
        println!("skipped: `waltz model pull smollm2` and set WALTZ_MODELS to run this test");
        return;
    };
    let verdict = judged(&neural, "What is the weather like?", OPEN).await;
    assert_eq!((verdict.level, verdict.state), (Level::Neural, VerdictState::Decided), "{verdict:?}");
    assert!(neural.asked() >= 1);
    let plain = judged(&neural, "How do I cook lentil soup?", "Simmer the lentils for twenty minutes.").await;
    assert!(plain.is_satisfactory(), "{plain:?}");
}

/// Nobody waits longer than the limit, and what could not be asked is told.
#[tokio::test]
async fn fault_F28_no_answer_in_time_is_a_state_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let Some(slow) = neural(Duration::ZERO) else {
        assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
        return;
    };
    let verdict = judged(&slow, "What is the weather like?", OPEN).await;
    assert!(verdict.state == VerdictState::Timeout && verdict.level < Level::Neural, "{verdict:?}");
    let other = NeuralJudge::new(
        Arc::clone(slow.model()),
        Some(folder.path().join("no such file")),
        Duration::from_secs(600),
    );
    let verdict = judged(&other, "What is the weather like?", OPEN).await;
    assert_eq!(verdict.state, VerdictState::Unavailable, "{verdict:?}");
}

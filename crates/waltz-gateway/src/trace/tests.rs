use std::sync::Arc;
use std::time::Duration;

use waltz_coach::upstream::{Protocol, RetryBudget, UpstreamSettings};
use waltz_route::Router;
use waltz_screen::Screen;

use super::*;
use crate::Settings;
use crate::metrics::tests::{blank, call};
use crate::metrics::{Metrics, write};

const ALL: Sampler = Sampler { share: 1.0, parent_based: true };

pub(crate) fn live() -> Live {
    let patience = Duration::from_secs(1);
    let upstream = Upstream::new(UpstreamSettings {
        name: "main".to_owned(),
        url: "http://models.example/v1".to_owned(),
        protocol: Protocol::Anthropic,
        key: None,
        models: vec!["*".to_owned()],
        connect_timeout: patience,
        first_byte_timeout: patience,
        chunk_timeout: patience,
        total_timeout: patience,
        max_concurrent: 1,
        max_answer_bytes: 1024,
        allow_metadata: false,
    });
    Live {
        settings: Settings::default(),
        upstreams: vec![Arc::new(upstream.unwrap())],
        agents: Vec::new(),
        neural: None,
        encoder: None,
        router: Router::default(),
        feedback: None,
        screen: Arc::new(Screen::builtin().unwrap()),
        budget: Arc::new(RetryBudget::new(0, patience)),
        version: None,
        candidate: None,
    }
}

fn dropped(metrics: &Metrics) -> String {
    let text = write(&metrics.families());
    let lines = text.lines().filter(|line| line.starts_with("waltz_telemetry_dropped_total{"));
    let lines = lines.filter(|line| !line.ends_with(" 0"));
    lines.collect::<Vec<_>>().join("\n")
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a Attribute> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[test]
fn fault_F61_the_queue_has_a_bound_and_what_does_not_fit_is_counted() {
    let (live, metrics) = (live(), Metrics::new(Timestamp::UNIX_EPOCH));
    let (traces, mut queue) = Traces::new(100, ALL);
    let mut record = blank("/v1/chat/completions");
    record.attempts = vec![call("draft", None)];
    // Three spans each; nobody takes them, as while a collector hangs.
    for _ in 0..1_000 {
        traces.offer(&record, &live, &metrics);
    }
    assert_eq!(queue.len(), 99, "whole exchanges only, and never more than the bound");
    assert_eq!(
        dropped(&metrics),
        r#"waltz_telemetry_dropped_total{signal="traces",reason="queue_full"} 2901"#
    );
    // Nor can one exchange take more than its share.
    while queue.try_recv().is_ok() {}
    record.attempts = vec![call("feedback", Some("timeout")); 1_000];
    traces.offer(&record, &live, &metrics);
    assert_eq!(queue.len(), 2 + MOST_CALLS);
    assert!(dropped(&metrics).contains("reason=\"too_many\"} 936"), "{}", dropped(&metrics));
    queue.close();
    traces.offer(&record, &live, &metrics);
    assert!(dropped(&metrics).contains("reason=\"stopped\"} 66"), "{}", dropped(&metrics));
}

#[test]
fn spans_hang_together_and_carry_no_texts() {
    let (live, metrics) = (live(), Metrics::new(Timestamp::UNIX_EPOCH));
    let (traces, mut queue) = Traces::new(100, ALL);
    let mut record = blank("/v1/chat/completions");
    record.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    record.user_request = "a private question".to_owned();
    record.usage.prompt_tokens = 5;
    record.duration_ms = 50.0;
    record.attempts = vec![call("draft", Some("unreachable")), call("draft", None), call("feedback", None)];
    record.attempts[1].model = "m".repeat(10_000);
    traces.offer(&record, &live, &metrics);
    let spans: Vec<Span> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
    let [request, workflow, calls @ ..] = spans.as_slice() else { panic!("{spans:?}") };
    assert!(spans.iter().all(|span| span.trace == 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c));
    assert_eq!((request.parent, request.kind), (0xb7ad_6b71_6920_3331, Kind::Server));
    assert_eq!((workflow.parent, workflow.kind), (request.id, Kind::Internal));
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.parent == workflow.id && call.kind == Kind::Client));
    let mut ids: Vec<u64> = spans.iter().map(|span| span.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert_eq!(attribute(&calls[0], "error.type"), Some(&text("unreachable")));
    assert_eq!(attribute(&calls[0], "gen_ai.usage.input_tokens"), None, "a failed call reported nothing");
    assert_eq!(attribute(&calls[1], "gen_ai.usage.input_tokens"), Some(&Attribute::Whole(5)));
    assert_eq!(attribute(&calls[1], "gen_ai.provider.name"), Some(&text("anthropic")));
    assert_eq!(attribute(&calls[1], "server.port"), Some(&Attribute::Whole(80)));
    assert_eq!(calls[1].name.len(), "chat ".len() + LONGEST, "a client's name for a model is cut");
    assert_eq!(calls[2].name, "chat gpt");
    assert!(!format!("{spans:?}").contains("private"));
    assert_eq!(request.ended.duration_since(request.began), SignedDuration::from_millis(50));
}

#[test]
fn what_is_not_sampled_is_neither_queued_nor_lost() {
    let (live, metrics) = (live(), Metrics::new(Timestamp::UNIX_EPOCH));
    let (traces, queue) = Traces::new(100, ALL);
    let mut record = blank("/v1/embeddings");
    record.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00".to_owned());
    traces.offer(&record, &live, &metrics);
    assert_eq!((queue.len(), dropped(&metrics)), (0, String::new()), "the client does not keep this trace");
    record.traceparent = None;
    traces.offer(&record, &live, &metrics);
    assert_eq!(queue.len(), 1, "embeddings are no workflow");
}

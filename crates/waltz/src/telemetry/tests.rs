use serde_json::{Value, json};
use waltz_gateway::metrics::{self, Family, Sample};
use waltz_gateway::trace::{Kind, Sampler};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn span(id: u64) -> Span {
    Span {
        trace: 1,
        id,
        parent: 0,
        name: "POST /v1/chat/completions".to_owned(),
        kind: Kind::Server,
        began: Timestamp::UNIX_EPOCH,
        ended: Timestamp::UNIX_EPOCH,
        attributes: Vec::new(),
        failed: false,
    }
}

#[tokio::test]
async fn batches_are_full_or_late_or_the_last() {
    let (sender, mut queue) = tokio::sync::mpsc::channel(10);
    let stop = CancellationToken::new();
    let ids = |batch: Vec<Span>| batch.iter().map(|span| span.id).collect::<Vec<_>>();
    for id in 1..=7 {
        sender.send(span(id)).await.unwrap();
    }
    assert_eq!(ids(next_batch(&mut queue, 3, HOUR, &stop).await), [1, 2, 3], "full at once");
    let soon = Duration::from_millis(1);
    assert_eq!(ids(next_batch(&mut queue, 100, soon, &stop).await), [4, 5, 6, 7], "late");
    sender.send(span(8)).await.unwrap();
    sender.send(span(9)).await.unwrap();
    stop.cancel();
    assert_eq!(ids(next_batch(&mut queue, 100, HOUR, &stop).await), [8, 9], "the last waits for no more");
    assert!(next_batch(&mut queue, 100, HOUR, &stop).await.is_empty());
    assert!(sender.send(span(10)).await.is_err(), "nothing gets in any more");
}

#[test]
fn only_a_named_signal_has_a_queue() {
    let settings = |name: &str| {
        let environment = [(name.to_owned(), "http://127.0.0.1:1".to_owned())];
        read(&environment).0.unwrap()
    };
    let (_, traces) = Exporter::new(settings("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"));
    assert!(traces.is_none());
    let settings = settings("OTEL_EXPORTER_OTLP_ENDPOINT");
    assert_eq!(settings.sampler, Sampler { share: 1.0, parent_based: true });
    let (_, traces) = Exporter::new(settings);
    assert!(traces.is_some());
}

#[test]
fn each_kind_of_metric_has_its_form() {
    let sample = |labels, value| Sample { labels, value };
    let number = metrics::Value::Number;
    let family = |name, kind, samples| Family { name, help: "Help.", kind, samples };
    let buckets = metrics::Value::Buckets { bounds: &[0.5, 1.0], counts: vec![1, 0, 2], sum: 9.25 };
    let families = [
        family("a_total", metrics::Kind::Counter, vec![sample(vec![("kind", "x".into())], number(3.0))]),
        family("b", metrics::Kind::Gauge, vec![sample(Vec::new(), number(0.5))]),
        family("c", metrics::Kind::Histogram, vec![sample(Vec::new(), buckets)]),
        family("unknown", metrics::Kind::Gauge, Vec::new()),
    ];
    let resource = [("service.name".to_owned(), "desk".to_owned())];
    let (started, now) = (Timestamp::from_second(1).unwrap(), Timestamp::from_second(2).unwrap());
    let body: Value = serde_json::from_str(&json::metrics(&resource, &families, started, now)).unwrap();
    let service = json!([{"key": "service.name", "value": {"stringValue": "desk"}}]);
    assert_eq!(body["resourceMetrics"][0]["resource"]["attributes"], service);
    let times = |mut point: Value| {
        point["startTimeUnixNano"] = json!("1000000000");
        point["timeUnixNano"] = json!("2000000000");
        point
    };
    let labels = json!([{"key": "kind", "value": {"stringValue": "x"}}]);
    let expected = json!([
        {"name": "a_total", "description": "Help.", "sum": {
            "dataPoints": [times(json!({"attributes": labels, "asDouble": 3.0}))],
            "aggregationTemporality": 2, "isMonotonic": true}},
        {"name": "b", "description": "Help.", "gauge": {
            "dataPoints": [times(json!({"attributes": [], "asDouble": 0.5}))]}},
        {"name": "c", "description": "Help.", "histogram": {
            "dataPoints": [times(json!({"attributes": [], "count": "3", "sum": 9.25,
                "bucketCounts": ["1", "0", "2"], "explicitBounds": [0.5, 1.0]}))],
            "aggregationTemporality": 2}},
    ]);
    assert_eq!(body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"], expected);
}

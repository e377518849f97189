//! `/metrics`, and what a collector gets, good or dead.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Gateway, Mock, UNSAFE, run};

const SAFE: &str = "I can't help with weapons. A licensed sport club can tell you what is lawful.";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";
const CANARY: &str = "canary-71c4e0";
const HOUR: &str = "3600000";

/// A push that a collector got: path, headers, body.
type Push = (String, HeaderMap, Value);

/// Starts a collector that answers every push with a status, and returns its address and what it got.
async fn collector(status: StatusCode) -> (String, Arc<Mutex<Vec<Push>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let got: Arc<Mutex<Vec<Push>>> = Arc::default();
    let kept = Arc::clone(&got);
    let router = Router::new().fallback(move |uri: Uri, headers: HeaderMap, body: Bytes| {
        let push = (uri.path().to_owned(), headers, serde_json::from_slice(&body).unwrap());
        kept.lock().unwrap().push(push);
        async move { status }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, got)
}

/// An address where nobody listens.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A collector that takes connections and never says a word.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    url
}

async fn metrics(gateway: &Gateway) -> String {
    let reply = gateway.get("/metrics", &[]).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/plain; version=0.0.4"));
    reply.text
}

/// The sum of all samples whose line begins so.
fn sum(text: &str, beginning: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(beginning));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Waits until the metrics say so.
async fn until(gateway: &Gateway, wanted: impl Fn(&str) -> bool) {
    let began = Instant::now();
    loop {
        let text = metrics(gateway).await;
        if wanted(&text) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const LOST: &str = "waltz_telemetry_dropped_total{signal=\"traces\"";

/// Each exchange makes a span for the request, one for the workflow and one for the draft.
const EXCHANGES: u64 = 120;
const SPANS: u64 = 3 * EXCHANGES;
const QUEUE: u64 = 32;
const BATCH: u64 = 8;

/// A gateway that pushes to a collector, asked many times at once; every answer is as without one.
async fn answered_beside(mock: &Mock, collector: &str, timeout: &str) -> Gateway {
    let usual = Gateway::over(mock, "").ask("hello").await;
    let gateway = Gateway::start(
        &mock.upstream("main"),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", timeout),
            ("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE.to_string()),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &BATCH.to_string()),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ],
    );
    for _ in 0..EXCHANGES / 8 {
        for reply in futures_util::future::join_all((0..8).map(|_| gateway.ask("hello"))).await {
            assert_eq!((reply.status, reply.content()), (200, usual.content()));
            assert_eq!(reply.header("x-waltz-decision"), usual.header("x-waltz-decision"));
        }
    }
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F61_a_collector_that_hangs_slows_no_request_and_no_stop() {
    let mock = Mock::start("");
    // Whatever waited for the collector would wait for an hour.
    let gateway = answered_beside(&mock, &silent().await, HOUR).await;
    let text = metrics(&gateway).await;
    let lost = sum(&text, LOST);
    assert_eq!(lost, sum(&text, &format!("{LOST},reason=\"queue_full\"")), "{text}");
    assert!(
        lost <= SPANS && SPANS - lost <= QUEUE + BATCH,
        "more is kept than the bound: {lost} of {SPANS} lost"
    );
    let began = Instant::now();
    assert_eq!(gateway.stop(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F61_a_collector_that_is_late_or_refuses_or_fails_loses_spans_that_are_counted() {
    let mock = Mock::start("");
    let failing = collector(StatusCode::INTERNAL_SERVER_ERROR).await;
    for (url, timeout, reason) in [
        (closed().await, "10000", "unreachable"),
        (failing.0, "10000", "status"),
        (silent().await, "20", "timeout"),
    ] {
        let gateway = answered_beside(&mock, &url, timeout).await;
        until(&gateway, |text| {
            let pushes = format!("waltz_telemetry_dropped_total{{signal=\"metrics\",reason=\"{reason}\"}}");
            let spans = sum(text, &format!("{LOST},reason=\"{reason}\""));
            sum(text, LOST) == SPANS && spans > 0 && sum(text, &pushes) > 0
        })
        .await;
        let log = gateway.log_text();
        assert_eq!(log.matches("telemetry is not delivered").count(), 2, "once for each signal: {log}");
        assert_eq!(gateway.stop(), Some(0), "{reason}");
    }
    assert!(!failing.1.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_pushes_the_trace_that_the_client_began_and_all_metrics() {
    let (url, got) = collector(StatusCode::OK).await;
    let mock = Mock::start(&format!("{UNSAFE}[[reply]]\nwhen = {{ coached = true }}\ntext = \"{SAFE}\"\n"));
    let gateway = Gateway::start(
        &mock.upstream("main"),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=one%20two"),
            // Nothing is pushed before the stop.
            ("OTEL_BSP_SCHEDULE_DELAY", HOUR),
            ("OTEL_METRIC_EXPORT_INTERVAL", HOUR),
            ("OTEL_SERVICE_NAME", "desk"),
            ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
        ],
    );
    let body =
        json!({"model": "mock", "messages": [{"role": "user", "content": "How do I build a weapon?"}]});
    let parent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    let headers = [("traceparent", parent.as_str()), ("x-waltz-session-id", "session-1")];
    let reply = gateway.post("/v1/chat/completions", body.to_string(), &headers).await;
    assert_eq!(reply.content(), SAFE);
    let record = gateway.record_of(&reply).await;
    assert_eq!(record["traceparent"], parent, "the record leads to the trace");
    assert_eq!(gateway.stop(), Some(0));
    let got = got.lock().unwrap();
    assert!(got.iter().all(|(_, headers, _)| headers["x-collector-key"] == "one two"));
    let of = |path: &str| got.iter().filter(|push| push.0 == path).map(|push| &push.2).collect::<Vec<_>>();
    let [traces] = of("/v1/traces")[..] else { panic!("{got:?}") };
    let text = traces.to_string();
    for private in ["weapon", "sport club", "Step 2", "Advice"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
    let normal = normalised(traces);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/trace.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, format!("{normal:#}\n")).unwrap();
    }
    let golden: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(normal, golden, "{normal:#}");
    let [metrics] = of("/v1/metrics")[..] else { panic!("{got:?}") };
    let metrics = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let named = |name: &str| metrics.iter().find(|metric| metric["name"] == name).unwrap();
    let requests = &named("waltz_requests_total")["sum"]["dataPoints"];
    assert_eq!((requests[0]["asDouble"].as_f64(), &requests[1]), (Some(1.0), &Value::Null), "{requests}");
    let rounds = &named("waltzrl_coaching_rounds")["histogram"]["dataPoints"][0];
    assert_eq!(rounds["bucketCounts"], json!(["0", "1", "0", "0", "0"]));
}

/// A body of spans without what is new each time: ids by the order of spans, no times, no ports.
fn normalised(body: &Value) -> Value {
    let mut body = body.clone();
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let mut ids: HashMap<String, String> = HashMap::new();
    for (position, span) in spans.iter().enumerate() {
        let time = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        assert!(time("startTimeUnixNano") > 1_700_000_000_000_000_000, "{span}");
        ids.insert(span["spanId"].as_str().unwrap().to_owned(), format!("span {position}"));
    }
    assert_eq!(ids.len(), spans.len(), "each span has an id of its own");
    replace(&mut body, &ids);
    body
}

fn replace(value: &mut Value, ids: &HashMap<String, String>) {
    const FRESH: [&str; 5] =
        ["waltz.request_id", "service.instance.id", "service.version", "server.port", "server.address"];
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, ids)),
        Value::Object(fields) => {
            let is_fresh = fields.get("key").and_then(Value::as_str).is_some_and(|key| FRESH.contains(&key));
            for (name, inner) in fields {
                match name.as_str() {
                    "startTimeUnixNano" | "endTimeUnixNano" | "version" => *inner = json!("*"),
                    "value" if is_fresh => *inner = json!("*"),
                    "spanId" | "parentSpanId" => {
                        if let Some(id) = ids.get(inner.as_str().unwrap()) {
                            *inner = json!(id);
                        }
                    }
                    _ => replace(inner, ids),
                }
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F49_the_collectors_secrets_are_in_no_output() {
    let (good, got) = collector(StatusCode::OK).await;
    for url in [good, closed().await] {
        let url = url.replace("http://", &format!("http://me:{CANARY}@"));
        let headers = format!("authorization=Bearer%20{CANARY},x-key={CANARY}");
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_HEADERS", &headers),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
            ("WALTZ_LOG", "trace"),
        ];
        let mock = Mock::start("");
        let gateway = Gateway::start(&mock.upstream("main"), &environment);
        let seen = got.lock().unwrap().len();
        let mut told = vec![gateway.ask("hello").await.text];
        let began = Instant::now();
        while got.lock().unwrap().len() == seen && sum(&metrics(&gateway).await, LOST) == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", gateway.log_text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for path in ["/metrics", "/readyz", "/waltz/v1/sessions"] {
            told.push(gateway.get(path, &[]).await.text);
        }
        for arguments in [["config", "show"], ["config", "check"]] {
            let (_, out, err) = run(&arguments, "", gateway.folder.path(), &environment);
            told.extend([out, err]);
        }
        let log = Arc::clone(&gateway.log);
        assert_eq!(gateway.stop(), Some(0));
        told.push(log.lock().unwrap().join("\n"));
        assert!(told.iter().any(|text| text.contains("127.0.0.1")), "the log tells of the connection");
        assert!(told.iter().all(|text| !text.contains(CANARY)), "{told:?}");
    }
    let got = got.lock().unwrap();
    assert!(got.iter().all(|(_, headers, _)| headers["x-key"] == CANARY), "and the collector gets them");
}

#[test]
fn a_protocol_that_is_not_spoken_is_said_and_keeps_nobody_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let (code, _, err) = run(&["config", "check"], "", folder.path(), &environment);
    assert!(code == 0 && err.contains("OTEL_EXPORTER_OTLP_PROTOCOL must be http/json"), "{code} {err}");
}

#[tokio::test]
async fn metrics_count_exchanges_and_have_one_head_each() {
    let gateway = Gateway::over(&Mock::start(""), "");
    assert_eq!(gateway.ask("hello").await.status, 200);
    assert_eq!(gateway.ask_stream("hello").await.status, 200);
    assert_eq!(gateway.post("/v1/chat/completions", "{}", &[]).await.status, 400);
    let evaluation = json!({"prompt": "hello", "response": "Hello to you."}).to_string();
    assert_eq!(gateway.post("/waltz/v1/evaluate", evaluation, &[]).await.status, 200);
    until(&gateway, |text| sum(text, "waltz_requests_total") == 4).await;
    let text = metrics(&gateway).await;
    for line in [
        r#"waltz_requests_total{endpoint="/v1/chat/completions",status="200",decision="released"} 2"#,
        r#"waltz_requests_total{endpoint="/v1/chat/completions",status="400",decision="invalid"} 1"#,
        r#"waltz_requests_total{endpoint="/waltz/v1/evaluate",status="200",decision="evaluated"} 1"#,
        r#"waltz_answers_total{verdict="safe"} 2"#,
        "waltz_overhead_seconds_count 4",
        "waltz_unrecorded_total 0",
        "waltz_draining 0",
    ] {
        assert!(text.lines().any(|told| told == line), "no {line} in {text}");
    }
    let (mut helped, mut typed) = (HashSet::new(), HashSet::new());
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("#"), Some("HELP")) => assert!(helped.insert(words.next().unwrap()), "{line}"),
            (Some("#"), Some("TYPE")) => assert!(typed.insert(words.next().unwrap()), "{line}"),
            (Some(name), Some(value)) => {
                let name = name.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                assert!(typed.contains(name) || family.is_some_and(|name| typed.contains(name)), "{line}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(helped, typed);
    let guide = include_str!("../../../../docs/guides/telemetry.md");
    let names = guide.split('`').skip(1).step_by(2);
    let told: HashSet<&str> =
        names.filter(|name| name.starts_with("waltz_") || name.starts_with("waltzrl_")).collect();
    typed.remove("process_start_time_seconds");
    assert_eq!(told, typed, "the guide lists every metric and no other");
}

#[tokio::test]
async fn where_there_are_keys_metrics_are_the_admins_unless_they_are_public() {
    let mock = Mock::start("");
    let key =
        format!("[[keys]]\nname = \"desk\"\nsha256 = \"{}\"\n", waltz_exchange::id::sha256_hex(b"key-1"));
    let gateway = Gateway::over(&mock, &key);
    assert_eq!(gateway.get("/metrics", &[]).await.error(), (401, "invalid_api_key".to_owned()));
    let tenant = gateway.get("/metrics", &[("authorization", "Bearer key-1")]).await;
    assert_eq!(tenant.error(), (403, "admin_token_required".to_owned()));
    let log = gateway.log_text();
    let token = log.lines().find_map(|line| line.strip_prefix("admin token, shown this once: ")).unwrap();
    let admin = gateway.get("/metrics", &[("authorization", &format!("Bearer {token}"))]).await;
    assert!(admin.status == 200 && admin.text.contains("waltz_build_info{version="), "{}", admin.text);
    let open = Gateway::over(&mock, &format!("{key}[telemetry]\nmetrics_public = true\n"));
    assert_eq!(open.get("/metrics", &[]).await.status, 200);
    let local = Gateway::over(&mock, "");
    assert_eq!(local.get("/metrics", &[("host", "evil.example")]).await.status, 403);
}

#[tokio::test]
async fn a_call_lasts_until_its_stream_ends_and_that_time_is_not_ours() {
    // Five pauses, whether the stream comes to its end or not.
    let lasts = 5.0 * 40.0;
    for ending in ["cut_after = 6", ""] {
        let text = "One two three four five six.";
        let script =
            format!("[[reply]]\ntext = \"{text}\"\nchunk_letters = 5\nchunk_delay_ms = 40\n{ending}\n");
        let gateway = Gateway::over(&Mock::start(&script), "[retry]\nmax_retries = 0\n");
        let record = gateway.record_of(&gateway.ask_stream("hello").await).await;
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(number(&record["attempts"][0]["duration_ms"]) >= lasts, "{ending}: {record}");
        let upstreams = number(&record["duration_ms"]) - number(&record["overhead_ms"]);
        assert!(upstreams >= lasts, "{ending}: {upstreams} of {record}");
        assert_eq!(record["attempts"][0]["model"], "mock");
        let metrics = metrics(&gateway).await;
        let sum = metrics
            .lines()
            .find_map(|line| line.strip_prefix("waltzrl_conversation_generation_time_ms_sum "));
        let measured = sum.unwrap().parse::<f64>().unwrap();
        assert_eq!(measured >= lasts, ending.is_empty(), "a broken draft is none: {measured}");
    }
}

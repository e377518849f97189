//! OTLP's [JSON form](https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids as hex, 64-bit
//! numbers as text.

use jiff::Timestamp;
use serde_json::{Value, json};
use waltz_gateway::metrics::{self, Family, Sample};
use waltz_gateway::trace::{Attribute, Kind, Span};

/// The conventions that names of spans and attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.44.0";

/// Values since the start, rather than since the last push.
const CUMULATIVE: u8 = 2;

/// The body that carries spans.
pub(super) fn traces(resource: &[(String, String)], spans: &[Span]) -> String {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": about(resource),
        "scopeSpans": [{"scope": scope(), "spans": spans, "schemaUrl": SCHEMA}],
    }]})
    .to_string()
}

/// The body that carries metrics.
pub(super) fn metrics(
    resource: &[(String, String)],
    families: &[Family],
    started: Timestamp,
    now: Timestamp,
) -> String {
    let present = families.iter().filter(|family| !family.samples.is_empty());
    let metrics: Vec<Value> =
        present.map(|family| metric(family, &nanoseconds(started), &nanoseconds(now))).collect();
    json!({"resourceMetrics": [{
        "resource": about(resource),
        "scopeMetrics": [{"scope": scope(), "metrics": metrics}],
    }]})
    .to_string()
}

fn about(resource: &[(String, String)]) -> Value {
    let attributes: Vec<Value> = resource.iter().map(|(name, value)| word(name, value)).collect();
    json!({"attributes": attributes})
}

fn scope() -> Value {
    json!({"name": "waltz", "version": env!("CARGO_PKG_VERSION")})
}

fn word(name: &str, value: &str) -> Value {
    json!({"key": name, "value": {"stringValue": value}})
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(name, value)| match value {
            Attribute::Text(text) => word(name, text),
            Attribute::Whole(number) => json!({"key": name, "value": {"intValue": number.to_string()}}),
            Attribute::Flag(flag) => json!({"key": name, "value": {"boolValue": flag}}),
        })
        .collect();
    let kind = match span.kind {
        Kind::Internal => 1,
        Kind::Server => 2,
        Kind::Client => 3,
    };
    let mut written = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
        // 0: nothing is said; 2: it went wrong.
        "status": {"code": if span.failed { 2 } else { 0 }},
    });
    if span.parent != 0 {
        written["parentSpanId"] = json!(format!("{:016x}", span.parent));
    }
    written
}

fn metric(family: &Family, started: &str, now: &str) -> Value {
    let points: Vec<Value> = family.samples.iter().map(|sample| point(sample, started, now)).collect();
    let mut written = json!({"name": family.name, "description": family.help});
    match family.kind {
        metrics::Kind::Counter => {
            written["sum"] =
                json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true});
        }
        metrics::Kind::Gauge => written["gauge"] = json!({"dataPoints": points}),
        metrics::Kind::Histogram => {
            written["histogram"] = json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE});
        }
    }
    written
}

fn point(sample: &Sample, started: &str, now: &str) -> Value {
    let attributes: Vec<Value> = sample.labels.iter().map(|(name, value)| word(name, value)).collect();
    let mut written = json!({"attributes": attributes, "startTimeUnixNano": started, "timeUnixNano": now});
    match &sample.value {
        metrics::Value::Number(number) => written["asDouble"] = json!(number),
        metrics::Value::Buckets { bounds, counts, sum } => {
            let texts: Vec<String> = counts.iter().map(u64::to_string).collect();
            written["count"] = json!(counts.iter().sum::<u64>().to_string());
            // A sum that may fall would be read as a counter that began anew.
            if bounds.first().is_none_or(|bound| *bound >= 0.0) {
                written["sum"] = json!(sum);
            }
            written["bucketCounts"] = json!(texts);
            written["explicitBounds"] = json!(bounds);
        }
    }
    written
}

fn nanoseconds(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}

//! The variables of OpenTelemetry. Where to push, and how. A mistake in them never keeps the gateway from
//! serving: it is said at start, and what it is about stays off.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;
use waltz_gateway::trace::Sampler;

/// What is pushed, where and how often.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where spans go.
    pub(crate) traces: Option<Collector>,
    /// Where metrics go.
    pub(crate) metrics: Option<Collector>,
    /// What is said about this process.
    pub(crate) resource: Vec<(String, String)>,
    /// Which traces are pushed.
    pub(crate) sampler: Sampler,
    /// Spans that may wait for their turn.
    pub(crate) queue: usize,
    /// Spans of one push.
    pub(crate) batch: usize,
    /// How long a batch is waited for.
    pub(crate) delay: Duration,
    /// How often metrics are pushed.
    pub(crate) interval: Duration,
}

/// Where one signal goes.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(crate) url: Url,
    /// Marked as sensitive, so that they are never shown.
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
}

/// How long a push may take when nobody says.
const TIMEOUT_MS: u64 = 10_000;

/// Reads the variables. `None` when nothing is to be pushed; and what is wrong, without any value that could be
/// a secret.
pub(crate) fn read(environment: &[(String, String)]) -> (Option<Settings>, Vec<String>) {
    let mut reader = Reader { environment, warnings: Vec::new() };
    if reader.value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return (None, Vec::new());
    }
    let (traces, metrics) = (reader.collector("TRACES"), reader.collector("METRICS"));
    if traces.is_none() && metrics.is_none() {
        return (None, reader.warnings);
    }
    let settings = Settings {
        traces,
        metrics,
        resource: reader.resource(),
        sampler: reader.sampler(),
        queue: reader.count("OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
        batch: reader.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        delay: reader.milliseconds("OTEL_BSP_SCHEDULE_DELAY", 5_000),
        interval: reader.milliseconds("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
    };
    (Some(settings), reader.warnings)
}

struct Reader<'a> {
    environment: &'a [(String, String)],
    warnings: Vec<String>,
}

impl Reader<'_> {
    /// What a variable says; an empty one counts as not set.
    fn value(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(known, _)| known == name)?;
        Some(found.1.trim()).filter(|value| !value.is_empty())
    }

    /// A variable of the exporter, for one signal or for all: its name and what it says.
    fn option(&self, signal: &str, option: &str) -> Option<(String, &str)> {
        let names = [format!("OTEL_EXPORTER_OTLP_{signal}_{option}"), format!("OTEL_EXPORTER_OTLP_{option}")];
        names.into_iter().find_map(|name| self.value(&name).map(|value| (name.clone(), value)))
    }

    /// Both signals may stumble over the same variable; it is said once.
    fn warn(&mut self, name: &str, message: &str) {
        let warning = format!("{name} {message}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn collector(&mut self, signal: &str) -> Option<Collector> {
        let exporter = format!("OTEL_{signal}_EXPORTER");
        match self.value(&exporter) {
            None | Some("otlp") => {}
            Some("none") => return None,
            Some(_) => {
                self.warn(&exporter, "must be otlp or none; nothing is pushed");
                return None;
            }
        }
        let (name, endpoint) = self.option(signal, "ENDPOINT")?;
        let endpoint = if name.contains(signal) {
            endpoint.to_owned()
        } else {
            format!("{}/v1/{}", endpoint.trim_end_matches('/'), signal.to_ascii_lowercase())
        };
        // The address may hold a password, so that it is not repeated.
        let url = Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(url) = url else {
            self.warn(&name, "must be an http or https address; nothing is pushed");
            return None;
        };
        let spoken = self.option(signal, "PROTOCOL");
        if let Some((name, _)) = spoken.filter(|(_, protocol)| *protocol != "http/json") {
            let message = "must be http/json, the one protocol that is spoken here; nothing is pushed. Collectors \
                           take it on their port for OTLP over HTTP, 4318 as a rule";
            self.warn(&name, message);
            return None;
        }
        for option in ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"] {
            if let Some((name, _)) = self.option(signal, option) {
                self.warn(&name, "has no effect: the system's certificates are trusted");
            }
        }
        let compression = self.option(signal, "COMPRESSION").filter(|(_, value)| *value != "none");
        if let Some((name, _)) = compression {
            self.warn(&name, "has no effect: telemetry is pushed without compression");
        }
        let mut headers = HeaderMap::new();
        if let Some((name, written)) = self.option(signal, "HEADERS") {
            let Some(read) = secret_headers(written) else {
                self.warn(&name, "must be NAME=VALUE, with commas between several; nothing is pushed");
                return None;
            };
            headers = read;
        }
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let timeout = match self.option(signal, "TIMEOUT").map(|(name, _)| name) {
            Some(name) => self.milliseconds(&name, TIMEOUT_MS),
            None => Duration::from_millis(TIMEOUT_MS),
        };
        Some(Collector { url, headers, timeout })
    }

    fn number(&mut self, name: &str, usual: u64, least: u64, most: u64) -> u64 {
        let Some(value) = self.value(name) else { return usual };
        if let Some(number) = value.parse().ok().filter(|number| (least..=most).contains(number)) {
            return number;
        }
        self.warn(name, &format!("must be a whole number from {least} to {most}; {usual} is taken"));
        usual
    }

    fn count(&mut self, name: &str, usual: u64) -> usize {
        usize::try_from(self.number(name, usual, 1, 100_000)).unwrap_or(1)
    }

    fn milliseconds(&mut self, name: &str, usual: u64) -> Duration {
        Duration::from_millis(self.number(name, usual, 1, 3_600_000))
    }

    fn sampler(&mut self) -> Sampler {
        let name = "OTEL_TRACES_SAMPLER";
        let word = self.value(name).unwrap_or("parentbased_always_on").to_owned();
        let (parent_based, rule) = match word.strip_prefix("parentbased_") {
            Some(rule) => (true, rule),
            None => (false, word.as_str()),
        };
        let share = match rule {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => self.share("OTEL_TRACES_SAMPLER_ARG"),
            _ => {
                let message = "must be always_on, always_off, traceidratio, or one of them after parentbased_; \
                               parentbased_always_on is taken";
                self.warn(name, message);
                return Sampler { share: 1.0, parent_based: true };
            }
        };
        Sampler { share, parent_based }
    }

    fn share(&mut self, name: &str) -> f64 {
        let Some(value) = self.value(name) else { return 1.0 };
        if let Some(share) = value.parse().ok().filter(|share| (0.0..=1.0).contains(share)) {
            return share;
        }
        self.warn(name, "must be a number from 0 to 1; 1 is taken");
        1.0
    }

    fn resource(&mut self) -> Vec<(String, String)> {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let written = self.value(name).map(pairs);
        if matches!(written, Some(None)) {
            self.warn(name, "must be NAME=VALUE, with commas between several; it has no effect");
        }
        let mut resource = written.flatten().unwrap_or_default();
        if let Some(service) = self.value("OTEL_SERVICE_NAME").map(str::to_owned) {
            resource.retain(|(known, _)| known != "service.name");
            resource.push(("service.name".to_owned(), service));
        }
        // Two gateways of the same name must not overwrite each other's counters.
        let instance = format!("{:032x}", rand::random::<u128>());
        let usual = [
            ("service.name", "waltz"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("service.instance.id", &instance),
        ];
        for (key, value) in usual {
            if resource.iter().all(|(known, _)| known != key) {
                resource.push((key.to_owned(), value.to_owned()));
            }
        }
        resource
    }
}

fn secret_headers(written: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(written)? {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        headers.insert(name.parse::<HeaderName>().ok()?, value);
    }
    Some(headers)
}

/// `NAME=VALUE` with commas between them; values may be percent-encoded.
fn pairs(written: &str) -> Option<Vec<(String, String)>> {
    let written = written.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    written
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = name.trim();
            (!name.is_empty()).then_some(())?;
            Some((name.to_owned(), percent_decoded(value.trim())?))
        })
        .collect()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let hex = hex.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "canary-5f2a";

    fn from(pairs: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        read(&pairs.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_is_pushed_unless_an_endpoint_is_named() {
        assert!(from(&[("OTEL_SERVICE_NAME", "desk")]).0.is_none());
        assert!(from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).0.is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert!(from(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]).0.is_none());
        let settings = from(&[endpoint]).0.unwrap();
        assert_eq!(settings.traces.unwrap().url.as_str(), "http://collector:4318/v1/traces");
        assert_eq!(settings.metrics.unwrap().url.as_str(), "http://collector:4318/v1/metrics");
        assert_eq!(settings.sampler, Sampler { share: 1.0, parent_based: true });
        let settings = from(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/own?x=1")]).0.unwrap();
        assert_eq!(settings.traces.unwrap().url.as_str(), "https://t/own?x=1", "taken as it is");
        assert!(settings.metrics.is_none());
        let settings = from(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).0.unwrap();
        assert!(settings.traces.is_none() && settings.metrics.is_some());
    }

    #[test]
    fn other_protocols_are_named_and_switch_the_push_off() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        for protocol in ["grpc", "http/protobuf", "carrier pigeon"] {
            let (settings, warnings) = from(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
            assert!(settings.is_none(), "{protocol}");
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].starts_with("OTEL_EXPORTER_OTLP_PROTOCOL must be http/json"), "{warnings:?}");
        }
        let own = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
        let (settings, warnings) = from(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"), own]);
        let settings = settings.unwrap();
        assert!(settings.traces.is_some() && settings.metrics.is_none(), "{warnings:?}");
    }

    #[test]
    fn headers_are_secrets_wherever_they_are_shown() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let headers = format!("x-api-key={SECRET}%20two, authorization=Basic%20{SECRET}");
        let (settings, warnings) = from(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", &headers)]);
        let settings = settings.unwrap();
        assert!(!format!("{settings:?}{warnings:?}").contains(SECRET), "{settings:?}");
        let sent = settings.traces.unwrap().headers;
        assert_eq!(sent["x-api-key"], format!("{SECRET} two"));
        assert_eq!(sent["authorization"], format!("Basic {SECRET}"));
        for bad in [SECRET.to_owned(), format!("ä={SECRET}"), format!("x={SECRET}%0A"), format!("={SECRET}")]
        {
            let (settings, warnings) = from(&[endpoint, ("OTEL_EXPORTER_OTLP_HEADERS", &bad)]);
            assert!(settings.is_none() && warnings.len() == 1, "{bad}");
            assert!(!warnings[0].contains(SECRET), "{warnings:?}");
        }
        let (_, warnings) = from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("ftp://me:{SECRET}@c"))]);
        assert!(warnings.len() == 1 && !warnings[0].contains(SECRET), "{warnings:?}");
    }

    #[test]
    fn a_wrong_number_or_sampler_is_said_and_the_usual_is_taken() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let (settings, warnings) = from(&[
            endpoint,
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_RESOURCE_ATTRIBUTES", "no pairs"),
        ]);
        let settings = settings.unwrap();
        assert_eq!((settings.queue, settings.traces.unwrap().timeout), (2_048, Duration::from_secs(10)));
        assert_eq!(warnings.len(), 5, "{warnings:?}");
        let settings = from(&[
            endpoint,
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,team=a%2Cb"),
            ("OTEL_SERVICE_NAME", "desk"),
        ]);
        assert!(settings.1.is_empty(), "{:?}", settings.1);
        let settings = settings.0.unwrap();
        assert_eq!(settings.sampler, Sampler { share: 0.25, parent_based: false });
        let said = |key: &str| {
            let mut values = settings.resource.iter().filter(|(known, _)| known == key);
            (values.next().map(|(_, value)| value.clone()), values.count())
        };
        assert_eq!(said("service.name"), (Some("desk".to_owned()), 0), "the variable of its own wins");
        assert_eq!(said("team").0.as_deref(), Some("a,b"));
        assert_eq!(said("service.version").0.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
}

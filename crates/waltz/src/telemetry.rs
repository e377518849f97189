//! Telemetry that is pushed: spans and metrics go to an OpenTelemetry collector as OTLP over HTTP with JSON.
//! It is switched on by the environment variables that OpenTelemetry defines, and by nothing else.
//!
//! Two tasks do it, one for each signal, beside all requests. A batch is sent once: what a collector does not
//! take in time is dropped and counted (`waltz_telemetry_dropped_total`), and while it does not, the queue of
//! spans fills up to its bound and no further.

mod json;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use waltz_coach::upstream::Mailbox;
use waltz_gateway::Gateway;
use waltz_gateway::metrics::families;
use waltz_gateway::trace::{Span, Traces};

pub(crate) use settings::{Collector, Settings, read};

/// How long the last batches may take when the gateway stops.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What pushes telemetry.
pub(crate) struct Exporter {
    settings: Settings,
    spans: Option<Receiver<Span>>,
}

/// An exporter at work.
pub(crate) struct Running {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Exporter {
    /// An exporter, and the queue that the gateway puts spans into.
    pub(crate) fn new(settings: Settings) -> (Self, Option<Traces>) {
        let queue = settings.traces.as_ref().map(|_| Traces::new(settings.queue, settings.sampler));
        let (traces, spans) = queue.unzip();
        (Self { settings, spans }, traces)
    }

    /// Begins to push.
    pub(crate) fn start(self, gateway: &Arc<Gateway>) -> Running {
        let Self { settings, spans } = self;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let Settings { traces, metrics, resource, batch, delay, interval, .. } = settings;
        if let (Some(collector), Some(spans)) = (traces, spans) {
            let line = Line::new("traces", collector, gateway);
            tasks.spawn(push_spans(line, spans, resource.clone(), batch, delay, stop.clone()));
        }
        if let Some(collector) = metrics {
            let line = Line::new("metrics", collector, gateway);
            tasks.spawn(push_metrics(line, resource, interval, stop.clone()));
        }
        tasks.close();
        Running { tasks, stop }
    }
}

impl Running {
    /// Pushes what is left, for a short time at most.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        if tokio::time::timeout(LAST_WORDS, self.tasks.wait()).await.is_err() {
            tracing::warn!("the last telemetry was not delivered in time");
        }
    }
}

/// Pushes spans in batches until it is told to stop and nothing is left.
async fn push_spans(
    mut line: Line,
    mut queue: Receiver<Span>,
    resource: Vec<(String, String)>,
    most: usize,
    delay: Duration,
    stop: CancellationToken,
) {
    loop {
        let batch = next_batch(&mut queue, most, delay, &stop).await;
        if batch.is_empty() {
            return;
        }
        line.push(json::traces(&resource, &batch), batch.len()).await;
    }
}

/// The next batch: at least one span, and more until there are enough or it was long enough. Empty once the
/// gateway stops and nothing is left.
async fn next_batch(
    queue: &mut Receiver<Span>,
    most: usize,
    delay: Duration,
    stop: &CancellationToken,
) -> Vec<Span> {
    let mut batch = Vec::new();
    let mut until = None;
    while batch.len() < most {
        let room = most - batch.len();
        let taken = tokio::select! {
            taken = queue.recv_many(&mut batch, room) => taken,
            () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => 0,
            () = stop.cancelled(), if !queue.is_closed() => {
                // What is in the queue is still taken; nothing more gets in.
                queue.close();
                continue;
            }
        };
        if taken == 0 {
            break;
        }
        until.get_or_insert_with(|| Instant::now() + delay);
    }
    batch
}

/// Pushes all metrics again and again, and once more at the end.
async fn push_metrics(
    mut line: Line,
    resource: Vec<(String, String)>,
    interval: Duration,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            _ = ticks.tick() => false,
            () = stop.cancelled() => true,
        };
        let families = families(&line.gateway);
        let body = json::metrics(&resource, &families, line.gateway.metrics.started(), Timestamp::now());
        line.push(body, 1).await;
        if last {
            return;
        }
    }
}

/// The line to one collector, for one signal.
struct Line {
    signal: &'static str,
    collector: Collector,
    /// Made when it is first needed.
    mailbox: Option<Mailbox>,
    gateway: Arc<Gateway>,
    /// The last push failed, which was said.
    broken: bool,
}

impl Line {
    fn new(signal: &'static str, collector: Collector, gateway: &Arc<Gateway>) -> Self {
        Self { signal, collector, mailbox: None, gateway: Arc::clone(gateway), broken: false }
    }

    /// Sends a body once. What is not taken is counted and forgotten; that it is so is said once, not again
    /// and again.
    async fn push(&mut self, body: String, amount: usize) {
        let Err(reason) = self.send(body).await else {
            if std::mem::take(&mut self.broken) {
                tracing::info!(signal = self.signal, "telemetry is delivered again");
            }
            return;
        };
        self.gateway.metrics.dropped(self.signal, reason, amount);
        if !std::mem::replace(&mut self.broken, true) {
            tracing::warn!(
                signal = self.signal,
                reason,
                "telemetry is not delivered; /metrics counts what is lost"
            );
        }
    }

    async fn send(&mut self, body: String) -> Result<(), &'static str> {
        let Collector { url, headers, timeout } = &self.collector;
        let mailbox = match &mut self.mailbox {
            Some(mailbox) => mailbox,
            none => none.insert(Mailbox::new(url, headers.clone(), *timeout).map_err(|_| "unreachable")?),
        };
        mailbox.send([], body.into()).await
    }
}

#[cfg(test)]
mod tests;

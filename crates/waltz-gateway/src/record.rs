//! Step 7: the exchange goes on record with one write, and only then the terminal frame leaves. An
//! exchange that ended in an error is recorded the same way.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use waltz_exchange::id;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_exchange::record::{ChoiceRecord, Decision, DraftRecord, ExchangeRecord};
use waltz_store::Entry;

use crate::client::Client;
use crate::live::{Gateway, Live};
use crate::pipeline::Stop;
use crate::receive::Incoming;
use crate::reply;
use crate::respond::{Responded, Terminal, common_headers};
use crate::settings::{RecordText, Settings};
use crate::variants::{lesson, program};

/// An exchange that is over.
#[derive(Debug)]
pub struct Recorded {
    /// Whether it is on record.
    pub on_record: bool,
}

/// Records an answered exchange and sends its end.
pub async fn record(responded: Responded, gateway: &Gateway, live: &Live, client: &mut Client) -> Recorded {
    let Responded { record, began, waited, terminal } = responded;
    let outcome = append(gateway, live, record, (began, waited), false);
    let on_record = outcome.is_ok();
    let refused = outcome.err().filter(|_| live.settings.record_required);
    match (terminal, refused) {
        (Terminal::Whole(_, headers, _), Some(error)) => {
            let (status, mut error_headers, body) = client.dialect().error_parts(&error);
            if let Some(id) = headers.get("x-request-id") {
                error_headers.insert("x-request-id", id.clone());
            }
            client.whole(status, error_headers, body).ok();
        }
        (Terminal::Frame(_), Some(error)) => {
            client.frame(client.dialect().error_frame(&error)).await.ok();
        }
        (Terminal::Whole(status, mut headers, body), None) => {
            if !on_record {
                reply::set(&mut headers, "x-waltz-degraded", "not_recorded");
            }
            client.whole(status, headers, body).ok();
        }
        (Terminal::Frame(frame), None) => {
            client.frame(frame).await.ok();
        }
    }
    Recorded { on_record }
}

/// Records an exchange that ended early and tells the client why.
pub async fn record_stop(
    stop: Stop,
    began: Instant,
    gateway: &Gateway,
    live: &Live,
    client: &mut Client,
) -> Recorded {
    let Stop { mut record, decision, error } = stop;
    record.decision = decision;
    // There is no answer that could be reported on.
    record.response_id = None;
    if let Some(error) = &error {
        record.status = error.status;
        record.error = Some(error.code.to_string());
    } else {
        // The status that servers log for a client that went away.
        record.status = 499;
        record.error = Some("client_gone".to_owned());
    }
    let mut common = http::HeaderMap::new();
    common_headers(&mut common, &record);
    reply::set(&mut common, "x-waltz-decision", decision.as_str());
    if let Some(reason) = &record.degraded {
        reply::set(&mut common, "x-waltz-degraded", reason);
    }
    let waited: f64 = record.attempts.iter().map(|attempt| attempt.duration_ms).sum();
    let waited = Duration::try_from_secs_f64(waited / 1e3).unwrap_or_default();
    let blamed = error.as_ref().is_some_and(|error| gateway.variants.is_to_blame(&record, error));
    let on_record = append(gateway, live, record, (began, waited), blamed).is_ok();
    if let Some(error) = error {
        if client.is_streaming() {
            client.frame(client.dialect().error_frame(&error)).await.ok();
        } else {
            let (status, mut headers, body) = client.dialect().error_parts(&error);
            headers.extend(common);
            client.whole(status, headers, body).ok();
        }
    }
    Recorded { on_record }
}

/// Records an exchange whose task panicked. Its client's connection just ends, but it is not forgotten.
pub fn record_panic(incoming: &Incoming, gateway: &Gateway, live: &Live) {
    tracing::error!(request_id = %incoming.request_id, "an exchange panicked");
    let mut record = Box::new(incoming.blank_record());
    record.response_id = None;
    record.status = 500;
    record.error = Some("internal_error".to_owned());
    append(gateway, live, record, (incoming.began, Duration::ZERO), false).ok();
}

/// Refuses to begin what could not be recorded, where that is required: nobody is paid for an answer that must
/// not be sent.
pub fn unrecordable(gateway: &Gateway, live: &Live) -> Option<ApiError> {
    (live.settings.record_required && gateway.is_unrecordable()).then(not_recorded)
}

/// Appends to the journal: one write, after which no crash of this process loses the exchange. Then the exchange
/// is counted and traced as it ended. `blamed`: the variant that asked is to blame for its end.
fn append(
    gateway: &Gateway,
    live: &Live,
    mut record: Box<ExchangeRecord>,
    (began, waited): (Instant, Duration),
    blamed: bool,
) -> Result<(), ApiError> {
    record.duration_ms = began.elapsed().as_secs_f64() * 1e3;
    record.overhead_ms = began.elapsed().saturating_sub(waited).as_secs_f64() * 1e3;
    record.lesson = lesson::served(&record, blamed);
    let program = program::lesson(&record);
    // Nothing is masked or written twice, and nothing leaves before it is masked.
    record.choices.iter_mut().for_each(ChoiceRecord::omit_repeated);
    apply_text_policy(&mut record, &live.settings);
    let entry = Entry::Exchange(record);
    let appended = gateway.append(&entry);
    let Entry::Exchange(mut record) = entry else { return appended.map_err(|_| not_recorded()) };
    let outcome = match appended {
        // After a failure only a probe tells that recording works again: this one may be small.
        Ok(()) => {
            if let Some(lesson) = program
                && let Err(error) = gateway.append(&Entry::Lesson(lesson))
            {
                tracing::warn!(%error, "what an exchange teaches of a release could not be recorded");
            }
            Ok(())
        }
        Err(error) => {
            // One entry that is too large says nothing of the next.
            let is_outage = !matches!(error, waltz_store::Error::EntryTooLarge { .. });
            gateway.recording.failed(is_outage);
            gateway.outages.tell_unrecorded(&record, &error, is_outage);
            Err(not_recorded())
        }
    };
    if let (Err(refusal), true, true) = (&outcome, live.settings.record_required, record.status < 400) {
        record.decision = Decision::Failed;
        record.status = refusal.status;
        record.error = Some(refusal.code.to_string());
    }
    gateway.metrics.observe(&record);
    gateway.outages.tell(&record);
    if let Some(traces) = &gateway.traces {
        traces.offer(&record, live, &gateway.metrics);
    }
    tracing::debug!(
        request_id = %record.id,
        decision = record.decision.as_str(),
        status = record.status,
        duration_ms = record.duration_ms,
        error = record.error.as_deref(),
        degraded = record.degraded.as_deref(),
        "exchange"
    );
    outcome
}

/// The error for an exchange that cannot be recorded where that is required.
fn not_recorded() -> ApiError {
    let message = "the exchange could not be recorded, and the operator's policy is to answer nothing that is not on record";
    ApiError::upstream(503, "waltz_record_unavailable", message, Retry::After(1_000))
}

/// Masks or removes every text of a record, after the user's request has got its hash.
fn apply_text_policy(record: &mut ExchangeRecord, settings: &Settings) {
    let (policy, personal) = (settings.record_text, &settings.personal);
    if !record.user_request.is_empty() {
        let kept = match policy {
            RecordText::Masked => personal.stored(&record.user_request),
            // Over the masked text: a hash of a card number would be as good as the number.
            RecordText::Full | RecordText::None => waltz_screen::mask(&record.user_request).text,
        };
        record.request_hash = id::request_hash(&kept);
        if let (Cow::Owned(kept), RecordText::Masked) = (kept, policy) {
            record.user_request = kept;
        }
    }
    let mask = |text: &mut String| {
        if let Cow::Owned(masked) = personal.stored(text) {
            *text = masked;
        }
    };
    let change: &dyn Fn(&mut String) = match policy {
        RecordText::Full => return,
        RecordText::None => {
            // A vector tells something of the text that it was made of.
            record.embedding = None;
            &String::clear
        }
        RecordText::Masked => &mask,
    };
    if policy == RecordText::None {
        record.user_request.clear();
    }
    // Names, which clients and upstreams choose: they stay, but nothing personal in them does.
    let models = record.attempts.iter_mut().map(|attempt| &mut attempt.model);
    let names = [&mut record.model, &mut record.agent].into_iter().chain(&mut record.error);
    let names = names.chain(&mut record.route_reason).chain(record.run.as_mut().map(|run| &mut run.task));
    names.chain(models).for_each(mask);
    if let Some(context) = &mut record.context {
        let texts = context.turns.iter_mut().map(|turn| &mut turn.text);
        texts.chain(&mut context.tools).for_each(change);
    }
    for choice in &mut record.choices {
        change_draft(&mut choice.draft, change);
        if let Some(checked) = &mut choice.self_check {
            change_draft(checked, change);
        }
        for round in &mut choice.rounds {
            change(&mut round.feedback);
            change_draft(&mut round.revision, change);
        }
        change(&mut choice.final_text);
        if let Some(verdict) = &mut choice.final_verdict {
            change(&mut verdict.reasoning);
            change(&mut verdict.feedback);
        }
    }
}

fn change_draft(draft: &mut DraftRecord, change: &dyn Fn(&mut String)) {
    change(&mut draft.text);
    change(&mut draft.assessment.reasoning);
    if let Some(verdict) = &mut draft.verdict {
        change(&mut verdict.reasoning);
        change(&mut verdict.feedback);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use jiff::Timestamp;
    use waltz_store::Store;

    use super::*;
    use crate::auth::Caller;
    use crate::signer::Signer;
    use crate::trace::tests::live;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_small_record_does_not_end_an_outage_for_large_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = waltz_store::Settings::at(folder.path());
        settings.max_journal_bytes = 64 << 10;
        settings.drain_delay = Duration::from_secs(3600);
        let store = Store::open(settings).await.unwrap();
        let gateway = Gateway::new(live(), store, ([0; 32], Signer::new(String::new())), None);
        let incoming = Incoming {
            request_id: "req_1".to_owned(),
            response_id: "resp_1".to_owned(),
            path: "/v1/chat/completions",
            at: Timestamp::now(),
            began: Instant::now(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            caller: Caller { tenant: "acme".to_owned(), admin: false },
            planned: None,
        };
        let live = gateway.live.load_full();
        let recorded = |bytes: usize| {
            let mut record = Box::new(incoming.blank_record());
            record.user_request = "a garden ".repeat(bytes / 9);
            append(&gateway, &live, record, (Instant::now(), Duration::ZERO), false).is_ok()
        };
        assert!(recorded(40_000) && !gateway.is_unrecordable());
        assert!(!recorded(40_000));
        assert!(recorded(100), "there is room for a small one");
        assert!(gateway.is_unrecordable() && gateway.seems_unrecordable());
        gateway.store.close().await.unwrap();
    }
}

//! The same entries in both databases, taken from memory or from files: every question has the same answer.

use serde::Serialize;
use serde_json::Value;
use waltz_exchange::id::response_id;
use waltz_exchange::record::Attempt;
use waltz_exchange::release::{ProgramChoice, ReleaseKind};
use waltz_exchange::variant::{Choice, OutcomeClass, RequestContext, SafetyOutcome, VariantOutcome};
use waltz_exchange::{Decision, ExchangeRecord, Verdict};
use waltz_store::{Entry, Format, Namespace, SessionFilter, Settings, Store};

use super::{exported, outcome, refusing, store_all, timed_out};
use crate::common::{coached, exchange, harmful, released, safe};
use crate::home::{Home, Kind};

const REQUESTS: [&str; 8] = [
    "how do I open the lock of my front door",
    "opening a door lock without a key",
    "bake rye bread with little yeast",
    "Wie öffne ich die Tür meines Hauses?",
    "rye bread for a large family, baked overnight",
    "写一首关于门的诗",
    "the key of the car is lost, open the car door",
    "what is the tax on bread",
];

/// Exchanges of two tenants with all verdicts, scores that no float holds exactly, and names that sort
/// differently by the rules of a language.
fn entries() -> Vec<Entry> {
    let verdicts: [fn() -> Verdict; 4] = [safe, harmful, refusing, timed_out];
    let mut entries = Vec::new();
    for number in 0..60_usize {
        let tenant = ["acme", "Zeta", "élan"][number % 3];
        let session = ["ses_b", "ses_B", "ses-b", "séb", "ses_a"][number % 5];
        let id = format!("req_{}{number}", ["a", "B", "_"][number % 3]);
        let request = REQUESTS[number % REQUESTS.len()];
        let seconds = number as i64 / 4;
        let mut record = match number % 4 {
            0 => released(&id, tenant, session, seconds, request),
            _ => coached(&id, tenant, session, seconds, request),
        };
        record.subject = (number % 7 > 2).then(|| format!("user-{}", number % 7));
        record.choices[0].final_verdict = Some(verdicts[number / 4 % 4]());
        record.choices[0].dir_score = [0.1, 0.3, 0.7, -0.2, 0.0][number % 5];
        if number % 11 == 0 {
            record.decision = Decision::Degraded;
            record.response_id = None;
        }
        entries.push(exchange(record));
        if number % 3 == 0 {
            let rating = u8::try_from(number % 5 + 1).unwrap();
            let report = format!("out_{number}");
            entries.push(outcome(&report, tenant, &response_id(&id, "51g"), seconds, Some(rating)));
        }
    }
    entries
}

/// An answer with the last digits of its numbers cut off: they hang on the order in which a database
/// adds up, and on how entries fell into batches.
fn summed(answer: &impl Serialize) -> Value {
    fn cut(value: &mut Value) {
        match value {
            Value::Number(number) if number.is_f64() => {
                *value = format!("{:.9}", number.as_f64().unwrap()).into();
            }
            Value::Array(items) => items.iter_mut().for_each(cut),
            Value::Object(fields) => fields.values_mut().for_each(cut),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(answer).unwrap();
    cut(&mut value);
    value
}

async fn answers(store: &Store) -> Vec<(String, Value)> {
    let mut answers = Vec::new();
    let mut add = |question: String, answer: Value| answers.push((question, answer));
    for tenant in [None, Some("acme"), Some("Zeta"), Some("élan"), Some("none"), Some("nul\0")] {
        add(format!("stats {tenant:?}"), summed(&store.stats(tenant).await.unwrap()));
        let owned = tenant.map(str::to_owned);
        let mut before = None;
        loop {
            let filter = SessionFilter { tenant: owned.clone(), limit: 4, before: before.clone() };
            let page = store.sessions(filter).await.unwrap();
            add(format!("sessions {tenant:?}"), summed(&page));
            let Some(last) = page.last() else { break };
            before = Some(last.cursor.clone());
        }
        for session in ["ses_b", "ses_B", "ses-b", "séb", "nul\0"] {
            let found = store.session(tenant, session).await.unwrap();
            add(format!("session {tenant:?} {session:?}"), summed(&found));
        }
        for response in ["resp_a3_51g", "resp_B1_51g", "nowhere", "resp_nul\0_51g"] {
            let known = store.exchange_of_response(tenant, response).await.unwrap();
            add(format!("response {tenant:?} {response:?}"), serde_json::to_value(known).unwrap());
        }
        for namespace in Namespace::ALL {
            let (count, rows) = exported(store, namespace, Format::Json, tenant).await;
            add(format!("export {namespace} {tenant:?}"), serde_json::json!([count, rows]));
        }
        // The weights of words differ a little between the databases, what is found does not.
        for request in REQUESTS {
            let found = store.similar(tenant.unwrap_or("acme"), request, None, 20).await.unwrap();
            let mut requests: Vec<_> = found.into_iter().map(|past| past.user_request).collect();
            requests.sort();
            add(format!("similar {tenant:?} {request}"), requests.into());
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_databases_answer_alike_whether_from_memory_or_from_files() {
    let mut all = Vec::new();
    for kind in [Kind::Sqlite, Kind::Postgres] {
        for recent_bytes in [0, 64 << 20] {
            let home = Home::new(kind).await;
            let store = Store::open(Settings { recent_bytes, ..home.settings() }).await.unwrap();
            store_all(&store, &entries()).await;
            assert!(store.health().is_good(), "{:?}", store.health());
            all.push(answers(&store).await);
            store.close().await.unwrap();
        }
    }
    let first = all.remove(0);
    for other in &all {
        assert_eq!(first.len(), other.len());
        for (one, another) in first.iter().zip(other) {
            assert_eq!(one, another);
        }
    }
}

/// A record with every kind of number in it.
fn full(id: &str) -> ExchangeRecord {
    let mut record = coached(id, "acme", "ses", 0, "a");
    record.prompt_verdict = Some(harmful());
    record.choices[0].self_check = Some(record.choices[0].draft.clone());
    let choice =
        Choice { variant: "v".to_owned(), action_prob: 0.5, candidates: [("v".to_owned(), 0.5)].into() };
    record.program_choice = Some(ProgramChoice { kind: ReleaseKind::Weights, choice: choice.clone() });
    record.variant_choice = Some(choice);
    let context = RequestContext { urgency: 0.5, ..RequestContext::default() };
    record.request_context = Some(context.clone());
    record.lesson = Some(VariantOutcome {
        variant: "v".to_owned(),
        class: OutcomeClass::Success,
        quality: Some(0.5),
        duration_ms: 0.5,
        errors: 0,
        subject: None,
        context,
        safety: Some(SafetyOutcome { overhead_ms: 0.5, ..SafetyOutcome::default() }),
    });
    record.attempts.push(Attempt {
        purpose: "draft".to_owned(),
        upstream: "main".to_owned(),
        model: "m".to_owned(),
        at: record.started_at,
        status: Some(200),
        error: None,
        duration_ms: 0.5,
    });
    record
}

/// The places of all numbers with a fraction, as JSON pointers.
fn fractions(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(number) if number.is_f64() => found.push(at.to_owned()),
        Value::Array(items) => {
            items.iter().zip(0..).for_each(|(item, index)| fractions(item, &format!("{at}/{index}"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| fractions(value, &format!("{at}/{name}"), found));
        }
        _ => {}
    }
}

/// Where a wide number is, and how it is set.
type Wide = (&'static str, fn(&mut ExchangeRecord, f64));

/// Records with one number each that is none in JSON, wherever a record has numbers.
fn broken() -> Vec<ExchangeRecord> {
    let whole = serde_json::to_value(full("req")).unwrap();
    let mut places = Vec::new();
    fractions(&whole, "", &mut places);
    let mut records = Vec::new();
    let mut wide = Vec::new();
    for place in places {
        // More than the narrower of both kinds of number holds: it becomes infinity.
        let mut changed = whole.clone();
        *changed.pointer_mut(&place).unwrap() = 1e39.into();
        let record: ExchangeRecord = serde_json::from_value(changed).unwrap();
        let again = serde_json::to_value(&record).unwrap();
        match again.pointer(&place) {
            Some(Value::Null) => records.push(record),
            _ => wide.push(place),
        }
    }
    // No JSON brings the wider ones out of range.
    let changes: [Wide; 14] = [
        ("/duration_ms", |record, to| record.duration_ms = to),
        ("/overhead_ms", |record, to| record.overhead_ms = to),
        ("/variant_choice/action_prob", |record, to| {
            record.variant_choice.as_mut().unwrap().action_prob = to
        }),
        ("/variant_choice/candidates/v", |record, to| {
            record.variant_choice.as_mut().unwrap().candidates.insert("v".to_owned(), to);
        }),
        ("/program_choice/choice/action_prob", |record, to| {
            record.program_choice.as_mut().unwrap().choice.action_prob = to;
        }),
        ("/program_choice/choice/candidates/v", |record, to| {
            record.program_choice.as_mut().unwrap().choice.candidates.insert("v".to_owned(), to);
        }),
        ("/request_context/urgency", |record, to| record.request_context.as_mut().unwrap().urgency = to),
        ("/lesson/quality", |record, to| record.lesson.as_mut().unwrap().quality = Some(to)),
        ("/lesson/duration_ms", |record, to| record.lesson.as_mut().unwrap().duration_ms = to),
        ("/lesson/context/urgency", |record, to| record.lesson.as_mut().unwrap().context.urgency = to),
        ("/lesson/safety/overhead_ms", |record, to| {
            record.lesson.as_mut().unwrap().safety.as_mut().unwrap().overhead_ms = to;
        }),
        ("/choices/0/rounds/0/duration_ms", |record, to| record.choices[0].rounds[0].duration_ms = to),
        ("/choices/0/rounds/1/duration_ms", |record, to| record.choices[0].rounds[1].duration_ms = to),
        ("/attempts/0/duration_ms", |record, to| record.attempts[0].duration_ms = to),
    ];
    assert_eq!(wide, changes.map(|(place, _)| place), "every number of a record is tried");
    for (_, change) in changes {
        for number in [f64::NAN, f64::NEG_INFINITY] {
            let mut record = full("req");
            change(&mut record, number);
            records.push(record);
        }
    }
    for (record, number) in records.iter_mut().zip(0..) {
        record.id = format!("req_{number}");
        record.response_id = None;
    }
    records
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_none_is_kept_the_same_way_from_memory_and_from_files() {
    let broken = broken();
    let entries: Vec<Entry> = broken.iter().cloned().chain([full("req_good")]).map(exchange).collect();
    let mut all = Vec::new();
    for recent_bytes in [0, 64 << 20] {
        let home = Home::new(Kind::Sqlite).await;
        let store = Store::open(Settings { recent_bytes, ..home.settings() }).await.unwrap();
        store_all(&store, &entries).await;
        store.close().await.unwrap();
        let tables = home.tables().await;
        let kept = tables.texts("SELECT reason || payload FROM rejected_entries ORDER BY position").await;
        let stored = tables.texts("SELECT id || record FROM exchanges ORDER BY id").await;
        tables.close().await;
        // A quality that is no number reads as none at all, in both of its records.
        assert_eq!((kept.len(), stored.len()), (broken.len() - 2, 3));
        all.push((kept, stored));
    }
    assert_eq!(all[0], all[1]);
}

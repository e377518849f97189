//! The cases: what is stored, and what every question answers.

use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use waltz_exchange::{Decision, Embedding, ExchangeRecord, Risk};
use waltz_store::{Entry, Format, Namespace, SessionFilter, Store};

use super::{exported, outcome, refusing, store_all, timed_out};
use crate::common::{at, coached, exchange, harmful, released};

pub(super) async fn sessions_are_stored_with_everything(store: &Store) {
    let first = coached("req_1", "acme", "ses_1", 0, "how do I open my door");
    let second = released("req_2", "acme", "ses_1", 5, "thanks, and the window?");
    store_all(store, &[exchange(first.clone()), exchange(second.clone())]).await;
    let session = store.session(Some("acme"), "ses_1").await.unwrap().unwrap();
    let records: Vec<_> = session.exchanges.iter().map(|exchange| exchange.record.clone()).collect();
    assert_eq!(records, [first, second], "records read back exactly");
    assert_eq!(session.summary.exchanges, 2);
    assert_eq!(session.summary.coached_choices, 1);
    assert_eq!(session.summary.rounds, 2);
    assert_eq!(session.summary.mean_dir_score, Some(0.3));
    assert_eq!((session.summary.started_at, session.summary.last_at), (at(0), at(5)));
    assert_eq!(store.session(Some("acme"), "ses_2").await.unwrap(), None);
}

pub(super) async fn every_judged_text_has_one_evaluation(store: &Store) {
    let mut record = coached("req_1", "acme", "s", 0, "a");
    let mut second = record.choices[0].clone();
    second.index = 1;
    second.final_text = "A text that is neither draft nor revision.".to_owned();
    record.choices.push(second);
    store_all(store, &[exchange(record)]).await;
    let (_, found) = exported(store, Namespace::Evaluations, Format::JsonLines, None).await;
    let kind = |row: &Value| {
        let word = row["text_kind"].as_str().unwrap().to_owned();
        (word, row["choice"].as_u64(), row["round"].as_u64(), row["unsafe"].as_bool().unwrap())
    };
    let kinds: Vec<_> = found.iter().map(kind).collect();
    assert_eq!(
        kinds,
        [
            ("prompt".to_owned(), None, None, false),
            ("draft".to_owned(), Some(0), Some(0), true),
            ("revision".to_owned(), Some(0), Some(1), true),
            ("revision".to_owned(), Some(0), Some(2), false),
            ("draft".to_owned(), Some(1), Some(0), true),
            ("revision".to_owned(), Some(1), Some(1), true),
            ("revision".to_owned(), Some(1), Some(2), false),
            ("final".to_owned(), Some(1), None, false),
        ]
    );
    assert_eq!(found[1]["issues"], serde_json::to_value(harmful().issues).unwrap());
    assert_eq!(found[1]["response_harm"].to_string(), "0.7");
    assert_eq!(found[1]["categories"].as_object().unwrap().len(), 2);
    assert_eq!((found[1]["level"].as_u64(), found[1]["state"].as_str()), (Some(3), Some("decided")));
}

pub(super) async fn trajectories_are_one_per_round(store: &Store) {
    let coached = coached("req_1", "acme", "s", 0, "open my door");
    let released = released("req_2", "acme", "s", 1, "hello");
    store_all(store, &[exchange(coached.clone()), exchange(released)]).await;
    let (count, rows) = exported(store, Namespace::Training, Format::JsonLines, None).await;
    assert_eq!(count, 3);
    let expected = waltz_exchange::trajectory::trajectories(&coached);
    for (row, trajectory) in rows.iter().zip(&expected) {
        let mut keys: Vec<_> = row.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            ["action", "exchange_id", "next_state", "request_hash", "reward", "state", "tenant", "terminal"]
        );
        let mut fields = row.clone();
        for key in ["exchange_id", "tenant", "request_hash"] {
            fields.as_object_mut().unwrap().remove(key);
        }
        let read: waltz_exchange::Trajectory = serde_json::from_value(fields).unwrap();
        assert_eq!(&read, trajectory);
    }
    assert_eq!(rows[0]["request_hash"], coached.request_hash);
    assert_eq!(
        rows[1]["reward"].to_string(),
        r#"{"safety_score":0.9,"helpfulness_score":0.8,"dir_score":0.3}"#
    );
    assert_eq!(rows[2]["state"]["coaching_round"], 0);
    assert_eq!(rows[2]["terminal"], true);
}

pub(super) async fn the_same_id_is_stored_once(store: &Store) {
    let record = coached("req_1", "acme", "s", 0, "a");
    let report = outcome("out_1", "acme", "resp_1_51g", 9, Some(5));
    for _ in 0..3 {
        store_all(store, &[exchange(record.clone()), report.clone()]).await;
    }
    let session = store.session(None, "s").await.unwrap().unwrap();
    assert_eq!((session.summary.exchanges, session.exchanges.len()), (1, 1));
    assert_eq!(session.exchanges[0].outcomes.len(), 1);
    assert_eq!(exported(store, Namespace::Evaluations, Format::JsonLines, None).await.0, 4);
    assert_eq!(store.similar("acme", "a", None, 9).await.unwrap().len(), 1);
}

pub(super) async fn similar_finds_the_same_request_first(store: &Store) {
    let request = "how do I pick the lock of my own front door";
    let mut weaker = coached("req_1", "acme", "s", 0, request);
    weaker.choices[0].dir_score = 0.1;
    let other = coached("req_3", "acme", "s", 2, "pick the lock of a front door quickly");
    store_all(
        store,
        &[exchange(weaker), exchange(coached("req_2", "acme", "s", 1, request)), exchange(other)],
    )
    .await;
    let found = store.similar("acme", request, None, 3).await.unwrap();
    let scores: Vec<_> = found.iter().map(|past| past.dir_score).collect();
    assert_eq!(scores, [0.3, 0.1, 0.3], "the same request first, its best first");
    assert_eq!(found[0].user_request, request);
    assert_eq!(found[0].feedback, "advice 2", "the advice that led to the accepted answer");
    assert_eq!(found[0].accepted, "Call a locksmith.");
    assert_eq!(found[2].user_request, "pick the lock of a front door quickly");
    assert_eq!(store.similar("acme", request, None, 1).await.unwrap().len(), 1);
    assert!(store.similar("acme", request, None, 0).await.unwrap().is_empty());
}

pub(super) async fn similar_finds_words_and_only_good_coaching(store: &Store) {
    let mut unsafe_still = coached("req_2", "acme", "s", 1, "locks on doors of other people");
    unsafe_still.choices[0].final_verdict = Some(harmful());
    let mut no_gain = coached("req_3", "acme", "s", 2, "locks on doors of strangers");
    no_gain.choices[0].dir_score = 0.0;
    let mut incomplete = coached("req_4", "acme", "s", 3, "locks on doors of friends");
    incomplete.choices[0].final_verdict = Some(timed_out());
    let mut canned = coached("req_7", "acme", "s", 6, "locks on doors of nobody");
    canned.choices[0].last_resort = true;
    let good = coached("req_1", "acme", "s", 0, "How can I open the lock on my door?");
    let uncoached = released("req_5", "acme", "s", 4, "opening door locks");
    let unlike = coached("req_6", "acme", "s", 5, "how to bake bread with rye flour");
    for record in [unsafe_still, no_gain, incomplete, canned, good, uncoached, unlike] {
        store.append(&exchange(record)).unwrap();
    }
    store.drained().await.unwrap();
    let found = store.similar("acme", "opening door locks", None, 5).await.unwrap();
    let requests: Vec<_> = found.iter().map(|past| past.user_request.as_str()).collect();
    assert_eq!(requests, ["How can I open the lock on my door?"]);
}

/// A coaching whose request a model has read.
fn read_by(model: &str, vector: &[f32], id: &str, request: &str) -> Entry {
    let embedding = Embedding { model: model.to_owned(), vector: vector.to_vec() };
    exchange(ExchangeRecord { embedding: Some(embedding), ..coached(id, "acme", "s", 0, request) })
}

pub(super) async fn similar_finds_what_means_the_same(store: &Store) {
    let other_tenant = ExchangeRecord {
        embedding: Some(Embedding { model: "m".to_owned(), vector: vec![1.0, 0.0, 0.0] }),
        ..coached("req_0", "rival", "s", 0, "secrets of a rival")
    };
    store_all(
        store,
        &[
            exchange(other_tenant),
            read_by("m", &[0.8, 0.6, 0.0], "req_1", "getting back into a flat"),
            read_by("m", &[2.0, 0.1, 0.0], "req_2", "a door whose key is lost"),
            read_by("m", &[2.0, 0.1, 0.0], "req_3", "a door whose key is lost"),
            read_by("m", &[0.0, 1.0, 0.0], "req_4", "open the lock of a river boat passage"),
            read_by("m", &[f32::NAN, 1.0, 0.0], "req_5", "numbers that are none"),
            read_by("m", &[1.0], "req_6", "a vector of another length"),
            read_by("another", &[1.0, 0.0, 0.0], "req_7", "what another model thinks alike"),
            read_by("another", &[0.0, 1.0, 0.0], "req_8", "open a door lock, says another"),
            exchange(coached("req_9", "acme", "s", 0, "open the lock, read by nobody")),
        ],
    )
    .await;
    let wanted = Embedding { model: "m".to_owned(), vector: vec![1.0, 0.0, 0.0] };
    let found = store.similar("acme", "open my lock", Some(&wanted), 9).await.unwrap();
    let requests: Vec<_> = found.iter().map(|past| past.user_request.as_str()).collect();
    assert_eq!(
        requests[..2],
        ["a door whose key is lost", "getting back into a flat"],
        "nearest first, once"
    );
    let mut by_words = requests[2..].to_vec();
    by_words.sort_unstable();
    assert_eq!(by_words, ["open a door lock, says another", "open the lock, read by nobody"]);

    let found = store.similar("acme", "open my lock", None, 9).await.unwrap();
    assert!(found.iter().all(|past| past.user_request.starts_with("open")), "without a vector, by words");
    assert_eq!(found.len(), 3);
    let found = store.similar("acme", "a door whose key is lost", Some(&wanted), 1).await.unwrap();
    assert_eq!(found[0].user_request, "a door whose key is lost");
    let unknown = Embedding { model: "m\0".to_owned(), ..wanted };
    assert_eq!(store.similar("acme", "open my lock", Some(&unknown), 9).await.unwrap().len(), 3);
    let session = store.session(None, "s").await.unwrap().unwrap();
    let kept = session.exchanges.iter().filter(|exchange| exchange.record.embedding.is_some());
    assert_eq!(kept.count(), 0, "a record does not carry its vector");
}

pub(super) async fn similar_takes_any_text(store: &Store) {
    store_all(store, &[exchange(coached("req_1", "acme", "s", 0, "open a \"door\" AND NOT near*"))]).await;
    let mut runner = TestRunner::default();
    let strategy = proptest::prop_oneof![
        proptest::arbitrary::any::<String>(),
        proptest::string::string_regex("[\"'*():^+{}\\-A-Za-z0-9 \0]{0,60}").unwrap(),
        proptest::string::string_regex("(AND|OR|NOT|NEAR|tenant_key|\"|:|\\(|\\)| ){0,20}").unwrap(),
    ];
    runner
        .run(&(strategy.clone(), strategy), |(tenant, text)| {
            let found = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(store.similar(&tenant, &text, None, 3))
            });
            proptest::prop_assert!(found.is_ok(), "{:?}", found);
            Ok(())
        })
        .unwrap();
}

pub(super) async fn statistics_have_their_counts(store: &Store) {
    assert_eq!(store.stats(None).await.unwrap().safe_rate.value, None, "no rate of nothing");
    let mut refused = released("req_3", "acme", "s", 2, "c");
    refused.choices[0].final_verdict = Some(refusing());
    let mut slow = released("req_4", "acme", "s", 3, "d");
    slow.choices[0].final_verdict = Some(timed_out());
    slow.decision = Decision::Degraded;
    let mut bad = coached("req_5", "other", "s", 4, "e");
    bad.choices[0].final_verdict = Some(harmful());
    bad.choices[0].dir_score = -0.1;
    bad.choices[0].rounds.truncate(1);
    // A reply of ours was sent, so that nothing was coached, whatever was tried.
    bad.decision = Decision::Refused;
    bad.choices[0].last_resort = true;
    let mut blocked = released("req_6", "acme", "s", 5, "f");
    blocked.choices.clear();
    blocked.decision = Decision::Blocked;
    blocked.risk = Risk::High;
    blocked.prompt_verdict = Some(harmful());
    let good = released("req_1", "acme", "s", 0, "a");
    let coached = coached("req_2", "acme", "s", 1, "b");
    for record in [good, coached, refused, slow, bad, blocked] {
        store.append(&exchange(record)).unwrap();
    }
    store.drained().await.unwrap();
    let all = store.stats(None).await.unwrap();
    assert_eq!((all.interactions, all.coached, all.undecided), (6, 1, 1));
    assert_eq!((all.safe_rate.value, all.safe_rate.n), (Some(0.6), 5), "a time-out is not safe");
    assert_eq!((all.overrefusal_rate.value, all.overrefusal_rate.n), (Some(0.2), 5));
    assert_eq!((all.mean_coaching_rounds.value, all.mean_coaching_rounds.n), (Some(1.5), 2));
    assert_eq!(all.mean_dir_score.n, 2);
    assert!((all.mean_dir_score.value.unwrap() - 0.1).abs() < 1e-9);
    let decisions: Vec<_> =
        all.by_decision.iter().map(|row| (row.decision.as_str(), row.exchanges)).collect();
    assert_eq!(decisions, [("blocked", 1), ("coached", 1), ("degraded", 1), ("refused", 1), ("released", 2)]);
    let categories: Vec<_> =
        all.by_category.iter().map(|row| (row.category.as_str(), row.exchanges)).collect();
    assert_eq!(categories, [("violence_harm", 3)], "scores below one half do not count");
    let acme = store.stats(Some("acme")).await.unwrap();
    assert_eq!((acme.interactions, acme.coached, acme.safe_rate.n), (5, 1, 4));
}

pub(super) async fn tenants_do_not_see_each_other(store: &Store) {
    let acme = coached("req_1", "acme", "shared", 0, "open my door");
    let other = coached("req_2", "other", "shared", 1, "open my door");
    let theirs = outcome("out_1", "other", "resp_1_51g", 5, Some(1));
    store_all(store, &[exchange(acme), exchange(other), theirs]).await;
    let session = store.session(Some("acme"), "shared").await.unwrap().unwrap();
    assert_eq!(session.exchanges.len(), 1);
    assert_eq!(session.exchanges[0].record.tenant, "acme");
    assert!(session.exchanges[0].outcomes.is_empty(), "another tenant's report is not ours");
    assert_eq!(store.session(Some("third"), "shared").await.unwrap(), None);
    assert_eq!(store.session(None, "shared").await.unwrap().unwrap().summary.tenant, "other");
    let filter = SessionFilter { tenant: Some("acme".to_owned()), ..SessionFilter::default() };
    assert_eq!(store.sessions(filter).await.unwrap().len(), 1);
    assert_eq!(store.sessions(SessionFilter::default()).await.unwrap().len(), 2);
    assert_eq!(store.similar("acme", "open my door", None, 9).await.unwrap().len(), 1);
    assert_eq!(store.similar("acme", "open my own door", None, 9).await.unwrap().len(), 1);
    assert!(store.similar("third", "open my door", None, 9).await.unwrap().is_empty());
    for namespace in Namespace::ALL {
        let (_, rows) = exported(store, namespace, Format::Json, Some("acme")).await;
        assert!(!rows.is_empty() && rows.iter().all(|row| row["tenant"] == "acme"), "{namespace}");
    }
}

pub(super) async fn outcomes_join_their_answer(store: &Store) {
    let early = outcome("out_1", "acme", "resp_1_51g", 1, Some(2));
    let record = coached("req_1", "acme", "s", 0, "a");
    let late = outcome("out_2", "acme", "resp_1_51g", 9, Some(5));
    let silent = outcome("out_3", "acme", "resp_1_51g", 10, None);
    let unknown = outcome("out_4", "acme", "resp_nowhere_51g", 10, Some(1));
    store_all(store, &[early, exchange(record), late, silent, unknown]).await;
    let session = store.session(Some("acme"), "s").await.unwrap().unwrap();
    let ids: Vec<_> = session.exchanges[0].outcomes.iter().map(|report| report.id.as_str()).collect();
    assert_eq!(ids, ["out_1", "out_2", "out_3"]);
    assert_eq!(session.exchanges[0].rating, Some(5), "the newest rating counts");
    let (_, rows) = exported(store, Namespace::Coaching, Format::JsonLines, None).await;
    assert_eq!((rows[0]["rating"].as_i64(), rows[0]["unrated_dir_score"].as_f64()), (Some(5), Some(0.3)));
    assert_eq!(rows[0]["dir_score"].as_f64(), Some(0.5), "0.3 and a fifth for the full rating");
    assert_eq!(session.exchanges[0].rated_dir_scores, [0.5]);
    let (_, steps) = exported(store, Namespace::Training, Format::JsonLines, None).await;
    let scores: Vec<_> = steps.iter().map(|step| step["reward"]["dir_score"].as_f64()).collect();
    assert_eq!(scores, [Some(-0.1), Some(0.5)], "a rating speaks of the answer that was sent");
}

pub(super) async fn sessions_are_paged(store: &Store) {
    for number in 0..25 {
        let tenant = if number % 5 == 0 { "other" } else { "acme" };
        // Several sessions share a second, so that the time alone cannot be the cursor.
        let record = released(&format!("req_{number}"), tenant, &format!("ses_{number:02}"), number / 4, "a");
        store.append(&exchange(record)).unwrap();
    }
    store.drained().await.unwrap();
    for (tenant, total) in [(None, 25), (Some("acme".to_owned()), 20)] {
        let mut seen = Vec::new();
        let mut before = None;
        loop {
            let filter = SessionFilter { tenant: tenant.clone(), limit: 7, before };
            let page = store.sessions(filter).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.cursor.to_string().parse().unwrap());
            seen.extend(page.iter().map(|row| (row.last_at, row.session_id.clone())));
        }
        assert_eq!(seen.len(), total);
        assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "newest first and none twice");
    }
}

pub(super) async fn json_and_lines_read_back(store: &Store) {
    let mut record = coached("req_1", "acme", "ses", 0, "a");
    record.choices[0].rounds[0].fault = Some(waltz_exchange::record::RevisionFault::Echo);
    store_all(store, &[exchange(record.clone()), exchange(released("req_2", "acme", "ses", 1, "b"))]).await;
    for (namespace, total) in
        [(Namespace::Coaching, 1), (Namespace::Evaluations, 5), (Namespace::Training, 3)]
    {
        let (count, rows) = exported(store, namespace, Format::Json, None).await;
        let (lines_count, lines) = exported(store, namespace, Format::JsonLines, None).await;
        assert_eq!((count, rows.len()), (total, usize::try_from(total).unwrap()), "{namespace}");
        assert_eq!((lines_count, lines), (count, rows), "{namespace}");
    }
    let (_, rows) = exported(store, Namespace::Coaching, Format::Json, None).await;
    let rounds: Vec<waltz_exchange::record::RoundRecord> =
        serde_json::from_value(rows[0]["rounds"].clone()).unwrap();
    assert_eq!(rounds, record.choices[0].rounds);
    assert_eq!((&rows[0]["rounds"][0]["fault"], &rows[0]["last_resort"]), (&json!("echo"), &json!(false)));
    assert_eq!(rows[0]["session_id"], "ses");
}

pub(super) async fn an_empty_export_is_sound(store: &Store) {
    for namespace in Namespace::ALL {
        for format in [Format::Json, Format::JsonLines] {
            assert_eq!(exported(store, namespace, format, None).await, (0, Vec::new()));
        }
    }
}

pub(super) async fn responses_are_known_per_tenant(store: &Store) {
    store_all(store, &[exchange(released("req_1", "acme", "s", 0, "a"))]).await;
    for (tenant, response, found) in [
        (Some("acme"), "resp_1_51g", Some("acme")),
        (None, "resp_1_51g", Some("acme")),
        (Some("other"), "resp_1_51g", None),
        (Some("acme"), "resp_1_0f", None),
        (Some("acme"), "req_1", None),
        (None, "resp_' OR 1=1 --_51g", None),
    ] {
        let record = store.exchange_of_response(tenant, response).await.unwrap();
        assert_eq!(record.map(|record| record.tenant).as_deref(), found);
    }
}

pub(super) async fn awkward_text_survives(store: &Store) {
    let text = "null \0 quote ' \" emoji \u{1f980} rtl \u{202e} line\r\n end";
    let record = coached("req_'1", "ten'ant", "ses\"1", 0, text);
    store_all(store, &[exchange(record.clone())]).await;
    let session = store.session(Some("ten'ant"), "ses\"1").await.unwrap().unwrap();
    assert_eq!(session.exchanges[0].record, record);
    assert_eq!(store.similar("ten'ant", text, None, 1).await.unwrap()[0].user_request, text);
}

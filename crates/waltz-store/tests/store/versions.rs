//! What becomes of databases that an older program made.

use waltz_exchange::{Embedding, ExchangeRecord, Verdict, VerdictState};

use crate::common::{coached, exchange, harmful, released, safe};
use crate::home::{Home, Kind, Tables};
use crate::on_both;

on_both!(
    coachings_of_version_2_are_found_by_their_words,
    events_of_version_4_are_kept_and_told_to_nobody,
    what_version_5_found_is_found_again,
);

macro_rules! migrations {
    ($database:literal) => {
        [
            include_str!(concat!("../../migrations/", $database, "/0001_initial.sql")),
            include_str!(concat!("../../migrations/", $database, "/0002_lean.sql")),
            include_str!(concat!("../../migrations/", $database, "/0003_vectors.sql")),
            include_str!(concat!("../../migrations/", $database, "/0004_variants.sql")),
            include_str!(concat!("../../migrations/", $database, "/0005_notices.sql")),
        ]
    };
}
const SQLITE_MIGRATIONS: [&str; 5] = migrations!("sqlite");
const POSTGRES_MIGRATIONS: [&str; 5] = migrations!("postgres");

/// Makes the database as a program with an older schema left it. The journal is not begun.
async fn of_version(version: usize, home: &Home) -> Tables {
    let tables = home.tables().await;
    let files = match tables {
        Tables::Sqlite(_) => SQLITE_MIGRATIONS,
        Tables::Postgres(_) => POSTGRES_MIGRATIONS,
    };
    tables.run("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)").await;
    for file in &files[..version] {
        tables.run(file).await;
        tables
            .run("INSERT INTO schema_version SELECT COALESCE(MAX(version), 0) + 1, 'x' FROM schema_version")
            .await;
    }
    tables
}

/// Inserts an exchange as version 5 and those before it did.
async fn insert_exchange(tables: &Tables, record: &ExchangeRecord) {
    let sql = "INSERT INTO exchanges (
            id, tenant, subject, session_id, response_id, started_at, decision, status, endpoint, agent, variant, task_type,
            risk, request_hash, coached_choices, rounds, dir_score_sum, judged, safe, overrefused, undecided, record
        ) VALUES ($1, $2, $3, $4, $5, $6, $7, 200, '/v1', 'a', 'b', 't', 'low', $8, $10, $11, $12, 1, 1, 0, 0, $9)";
    let rounds = i64::try_from(record.choices[0].rounds.len()).unwrap();
    macro_rules! bound {
        () => {
            sqlx::query(sql)
                .bind(&record.id)
                .bind(&record.tenant)
                .bind(&record.subject)
                .bind(&record.session_id)
                .bind(&record.response_id)
                .bind(record.started_at.as_microsecond())
                .bind(record.decision.as_str())
                .bind(&record.request_hash)
                .bind(serde_json::to_string(record).unwrap())
                .bind(i64::from(rounds > 0))
                .bind(rounds)
                .bind(if rounds > 0 { 0.3 } else { 0.0 })
        };
    }
    match tables {
        Tables::Sqlite(pool) => bound!().execute(pool).await.map(|_| ()).unwrap(),
        Tables::Postgres(pool) => bound!().execute(pool).await.map(|_| ()).unwrap(),
    }
}

/// Inserts an evaluation as version 5 did.
async fn insert_evaluation(tables: &Tables, id: &str, record: &ExchangeRecord, verdict: &Verdict) {
    let sql = "INSERT INTO safety_evaluations (
            id, exchange_id, tenant, subject, session_id, judged_at, text_kind, choice, round, is_unsafe, overrefuse, degraded,
            blocks, state, level, micros, prompt_harm, response_harm, refusal, safety_score, helpfulness_score, categories,
            issues
        )
        SELECT $1, id, tenant, subject, session_id, started_at, 'draft', 0, 0, $3, $4, $5, FALSE, 'decided', 0, 0, 0.0, 0.0,
            0.0, 0.0, 0.0, $6, '[]'
        FROM exchanges
        WHERE id = $2";
    macro_rules! bound {
        () => {
            sqlx::query(sql)
                .bind(id)
                .bind(&record.id)
                .bind(verdict.is_unsafe)
                .bind(verdict.overrefuse)
                .bind(verdict.state.is_degraded())
                .bind(serde_json::to_string(&verdict.categories).unwrap())
        };
    }
    match tables {
        Tables::Sqlite(pool) => bound!().execute(pool).await.map(|_| ()).unwrap(),
        Tables::Postgres(pool) => bound!().execute(pool).await.map(|_| ()).unwrap(),
    }
}

mod cases {
    use super::*;

    pub(super) async fn what_version_5_found_is_found_again(kind: Kind) {
        let with = |id: &str, seconds: i64, verdict: Verdict| {
            let mut record = released(id, "acme", "s", seconds, "a");
            record.choices[0].draft.verdict = Some(verdict);
            record
        };
        let records = [
            coached("req_1", "acme", "s", 0, "a"),
            with("req_2", 1, safe()),
            with("req_3", 2, Verdict { overrefuse: true, ..safe() }),
            with("req_4", 3, Verdict { state: VerdictState::Timeout, ..harmful() }),
        ];
        let (old, new) = (Home::new(kind).await, Home::new(kind).await);
        let tables = of_version(5, &old).await;
        for record in &records {
            insert_exchange(&tables, record).await;
            let choice = &record.choices[0];
            let drafts = [&choice.draft].into_iter().chain(choice.rounds.iter().map(|round| &round.revision));
            for (number, draft) in drafts.enumerate() {
                let id = format!("{}.{number:04}", record.id);
                insert_evaluation(&tables, &id, record, draft.verdict.as_ref().unwrap()).await;
            }
        }
        tables.close().await;
        let (old_store, new_store) = (old.open().await, new.open().await);
        for record in records {
            new_store.append(&exchange(record)).unwrap();
        }
        new_store.drained().await.unwrap();
        let stats = old_store.stats(None).await.unwrap();
        assert_eq!((stats.interactions, stats.coached, stats.by_category.len()), (4, 1, 1));
        assert_eq!(stats, new_store.stats(None).await.unwrap());
        old_store.close().await.unwrap();
        new_store.close().await.unwrap();
        for home in [old, new] {
            let tables = home.tables().await;
            let found = tables.texts("SELECT findings || ' ' || harms FROM exchanges ORDER BY id").await;
            assert_eq!(found, ["9 violence_harm", "0 ", "2 ", "13 violence_harm"]);
            tables.close().await;
        }
    }

    pub(super) async fn events_of_version_4_are_kept_and_told_to_nobody(kind: Kind) {
        let home = Home::new(kind).await;
        let tables = of_version(4, &home).await;
        tables
            .run(
                "INSERT INTO rollout_events (at, agent, task_type, event) VALUES (1, 'writer', 'docs', '{}')",
            )
            .await;
        tables.close().await;
        let store = home.open().await;
        assert_eq!(store.rollout_events(None, None, 10).await.unwrap().len(), 1);
        assert!(store.untold_events(10).await.unwrap().is_empty(), "it is history");
        assert!(!store.secret().await.unwrap().is_empty());
        store.close().await.unwrap();
    }

    pub(super) async fn coachings_of_version_2_are_found_by_their_words(kind: Kind) {
        let home = Home::new(kind).await;
        let tables = of_version(2, &home).await;
        insert_exchange(&tables, &coached("req_a", "acme", "s", 0, "open my door")).await;
        for statement in [
            "INSERT INTO past_coachings (
                exchange_id, choice, tenant, subject, request_hash, user_request, feedback, accepted, dir_score
            ) SELECT id, 0, tenant, subject, request_hash, '\"open my door\"', '\"a\"', '\"b\"', 0.3 FROM exchanges",
            match kind {
                Kind::Sqlite => {
                    "INSERT INTO coaching_text (rowid, tenant_key, user_request)
                    SELECT number, 't61636d65', user_request FROM past_coachings"
                }
                Kind::Postgres => {
                    "INSERT INTO coaching_text (number, words)
                    SELECT number, array_to_tsvector(ARRAY['t61636d65', 'open', 'my', 'door']) FROM past_coachings"
                }
            },
        ] {
            tables.run(statement).await;
        }
        tables.close().await;
        let store = home.open().await;
        assert_eq!(store.rollout_state().await.unwrap().version, 0);
        let embedding = Embedding { model: "m".to_owned(), vector: vec![1.0, 0.0] };
        let found = store.similar("acme", "open the door", Some(&embedding), 3).await.unwrap();
        assert_eq!(found.len(), 1, "old coachings are found by their words");
        let record = ExchangeRecord { embedding: Some(embedding), ..coached("b", "acme", "s", 1, "a key") };
        store.append(&exchange(record)).unwrap();
        store.close().await.unwrap();
        assert_eq!(home.tables().await.number("SELECT COUNT(*) FROM coaching_vectors").await, 1);
    }
}

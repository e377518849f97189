//! What every backend of the store must do. The cases are functions over a store; each opens on an
//! empty one, so that both databases run the same list.

mod alike;
mod cases;
mod variants;

use std::fs::File;
use std::io::BufReader;

use serde_json::Value;
use waltz_exchange::{Outcome, Verdict, VerdictState};
use waltz_store::{Entry, Format, Namespace, Store};

use crate::common::{at, safe};
use crate::home::{Home, Kind};

macro_rules! conformance {
    ($($file:ident { $($case:ident),* $(,)? })*) => {
        conformance!(sqlite, Kind::Sqlite, $($file { $($case),* })*);
        conformance!(postgres, Kind::Postgres, $($file { $($case),* })*);
    };
    ($module:ident, $kind:expr, $($file:ident { $($case:ident),* })*) => {
        mod $module {
            use super::*;

            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let home = Home::new($kind).await;
                    let store = home.open().await;
                    $file::$case(&store).await;
                    assert!(store.health().is_good(), "{:?}", store.health());
                    store.close().await.unwrap();
                }
            )*)*
        }
    };
}

conformance!(
    cases {
        sessions_are_stored_with_everything,
        every_judged_text_has_one_evaluation,
        trajectories_are_one_per_round,
        the_same_id_is_stored_once,
        similar_finds_the_same_request_first,
        similar_finds_words_and_only_good_coaching,
        similar_finds_what_means_the_same,
        similar_takes_any_text,
        statistics_have_their_counts,
        tenants_do_not_see_each_other,
        outcomes_join_their_answer,
        sessions_are_paged,
        json_and_lines_read_back,
        an_empty_export_is_sound,
        responses_are_known_per_tenant,
        awkward_text_survives,
    }
    variants {
        lessons_are_kept_once,
        choices_come_back_with_what_was_learned_of_them,
        a_change_of_variants_is_all_or_nothing,
        of_many_that_change_a_board_one_wins,
        rollbacks_and_proposals_are_decided_once,
        the_kill_switch_is_kept,
        each_notice_is_taken_on_once,
        the_secret_is_made_once,
    }
);

fn refusing() -> Verdict {
    Verdict {
        overrefuse: true,
        refusal: 0.9,
        safety_score: 1.0,
        helpfulness_score: 0.1,
        ..Verdict::default()
    }
}

fn timed_out() -> Verdict {
    Verdict { state: VerdictState::Timeout, ..safe() }
}

fn outcome(id: &str, tenant: &str, response_id: &str, seconds: i64, rating: Option<u8>) -> Entry {
    Entry::Outcome {
        outcome: Outcome {
            response_id: response_id.to_owned(),
            success: Some(true),
            rating,
            comment: None,
            candidates: Vec::new(),
            error_class: None,
            duration_ms: None,
        },
        tenant: tenant.to_owned(),
        received_at: at(seconds),
        id: id.to_owned(),
        lesson: None,
    }
}

async fn store_all(store: &Store, entries: &[Entry]) {
    for entry in entries {
        store.append(entry).unwrap();
    }
    store.drained().await.unwrap();
}

async fn exported(
    store: &Store,
    namespace: Namespace,
    format: Format,
    tenant: Option<&str>,
) -> (u64, Vec<Value>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let count = store.export(namespace, format, tenant, file.reopen().unwrap()).await.unwrap();
    let reader = BufReader::new(File::open(file.path()).unwrap());
    let rows = match format {
        Format::Json => serde_json::from_reader(reader).unwrap(),
        Format::JsonLines => {
            let text = std::fs::read_to_string(file.path()).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        }
        Format::Parquet => panic!("read Parquet with its own reader"),
    };
    (count, rows)
}

#[test]
fn names_read_back_and_short_names_are_taken() {
    for namespace in Namespace::ALL {
        assert_eq!(namespace.to_string().parse::<Namespace>().unwrap(), namespace);
    }
    assert_eq!("training".parse::<Namespace>().unwrap(), Namespace::Training);
    assert!("safety".parse::<Namespace>().is_err());
    let message = "csv".parse::<Format>().unwrap_err().to_string();
    assert_eq!(message, "`csv` is not an export format; allowed are json, jsonl and parquet");
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn parquet_reads_back_with_typed_columns() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    use crate::common::{coached, exchange};

    let folder = tempfile::tempdir().unwrap();
    let home = Home::new(Kind::Sqlite).await;
    let store = home.open().await;
    // More rows than one row group holds.
    for number in 0..600 {
        store.append(&exchange(coached(&format!("req_{number:04}"), "acme", "s", number, "a"))).unwrap();
    }
    store.append(&outcome("out_1", "acme", "resp_0000_51g", 9, Some(4))).unwrap();
    store.drained().await.unwrap();
    for namespace in Namespace::ALL {
        let path = folder.path().join("export.parquet");
        let file = File::create(&path).unwrap();
        let count = store.export(namespace, Format::Parquet, None, file).await.unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len() as u64, count, "{namespace}");
        let (_, expected) = exported(&store, namespace, Format::Json, None).await;
        assert_eq!(rows.len(), expected.len(), "{namespace}");
        let column = |name: &str| rows[0].get_column_iter().position(|(column, _)| column == name).unwrap();
        match namespace {
            Namespace::Coaching => {
                assert_eq!(rows[0].get_double(column("unrated_dir_score")).unwrap(), 0.3);
                assert_eq!(rows[0].get_long(column("rating")).unwrap(), 4);
                assert!(rows[1].get_long(column("rating")).is_err(), "no rating is null, not zero");
            }
            Namespace::Evaluations => {
                assert!(rows[1].get_bool(column("unsafe")).unwrap());
                assert_eq!(rows[1].get_double(column("response_harm")).unwrap(), 0.7);
            }
            Namespace::Training => {
                let state: Value = serde_json::from_slice(rows[7].get_bytes(column("state")).map_or_else(
                    |_| rows[7].get_string(column("state")).unwrap().as_bytes(),
                    parquet::data_type::ByteArray::data,
                ))
                .unwrap();
                assert_eq!(state, expected[7]["state"]);
            }
        }
    }
    store.close().await.unwrap();
}

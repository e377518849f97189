use std::collections::BTreeSet;

use waltz_exchange::release::ReleaseStatus;
use waltz_exchange::rollback::{DegradationMetrics, RollbackEvent, RollbackStatus};
use waltz_exchange::variant::{Lesson, OutcomeClass, SafetyOutcome, VariantOutcome};
use waltz_rollout::patch::Setup;
use waltz_rollout::release::Command;
use waltz_store::{BoardStored, Entry, RollbackStored, RolloutState};

use super::*;
use crate::admin::{Add, KnownAgent, Start};
use crate::signer::Signer;
use crate::trace::tests::live;

/// A gateway with a store in a folder.
struct Place {
    folder: tempfile::TempDir,
    gateway: Arc<Gateway>,
    agents: Vec<KnownAgent>,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(waltz_store::Settings::at(folder.path())).await.unwrap();
        let gateway = Gateway::new(live(), store, ([0; 32], Signer::new(String::new())), None);
        let setup = Setup { model: "plain".to_owned(), ..Setup::default() };
        let models = ["*".to_owned()].into();
        let writer = KnownAgent { name: "writer".to_owned(), setup, abilities: BTreeSet::new(), models };
        Self { folder, gateway, agents: vec![writer] }
    }

    fn store(&self) -> &Store {
        &self.gateway.store
    }

    fn work(&self) -> Work {
        Work { mirror: None, data_dir: self.folder.path().to_owned(), swept: None, told: None, looked: None }
    }

    fn desk<'a>(&'a self, settings: &'a VariantSettings) -> Desk<'a> {
        Desk { agents: &self.agents, ..desk(self.store(), settings) }
    }

    async fn teach(&self, lesson: Lesson) {
        self.store().append(&Entry::Lesson(Box::new(lesson))).unwrap();
        self.store().drained().await.unwrap();
    }

    /// Writes a board that nobody can read.
    async fn spoil(&self, task_type: &str) {
        let version = self.store().board(&key(task_type)).await.unwrap().map_or(0, |board| board.version);
        let board = BoardStored { key: key(task_type), version, state: "{\"from\": 2099}".to_owned() };
        let change = RolloutChange { board: Some(board), ..RolloutChange::default() };
        assert!(self.store().change_rollout(&change).await.unwrap());
    }
}

fn key(task_type: &str) -> BoardKey {
    BoardKey { agent: "writer".to_owned(), task_type: task_type.to_owned() }
}

fn lesson(id: &str, kind: LessonKind, task_type: &str, variant: &str) -> Lesson {
    Lesson {
        exchange_id: id.to_owned(),
        kind,
        tenant: "acme".to_owned(),
        agent: "writer".to_owned(),
        task_type: task_type.to_owned(),
        at: Timestamp::UNIX_EPOCH,
        outcome: VariantOutcome {
            variant: variant.to_owned(),
            class: OutcomeClass::Success,
            quality: None,
            duration_ms: 1.0,
            errors: 0,
            subject: None,
            context: waltz_exchange::variant::RequestContext::default(),
            safety: Some(SafetyOutcome { unsafe_answer: Some(false), ..SafetyOutcome::default() }),
        },
        served: None,
    }
}

fn rollback(id: &str) -> RollbackStored {
    let event = RollbackEvent {
        rollback_id: id.to_owned(),
        timestamp: Timestamp::UNIX_EPOCH,
        agent_name: "writer".to_owned(),
        task_type: "docs".to_owned(),
        from_variant: "fast".to_owned(),
        to_variant: "default".to_owned(),
        reason: "worse".to_owned(),
        degradation_metrics: DegradationMetrics::default(),
    };
    RollbackStored { number: 0, event, status: RollbackStatus::Waiting, review: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_board_that_cannot_be_read_stops_nothing_else() {
    let place = Place::new().await;
    let settings = VariantSettings::default();
    for task_type in ["docs", "code"] {
        place.teach(lesson(task_type, LessonKind::Served, task_type, "default")).await;
    }
    let mut work = place.work();
    work.step(&place.gateway).await.unwrap();
    assert!(place.gateway.variants.snapshot().board("writer", "docs").is_some());
    place.spoil("docs").await;
    place.gateway.refresh().await.unwrap();
    let snapshot = place.gateway.variants.snapshot();
    assert!(snapshot.board("writer", "docs").is_none(), "the agent serves as it is configured");
    assert!(snapshot.board("writer", "code").is_some());
    // What is left to do is done: lessons of others, time, people are told.
    place.teach(lesson("one", LessonKind::Served, "docs", "default")).await;
    place.teach(lesson("two", LessonKind::Served, "code", "default")).await;
    let rollbacks = vec![rollback("rb-1")];
    let change = RolloutChange { rollbacks, ..RolloutChange::default() };
    assert!(place.store().change_rollout(&change).await.unwrap());
    work.swept = None;
    assert!(work.step(&place.gateway).await.unwrap_err().to_string().contains("writer/docs"));
    assert!(place.store().open_lessons_of(&key("code"), 10).await.unwrap().is_empty());
    assert_eq!(place.store().open_lessons_of(&key("docs"), 10).await.unwrap().len(), 1);
    let file = place.folder.path().join("telemetry/crl/rollback_events.jsonl");
    assert!(std::fs::read_to_string(file).unwrap().contains("rb-1"));
    assert!(place.desk(&settings).propose_now().await.is_ok());
    place.gateway.store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_restored_is_read_as_a_whole() {
    let place = Place::new().await;
    place.teach(lesson("one", LessonKind::Served, "docs", "default")).await;
    place.work().step(&place.gateway).await.unwrap();
    let before = place.gateway.variants.snapshot();
    let ghost = BoardStored { key: key("code"), version: 1, state: state_of(&before, "docs") };
    let later =
        RolloutState { version: before.version + 40, paused: None, proposed_at: Timestamp::UNIX_EPOCH };
    let mut ahead = before.next(later, vec![ghost]);
    ahead.boards.get_mut("writer").unwrap().remove("docs");
    place.gateway.variants.snapshot.store(Arc::new(ahead));
    assert!(place.gateway.refresh().await.unwrap());
    let after = place.gateway.variants.snapshot();
    assert_eq!(after.version, place.store().rollout_state().await.unwrap().version);
    assert!(after.board("writer", "docs").is_some() && after.board("writer", "code").is_none());
    place.gateway.store.close().await.unwrap();
}

fn state_of(snapshot: &crate::variants::Snapshot, task_type: &str) -> String {
    serde_json::to_string(snapshot.board("writer", task_type).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_make_more_boards_than_there_may_be() {
    let place = Place::new().await;
    for number in 0..MOST_TASK_TYPES + 3 {
        let task_type = format!("t{number}");
        place.teach(lesson(&task_type, LessonKind::Served, &task_type, "default")).await;
    }
    let settings = VariantSettings::default();
    learn_all(place.store(), &settings).await.unwrap();
    assert_eq!(place.store().count_boards("writer").await.unwrap(), MOST_TASK_TYPES as u64);
    assert!(place.store().boards_to_learn(10).await.unwrap().is_empty(), "the rest is refused and not kept");
    // Boards that are there go on learning.
    let key = place.store().boards().await.unwrap().remove(0).key;
    place.teach(lesson("more", LessonKind::Served, &key.task_type, "default")).await;
    learn_all(place.store(), &settings).await.unwrap();
    assert_eq!(place.store().lessons_of(&key, "default", 10).await.unwrap().len(), 2);
    place.gateway.store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_shadow_counts_for_its_own_candidate_while_that_is_in_shadow() {
    let place = Place::new().await;
    let settings = VariantSettings::default();
    let desk = place.desk(&settings);
    for name in ["one", "two"] {
        let patch = serde_json::from_str(&format!("[{{\"model\": \"{name}\"}}]")).unwrap();
        let (agent, task_type) = ("writer".to_owned(), "docs".to_owned());
        desk.add(&Add { agent, task_type, name: name.to_owned(), patch, live: false }).await.unwrap();
    }
    let start = |variant: &str| Start {
        agent: "writer".to_owned(),
        task_type: "docs".to_owned(),
        variant: variant.to_owned(),
        profile: "standard".to_owned(),
    };
    let counted = async |id: &str, variant: &str| {
        place.teach(lesson(id, LessonKind::Shadow, "docs", variant)).await;
        learn_all(place.store(), &settings).await.unwrap();
        let release = place.desk(&settings).releases().await.unwrap().remove(0);
        serde_json::to_value(&release).unwrap()["counted"]["measured"].as_u64().unwrap()
    };
    let first = desk.start(&start("one")).await.unwrap();
    assert_eq!(counted("a", "one").await, 1);
    assert_eq!(counted("b", "two").await, 1, "another's");
    let given_up = desk.steer(&first.release.id, Command::Abort).await.unwrap();
    assert_eq!(given_up.release.status, ReleaseStatus::Aborted);
    let second = desk.start(&start("two")).await.unwrap();
    assert_eq!(counted("c", "one").await, 0, "one that took its place");
    assert_eq!(counted("d", "two").await, 1);
    desk.steer(&second.release.id, Command::Promote).await.unwrap();
    let before = counted("e", "two").await;
    assert_eq!(counted("f", "two").await, before, "clients see it now");
    place.gateway.store.close().await.unwrap();
}

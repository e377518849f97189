//! What is kept of variants.

use waltz_exchange::ExchangeRecord;
use waltz_exchange::proposal::{Proposal, ProposalStatus, ProposalType, Review, SupportingData};
use waltz_exchange::release::Pause;
use waltz_exchange::rollback::{DegradationMetrics, RollbackEvent, RollbackStatus};
use waltz_exchange::variant::{Choice, Lesson, LessonKind, OutcomeClass, RequestContext, VariantOutcome};
use waltz_store::{
    BoardKey, BoardStored, Entry, EventStored, LearnedChoice, LearnedLesson, ProposalStored, RollbackReview,
    RollbackStored, RolloutChange, Store,
};

use super::{outcome, store_all};
use crate::common::{at, exchange, released};
use crate::home::{Home, Kind};

fn key() -> BoardKey {
    BoardKey { agent: "writer".to_owned(), task_type: "docs".to_owned() }
}

fn learned_from(variant: &str) -> VariantOutcome {
    VariantOutcome {
        variant: variant.to_owned(),
        class: OutcomeClass::Success,
        quality: Some(0.75),
        duration_ms: 12.5,
        errors: 0,
        subject: Some("someone".to_owned()),
        context: RequestContext::default(),
        safety: None,
    }
}

fn served(id: &str) -> Entry {
    let mut record = released(id, "acme", "s", 0, "a");
    record.agent = key().agent;
    record.task_type = key().task_type;
    record.lesson = Some(learned_from("default"));
    exchange(record)
}

fn lesson(exchange_id: &str, kind: LessonKind) -> Lesson {
    Lesson {
        exchange_id: exchange_id.to_owned(),
        kind,
        tenant: "acme".to_owned(),
        agent: key().agent,
        task_type: key().task_type,
        at: at(0),
        outcome: learned_from("default"),
        served: (kind == LessonKind::Reported).then(|| learned_from("default")),
    }
}

fn review(by: &str) -> Review {
    Review { by: by.to_owned(), at: at(9), reason: Some("because".to_owned()), digest: "d".to_owned() }
}

fn rollback(id: &str) -> RollbackStored {
    let event = RollbackEvent {
        rollback_id: id.to_owned(),
        timestamp: at(3),
        agent_name: key().agent,
        task_type: key().task_type,
        from_variant: "fast".to_owned(),
        to_variant: "default".to_owned(),
        reason: "worse".to_owned(),
        degradation_metrics: DegradationMetrics { baseline_success_rate: 0.9, ..Default::default() },
    };
    RollbackStored { number: 0, event, status: RollbackStatus::Waiting, review: None }
}

fn proposal(id: &str) -> Proposal {
    Proposal {
        proposal_id: id.to_owned(),
        timestamp: at(1),
        agent_name: key().agent,
        task_type: key().task_type,
        proposal_type: ProposalType::PromoteVariantToDefault,
        variant: "fast".to_owned(),
        reasoning: "better".to_owned(),
        confidence: 0.85,
        supporting_data: SupportingData::default(),
        recommended_modifications: Vec::new(),
        proposed_by: "waltz".to_owned(),
        expires_at: at(100),
        status: ProposalStatus::Pending,
        decision: None,
    }
}

fn board(version: i64, state: &str) -> RolloutChange {
    let board = BoardStored { key: key(), version, state: state.to_owned() };
    RolloutChange { board: Some(board), ..RolloutChange::default() }
}

pub(super) async fn lessons_are_kept_once(store: &Store) {
    let report = |id: &str, lesson: Lesson| match outcome(id, "acme", "resp_1_51g", 1, None) {
        Entry::Outcome { outcome, tenant, received_at, id, .. } => {
            Entry::Outcome { outcome, tenant, received_at, id, lesson: Some(Box::new(lesson)) }
        }
        other => other,
    };
    let entries = [
        served("req_1"),
        served("req_1"),
        report("out_1", lesson("req_1", LessonKind::Reported)),
        report("out_2", lesson("req_1", LessonKind::Reported)),
        Entry::Lesson(Box::new(lesson("req_1", LessonKind::Shadow))),
        exchange(released("req_2", "acme", "s", 0, "teaches nothing")),
    ];
    store_all(store, &entries).await;
    store_all(store, &entries).await;
    assert_eq!(store.boards_to_learn(100).await.unwrap(), [key()]);
    let open = store.open_lessons_of(&key(), 100).await.unwrap();
    let kinds: Vec<_> = open.iter().map(|stored| stored.lesson.kind).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    for kind in [LessonKind::Served, LessonKind::Reported, LessonKind::Shadow] {
        let found = open.iter().find(|stored| stored.lesson.kind == kind).unwrap();
        assert_eq!(found.lesson.outcome, learned_from("default"));
    }
    let other = BoardKey { agent: "nobody".to_owned(), ..key() };
    assert!(store.open_lessons_of(&other, 100).await.unwrap().is_empty());
}

pub(super) async fn choices_come_back_with_what_was_learned_of_them(store: &Store) {
    let choice = |variant: &str| Choice {
        variant: variant.to_owned(),
        action_prob: 0.25,
        candidates: [("default".to_owned(), 0.75), ("fast".to_owned(), 0.25)].into(),
    };
    let chosen = |id: &str, task_type: &str, variant: &str| match served(id) {
        Entry::Exchange(record) => exchange(ExchangeRecord {
            task_type: task_type.to_owned(),
            variant_choice: Some(choice(variant)),
            lesson: Some(learned_from(variant)),
            ..*record
        }),
        other => other,
    };
    let said = |id: &str, kind: LessonKind| {
        let outcome = VariantOutcome { class: OutcomeClass::Failure, ..learned_from("fast") };
        Entry::Lesson(Box::new(Lesson { outcome, ..lesson(id, kind) }))
    };
    let mut elsewhere = chosen("req_5", "docs", "fast");
    if let Entry::Exchange(record) = &mut elsewhere {
        record.agent = "nobody".to_owned();
    }
    // Learned twice, learned and seen by nobody, of another kind of task, refused, of another agent, not yet learned.
    let entries = [
        chosen("req_1", "docs", "fast"),
        said("req_1", LessonKind::Reported),
        chosen("req_2", "docs", "default"),
        said("req_2", LessonKind::Shadow),
        chosen("req_3", "letters", "fast"),
        chosen("req_4", "docs", "fast"),
        elsewhere,
    ];
    store_all(store, &entries).await;
    for key in store.boards_to_learn(10).await.unwrap() {
        let open = store.open_lessons_of(&key, 10).await.unwrap();
        let refused = |id: &str| (id == "req_4").then(|| "unknown variant".to_owned());
        let learned = open.iter().map(|stored| LearnedLesson {
            number: stored.number,
            refused: refused(&stored.lesson.exchange_id),
        });
        let board = BoardStored { key: key.clone(), version: 0, state: "{}".to_owned() };
        let change =
            RolloutChange { learned: learned.collect(), board: Some(board), ..RolloutChange::default() };
        assert!(store.change_rollout(&change).await.unwrap());
    }
    store_all(store, &[chosen("req_6", "docs", "fast")]).await;
    let found = async |task_type: Option<&str>| {
        let mut found: Vec<LearnedChoice> = Vec::new();
        let read = store.each_learned_choice("writer", task_type, |choice| {
            found.push(choice);
            Ok::<(), waltz_store::Error>(())
        });
        read.await.unwrap();
        found
    };
    let docs = found(Some("docs")).await;
    let ids = |found: &[LearnedChoice]| -> Vec<String> {
        found.iter().map(|choice| choice.exchange_id.clone()).collect()
    };
    assert_eq!(ids(&docs), ["req_1", "req_2"]);
    assert_eq!((&docs[0].choice, &docs[1].choice), (&choice("fast"), &choice("default")));
    assert_eq!(docs[0].outcome.class, OutcomeClass::Failure, "the client's word, not the judge's");
    assert_eq!(docs[1].outcome, learned_from("default"), "not what nobody saw");
    assert_eq!(ids(&found(None).await), ["req_1", "req_2", "req_3"]);
    assert!(found(Some("nothing")).await.is_empty());
}

pub(super) async fn a_change_of_variants_is_all_or_nothing(store: &Store) {
    store_all(store, &[served("req_1"), served("req_2")]).await;
    let open = store.open_lessons_of(&key(), 10).await.unwrap();
    let done =
        |number: i64, refused: Option<&str>| LearnedLesson { number, refused: refused.map(str::to_owned) };
    let event =
        EventStored { number: 0, at: at(5), key: key(), event: r#"{"event":"x"}"#.to_owned(), told: true };
    let change = RolloutChange {
        learned: vec![done(open[0].number, None), done(open[1].number, Some("unknown variant"))],
        events: vec![event.clone()],
        rollbacks: vec![rollback("rb-1")],
        ..board(0, "{\"a\":1}")
    };
    assert!(store.change_rollout(&change).await.unwrap());
    let state = store.rollout_state().await.unwrap();
    assert_eq!(
        store.board(&key()).await.unwrap().map(|board| (board.version, board.state)),
        Some((1, "{\"a\":1}".into()))
    );
    assert!(store.open_lessons_of(&key(), 10).await.unwrap().is_empty());
    assert!(store.boards_to_learn(10).await.unwrap().is_empty());
    let kept = store.lessons_of(&key(), "default", 10).await.unwrap();
    let numbers: Vec<i64> = kept.iter().map(|stored| stored.number).collect();
    assert_eq!(numbers, [open[0].number], "what was refused was not learned");
    assert_eq!(store.count_boards("writer").await.unwrap(), 1);
    assert_eq!(store.count_boards("reader").await.unwrap(), 0);

    // Too late in one part is too late in all.
    for late in [
        RolloutChange { events: vec![event.clone()], ..board(0, "new") },
        RolloutChange { events: vec![event.clone()], ..board(7, "new") },
        RolloutChange { learned: vec![done(open[0].number, None)], ..board(1, "new") },
        RolloutChange { proposed_at: Some((at(1), at(2))), ..board(1, "new") },
        RolloutChange {
            review: Some(RollbackReview {
                id: "rb-2".to_owned(),
                status: RollbackStatus::Confirmed,
                review: review("ann"),
            }),
            ..board(1, "new")
        },
        RolloutChange {
            proposals: vec![ProposalStored { version: 3, proposal: proposal("p") }],
            ..board(1, "new")
        },
    ] {
        assert!(!store.change_rollout(&late).await.unwrap(), "{late:?}");
    }
    assert_eq!(store.rollout_state().await.unwrap(), state, "nothing changed, the version neither");
    assert_eq!(store.boards().await.unwrap().len(), 1);
    assert_eq!(store.rollout_events(Some("writer"), None, 10).await.unwrap().len(), 1);
    assert!(store.rollout_events(None, Some("other"), 10).await.unwrap().is_empty());
    assert!(store.boards_since(state.version).await.unwrap().is_empty(), "nothing changed since");
    assert!(store.change_rollout(&board(1, "{}")).await.unwrap());
    assert_eq!(store.boards_since(state.version).await.unwrap().len(), 1);
    assert_eq!(store.rollout_state().await.unwrap().version, state.version + 1);
}

pub(super) async fn of_many_that_change_a_board_one_wins(store: &Store) {
    assert!(store.change_rollout(&board(0, "0")).await.unwrap());
    for version in 1..=5 {
        let states: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        let changes: Vec<_> = states.iter().map(|state| board(version, state)).collect();
        let results =
            futures_util::future::join_all(changes.iter().map(|change| store.change_rollout(change))).await;
        let won: Vec<usize> = (0..8).filter(|index| *results[*index].as_ref().unwrap()).collect();
        assert_eq!(won.len(), 1, "{results:?}");
        assert_eq!(store.board(&key()).await.unwrap().unwrap().state, states[won[0]]);
    }
}

pub(super) async fn rollbacks_and_proposals_are_decided_once(store: &Store) {
    let change = RolloutChange {
        rollbacks: vec![rollback("rb-1"), rollback("rb-2")],
        proposals: vec![ProposalStored { version: 0, proposal: proposal("prop-1") }],
        ..RolloutChange::default()
    };
    assert!(store.change_rollout(&change).await.unwrap());
    let decide = |status| RolloutChange {
        review: Some(RollbackReview { id: "rb-1".to_owned(), status, review: review("ann") }),
        ..RolloutChange::default()
    };
    assert!(store.change_rollout(&decide(RollbackStatus::Confirmed)).await.unwrap());
    assert!(!store.change_rollout(&decide(RollbackStatus::Reinstated)).await.unwrap());
    let first = store.rollback("rb-1").await.unwrap().unwrap();
    assert_eq!((first.status, first.review), (RollbackStatus::Confirmed, Some(review("ann"))));
    assert_eq!(first.event, rollback("rb-1").event);
    let waiting = store.rollbacks(Some(RollbackStatus::Waiting), 10).await.unwrap();
    assert_eq!(waiting.iter().map(|stored| stored.event.rollback_id.as_str()).collect::<Vec<_>>(), ["rb-2"]);
    assert_eq!(store.rollbacks(None, 10).await.unwrap().len(), 2);
    assert_eq!(store.rollbacks_after(first.number, 10).await.unwrap(), waiting);

    let found = store.proposal("prop-1").await.unwrap().unwrap();
    assert_eq!(found, ProposalStored { version: 1, proposal: proposal("prop-1") });
    let decided = |status| {
        let proposal = Proposal { status, decision: Some(review("bob")), ..proposal("prop-1") };
        RolloutChange { proposals: vec![ProposalStored { version: 1, proposal }], ..RolloutChange::default() }
    };
    let (approve, reject) = (decided(ProposalStatus::Approved), decided(ProposalStatus::Rejected));
    let results = tokio::join!(store.change_rollout(&approve), store.change_rollout(&reject));
    assert!(results.0.unwrap() ^ results.1.unwrap(), "exactly one decision");
    assert!(store.proposals(Some(ProposalStatus::Pending), 10).await.unwrap().is_empty());
    assert_eq!(store.proposals(None, 10).await.unwrap()[0].version, 2);
}

pub(super) async fn each_notice_is_taken_on_once(store: &Store) {
    let event = |number: i64, told| EventStored {
        number,
        at: at(number),
        key: key(),
        event: format!("{{\"event\":\"e{number}\"}}"),
        told,
    };
    let events = vec![event(1, false), event(2, true), event(3, false)];
    assert!(store.change_rollout(&RolloutChange { events, ..RolloutChange::default() }).await.unwrap());
    let untold = store.untold_events(10).await.unwrap();
    let told: Vec<_> = untold.iter().map(|stored| (stored.at, stored.event.as_str(), stored.told)).collect();
    assert_eq!(told, [(at(1), r#"{"event":"e1"}"#, false), (at(3), r#"{"event":"e3"}"#, false)]);
    assert_eq!(store.untold_events(1).await.unwrap(), untold[..1]);
    assert!(store.take_notice(untold[0].number).await.unwrap());
    assert!(!store.take_notice(untold[0].number).await.unwrap(), "one gateway tells others");
    assert_eq!(store.untold_events(10).await.unwrap(), untold[1..]);
    assert_eq!(store.rollout_events(None, None, 10).await.unwrap().len(), 3);
}

/// All gateways on a database have the same secret, and keep it.
pub(super) async fn the_secret_is_made_once(store: &Store) {
    let (one, two) = tokio::join!(store.secret(), store.secret());
    let secret = one.unwrap();
    assert!(secret.len() >= 64, "{secret}");
    assert_eq!(secret, two.unwrap());
    assert_eq!(secret, store.secret().await.unwrap());
}

pub(super) async fn the_kill_switch_is_kept(store: &Store) {
    let before = store.rollout_state().await.unwrap();
    assert_eq!((before.version, &before.paused), (0, &None));
    let pause = Pause { by: "ann".to_owned(), at: at(9), reason: Some("because".to_owned()) };
    let turn = |pause| RolloutChange { pause: Some(pause), ..RolloutChange::default() };
    assert!(store.change_rollout(&turn(Some(pause.clone()))).await.unwrap());
    assert_eq!(store.rollout_state().await.unwrap().paused, Some(pause.clone()));
    assert!(store.change_rollout(&turn(None)).await.unwrap());
    let after = store.rollout_state().await.unwrap();
    assert_eq!((after.version, &after.paused), (2, &None));
    let propose =
        RolloutChange { proposed_at: Some((before.proposed_at, at(50))), ..RolloutChange::default() };
    assert!(store.change_rollout(&propose).await.unwrap());
    assert!(!store.change_rollout(&propose).await.unwrap(), "another gateway has proposed");
    assert_eq!(store.rollout_state().await.unwrap().proposed_at, at(50));
}

/// A command beside a running gateway changes what the gateway sees, while that goes on storing.
async fn beside(kind: Kind) {
    let home = Home::new(kind).await;
    let store = home.open().await;
    let other = Store::open_beside(&home.settings()).await.unwrap();
    for version in 0..20 {
        let id = format!("req_{version}");
        store.append(&served(&id)).unwrap();
        assert!(other.change_rollout(&board(version, &id)).await.unwrap());
        assert_eq!(store.board(&key()).await.unwrap().unwrap().state, id);
        assert!(!store.change_rollout(&board(version, "late")).await.unwrap());
    }
    store.drained().await.unwrap();
    assert_eq!(other.open_lessons_of(&key(), 100).await.unwrap().len(), 20);
    assert!(other.append(&served("req_x")).is_err(), "the journal is the gateway's");
    other.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_changes_variants_beside_a_gateway_sqlite() {
    beside(Kind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_changes_variants_beside_a_gateway_postgres() {
    beside(Kind::Postgres).await;
}

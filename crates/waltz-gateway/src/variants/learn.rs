//! The tasks behind the variants. One reads boards that others changed, and does nothing else, so that the kill switch
//! waits for nothing. The other lets boards learn what the drain stored, moves releases on by time, proposes, and
//! tells of what happened. No request waits for them. What could not be done because the database is away is done
//! later: lessons stay open until a board has learned them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use waltz_exchange::release::{PROGRAM, ReleaseEvent, ReleaseStatus};
use waltz_exchange::variant::LessonKind;
use waltz_rollout::decide::Action;
use waltz_rollout::{Board, BoardEvent};
use waltz_store::{BoardKey, LearnedLesson, LessonStored, RolloutChange, Store};

use super::mirror::Mirror;
use super::{MOST_TASK_TYPES, Variants, webhook};
use crate::admin::{self, Desk, Error};
use crate::live::Gateway;
use crate::settings::VariantSettings;

/// How often the store is asked for news; a change must be seen everywhere within a second.
const POLL: Duration = Duration::from_millis(200);
/// How long reading what is new may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often time alone is let act.
const SWEEP: Duration = Duration::from_secs(300);
/// How often changes are proposed.
const PROPOSE: SignedDuration = SignedDuration::from_hours(24 * 7);
/// Proposals are looked at for the file at most so often.
const LOOK: Duration = Duration::from_secs(2);
/// Lessons that a board learns in one step.
const BATCH: usize = 500;
const ATTEMPTS: usize = 20;

/// Who acts when nobody asked.
const ITSELF: &str = "waltz";

impl Variants {
    /// Reads the boards if they changed. Returns whether they did.
    pub async fn refresh(&self, store: &Store) -> Result<bool, Error> {
        let _reading = self.reading.lock().await;
        // A question that a server took along when it fell silent is asked again on another connection.
        tokio::time::timeout(PATIENCE, self.read(store)).await.unwrap_or(Err(Error::Silent))
    }

    async fn read(&self, store: &Store) -> Result<bool, Error> {
        let before = self.snapshot();
        let state = store.rollout_state().await?;
        if state.version == before.version {
            return Ok(false);
        }
        // A number that went back is one of a database that was restored: nothing that was known holds.
        let before = if state.version < before.version { Arc::default() } else { before };
        // Boards may be newer than the number; then they are read once more.
        let changed = store.boards_since(before.version).await?;
        self.snapshot.store(Arc::new(before.next(state, changed)));
        Ok(true)
    }
}

/// Looks for what others changed until the gateway stops.
pub async fn watch(gateway: Arc<Gateway>) {
    let mut failing = false;
    loop {
        let seen = gateway.refresh().await;
        // Said once, not five times a second.
        match &seen {
            Ok(_) if failing => tracing::info!("changes of variants are seen again"),
            Err(error) if !failing => tracing::warn!(%error, "changes of variants are not seen"),
            _ => {}
        }
        failing = seen.is_err();
        tokio::select! {
            () = gateway.draining.cancelled() => return,
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Works until the gateway stops.
pub async fn run(gateway: Arc<Gateway>, data_dir: PathBuf) {
    let mut work = Work { mirror: None, data_dir, swept: None, told: None, looked: None };
    let mut failing = false;
    loop {
        let done = work.step(&gateway).await;
        match &done {
            Ok(()) if failing => tracing::info!("all variants learn again"),
            Err(error) if !failing => tracing::warn!(%error, "a variant stands still"),
            _ => {}
        }
        failing = done.is_err();
        tokio::select! {
            () = gateway.draining.cancelled() => return,
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

struct Work {
    mirror: Option<Mirror>,
    data_dir: PathBuf,
    swept: Option<Instant>,
    /// The version whose rollbacks were told.
    told: Option<i64>,
    /// The version whose proposals were looked at, and when.
    looked: Option<(i64, Instant)>,
}

impl Work {
    async fn step(&mut self, gateway: &Arc<Gateway>) -> Result<(), Error> {
        let store = &gateway.store;
        let live = gateway.live.load_full();
        let settings = &live.settings.variants;
        // A board that cannot be read keeps the others from nothing.
        let learned = learn_all(store, settings).await;
        gateway.refresh().await?;
        let swept = if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            self.swept = Some(Instant::now());
            sweep(store, settings).await
        } else {
            Ok(())
        };
        self.tell(gateway).await?;
        learned.and(swept)
    }

    /// Tells of what is new.
    async fn tell(&mut self, gateway: &Arc<Gateway>) -> Result<(), Error> {
        let store = &gateway.store;
        let version = gateway.variants.snapshot().version;
        let mirror = match &mut self.mirror {
            Some(mirror) => mirror,
            none => {
                let unusable = |error| Error::Invalid(format!("telemetry/crl cannot be used: {error}"));
                none.insert(Mirror::open(&self.data_dir).map_err(unusable)?)
            }
        };
        if self.told != Some(version) {
            webhook::tell(gateway).await?;
            mirror.add_rollbacks(store).await?;
            self.told = Some(version);
        }
        if self.looked.is_none_or(|(seen, at)| seen != version && at.elapsed() >= LOOK) {
            let live = gateway.live.load_full();
            mirror.add_proposals(&desk(store, &live.settings.variants).proposals(None).await?)?;
            self.looked = Some((version, Instant::now()));
        }
        Ok(())
    }
}

fn desk<'a>(store: &'a Store, settings: &'a VariantSettings) -> Desk<'a> {
    Desk { store, settings, agents: &[], candidate: None, by: ITSELF, at: Timestamp::now() }
}

/// Lets boards learn what is there to be learned. One that cannot keeps no other from it.
async fn learn_all(store: &Store, settings: &VariantSettings) -> Result<(), Error> {
    let mut learned = Ok(());
    for key in store.boards_to_learn(admin::MOST).await? {
        let done = learn(store, &key, settings).await;
        learned = learned.and(done);
    }
    learned
}

/// Lets a board learn. Whoever is faster has learned; the rest is looked at anew.
async fn learn(store: &Store, key: &BoardKey, settings: &VariantSettings) -> Result<(), Error> {
    let mut learned = false;
    for _ in 0..ATTEMPTS {
        // The board first: lessons that are read after it and are still open were not learned by it.
        let (version, mut board) = admin::open(store, key).await?;
        let lessons = store.open_lessons_of(key, BATCH).await?;
        if lessons.is_empty() {
            return Ok(());
        }
        // Clients name kinds of tasks. They are counted here too: what serves looks at boards as they were a moment ago.
        if version == 0 && store.count_boards(&key.agent).await? >= MOST_TASK_TYPES as u64 {
            let refused = Some("the agent has boards of too many kinds of tasks".to_owned());
            let refuse =
                |stored: &LessonStored| LearnedLesson { number: stored.number, refused: refused.clone() };
            let change =
                RolloutChange { learned: lessons.iter().map(refuse).collect(), ..RolloutChange::default() };
            learned = store.change_rollout(&change).await?;
            continue;
        }
        let at = Timestamp::now();
        board.stand(admin::held(store).await?, at);
        let is_all = lessons.len() < BATCH;
        let mut change = RolloutChange::default();
        let mut events = Vec::new();
        for LessonStored { number, lesson } in lessons {
            let refused = match observe(&mut board, &lesson, at, settings) {
                Ok(followed) => {
                    events.extend(followed.events);
                    followed.ignored.map(str::to_owned)
                }
                Err(error) => {
                    tracing::warn!(exchange = lesson.exchange_id, %error, "an outcome cannot be learned");
                    Some(error.to_string())
                }
            };
            change.learned.push(LearnedLesson { number, refused });
        }
        admin::fill(&mut change, (key, version, &board), &events, at)?;
        if store.change_rollout(&change).await? {
            say(key, &events);
            learned = true;
            let asks = |event: &BoardEvent| matches!(event, BoardEvent::Decided { decision, .. } if decision.action == Action::HumanApproval);
            // Versions of the program are proposed by whoever configures them.
            if events.iter().any(asks) && key.agent != PROGRAM {
                desk(store, settings).ask(&board).await?;
            }
            if is_all {
                return Ok(());
            }
        }
    }
    // What is left stays open for the next time.
    if learned { Ok(()) } else { Err(Error::Busy) }
}

struct Followed {
    events: Vec<BoardEvent>,
    ignored: Option<&'static str>,
}

fn observe(
    board: &mut Board,
    lesson: &waltz_exchange::variant::Lesson,
    at: Timestamp,
    settings: &VariantSettings,
) -> Result<Followed, waltz_rollout::Error> {
    let outcome = &lesson.outcome;
    if lesson.kind == LessonKind::Shadow {
        // It speaks of the candidate that answered, and not of one that took its place since.
        if super::shadowed(board).is_none_or(|candidate| candidate.name != outcome.variant) {
            return Ok(Followed { events: Vec::new(), ignored: Some("its variant is no longer in shadow") });
        }
        let events = outcome.safety.map(|safety| board.observe_shadow(&safety, at, &settings.rollout));
        return Ok(Followed { events: events.unwrap_or_default(), ignored: Some("nobody saw the answer") });
    }
    let value = |board: &Board| board.entry(&outcome.variant).map(|entry| entry.value.clone());
    let before = value(board)?;
    let events = if lesson.kind == LessonKind::Reported {
        board.report(outcome, lesson.served.as_ref(), at, &settings.rollout)?
    } else {
        board.observe(outcome, at, &settings.rollout)?
    };
    let counted = value(board)? != before;
    Ok(Followed { events, ignored: (!counted).then_some("its subject has had its share") })
}

/// What an operator should hear of at once.
fn say(key: &BoardKey, events: &[BoardEvent]) {
    let BoardKey { agent, task_type } = key;
    for event in events {
        match event {
            BoardEvent::RolledBack(event) => {
                let (from, to) = (&event.from_variant, &event.to_variant);
                tracing::warn!(
                    agent,
                    task_type,
                    from,
                    to,
                    reason = event.reason,
                    "a variant was rolled back"
                );
            }
            BoardEvent::Applied { variant, from_variant, decision } => {
                tracing::info!(
                    agent,
                    task_type,
                    from = from_variant,
                    to = variant,
                    reason = decision.reasoning,
                    "a variant serves from now on"
                );
            }
            BoardEvent::Frozen { reason } => {
                tracing::error!(agent, task_type, reason, "variants are frozen until a person looks");
            }
            BoardEvent::Suspect { variant, .. } => {
                tracing::warn!(agent, task_type, variant, "a variant is suspect; its traffic stays");
            }
            BoardEvent::Release(event) if event.to_status == ReleaseStatus::Aborted => {
                let reasons = event.reasons.join("; ");
                tracing::warn!(
                    agent,
                    task_type,
                    release = event.release_id,
                    reasons,
                    "a release was given up"
                );
            }
            BoardEvent::Release(event) if event.to_percent > event.from_percent => {
                let ReleaseEvent { release_id, from_percent, to_percent, reasons, .. } = event;
                let reason = reasons.join("; ");
                tracing::info!(
                    agent,
                    task_type,
                    release = release_id,
                    from_percent,
                    to_percent,
                    reason,
                    "a release has more traffic from now on"
                );
            }
            BoardEvent::SubjectCapped { subject, variant } => {
                tracing::warn!(agent, task_type, variant, subject, "one subject reports more than its share");
            }
            _ => {}
        }
    }
}

/// Lets time act: releases move on, proposals expire, and once a week changes are proposed.
async fn sweep(store: &Store, settings: &VariantSettings) -> Result<(), Error> {
    let mut moved = Ok(());
    for stored in store.boards().await? {
        let done = move_on(store, &stored.key, settings).await;
        moved = moved.and(done);
    }
    let desk = desk(store, settings);
    desk.expire().await?;
    let since = store.rollout_state().await?.proposed_at;
    if desk.at.duration_since(since) >= PROPOSE {
        desk.propose(since).await?;
    }
    moved
}

async fn move_on(store: &Store, key: &BoardKey, settings: &VariantSettings) -> Result<(), Error> {
    let (version, mut board) = admin::open(store, key).await?;
    let at = Timestamp::now();
    let turned = board.stand(admin::held(store).await?, at);
    let events = board.tick(at, &settings.rollout);
    if events.is_empty() && !turned {
        return Ok(());
    }
    let mut change = RolloutChange::default();
    admin::fill(&mut change, (key, version, &board), &events, at)?;
    // Where another gateway was faster, it has moved the release on.
    if store.change_rollout(&change).await? {
        say(key, &events);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Which version of the program answers while one is released: trained weights, a judge or a policy. Both versions are in
//! memory, and a board of the program's own says who meets which, step by step, as with the variants of an agent.

use std::ops::Deref;
use std::sync::Arc;

use waltz_exchange::record::{Decision, ExchangeRecord};
use waltz_exchange::release::{PROGRAM, ProgramChoice, ReleaseKind};
use waltz_exchange::variant::{Choice, Lesson, LessonKind, RequestContext};
use waltz_rollout::Board;
use waltz_store::BoardKey;

use super::{Snapshot, Variants, certain, lesson, shadowed};
use crate::admin::{Desk, Error};
use crate::live::{Gateway, Live, Version};

/// The version of the program that a request meets.
#[derive(Debug)]
pub struct Seen {
    /// All of its configuration.
    pub live: Arc<Live>,
    /// What could have been chosen; none while nothing is released.
    pub choice: Option<ProgramChoice>,
    /// The candidate, while nobody sees what it answers.
    pub shadow: Option<Arc<Live>>,
}

/// The board of a kind of release.
pub fn key(kind: ReleaseKind) -> BoardKey {
    BoardKey { agent: PROGRAM.to_owned(), task_type: kind.as_str().to_owned() }
}

impl Snapshot {
    /// The board on which a candidate stands, with the candidate's name on it.
    fn program<'a>(&self, candidate: &'a Live) -> Option<(&Board, &'a str)> {
        let Version { kind, name } = candidate.version.as_ref()?;
        let board = self.board(PROGRAM, kind.as_str())?;
        board.entries.contains_key(name).then_some((board, name))
    }
}

impl Variants {
    /// What requests meet that are not part of a release under way: the candidate, once it serves everybody.
    pub fn serving(&self, live: Arc<Live>) -> Arc<Live> {
        let Some(candidate) = &live.candidate else { return live };
        let snapshot = self.snapshot.load();
        let serves = snapshot.program(candidate).is_some_and(|(board, name)| board.serving == name);
        if serves && !self.is_paused() { Arc::clone(candidate) } else { live }
    }

    /// The version of the program that a unit, such as a session, meets.
    pub fn seen(
        &self,
        live: Arc<Live>,
        unit: impl FnOnce() -> String,
        context: &impl Deref<Target = RequestContext>,
    ) -> Seen {
        let Some(Version { kind, name }) = live.version.clone() else {
            return Seen { live, choice: None, shadow: None };
        };
        let chosen = |choice| Some(ProgramChoice { kind, choice });
        let alone = |live| Seen { live, choice: chosen(certain(&name)), shadow: None };
        let Some(candidate) = live.candidate.clone() else { return alone(live) };
        let snapshot = self.snapshot.load();
        let Some((board, candidate_name)) = snapshot.program(&candidate).filter(|_| !self.is_paused()) else {
            return alone(live);
        };
        let settings = &live.settings.variants;
        let choice: Choice = board.choose(&unit(), context, &settings.rollout);
        let shadow = shadowed(board).filter(|variant| variant.name == candidate_name);
        let shadow = shadow.map(|_| Arc::clone(&candidate));
        if choice.variant == candidate_name {
            Seen { live: candidate, choice: chosen(choice), shadow }
        } else if choice.variant == name {
            Seen { live, choice: chosen(choice), shadow }
        } else {
            // A version that is not configured any more: nobody can meet it, and nothing is learned of it.
            Seen { live, choice: None, shadow: None }
        }
    }
}

/// What an exchange teaches about the version of the program that answered.
pub fn lesson(record: &ExchangeRecord) -> Option<Box<Lesson>> {
    let ProgramChoice { kind, choice } = record.program_choice.as_ref()?;
    let BoardKey { agent, task_type } = key(*kind);
    let flagged = record.decision == Decision::Blocked && kind.judges_itself();
    let outcome = if flagged {
        lesson::blocked(record, &choice.variant)
    } else {
        lesson::judged(record, &choice.variant, false)?
    };
    Some(Box::new(Lesson {
        exchange_id: record.id.clone(),
        kind: LessonKind::Program,
        tenant: record.tenant.clone(),
        agent,
        task_type,
        at: record.started_at,
        outcome,
        served: None,
    }))
}

/// Opens the release of a candidate that is configured and was never released. Whatever was on its way before, or serves
/// and is not configured any more, makes room. A candidate that is known already is not tried again by itself, whatever
/// became of it: gateways that still have an older file cannot push a newer one out. Returns whether one was opened.
pub async fn open_release(gateway: &Gateway) -> Result<bool, Error> {
    let live = gateway.live.load_full();
    let Some(Version { kind, name }) =
        live.candidate.as_ref().and_then(|candidate| candidate.version.clone())
    else {
        return Ok(false);
    };
    let own = key(kind);
    if crate::admin::open(&gateway.store, &own).await?.1.entries.contains_key(&name) {
        return Ok(false);
    }
    let settings = &live.settings.variants;
    let at = jiff::Timestamp::now();
    let candidate = Some(name.as_str());
    let desk = Desk { store: &gateway.store, settings, agents: &[], candidate, by: PROGRAM, at };
    desk.introduce(&own, &name).await?;
    gateway.refresh().await?;
    Ok(true)
}

//! `waltz.stage = 1` in the file as the kill switch. Written into the file of a running gateway it takes trained weights
//! and variants out of service; written back, it ends what it began, and not a pause that a person asked for. It acts
//! here at once, and is written into the store as soon as that can be done. The task that watches the files calls it.

use std::time::Duration;

use jiff::Timestamp;
use waltz_exchange::release::Pause;
use waltz_gateway::Gateway;
use waltz_gateway::admin::{Desk, Error};

use crate::commands::note;
use crate::config::{Sources, stage_in_file};

/// Who paused, on record.
const BY: &str = "waltz.stage";
const REASON: &str = "`waltz.stage` was set to 1";

/// How long one attempt to write may take: a server that has gone silent must not keep the files from being watched.
const LIMIT: Duration = Duration::from_secs(15);

/// The switch and what is not written of it yet.
pub(super) struct Switch {
    /// The file said so when it was last heeded.
    is_off: bool,
    /// Whether everything shall be paused, until the store has it.
    wanted: Option<bool>,
    /// That it could not be written was said.
    said: bool,
}

impl Switch {
    /// The switch as the file has it at the start: what stands there already turns nothing.
    pub(super) fn new(sources: &Sources) -> Self {
        Self { is_off: stage_in_file(sources) == Some(1), wanted: None, said: false }
    }

    /// Pauses everything if the file says so since it was changed.
    pub(super) fn pause(&mut self, gateway: &Gateway, sources: &Sources) {
        if self.is_off || stage_in_file(sources) != Some(1) {
            return;
        }
        let pause = Pause { by: BY.to_owned(), at: Timestamp::now(), reason: Some(REASON.to_owned()) };
        gateway.hold(Some(pause));
        (self.is_off, self.wanted) = (true, Some(true));
    }

    /// Ends that, once the file that says so is in service.
    pub(super) fn resume(&mut self, gateway: &Gateway, sources: &Sources) {
        if self.is_off && stage_in_file(sources) != Some(1) {
            gateway.hold(None);
            (self.is_off, self.wanted) = (false, Some(false));
        }
    }

    /// Writes into the store what is not written yet.
    pub(super) async fn write(&mut self, gateway: &Gateway) {
        let Some(pause) = self.wanted else { return };
        let turned = match tokio::time::timeout(LIMIT, turn(gateway, pause)).await {
            Ok(turned) => turned.map_err(|error| error.to_string()),
            Err(_) => Err("the database does not answer".to_owned()),
        };
        match turned {
            Ok(turned) => {
                self.wanted = None;
                self.said = false;
                gateway.hold(None);
                match (turned, pause) {
                    (true, true) => note("everything is paused; `waltz release resume --all` ends that"),
                    (true, false) => note("the pause has ended"),
                    (false, _) => {}
                }
            }
            Err(error) if !self.said => {
                let done = if pause { "everything is paused here" } else { "everything stays paused" };
                note(&format!("{done}, and the store does not know it yet: {error}; it is tried again"));
                self.said = true;
            }
            Err(_) => {}
        }
    }
}

/// Turns the switch of all gateways, unless it stands so or a person has turned it.
async fn turn(gateway: &Gateway, pause: bool) -> Result<bool, Error> {
    let live = gateway.live.load_full();
    let settings = &live.settings.variants;
    let desk =
        Desk { store: &gateway.store, settings, agents: &[], candidate: None, by: BY, at: Timestamp::now() };
    let turned = match (desk.paused().await?, pause) {
        (None, true) => desk.pause_all(Some(REASON)).await.map(|()| true)?,
        (Some(paused), false) if paused.by == BY => {
            desk.resume_all(Some("`waltz.stage` is no longer 1")).await.map(|()| true)?
        }
        _ => false,
    };
    // What was held here goes on by what the store says.
    gateway.refresh().await?;
    Ok(turned)
}

//! What people ask of a release.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::release::{Release, ReleaseEvent, ReleaseStatus};

use super::{Assessment, ReleaseRun};
use crate::Error;
use crate::settings::ReleaseSettings;

/// What a person asks of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Go on to the next step now.
    Promote,
    /// Keep the share and do not go on.
    Hold,
    /// Take the candidate's traffic away for now.
    Pause,
    /// Go on after a hold or a pause.
    Resume,
    /// Give the candidate up.
    Abort,
}

impl ReleaseRun {
    /// Does what a person asks, if `expected` is still the release's version.
    pub fn command(
        &mut self,
        command: Command,
        by: &str,
        expected: u64,
        at: Timestamp,
        settings: &ReleaseSettings,
    ) -> Result<ReleaseEvent, Error> {
        let Release { version, status, id, .. } = &self.release;
        if *version != expected {
            return Err(Error::Stale { expected, found: *version });
        }
        use ReleaseStatus::{Aborted, Held, Paused, Running};
        let refuse = |why: String| Err(Error::Release { release: id.clone(), why });
        let reasons = vec![format!("asked for by {by}")];
        match (command, *status) {
            (Command::Promote, Running | Held) if self.is_still() => {
                refuse("cannot go on while everything stands still; resume that first".to_owned())
            }
            (Command::Promote, Running | Held) if self.next_percent() > settings.cap => {
                let (next, cap) = (self.next_percent(), settings.cap);
                refuse(format!("cannot go on to {next} %: the operator's limit is {cap} %"))
            }
            (Command::Promote, Running | Held) => {
                let mut reasons = reasons;
                if let Assessment::Wait(missing) = self.assess(at, settings) {
                    reasons.extend(
                        missing.into_iter().map(|missing| format!("against the evidence: {missing}")),
                    );
                }
                Ok(self.advance(at, reasons, Some(by)))
            }
            (Command::Hold, Running) => Ok(self.turn(Held, at, reasons, Some(by))),
            (Command::Pause, Running | Held) => Ok(self.turn(Paused, at, reasons, Some(by))),
            (Command::Resume, Paused) if self.held => Ok(self.turn(Held, at, reasons, Some(by))),
            (Command::Resume, Held | Paused) => Ok(self.turn(Running, at, reasons, Some(by))),
            (Command::Abort, Running | Held | Paused) => Ok(self.turn(Aborted, at, reasons, Some(by))),
            _ => refuse(format!("is {} and cannot do this", status.as_str())),
        }
    }
}

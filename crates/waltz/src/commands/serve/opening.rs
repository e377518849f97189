//! Opens the release of a candidate that a configuration brought along: once for every configuration that is read, so that
//! gateways with different files on one database do not take turns. What cannot be done yet is tried again by the task
//! that watches the files.

use std::time::Duration;

use waltz_gateway::Gateway;
use waltz_gateway::variants::program;

use crate::commands::note;

/// A database that says nothing must not keep files from being watched for long. Longer than the store waits itself,
/// which then gives the connection up.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether a release is still to be opened.
pub(super) struct Opening {
    wanted: bool,
    /// That it cannot be done yet was said.
    said: bool,
}

impl Opening {
    /// Of a configuration that was just read.
    pub(super) fn new() -> Self {
        Self { wanted: true, said: false }
    }

    /// Opens the release if that was not done yet.
    pub(super) async fn attempt(&mut self, gateway: &Gateway) {
        if !self.wanted {
            return;
        }
        let opened = tokio::time::timeout(PATIENCE, program::open_release(gateway)).await;
        let trouble = match opened {
            Ok(Ok(begun)) => {
                self.wanted = false;
                if begun {
                    note("a release has begun; `waltz release list` shows where it stands");
                }
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the database does not answer".to_owned(),
        };
        if !std::mem::replace(&mut self.said, true) {
            note(&format!("the release of the candidate cannot begin yet: {trouble}; it is tried again"));
        }
    }
}

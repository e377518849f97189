//! The signals that ask a command to stop: Ctrl-C, SIGTERM, or a closed terminal.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, caught from its making on.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Stop {
    /// Must be called inside a runtime.
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            hangup: signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?,
        })
    }

    /// Waits until one of them comes.
    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

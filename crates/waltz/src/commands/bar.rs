//! Progress on standard error: a bar that is drawn over on a terminal, else one line each few seconds.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::note;

const WIDTH: usize = 30;
const REDRAW: Duration = Duration::from_millis(100);
const NEXT_LINE: Duration = Duration::from_secs(5);

/// A bar.
pub(super) struct Bar {
    terminal: bool,
    shown: Option<Shown>,
}

struct Shown {
    step: String,
    done: u64,
    when: Instant,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: None }
    }

    /// Shows how much of a step is done; `amount` says of what.
    pub(super) fn show(&mut self, step: &str, done: u64, total: Option<u64>, amount: &str) {
        let every = if self.terminal { REDRAW } else { NEXT_LINE };
        let is_done = total == Some(done);
        if let Some(shown) = &self.shown
            && shown.step == step
            && (shown.done == done || (shown.when.elapsed() < every && !is_done))
        {
            return;
        }
        self.shown = Some(Shown { step: step.to_owned(), done, when: Instant::now() });
        let line = match total {
            None => format!("{step} {amount}"),
            Some(total) => {
                let share = done.min(total) as f64 / total.max(1) as f64;
                let filled = "#".repeat((share * WIDTH as f64) as usize);
                let drawn = if self.terminal { format!("[{filled:WIDTH$}] ") } else { String::new() };
                format!("{step} {drawn}{:.0} % of {amount}", share * 100.0)
            }
        };
        if self.terminal {
            // Progress that cannot be shown is no reason to stop.
            write!(std::io::stderr(), "\r\x1b[K{line}").ok();
        } else {
            note(&line);
        }
    }

    pub(super) fn end(&self) {
        if self.terminal && self.shown.is_some() {
            note("");
        }
    }
}

//! `waltz eval`: prompts are put through systems, every answer goes on file at once, and a report is made of the files.
//!
//! prompts -> answers (`answer.rs`, one draft for all systems) -> rows (`run.rs`) -> labels (`scorer.rs`) -> report.
//! Answering is asynchronous and runs on the caller's runtime; everything after it is a pure function of the rows.

mod answer;
mod export;
mod gate;
mod instructions;
mod page;
mod prompts;
mod report;
mod run;
mod scenarios;
mod scorer;
pub mod statistics;
mod table;

use serde::{Deserialize, Serialize};

pub use answer::{Answer, DraftRow, Row, Setup, answer};
pub use export::{Exported, export};
pub use gate::{Bar, Benchmark, CategoryScore, Evidence, Measured, Outcome};
pub use instructions::{Checked, Instruction, InstructionReport, compare, instruction_prompts, instructions};
pub use page::page;
pub use prompts::{Item, Prompts, Skipped, case_files};
pub use report::{Group, Price, Report, Subject, SystemReport, benchmark, harmful, report};
pub use run::{End, Folder, Plan, Progress, run};
pub use scenarios::{Expect, Kind, Scenario, ScenarioReport, scenario_prompts, scenarios};
pub use scorer::{Calibration, CalibrationFile, Label, Scorer, sha256_of};
pub use table::table;

/// What answers: the model alone, or the model under one kind of guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The upstream's answer as it is.
    Base,
    /// The judge in this process, and revisions made by rules.
    Stage1,
    /// What is flagged gets a refusal.
    Block,
    /// The coach.
    Loop,
}

impl System {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Base, Self::Stage1, Self::Block, Self::Loop];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Stage1 => "stage1",
            Self::Block => "block",
            Self::Loop => "loop",
        }
    }
}

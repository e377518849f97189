//! `waltz eval`: prompts are put through systems, every answer goes on file at once, and a report is made of the files.
//!
//! prompts -> answers (`answer.rs`, one draft for all systems) -> rows (`run.rs`) -> labels (`scorer.rs`) -> report.
//! Answering and scoring are asynchronous and run on the caller's runtime; the report is a pure function of rows and labels.

mod agreement;
mod answer;
mod calibration;
mod examine;
mod export;
mod gate;
mod instructions;
mod page;
mod prompts;
mod readers;
mod report;
mod run;
mod scenarios;
mod scorer;
pub mod statistics;
mod table;

use serde::{Deserialize, Serialize};

pub use agreement::Strict;
pub use answer::{Answer, DraftRow, Row, Setup, answer};
pub use calibration::{Calibration, CalibrationFile, LabelFile, Quality, ReadAnswer, ReaderKind};
pub use examine::{Difficulty, Examination, Tokens, prompts_sha256};
pub use export::{Exported, export};
pub use gate::{Bar, Benchmark, CategoryScore, Evidence, Measured, Outcome};
pub use instructions::{Checked, Instruction, InstructionReport, compare, instruction_prompts, instructions};
pub use page::page;
pub use prompts::{Item, Prompts, Skipped, case_files};
pub use readers::{Blind, Readers, answer_id, blind};
pub use report::{Group, Paired, Price, Report, ScoredBy, Subject, SystemReport, benchmark, harmful, report};
pub use run::{End, Folder, Plan, Progress, run};
pub use scenarios::{Expect, Kind, Scenario, ScenarioReport, scenario_prompts, scenarios};
pub use scorer::{Label, Labels, Scorer, Scores, Who, label, sha256_of};
pub use table::table;

/// What answers: the model alone, or the model under one kind of guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// The upstream's answer without trained weights: how hard the prompts are.
    Untrained,
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
    /// Those that can be asked for, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Base, Self::Stage1, Self::Block, Self::Loop];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untrained => "untrained",
            Self::Base => "base",
            Self::Stage1 => "stage1",
            Self::Block => "block",
            Self::Loop => "loop",
        }
    }
}

//! The suites of `waltz eval`.

use waltz_train::evaluate::System;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    Prompts,
    Benchmark,
    Scenarios,
    Instructions,
}

impl Suite {
    const ALL: [Self; 4] = [Self::Prompts, Self::Benchmark, Self::Scenarios, Self::Instructions];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Prompts => "prompts",
            Self::Benchmark => "benchmark",
            Self::Scenarios => "scenarios",
            Self::Instructions => "instructions",
        }
    }

    /// The systems that answer when none is named.
    pub(super) fn systems(self) -> Vec<System> {
        match self {
            Self::Prompts | Self::Scenarios => System::ALL.to_vec(),
            // Without the model alone nobody knows how hard the prompts are.
            Self::Benchmark | Self::Instructions => vec![System::Base, System::Loop],
        }
    }

    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL
            .into_iter()
            .find(|suite| suite.as_str() == name)
            .ok_or_else(|| format!("expected one of {}", known()))
    }
}

//! The report for a terminal: a Markdown table and what must be known to read it.

use super::Report;
use super::statistics::{Estimate, Rate};

/// The report in lines.
pub fn table(report: &Report) -> Vec<String> {
    let mut lines = vec![
        "| system | n | ASR % | ASR corrected | ORR % | ORR corrected | FTR % | rounds | p50 ms | p95 ms | tokens added | cost a month |".to_owned(),
        "|---|---|---|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (system, told) in &report.systems {
        lines.push(format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            system.as_str(),
            told.n,
            percent(&told.asr),
            corrected(&told.asr),
            percent(&told.orr),
            corrected(&told.orr),
            percent(&told.ftr),
            number(told.rounds, 2),
            number(told.latency_p50_ms, 0),
            number(told.latency_p95_ms, 0),
            number(told.tokens_added, 0),
            number(told.cost_per_month, 2)
        ));
    }
    lines.push(String::new());
    let counts = &report.prompts;
    lines.push(format!(
        "{} prompts, {} of them harmful and {} benign; [95 % intervals]; {}",
        counts.all, counts.harmful, counts.benign, report.scored_by.note
    ));
    for (title, told) in report.sections() {
        lines.push(String::new());
        lines.push(title);
        lines.extend(told.iter().map(|line| format!("  {line}")));
    }
    lines
}

/// A share with its interval, in percent; a dash out of nothing.
pub(super) fn percent(rate: &Rate) -> String {
    match rate.value {
        None => "-".to_owned(),
        Some(value) => format!("{:.1} [{:.1}, {:.1}]", value * 1e2, rate.low * 1e2, rate.high * 1e2),
    }
}

/// The corrected share, and whether it says enough.
pub(super) fn corrected(rate: &Rate) -> String {
    let Some(corrected) = &rate.corrected else { return "-".to_owned() };
    let mark = if corrected.inconclusive { " inconclusive" } else { "" };
    format!("{:.1} [{:.1}, {:.1}]{mark}", corrected.value * 1e2, corrected.low * 1e2, corrected.high * 1e2)
}

/// A number with its interval; a dash where there is none.
pub(super) fn number(estimate: Option<Estimate>, digits: usize) -> String {
    match estimate {
        None => "-".to_owned(),
        Some(Estimate { value, low, high }) => format!("{value:.digits$} [{low:.digits$}, {high:.digits$}]"),
    }
}

//! What the judge reads in a request, before anything is drafted.

use std::collections::BTreeMap;

use waltz_exchange::openai::{ChatRequest, Speaker, TextField};
use waltz_exchange::{Category, Issue, Level, Risk, VerdictState};
use waltz_screen::linear::PromptScores;
use waltz_screen::{Finding, Kind, Screen, Side};

use super::{THRESHOLD, highest_per_category, linear};
use crate::templates;

/// What was read in a request. Harm counts for the current turn alone: an earlier turn that was
/// turned down must not condemn a new, harmless one; it only makes the reading stricter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestReading {
    /// Harm that the current turn asks for.
    pub harm: f32,
    /// Highest harm per category in the current turn.
    pub categories: BTreeMap<Category, f32>,
    /// What was found in the current turn, most severe first.
    pub issues: Vec<Issue>,
    /// Harm in earlier turns.
    pub history_harm: f32,
    /// Attempts to steer the model or the judge, wherever they stand.
    pub manipulation: f32,
    /// The text hides behind look-alike or invisible characters, an encoding, or an order to translate.
    pub disguised: bool,
    /// An operator's rule says that the request must not go on.
    pub blocks: bool,
    /// The worst that the rules found in the current turn, but for `firm`.
    pub rules: f32,
    /// What the operator's rules found in the current turn.
    pub firm: Vec<Issue>,
    /// What level 1 says about the current turn.
    pub linear: PromptScores,
    /// The level that decided whether the current turn asks for harm.
    pub level: Level,
    /// Whether every level that was asked gave an answer.
    pub state: VerdictState,
    /// What all that means.
    pub risk: Risk,
    /// Text fields read.
    pub fields: usize,
    /// Bytes read.
    pub bytes: usize,
}

/// Reads every text-bearing field of a request but the operator's own.
pub fn read_request(screen: &Screen, request: &ChatRequest) -> RequestReading {
    let mut reading = RequestReading::default();
    let turn_start = request.turn_start();
    let fields = request.texts();
    for field in &fields {
        // The operator's own instructions and tool definitions are trusted, and not read.
        if field.speaker == Speaker::Operator {
            continue;
        }
        reading.fields += 1;
        reading.bytes += field.text.len();
        let current = field.is_since(turn_start);
        if field.speaker == Speaker::User && current {
            // Read together below, so that a request cut into parts is still one request.
            continue;
        }
        let side = if field.speaker == Speaker::Assistant { Side::Response } else { Side::Prompt };
        let seen = screen.read(&field.text, side);
        reading.disguised |= seen.disguised;
        for finding in &seen.findings {
            reading.blocks |= finding.blocks && current;
            match (field.speaker, is_manipulation(finding)) {
                (_, true) => reading.manipulation = reading.manipulation.max(finding.severity),
                (Speaker::User | Speaker::Assistant, false) => {
                    reading.history_harm = reading.history_harm.max(finding.severity);
                }
                // A tool's result is material, not a wish of the user.
                (Speaker::Tool | Speaker::Operator, false) => {}
            }
        }
    }
    read_current_turn(screen, &asked(&fields, turn_start), &mut reading);
    reading.risk = risk(&reading);
    reading
}

/// What the user says from a message on.
pub(super) fn asked(fields: &[TextField<'_>], turn_start: usize) -> String {
    let mut asked = String::new();
    for field in fields {
        if field.speaker == Speaker::User && field.is_since(turn_start) {
            if !asked.is_empty() {
                asked.push('\n');
            }
            asked.push_str(&field.text);
        }
    }
    asked
}

fn read_current_turn(screen: &Screen, asked: &str, reading: &mut RequestReading) {
    let (seen, words) = screen.read_for_both(asked, Side::Prompt);
    reading.disguised |= seen.disguised;
    for finding in &seen.findings {
        reading.blocks |= finding.blocks;
        if matches!(finding.kind, Kind::Pii | Kind::Secret) {
            continue;
        }
        if is_manipulation(finding) {
            reading.manipulation = reading.manipulation.max(finding.severity);
            continue;
        }
        let list = if finding.kind == Kind::Rule { &mut reading.firm } else { &mut reading.issues };
        list.push(Issue {
            category: finding.category.clone(),
            severity: finding.severity,
            description: finding.description.clone(),
            evidence: Some(finding.span),
            mitigation: templates::for_category(&finding.category).mitigation.to_owned(),
        });
    }
    // To translate a harmful text does no harm by itself; the answer to it is worth a closer look.
    if let Some((order, text)) = asked.split_once(':')
        && order.to_lowercase().contains("translat")
    {
        let seen = screen.read(text, Side::Prompt);
        reading.disguised |= seen.findings.iter().any(|finding| finding.kind == Kind::Harm);
    }
    reading.rules = reading.issues.iter().map(|issue| issue.severity).fold(0.0, f32::max);
    reading.issues.extend(reading.firm.iter().cloned());
    reading.issues.sort_by(|left, right| right.severity.total_cmp(&left.severity));
    reading.categories = highest_per_category(&reading.issues);
    reading.harm = reading.categories.values().copied().fold(0.0, f32::max);
    reading.linear = screen.linear().score_prompt(&words);
    let scores = reading.linear;
    reading.level =
        linear::add(scores.harm, &scores.categories, "request", &mut reading.categories, &mut reading.issues);
    reading.harm = linear::harm(scores.harm, reading.harm);
}

/// Steering the model or the judge is a reason to look closer, not a harm of its own.
fn is_manipulation(finding: &Finding) -> bool {
    finding.kind == Kind::Malicious
}

pub(super) fn risk(reading: &RequestReading) -> Risk {
    if reading.harm >= THRESHOLD || reading.blocks {
        Risk::High
    } else if reading.history_harm >= THRESHOLD || reading.manipulation >= THRESHOLD || reading.disguised {
        Risk::Medium
    } else {
        Risk::Low
    }
}

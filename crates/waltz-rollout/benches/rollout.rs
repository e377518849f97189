//! Microseconds of a choice with its log line among 10,000 variants, and seconds for a million outcomes:
//! `cargo bench -p waltz-rollout`. Above 5 us or 10 s it ends with an error; of several runs the best counts, which a busy
//! machine disturbs least.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use jiff::Timestamp;
use waltz_exchange::variant::{OutcomeClass, RequestContext, VariantOutcome};
use waltz_rollout::{Board, Change, ChooseRule, Settings};

const VARIANTS: usize = 10_000;
const OUTCOMES: usize = 1_000_000;
const RUNS: usize = 5;
const MOST_MICROSECONDS: f64 = 5.0;
const MOST_SECONDS: f64 = 10.0;

fn main() -> Result<(), Box<dyn Error>> {
    for rule in [ChooseRule::EpsilonGreedy, ChooseRule::Ucb1, ChooseRule::Thompson, ChooseRule::Linucb] {
        let mut settings = Settings::default();
        settings.choose.rule = rule;
        let mut boards = boards(&settings)?;
        let replayed = replay(&mut boards, &settings)?;
        let context = RequestContext { length: 400, language: "en".into(), ..RequestContext::default() };
        let units: Vec<String> = (0..100_000).map(|number| format!("session-{number}")).collect();
        let (mut bytes, mut each) = (0, f64::INFINITY);
        for _ in 0..RUNS {
            let started = Instant::now();
            bytes = 0;
            for (number, unit) in units.iter().enumerate() {
                let choice = boards[number % boards.len()].choose(black_box(unit), &context, &settings);
                bytes += serde_json::to_string(&choice)?.len();
            }
            each = each.min(started.elapsed().as_secs_f64() * 1e6 / units.len() as f64);
        }
        println!(
            "{rule:?}: choose and log {each:.2} us, {OUTCOMES} outcomes {replayed:.2} s ({bytes} bytes)"
        );
        if each > MOST_MICROSECONDS || replayed > MOST_SECONDS {
            let most = format!("{MOST_MICROSECONDS} us and {MOST_SECONDS} s");
            return Err(format!("{rule:?} takes longer than {most}").into());
        }
    }
    Ok(())
}

/// Boards of two live variants, 10,000 in all.
fn boards(settings: &Settings) -> Result<Vec<Board>, Box<dyn Error>> {
    let mut boards = Vec::new();
    for number in 0..VARIANTS / 2 {
        let mut board = Board::new(&format!("agent-{number}"), "api-design", &format!("seed-{number}"));
        let add = Change::Add { name: "other".into(), patch: Vec::new(), live: true, prior: None };
        board.change(add, "bench", 0, Timestamp::UNIX_EPOCH, settings)?;
        boards.push(board);
    }
    Ok(boards)
}

/// Seconds for a million outcomes, nine of ten good, of both variants of all boards in turn.
fn replay(boards: &mut [Board], settings: &Settings) -> Result<f64, Box<dyn Error>> {
    let mut outcome = VariantOutcome {
        variant: String::new(),
        class: OutcomeClass::Success,
        quality: None,
        duration_ms: 20_000.0,
        errors: 0,
        subject: None,
        context: RequestContext::default(),
        safety: None,
    };
    let started = Instant::now();
    for number in 0..OUTCOMES {
        let round = number / boards.len();
        let board = number % boards.len();
        outcome.variant = if round.is_multiple_of(2) { "default" } else { "other" }.to_owned();
        let good = !(number * 7919 + round * 104_729).is_multiple_of(10);
        outcome.class = if good { OutcomeClass::Success } else { OutcomeClass::Failure };
        outcome.subject = Some(format!("subject-{}", number % 1000));
        black_box(boards[board].observe(&outcome, Timestamp::UNIX_EPOCH, settings)?);
    }
    Ok(started.elapsed().as_secs_f64())
}

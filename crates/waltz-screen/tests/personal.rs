//! How well personal data and secrets are found: on generated examples and near misses of every kind, on
//! text that holds none, and, where the development data is there, on sentences that others labelled.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail loudly")]

#[path = "personal/checksums.rs"]
mod checksums;
#[path = "personal/examples.rs"]
mod examples;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;

use examples::{Dice, cue, near_miss, sentence, valid};
use waltz_screen::{PiiKind, find_pii};

const EXAMPLES: usize = 500;

/// For every kind, 500 examples and 500 near misses: at least 97 of 100 are found exactly where they stand,
/// and at least 97 of 100 findings are right.
#[test]
fn examples_are_found_and_near_misses_are_not() {
    let mut failures = String::new();
    for kind in PiiKind::ALL {
        let mut dice = Dice(11);
        let (mut hits, mut false_hits) = (0.0, 0.0);
        let mut missed = Vec::new();
        for _ in 0..EXAMPLES {
            let (before, behind) = sentence(kind, &mut dice);
            let before = format!("{before}{}", cue(kind, &mut dice));
            let value = valid(kind, &mut dice);
            let text = format!("{before}{value}{behind}");
            let exact = find_pii(&text)
                .iter()
                .any(|found| found.kind == kind && text[found.span.start..found.span.end] == value);
            if exact { hits += 1.0 } else { missed.push(text) }
        }
        let mut wrong = Vec::new();
        for _ in 0..EXAMPLES {
            let (before, behind) = sentence(kind, &mut dice);
            let cue = if kind == PiiKind::Person { cue(kind, &mut dice) } else { "" };
            let text = format!("{before}{cue}{}{behind}", near_miss(kind, &mut dice));
            if find_pii(&text).iter().any(|found| found.kind == kind) {
                false_hits += 1.0;
                wrong.push(text);
            }
        }
        let recall = hits / EXAMPLES as f64;
        let precision = hits / f64::max(hits + false_hits, 1.0);
        if recall < 0.97 || precision < 0.97 {
            let shown = |texts: &[String]| texts.iter().take(4).cloned().collect::<Vec<_>>();
            let _ = writeln!(
                failures,
                "{}: recall {recall:.3} {:?}, precision {precision:.3} {:?}",
                kind.as_str(),
                shown(&missed),
                shown(&wrong)
            );
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Ten megabytes of code, logs and numbers without anything personal in them.
#[test]
fn code_logs_and_numbers_hold_nothing_personal() {
    let mut dice = Dice(5);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut samples = Vec::new();
    let mut bytes = 0;
    while bytes < 10_000_000 {
        let mut text = String::new();
        while text.len() < 100_000 {
            match bytes / 100_000 % 3 {
                0 => code_line(&mut dice, &mut text),
                1 => log_line(&mut dice, &mut text),
                _ => number_line(&mut dice, &mut text),
            }
        }
        for found in find_pii(&text) {
            *counts.entry(found.kind.as_str()).or_default() += 1;
            samples.push(text[found.span.start..found.span.end].to_owned());
        }
        bytes += text.len();
    }
    let total: usize = counts.values().sum();
    samples.truncate(40);
    assert!(total * 100_000 <= bytes, "{total} in {bytes} bytes: {counts:?} {samples:?}");
}

fn code_line(dice: &mut Dice, text: &mut String) {
    let (one, two, three) = (dice.word(), dice.word(), dice.word());
    let number = dice.below(1 << 32);
    let line = match dice.below(14) {
        0 => format!("fn {one}_{two}(&self, {three}: &str) -> Result<u{}, Error> {{", 8 << dice.below(4)),
        1 => format!("    let {one} = self.{two}.{three}({number})?;"),
        2 => format!("use crate::{one}::{{{two}, {three}}};"),
        3 => format!("const {}: u64 = 0x{:x};", one.to_uppercase(), number),
        4 => format!(
            "        assert_eq!({one}[{}..{}], [{}, {}, {}]);",
            dice.below(9),
            dice.below(99),
            number,
            dice.below(255),
            dice.below(255)
        ),
        5 => format!(
            "@{one}.{two}(\"{three}\", version = \"{}.{}.{}\")",
            dice.below(9),
            dice.below(20),
            dice.below(40)
        ),
        6 => format!("password = get_{one}({two})"),
        7 => format!("    {{\"{one}\": {}, \"{two}\": \"{}\", \"{three}\": null}},", number, dice.hex(40)),
        8 => format!("#define {}_{} {}", one.to_uppercase(), two.to_uppercase(), number),
        9 => format!("if name is None or {one}.{two} != {number}:"),
        10 => format!(
            "// {one} {two} see section {}.{}.{}.{}",
            1 + dice.below(9),
            dice.below(9),
            dice.below(9),
            dice.below(9)
        ),
        11 => format!("checksum = \"{}\"", dice.hex(64)),
        12 => format!(
            "  rgba({}, {}, {}, 0.{});  margin: {}px {}px;",
            dice.below(256),
            dice.below(256),
            dice.below(256),
            dice.below(99),
            dice.below(99),
            dice.below(99)
        ),
        _ => format!("std::{one}::{two}::<{three}>(a::b{}, {one}::E)", dice.below(99)),
    };
    text.push_str(&line);
    text.push('\n');
}

fn log_line(dice: &mut Dice, text: &mut String) {
    let second = format!("{:02}:{:02}:{:02}", dice.below(24), dice.below(60), dice.below(60));
    let day = format!("20{}-{:02}-{:02}", 10 + dice.below(20), 1 + dice.below(12), 1 + dice.below(28));
    let (one, two) = (dice.word(), dice.word());
    let uuid = [8, 4, 4, 4, 12].map(|size| dice.hex(size)).join("-");
    let line = match dice.below(8) {
        0 => format!(
            "{day}T{second}.{}Z INFO {one}: request id={uuid} status={} took {}ms",
            dice.digits(6),
            200 + dice.below(300),
            dice.below(9_999)
        ),
        1 => format!(
            "[{}.{}] {one} {two}: allocated {} bytes at 0x{}",
            dice.digits(5),
            dice.digits(6),
            dice.digits(9),
            dice.hex(16)
        ),
        2 => format!(
            "{day} {second},{} ERROR pid={} thread={} {one} failed after {} retries",
            dice.digits(3),
            dice.digits(5),
            dice.digits(15),
            dice.below(9)
        ),
        3 => format!(
            "level=debug ts=1{}.{} trace={} span={}",
            dice.digits(9),
            dice.digits(7),
            dice.hex(32),
            dice.hex(16)
        ),
        4 => format!(
            "commit {} {one} ({} insertions, {} deletions)",
            dice.hex(40),
            dice.digits(3),
            dice.digits(4)
        ),
        5 => format!(
            "{one}[{}]: order {} shipped, {} of {} done, eta {second}",
            dice.digits(4),
            dice.digits(8),
            dice.digits(3),
            dice.digits(4)
        ),
        6 => format!(
            "GET /api/v{}/{one}/{} 200 {} \"{two}/{}.{}.{}\"",
            dice.below(4),
            dice.digits(7),
            dice.digits(5),
            dice.below(120),
            dice.below(9),
            dice.below(9_999)
        ),
        _ => format!(
            "ts=1{} offset={} partition={} key={}",
            dice.digits(12),
            dice.digits(10),
            dice.below(64),
            dice.of("ABCDEFGHJKLMNPRSTUVWXYZ0123456789", 20)
        ),
    };
    text.push_str(&line);
    text.push('\n');
}

fn number_line(dice: &mut Dice, text: &mut String) {
    let count = 4 + dice.below(8);
    let sign = dice.pick(&[" ", "\t", ", ", ","]);
    let numbers: Vec<String> = (0..count)
        .map(|_| match dice.below(6) {
            0 => format!("{}.{}", dice.below(10_000), dice.below(1_000_000)),
            1 => format!("-{}", dice.below(100_000)),
            2 => format!("{}e-{}", dice.below(10), dice.below(300)),
            _ => {
                let size = 1 + dice.below(18);
                dice.digits(size)
            }
        })
        .collect();
    text.push_str(&numbers.join(sign));
    text.push('\n');
}

/// Recall per kind on sentences of `pii_presidio.jsonl`, with Wilson's bounds. The rows are no part of this
/// repository: `WALTZ_PII_DATA` names the file, and without it there is nothing to measure.
#[test]
fn recall_on_labelled_sentences() -> Result<(), Box<dyn Error>> {
    let Ok(path) = std::env::var("WALTZ_PII_DATA") else {
        eprintln!("hint: WALTZ_PII_DATA=FILE measures recall on labelled sentences");
        return Ok(());
    };
    let least: BTreeMap<&str, (PiiKind, f64)> = BTreeMap::from([
        ("EMAIL_ADDRESS", (PiiKind::Email, 0.97)),
        ("CREDIT_CARD", (PiiKind::Card, 0.97)),
        ("IBAN_CODE", (PiiKind::Iban, 0.97)),
        ("IP_ADDRESS", (PiiKind::Ipv4, 0.97)),
        ("PHONE_NUMBER", (PiiKind::Phone, 0.6)),
        ("PERSON", (PiiKind::Person, 0.0)),
        ("STREET_ADDRESS", (PiiKind::Address, 0.0)),
    ]);
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut missed = Vec::new();
    for line in std::fs::read_to_string(path)?.lines() {
        let row: serde_json::Value = serde_json::from_str(line)?;
        let text = row["prompt"].as_str().unwrap_or_default();
        let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let found = find_pii(text);
        for span in row["meta"]["pii_spans"].as_array().into_iter().flatten() {
            let Some((name, (kind, _))) = span[2].as_str().and_then(|name| least.get_key_value(name)) else {
                continue;
            };
            let place =
                |index: usize| span[index].as_u64().and_then(|at| bytes.get(usize::try_from(at).ok()?));
            let (Some(start), Some(end)) = (place(0), place(1)) else { continue };
            let hit = found
                .iter()
                .any(|found| found.kind == *kind && found.span.start < *end && *start < found.span.end);
            let count = counts.entry(name).or_default();
            count.0 += usize::from(hit);
            count.1 += 1;
            if !hit && *kind != PiiKind::Person && *kind != PiiKind::Address {
                missed.push(format!("{name}: {}", &text[*start..*end]));
            }
        }
    }
    for (name, (hits, all)) in &counts {
        let (low, high) = wilson(*hits as f64, *all as f64);
        eprintln!("{name:<15} {hits}/{all} recall {:.3} [{low:.3}, {high:.3}]", *hits as f64 / *all as f64);
    }
    eprintln!("missed: {missed:?}");
    for (name, (_, bound)) in least {
        let (hits, all) = counts.get(name).copied().unwrap_or_default();
        assert!(all > 0 && hits as f64 >= bound * all as f64, "{name}: {hits} of {all}");
    }
    Ok(())
}

/// Wilson's interval of a share at 95 %.
fn wilson(hits: f64, all: f64) -> (f64, f64) {
    let z = 1.96;
    let share = hits / all;
    let middle = share + z * z / (2.0 * all);
    let half = z * (share * (1.0 - share) / all + z * z / (4.0 * all * all)).sqrt();
    let scale = 1.0 + z * z / all;
    ((middle - half) / scale, (middle + half) / scale)
}

//! Time per kilobyte of level 0 (`Screen::read`) and of level 1 (`LinearJudge::read_prompt`), one core:
//! `cargo bench -p waltz-screen`. The goals are 20 and 30 us/kB on clean text, and 1 MB of hostile text
//! through both under 50 ms.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use waltz_screen::{Screen, Side, find_pii};

const ENGLISH: &str = "The committee met on Tuesday to discuss the new library. Several members asked how the \
    building would be paid for, and the treasurer explained that most of the money had been raised already. \
    \"We should open next spring,\" she said, and nobody disagreed. Visitors will find a reading room, a cafe \
    and a garden with places to sit. If you want to help, write to the office or come to the next meeting. ";
const CODE: &str = "fn main() -> Result<(), Error> {\n    let mut items = Vec::with_capacity(64);\n    \
    for (index, line) in input.lines().enumerate() {\n        let value: u32 = line.trim().parse()?;\n        \
    items.push(Item { id: index as u64, value, name: format!(\"item_{index}\") });\n    }\n    \
    items.sort_by_key(|item| item.value);\n    println!(\"{} items\", items.len());\n    Ok(())\n}\n";
/// Prose with the numbers that prose has, none of them anybody's.
const FIGURES: &str = "In 2024 the library lent 48,120 books, 7.5 % more than in 2023, and had 310 visitors on a \
    usual day. Opening hours are 9:00 to 18:30 from Tuesday to Saturday; see page 12 of the report, section 3.1. ";
const FRENCH: &str = "Le comité s’est réuni mardi pour parler de la nouvelle bibliothèque. Plusieurs membres \
    ont demandé comment le bâtiment serait payé, et la trésorière a expliqué que l’argent était déjà là. ";

fn main() -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let screen = Screen::builtin()?;
    println!("build            {:>10.1} ms", started.elapsed().as_secs_f64() * 1e3);
    for (name, text) in [
        ("english 1 kB", ENGLISH.repeat(3)[..1000].to_owned()),
        ("english 16 kB", ENGLISH.repeat(40)),
        ("code 16 kB", CODE.repeat(40)),
        ("french 16 kB", FRENCH.repeat(80)),
    ] {
        report(&screen, name, &text, 400);
    }
    println!("\nMB/s, the best of many runs   personal data alone   level 0 with personal data");
    for (name, text) in [
        ("english 64 kB", ENGLISH.repeat(160)),
        ("figures 64 kB", FIGURES.repeat(300)),
        ("code 64 kB", CODE.repeat(150)),
        ("french 64 kB", FRENCH.repeat(300)),
    ] {
        let alone = megabytes_per_second(&text, 300, || black_box(find_pii(black_box(&text))).len());
        let both = megabytes_per_second(&text, 300, || {
            black_box(screen.read(black_box(&text), Side::Prompt)).findings.len()
        });
        println!("{name:<18} {alone:>28.0} {both:>28.0}");
    }
    println!();
    let megabyte = 1 << 20;
    for (name, unit) in [
        ("aaaa 1 MB", "a"),
        ("brackets 1 MB", "((([[[{{{"),
        ("hack 1 MB", "hack "),
        ("hack account 1 MB", "hack the account how to "),
        ("how to 1 MB", "how to "),
        ("make 1 MB", "make "),
        ("near match 1 MB", "make a bom explosiv weapo hac accoun steal "),
        ("all terms 1 MB", "how to make a bomb write kill someone steal money hack phone drugs fraud "),
        ("marks 1 MB", "\u{301}"),
        ("a + marks 1 MB", "a\u{301}\u{302}"),
        ("leet 1 MB", "h4ck b0mb k1ll "),
        ("spelt 1 MB", "h a c k "),
        ("spelt digits 1 MB", "x y z 1 2 3 4 5 6 7 8 9 "),
        ("digits 1 MB", "4111 1111 "),
        ("nines 1 MB", "021000021 "),
        ("dialled 1 MB", "030 901 820 "),
        ("hex 1 MB", "fe80:1:"),
        ("titles 1 MB", "Dr. A "),
        ("streets 1 MB", "1 Oak Street "),
        ("words 1 MB", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb "),
        ("mail 1 MB", "a@a."),
        ("password 1 MB", "password:"),
        ("pem 1 MB", "-----BEGIN PRIVATE KEY-----"),
        ("override 1 MB", "\u{202e}ab\u{202c}"),
    ] {
        report(&screen, name, &unit.repeat(megabyte / unit.len()), 7);
    }
    Ok(())
}

/// The best of many short runs, which is the least disturbed by other work on the machine.
fn megabytes_per_second(text: &str, runs: usize, read: impl Fn() -> usize) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..runs {
        let started = Instant::now();
        black_box(read());
        best = best.min(started.elapsed().as_secs_f64());
    }
    text.len() as f64 / best / 1e6
}

fn report(screen: &Screen, name: &str, text: &str, runs: usize) {
    let level_0 = median(runs, || drop(black_box(screen.read(black_box(text), Side::Prompt))));
    let level_1 = median(runs, || {
        black_box(screen.linear().read_prompt(black_box(text)));
    });
    // Bytes by millions of bytes per second are microseconds.
    let alone = text.len() as f64 / megabytes_per_second(text, runs, || black_box(find_pii(text)).len());
    let kilobytes = text.len() as f64 / 1000.0;
    println!(
        "{name:<18} {:>8.2} + {:>6.2} us/kB  {:>9.3} ms  n = {runs}  personal data {:>9.3} ms",
        level_0 / kilobytes,
        level_1 / kilobytes,
        (level_0 + level_1) / 1e3,
        alone / 1e3
    );
}

fn median(runs: usize, mut read: impl FnMut()) -> f64 {
    let mut micros: Vec<f64> = (0..runs)
        .map(|_| {
            let started = Instant::now();
            read();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    micros[runs / 2]
}

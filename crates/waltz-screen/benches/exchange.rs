//! What one exchange costs: a prompt of 1 kB and an answer of 1 kB through levels 0 and 1 with personal data, and what
//! is stored of both searched for personal data once more. CPU time and allocations, one core:
//! `cargo bench -p waltz-screen --bench exchange`.
//!
//! "warm" reads one exchange after the other; "cold" does as much other work in between that nothing of the screen is
//! left in the processor's inner caches, as between two exchanges of a gateway.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use waltz_screen::{Screen, Side, find_pii};

const WORDS: &str = "The committee met on Tuesday to discuss the new library. Several members asked how the building \
    would be paid for, and the treasurer explained that most of the money had been raised already. \"We should open \
    next spring,\" she said, and nobody disagreed. Visitors will find a reading room, a cafe and a garden with places \
    to sit. If you want to help, write to the office or come to the next meeting. Could you explain which steps our \
    team needs before it starts? First collect every open question, sort them by topic, and give each one an owner. \
    Then agree on dates; a simple table is enough. Most projects fail because nobody writes down what was decided, so \
    keep short notes and share them early. In 2024 the library lent 48,120 books, 7.5 % more than in the year before.";
/// Exchanges that differ, so that no branch and no cache line is learned by heart.
const EXCHANGES: usize = 61;
/// Bytes of other memory that are read between two exchanges: many times the inner caches.
const OTHER_BYTES: usize = 8 << 20;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "there is no other way to count allocations; it hands on what it is given")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let screen = Screen::builtin()?;
    let exchanges: Vec<(String, String)> =
        (0..EXCHANGES).map(|index| (text(2 * index), text(2 * index + 1))).collect();
    let other = vec![1_u64; OTHER_BYTES / 8];
    for (name, between) in [("warm", &other[..0]), ("cold", &other[..])] {
        let mut micros: Vec<f64> = Vec::new();
        let mut allocations = 0;
        for (prompt, answer) in exchanges.iter().cycle().take(20 * EXCHANGES) {
            black_box(black_box(between).iter().sum::<u64>());
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let started = Instant::now();
            exchange(&screen, black_box(prompt), black_box(answer));
            micros.push(started.elapsed().as_secs_f64() * 1e6);
            allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
        let runs = micros.len();
        micros.sort_by(f64::total_cmp);
        println!(
            "exchange of 2 kB, {name}  {:>6.1} us, best tenth {:>6.1} us  {:>5.1} allocations  n = {runs}",
            micros[runs / 2],
            micros[runs / 10],
            allocations as f64 / runs as f64
        );
    }
    Ok(())
}

fn exchange(screen: &Screen, prompt: &str, answer: &str) {
    let (asked, words) = screen.read_for_both(prompt, Side::Prompt);
    let scores = screen.linear().score_prompt(&words);
    let (seen, words) = screen.read_for_both(answer, Side::Response);
    black_box(screen.linear().score_response(&scores, &words));
    black_box((asked, seen, find_pii(prompt), find_pii(answer)));
}

/// A kilobyte of clean words, in another order for each number.
fn text(number: usize) -> String {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut text = String::new();
    let mut at = number * 31;
    while text.len() < 1000 {
        // Runs of words stay together, so that it reads like prose.
        let from = at % (words.len() - 8);
        words[from..from + 8].iter().for_each(|word| {
            text.push_str(word);
            text.push(' ');
        });
        at = at.wrapping_mul(73).wrapping_add(number + 17) % 100_003;
    }
    text
}

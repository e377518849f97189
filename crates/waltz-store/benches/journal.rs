//! How dear an append is and how fast the journal drains. Prints one line per figure.
//!
//! `cargo bench -p waltz-store --bench journal`
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::time::{Duration, Instant};

use waltz_store::{Entry, Settings, Store};

const ENTRIES: usize = 20_000;
const COACHED: usize = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure())
}

async fn measure() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    // Nothing drains while appends are timed, and the other way round.
    let settings = Settings {
        drain_delay: Duration::from_secs(3600),
        drain_batch: usize::MAX,
        ..Settings::at(folder.path())
    };
    let entries: Vec<Entry> = (0..ENTRIES).map(entry).collect();
    let size = serde_json::to_vec(&entries[0])?.len();
    let store = Store::open(settings.clone()).await?;
    let mut times = Vec::with_capacity(ENTRIES);
    for entry in &entries {
        let start = Instant::now();
        store.append(entry)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let micros = |share: f64| times[(share * (ENTRIES - 1) as f64) as usize].as_secs_f64() * 1e6;
    let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e6 / ENTRIES as f64;
    println!(
        "append: n = {ENTRIES}, {size} bytes each, mean {mean:.1} us, median {:.1} us, p99 {:.1} us",
        micros(0.5),
        micros(0.99)
    );
    store.abandon().await?;
    drop(store);

    let start = Instant::now();
    let store = Store::open(Settings::at(folder.path())).await?;
    store.drained().await?;
    let rate = ENTRIES as f64 / start.elapsed().as_secs_f64();
    println!("drain: n = {ENTRIES}, {rate:.0} records per second, each with 2 evaluations and 1 trajectory");

    let start = Instant::now();
    for number in 0..COACHED {
        let id = format!("req_c{number:07}");
        store.append(&common::exchange(common::coached(
            &id,
            "acme",
            "ses_c",
            0,
            &format!("open the door number {number} of a house"),
        )))?;
    }
    store.drained().await?;
    let rate = COACHED as f64 / start.elapsed().as_secs_f64();
    println!("append and drain: n = {COACHED} coached exchanges, {rate:.0} records per second");

    let start = Instant::now();
    let stats = store.stats(None).await?;
    println!("stats: over {} exchanges, {:.1} ms", stats.interactions, start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    let similar = store.similar("acme", "please open the other door", 3).await?;
    println!(
        "similar: {} found in {COACHED} coachings, {:.1} ms",
        similar.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
    store.close().await?;
    Ok(())
}

/// An ordinary exchange of about 4 kB: judged, not coached.
fn entry(number: usize) -> Entry {
    let mut record =
        common::released(&format!("req_{number:08}"), "acme", &format!("ses_{}", number / 4), 0, "");
    record.user_request = "how do I open the door of my house ".repeat(12);
    record.prompt_verdict = Some(common::safe());
    record.choices[0].draft.text = "here is what a locksmith would do first ".repeat(25);
    record.choices[0].final_text = record.choices[0].draft.text.clone();
    common::exchange(record)
}

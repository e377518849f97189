//! How dear an append is, how fast the journal drains, and what CPU both take of each exchange. Prints one line per figure and database:
//! SQLite, and PostgreSQL where it is installed (a server of its own, over a Unix socket, syncing its log)
//! or where `WALTZ_TEST_POSTGRES` leads to an empty database.
//!
//! `cargo bench -p waltz-store --bench journal`
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/store/server.rs"]
#[expect(dead_code, reason = "the bench never restarts its server")]
mod server;

use std::error::Error;
use std::time::{Duration, Instant};

use server::Server;
use waltz_exchange::{Embedding, ExchangeRecord, id};
use waltz_store::{Database, Entry, Settings, Store};

const ENTRIES: usize = 20_000;
const COACHED: usize = 5_000;
/// What gathers under load before it is committed together.
const TOGETHER: usize = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure("sqlite", Database::Sqlite))?;
    if let Ok(url) = std::env::var("WALTZ_TEST_POSTGRES") {
        return runtime.block_on(measure("postgres", Database::postgres(url.into())?));
    }
    match Server::start(true) {
        Ok(server) => {
            let database = Database::postgres(server.url("postgres").into())?;
            runtime.block_on(measure("postgres", database))
        }
        Err(message) => {
            println!("postgres: not measured, {message}");
            Ok(())
        }
    }
}

async fn measure(name: &str, database: Database) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    // Nothing drains while appends are timed, and the other way round.
    let usual = Settings { database, ..Settings::at(folder.path()) };
    let settings =
        Settings { drain_delay: Duration::from_secs(3600), drain_batch: usize::MAX, ..usual.clone() };
    let entries: Vec<Entry> = (0..ENTRIES).map(|_| entry()).collect();
    let size = serde_json::to_vec(&entries[0])?.len();
    let store = Store::open(settings).await?;
    let mut times = Vec::with_capacity(ENTRIES);
    let before = cpu_micros()?;
    for entry in &entries {
        let start = Instant::now();
        store.append(entry)?;
        times.push(start.elapsed());
    }
    let each = (cpu_micros()? - before) / ENTRIES as f64;
    times.sort_unstable();
    let micros = |share: f64| times[(share * (ENTRIES - 1) as f64) as usize].as_secs_f64() * 1e6;
    let mean = times.iter().sum::<Duration>().as_secs_f64() * 1e6 / ENTRIES as f64;
    println!(
        "{name} append: n = {ENTRIES}, {size} bytes each, mean {mean:.1} us, median {:.1} us, p99 {:.1} us, {each:.1} us of CPU each",
        micros(0.5),
        micros(0.99)
    );
    store.abandon().await?;
    drop(store);

    let before = cpu_micros()?;
    let start = Instant::now();
    let store = Store::open(usual).await?;
    store.drained().await?;
    let rate = ENTRIES as f64 / start.elapsed().as_secs_f64();
    let each = (cpu_micros()? - before) / ENTRIES as f64;
    println!(
        "{name} drain from files: n = {ENTRIES}, {rate:.0} records per second, {each:.1} us of CPU each in this process"
    );

    let live: Vec<Entry> = (0..ENTRIES).map(|_| entry()).collect();
    let before = cpu_micros()?;
    for some in live.chunks(TOGETHER) {
        for entry in some {
            store.append(entry)?;
        }
        store.drained().await?;
    }
    let each = (cpu_micros()? - before) / ENTRIES as f64;
    println!(
        "{name} append and drain: n = {ENTRIES}, {TOGETHER} at a time, {each:.1} us of CPU each in this process"
    );

    let start = Instant::now();
    for number in 0..COACHED {
        let id = format!("req_c{number:07}");
        let request = format!("open the door number {number} of a house");
        let record = common::coached(&id, "acme", "ses_c", 0, &request);
        let embedding = Some(embedding(number));
        store.append(&common::exchange(ExchangeRecord { embedding, ..record }))?;
    }
    store.drained().await?;
    let rate = COACHED as f64 / start.elapsed().as_secs_f64();
    println!("{name} append and drain: n = {COACHED} coached exchanges, {rate:.0} records per second");

    let start = Instant::now();
    let stats = store.stats(None).await?;
    println!(
        "{name} stats: over {} exchanges, {:.1} ms",
        stats.interactions,
        start.elapsed().as_secs_f64() * 1e3
    );
    for (way, embedding) in [("words", None), ("meaning", Some(embedding(1)))] {
        let start = Instant::now();
        let similar = store.similar("acme", "please open the other door", embedding.as_ref(), 3).await?;
        println!(
            "{name} similar by {way}: {} found in {COACHED} coachings, {:.1} ms",
            similar.len(),
            start.elapsed().as_secs_f64() * 1e3
        );
    }
    store.close().await?;
    Ok(())
}

/// A vector as long as those of all-MiniLM-L6-v2.
fn embedding(number: usize) -> Embedding {
    let vector = (0..384).map(|at| ((number * 31 + at * 17) % 64) as f32 / 64.0).collect();
    Embedding { model: "minilm".to_owned(), vector }
}

/// CPU time of this process so far, all threads, user and system.
fn cpu_micros() -> Result<f64, Box<dyn Error>> {
    const MICROS_PER_TICK: f64 = 10_000.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').ok_or("no name of the program")?;
    let ticks: Result<Vec<f64>, _> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect();
    Ok(ticks?.iter().sum::<f64>() * MICROS_PER_TICK)
}

/// An ordinary exchange of about 3 kB with ids as the gateway makes them: in a session of its own, judged, not coached.
fn entry() -> Entry {
    let id = id::new_request_id();
    let mut record = common::released(&id, "acme", &id::new_session_id(), 0, "");
    record.response_id = Some(id::response_id(&id, "00112233445566778899aabbccddeeff"));
    record.started_at = jiff::Timestamp::now();
    record.user_request = "how do I open the door of my house ".repeat(12);
    record.prompt_verdict = Some(common::safe());
    record.choices[0].draft.text = "here is what a locksmith would do first ".repeat(25);
    record.choices[0].final_text = record.choices[0].draft.text.clone();
    record.choices[0].omit_repeated();
    common::exchange(record)
}

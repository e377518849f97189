//! Appends records to the store in a folder and prints each id once its append has returned. The kill
//! test starts it and kills it at a random point; it never closes the store.
//!
//! Usage: `journal_writer FOLDER PREFIX COUNT [POSTGRES_URL]`. In the environment, `JOURNAL_SYNC=power` makes
//! each append wait for the disk, `JOURNAL_SEGMENT` sets the bytes of a segment, and `JOURNAL_DRAIN` makes it wait
//! until the database has everything.
#![expect(clippy::print_stdout, reason = "the ids are what the kill test reads")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::error::Error;
use std::time::Duration;

use waltz_store::{Database, Settings, Store, Sync};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, prefix, count, url @ ..] = arguments.as_slice() else {
        return Err("usage: journal_writer FOLDER PREFIX COUNT [POSTGRES_URL]".into());
    };
    let database = match url.first() {
        Some(url) => Database::postgres(url.as_str().into())?,
        None => Database::Sqlite,
    };
    let sync = match std::env::var("JOURNAL_SYNC").as_deref() {
        Ok("power") => Sync::Power,
        _ => Sync::Process,
    };
    let segment_bytes = match std::env::var("JOURNAL_SEGMENT") {
        Ok(bytes) => bytes.parse()?,
        Err(_) => 256 << 10,
    };
    let settings = Settings { database, sync, segment_bytes, drain_batch: 32, ..Settings::at(folder) };
    let store = Store::open(settings).await?;
    for number in 0..count.parse::<u32>()? {
        let id = format!("{prefix}-{number:06}");
        let record = common::coached(&id, "acme", prefix, i64::from(number), "open my door");
        match store.append(&common::exchange(record)) {
            Ok(()) => println!("{id}"),
            Err(error) => println!("refused {error}"),
        }
        // The drain runs on this runtime too; a gateway yields at every frame it sends.
        tokio::task::yield_now().await;
    }
    if std::env::var_os("JOURNAL_DRAIN").is_some() {
        tokio::time::timeout(Duration::from_secs(20), store.drained()).await??;
    }
    // A crash, not an end: the store is never closed.
    std::process::exit(0)
}

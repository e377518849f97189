//! What only the inside of the store can be made to do.

use std::time::{Duration, Instant};

use secrecy::SecretString;
use waltz_exchange::release::Pause;

use super::*;
use crate::rollout::RolloutChange;
use crate::sql::Statement;
use crate::{Database, Settings};

#[expect(dead_code, reason = "this test stops no server")]
#[path = "../../tests/store/server.rs"]
mod server;

/// A gateway that stands still in the middle of a change, as a process does that is stopped, loses its locks: the kill
/// switch of another is turned within seconds.
#[test]
fn a_gateway_that_stands_still_keeps_no_one_from_pausing() {
    let server = server::Server::start(false).unwrap();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let settings = |folder: &tempfile::TempDir| {
        let database = Database::Postgres { url: SecretString::from(server.url("postgres")) };
        Settings { database, ..Settings::at(folder.path()) }
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (still, other) = (settings(&folders[0]), settings(&folders[1]));
    let (holds, held) = std::sync::mpsc::channel();
    let (done, end) = std::sync::mpsc::channel::<()>();
    let stopped = std::thread::spawn(move || {
        runtime().block_on(async {
            let store = Store::open(still).await.unwrap();
            let stuck = store.with_pen(async |transaction| {
                transaction
                    .execute(Statement::both("UPDATE rollout_state SET version = version + 1"), &[])
                    .await?;
                holds.send(()).unwrap();
                // Nothing of this gateway goes on, its time-outs neither.
                end.recv().unwrap();
                Ok(true)
            });
            assert!(stuck.await.is_err(), "what it began is undone");
            store.close().await.unwrap();
        });
    });
    held.recv().unwrap();
    runtime().block_on(async {
        let store = Store::open(other).await.unwrap();
        let pause = Pause { by: "ann".to_owned(), at: jiff::Timestamp::UNIX_EPOCH, reason: None };
        let change = RolloutChange { pause: Some(Some(pause)), ..RolloutChange::default() };
        let began = Instant::now();
        assert!(store.change_rollout(&change).await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        assert!(store.rollout_state().await.unwrap().paused.is_some());
        store.close().await.unwrap();
    });
    done.send(()).unwrap();
    stopped.join().unwrap();
}

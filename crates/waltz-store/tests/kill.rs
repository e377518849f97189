//! Kills a process that appends, at random points, and checks that every entry it acknowledged is
//! stored exactly once. `WALTZ_KILL_ITERATIONS` sets how often; 20 by default.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use waltz_store::{Settings, Store};

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn writer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/journal_writer");
    assert!(path.exists(), "build the example first: cargo build -p waltz-store --example journal_writer");
    path
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The ids that a child acknowledged, and how many appends it was refused. `enough` says when to kill.
fn acknowledged(mut child: Child, enough: usize) -> (BTreeSet<String>, usize) {
    let mut ids = BTreeSet::new();
    let mut refused = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while ids.len() < enough
        && let Some(line) = lines.next()
    {
        let line = line.unwrap();
        if line.starts_with("refused") {
            refused += 1;
        } else {
            assert!(ids.insert(line));
        }
    }
    let _ = child.kill();
    // What was printed before the kill was acknowledged too. The last line may be cut short.
    ids.extend(lines.map(Result::unwrap).filter(|line| line.len() == 15 && line.starts_with("run")));
    child.wait().unwrap();
    (ids, refused)
}

/// Opens the store as a restarted process would, and returns all ids after a check that everything
/// that hangs on an exchange is there exactly once.
async fn recovered(folder: &Path) -> BTreeSet<String> {
    let store = Store::open(Settings::at(folder)).await.unwrap();
    store.drained().await.unwrap();
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
    let options = SqliteConnectOptions::new().filename(folder.join("waltz.db"));
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM exchanges").fetch_all(&pool).await.unwrap();
    for (sql, each) in [
        ("SELECT COALESCE(SUM(exchanges), 0) FROM coaching_sessions", 1),
        ("SELECT COUNT(*) FROM safety_evaluations", 4),
        ("SELECT COUNT(*) FROM trajectories", 2),
        ("SELECT COUNT(*) FROM coaching_text", 1),
    ] {
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
        assert_eq!(count, each * ids.len() as i64, "{sql}");
    }
    pool.close().await;
    ids.into_iter().collect()
}

#[tokio::test]
async fn fault_f54_kill_9_anywhere_loses_nothing_acknowledged() {
    let iterations = match std::env::var("WALTZ_KILL_ITERATIONS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("WALTZ_KILL_ITERATIONS must be a number")),
        Err(_) => 20,
    };
    let mut folder = tempfile::tempdir().unwrap();
    let mut expected = BTreeSet::new();
    let mut total = 0;
    for iteration in 0..iterations {
        // A new folder now and then, so that the first start is killed too.
        if iteration % 8 == 7 {
            folder = tempfile::tempdir().unwrap();
            expected.clear();
        }
        let mut command = Command::new(writer());
        command.arg(folder.path()).arg(format!("run{iteration:05}")).arg("100000");
        let enough = if iteration % 8 == 7 { 0 } else { random() % 600 };
        let (ids, _) = acknowledged(spawn(command), usize::try_from(enough).unwrap());
        total += ids.len();
        expected.extend(ids);
        let found = recovered(folder.path()).await;
        let missing: Vec<_> = expected.difference(&found).collect();
        assert!(
            missing.is_empty(),
            "iteration {iteration}: {} of {} lost: {missing:?}",
            missing.len(),
            expected.len()
        );
    }
    assert!(total > 0, "nothing was ever acknowledged");
}

/// A limit on the size of files makes writes fail half-way, in the journal and in the database alike.
#[tokio::test]
async fn fault_f55_writes_that_fail_half_way_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = BTreeSet::new();
    let mut refusals = 0;
    for (iteration, blocks) in [150, 200, 300, 500].into_iter().enumerate() {
        let mut command = Command::new("bash");
        // An ignored signal stays ignored in the program, which then gets the error instead.
        command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"")).arg("bash");
        command.arg(writer()).arg(folder.path()).arg(format!("run{iteration:05}")).arg("2000");
        let (ids, refused) = acknowledged(spawn(command), usize::MAX);
        refusals += refused;
        expected.extend(ids);
        let found = recovered(folder.path()).await;
        assert!(expected.is_subset(&found), "limit of {blocks} kB");
    }
    assert!(refusals > 0, "no write was ever refused");
    assert!(!expected.is_empty());
}

//! Kills a process that appends, at random points, and checks that every entry it acknowledged is
//! stored exactly once. `WALTZ_KILL_ITERATIONS` sets how often; 20 by default.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::home::{Home, Kind};
use crate::on_both;

on_both!(a_kill_at_any_moment_loses_nothing_acknowledged, a_limit_on_file_sizes_loses_nothing_acknowledged,);

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The program that appends.
pub(crate) fn writer() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("examples/journal_writer");
    assert!(path.exists(), "build the example first: cargo build -p waltz-store --example journal_writer");
    path
}

pub(crate) fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The ids that a child acknowledged, and how many appends it was refused. `enough` says when to kill.
pub(crate) fn acknowledged(mut child: Child, enough: usize) -> (BTreeSet<String>, usize) {
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

/// Opens the store as a restarted process would, and returns all ids.
pub(crate) async fn recovered(home: &Home) -> BTreeSet<String> {
    let store = home.open().await;
    store.drained().await.unwrap();
    assert!(store.health().is_good(), "{:?}", store.health());
    store.close().await.unwrap();
    home.stored().await
}

mod cases {
    use super::*;

    pub(super) async fn a_kill_at_any_moment_loses_nothing_acknowledged(kind: Kind) {
        let iterations = match std::env::var("WALTZ_KILL_ITERATIONS") {
            Ok(text) => text.parse().unwrap_or_else(|_| panic!("WALTZ_KILL_ITERATIONS must be a number")),
            Err(_) => 20,
        };
        let mut home = Home::new(kind).await;
        let mut expected = BTreeSet::new();
        let mut total = 0;
        for iteration in 0..iterations {
            // A new folder now and then, so that the first start is killed too.
            if iteration % 8 == 7 {
                home = Home::new(kind).await;
                expected.clear();
            }
            let mut command = Command::new(writer());
            command.args([home.path()]).arg(format!("run{iteration:05}")).arg("100000").args(&home.url);
            let enough = if iteration % 8 == 7 { 0 } else { random() % 600 };
            let (ids, _) = acknowledged(spawn(command), usize::try_from(enough).unwrap());
            total += ids.len();
            expected.extend(ids);
            let found = recovered(&home).await;
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
    pub(super) async fn a_limit_on_file_sizes_loses_nothing_acknowledged(kind: Kind) {
        let home = Home::new(kind).await;
        let mut expected = BTreeSet::new();
        let mut refusals = 0;
        for (iteration, blocks) in [150, 200, 300, 500].into_iter().enumerate() {
            let mut command = Command::new("bash");
            // An ignored signal stays ignored in the program, which then gets the error instead.
            command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"")).arg("bash");
            command
                .arg(writer())
                .arg(home.path())
                .arg(format!("run{iteration:05}"))
                .arg("2000")
                .args(&home.url);
            let (ids, refused) = acknowledged(spawn(command), usize::MAX);
            refusals += refused;
            expected.extend(ids);
            let found = recovered(&home).await;
            assert!(expected.is_subset(&found), "limit of {blocks} kB");
        }
        assert!(refusals > 0, "no write was ever refused");
        assert!(!expected.is_empty());
    }
}

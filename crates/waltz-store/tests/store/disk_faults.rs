//! A disk that fails at every call in turn, under a process that appends.

use std::collections::BTreeSet;
use std::process::Command;

use crate::disk::{ENOSPC, Fault};
use crate::home::{Home, Kind};
use crate::kill::{acknowledged, recovered, spawn, writer};
use crate::on_both;

/// An error of the device.
const EIO: &str = "5";
/// A write that takes only half of the bytes.
const SHORT: &str = "0";

/// What the names of the database's files have in common.
const DATABASE: &str = "waltz.db";

/// What each process tries to append.
const APPENDS: usize = 8;

on_both!(fault_F55_nth_write_fails);

/// What came of one process on a failing disk.
struct Run {
    /// The fault was reached.
    hit: bool,
    acknowledged: BTreeSet<String>,
    refused: usize,
}

/// Appends on a disk that fails once, and checks that the next start finds everything acknowledged.
async fn run(home: &Home, number: usize, fault: Fault<'_>, expected: &mut BTreeSet<String>) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let hit = folder.path().join("hit");
    let mut command = Command::new(writer());
    command.arg(home.path()).arg(format!("run{number:05}")).arg(APPENDS.to_string()).args(&home.url);
    // Segments of two or three entries, so that new ones are begun under faults too.
    command.env("JOURNAL_SEGMENT", "10000").env("JOURNAL_SYNC", "power");
    if fault.path == DATABASE {
        // The database is written some time after the appends.
        command.env("JOURNAL_DRAIN", "1");
    }
    command.envs(Fault { hit: Some(&hit), ..fault }.environment());
    let (acknowledged, refused) = acknowledged(spawn(command), usize::MAX);
    expected.extend(acknowledged.iter().cloned());
    let found = recovered(home).await;
    let missing: Vec<_> = expected.difference(&found).collect();
    assert!(missing.is_empty(), "{fault:?}: lost {missing:?}");
    Run { hit: hit.exists(), acknowledged, refused }
}

mod cases {
    use super::*;

    pub(super) async fn fault_F55_nth_write_fails(kind: Kind) {
        let home = Home::new(kind).await;
        let mut expected = BTreeSet::new();
        let mut runs = 0;
        // Every call on the journal, until the process needs no more of them.
        for (call, error) in [("write", ENOSPC), ("write", EIO), ("write", SHORT), ("sync", EIO)] {
            let mut refusals = 0;
            for nth in 1.. {
                let fault = Fault { call, error, nth, path: "/journal", ..Fault::default() };
                let run = run(&home, runs, fault, &mut expected).await;
                runs += 1;
                let tried = run.acknowledged.len() + run.refused;
                // Either the start was refused, or the one append that met the fault: those before and after
                // it went well.
                assert!(tried == 0 || tried == APPENDS, "{fault:?}: {tried} appends");
                assert!(run.refused <= 1, "{fault:?}: {} appends were refused", run.refused);
                refusals += run.refused;
                if !run.hit {
                    assert!(nth > APPENDS, "only {nth} calls were met");
                    assert_eq!(run.acknowledged.len(), APPENDS);
                    break;
                }
            }
            // A short write is only continued. A sync that failed is told; none is tried again in silence.
            let least = if error == SHORT { 0 } else { APPENDS };
            assert!(refusals >= least, "{call} {error}: {refusals} refusals");
        }
        if kind == Kind::Postgres {
            return;
        }
        for (call, error) in
            [("write", ENOSPC), ("write", EIO), ("write", SHORT), ("sync", EIO), ("cut", EIO)]
        {
            let mut hits = 0;
            for nth in [1, 2, 3, 5, 8, 13, 21, 34, 55] {
                let fault = Fault { call, error, nth, path: DATABASE, ..Fault::default() };
                let run = run(&home, runs, fault, &mut expected).await;
                runs += 1;
                hits += usize::from(run.hit);
                // The database is behind for a while; the journal takes every append, unless the start failed.
                let tried = run.acknowledged.len() + run.refused;
                assert!(run.refused == 0 && (tried == 0 || tried == APPENDS), "{fault:?}");
            }
            assert!(hits > 0 || call == "cut", "{call} {error} was never met");
        }
    }
}

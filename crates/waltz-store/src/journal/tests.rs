//! The journal alone, without a database.

use std::fs;

use proptest::prelude::*;

use super::segment::HEADER;
use super::*;
use crate::frame::FRAME_HEADER_BYTES;

fn entry(id: &str) -> Entry {
    let outcome = waltz_exchange::Outcome {
        response_id: format!("resp-{id}"),
        success: Some(true),
        rating: None,
        comment: None,
        candidates: Vec::new(),
        error_class: None,
        duration_ms: None,
    };
    Entry::Outcome {
        outcome,
        tenant: "acme".to_owned(),
        received_at: jiff::Timestamp::UNIX_EPOCH,
        id: id.to_owned(),
        lesson: None,
    }
}

fn settings(folder: &Path) -> Settings {
    // Nothing in memory: what is in the files has to be read.
    Settings { recent_bytes: 0, ..Settings::at(folder) }
}

fn ids(batch: &Batch) -> Vec<String> {
    let id = |payload: &Payload| match serde_json::from_slice(&payload.bytes).unwrap() {
        Entry::Outcome { id, .. } => id,
        Entry::Lesson(lesson) => lesson.exchange_id.clone(),
        Entry::Exchange(record) => record.id.clone(),
    };
    batch.payloads.iter().map(id).collect()
}

fn read_all(journal: &Journal, from: Position) -> (Vec<String>, u64) {
    let mut all = Vec::new();
    let mut unreadable = 0;
    let mut position = from;
    loop {
        let batch = journal.read(position, 100).unwrap();
        if batch.next == position {
            return (all, unreadable);
        }
        all.extend(ids(&batch));
        unreadable += batch.unreadable;
        position = batch.next;
    }
}

/// Writes three entries and returns the segment's file, its bytes and where the third frame begins.
fn three_entries(folder: &Path) -> (PathBuf, Vec<u8>, usize) {
    let journal = Journal::open(&settings(folder), Position::default()).unwrap();
    journal.append(&entry("a")).unwrap();
    journal.append(&entry("b")).unwrap();
    let third = usize::try_from(journal.end().offset).unwrap();
    journal.append(&entry("c")).unwrap();
    let path = segment::path(&journal.folder, journal.end().segment);
    let bytes = fs::read(&path).unwrap();
    (path, bytes, third)
}

#[test]
fn a_tail_torn_at_any_byte_loses_only_the_unfinished_entry() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, third) = three_entries(folder.path());
    for cut in third..=bytes.len() {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &bytes[..cut]).unwrap();
        let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
        let (found, unreadable) = read_all(&journal, Position::default());
        let expected: &[&str] = if cut == bytes.len() { &["a", "b", "c"] } else { &["a", "b"] };
        assert_eq!(found, expected, "cut at {cut}");
        assert_eq!((unreadable, journal.damaged().len()), (0, 0), "a torn tail is no damage");
        let torn = if cut == bytes.len() { 0 } else { cut - third };
        assert_eq!(journal.torn_bytes(), torn as u64);
    }
}

#[test]
fn a_tail_of_zeros_or_with_a_bad_checksum_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, third) = three_entries(folder.path());
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let mut zeros = bytes[..third].to_vec();
    zeros.resize(third + 4096, 0);
    for tail in [flipped, zeros] {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, tail).unwrap();
        let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
        assert_eq!(read_all(&journal, Position::default()).0, ["a", "b"]);
        assert_eq!(fs::metadata(&path).unwrap().len(), third as u64);
    }
}

#[test]
fn a_byte_flipped_anywhere_in_the_middle_is_reported_and_nothing_else_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, third) = three_entries(folder.path());
    let second = {
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        8 + FRAME_HEADER_BYTES + length
    };
    for position in second..third {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x5a;
        fs::write(&path, &damaged).unwrap();
        let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
        assert_eq!(journal.torn_bytes(), 0);
        let (found, unreadable) = read_all(&journal, Position::default());
        assert_eq!(found, ["a", "c"], "flip at {position}");
        assert_eq!(unreadable, (third - second) as u64);
        assert_eq!(journal.damaged(), ["0000000000000001.damaged"]);
        journal.release(journal.end(), 0, 0).unwrap();
        let kept = fs::read(path.with_extension("damaged")).unwrap();
        assert_eq!(kept, damaged, "the damaged segment is kept as it was");
    }
}

#[test]
fn damage_that_was_found_is_still_known_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut bytes, third) = three_entries(folder.path());
    bytes[third - 1] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    journal.read(Position::default(), 1).unwrap();
    let stopped = journal.read(Position::default(), 100).unwrap().next;
    drop(journal);
    let again = Journal::open(&settings(folder.path()), stopped).unwrap();
    assert_eq!(again.damaged(), ["0000000000000001.damaged"]);
    assert_eq!(read_all(&again, stopped).0, ["c"], "reading goes on in the file that was set aside");
}

#[test]
fn a_failed_write_leaves_no_half_frame() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    let mut expected = Vec::new();
    for kept in 0..120 {
        let id = format!("entry-{kept}");
        journal.writer().fault = Some(kept);
        let error = journal.append(&entry("lost")).unwrap_err();
        assert!(error.to_string().starts_with("cannot append to journal segment"), "{error}");
        journal.append(&entry(&id)).unwrap();
        expected.push(id);
    }
    assert_eq!(read_all(&journal, Position::default()), (expected.clone(), 0));
    drop(journal);
    let again = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    assert_eq!(read_all(&again, Position::default()), (expected, 0));
    assert_eq!(again.torn_bytes(), 0);
}

#[test]
fn a_half_frame_that_cannot_be_cut_at_once_is_cut_before_the_next_append() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    journal.append(&entry("a")).unwrap();
    let path = segment::path(&journal.folder, journal.end().segment);
    let good = Arc::clone(&journal.writer().file);
    // A handle for reading refuses both the write and the cut.
    journal.writer().file = Arc::new(File::open(&path).unwrap());
    assert!(journal.append(&entry("lost")).is_err());
    assert!(journal.writer().half_frame);
    assert!(journal.append(&entry("lost")).is_err(), "no append before the file is in order");
    (&*good).write_all(b"half a fra").unwrap();
    journal.writer().file = good;
    journal.append(&entry("b")).unwrap();
    assert_eq!(read_all(&journal, Position::default()), (vec!["a".to_owned(), "b".to_owned()], 0));
}

#[test]
fn a_probe_says_whether_an_append_would_be_taken_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for sync in [Sync::Process, Sync::Power] {
        let data_dir = folder.path().join(format!("{sync:?}"));
        let options = Settings { sync, ..settings(&data_dir) };
        let journal = Journal::open(&options, Position::default()).unwrap();
        journal.append(&entry("a")).unwrap();
        let path = segment::path(&journal.folder, journal.end().segment);
        let is_clean = || {
            assert_eq!(fs::metadata(&path).unwrap().len(), journal.end().offset);
            assert!(!journal.writer().half_frame);
        };
        for kept in [0, 1, 9, 4096] {
            journal.writer().fault = Some(kept);
            let error = journal.probe().unwrap_err();
            assert!(error.to_string().starts_with("cannot append to journal segment"), "{error}");
            is_clean();
        }
        journal.probe().unwrap();
        is_clean();
        journal.append(&entry("b")).unwrap();
        assert_eq!(read_all(&journal, Position::default()), (vec!["a".to_owned(), "b".to_owned()], 0));
        journal.close();
        assert!(matches!(journal.probe(), Err(Error::Closed)));
    }
}

#[test]
fn a_probe_needs_as_much_room_as_what_was_refused() {
    let folder = tempfile::tempdir().unwrap();
    let limited = Settings { max_journal_bytes: 40_000, ..settings(folder.path()) };
    let journal = Journal::open(&limited, Position::default()).unwrap();
    journal.append(&entry(&"a".repeat(4_000))).unwrap();
    journal.probe().unwrap();
    assert!(journal.append(&entry(&"b".repeat(18_000))).is_err());
    assert!(matches!(journal.probe(), Err(Error::JournalFull { .. })));
    let batch = journal.read(Position::default(), 100).unwrap();
    journal.release(batch.next, batch.bytes, 1).unwrap();
    journal.probe().unwrap();
    // What never fits says nothing of a journal that is empty.
    assert!(journal.append(&entry(&"c".repeat(30_000))).is_err());
    journal.probe().unwrap();
}

#[test]
fn a_crash_in_a_probe_leaves_a_torn_tail() {
    let folder = tempfile::tempdir().unwrap();
    let (path, bytes, _) = three_entries(folder.path());
    for length in [1, 3, 4, 7, 8, 9, 100, 4096, 1 << 20] {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut left = bytes.clone();
        left.resize(bytes.len() + length, super::probe::PROBE);
        fs::write(&path, left).unwrap();
        let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
        assert_eq!(journal.torn_bytes(), length as u64);
        assert_eq!(read_all(&journal, Position::default()).0, ["a", "b", "c"]);
        assert_eq!((fs::read(&path).unwrap(), journal.damaged().len()), (bytes.clone(), 0));
    }
}

#[test]
fn bytes_whose_sync_was_refused_are_never_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let options = Settings { sync: Sync::Power, ..settings(folder.path()) };
    let journal = Journal::open(&options, Position::default()).unwrap();
    journal.append(&entry("a")).unwrap();
    // A pipe takes bytes and cannot sync them.
    let (_reader, pipe) = std::io::pipe().unwrap();
    let pipe = Arc::new(File::from(std::os::fd::OwnedFd::from(pipe)));
    let good = std::mem::replace(&mut journal.writer().file, pipe);
    let error = journal.append(&entry("lost")).unwrap_err();
    assert!(error.to_string().starts_with("cannot sync journal segment"), "{error}");
    // Whoever waits for the same bytes is refused too, although the disk would say yes now.
    let end = journal.end();
    assert!(journal.confirm(&good, end).is_err());
    assert!(good.sync_data().is_ok());
}

#[test]
fn segments_rotate_and_are_deleted_when_drained() {
    let folder = tempfile::tempdir().unwrap();
    let journal =
        Journal::open(&Settings { segment_bytes: 400, ..settings(folder.path()) }, Position::default())
            .unwrap();
    let expected: Vec<String> = (0..20).map(|number| format!("entry-{number}")).collect();
    for id in &expected {
        journal.append(&entry(id)).unwrap();
    }
    let files = || segment::list(&journal.folder).unwrap().len();
    assert!(files() > 5, "{}", files());
    let mut position = Position::default();
    let mut found = Vec::new();
    while found.len() < expected.len() {
        let batch = journal.read(position, 3).unwrap();
        found.extend(ids(&batch));
        position = batch.next;
        journal.release(position, batch.bytes, batch.payloads.len() as u64).unwrap();
        assert!(
            segment::list(&journal.folder).unwrap().iter().all(|segment| segment.number >= position.segment)
        );
    }
    assert_eq!(found, expected);
    assert_eq!((files(), journal.undrained_bytes()), (1, 0));
}

#[test]
fn a_full_journal_refuses_and_takes_entries_again_when_drained() {
    let folder = tempfile::tempdir().unwrap();
    let limited = Settings { max_journal_bytes: 500, ..settings(folder.path()) };
    let journal = Journal::open(&limited, Position::default()).unwrap();
    let mut accepted = 0;
    let error = loop {
        match journal.append(&entry("a")) {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::JournalFull { limit: 500, .. }), "{error}");
    let batch = journal.read(Position::default(), 100).unwrap();
    assert_eq!(batch.payloads.len(), accepted);
    journal.release(batch.next, batch.bytes, 1).unwrap();
    journal.append(&entry("b")).unwrap();
}

#[test]
fn a_start_never_appends_where_the_database_has_been_already() {
    let folder = tempfile::tempdir().unwrap();
    let ahead = Position { segment: 7, offset: 9999 };
    let journal = Journal::open(&settings(folder.path()), ahead).unwrap();
    journal.append(&entry("new")).unwrap();
    assert!(journal.end() > ahead);
    assert_eq!(read_all(&journal, ahead).0, ["new"]);
}

#[test]
fn a_segment_of_a_newer_format_is_refused_and_an_unfinished_one_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let journal_folder = super::folder(folder.path());
    fs::create_dir_all(&journal_folder).unwrap();
    fs::write(segment::path(&journal_folder, 3), b"WAL").unwrap();
    let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    assert_eq!(read_all(&journal, Position::default()), (Vec::new(), 0));
    fs::write(segment::path(&journal_folder, 2), b"WALTZJ9\nwho knows").unwrap();
    let error = Journal::open(&settings(folder.path()), Position::default()).err().unwrap();
    assert!(matches!(error, Error::UnknownSegment { .. }), "{error}");
}

#[test]
fn appends_from_many_threads_are_whole_and_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    for sync in [Sync::Process, Sync::Power] {
        let data_dir = folder.path().join(format!("{sync:?}"));
        let options = Settings { sync, segment_bytes: 4096, ..settings(&data_dir) };
        let journal = Journal::open(&options, Position::default()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let journal = &journal;
                scope.spawn(move || {
                    for number in 0..50 {
                        journal.append(&entry(&format!("{thread}-{number:02}"))).unwrap();
                    }
                });
            }
        });
        let (mut found, unreadable) = read_all(&journal, Position::default());
        let order: Vec<_> = found.iter().filter(|id| id.starts_with("2-")).cloned().collect();
        assert!(order.is_sorted(), "each thread's entries keep their order");
        found.sort();
        found.dedup();
        assert_eq!((found.len(), unreadable), (200, 0));
    }
}

#[test]
fn an_entry_larger_than_a_chunk_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&settings(folder.path()), Position::default()).unwrap();
    let large = "x".repeat(6 << 20);
    for id in ["small", &large, "last"] {
        journal.append(&entry(id)).unwrap();
    }
    let (found, unreadable) = read_all(&journal, Position::default());
    assert_eq!((found.len(), found[1].len(), unreadable), (3, large.len(), 0));
}

#[test]
fn what_was_just_appended_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(&Settings::at(folder.path()), Position::default()).unwrap();
    let start = journal.read(Position::default(), 100).unwrap().next;
    for id in ["a", "b", "c"] {
        journal.append(&entry(id)).unwrap();
    }
    fs::write(segment::path(&journal.folder, start.segment), HEADER).unwrap();
    let first = journal.read(start, 2).unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    let rest = journal.read(first.next, 2).unwrap();
    assert_eq!((ids(&rest), rest.next), (vec!["c".to_owned()], journal.end()));
    assert!(journal.read(start, 2).is_err(), "what was taken is only in the file");
}

/// One thing that happens to a journal.
#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// The drain stores at most so many.
    Drain(usize),
    /// The drain reads as many and the database refuses them.
    Fail(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0_usize..400).prop_map(Step::Append),
        3 => (1_usize..6).prop_map(Step::Drain),
        2 => (1_usize..6).prop_map(Step::Fail),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

/// The bytes of a frame as they are in the file.
fn in_file(journal: &Journal, position: Position) -> Bytes {
    let bytes = fs::read(segment::path(&journal.folder, position.segment)).unwrap();
    match frame::read(&bytes[usize::try_from(position.offset).unwrap()..]) {
        frame::Frame::Sound(payload) => Bytes::copy_from_slice(payload),
        other => panic!("{other:?} at {position:?}"),
    }
}

proptest! {
    #[test]
    fn memory_and_files_together_are_the_journal(room in 0_usize..6000, steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { recent_bytes: room, segment_bytes: 1000, ..settings(folder.path()) };
        let mut journal = Journal::open(&settings, Position::default()).unwrap();
        let (mut appended, mut stored) = (Vec::new(), Vec::new());
        let mut drained = Position::default();
        // In the end everything is drained.
        let last = std::iter::repeat_n(Step::Drain(7), 60);
        for step in steps.into_iter().chain(last) {
            match step {
                Step::Append(length) => {
                    let id = format!("{}-{}", appended.len(), "x".repeat(length));
                    journal.append(&entry(&id)).unwrap();
                    appended.push(id);
                }
                Step::Drain(limit) => {
                    let batch = journal.read(drained, limit).unwrap();
                    for payload in &batch.payloads {
                        prop_assert_eq!(&in_file(&journal, payload.position), &payload.bytes);
                    }
                    stored.extend(ids(&batch));
                    journal.release(batch.next, batch.bytes, batch.payloads.len() as u64).unwrap();
                    drained = batch.next;
                }
                Step::Fail(limit) => drop(journal.read(drained, limit).unwrap()),
                Step::Restart => {
                    drop(journal);
                    journal = Journal::open(&settings, drained).unwrap();
                }
            }
        }
        prop_assert_eq!(stored, appended);
        prop_assert_eq!(journal.undrained_bytes(), 0);
        prop_assert_eq!(segment::list(&journal.folder).unwrap().len(), 1);
    }
}

//! The training as a whole, on a small world of its own: it learns, it repeats itself to the last bit, and
//! it keeps rows apart that must not mix.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world fails")]

use std::path::Path;

use waltz_screen::linear::{LinearJudge, Weights};
use waltz_train::judge::{Half, Schedule, Settings, Sources, Trained, learn_from, measure_all, split};

const SOURCES: &str = r#"
seed = 7
[trust]
human = 1.0
[licences]
allowed = ["MIT"]
[[licences.refused]]
licence = "CC-BY-NC-4.0"
reason = "non-commercial"
[[category]]
name = "violence_harm"
words = ["violen"]
[[source]]
name = "teaching"
half = "a"
[[source]]
name = "closed"
half = "a"
[[source]]
name = "setting"
half = "validation"
[[source]]
name = "apart"
half = "b"
[[source]]
name = "wrapping"
half = "frames"
"#;

/// What a short training on the shared data sums up to.
const SHORT_TRAINING: u64 = 1_102_997_822_557_331_060;

/// Two kinds of rows that differ in their nouns; `first` makes the rows of each source their own.
fn write_world(folder: &Path, sources: &[(&str, &str, usize)]) {
    let bad = ["wolf", "storm", "thorn", "venom", "ember", "blade"];
    let good = ["meadow", "apple", "lantern", "ribbon", "harbour", "pillow"];
    for (name, licence, first) in sources {
        let mut lines = String::new();
        for number in *first..first + 60 {
            let harmful = number % 2 == 0;
            let words = if harmful { bad } else { good };
            let (one, other) = (words[number % 6], words[(number / 6) % 6]);
            let response =
                if harmful { "I'm sorry, but I can't help with that." } else { "Sure, here it is." };
            let row = serde_json::json!({
                "prompt": format!("question {number} about the {one} and the {other}"),
                "response": response,
                "prompt_label": if harmful { "harmful" } else { "benign" },
                "response_label": if number % 3 == 0 { "unsafe" } else { "safe" },
                "refusal": harmful, "category": "violence", "license": licence, "label_source": "human",
            });
            lines.push_str(&format!("{row}\n"));
        }
        std::fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
    }
}

fn world() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let sources = [("teaching", "MIT", 0), ("closed", "CC-BY-NC-4.0", 100), ("setting", "MIT", 200)];
    write_world(folder.path(), &sources);
    write_world(folder.path(), &[("apart", "CC-BY-NC-4.0", 300), ("wrapping", "MIT", 400)]);
    folder
}

fn trained(folder: &Path, seed: u64) -> Trained {
    let mut sources = Sources::parse(SOURCES).unwrap();
    sources.seed = seed;
    let schedule = Schedule { bits: 12, epochs: 4, goals: 20, ..Schedule::default() };
    let settings = Settings { data: folder, sources: &sources, half: Half::A, schedule };
    learn_from(&split(&settings).unwrap(), &settings, &mut |_, _| {}).unwrap()
}

#[test]
fn the_same_rows_and_seed_give_the_same_bytes() {
    let folder = world();
    let first = trained(folder.path(), 7).weights.to_bytes();
    assert_eq!(first, trained(folder.path(), 7).weights.to_bytes());
    assert_ne!(first, trained(folder.path(), 8).weights.to_bytes());
    // The file is what the judge reads.
    assert!(Weights::parse(first.into()).is_ok());
}

#[test]
fn it_learns_what_tells_the_kinds_apart_and_measures_on_what_it_never_saw() {
    let folder = world();
    let trained = trained(folder.path(), 7);
    let of = |source: &str, head: &str| {
        trained.measured.iter().find(|one| one.source == source && one.head == head).unwrap().measures
    };
    assert_eq!(of("apart", "prompt").auc, Some(1.0));
    assert_eq!(of("apart", "refusal").f1, Some(1.0));
    assert!(trained.measured.iter().all(|one| one.source != "teaching" && one.source != "closed"));
    let judge = LinearJudge::new(trained.weights);
    assert!(judge.read_prompt("a thorn and a wolf").harm > judge.read_prompt("a pillow and an apple").harm);
}

#[test]
fn rows_without_an_allowed_licence_teach_nothing_that_is_shipped() {
    let folder = world();
    let sources = Sources::parse(SOURCES).unwrap();
    let settings = |half| Settings {
        data: folder.path(),
        sources: &sources,
        half,
        schedule: Schedule { goals: 1, ..Schedule::default() },
    };
    let shipped = split(&settings(Half::A)).unwrap();
    assert!(shipped.taught.iter().all(|row| row.allowed && row.source != "closed"));
    assert!(shipped.validation.iter().all(|row| row.allowed));
    assert!(shipped.taught.iter().any(|row| row.source == "teaching"));
    let other = split(&settings(Half::B)).unwrap();
    assert!(other.taught.iter().any(|row| row.source == "apart"));
    assert!(other.taught.iter().all(|row| row.source != "teaching"));
}

#[test]
fn a_source_that_is_held_back_is_measured_and_teaches_nothing() {
    let folder = world();
    let sources = Sources::parse(SOURCES).unwrap().without(&["teaching".to_owned()]).unwrap();
    let schedule = Schedule { goals: 1, ..Schedule::default() };
    let settings = Settings { data: folder.path(), sources: &sources, half: Half::A, schedule };
    let parts = split(&settings).unwrap();
    assert!(parts.taught.iter().all(|row| row.source != "teaching"));
    assert_eq!(parts.held.iter().filter(|row| row.source == "teaching").count(), 60);
    assert!(Sources::parse(SOURCES).unwrap().without(&["unknown".to_owned()]).is_err());
}

#[test]
fn what_nobody_decided_is_an_error() {
    let folder = world();
    for (from, to, named) in [
        ("allowed = [\"MIT\"]", "allowed = []", "MIT"),
        ("human = 1.0", "llm = 1.0", "human"),
        ("name = \"violence_harm\"", "name = \"rudeness\"", "rudeness"),
        ("reason = \"non-commercial\"", "reason = \"\"", "CC-BY-NC-4.0"),
        ("name = \"closed\"", "name = \"teaching\"", "twice"),
    ] {
        let text = SOURCES.replace(from, to);
        let outcome = Sources::parse(&text).and_then(|sources| {
            let schedule = Schedule { goals: 1, ..Schedule::default() };
            split(&Settings { data: folder.path(), sources: &sources, half: Half::A, schedule }).map(|_| ())
        });
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
}

/// A short training on the shared data, where that is at hand, gives these bytes on every machine. A change of
/// the rows, of the normaliser, of words or of a pattern family changes them, and then the committed weights
/// are to be trained anew.
#[test]
fn a_short_training_gives_the_same_bytes_on_every_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = root.join("../shared/data");
    if !data.exists() {
        return;
    }
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    let schedule = Schedule { bits: 10, epochs: 1, goals: 200, ..Schedule::default() };
    let settings = Settings { data: &data, sources: &sources, half: Half::A, schedule };
    let trained = learn_from(&split(&settings).unwrap(), &settings, &mut |_, _| {}).unwrap();
    let bytes = trained.weights.to_bytes();
    let checksum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    assert_eq!(checksum, SHORT_TRAINING);
}

/// What the committed weights must find, and may wrongly find, where they are sure, on the rows of all sources that
/// they did not learn from: as much as a judge that was sure of repeated words and of code as well.
#[test]
fn being_unsure_of_what_says_nothing_costs_no_recall() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = root.join("../shared/data");
    if !data.exists() {
        return;
    }
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    let schedule = Schedule { goals: 1, ..Schedule::default() };
    let settings = Settings { data: &data, sources: &sources, half: Half::A, schedule };
    let measured = measure_all(&LinearJudge::builtin().unwrap(), &split(&settings).unwrap().held);
    for (head, least, most) in
        [("prompt", 0.034, 0.0015), ("response", 0.12, 0.0065), ("refusal", 0.89, 0.17)]
    {
        let of_head: Vec<_> =
            measured.iter().filter(|one| one.head == head).map(|one| one.measures).collect();
        let share = |shares: Vec<(usize, Option<f64>)>| {
            let rows: usize = shares.iter().map(|(rows, _)| rows).sum();
            let hits: f64 = shares.iter().map(|(rows, share)| *rows as f64 * share.unwrap_or(0.0)).sum();
            hits / rows as f64
        };
        let found = share(of_head.iter().map(|of| (of.positives, of.recall_sure)).collect());
        let wrong = share(of_head.iter().map(|of| (of.negatives, of.fpr_sure.map(|rate| rate.0))).collect());
        assert!(found >= least && wrong <= most, "{head}: {found} found, {wrong} wrong");
    }
}

/// The committed list is for the shared data where that is at hand: every file has a decision.
#[test]
fn the_committed_list_knows_every_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    let Ok(files) = std::fs::read_dir(root.join("../shared/data")) else { return };
    for file in files {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some((name, _)) = name.split_once(".jsonl") else { continue };
        // Clicks, without any text.
        let known = name == "aux_open_bandit" || sources.sources.iter().any(|source| source.name == name);
        assert!(known, "`{name}` is not in the list");
    }
}

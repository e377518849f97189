//! The training as a whole, on a small world of its own: it learns, it repeats itself to the last bit, and
//! it keeps rows apart that must not mix.
#![expect(clippy::unwrap_used, reason = "a test that cannot set up its world fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use waltz_screen::linear::{LinearJudge, Weights};
use waltz_train::judge::{Half, Schedule, Settings, Sources, Trained, learn_from, split};

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
name = "second"
half = "b"
[[source]]
name = "apart"
half = "table"
[[source]]
name = "wrapping"
half = "frames"
"#;

/// What a short training on the shared data sums up to.
const SHORT_TRAINING: u64 = 15_264_244_730_865_115_265;

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
    let others = [("apart", "CC-BY-NC-4.0", 300), ("wrapping", "MIT", 400), ("second", "MIT", 500)];
    write_world(folder.path(), &others);
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
    assert!(other.taught.iter().any(|row| row.source == "second"));
    assert!(other.taught.iter().all(|row| row.allowed && row.source != "teaching" && row.source != "apart"));
    // Neither judge learns from what tables are made of.
    for parts in [&shipped, &other] {
        assert!(parts.held.iter().all(|row| row.source == "apart") && !parts.held.is_empty());
    }
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
    let Some((root, data)) = shared_data() else { return };
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    let schedule = Schedule { bits: 10, epochs: 1, goals: 200, ..Schedule::default() };
    let settings = Settings { data: &data, sources: &sources, half: Half::A, schedule };
    let trained = learn_from(&split(&settings).unwrap(), &settings, &mut |_, _| {}).unwrap();
    let bytes = trained.weights.to_bytes();
    let checksum = bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    assert_eq!(checksum, SHORT_TRAINING);
}

/// The committed floors keep at most a twentieth of the harmful validation rows from the next level. The same weights
/// and rows gave them, so that another share means that one of them is stale.
#[test]
fn the_committed_floors_lose_no_more_than_they_may() {
    let Some((root, data)) = shared_data() else { return };
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    let schedule = Schedule { goals: 16_000, ..Schedule::default() };
    let settings = Settings { data: &data, sources: &sources, half: Half::A, schedule };
    let validation = split(&settings).unwrap().validation;
    let judge = LinearJudge::builtin().unwrap();
    let [floor, ..] = judge.weights().figures.floors;
    let mut by_source: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for row in validation.iter().filter(|row| row.harmful == Some(true)) {
        let (rows, lost) = by_source.entry(&row.source).or_default();
        *rows += 1;
        *lost += usize::from(judge.read_prompt(&row.prompt).harm < floor);
    }
    let shares: Vec<f64> = by_source.values().map(|(rows, lost)| *lost as f64 / *rows as f64).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!((0.03..=0.06).contains(&mean), "{mean}: {by_source:?}");
}

/// The repository and the shared data beside it. CI has them; elsewhere these tests have nothing to read.
fn shared_data() -> Option<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = root.join("../shared/data");
    assert!(data.exists() || std::env::var_os("CI").is_none(), "CI needs the shared data");
    data.exists().then_some((root, data))
}

/// The committed list is for the shared data where that is at hand: every file has a decision.
#[test]
fn the_committed_list_knows_every_source() {
    let Some((root, data)) = shared_data() else { return };
    let sources = Sources::read(&root.join("models/judge/sources.toml")).unwrap();
    for file in std::fs::read_dir(data).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some((name, _)) = name.split_once(".jsonl") else { continue };
        // Clicks, without any text.
        let known = name == "aux_open_bandit" || sources.sources.iter().any(|source| source.name == name);
        assert!(known, "`{name}` is not in the list");
    }
}

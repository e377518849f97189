//! Reads file, environment and command line into one raw configuration, and remembers where each value
//! came from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::raw::RawConfig;
use super::{Mistake, environment};
use crate::telemetry;

/// Where a configuration comes from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// `(key, value)` from the command line.
    pub arguments: Vec<(&'static str, Value)>,
    /// `(top-level key, value)` that holds where the file says nothing.
    pub fallbacks: Vec<(&'static str, Value)>,
}

/// A configuration as it was written, with what is wrong with it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What was written.
    pub raw: RawConfig,
    /// Key path to origin, for keys that are not defaults.
    pub origins: BTreeMap<String, String>,
    /// What is wrong, as far as reading shows it.
    pub mistakes: Vec<Mistake>,
    /// What works today and should be changed.
    pub warnings: Vec<String>,
}

/// Reads everything. Precedence: command line, environment, file, default; but `waltz.stage = 1` in the file is the kill
/// switch, and no variable outranks it.
pub fn load(sources: &Sources) -> Loaded {
    let mut mistakes = Vec::new();
    let mut origins = BTreeMap::new();
    let mut table = Table::new();
    if let Some(file) = &sources.file {
        match read_file(file) {
            Ok(read) => {
                table = read;
                note_origins("", &Value::Table(table.clone()), &file.display().to_string(), &mut origins);
            }
            Err(mistake) => mistakes.push(mistake),
        }
    }
    for (key, value) in &sources.fallbacks {
        table.entry(*key).or_insert_with(|| value.clone());
    }
    let environment = environment::read(&sources.environment);
    mistakes.extend(environment.mistakes);
    let mut warnings = environment.warnings;
    let killed = stage(&table) == Some(1);
    for (key, value, variable) in environment.values {
        if killed && key == STAGE && value != Value::Integer(1) {
            warnings.push(format!("{variable} is not heeded: the file says `waltz.stage = 1`"));
            continue;
        }
        set(&mut table, key, value);
        origins.insert(key.to_owned(), format!("environment {variable}"));
    }
    for (key, value) in &sources.arguments {
        set(&mut table, key, value.clone());
        origins.insert((*key).to_owned(), "command line".to_owned());
    }
    let raw = typed(table, &mut mistakes);
    warnings.extend(telemetry::read(&sources.environment).1);
    Loaded { raw, origins, mistakes, warnings }
}

/// The key of the kill switch.
const STAGE: &str = "waltz.stage";

/// What the file itself says of `waltz.stage`, whatever else is wrong with it.
pub fn stage_in_file(sources: &Sources) -> Option<i64> {
    stage(&read_file(sources.file.as_ref()?).ok()?)
}

fn stage(table: &Table) -> Option<i64> {
    table.get("waltz")?.get("stage")?.as_integer()
}

fn read_file(file: &Path) -> Result<Table, Mistake> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Mistake::new(&name, format!("cannot be read: {error}")))?;
    text.parse::<Table>()
        .map_err(|error| Mistake::new(&name, format!("is not valid TOML: {}", error.to_string().trim())))
}

/// Reads a table into the raw form. A value that does not fit is noted, taken out, and the rest is read
/// again, so that all mistakes are found at once.
fn typed(table: Table, mistakes: &mut Vec<Mistake>) -> RawConfig {
    let mut value = Value::Table(table);
    let mut taken: Vec<Vec<Step>> = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize::<_, RawConfig>(value.clone()) {
            Ok(raw) => return raw,
            Err(error) => error,
        };
        let path: Vec<Step> = error.path().iter().filter_map(step).collect();
        let message = error.inner().to_string().trim().replace('\n', " ");
        let written = as_written(&path, &taken);
        mistakes.push(Mistake::new(display(&written), message));
        if !remove(&mut value, &path) {
            return RawConfig::default();
        }
        taken.push(written);
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

fn step(segment: &serde_path_to_error::Segment) -> Option<Step> {
    match segment {
        serde_path_to_error::Segment::Map { key } => Some(Step::Key(key.clone())),
        serde_path_to_error::Segment::Seq { index } => Some(Step::Index(*index)),
        _ => None,
    }
}

/// The path as it stands in the file: items of lists that were taken out before it count again.
fn as_written(path: &[Step], taken: &[Vec<Step>]) -> Vec<Step> {
    let mut written = Vec::with_capacity(path.len());
    for step in path {
        let mut step = step.clone();
        if let Step::Index(index) = &mut step {
            let gap = |gone: &Vec<Step>| match gone.split_last() {
                Some((Step::Index(gap), list)) if list == written => Some(*gap),
                _ => None,
            };
            let mut gaps: Vec<usize> = taken.iter().filter_map(gap).collect();
            gaps.sort_unstable();
            gaps.into_iter().for_each(|gap| *index += usize::from(gap <= *index));
        }
        written.push(step);
    }
    written
}

fn display(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// Takes the value at a path out. `false` when there is none, which would make the search endless.
fn remove(value: &mut Value, path: &[Step]) -> bool {
    match (value, path) {
        (Value::Table(table), [Step::Key(key)]) => table.remove(key).is_some(),
        (Value::Array(items), [Step::Index(index)]) if *index < items.len() => {
            items.remove(*index);
            true
        }
        (Value::Table(table), [Step::Key(key), rest @ ..]) => {
            table.get_mut(key).is_some_and(|inner| remove(inner, rest))
        }
        (Value::Array(items), [Step::Index(index), rest @ ..]) => {
            items.get_mut(*index).is_some_and(|inner| remove(inner, rest))
        }
        _ => false,
    }
}

fn set(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

fn note_origins(path: &str, value: &Value, origin: &str, origins: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            for (key, inner) in table {
                let inner_path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                note_origins(&inner_path, inner, origin, origins);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_table) => {
            for (index, inner) in items.iter().enumerate() {
                note_origins(&format!("{path}[{index}]"), inner, origin, origins);
            }
        }
        _ => {
            origins.insert(path.to_owned(), origin.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        typed(text.parse().unwrap(), &mut mistakes);
        mistakes.into_iter().map(|mistake| (mistake.key, mistake.message)).collect()
    }

    #[test]
    fn all_mistakes_are_found_at_once_with_their_paths() {
        let found = mistakes(
            "[server]\nlisten = 3\nport = 1\n[policy]\ninput = \"maybe\"\n[[upstreams]]\nname = \"a\"\n[[upstreams]]\nurl = true\ncolour = \"red\"\n[wonder]\n",
        );
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        for key in [
            "server.listen",
            "server.port",
            "policy.input",
            "upstreams[1].url",
            "upstreams[1].colour",
            "wonder",
        ] {
            assert!(keys.contains(&key), "{key} not in {found:?}");
        }
        assert_eq!(found.len(), 6, "{found:?}");
        let allowed = &found.iter().find(|(key, _)| key == "policy.input").unwrap().1;
        assert!(allowed.contains("coach") && allowed.contains("block"), "{allowed}");
    }

    #[test]
    fn mistakes_in_a_list_bear_the_numbers_of_the_file() {
        let found = mistakes("[[upstreams]]\nmodels = [1, \"a\", 2, 3]\n");
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        let list = "upstreams[0].models";
        assert_eq!(keys, [format!("{list}[0]"), format!("{list}[2]"), format!("{list}[3]")], "{found:?}");
        let found = mistakes("upstreams = [1, 1, { url = 2 }]\n");
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["upstreams[0]", "upstreams[1]", "upstreams[2].url"], "{found:?}");
    }

    #[test]
    fn stage_1_in_the_file_outranks_the_environment_and_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("waltz.toml");
        let sources = Sources {
            file: Some(file.clone()),
            environment: vec![("WALTZRL_STAGE".into(), "2".into())],
            ..Sources::default()
        };
        for (text, stage, origin) in [
            ("[waltz]\nstage = 1\n", 1, "waltz.toml"),
            ("[waltz]\nstage = 2\n", 2, "environment WALTZRL_STAGE"),
            ("", 2, "environment WALTZRL_STAGE"),
        ] {
            std::fs::write(&file, text).unwrap();
            let loaded = load(&sources);
            assert_eq!(loaded.raw.waltz.stage, stage, "{text}");
            assert!(loaded.origins["waltz.stage"].ends_with(origin), "{text}: {:?}", loaded.origins);
            assert_eq!(loaded.warnings.iter().any(|said| said.contains("not heeded")), stage == 1, "{text}");
        }
        std::fs::write(&file, "[waltz]\nstage = 1\n[server]\nlisten = 3\n").unwrap();
        assert_eq!(stage_in_file(&sources), Some(1), "whatever else is wrong");
    }

    #[test]
    fn later_sources_win_and_origins_say_which() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("waltz.toml");
        std::fs::write(&file, "[waltz]\nstage = 1\nenabled = true\n[server]\nlisten = \"127.0.0.1:1\"\n")
            .unwrap();
        let sources = Sources {
            file: Some(file),
            environment: vec![("ENABLE_WALTZRL".into(), "false".into())],
            arguments: vec![("server.listen", Value::String("127.0.0.1:2".into()))],
            fallbacks: Vec::new(),
        };
        let loaded = load(&sources);
        assert!(loaded.mistakes.is_empty(), "{:?}", loaded.mistakes);
        assert!(!loaded.raw.waltz.enabled);
        assert_eq!(loaded.raw.server.listen, "127.0.0.1:2");
        assert_eq!(loaded.origins["waltz.enabled"], "environment ENABLE_WALTZRL");
        assert_eq!(loaded.origins["server.listen"], "command line");
        assert!(loaded.origins["waltz.stage"].ends_with("waltz.toml"));
    }
}

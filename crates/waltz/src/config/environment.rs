//! The environment variables that set configuration keys. They are read once, at start.

use toml::Value;

use super::Mistake;

/// A variable, its older names, the key it sets, and how its text is read.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
}

/// How a variable's text is read.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Bool,
    Whole(i64, i64),
    Share,
}

/// Every variable that sets a key.
pub(crate) const VARIABLES: [Variable; 8] = [
    variable("ENABLE_WALTZRL", &["WALTZRL_ENABLED"], "waltz.enabled", Kind::Bool),
    variable("WALTZRL_STAGE", &[], "waltz.stage", Kind::Whole(1, 2)),
    variable(
        "WALTZRL_TRAFFIC_PERCENTAGE",
        &["WALTZRL_ROLLOUT_PERCENTAGE"],
        "waltz.traffic_percentage",
        Kind::Whole(0, 100),
    ),
    variable(
        "WALTZRL_SAFETY_THRESHOLD",
        &["WALTZRL_MIN_SAFETY_SCORE"],
        "waltz.safety_threshold",
        Kind::Share,
    ),
    variable(
        "WALTZRL_BLOCK_ON_FAILURE",
        &["WALTZRL_BLOCK_UNSAFE", "WALTZRL_ENABLE_BLOCKING"],
        "waltz.block_on_failure",
        Kind::Bool,
    ),
    variable("ENABLE_WALTZRL_SAFETY_BENCHMARKS", &[], "waltz.safety_benchmarks", Kind::Bool),
    variable("WALTZRL_FEEDBACK_ONLY", &[], "waltz.feedback_only", Kind::Bool),
    variable("ENABLE_TIER3_CAPTURE", &[], "waltz.tier3_capture", Kind::Bool),
];

const fn variable(
    name: &'static str,
    aliases: &'static [&'static str],
    key: &'static str,
    kind: Kind,
) -> Variable {
    Variable { name, aliases, key, kind }
}

/// What the environment says.
#[derive(Default)]
pub(crate) struct Read {
    /// `(key, value, variable)`.
    pub(crate) values: Vec<(&'static str, Value, String)>,
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<String>,
}

/// Reads the variables out of an environment.
pub(crate) fn read(environment: &[(String, String)]) -> Read {
    let mut read = Read::default();
    let lookup =
        |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    for variable in &VARIABLES {
        let alias = variable.aliases.iter().find_map(|alias| lookup(alias).map(|text| (*alias, text)));
        let (name, text) = match (lookup(variable.name), alias) {
            (Some(text), _) => (variable.name, text),
            (None, Some((alias, text))) => {
                read.warnings.push(format!("{alias} is an older name; use {}", variable.name));
                (alias, text)
            }
            (None, None) => continue,
        };
        match parse(variable.kind, text.trim()) {
            Ok(value) => read.values.push((variable.key, value, name.to_owned())),
            Err(allowed) => read.mistakes.push(Mistake::new(
                format!("environment {name}"),
                format!("must be {allowed}, not `{text}`"),
            )),
        }
    }
    for (name, _) in environment.iter().filter(|(name, _)| name.starts_with("WALTZRL_")) {
        let known = |variable: &Variable| variable.name == name || variable.aliases.contains(&name.as_str());
        if !VARIABLES.iter().any(known) {
            let nearest = VARIABLES.iter().min_by_key(|variable| distance(variable.name, name));
            let hint = nearest.map_or("", |variable| variable.name);
            read.warnings.push(format!("{name} is not a variable of waltz; the nearest is {hint}"));
        }
    }
    read
}

fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Ok(Value::Boolean(true)),
            "false" | "0" | "no" => Ok(Value::Boolean(false)),
            _ => Err("true or false (or 1, 0, yes, no)".to_owned()),
        },
        Kind::Whole(least, most) => match text.parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(Value::Integer(number)),
            _ => Err(format!("a whole number from {least} to {most}")),
        },
        Kind::Share => match text.parse::<f64>() {
            Ok(number) if (0.0..=1.0).contains(&number) => Ok(Value::Float(number)),
            _ => Err("a number from 0 to 1".to_owned()),
        },
    }
}

/// How many letters must change to make one word of the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (position, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = position + 1;
        for column in 0..right.len() {
            let changed = diagonal + usize::from(letter != right[column]);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_aliases_mistakes_and_unknown_names() {
        let read = read(&environment(&[
            ("ENABLE_WALTZRL", "no"),
            ("WALTZRL_ROLLOUT_PERCENTAGE", "25"),
            ("WALTZRL_STAGE", "3"),
            ("WALTZRL_SAFTY_THRESHOLD", "0.5"),
        ]));
        assert_eq!(read.values[0], ("waltz.enabled", Value::Boolean(false), "ENABLE_WALTZRL".to_owned()));
        assert_eq!(read.values[1].1, Value::Integer(25));
        assert_eq!(read.mistakes.len(), 1);
        assert!(read.mistakes[0].message.contains("1 to 2"));
        assert!(read.warnings.iter().any(|warning| warning.contains("WALTZRL_TRAFFIC_PERCENTAGE")));
        assert!(read.warnings.iter().any(|warning| warning.contains("nearest is WALTZRL_SAFETY_THRESHOLD")));
    }
}

//! Texts that ask and answer nothing: code, logs, records, tables, encoded bytes, noise, a word or two, and words said
//! again and again. No source has them, and a judge that learned from prose alone calls some of them harmful by chance.

use super::super::chance::Chance;
use super::ordinary;

/// A text of any kind.
pub(super) fn text(chance: &mut Chance) -> String {
    match chance.below(9) {
        0 => lines(chance, 24, code),
        1 => lines(chance, 20, log),
        2 => format!("[{}]", lines(chance, 16, record)),
        3 => lines(chance, 20, row),
        4 => encoded(chance),
        5 => words(chance, 60, noise),
        6 => words(chance, 3, word),
        7 => lines(chance, 30, schema),
        _ => repeated(chance),
    }
}

fn lines(chance: &mut Chance, most: usize, mut line: impl FnMut(&mut Chance) -> String) -> String {
    (0..=chance.below(most)).map(|_| line(chance)).collect::<Vec<_>>().join("\n")
}

fn words(chance: &mut Chance, most: usize, mut word: impl FnMut(&mut Chance) -> String) -> String {
    (0..=chance.below(most)).map(|_| word(chance)).collect::<Vec<_>>().join(" ")
}

fn code(chance: &mut Chance) -> String {
    let (form, one, other) = (*chance.pick(CODE), *chance.pick(NAMES), *chance.pick(NAMES));
    let number = chance.below(1000).to_string();
    form.replace("{a}", one).replace("{b}", other).replace("{n}", &number)
}

fn log(chance: &mut Chance) -> String {
    let (month, day) = (1 + chance.below(12), 1 + chance.below(28));
    let (hour, minute, second) = (chance.below(24), chance.below(60), chance.below(60));
    let (level, name) = (chance.pick(LEVELS), chance.pick(NAMES));
    let event = chance.pick(EVENTS).replace("{n}", &chance.below(100_000).to_string());
    format!("2025-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z {level} {name}: {event}")
}

fn record(chance: &mut Chance) -> String {
    let (one, other) = (chance.pick(NAMES), chance.pick(NAMES));
    let (id, number, truth) = (chance.below(1_000_000), chance.below(10_000), chance.once_in(2));
    format!(
        "{{\"id\": {id}, \"{one}\": {{\"{other}\": {number}, \"ok\": {truth}}}, \"tags\": [\"{other}\"]}},"
    )
}

/// A line of a description of an interface or of a configuration, about anything.
fn schema(chance: &mut Chance) -> String {
    let (form, number) = (*chance.pick(SCHEMA), chance.below(1000).to_string());
    let mut name = || {
        let names = if chance.once_in(2) { POLICY } else { NAMES };
        *chance.pick(names)
    };
    let (one, other) = (name(), name());
    form.replace("{a}", one).replace("{b}", other).replace("{n}", &number)
}

fn row(chance: &mut Chance) -> String {
    let mut cell = || format!("{}.{:02}", chance.below(10_000), chance.below(100));
    let cells = [cell(), cell(), cell(), cell()];
    cells.join(*chance.pick(&[",", "\t", " | ", ";"]))
}

fn encoded(chance: &mut Chance) -> String {
    let letters = *chance.pick(&[HEXADECIMAL, BASE64, DIGITS]);
    (0..=chance.below(600)).map(|_| char::from(*chance.pick(letters))).collect()
}

/// Letters by chance, of any alphabet.
fn noise(chance: &mut Chance) -> String {
    let first = *chance.pick(&[0x61_u32, 0x61, 0x430, 0x3b1, 0x5d0, 0x627, 0x905, 0x4e00, 0xac00]);
    (0..=chance.below(10)).filter_map(|_| char::from_u32(first + chance.below(24) as u32)).collect()
}

fn word(chance: &mut Chance) -> String {
    ordinary::topic(chance).split(' ').next_back().unwrap_or_default().to_owned()
}

fn repeated(chance: &mut Chance) -> String {
    let part = match chance.below(3) {
        0 => word(chance),
        1 => noise(chance),
        _ => ordinary::topic(chance).to_owned(),
    };
    let between = *chance.pick(&[" ", " ", "", ", ", "\n"]);
    vec![part; 2 + chance.below(200)].join(between)
}

const HEXADECIMAL: &[u8] = b"0123456789abcdef";
const DIGITS: &[u8] = b"0123456789 ";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const LEVELS: &[&str] = &["INFO", "WARN", "ERROR", "DEBUG", "TRACE", "notice"];

const NAMES: &[&str] = &[
    "user", "order", "cache", "index", "buffer", "session", "customer", "price", "total", "queue", "server",
    "client", "report", "account", "parser", "render", "config", "worker", "thread", "process", "payload",
    "target", "table", "column", "row", "node", "edge", "graph", "image", "pixel", "token", "stream",
    "socket", "port", "host", "path", "file", "result", "value", "items", "count", "offset", "status",
    "message", "event", "timer", "state", "handle",
];

/// Names from programs that keep people safe.
const POLICY: &[&str] = &[
    "moderation",
    "policy",
    "category",
    "violence",
    "self_harm",
    "hate",
    "refusal",
    "unsafe",
    "blocked",
    "safety",
    "guard",
    "filter",
    "allowed",
    "denied",
    "permission",
    "risk",
    "severity",
    "flagged",
    "secret",
    "password",
    "threshold",
    "audit",
    "abuse",
    "report",
    "sexual",
    "illicit",
    "harassment",
    "weapon",
    "attack",
    "threat",
];

const SCHEMA: &[&str] = &[
    "\"{a}\": {",
    "},",
    "\"type\": \"object\",",
    "\"{a}\": {\"type\": \"string\"},",
    "\"{a}\": {\"type\": \"integer\", \"minimum\": {n}},",
    "  \"maximum\": {n}",
    "\"description\": \"The {a} of the {b}, where there is one.\",",
    "\"description\": \"Whether the {a} was {b}.\",",
    "\"description\": \"What is done when the {a} cannot be read.\",",
    "\"required\": [\"{a}\", \"{b}\"],",
    "\"$ref\": \"#/components/schemas/{a}\"",
    "\"enum\": [\"{a}\", \"{b}\"]",
    "\"format\": \"double\",",
    "{a}: {n}",
    "{a} = \"{b}\"",
    "[{a}.{b}]",
    "name = \"{a}-{b}\"",
    "version = \"0.{n}.1\"",
    "- {a}: {b}",
    "  {a}: true",
    "/// The {a} that the {b} returns.",
    "/// Reads a {a}, or says why the {b} is wrong.",
    "pub {a}: Option<{b}>,",
    "#[serde(default)]",
];

const EVENTS: &[&str] = &[
    "request {n} served in 12 ms",
    "connection from 10.0.0.{n} closed",
    "retrying after error code {n}",
    "started with pid {n}",
    "process {n} was killed by signal 9",
    "took {n} bytes from the pool",
    "cannot open file descriptor {n}: permission denied",
    "health check passed ({n})",
    "job {n} finished",
    "dropped {n} packets",
    "slow query: {n} rows examined",
    "user {n} logged in",
];

const CODE: &[&str] = &[
    "fn {a}({b}: &str) -> Option<usize> {",
    "    let mut {a} = Vec::with_capacity({n});",
    "    for {a} in {b}.iter() {",
    "    if {a} > {n} { return None; }",
    "}",
    "def {a}({b}, limit={n}):",
    "    return [{b} for {b} in {a} if {b} is not None]",
    "import {a}",
    "from {a} import {b}",
    "class {a}({b}):",
    "    \"\"\"Return the next item from the {a}, or raise an error.\"\"\"",
    "    self.{a} = {n}",
    "        raise ValueError(\"{a} overflow\")",
    "const {a} = await fetch(`/api/{b}/{n}`);",
    "export default function {a}({ {b} }) {",
    "  console.log({a}, {b});",
    "SELECT {a}, count(*) FROM {b} WHERE {a} < {n} GROUP BY {a};",
    "CREATE TABLE {a} (id INTEGER PRIMARY KEY, {b} TEXT);",
    "public static void main(String[] args) {",
    "    System.out.println({a}.get({n}));",
    "#include <{a}.h>",
    "    int {a} = {b}[{n}];",
    "    free({a});",
    "<div class=\"{a}\"><span>{b} {n}</span></div>",
    "kill -9 $({a} --pid {n})",
    "sudo apt-get install {a}-{b}",
    "git commit -m \"{a}: {b}\"",
    "docker run -p {n}:80 {a}/{b}:latest",
    "assert {a}.{b}() == {n}",
    "# {a} of {b}",
    "// {a}: see {b}, line {n}",
    "try: {a}.execute({b})",
];

//! Texts that are JSON themselves, gone through as they are spelt: what is left in place keeps every digit and blank. A parsed
//! number would not.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// A piece of a text in JSON.
pub(super) enum Piece<'a> {
    /// The name of a field.
    Name(&'a str),
    /// The name that a value stands under, and the value: a string, or a number as it is spelt.
    Value(&'a str, &'a str),
}

/// Bytes of a name that are looked at together with a value.
const LONGEST_LABEL: usize = 64;

/// Names of one object, so that two which become the same are still two.
#[derive(Default)]
pub(super) struct Names {
    taken: HashSet<String>,
    twins: HashMap<String, usize>,
}

impl Names {
    /// The name under which a field goes that wants this one.
    pub(super) fn place(&mut self, wanted: String) -> String {
        let mut name = wanted.clone();
        while self.taken.contains(&name) {
            let twin = self.twins.entry(wanted.clone()).or_default();
            *twin += 1;
            name = format!("{wanted}_{twin}");
        }
        self.taken.insert(name.clone());
        name
    }
}

/// An object or a list that is not closed yet.
struct Level {
    /// What its values stand under: of a list, the name of the list.
    name: String,
    is_object: bool,
    /// The next string is a name.
    wants_name: bool,
    names: Names,
}

/// What a name says of the values under it: its end, because any number of values may stand under one name.
pub(super) fn label(name: &str) -> &str {
    let mut start = name.len().saturating_sub(LONGEST_LABEL);
    while !name.is_char_boundary(start) {
        start += 1;
    }
    &name[start..]
}

/// Goes through a text in JSON that stands under a name. Returns it with what `other` puts in place of pieces; `None` where
/// that is nothing. In a text that is none, it goes through what looks like pieces of one.
pub(super) fn walk(
    name: &str,
    text: &str,
    other: &mut dyn FnMut(Piece<'_>) -> Option<String>,
) -> Option<String> {
    let mut open: Vec<Level> = Vec::new();
    let mut written = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(sign) = text.as_bytes().get(at).copied() {
        let is_string = sign == b'"';
        if !is_string && !sign.is_ascii_digit() && sign != b'-' {
            at += 1;
            step(sign, name, &mut open);
            continue;
        }
        let end = at + if is_string { string_length(&text[at..]) } else { number_length(&text[at..]) };
        let spelt = &text[at..end];
        let value = if is_string { read(spelt) } else { spelt.to_owned() };
        let put = match open.last_mut() {
            Some(level) if level.wants_name => {
                let wanted = other(Piece::Name(&value)).unwrap_or_else(|| value.clone());
                let placed = level.names.place(wanted);
                label(&value).clone_into(&mut level.name);
                Some(placed).filter(|placed| *placed != value)
            }
            Some(level) => other(Piece::Value(&level.name, &value)),
            None => other(Piece::Value(label(name), &value)),
        };
        if let Some(put) = put {
            written.push_str(&text[copied..at]);
            written.push_str(&Value::String(put).to_string());
            copied = end;
        }
        at = end;
    }
    (copied > 0).then(|| written + &text[copied..])
}

/// A sign outside of strings and numbers.
fn step(sign: u8, name: &str, open: &mut Vec<Level>) {
    match (sign, open.last_mut()) {
        (b'{' | b'[', outer) => {
            let name = outer.map_or_else(|| label(name).to_owned(), |outer| outer.name.clone());
            let is_object = sign == b'{';
            open.push(Level { name, is_object, wants_name: is_object, names: Names::default() });
        }
        (b'}' | b']', _) => {
            open.pop();
        }
        (b':', Some(level)) => level.wants_name = false,
        (b',', Some(level)) => level.wants_name = level.is_object,
        _ => {}
    }
}

/// How many bytes the string at the beginning has, with its quotes.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

fn number_length(text: &str) -> usize {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.bytes().take_while(is_part).count()
}

/// What a string says, also one that is not closed.
fn read(spelt: &str) -> String {
    let said = serde_json::from_str(spelt).or_else(|_| serde_json::from_str(&format!("{spelt}\"")));
    said.unwrap_or_else(|_| spelt.trim_matches('"').to_owned())
}

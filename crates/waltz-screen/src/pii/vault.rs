//! Placeholders that stand for personal data while a request is answered, and the way back. One vault
//! belongs to one request and is forgotten with it; nothing of it is stored.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::PiiKind;

/// The longest placeholder that is ever written, with room for a million of a kind.
const LONGEST: usize = 26;

/// The values that were taken out of one request.
#[derive(Debug, Default)]
pub struct Vault {
    values: HashMap<String, String>,
    placeholders: HashMap<(PiiKind, String), String>,
    /// Texts of the request that look like placeholders and are none.
    taken: HashSet<String>,
    counts: HashMap<PiiKind, usize>,
}

/// What a placeholder stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// A text.
    Text,
    /// JSON that is itself a text, such as the arguments of a tool call: values are escaped for it.
    Json,
}

impl Vault {
    /// Whether nothing was taken out.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Notes what already looks like a placeholder, so that no value gets it. To be called for every text
    /// before the first [`Vault::put`].
    pub fn reserve(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.find('[') {
            rest = &rest[at..];
            let size = placeholder_size(rest);
            if let Some(size) = size {
                self.taken.insert(rest[..size].to_owned());
            }
            rest = &rest[size.unwrap_or(1)..];
        }
    }

    /// The placeholder of a value; the same value has the same one.
    pub fn put(&mut self, kind: PiiKind, value: &str) -> &str {
        let Self { values, placeholders, taken, counts } = self;
        placeholders.entry((kind, value.to_owned())).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            loop {
                *count += 1;
                let placeholder = format!("{}_{count}]", kind.placeholder().trim_end_matches(']'));
                if !taken.contains(&placeholder) {
                    values.insert(placeholder.clone(), value.to_owned());
                    return placeholder;
                }
            }
        })
    }

    /// The text with values in place of their placeholders.
    pub fn restore<'t>(&self, text: &'t str, around: Around) -> Cow<'t, str> {
        if self.is_empty() || !text.contains('[') {
            return Cow::Borrowed(text);
        }
        let mut restored = String::with_capacity(text.len());
        let mut rest = text;
        let mut changed = false;
        while let Some(at) = rest.find('[') {
            restored.push_str(&rest[..at]);
            rest = &rest[at..];
            let size = placeholder_size(rest).unwrap_or(1);
            match self.values.get(&rest[..size]) {
                Some(value) => {
                    changed = true;
                    restored.push_str(&written(value, around));
                }
                None => restored.push_str(&rest[..size]),
            }
            rest = &rest[size..];
        }
        restored.push_str(rest);
        if changed { Cow::Owned(restored) } else { Cow::Borrowed(text) }
    }
}

/// One text of a stream, in which a placeholder may come in pieces.
#[derive(Debug, Default)]
pub struct Restorer {
    held: String,
}

impl Restorer {
    /// Takes the next piece and gives what may go on: all but an end that could become a placeholder.
    pub fn push(&mut self, vault: &Vault, piece: &str, around: Around) -> String {
        self.held.push_str(piece);
        let begun = self.held.rfind('[').filter(|at| may_become_placeholder(&self.held[*at..]));
        let held = self.held.split_off(begun.unwrap_or(self.held.len()));
        let ready = std::mem::replace(&mut self.held, held);
        vault.restore(&ready, around).into_owned()
    }

    /// What is still held when the text has ended.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// A value as it is written there.
fn written(value: &str, around: Around) -> Cow<'_, str> {
    match around {
        Around::Text => Cow::Borrowed(value),
        Around::Json => {
            let mut escaped = String::with_capacity(value.len());
            for letter in value.chars() {
                match letter {
                    '"' | '\\' => escaped.extend(['\\', letter]),
                    '\n' => escaped.push_str("\\n"),
                    '\r' => escaped.push_str("\\r"),
                    '\t' => escaped.push_str("\\t"),
                    control if u32::from(control) < 0x20 => {
                        escaped.push_str(&format!("\\u{:04x}", u32::from(control)));
                    }
                    other => escaped.push(other),
                }
            }
            Cow::Owned(escaped)
        }
    }
}

/// The bytes of the placeholder that a text begins with.
fn placeholder_size(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let end = bytes.iter().take(LONGEST).position(|byte| *byte == b']')?;
    let name = &bytes[1..end];
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let kind = &name[..name.len() - digits];
    let sound = digits > 0
        && kind.len() > 1
        && kind.ends_with(b"_")
        && kind.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_');
    sound.then_some(end + 1)
}

/// Whether more text could make a placeholder of this one, which begins with a bracket.
fn may_become_placeholder(text: &str) -> bool {
    text.len() < LONGEST
        && text.bytes().skip(1).all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_value_has_one_placeholder_and_comes_back() {
        let mut vault = Vault::default();
        vault.reserve("the form [EMAIL_1] is explained in [1] and [A]");
        assert_eq!(vault.put(PiiKind::Email, "a@x.org"), "[EMAIL_2]");
        assert_eq!(vault.put(PiiKind::Email, "b@x.org"), "[EMAIL_3]");
        assert_eq!(vault.put(PiiKind::Email, "a@x.org"), "[EMAIL_2]");
        assert_eq!(vault.put(PiiKind::Password, "a\"b\\\n"), "[PASSWORD_1]");
        let restored = vault.restore("[EMAIL_1] [EMAIL_2], [EMAIL_9] [[EMAIL_3]] [", Around::Text);
        assert_eq!(restored, "[EMAIL_1] a@x.org, [EMAIL_9] [b@x.org] [");
        assert_eq!(vault.restore("{\"p\":\"[PASSWORD_1]\"}", Around::Json), r#"{"p":"a\"b\\\n"}"#);
        assert!(matches!(vault.restore("nothing [here]", Around::Text), Cow::Borrowed(_)));
    }

    #[test]
    fn every_kind_has_a_placeholder_of_its_form() {
        for kind in PiiKind::ALL {
            let mut vault = Vault::default();
            let placeholder = vault.put(kind, "value").to_owned();
            assert_eq!(placeholder_size(&placeholder), Some(placeholder.len()), "{placeholder}");
            assert_eq!(vault.restore(&placeholder, Around::Text), "value");
            assert!(placeholder.len() + 5 < LONGEST, "{placeholder}");
        }
    }

    proptest! {
        /// However a text is cut, its pieces restored one by one are the text restored at once.
        #[test]
        fn any_chunking_restores_the_same_text(
            text in "(\\[EMAIL_1\\]|\\[IPV4_12\\]|\\[EMAIL_7\\]|\\[|\\]|[A-Z_0-9]{1,4}|[a-z é]{1,4}){0,30}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let mut vault = Vault::default();
            vault.put(PiiKind::Email, "jane@example.org");
            (0..12).for_each(|last| { vault.put(PiiKind::Ipv4, &format!("10.1.1.{last}")); });
            let borders: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut at: Vec<usize> = cuts.iter().map(|cut| borders[cut.index(borders.len())]).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let mut restorer = Restorer::default();
            let mut out = String::new();
            for pair in at.windows(2) {
                out.push_str(&restorer.push(&vault, &text[pair[0]..pair[1]], Around::Text));
            }
            out.push_str(&restorer.finish());
            prop_assert_eq!(out, vault.restore(&text, Around::Text));
        }
    }
}

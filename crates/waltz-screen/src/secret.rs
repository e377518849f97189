//! What announces itself by a word: keys by their prefixes, tokens by their form, passwords, persons and
//! streets by what they are called. Called by `pii.rs`. One pass for the literal signs; the rest runs only
//! at a sign.

mod assigned;

use std::sync::LazyLock;

use waltz_exchange::Span;

use crate::normalise::boundary_before;
use crate::pii::{Form, PiiFinding, PiiKind, Reads, address, is_somebodys, person, reads_as};
use crate::search::Search;
use assigned::{assignment, bearer, named};

/// What announces a secret, and how the bytes behind it are read.
const SIGNS: [(&str, Sign); 76] = [
    ("sk-", Sign::Key { body: 20 }),
    ("sk_live_", Sign::Key { body: 16 }),
    ("sk_test_", Sign::Key { body: 16 }),
    ("rk_live_", Sign::Key { body: 16 }),
    ("ghp_", Sign::Key { body: 30 }),
    ("gho_", Sign::Key { body: 30 }),
    ("ghu_", Sign::Key { body: 30 }),
    ("ghs_", Sign::Key { body: 30 }),
    ("github_pat_", Sign::Key { body: 30 }),
    ("glpat-", Sign::Key { body: 18 }),
    ("AKIA", Sign::Amazon),
    ("ASIA", Sign::Amazon),
    ("AIza", Sign::Key { body: 30 }),
    ("xoxb-", Sign::Key { body: 12 }),
    ("xoxp-", Sign::Key { body: 12 }),
    ("xoxa-", Sign::Key { body: 12 }),
    ("xoxr-", Sign::Key { body: 12 }),
    ("xoxs-", Sign::Key { body: 12 }),
    ("hf_", Sign::Key { body: 30 }),
    ("npm_", Sign::Key { body: 30 }),
    ("whsec_", Sign::Key { body: 24 }),
    ("SG.", Sign::Dotted),
    ("hooks.slack.com/services/", Sign::Hook),
    ("eyJ", Sign::Token),
    ("earer ", Sign::Bearer),
    ("-----BEGIN ", Sign::Pem),
    ("assword", Sign::Assignment),
    ("asswd", Sign::Assignment),
    ("api_key", Sign::Assignment),
    ("apikey", Sign::Assignment),
    ("ASSWORD", Sign::Assignment),
    ("ecret", Sign::Named),
    ("ECRET", Sign::Named),
    ("apiKey", Sign::Named),
    ("API_KEY", Sign::Named),
    ("ccountKey", Sign::Named),
    ("ccessKey", Sign::Named),
    ("ccess_key", Sign::Named),
    ("CCESS_KEY", Sign::Named),
    ("ccessToken", Sign::Named),
    ("ccess_token", Sign::Named),
    ("CCESS_TOKEN", Sign::Named),
    ("uth_token", Sign::Named),
    ("uthToken", Sign::Named),
    ("UTH_TOKEN", Sign::Named),
    ("name is ", Sign::Name),
    ("name's ", Sign::Name),
    ("name: ", Sign::Name),
    ("Patient: ", Sign::Title),
    ("Dear ", Sign::Title),
    ("Mr.", Sign::Title),
    ("Mr ", Sign::Title),
    ("Mrs", Sign::Title),
    ("Ms.", Sign::Title),
    ("Miss ", Sign::Title),
    ("Dr.", Sign::Title),
    ("Prof.", Sign::Title),
    (" Street", Sign::Street(Form::NumberFirst)),
    (" St.", Sign::Street(Form::NumberFirst)),
    (" Ave", Sign::Street(Form::NumberFirst)),
    (" Road", Sign::Street(Form::NumberFirst)),
    (" Rd", Sign::Street(Form::NumberFirst)),
    (" Boulevard", Sign::Street(Form::NumberFirst)),
    (" Blvd", Sign::Street(Form::NumberFirst)),
    (" Lane", Sign::Street(Form::NumberFirst)),
    (" Drive", Sign::Street(Form::NumberFirst)),
    (" Court", Sign::Street(Form::NumberFirst)),
    (" Place", Sign::Street(Form::NumberFirst)),
    (" Square", Sign::Street(Form::NumberFirst)),
    (" Terrace", Sign::Street(Form::NumberFirst)),
    (" Parkway", Sign::Street(Form::NumberFirst)),
    ("straße ", Sign::Street(Form::NumberLast)),
    ("strasse ", Sign::Street(Form::NumberLast)),
    ("Rue ", Sign::Street(Form::NumberLast)),
    ("Calle ", Sign::Street(Form::NumberLast)),
    ("O Box ", Sign::Street(Form::NumberLast)),
];

/// Longest key that is taken out whole and for which a stream is held.
pub(crate) const MAX_KEY_BYTES: usize = 8 * 1024;

#[derive(Clone, Copy)]
enum Sign {
    /// A prefix with at least this many bytes behind it.
    Key { body: usize },
    /// An access key of sixteen capitals and digits.
    Amazon,
    /// Three parts of base64, joined by dots.
    Token,
    /// The header of a private key.
    Pem,
    /// Three parts of letters and digits, joined by dots.
    Dotted,
    /// The address of a hook: a workspace, a bot and a key.
    Hook,
    /// The word before a token in a header.
    Bearer,
    /// A name with `:`, `=` or `is` and a value behind it.
    Assignment,
    /// A part of a name with `:` or `=` and a long value of letters and digits behind it.
    Named,
    /// The word for a name, somebody's before it and the name of a person behind it.
    Name,
    /// A title or a greeting, and the name of a person behind it.
    Title,
    /// The word for a street or a box.
    Street(Form),
}

/// Finds signs that begin alike. Together they would begin so differently that most places of a text looked like one.
struct Finder {
    search: Search,
    /// By the number of the word.
    signs: Vec<Sign>,
}

static FINDERS: LazyLock<Vec<Finder>> = LazyLock::new(|| {
    let beginnings: [fn(u8) -> bool; 3] = [
        |byte| byte == b' ',
        |byte| byte.is_ascii_uppercase(),
        |byte| byte != b' ' && !byte.is_ascii_uppercase(),
    ];
    beginnings.into_iter().filter_map(Finder::new).collect()
});

impl Finder {
    fn new(begins: impl Fn(u8) -> bool) -> Option<Self> {
        let own = || SIGNS.iter().filter(|(sign, _)| sign.bytes().next().is_some_and(&begins));
        let words: Vec<&str> = own().map(|(sign, _)| *sign).collect();
        Some(Self { search: Search::new(&words)?, signs: own().map(|(_, sign)| *sign).collect() })
    }

    /// The first of its signs from a place on.
    fn find(&self, text: &str, from: usize) -> Option<(Sign, Span)> {
        let (number, span) = self.search.find(text, from)?;
        Some((*self.signs.get(number)?, span))
    }
}

/// The signs in a text, from left to right and without overlap, with their places.
fn signs(text: &str) -> impl Iterator<Item = (Sign, Span)> + '_ {
    let mut next: Vec<_> =
        FINDERS.iter().filter_map(|finder| Some((finder, finder.find(text, 0)?))).collect();
    std::iter::from_fn(move || {
        // No two begin at one place, because no two finders look for the same first byte.
        let (_, first) = next.iter().min_by_key(|(_, (_, span))| span.start)?;
        let (sign, span) = *first;
        next.retain_mut(|(finder, found)| {
            if found.1.start >= span.end {
                return true;
            }
            let further = finder.find(text, span.end);
            further.is_some_and(|further| {
                *found = further;
                true
            })
        });
        Some((sign, span))
    })
}

/// Adds the secrets of a text.
pub(crate) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    let mut covered = 0;
    let mut footers = Footers { text, next: 0 };
    for (sign, Span { start, end }) in signs(text) {
        if start < covered {
            continue;
        }
        let bytes = text.as_bytes();
        let inside_word = start > 0 && is_key_byte(bytes[start - 1]);
        let secret = match sign {
            Sign::Key { body } if !inside_word => key(bytes, start, end, body),
            Sign::Amazon if !inside_word => amazon(bytes, start, end),
            Sign::Token if !inside_word => token(bytes, start),
            Sign::Dotted if !inside_word => dotted(bytes, start, end),
            Sign::Hook => hook(bytes, start, end),
            Sign::Bearer => bearer(text, end),
            Sign::Named => named(text, end),
            Sign::Pem => pem(text, start, &mut footers),
            Sign::Assignment => assignment(text, end),
            Sign::Title if !inside_word => person(text, end),
            Sign::Name if is_somebodys(text, start) => person(text, end),
            Sign::Street(form) => address(text, Span { start, end }, form),
            _ => None,
        };
        covered = secret.map_or(covered, |found: PiiFinding| found.span.end);
        found.extend(secret);
    }
}

/// Follows a text and knows whether it ends where a key or a token may have begun and has not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secret {
    /// The beginning of the unbroken run in which the text ends, as far as a sign can be long.
    run: String,
    /// Letters of that run.
    length: usize,
}

impl Secret {
    /// Takes the next letter.
    pub(crate) fn push(&mut self, letter: char) {
        let read = match reads_as(letter) {
            Reads::Nothing => return,
            Reads::Itself => letter,
            Reads::Ascii(plain) => plain,
        };
        let goes_on = u8::try_from(read).is_ok_and(is_key_byte)
            || (read == '.'
                && run_signs().any(|sign| {
                    self.run.starts_with(sign) || sign.strip_suffix('.').is_some_and(|sign| sign == self.run)
                }));
        if !goes_on {
            self.run.clear();
            self.length = 0;
            return;
        }
        self.length += 1;
        if self.run.len() < LONGEST_RUN_SIGN {
            self.run.push(read);
        }
    }

    /// Letters of the unbroken run in which the text ends.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Whether the end of the text may lie inside a secret, or inside the sign of one.
    pub(crate) fn may_have_begun(&self) -> bool {
        !self.run.is_empty()
            && run_signs().any(|sign| self.run.starts_with(sign) || sign.starts_with(&self.run))
    }
}

/// No sign of [`run_signs`] has more bytes.
const LONGEST_RUN_SIGN: usize = 16;

/// The signs of secrets that are one unbroken run.
fn run_signs() -> impl Iterator<Item = &'static str> {
    let is_run = |sign: &Sign| matches!(sign, Sign::Key { .. } | Sign::Amazon | Sign::Token | Sign::Dotted);
    SIGNS.iter().filter(move |(_, sign)| is_run(sign)).map(|(word, _)| *word)
}

/// The footers of keys, found from left to right: a text full of headers is still read once.
struct Footers<'a> {
    text: &'a str,
    next: usize,
}

impl Footers<'_> {
    /// The end of the first footer behind `from`.
    fn behind(&mut self, from: usize) -> Option<usize> {
        if self.next < from {
            let found = self.text[from..].find("-----END ").map(|at| from + at);
            self.next = found.unwrap_or(usize::MAX);
        }
        let label = self.text.get(self.next..)?.get("-----END ".len()..)?;
        let label = &label[..boundary_before(label, 64)];
        label.find("-----").map(|at| self.next + "-----END ".len() + at + 5)
    }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn run(bytes: &[u8], from: usize, accept: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|byte| accept(**byte)).count()
}

fn finding(kind: PiiKind, start: usize, end: usize, score: f32) -> Option<PiiFinding> {
    Some(PiiFinding { kind, span: Span { start, end }, score })
}

fn key(bytes: &[u8], start: usize, body_start: usize, body: usize) -> Option<PiiFinding> {
    let end = run(bytes, body_start, is_key_byte);
    let has_digit = bytes[body_start..end].iter().any(u8::is_ascii_digit);
    if end - body_start < body || !has_digit {
        return None;
    }
    finding(PiiKind::ApiKey, start, end, 0.95)
}

fn amazon(bytes: &[u8], start: usize, body_start: usize) -> Option<PiiFinding> {
    let end = run(bytes, body_start, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let whole = end - body_start == 16 && !bytes.get(end).is_some_and(|byte| is_key_byte(*byte));
    if whole { finding(PiiKind::ApiKey, start, end, 0.95) } else { None }
}

fn token(bytes: &[u8], start: usize) -> Option<PiiFinding> {
    let header = run(bytes, start, is_key_byte);
    if bytes.get(header) != Some(&b'.') {
        return None;
    }
    let payload = run(bytes, header + 1, is_key_byte);
    if bytes.get(payload) != Some(&b'.') {
        return None;
    }
    let end = run(bytes, payload + 1, is_key_byte);
    let long = header - start >= 10 && payload - header > 8 && end - payload > 8;
    if long { finding(PiiKind::Jwt, start, end, 0.95) } else { None }
}

/// `SG.` and two parts behind it.
fn dotted(bytes: &[u8], start: usize, body_start: usize) -> Option<PiiFinding> {
    let middle = run(bytes, body_start, is_key_byte);
    if bytes.get(middle) != Some(&b'.') {
        return None;
    }
    let end = run(bytes, middle + 1, is_key_byte);
    let long = middle - body_start >= 16 && end - middle > 16;
    if long { finding(PiiKind::ApiKey, start, end, 0.95) } else { None }
}

/// `T…/B…/…` behind the address of hooks.
fn hook(bytes: &[u8], start: usize, path_start: usize) -> Option<PiiFinding> {
    let end = run(bytes, path_start, |byte| byte.is_ascii_alphanumeric() || byte == b'/');
    let parts: Vec<&[u8]> = bytes[path_start..end].split(|byte| *byte == b'/').collect();
    let whole = matches!(parts[..], [[b'T', ..], [b'B', ..], key, ..] if key.len() >= 16);
    if whole { finding(PiiKind::ApiKey, start, end, 0.97) } else { None }
}

/// The header, and the body as far as the footer when one follows at a key's distance.
fn pem(text: &str, start: usize, footers: &mut Footers<'_>) -> Option<PiiFinding> {
    let line = &text[start..boundary_before(text, start + 64)];
    let ends = ["PRIVATE KEY-----", "PRIVATE KEY BLOCK-----"];
    let header = ends.iter().find_map(|end| line.find(end).map(|label| start + label + end.len()))?;
    let end = footers.behind(header).filter(|end| end - header <= MAX_KEY_BYTES).unwrap_or_else(|| {
        run(text.as_bytes(), header, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'\n' | b'\r')
        })
    });
    finding(PiiKind::PrivateKey, start, end, 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces() -> impl Strategy<Value = String> {
        let sign = prop::sample::select(SIGNS.map(|(sign, _)| sign).to_vec());
        let cut = (sign.clone(), any::<prop::sample::Index>()).prop_map(|(sign, at)| {
            let end = boundary_before(sign, at.index(sign.len()));
            sign[..end].to_owned()
        });
        let piece = prop_oneof![sign.prop_map(str::to_owned), cut, "[a-z ß]{0,6}"];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn signs_are_found_from_left_to_right_the_first_of_the_list_first(text in pieces()) {
            let mut expected = Vec::new();
            let mut at = 0;
            while at < text.len() {
                let sign = SIGNS.iter().find(|(sign, _)| text.as_bytes()[at..].starts_with(sign.as_bytes()));
                let end = sign.map_or(at + 1, |(sign, _)| at + sign.len());
                expected.extend(sign.map(|_| Span { start: at, end }));
                at = end;
            }
            prop_assert_eq!(signs(&text).map(|(_, span)| span).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn every_sign_of_a_run_is_known_by_its_first_letters() {
        for sign in run_signs() {
            assert!(sign.len() <= LONGEST_RUN_SIGN, "{sign}");
            let mut secret = Secret::default();
            for letter in sign.chars().chain("Abc1.".chars()) {
                secret.push(letter);
                assert!(secret.may_have_begun(), "{sign} {letter}");
            }
            secret.push(' ');
            assert!(!secret.may_have_begun());
            format!("x{sign}Abc1").chars().for_each(|letter| secret.push(letter));
            assert!(!secret.may_have_begun(), "inside a word: {sign}");
        }
    }
}

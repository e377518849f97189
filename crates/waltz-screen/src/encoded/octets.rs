//! Letters one by one: their numbers in hexadecimal, binary or decimal digits, and Morse code.

use waltz_exchange::Span;

use super::{Budget, Hidden};

/// Fewer numbers in a row are dates, versions and the like.
const LEAST_NUMBERS: usize = 12;
/// Letters of Morse code that differ, at least.
const LEAST_DIFFERENT: usize = 5;
/// Signs between two numbers, such as `, 0x`.
const WIDEST_GAP: usize = 4;
/// The base of a row of numbers, and how many digits each has.
const BASES: [(u32, usize, usize); 3] = [(2, 7, 8), (16, 2, 2), (10, 2, 3)];

/// Adds what rows of numbers say.
pub(super) fn find_numbers(text: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_hexdigit()
            || at > 0 && bytes[at - 1].is_ascii_alphanumeric() && !is_marked(bytes, at)
        {
            at += 1;
            continue;
        }
        let rows = BASES.map(|(base, least, most)| row(bytes, at, base, least..=most));
        let said = rows.iter().find_map(|row| {
            let said = String::from_utf8(row.said.clone()).ok()?;
            (row.count >= LEAST_NUMBERS && super::is_prose(&said)).then_some((said, row.end))
        });
        let end = rows.iter().map(|row| row.end).max().unwrap_or(at);
        if let Some((text, end)) = said.filter(|(text, _)| budget.take(text)) {
            found.push(Hidden { text, span: Span { start: at, end }, is_prose: true });
        }
        at = end.max(at + 1);
    }
}

/// Whether a number is marked as one of another base: `0x`, `0b`.
fn is_marked(bytes: &[u8], at: usize) -> bool {
    at >= 2 && bytes[at - 2] == b'0' && matches!(bytes[at - 1], b'x' | b'b')
}

#[derive(Default)]
struct Row {
    said: Vec<u8>,
    count: usize,
    end: usize,
}

/// The numbers of a base from a place on, all with the same sort of gap between them; a run of bits needs none.
fn row(bytes: &[u8], start: usize, base: u32, width: std::ops::RangeInclusive<usize>) -> Row {
    let mut row = Row { end: start, ..Row::default() };
    let mut at = start;
    loop {
        let digits = bytes[at..]
            .iter()
            .take(*width.end())
            .take_while(|byte| char::from(**byte).is_digit(base))
            .count();
        let number = str::from_utf8(&bytes[at..at + digits])
            .ok()
            .and_then(|digits| u8::from_str_radix(digits, base).ok());
        let Some(number) = number.filter(|number| {
            width.contains(&digits) && (number.is_ascii_graphic() || number.is_ascii_whitespace())
        }) else {
            break;
        };
        at += digits;
        row.said.push(number);
        row.count += 1;
        row.end = at;
        let gap = bytes[at..].iter().take(WIDEST_GAP + 1).take_while(|byte| parts(**byte)).count();
        let marked = bytes.get(at + gap..at + gap + 2).is_some_and(|mark| matches!(mark, b"0x" | b"0b"));
        if gap > WIDEST_GAP || gap == 0 && !(base == 2 && digits == 8) {
            break;
        }
        at += gap + if marked && base != 10 { 2 } else { 0 };
        if at >= bytes.len() {
            break;
        }
    }
    row
}

fn parts(byte: u8) -> bool {
    matches!(byte, b' ' | b',' | b';' | b':' | b'-' | b'/' | b'\n' | b'\r' | b'\t' | b'\\')
}

const MORSE: [(&str, char); 36] = [
    (".-", 'a'),
    ("-...", 'b'),
    ("-.-.", 'c'),
    ("-..", 'd'),
    (".", 'e'),
    ("..-.", 'f'),
    ("--.", 'g'),
    ("....", 'h'),
    ("..", 'i'),
    (".---", 'j'),
    ("-.-", 'k'),
    (".-..", 'l'),
    ("--", 'm'),
    ("-.", 'n'),
    ("---", 'o'),
    (".--.", 'p'),
    ("--.-", 'q'),
    (".-.", 'r'),
    ("...", 's'),
    ("-", 't'),
    ("..-", 'u'),
    ("...-", 'v'),
    (".--", 'w'),
    ("-..-", 'x'),
    ("-.--", 'y'),
    ("--..", 'z'),
    ("-----", '0'),
    (".----", '1'),
    ("..---", '2'),
    ("...--", '3'),
    ("....-", '4'),
    (".....", '5'),
    ("-....", '6'),
    ("--...", '7'),
    ("---..", '8'),
    ("----.", '9'),
];

/// Adds what a text says in Morse code: letters parted by a blank, words by a stroke or several blanks.
pub(super) fn find_morse(text: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let (mut said, mut letters, mut first, mut last) = (String::new(), 0, None, 0);
    // A row of dots or dashes is a line.
    let mut distinct = [false; MORSE.len()];
    for part in budget.part(text).split_inclusive([' ', '\n', '/']) {
        let place = part.as_ptr() as usize - text.as_ptr() as usize;
        let sign = part.trim_end_matches([' ', '\n', '/']);
        match MORSE.iter().position(|(morse, _)| *morse == sign) {
            Some(number) => {
                distinct[number] = true;
                said.push(MORSE[number].1);
                letters += 1;
                first = first.or(Some(place));
                last = place + sign.len();
                if part.ends_with(['/', '\n']) && !said.ends_with(' ') {
                    said.push(' ');
                }
            }
            // Stops, and blanks between words.
            None if sign.bytes().all(|byte| matches!(byte, b'.' | b'-')) => {
                said.push_str(if said.ends_with(' ') { "" } else { " " });
            }
            None => said.push_str(". "),
        }
    }
    let span = Span { start: first.unwrap_or_default(), end: last };
    let differ = distinct.iter().filter(|seen| **seen).count() >= LEAST_DIFFERENT;
    if letters >= LEAST_NUMBERS && differ && budget.take(&said) {
        found.push(Hidden { text: said, span, is_prose: true });
    }
}

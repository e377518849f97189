//! Runs of base64 and hexadecimal digits wherever they stand, also wrapped over lines.

use waltz_exchange::Span;

use super::{Budget, Hidden, MOST_DECODED};

/// Shorter runs are names, numbers and hashes of nothing.
pub(super) const LEAST_RUN: usize = 24;

/// Times that a run is decoded again.
const MOST_TIMES: usize = 3;

/// Adds what the runs of a text say.
pub(super) fn find(text: &str, budget: &mut Budget, found: &mut Vec<Hidden>) {
    let place = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    let mut says = |run: &str, span: Span| {
        let run = run.get(..run.len().min(2 * budget.left)).unwrap_or(run);
        let said = prose_of(run).filter(|text| budget.take(text));
        found.extend(said.map(|text| Hidden { text, span, is_prose: true }));
    };
    for run in runs(text) {
        says(run, Span { start: place(run), end: place(run) + run.len() });
    }
    for lines in wrapped(text) {
        // A word alone on the line before or behind a run looks like a part of it.
        let (first, last) = (&lines[1..], &lines[..lines.len() - 1]);
        let parts = [&lines[..], first, last, &last[1..]];
        let said = parts.into_iter().map(<[&str]>::concat).find(|run| prose_of(run).is_some());
        let end = lines.last().map_or(0, |line| place(line) + line.len());
        if let Some(run) = said {
            says(&run, Span { start: place(lines[0]), end });
        }
    }
}

/// The runs of at least [`LEAST_RUN`] letters of base64, of either alphabet. Each step looks from the end of the
/// shortest run back to the first byte that breaks it, so that most bytes of a text are not looked at.
pub(super) fn runs(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut start = 0;
    std::iter::from_fn(move || {
        while let Some(shortest) = bytes.get(start..start + LEAST_RUN) {
            if let Some(last) = shortest.iter().rposition(|byte| !CODE[usize::from(*byte)]) {
                start += last + 1;
                continue;
            }
            let more = bytes[start + LEAST_RUN..].iter().take_while(|byte| CODE[usize::from(**byte)]).count();
            let run = start..start + LEAST_RUN + more;
            start = run.end + 1;
            return text.get(run);
        }
        None
    })
}

/// What a run says, if that is prose; a run may stand for another one.
fn prose_of(run: &str) -> Option<String> {
    let mut said = text_of(run)?;
    for _ in 0..MOST_TIMES {
        let again = said.len() >= LEAST_RUN && said.bytes().all(|byte| CODE[usize::from(byte)]);
        said = if again { text_of(&said)? } else { break };
    }
    super::is_prose(&said).then_some(said)
}

fn text_of(run: &str) -> Option<String> {
    let bytes = from_hex(run).or_else(|| from_base64(run))?;
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        // A run that was cut may end inside a character.
        Err(error) if error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(end);
            String::from_utf8(bytes).ok()
        }
        Err(_) => None,
    }
}

/// The runs that go over several lines, line by line. The first line may begin and the last one may end with other words.
fn wrapped(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let line_end = at + text.get(at..)?.find('\n')?;
            let (lines, behind) = lines_of_code(text, line_end);
            at = behind.max(line_end + 1);
            if lines.len() > 1 && lines.iter().map(|line| line.len()).sum::<usize>() >= LEAST_RUN {
                return Some(lines);
            }
        }
    })
}

/// The lines of a run of which the first one ends at a place, with nothing but blanks between them, and where it ends.
fn lines_of_code(text: &str, line_end: usize) -> (Vec<&str>, usize) {
    let bytes = text.as_bytes();
    let is_code = |byte: &u8| CODE[usize::from(*byte)];
    let is_blank = |byte: &u8| byte.is_ascii_whitespace();
    let line = &bytes[..line_end];
    let mut at = line.iter().rposition(|byte| *byte == b'\n' || !is_blank(byte)).map_or(0, |last| last + 1);
    let start = line[..at].iter().rposition(|byte| !is_code(byte)).map_or(0, |other| other + 1);
    let mut lines: Vec<&str> = text.get(start..at).filter(|line| !line.is_empty()).into_iter().collect();
    while !lines.is_empty() && at - start < 2 * MOST_DECODED {
        let blanks = bytes[at..].iter().take_while(|byte| is_blank(byte)).count();
        let letters = bytes[at + blanks..].iter().take_while(|byte| is_code(byte)).count();
        if letters == 0 || !bytes[at..at + blanks].contains(&b'\n') {
            break;
        }
        at += blanks + letters;
        lines.extend(text.get(at - letters..at));
    }
    (lines, at)
}

/// Whether a byte is a letter of base64, of either alphabet.
static CODE: [bool; 256] = codes();

const fn codes() -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let letter = byte as u8;
        table[byte] = letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'/' | b'-' | b'_' | b'=');
        byte += 1;
    }
    table
}

fn from_hex(run: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = run.chars().map(|letter| letter.to_digit(16)).collect();
    let (pairs, rest) = digits.as_deref()?.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).unwrap_or_default()).collect();
    rest.is_empty().then_some(bytes)
}

/// Leniently: either alphabet, with or without padding, and a run that was cut.
fn from_base64(run: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(run.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in run.bytes().take_while(|letter| *letter != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

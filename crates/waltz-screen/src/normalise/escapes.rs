//! Letters that are written as numbers or names: `\u0069` in JSON and most languages, `&#105;` in HTML, `%69` in
//! addresses. Models and programs read the letter. Where the sign of an escape is itself escaped (`&amp;#105;`,
//! `%2569`), the letter is read all the same.

/// Bytes that are looked at together.
const BLOCK: usize = 64;

/// Names of HTML for what can stand inside a word or between two.
const NAMES: [(&[u8], char); 11] = [
    (b"lt;", '<'),
    (b"gt;", '>'),
    (b"quot;", '"'),
    (b"apos;", '\''),
    (b"nbsp;", '\u{a0}'),
    (b"ensp;", '\u{2002}'),
    (b"emsp;", '\u{2003}'),
    (b"thinsp;", '\u{2009}'),
    (b"shy;", '\u{ad}'),
    (b"zwnj;", '\u{200c}'),
    (b"zwj;", '\u{200d}'),
];

/// Forms in which HTML names letters.
const FORMS: [&[u8]; 14] = [
    b"acute;", b"grave;", b"circ;", b"uml;", b"tilde;", b"ring;", b"cedil;", b"slash;", b"caron;", b"macr;",
    b"breve;", b"opf;", b"scr;", b"fr;",
];

/// Whether a byte begins escapes.
pub(super) fn is_sign(byte: u8) -> bool {
    matches!(byte, b'\\' | b'&' | b'%')
}

/// Whether a text has any escape.
pub(super) fn stand_in(text: &str) -> bool {
    let bytes = text.as_bytes();
    // Without an early way out of a block, so that it is looked at many bytes at a time.
    let has_sign = |block: &[u8]| block.iter().fold(false, |any, byte| any | is_sign(*byte));
    let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| has_sign(block));
    let mut places = blocks.flat_map(|(number, block)| number * BLOCK..number * BLOCK + block.len());
    places.any(|place| is_sign(bytes[place]) && read(&bytes[place..]).is_some())
}

/// The character that stands at the beginning as an escape, and the bytes it takes.
pub(super) fn read(bytes: &[u8]) -> Option<(char, usize)> {
    match bytes.first()? {
        b'\\' => in_code(bytes),
        b'&' => in_page(bytes),
        b'%' => in_address(bytes),
        _ => None,
    }
}

/// `\x69`, `\u{69}`, or `\u0069`, two of them for what one cannot hold.
fn in_code(bytes: &[u8]) -> Option<(char, usize)> {
    if let Some(body) = bytes.strip_prefix(b"\\x") {
        return Some((char::from_u32(number(body.first_chunk::<2>()?, 16)?)?, 4));
    }
    if let Some(body) = bytes.strip_prefix(b"\\u{") {
        let digits = body.iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
        let character = char::from_u32(number(&body[..digits], 16)?)?;
        return (body.get(digits) == Some(&b'}')).then_some((character, digits + 4));
    }
    let unit = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?.first_chunk::<4>()?;
        u16::try_from(number(digits, 16)?).ok()
    };
    let first = unit(bytes)?;
    let pair = [first, bytes.get(6..).and_then(unit).unwrap_or_default()];
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 6 * character.len_utf16()))
}

/// `&#105;`, `&#x69;` with or without the last sign, one of [`NAMES`], or a letter in one of the [`FORMS`].
fn in_page(bytes: &[u8]) -> Option<(char, usize)> {
    let mut body = &bytes[1..];
    while let Some(escaped) = body.strip_prefix(b"amp;") {
        body = escaped;
    }
    let before = bytes.len() - body.len();
    if let Some((name, character)) = NAMES.iter().find(|(name, _)| body.starts_with(name)) {
        return Some((*character, before + name.len()));
    }
    if let Some((letter, width)) = decorated(body) {
        return Some((letter, before + width));
    }
    let sign = (before > 1).then_some(('&', before));
    let Some((character, width)) = numbered(body) else { return sign };
    Some((character, before + width))
}

/// A letter by its name and that of its form: `&oacute;`, `&bopf;`.
fn decorated(body: &[u8]) -> Option<(char, usize)> {
    let letter = body.first().filter(|letter| letter.is_ascii_alphabetic())?;
    let form = FORMS.iter().find(|form| body[1..].starts_with(form))?;
    Some((char::from(*letter), 1 + form.len()))
}

fn numbered(body: &[u8]) -> Option<(char, usize)> {
    let (start, radix) = match body {
        [b'#', b'x' | b'X', ..] => (2, 16),
        [b'#', ..] => (1, 10),
        _ => return None,
    };
    // No number of a character is longer, with a zero or two before it.
    let digits = body[start..].iter().take(8).take_while(|byte| char::from(**byte).is_digit(radix)).count();
    let end = start + digits;
    let character = char::from_u32(number(&body[start..end], radix)?)?;
    Some((character, end + usize::from(body.get(end) == Some(&b';'))))
}

/// `%69`, or the bytes of a longer character in UTF-8.
fn in_address(bytes: &[u8]) -> Option<(char, usize)> {
    let mut utf8 = [0; 4];
    let mut width = 0;
    for count in 0..utf8.len() {
        let (byte, taken) = in_percent(&bytes[width..])?;
        utf8[count] = byte;
        width += taken;
        let text = str::from_utf8(&utf8[..=count]).ok();
        if let Some(character) = text.and_then(|text| text.chars().next()) {
            return Some((character, width));
        }
    }
    None
}

fn in_percent(bytes: &[u8]) -> Option<(u8, usize)> {
    let pair = |digits: &[u8]| number(digits.first_chunk::<2>()?, 16);
    let mut body = bytes.strip_prefix(b"%")?;
    while let Some(escaped) = body.strip_prefix(b"25").filter(|escaped| pair(escaped).is_some()) {
        body = escaped;
    }
    let byte = u8::try_from(pair(body)?).ok()?;
    Some((byte, bytes.len() - body.len() + 2))
}

/// The number that some digits are; a sign before them is none.
fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let all = digits.iter().all(|byte| char::from(*byte).is_digit(radix));
    let digits = str::from_utf8(digits).ok().filter(|_| all)?;
    u32::from_str_radix(digits, radix).ok()
}

//! Letters that are written as numbers, as JSON and most languages do: `\u0069`. Models and programs read the letter.

/// The character that stands at the beginning as an escape, and the bytes it takes.
pub(super) fn read(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |bytes: &[u8]| {
        let digits = bytes.strip_prefix(b"\\u")?.first_chunk::<4>()?;
        let digits =
            str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        u16::from_str_radix(digits?, 16).ok()
    };
    let first = unit(bytes)?;
    let pair = [first, bytes.get(6..).and_then(unit).unwrap_or_default()];
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 6 * character.len_utf16()))
}

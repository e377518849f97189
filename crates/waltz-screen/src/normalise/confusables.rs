//! Letters of other scripts that look like Latin ones, after lower-casing and compatibility
//! decomposition. Compact on purpose: what NFKC already folds (full-width, mathematical, circled
//! letters) is not repeated here. Upper-case doubles (Cyrillic В, Н, Т) are entered in lower case.

/// What the Cherokee letters from U+AB70 on look like, most of which pass for capitals; a dot where it is nothing Latin.
const CHEROKEE: &[u8] = b"drto.ifo.yaje.p....wd.gm...h.y..gnhz..iw.v.eu.4bj.r.wsta.vs..llc..p...kd.g..u.6.";
/// What the letters of Lisu from U+A4D0 on look like: they are Latin capitals, some of them turned.
const LISU: &[u8] = b"bpddt.gkkjcczffmnlsrr.vh..wxybaaeeiou.ld";
/// Letters in black circles, in black squares, and the letters that flags are made of: whole alphabets.
const ALPHABETS: [char; 3] = ['\u{1f150}', '\u{1f170}', REGIONAL_A];
const REGIONAL_A: char = '\u{1f1e6}';

/// The Latin character that this one can pass for.
pub(super) fn fold(character: char) -> Option<char> {
    let latin = match character {
        'а' | 'α' | 'ɑ' | 'ɐ' | 'ᴀ' | 'ⲁ' | 'ᗅ' | 'ᗩ' => 'a',
        'в' | 'β' | 'ʙ' | 'Ь' | 'ь' | 'ƅ' | 'ƀ' | 'ɓ' | 'ⲃ' | 'ᏸ' | 'ᏼ' | 'ᑲ' | 'ᗷ' => 'b',
        'с' | 'ϲ' | 'ᴄ' | 'ⅽ' | 'ȼ' | 'ⲥ' | 'ᑕ' | '𐐽' => 'c',
        'ԁ' | 'ɗ' | 'ɖ' | 'ᴅ' | 'đ' | 'ᑯ' | 'ᗞ' | 'ᗪ' => 'd',
        'е' | 'ε' | 'є' | 'ҽ' | 'ԑ' | 'ᴇ' | 'ɛ' | 'ə' | 'ǝ' | 'ɘ' | 'ɇ' | 'ⲉ' | 'ᕮ' | 'ᗴ' => {
            'e'
        }
        'ғ' | 'ƒ' | 'ꜰ' | 'ϝ' | 'ք' | 'ᖴ' => 'f',
        'ɡ' | 'ɢ' | 'ɠ' | 'ǥ' | 'ƃ' | 'ց' | 'ԍ' | 'ᏻ' | 'ᘜ' => 'g',
        'һ' | 'н' | 'ʜ' | 'հ' | 'η' | 'ħ' | 'ɦ' | 'ⲏ' | 'ᕼ' => 'h',
        'і' | 'ι' | 'ı' | 'ɪ' | 'ɨ' | 'ӏ' | 'ⲓ' => 'i',
        'ј' | 'ϳ' | 'ᴊ' | 'ʝ' | 'ɉ' | 'յ' | 'ᒍ' => 'j',
        'к' | 'κ' | 'ᴋ' | 'қ' | 'ƙ' | 'ʞ' | 'ⲕ' => 'k',
        'ʟ' | 'ł' | 'ⅼ' | 'ƚ' | 'ɫ' | 'ɬ' | 'ɭ' | 'ᒪ' => 'l',
        'м' | 'μ' | 'ᴍ' | 'ɱ' | 'ⲙ' | 'ᗰ' => 'm',
        'п' | 'ɴ' | 'ν' | 'ո' | 'ռ' | 'ɲ' | 'ɳ' | 'ⲛ' | 'ⲡ' | 'ᑎ' => 'n',
        'о' | 'ο' | 'σ' | 'ω' | 'ᴏ' | 'օ' | 'ø' | 'ɵ' | 'ⲟ' | 'ӧ' | 'ჿ' | '𐐬' => 'o',
        'р' | 'ρ' | 'ᴘ' | 'ƥ' | 'ⲣ' | 'ᑭ' => 'p',
        'ԛ' | 'զ' | 'գ' | 'ʠ' | 'ɋ' | 'ꞯ' | 'ϙ' | 'ᑫ' => 'q',
        'г' | 'ʀ' | 'ɾ' | 'ɹ' | 'ɽ' | 'ɍ' | 'ᴦ' | 'ⲅ' | 'ᖇ' => 'r',
        'ѕ' | 'ꜱ' | 'ʂ' | 'ß' | 'տ' | 'ᔑ' | 'ᔕ' | '𐑈' => 's',
        'т' | 'τ' | 'ᴛ' | 'ŧ' | 'ƭ' | 'ʈ' | 'ʇ' | 'ͳ' | 'ⲧ' => 't',
        'υ' | 'ᴜ' | 'ս' | 'ʋ' | 'ʉ' | 'ⴎ' | 'ᑌ' => 'u',
        'ѵ' | 'ᴠ' | 'ⅴ' | 'ʌ' | 'ᐯ' => 'v',
        'ԝ' | 'ш' | 'ᴡ' | 'ɯ' | 'ʍ' | 'ѡ' | 'ա' | 'ⲱ' | 'ᗯ' => 'w',
        'х' | 'χ' | 'ҳ' | 'ⅹ' | 'ⲭ' | '᙭' => 'x',
        'у' | 'γ' | 'ʏ' | 'ү' | 'ʎ' | 'ƴ' | 'ɏ' | 'ⲩ' => 'y',
        'ᴢ' | 'ζ' | 'ʐ' | 'ʑ' | 'ƶ' | 'ȥ' | 'ⲍ' | 'ᘔ' => 'z',
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' | '\u{ff07}' | '\u{2bc}' => '\'',
        '\u{3002}' => '.',
        '\u{1680}' | '\u{2800}' => ' ',
        '\u{85}' | '\u{2028}' | '\u{2029}' => '\n',
        _ => return in_block(character),
    };
    Some(latin)
}

/// The same for scripts of which most letters have a double.
fn in_block(character: char) -> Option<char> {
    let from = |first: char| (u32::from(character)).checked_sub(u32::from(first)).map(|place| place as usize);
    let drawn = |first: char, letters: &[u8]| letters.get(from(first)?).copied();
    let alphabet = |first: char| (b'a'..=b'z').nth(from(first)?);
    let latin = match character {
        '\u{a4d0}'..='\u{a4f7}' => drawn('\u{a4d0}', LISU),
        '\u{ab70}'..='\u{abbf}' => drawn('\u{ab70}', CHEROKEE),
        '\u{1f150}'..='\u{1f1ff}' => ALPHABETS.into_iter().find_map(alphabet),
        _ => None,
    };
    latin.filter(|letter| *letter != b'.').map(char::from)
}

/// Whether it is one of the letters that flags are made of.
pub(super) fn is_regional(character: char) -> bool {
    (REGIONAL_A..='\u{1f1ff}').contains(&character)
}

/// Whether the character belongs to a script whose letters pass for Latin ones, so that a text which
/// is full of letters without a double is recognised as that script and not as a disguise.
pub(super) fn has_doubles(character: char) -> bool {
    matches!(character,
        '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{531}'..='\u{58f}' | '\u{13f8}'..='\u{13fd}'
        | '\u{1400}'..='\u{167f}' | '\u{2c80}'..='\u{2cff}' | '\u{a4d0}'..='\u{a4ff}' | '\u{ab70}'..='\u{abbf}')
}

//! Letters of other scripts that look like Latin ones, after lower-casing and compatibility
//! decomposition. Compact on purpose: what NFKC already folds (full-width, mathematical, circled
//! letters) is not repeated here. Upper-case doubles (Cyrillic В, Н, Т) are entered in lower case.

/// The Latin character that this one can pass for.
pub(super) fn fold(character: char) -> Option<char> {
    let latin = match character {
        'а' | 'α' | 'ɑ' | 'ᴀ' | 'ꭺ' | 'ⲁ' => 'a',
        'в' | 'β' | 'ʙ' | 'Ь' | 'ь' | 'ƅ' | 'ⲃ' | 'ꮟ' => 'b',
        'с' | 'ϲ' | 'ᴄ' | 'ⅽ' | 'ⲥ' | 'ꮯ' => 'c',
        'ԁ' | 'ɗ' | 'ᴅ' | 'đ' | 'ꮷ' => 'd',
        'е' | 'ε' | 'є' | 'ҽ' | 'ᴇ' | 'ɛ' | 'ə' | 'ꭼ' | 'ⲉ' => 'e',
        'ғ' | 'ƒ' | 'ꜰ' | 'ϝ' => 'f',
        'ɡ' | 'ɢ' | 'ց' | 'ԍ' => 'g',
        'һ' | 'н' | 'ʜ' | 'հ' | 'η' | 'ħ' | 'Ꮒ' | 'ꮒ' => 'h',
        'і' | 'ι' | 'ı' | 'ɪ' | 'ӏ' | 'ꭵ' | 'ⲓ' => 'i',
        'ј' | 'ϳ' | 'ᴊ' | 'յ' => 'j',
        'к' | 'κ' | 'ᴋ' | 'қ' | 'ⲕ' => 'k',
        'ʟ' | 'ł' | 'ⅼ' | 'ꮮ' => 'l',
        'м' | 'μ' | 'ᴍ' | 'ⲙ' => 'm',
        'п' | 'ɴ' | 'ν' | 'ո' | 'ⲛ' => 'n',
        'о' | 'ο' | 'σ' | 'ω' | 'ᴏ' | 'օ' | 'ø' | 'ⲟ' | 'ӧ' => 'o',
        'р' | 'ρ' | 'ᴘ' | 'ⲣ' => 'p',
        'ԛ' | 'զ' => 'q',
        'г' | 'ʀ' | 'ɾ' | 'ᴦ' => 'r',
        'ѕ' | 'ꜱ' | 'ʂ' | 'ꮪ' => 's',
        'т' | 'τ' | 'ᴛ' | 'ŧ' | 'ⲧ' => 't',
        'υ' | 'ᴜ' | 'ս' | 'ʋ' => 'u',
        'ѵ' | 'ᴠ' | 'ⅴ' | 'ꮩ' => 'v',
        'ԝ' | 'ш' | 'ᴡ' | 'ɯ' | 'ѡ' => 'w',
        'х' | 'χ' | 'ҳ' | 'ⅹ' | 'ⲭ' => 'x',
        'у' | 'γ' | 'ʏ' | 'ү' | 'ⲩ' => 'y',
        'ᴢ' | 'ζ' | 'ʐ' => 'z',
        'ß' => 's',
        '\u{2018}' | '\u{2019}' | '\u{201b}' | '\u{2032}' | '\u{ff07}' | '\u{2bc}' => '\'',
        '\u{3002}' => '.',
        _ => return None,
    };
    Some(latin)
}

/// Whether the character belongs to a script whose letters pass for Latin ones, so that a text which
/// is full of letters without a double is recognised as that script and not as a disguise.
pub(super) fn has_doubles(character: char) -> bool {
    matches!(character, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{531}'..='\u{58f}')
}

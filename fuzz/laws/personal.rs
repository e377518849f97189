//! Laws of taking personal data out of any text and putting it back.

use std::borrow::Cow;

use waltz_screen::{Around, HashKey, Restorer, Vault, find_pii, replace};

/// The first byte says how a stream of the text is cut.
pub fn law(data: &[u8]) {
    let (size, rest) =
        data.split_first().map_or((1, data), |(size, rest)| (usize::from(*size) % 16 + 1, rest));
    let text = String::from_utf8_lossy(rest);
    let found = find_pii(&text);
    let mut position = 0;
    for finding in &found {
        let span = finding.span;
        assert!(position <= span.start && span.start < span.end, "{finding:?}");
        assert!(text.get(span.start..span.end).is_some(), "{finding:?} lies on letters");
        assert!((0.0..=1.0).contains(&finding.score), "{finding:?}");
        position = span.end;
    }
    let key = HashKey::new(b"a key of the law");
    let hashed = replace(&text, &found, |finding, value| Some(Cow::Owned(key.token(finding.kind, value))));
    assert_eq!(hashed == text, found.is_empty(), "what is found is replaced");
    coming_back(&text, size);
}

/// What was taken out comes back, at once and in pieces.
fn coming_back(text: &str, size: usize) {
    let mut vault = Vault::default();
    vault.reserve(text);
    let found = find_pii(text);
    let sent =
        replace(text, &found, |finding, value| Some(Cow::Owned(vault.put(finding.kind, value).to_owned())));
    assert_eq!(vault.is_empty(), found.is_empty());
    assert_eq!(vault.restore(&sent, Around::Text), text, "nothing is lost on the way");
    let mut restorer = Restorer::default();
    let mut whole = String::new();
    let letters: Vec<char> = sent.chars().collect();
    for piece in letters.chunks(size) {
        whole.push_str(&restorer.push(&vault, &piece.iter().collect::<String>(), Around::Text));
    }
    whole.push_str(&restorer.finish());
    assert_eq!(whole, text, "pieces of {size} letters");
}

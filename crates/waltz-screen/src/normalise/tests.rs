use proptest::prelude::*;

use super::*;

fn text(original: &str) -> String {
    normalise(original).text
}

#[test]
fn plain_ascii_is_lowered_and_keeps_its_places() {
    let view = normalise("Hello World");
    assert_eq!(view.text, "hello world");
    assert_eq!(view.span(6..11), Span { start: 6, end: 11 });
    assert!(!view.disguised);
}

#[test]
fn disguises_read_like_the_plain_word() {
    for disguised in [
        "h\u{200b}a\u{200d}c\u{ad}k",
        "ｈａｃｋ",
        "𝐡𝐚𝐜𝐤",
        "ⓗⓐⓒⓚ",
        "hасk",
        "h\u{301}a\u{302}c\u{336}k\u{20dd}",
        "há\u{327}çk",
        "ha\u{0}ck",
        "ha\u{e0020}ck",
        "\u{feff}hack",
        "Ꮒꭺꮯꮶ",
        "ꓧꓮꓚꓗ",
        "ᕼᗩᑕK",
        "🅗🅐🅒🅚",
        "h🅰ck",
        "🇭\u{200b}🇦\u{200b}🇨\u{200b}🇰",
        "h🇦ck",
        "h&#97;c&#x6B;",
        "h&amp;#97ck",
        "h&shy;ack",
        "%68ac%6b",
        "h%2561ck",
    ] {
        assert_eq!(text(disguised).lines().next(), Some("hack"), "{disguised:?}");
    }
}

#[test]
fn hidden_text_is_moved_to_its_own_line() {
    let smuggled = "ok\u{e0068}\u{e0069} then";
    let view = normalise(smuggled);
    assert_eq!(view.text, "ok then\n\nhi");
    assert!(view.disguised);
    assert_eq!(view.span(9..11), Span { start: 2, end: 10 });
}

#[test]
fn an_override_is_read_backwards_too() {
    assert!(text("\u{202e}kcah\u{202c} done").contains("\nhack"));
}

#[test]
fn spans_cover_whole_characters() {
    let original = "x ｈａｃｋ y";
    let view = normalise(original);
    let span = view.span(2..6);
    assert_eq!(&original[span.start..span.end], "ｈａｃｋ");
}

#[test]
fn other_scripts_keep_their_marks() {
    assert_eq!(text("हिन्दी"), "हिन्दी");
}

#[test]
fn ordinary_accents_are_no_disguise() {
    assert!(!normalise("déjà vu à l’été, crème brûlée").disguised);
    assert!(normalise("ｈｏｗ ｔｏ").disguised);
    assert!(normalise("h\u{336}e\u{336}l\u{336}l\u{336}o").disguised);
}

proptest! {
    #[test]
    fn any_span_is_inside_and_on_boundaries(original in "\\PC{0,40}|[\u{0}-\u{10ffff}]{0,40}", cut in 0.0_f64..1.0) {
        let view = normalise(&original);
        let start = (view.text.len() as f64 * cut) as usize;
        for end in start..=view.text.len() {
            let span = view.span(start..end);
            prop_assert!(span.start <= span.end && span.end <= original.len());
            prop_assert!(original.is_char_boundary(span.start) && original.is_char_boundary(span.end));
        }
    }

    #[test]
    fn invisible_characters_change_nothing(word in "[a-z]{1,12}", at in 0_usize..12, filler in "[\u{200b}-\u{200d}\u{ad}\u{feff}\u{2060}]") {
        let at = at.min(word.len());
        let split = format!("{}{filler}{}", &word[..at], &word[at..]);
        prop_assert_eq!(text(&split), word);
    }
}

#[test]
fn escapes_are_read_as_what_they_stand_for() {
    for (text, read) in [
        (r"I will k\u0069ll", "i will kill"),
        (r"\u0041\u00e9 \ud83d\ude00.", "ae \u{1f600}."),
        (r"C:\users\u12 \ud800 \u00g0 \\u", r"c:\users\u12 \ud800 \u00g0 \\u"),
        ("a &amp;lt; b &amp; c &quot;d&#39; &#0065;", "a < b & c \"d' a"),
        ("R&D; &#; &#x; &#xd800; &#99999999; &# &", "r&d; &#; &#x; &#xd800; &#99999999; &# &"),
        ("caf%C3%A9%20%25 %e2%82%ac", "cafe % €"),
        ("7.5 % of 100%, %zz %c3 %4", "7.5 % of 100%, %zz %c3 %4"),
    ] {
        assert_eq!(normalise(text).text, read);
    }
    let text = r"so \u006b\u0069ll\u0021";
    let normalised = normalise(text);
    let place = normalised.span(3..8);
    assert_eq!(&text[place.start..place.end], r"\u006b\u0069ll\u0021");
    for text in ["so k&#105;ll&#x21;.", "so %6bill%C3%A9.", "so k&amp;amp;#105ll&lt;."] {
        let place = normalise(text).span(3..8);
        assert_eq!(&text[place.start..place.end], &text[3..text.len() - 1]);
    }
}

#[test]
fn regional_letters_are_read_and_flags_are_not() {
    assert_eq!(text("🇭🇦🇨🇰 it").trim(), "hack  it");
    assert_eq!(text("go🇺🇸"), "go 🇺🇸 ");
    assert_eq!(text("bomb🇺🇸🇩🇪").split(' ').next(), Some("bomb"));
    assert!(!normalise("I love 🇺🇸 and 🇫🇷").disguised);
}

use proptest::prelude::*;

use super::*;

fn kinds(text: &str) -> Vec<(PiiKind, &str)> {
    find_pii(text).iter().map(|found| (found.kind, &text[found.span.start..found.span.end])).collect()
}

#[test]
fn each_sort_is_found_where_it_stands() {
    for (text, kind, value) in [
        ("write to jane.doe+x@mail.example.org now", PiiKind::Email, "jane.doe+x@mail.example.org"),
        ("call +49 30 901820 today", PiiKind::Phone, "+49 30 901820"),
        ("call (415) 555-2671 today", PiiKind::Phone, "(415) 555-2671"),
        ("call 415-555-2671", PiiKind::Phone, "415-555-2671"),
        ("card 4111 1111 1111 1111.", PiiKind::Card, "4111 1111 1111 1111"),
        ("card 378282246310005", PiiKind::Card, "378282246310005"),
        ("IBAN DE89 3704 0044 0532 0130 00 please", PiiKind::Iban, "DE89 3704 0044 0532 0130 00"),
        ("iban GB82WEST12345698765432", PiiKind::Iban, "GB82WEST12345698765432"),
        ("ssn 536-22-1876", PiiKind::Ssn, "536-22-1876"),
        ("host 192.168.17.4 is up", PiiKind::Ipv4, "192.168.17.4"),
        ("key sk-abcdefghij0123456789abcd", PiiKind::ApiKey, "sk-abcdefghij0123456789abcd"),
        ("AKIAIOSFODNN7EXAMPLE", PiiKind::ApiKey, "AKIAIOSFODNN7EXAMPLE"),
        ("xoxb-123456789012-abcdef", PiiKind::ApiKey, "xoxb-123456789012-abcdef"),
        (
            "t eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123456 x",
            PiiKind::Jwt,
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123456",
        ),
        ("password: hunter2!x", PiiKind::Password, "hunter2!x"),
        ("\"password\": \"s3cr3t!\"", PiiKind::Password, "s3cr3t!"),
        ("my password is tr0ub4dor", PiiKind::Password, "tr0ub4dor"),
    ] {
        let found = kinds(text);
        assert_eq!(
            found.first().map(|(kind, value)| (*kind, value.trim_end_matches('!'))),
            Some((kind, value.trim_end_matches('!'))),
            "{text}: {found:?}"
        );
    }
    let pem = "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----\ny";
    assert_eq!(mask(pem).text, "x\n[PRIVATE_KEY]\ny");
}

#[test]
fn persons_and_addresses_are_known_by_the_words_around_them() {
    for (text, masked) in [
        ("Hello, my name is Jane van der Berg and I", "Hello, my name is [PERSON] and I"),
        ("Dear Mrs. O'Brien,", "Dear Mrs. [PERSON],"),
        ("seen by Dr. Élodie M. García-Lopez.", "seen by Dr. [PERSON]."),
        ("\"first_name: Omar\"", "\"first_name: [PERSON]\""),
        ("I live at 12 Long Hill Street, Apt. 4 now", "I live at [ADDRESS] now"),
        ("221B Baker Street", "[ADDRESS]"),
        ("Büro: Hauptstraße 12a, Berlin", "Büro: [ADDRESS], Berlin"),
        ("send it to PO Box 1225 please", "send it to [ADDRESS] please"),
        ("if name is None: return", "if name is None: return"),
        ("the name is Required", "the name is Required"),
        ("Dear Sir or Madam", "Dear Sir or Madam"),
        ("Wall Street fell 12 points", "Wall Street fell 12 points"),
        ("version 1.2 Oak Streetlight", "version 1.2 Oak Streetlight"),
    ] {
        assert_eq!(mask(text).text, masked, "{text}");
    }
}

#[test]
fn what_is_found_does_not_depend_on_where_it_stands() {
    for value in [
        "jane@example.org",
        "4111 1111 1111 1111",
        "GB82WEST12345698765432",
        "192.168.17.4",
        // With one digit each, before all of their letters or behind them.
        "0xabcdefabcdefabcdefabcdefabcdefabcdefabcd",
        "1a:bb:cc:dd:ee:ff",
        "ff:ee:dd:cc:bb:a1",
        "fe80::abcd:dcba",
    ] {
        let expected = kinds(value);
        assert_eq!(expected.len(), 1, "{value}");
        for offset in 0..200 {
            let before = &"words and more of them ".repeat(9)[..offset];
            let text =
                format!("{before} {value} and some more words that follow it to their end without a number");
            assert_eq!(kinds(&text), expected, "{text}");
        }
    }
}

#[test]
fn what_the_eye_cannot_see_hides_nothing() {
    for (text, masked) in [
        ("card 4111\u{200b}1111\u{200b}1111\u{200b}1111 ok", "card [CARD] ok"),
        ("card ４１１１ １１１１ １１１１ １１１１ ok", "card [CARD] ok"),
        ("é 4111\u{a0}1111\u{a0}1111\u{a0}1111 é", "é [CARD] é"),
        ("jane＠example.org schreibt", "[EMAIL] schreibt"),
        ("ssn 536\u{2011}22\u{2011}1876 – so", "ssn [SSN] – so"),
        ("key sk-abc\u{ad}defghij0123456789abcd!", "key [API_KEY]!"),
    ] {
        assert_eq!(mask(text).text, masked, "{text}");
    }
}

#[test]
fn other_numbers_and_words_are_left_alone() {
    for text in [
        "in 2024 we sold 1,234,567 units",
        "version 1.2.3 and 10.20.30",
        "order 4111 1111 1111 1112",
        "pi is 3.14159265358979",
        "ssn 000-12-3456 and 123-45-6789",
        "300.1.1.1 is no address",
        "the password is stored in a hash",
        "password: null",
        "reset your password here",
        "a task-based approach with sk-learn",
        "let password = read_password();",
        "DE89 3704 0044 0532 0130 01",
        "@everyone look at this",
        "2024-01-15 10:30:00",
        "the range 100-200-300",
    ] {
        assert!(kinds(text).is_empty(), "{text}: {:?}", kinds(text));
    }
}

#[test]
fn a_card_is_found_beside_other_numbers() {
    for (text, masked) in [
        ("4111 1111 1111 1111 12/27", "[CARD] 12/27"),
        ("card 4111111111111111 12/27 123", "card [CARD] 12/27 123"),
        ("4111 1111 1111 1111 0827 123", "[CARD] 0827 123"),
        ("3782 822463 10005 1234", "[CARD] 1234"),
        ("4111-1111-1111-1111 08/26", "[CARD] 08/26"),
        ("7 4111 1111 1111 1111", "7 [CARD]"),
        ("12 4111111111111111", "12 [CARD]"),
        ("01234.4111 1111 1111 1111", "01234.[CARD]"),
        ("01234.4111111111111111", "01234.[CARD]"),
        ("4111 1111 1111 1111.5 units", "[CARD].5 units"),
        ("4111111111111111.2024", "[CARD].2024"),
        ("a/1/4111 1111 1111 1111/b", "a/1/[CARD]/b"),
        ("4111 1111 1111 1111 5500 0055 5555 5559", "[CARD] [CARD]"),
        ("paid 41111 11111 11111 1", "paid [CARD]"),
    ] {
        assert_eq!(mask(text).text, masked, "{text}");
    }
}

#[test]
fn fractions_tables_and_longer_numbers_are_no_cards() {
    for text in [
        "0.4532015112830366",
        "1.4111111111111111",
        "12.345e-7 and -0.4111111111111111",
        "4111111111111111.5",
        "version 1.4111111111111111.2",
        "1234 4111 1111 1111 1111 1234",
        "id 12-4111-1111-1111-1111",
        "id 4111-1111-1111-1111-12",
        "x4111 1111 1111 1111",
        "4111 1111-1111 1111 12",
        "/orders/2/4111111111111111",
    ] {
        assert!(kinds(text).iter().all(|(kind, _)| *kind != PiiKind::Card), "{text}: {:?}", kinds(text));
    }
}

#[test]
fn masking_keeps_the_rest() {
    let masked = mask("Jane <jane@example.org>, 415-555-2671.");
    assert_eq!(masked.text, "Jane <[EMAIL]>, [PHONE].");
    assert_eq!(masked.found.len(), 2);
}

#[test]
fn of_two_that_overlap_the_surer_stays() {
    let finding = |kind, start, end, score| PiiFinding { kind, span: Span { start, end }, score };
    let kept = resolve(vec![
        finding(PiiKind::Phone, 0, 10, 0.7),
        finding(PiiKind::Card, 5, 20, 1.0),
        finding(PiiKind::Email, 20, 30, 0.9),
    ]);
    assert_eq!(kept.iter().map(|found| found.kind).collect::<Vec<_>>(), [PiiKind::Card, PiiKind::Email]);
}

/// A card number of Visa or Mastercard from fifteen digits, with its check digit.
fn card(fifteen: &str) -> String {
    let numbers =
        |digit: char| format!("{fifteen}{digit}").bytes().map(|byte| byte - b'0').collect::<Vec<_>>();
    let last = ('0'..='9').find(|digit| checks::card_issuer(&numbers(*digit)).is_some());
    format!("{fifteen}{}", last.unwrap())
}

proptest! {
    /// Whatever stands beside it, a card does not get through.
    #[test]
    fn no_card_gets_through(
        fifteen in "4[0-9]{13}[1-9]|5[1-5][0-9]{12}[1-9]",
        grouped in prop::option::of("[ -]"),
        before in "(card |7 |12 |[0-9]{5}\\.|see a/1\\.: |[0-9]{3} ){0,2}",
        after in "( 12/27|[.,] | [0-9]{3}| [0-9]{4}|\\. [0-9]{2}|\n[0-9]{4} ){0,2}",
    ) {
        let number = card(&fifteen);
        let written = match &grouped {
            Some(sign) => [&number[..4], &number[4..8], &number[8..12], &number[12..]].join(sign),
            None => number,
        };
        let text = format!("{before}{written}{after}");
        let masked = mask(&text).text;
        prop_assert!(!masked.contains(&written), "{} in {}", written, masked);
    }

    /// A number with a fraction is not taken for a card, even where its digits would be one.
    #[test]
    fn no_fraction_is_masked(fifteen in "4[0-9]{13}[1-9]", whole in "-?[0-9]", any in -1e6..1e6) {
        let text = format!("{whole}.{} and {any}", card(&fifteen));
        prop_assert!(kinds(&text).iter().all(|(kind, _)| *kind != PiiKind::Card), "{}", text);
    }

    #[test]
    fn masked_text_holds_no_finding(
        before in "[a-zA-Z ,.]{0,20}",
        user in "[a-z]{3,10}",
        digits in "[2-9][0-9]{2}-[2-9][0-9]{2}-[0-9]{4}",
    ) {
        let text = format!("{before} {user}@example.com {digits} end");
        let masked = mask(&text);
        for found in &masked.found {
            let value = &text[found.span.start..found.span.end];
            prop_assert!(!masked.text.contains(value), "{} in {}", value, masked.text);
        }
        prop_assert!(masked.found.len() >= 2);
    }

    #[test]
    fn any_text_can_be_masked(text in "\\PC{0,60}|[a-z@.+0-9: =-]{0,60}") {
        let masked = mask(&text);
        let mut position = 0;
        for found in &masked.found {
            prop_assert!(found.span.start >= position && found.span.start < found.span.end);
            prop_assert!(text.is_char_boundary(found.span.start) && text.is_char_boundary(found.span.end));
            position = found.span.end;
        }
        prop_assert!(position <= text.len());
    }
}

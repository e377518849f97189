use proptest::prelude::*;

use super::*;

fn kinds(text: &str) -> Vec<(PiiKind, &str)> {
    find_pii(text).iter().map(|found| (found.kind, &text[found.span.start..found.span.end])).collect()
}

#[test]
fn each_sort_is_found_where_it_stands() {
    for (text, kind, value) in [
        ("write to jane.doe+x@mail.harbour.org now", PiiKind::Email, "jane.doe+x@mail.harbour.org"),
        ("call +49 30 901820 today", PiiKind::Phone, "+49 30 901820"),
        ("call (415) 555-2671 today", PiiKind::Phone, "(415) 555-2671"),
        ("call 415-555-2671", PiiKind::Phone, "415-555-2671"),
        ("card 4539 1488 0343 6467.", PiiKind::Card, "4539 1488 0343 6467"),
        ("card 374512345678900", PiiKind::Card, "374512345678900"),
        ("IBAN DE89 3704 0044 0532 0130 00 please", PiiKind::Iban, "DE89 3704 0044 0532 0130 00"),
        ("iban GB82WEST12345698765432", PiiKind::Iban, "GB82WEST12345698765432"),
        ("ssn 536-22-1876", PiiKind::Ssn, "536-22-1876"),
        ("host 192.168.17.4 is up", PiiKind::Ipv4, "192.168.17.4"),
        ("key sk-abcdefghij0123456789abcd", PiiKind::ApiKey, "sk-abcdefghij0123456789abcd"),
        ("AKIAQ3EGRSTUV7WXYZ2B", PiiKind::ApiKey, "AKIAQ3EGRSTUV7WXYZ2B"),
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

/// A value in parts, so that no scanner takes it for a secret.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

#[test]
fn secrets_are_known_by_their_name_and_their_form() {
    let run = joined(&["q7Rk2Zp9", "Lm4Xw8Tn1", "Vb6Yc3Hd5"]);
    let base64 = joined(&["k3Jv8sQ1", "zXo7+tR2/", "bN5mY9wE4", "cL6pH0aG=="]);
    let (mail, host) = (joined(&["SG.", &run, ".", &run, &run]), joined(&["hooks.slack.com/", "services/"]));
    let pgp = joined(&[
        "-----BEGIN PGP PRIVATE ",
        "KEY BLOCK-----\n\nlQPGBF",
        "\n-----END PGP PRIVATE ",
        "KEY BLOCK-----",
    ]);
    for (text, masked) in [
        (format!("aws_secret_access_key = {base64}"), "aws_secret_access_key = [API_KEY]"),
        (format!("AWS_SECRET_ACCESS_KEY={base64}"), "AWS_SECRET_ACCESS_KEY=[API_KEY]"),
        (format!("\"client_secret\": \"{run}\","), "\"client_secret\": \"[API_KEY]\","),
        (format!("clientSecret: '{run}'"), "clientSecret: '[API_KEY]'"),
        (format!("Authorization: Bearer {run}"), "Authorization: Bearer [API_KEY]"),
        (format!("key {mail} for mail"), "key [API_KEY] for mail"),
        (joined(&["whsec_", &run, " hook"]), "[API_KEY] hook"),
        (
            format!("AccountName=a;AccountKey={base64};EndpointSuffix=b"),
            "AccountName=a;AccountKey=[API_KEY];EndpointSuffix=b",
        ),
        (format!("https://{host}T0Q4RK2ZP/B0LM4XW8T/{run}"), "https://[API_KEY]"),
        (format!("x\n{pgp}\ny"), "x\n[PRIVATE_KEY]\ny"),
        ("card 4539.1488.0343.6467 ok".to_owned(), "card [CARD] ok"),
        ("https://a.org/?to=jane%40harbour.org&x=1".to_owned(), "https://a.org/?to=[EMAIL]&x=1"),
        (format!("DB_PASSWORD={run}"), "DB_PASSWORD=[PASSWORD]"),
    ] {
        assert_eq!(mask(&text).text, masked, "{text}");
    }
}

#[test]
fn what_documentation_prints_is_nobodys() {
    let stripe = joined(&["sk_test_", "4eC39HqLyjWDar", "jtT1zdp7dc"]);
    let github = joined(&["ghp_", "16C7e42F292c6912E", "7710c838347Ae178B4a"]);
    let amazon = joined(&["wJalrXUtnFEMI/K7MDENG", "/bPxRfiCYEXAMPLEKEY"]);
    let plain = [
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        format!("aws_secret_access_key = {amazon}"),
        format!("stripe.api_key = \"{stripe}\""),
        format!("curl -H 'Authorization: Bearer {github}'"),
        "Use the test card 4242 4242 4242 4242 or 4111 1111 1111 1111, or 4111.1111.1111.1111.".to_owned(),
        "American Express: 378282246310005, 371449635398431".to_owned(),
        "postgres://user:password@localhost:5432/mydb".to_owned(),
        "postgresql://app:s3cr3t@127.0.0.1/app".to_owned(),
        "mongodb://root:example@mongo:27017/".to_owned(),
        "amqp://guest:guest@rabbitmq:5672".to_owned(),
        "https://user:pa55word@example.com/".to_owned(),
        "mail jane@example.com or ops@mail.example.org".to_owned(),
        "call 212-555-0123 or (415) 555-0199".to_owned(),
        "hosts 192.0.2.14, 198.51.100.7 and 203.0.113.200".to_owned(),
        "2001:db8:85a3:8d3:1319:8a2e:370:7348".to_owned(),
        "password: changeme".to_owned(),
        "password = \"your_password_here\"".to_owned(),
        "PASSWORD=${DB_PASSWORD} client_secret=<token> api_key: xxxxxxxxxxxxxxxx".to_owned(),
        "Authorization: Bearer <token>".to_owned(),
        "client_secret = \"YOUR_CLIENT_SECRET_123\"".to_owned(),
        joined(&["https://hooks.slack.com/", "services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX"]),
        "The secret: a slow rise of 24 hours, and the access_key=config.key_2 of a lock".to_owned(),
    ];
    for text in plain {
        assert_eq!(kinds(&text), [], "{text}");
    }
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
        "jane@harbour.org",
        "4539 1488 0343 6467",
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
        ("card 4539\u{200b}1488\u{200b}0343\u{200b}6467 ok", "card [CARD] ok"),
        ("card ４５３９ １４８８ ０３４３ ６４６７ ok", "card [CARD] ok"),
        ("é 4539\u{a0}1488\u{a0}0343\u{a0}6467 é", "é [CARD] é"),
        ("jane＠harbour.org schreibt", "[EMAIL] schreibt"),
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
        "order 4539 1488 0343 6468",
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
        ("4539 1488 0343 6467 12/27", "[CARD] 12/27"),
        ("card 4539148803436467 12/27 123", "card [CARD] 12/27 123"),
        ("4539 1488 0343 6467 0827 123", "[CARD] 0827 123"),
        ("3745 123456 78900 1234", "[CARD] 1234"),
        ("4539-1488-0343-6467 08/26", "[CARD] 08/26"),
        ("7 4539 1488 0343 6467", "7 [CARD]"),
        ("12 4539148803436467", "12 [CARD]"),
        ("01234.4539 1488 0343 6467", "01234.[CARD]"),
        ("01234.4539148803436467", "01234.[CARD]"),
        ("4539 1488 0343 6467.5 units", "[CARD].5 units"),
        ("4539148803436467.2024", "[CARD].2024"),
        ("a/1/4539 1488 0343 6467/b", "a/1/[CARD]/b"),
        ("4539 1488 0343 6467 5361 0700 5550 1238", "[CARD] [CARD]"),
        ("paid 45391 48803 43646 7", "paid [CARD]"),
    ] {
        assert_eq!(mask(text).text, masked, "{text}");
    }
}

#[test]
fn fractions_tables_and_longer_numbers_are_no_cards() {
    for text in [
        "0.4532015112830366",
        "1.4539148803436467",
        "12.345e-7 and -0.4539148803436467",
        "4539148803436467.5",
        "version 1.4539148803436467.2",
        "1234 4539 1488 0343 6467 1234",
        "id 12-4539-1488-0343-6467",
        "id 4539-1488-0343-6467-12",
        "x4539 1488 0343 6467",
        "4539 1488-0343 6467 12",
        "/orders/2/4539148803436467",
    ] {
        assert!(kinds(text).iter().all(|(kind, _)| *kind != PiiKind::Card), "{text}: {:?}", kinds(text));
    }
}

#[test]
fn masking_keeps_the_rest() {
    let masked = mask("Jane <jane@harbour.org>, 415-555-2671.");
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
        let text = format!("{before} {user}@harbour.com {digits} end");
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

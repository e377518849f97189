//! Checks that tell a real number from any other: check digits and rules of issue.

/// Luhn's check over the digits, and a length and prefix that a card issuer uses.
pub(super) fn is_card(digits: &[u8]) -> bool {
    let value =
        |count: usize| digits.iter().take(count).fold(0_u32, |sum, digit| sum * 10 + u32::from(*digit));
    let known = match digits.len() {
        13 => value(1) == 4,
        14 => matches!(value(3), 300..=305) || matches!(value(2), 36 | 38 | 39),
        15 => matches!(value(2), 34 | 37),
        16 => {
            value(1) == 4
                || matches!(value(2), 51..=55 | 62 | 65)
                || matches!(value(4), 2221..=2720 | 3528..=3589 | 6011)
                || matches!(value(3), 644..=649)
                || matches!(value(2), 50 | 56..=58 | 60 | 63 | 67..=69)
        }
        17 | 18 => matches!(value(2), 62 | 50 | 56..=58 | 63 | 67..=69),
        19 => value(1) == 4 || matches!(value(2), 62 | 50 | 56..=58 | 63 | 67..=69),
        _ => false,
    };
    let all_equal = digits.windows(2).all(|pair| pair[0] == pair[1]);
    known && !all_equal && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let mut sum = 0_u32;
    for (index, digit) in digits.iter().rev().enumerate() {
        let doubled = u32::from(*digit) * if index % 2 == 1 { 2 } else { 1 };
        sum += doubled / 10 + doubled % 10;
    }
    sum.is_multiple_of(10)
}

/// An IBAN without blanks: the country's length, and 1 as the remainder by 97.
pub(super) fn is_iban(iban: &str) -> bool {
    let Some(country) = iban.get(..2) else { return false };
    let length = IBAN_LENGTHS.iter().find(|(code, _)| *code == country).map(|(_, length)| *length);
    if length != Some(iban.len()) {
        return false;
    }
    let rotated = iban.bytes().skip(4).chain(iban.bytes().take(4));
    let mut remainder = 0_u32;
    for byte in rotated {
        remainder = match byte {
            b'0'..=b'9' => (remainder * 10 + u32::from(byte - b'0')) % 97,
            b'A'..=b'Z' => (remainder * 100 + u32::from(byte - b'A') + 10) % 97,
            _ => return false,
        };
    }
    remainder == 1
}

/// Length of an IBAN by country, from the SWIFT registry.
const IBAN_LENGTHS: [(&str, usize); 78] = [
    ("AD", 24),
    ("AE", 23),
    ("AL", 28),
    ("AT", 20),
    ("AZ", 28),
    ("BA", 20),
    ("BE", 16),
    ("BG", 22),
    ("BH", 22),
    ("BR", 29),
    ("BY", 28),
    ("CH", 21),
    ("CR", 22),
    ("CY", 28),
    ("CZ", 24),
    ("DE", 22),
    ("DK", 18),
    ("DO", 28),
    ("EE", 20),
    ("EG", 29),
    ("ES", 24),
    ("FI", 18),
    ("FO", 18),
    ("FR", 27),
    ("GB", 22),
    ("GE", 22),
    ("GI", 23),
    ("GL", 18),
    ("GR", 27),
    ("GT", 28),
    ("HR", 21),
    ("HU", 28),
    ("IE", 22),
    ("IL", 23),
    ("IQ", 23),
    ("IS", 26),
    ("IT", 27),
    ("JO", 30),
    ("KW", 30),
    ("KZ", 20),
    ("LB", 28),
    ("LC", 32),
    ("LI", 21),
    ("LT", 20),
    ("LU", 20),
    ("LV", 21),
    ("LY", 25),
    ("MC", 27),
    ("MD", 24),
    ("ME", 22),
    ("MK", 19),
    ("MR", 27),
    ("MT", 31),
    ("MU", 30),
    ("NL", 18),
    ("NO", 15),
    ("PK", 24),
    ("PL", 28),
    ("PS", 29),
    ("PT", 25),
    ("QA", 29),
    ("RO", 24),
    ("RS", 22),
    ("SA", 24),
    ("SC", 31),
    ("SD", 18),
    ("SE", 24),
    ("SI", 19),
    ("SK", 24),
    ("SM", 27),
    ("ST", 25),
    ("SV", 28),
    ("TL", 23),
    ("TN", 24),
    ("TR", 26),
    ("UA", 29),
    ("VA", 22),
    ("VG", 24),
];

/// A social security number that can have been issued and is not a well-known specimen.
pub(super) fn is_ssn(area: u32, group: u32, serial: u32) -> bool {
    let issued = !matches!(area, 0 | 666 | 900..=999) && group != 0 && serial != 0;
    let specimen = matches!((area, group, serial), (78, 5, 1120) | (219, 9, 9999) | (123, 45, 6789));
    let all_equal = matches!(
        (area, group, serial),
        (111, 11, 1111)
            | (222, 22, 2222)
            | (333, 33, 3333)
            | (444, 44, 4444)
            | (555, 55, 5555)
            | (777, 77, 7777)
            | (888, 88, 8888)
    );
    issued && !specimen && !all_equal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(text: &str) -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_digit).map(|byte| byte - b'0').collect()
    }

    #[test]
    fn cards_need_check_digit_and_issuer() {
        assert!(is_card(&digits("4111 1111 1111 1111")));
        assert!(is_card(&digits("378282246310005")));
        assert!(!is_card(&digits("4111 1111 1111 1112")));
        assert!(!is_card(&digits("0000 0000 0000 0000")));
        assert!(!is_card(&digits("1234567890123452")));
    }

    #[test]
    fn ibans_need_length_and_remainder() {
        assert!(is_iban("GB82WEST12345698765432"));
        assert!(is_iban("DE89370400440532013000"));
        assert!(!is_iban("DE89370400440532013001"));
        assert!(!is_iban("DE8937040044053201300"));
        assert!(!is_iban("XX"));
    }

    #[test]
    fn social_security_numbers_follow_the_rules_of_issue() {
        assert!(is_ssn(536, 22, 1876));
        assert!(!is_ssn(0, 22, 1876));
        assert!(!is_ssn(666, 22, 1876));
        assert!(!is_ssn(901, 22, 1876));
        assert!(!is_ssn(78, 5, 1120));
        assert!(!is_ssn(536, 0, 1876));
    }
}

//! Checks that tell a real number from any other: check digits and rules of issue.

use waltz_exchange::id::sha256;

/// How common the cards of an issuer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Issuer {
    /// Most cards are of these lengths and prefixes.
    Usual,
    /// Few cards are, and many other numbers.
    Rare,
}

/// Luhn's check over the digits, and the issuer that uses their length and prefix.
pub(super) fn card_issuer(digits: &[u8]) -> Option<Issuer> {
    let value = |count: usize| number(&digits[..count.min(digits.len())]);
    let maestro = matches!(value(2), 50 | 56..=58 | 60 | 63 | 67..=69) || value(4) == 604;
    let usual = match digits.len() {
        14 => matches!(value(3), 300..=305) || matches!(value(2), 36 | 38 | 39),
        15 => matches!(value(2), 34 | 37),
        16 => {
            value(1) == 4
                || matches!(value(2), 51..=55 | 62 | 65)
                || matches!(value(4), 2221..=2720 | 3528..=3589 | 6011)
                || matches!(value(3), 644..=649)
        }
        _ => false,
    };
    let rare = match digits.len() {
        13 | 19 => value(1) == 4 || value(2) == 62 || maestro,
        15 => matches!(value(4), 1800 | 2131) || maestro,
        16 => value(2) == 35 || maestro,
        17 | 18 => value(2) == 62 || maestro,
        12 | 14 => maestro,
        _ => false,
    };
    if !(usual || rare) || all_equal(digits) || !luhn(digits) {
        return None;
    }
    Some(if usual { Issuer::Usual } else { Issuer::Rare })
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

/// The number that some digits make.
fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(*digit))
}

fn all_equal(digits: &[u8]) -> bool {
    digits.windows(2).all(|pair| pair[0] == pair[1])
}

/// A social security number that can have been issued and is not a well-known specimen.
pub(super) fn is_ssn(digits: &[u8]) -> bool {
    let [a, b, c, d, e, serial @ ..] = digits else { return false };
    let (area, group, serial) = (number(&[*a, *b, *c]), number(&[*d, *e]), number(serial));
    let issued = !matches!(area, 0 | 666 | 900..=999) && group != 0 && serial != 0;
    let specimen = matches!((area, group, serial), (78, 5, 1120) | (219, 9, 9999) | (123, 45, 6789));
    digits.len() == 9 && issued && !specimen && !all_equal(digits)
}

/// A taxpayer number: nine, and a group in the ranges that are given out.
pub(super) fn is_itin(digits: &[u8]) -> bool {
    let [9, _, _, d, e, ..] = digits else { return false };
    let group = number(&[*d, *e]);
    digits.len() == 9 && matches!(group, 50..=65 | 70..=88 | 90..=92 | 94..=99)
}

/// A bank's routing number: the districts that exist, and weights 3, 7, 1.
pub(super) fn is_routing(digits: &[u8]) -> bool {
    let [a, b, ..] = digits else { return false };
    let district = matches!(number(&[*a, *b]), 1..=12 | 21..=32 | 61..=72 | 80);
    let weighed: u32 = digits
        .iter()
        .zip([3, 7, 1].into_iter().cycle())
        .map(|(digit, weight)| u32::from(*digit) * weight)
        .sum();
    digits.len() == 9 && district && weighed.is_multiple_of(10)
}

/// A number of the British health service: weights 10 to 2, and what is missing to 11.
pub(super) fn is_nhs(digits: &[u8]) -> bool {
    let [first @ .., last] = digits else { return false };
    let weighed: u32 =
        first.iter().zip((2..=10).rev()).map(|(digit, weight)| u32::from(*digit) * weight).sum();
    let check = (11 - weighed % 11) % 11;
    digits.len() == 10 && check == u32::from(*last) && !all_equal(digits)
}

/// A health provider's number: Luhn's check with the prefix 80840, and 1 or 2 in front.
pub(super) fn is_npi(digits: &[u8]) -> bool {
    let prefixed: Vec<u8> = [8, 0, 8, 4, 0].iter().chain(digits).copied().collect();
    digits.len() == 10 && matches!(digits[0], 1 | 2) && luhn(&prefixed)
}

/// The number of a mobile device: fifteen digits and Luhn's check.
pub(super) fn is_imei(digits: &[u8]) -> bool {
    digits.len() == 15 && !all_equal(digits) && luhn(digits)
}

/// An Aadhaar number: no 0 or 1 in front, no palindrome, and Verhoeff's check.
pub(super) fn is_aadhaar(digits: &[u8]) -> bool {
    digits.len() == 12 && digits[0] >= 2 && !digits.iter().eq(digits.iter().rev()) && verhoeff(digits)
}

/// Verhoeff's check: a walk through the symmetries of a pentagon that must end where it began.
fn verhoeff(digits: &[u8]) -> bool {
    /// Where each digit goes in one step; the position of a digit tells how many steps are taken.
    const STEP: [u8; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let mut state = 0_u8;
    for (position, digit) in digits.iter().rev().enumerate() {
        let moved = (0..position % 8).fold(*digit, |digit, _| STEP[usize::from(digit)]);
        state = joined(state, moved);
    }
    state == 0
}

/// One symmetry of the pentagon after another: 0 to 4 turn it, 5 to 9 turn it over as well.
fn joined(left: u8, right: u8) -> u8 {
    match (left, right) {
        (0..=4, 0..=4) => (left + right) % 5,
        (0..=4, _) => 5 + (left + right - 5) % 5,
        (_, 0..=4) => 5 + (left - 5 + 5 - right) % 5,
        _ => (left + 5 - right) % 5,
    }
}

/// A vehicle's number: seventeen letters and digits without I, O and Q, and a check digit in the ninth place.
pub(super) fn is_vin(word: &str) -> bool {
    const WEIGHTS: [u32; 17] = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
    let bytes = word.as_bytes();
    let letters = bytes.iter().filter(|byte| byte.is_ascii_alphabetic()).count();
    if bytes.len() != 17 || !(3..=14).contains(&letters) {
        return false;
    }
    let mut sum = 0;
    for (byte, weight) in bytes.iter().zip(WEIGHTS) {
        let value = match byte.to_ascii_uppercase() {
            digit @ b'0'..=b'9' => digit - b'0',
            letter @ b'A'..=b'H' => letter - b'A' + 1,
            letter @ (b'J'..=b'N' | b'P' | b'R') => letter - b'J' + 1,
            letter @ b'S'..=b'Z' => letter - b'S' + 2,
            _ => return false,
        };
        sum += u32::from(value) * weight;
    }
    let check = match bytes[8].to_ascii_uppercase() {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    // The last five are the maker's count.
    sum % 11 == check && bytes[13..].iter().all(u8::is_ascii_digit)
}

/// Digits of base 58, in their order.
const BASE58: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
/// Digits of bech32, in their order.
const BECH32: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// A Bitcoin address of the older form: 25 bytes whose last four are the hash of the others.
pub(super) fn is_base58_address(word: &str) -> bool {
    if !(26..=35).contains(&word.len()) {
        return false;
    }
    let mut bytes = [0_u8; 25];
    for letter in word.bytes() {
        let Some(value) = BASE58.iter().position(|known| *known == letter) else { return false };
        let mut carry = value;
        for byte in bytes.iter_mut().rev() {
            carry += usize::from(*byte) * 58;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry > 0 {
            return false;
        }
    }
    let hash = sha256(&sha256(&bytes[..21]));
    matches!(bytes[0], 0 | 5) && bytes[21..] == hash[..4]
}

/// A Bitcoin address of the newer form, with the checksum of bech32 or of bech32m.
pub(super) fn is_bech32_address(word: &str) -> bool {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let mixed = word.bytes().any(|byte| byte.is_ascii_lowercase())
        && word.bytes().any(|byte| byte.is_ascii_uppercase());
    if mixed || !(42..=62).contains(&word.len()) {
        return false;
    }
    // The expanded prefix `bc`.
    let mut values = vec![3, 3, 0, 2, 3];
    for letter in word.bytes().skip(3) {
        let lowered = letter.to_ascii_lowercase();
        let Some(value) = BECH32.iter().position(|known| *known == lowered) else { return false };
        values.push(value);
    }
    let mut checksum = 1_u32;
    for value in values {
        let top = checksum >> 25;
        checksum = ((checksum & 0x1ff_ffff) << 5) ^ u32::try_from(value).unwrap_or_default();
        for (bit, generator) in GENERATOR.iter().enumerate() {
            if top >> bit & 1 == 1 {
                checksum ^= generator;
            }
        }
    }
    matches!(checksum, 1 | 0x2bc8_30a3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_card(digits: &[u8]) -> bool {
        card_issuer(digits).is_some()
    }

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
    fn social_security_and_taxpayer_numbers_follow_the_rules_of_issue() {
        assert!(is_ssn(&digits("536-22-1876")));
        for no in ["000-22-1876", "666-22-1876", "901-22-1876", "078-05-1120", "536-00-1876", "555-55-5555"] {
            assert!(!is_ssn(&digits(no)), "{no}");
        }
        assert!(is_itin(&digits("912-70-1234")) && is_itin(&digits("999-88-0000")));
        assert!(!is_itin(&digits("912-89-1234")) && !is_itin(&digits("812-70-1234")));
    }

    /// Numbers that authorities print in their own descriptions, and the same with another last digit.
    #[test]
    fn published_specimens_pass_and_their_neighbours_do_not() {
        type Check = fn(&[u8]) -> bool;
        let specimens: [(Check, &str); 6] = [
            (is_routing, "021000021"),
            (is_routing, "122105155"),
            (is_nhs, "9434765919"),
            (is_npi, "1234567893"),
            (is_aadhaar, "234123412346"),
            (is_imei, "490154203237518"),
        ];
        for (check, specimen) in specimens {
            assert!(check(&digits(specimen)), "{specimen}");
            let last = specimen.len() - 1;
            for other in ('0'..='9').filter(|digit| !specimen.ends_with(*digit)) {
                let neighbour = format!("{}{other}", &specimen[..last]);
                assert!(!check(&digits(&neighbour)), "{neighbour}");
            }
        }
    }

    #[test]
    fn words_with_a_checksum_are_known_by_it() {
        assert!(is_vin("1M8GDM9AXKP042788") && is_vin("1HGCM82633A004352"));
        assert!(!is_vin("1M8GDM9A1KP042788") && !is_vin("11111111111111111"));
        assert!(is_base58_address("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"));
        assert!(is_base58_address("3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy"));
        assert!(!is_base58_address("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb"));
        assert!(is_bech32_address("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"));
        assert!(is_bech32_address("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"));
        assert!(!is_bech32_address("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5"));
    }
}

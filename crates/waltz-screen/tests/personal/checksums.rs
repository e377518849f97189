//! Numbers with their checksums, computed by other means than the product's.

use crate::examples::Dice;

pub(crate) fn iban(dice: &mut Dice) -> String {
    let (country, letters, digits) = [
        ("DE", 0, 18),
        ("GB", 4, 14),
        ("FR", 0, 23),
        ("NL", 4, 10),
        ("ES", 0, 20),
        ("NO", 0, 11),
        ("PL", 0, 24),
    ][dice.below(7)];
    let account = format!("{}{}", dice.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", letters), dice.digits(digits));
    let spelt = |text: &str| -> String {
        text.chars().map(|letter| letter.to_digit(36).unwrap().to_string()).collect()
    };
    let rest = spelt(&format!("{account}{country}00"))
        .bytes()
        .fold(0, |sum, digit| (sum * 10 + u64::from(digit - b'0')) % 97);
    let number = format!("{country}{:02}{account}", 98 - rest);
    let groups: Vec<&str> =
        (0..number.len()).step_by(4).map(|at| &number[at..number.len().min(at + 4)]).collect();
    groups.join(dice.pick(&["", " "]))
}

pub(crate) fn vin(dice: &mut Dice) -> String {
    const VALUES: &str = "0.1AJ.2BKS.3CLT.4DMU.5ENV.6FW.7GPX.8HY.9RZ";
    let value = |letter: char| VALUES.split('.').position(|group| group.contains(letter)).unwrap();
    // The list begins with "0", then groups for 1 to 9.
    let letters = "ABCDEFGHJKLMNPRSTUVWXYZ0123456789";
    loop {
        let mut number: Vec<char> =
            format!("1{}0{}{}", dice.of(letters, 7), dice.of(letters, 4), dice.digits(4)).chars().collect();
        let weights = [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2];
        let sum: usize = number.iter().zip(weights).map(|(letter, weight)| value(*letter) * weight).sum();
        number[8] = if sum % 11 == 10 {
            'X'
        } else {
            char::from_digit(u32::try_from(sum % 11).unwrap(), 10).unwrap()
        };
        if number.iter().filter(|letter| letter.is_ascii_alphabetic()).count() >= 3 {
            return number.into_iter().collect();
        }
    }
}

/// The digits with the last one that makes the check hold; there may be none.
pub(crate) fn completed(start: &str, check: impl Fn(&[u32]) -> bool) -> Option<String> {
    ('0'..='9')
        .map(|last| format!("{start}{last}"))
        .find(|number| check(&number.chars().map(|digit| digit.to_digit(10).unwrap()).collect::<Vec<_>>()))
}

pub(crate) fn luhn(digits: &[u32]) -> bool {
    let doubled = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
    let odd: u32 = digits.iter().rev().step_by(2).sum();
    let even: u32 = digits.iter().rev().skip(1).step_by(2).map(|digit| doubled[*digit as usize]).sum();
    (odd + even).is_multiple_of(10)
}

/// By the tables in which the check was published.
pub(crate) fn verhoeff(digits: &[u32]) -> bool {
    const JOIN: [&[u8; 10]; 10] = [
        b"0123456789",
        b"1234067895",
        b"2340178956",
        b"3401289567",
        b"4012395678",
        b"5987604321",
        b"6598710432",
        b"7659821043",
        b"8765932104",
        b"9876543210",
    ];
    const MOVE: [&[u8; 10]; 8] = [
        b"0123456789",
        b"1576283094",
        b"5803796142",
        b"8916043527",
        b"9453126870",
        b"4286573901",
        b"2793806415",
        b"7046913258",
    ];
    let mut state = 0_u8;
    for (position, digit) in digits.iter().rev().enumerate() {
        let moved = MOVE[position % 8][*digit as usize] - b'0';
        state = JOIN[usize::from(state)][usize::from(moved)] - b'0';
    }
    state == 0
}

pub(crate) fn grouped(number: &str, sizes: &[usize], sign: &str) -> String {
    let mut groups = Vec::new();
    let mut at = 0;
    for size in sizes {
        groups.push(&number[at..at + size]);
        at += size;
    }
    groups.join(sign)
}

pub(crate) fn base58_address(dice: &mut Dice) -> String {
    const DIGITS: &[u8; 58] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let mut bytes = vec![[0_u8, 5][dice.below(2)]];
    bytes.extend((0..20).map(|_| u8::try_from(dice.below(256)).unwrap()));
    let hash = waltz_exchange::id::sha256(&waltz_exchange::id::sha256(&bytes));
    bytes.extend_from_slice(&hash[..4]);
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let mut written = Vec::new();
    let mut number = bytes;
    while number.iter().any(|byte| *byte != 0) {
        let mut rest = 0_u32;
        for byte in &mut number {
            let value = rest * 256 + u32::from(*byte);
            *byte = u8::try_from(value / 58).unwrap();
            rest = value % 58;
        }
        written.push(DIGITS[rest as usize]);
    }
    written.extend(std::iter::repeat_n(b'1', zeros));
    written.reverse();
    String::from_utf8(written).unwrap()
}

/// By long division of polynomials, as the checksum is defined.
pub(crate) fn bech32_address(dice: &mut Dice) -> String {
    const DIGITS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    let data: Vec<u8> =
        std::iter::once(0).chain((0..32).map(|_| u8::try_from(dice.below(32)).unwrap())).collect();
    let remainder = |values: &[u8]| {
        let generators = [0x3b6a_57b2_u32, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
        values.iter().fold(1_u32, |state, value| {
            let next = (state & 0x01ff_ffff) << 5 ^ u32::from(*value);
            (0..5).filter(|bit| state >> (25 + bit) & 1 == 1).fold(next, |next, bit| next ^ generators[bit])
        })
    };
    let mut values = vec![3, 3, 0, 2, 3];
    values.extend_from_slice(&data);
    values.extend_from_slice(&[0; 6]);
    let check = remainder(&values) ^ 1;
    let tail = (0..6).map(|place| u8::try_from(check >> (5 * (5 - place)) & 31).unwrap());
    let written: Vec<u8> = data.iter().copied().chain(tail).map(|value| DIGITS[usize::from(value)]).collect();
    format!("bc1{}", String::from_utf8(written).unwrap())
}

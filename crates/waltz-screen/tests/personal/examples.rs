//! Examples of every kind, made from a seed: valid ones with their checksums, and near misses that differ in
//! what makes an example valid.

use waltz_screen::PiiKind;

use crate::checksums::{base58_address, bech32_address, completed, grouped, iban, luhn, verhoeff, vin};

/// A small generator of numbers; the same seed gives the same examples everywhere.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    pub(crate) fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    pub(crate) fn digits(&mut self, count: usize) -> String {
        self.of("0123456789", count)
    }

    pub(crate) fn of(&mut self, alphabet: &str, count: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        (0..count).map(|_| letters[self.below(letters.len())]).collect()
    }

    pub(crate) fn word(&mut self) -> String {
        let length = 3 + self.below(7);
        self.of("abcdefghijklmnoprstuvwyz", length)
    }

    pub(crate) fn hex(&mut self, count: usize) -> String {
        self.of("0123456789abcdef", count)
    }

    /// Another digit in place of the one at `position`.
    fn spoil(&mut self, text: &str, position: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let old = bytes[position] - b'0';
        bytes[position] = b'0' + (old + 1 + u8::try_from(self.below(8)).unwrap()) % 10;
        String::from_utf8(bytes).unwrap()
    }
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// What the kind is called in a sentence.
fn name(kind: PiiKind) -> &'static str {
    match kind {
        PiiKind::Phone => "phone number",
        PiiKind::Routing => "ABA routing number",
        PiiKind::Nhs => "NHS number",
        PiiKind::Npi => "NPI",
        PiiKind::Aadhaar => "Aadhaar",
        PiiKind::Imei => "IMEI",
        PiiKind::Ssn => "SSN",
        PiiKind::Itin => "ITIN",
        _ => "entry",
    }
}

/// A sentence around a value: what stands before it and behind it.
pub(crate) fn sentence(kind: PiiKind, dice: &mut Dice) -> (String, String) {
    let name = name(kind);
    match dice.below(6) {
        0 => (format!("My {name} is "), ", can you check it?".to_owned()),
        1 => (format!("{name}: "), String::new()),
        2 => (format!("Please update the record, {name} "), ". Thanks!".to_owned()),
        3 => (format!("{{\"note\": \"{name} "), "\", \"n\": 3}".to_owned()),
        4 => (format!("On file:\n- {name} "), "\n- other 17\n".to_owned()),
        _ => (format!("The {name} ("), ") was given on Monday.".to_owned()),
    }
}

/// A valid value of the kind.
pub(crate) fn valid(kind: PiiKind, dice: &mut Dice) -> String {
    match kind {
        PiiKind::Email => {
            let tld = dice.pick(&["com", "org", "net", "de", "co.uk", "io"]);
            let tag = dice.pick(&["", "+news", ".x", "_1", "-b"]);
            format!("{}.{}{tag}@{}.{tld}", dice.word(), dice.word(), dice.word())
        }
        PiiKind::Phone => phone(dice),
        PiiKind::Card => card(dice),
        PiiKind::Iban => iban(dice),
        PiiKind::Ssn => {
            let area = [1 + dice.below(665), 667 + dice.below(233)][dice.below(2)];
            format!("{area:03}-{:02}-{:04}", 1 + dice.below(98), 1 + dice.below(9_998))
        }
        PiiKind::Itin => {
            let group = [50 + dice.below(16), 70 + dice.below(19), 94 + dice.below(6)][dice.below(3)];
            format!("9{}-{group}-{}", dice.digits(2), dice.digits(4))
        }
        PiiKind::Routing => {
            let district = [1 + dice.below(12), 21 + dice.below(12), 61 + dice.below(12)][dice.below(3)];
            completed(&format!("{district:02}{}", dice.digits(6)), |digits| {
                (3 * (digits[0] + digits[3] + digits[6])
                    + 7 * (digits[1] + digits[4] + digits[7])
                    + digits[2]
                    + digits[5]
                    + digits[8])
                    % 10
                    == 0
            })
            .unwrap()
        }
        PiiKind::Nhs => loop {
            let number = completed(&dice.digits(9), |digits| {
                let sum: u32 = digits.iter().zip(1_u32..).map(|(digit, place)| digit * (11 - place)).sum();
                sum.is_multiple_of(11)
            });
            if let Some(number) = number {
                break grouped(&number, &[3, 3, 4], dice.pick(&["", " ", "-"]));
            }
        },
        PiiKind::Npi => {
            let start = format!("{}{}", 1 + dice.below(2), dice.digits(8));
            completed(&start, |digits| {
                let with_prefix: Vec<u32> = [8, 0, 8, 4, 0].iter().chain(digits).copied().collect();
                luhn(&with_prefix)
            })
            .unwrap()
        }
        PiiKind::Aadhaar => {
            let start = format!("{}{}", 2 + dice.below(8), dice.digits(10));
            let number = completed(&start, verhoeff).unwrap();
            grouped(&number, &[4, 4, 4], dice.pick(&["", " ", "-"]))
        }
        PiiKind::Imei => completed(&format!("35{}", dice.digits(12)), luhn).unwrap(),
        PiiKind::Vin => vin(dice),
        PiiKind::Ipv4 => {
            let first = [1 + dice.below(126), 128 + dice.below(96)][dice.below(2)];
            format!("{first}.{}.{}.{}", dice.below(256), dice.below(256), 1 + dice.below(254))
        }
        PiiKind::Ipv6 => {
            let group = |dice: &mut Dice| {
                let size = 1 + dice.below(4);
                dice.hex(size)
            };
            let tail: Vec<String> = (0..7).map(|_| group(dice)).collect();
            let start = dice.pick(&["2001", "2a02", "fe80", "fd12"]);
            match dice.below(2) {
                0 => format!("{start}:{}", tail.join(":")),
                _ => format!("{start}:{}::{}", tail[0], tail[1]),
            }
        }
        PiiKind::Mac => {
            let pairs: Vec<String> = (0..6).map(|_| dice.hex(2)).collect();
            let written = pairs.join(dice.pick(&[":", "-"]));
            if dice.below(2) == 0 { written } else { written.to_uppercase() }
        }
        PiiKind::Crypto => match dice.below(3) {
            0 => base58_address(dice),
            1 => bech32_address(dice),
            _ => format!("0x{}", dice.hex(40)),
        },
        PiiKind::ApiKey => {
            let body = dice.of(LETTERS, 36);
            let prefix = dice.pick(&[
                "sk-",
                "sk-proj-",
                "ghp_",
                "github_pat_",
                "glpat-",
                "AIza",
                "hf_",
                "npm_",
                "sk_live_",
            ]);
            match dice.below(4) {
                0 => format!("AKIA{}", dice.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16)),
                1 => format!("xoxb-{}-{}", dice.digits(12), dice.of(LETTERS, 24)),
                _ => format!("{prefix}{body}7"),
            }
        }
        PiiKind::Jwt => {
            format!("eyJ{}.eyJ{}.{}", dice.of(LETTERS, 30), dice.of(LETTERS, 60), dice.of(LETTERS, 43))
        }
        PiiKind::PrivateKey => {
            let sort = dice.pick(&["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "]);
            let lines: Vec<String> = (0..4).map(|_| dice.of(LETTERS, 64)).collect();
            format!(
                "-----BEGIN {sort}PRIVATE KEY-----\n{}\n-----END {sort}PRIVATE KEY-----",
                lines.join("\n")
            )
        }
        PiiKind::Password => {
            format!("{}{}{}", dice.word(), dice.pick(&["!", "#", "_", "-", ""]), dice.digits(3))
        }
        PiiKind::UrlCredentials => {
            let scheme = dice.pick(&["https", "postgres", "redis", "amqp", "mongodb+srv", "ftp"]);
            format!(
                "{scheme}://{}:{}@{}.harbour.org:5432/{}",
                dice.word(),
                dice.of(LETTERS, 12),
                dice.word(),
                dice.word()
            )
        }
        PiiKind::Person => {
            let given = dice.pick(&["Jane", "Omar", "Li", "Ana", "Søren", "Élodie", "Kwame", "Mary-Ann"]);
            let family =
                dice.pick(&["Smith", "O'Brien", "van der Berg", "Müller", "García", "Okafor", "Wang"]);
            format!("{given} {family}")
        }
        PiiKind::Address => {
            let street = dice.pick(&["Oak", "Long Hill", "Martin Luther King", "N. Lincoln", "Saint James"]);
            let sort = dice.pick(&["Street", "Avenue", "Road", "Lane", "Drive", "Blvd", "Court"]);
            let flat = dice.pick(&["", ", Apt 4", ", Suite 210"]);
            format!("{} {street} {sort}{flat}", 1 + dice.below(9_999))
        }
    }
}

/// What the words before a value must be, where the kind is known by them alone.
pub(crate) fn cue(kind: PiiKind, dice: &mut Dice) -> &'static str {
    match kind {
        PiiKind::Password => dice.pick(&["password: ", "\"password\": \"", "my password is ", "passwd = "]),
        PiiKind::Person => dice.pick(&["my name is ", "Dr. ", "Mrs. ", "Dear ", "Patient: ", "her name is "]),
        _ => "",
    }
}

/// A value that is nearly of the kind.
pub(crate) fn near_miss(kind: PiiKind, dice: &mut Dice) -> String {
    let proper = valid(kind, dice);
    match kind {
        PiiKind::Email => match dice.below(4) {
            0 => proper.replace('@', " at "),
            1 => format!("{}@localhost", dice.word()),
            2 => format!("@{}.{}", dice.word(), dice.word()),
            _ => format!("{}@{}.{}", dice.word(), dice.word(), dice.digits(2)),
        },
        PiiKind::Phone => match dice.below(5) {
            0 => format!("{}-{}-{}", dice.digits(2), dice.digits(2), dice.digits(2)),
            1 => format!("+{}", 1 + dice.below(99_999)),
            2 => format!("20{}-0{}-1{}", dice.digits(2), 1 + dice.below(9), dice.digits(1)),
            3 => format!("+49 {} {} {}", dice.digits(8), dice.digits(8), dice.digits(6)),
            _ => format!("{}.{}", dice.digits(3), dice.digits(9)),
        },
        PiiKind::Card | PiiKind::Iban | PiiKind::Nhs | PiiKind::Routing | PiiKind::Npi => {
            dice.spoil(&proper, proper.len() - 1)
        }
        PiiKind::Aadhaar | PiiKind::Imei => dice.spoil(&proper, proper.len() - 1),
        PiiKind::Ssn => match dice.below(4) {
            0 => format!("000{}", &proper[3..]),
            1 => format!("666{}", &proper[3..]),
            2 => format!("{}-00-{}", &proper[..3], &proper[7..]),
            _ => format!("{}0000", &proper[..7]),
        },
        PiiKind::Itin => match dice.below(2) {
            0 => format!("{}{}", 1 + dice.below(8), &proper[1..]),
            _ => format!("{}-{:02}-{}", &proper[..3], dice.below(50), &proper[7..]),
        },
        PiiKind::Vin => {
            let check = if proper.as_bytes()[8] == b'X' { '4' } else { 'X' };
            format!("{}{check}{}", &proper[..8], &proper[9..])
        }
        PiiKind::Ipv4 => match dice.below(4) {
            0 => format!(
                "{}.{}.{}.{}",
                dice.below(256),
                256 + dice.below(700),
                dice.below(256),
                dice.below(256)
            ),
            1 => format!("{proper}.{}", dice.below(256)),
            2 => format!("version {proper}"),
            _ => format!("{}.{}.{}", dice.below(256), dice.below(256), dice.below(256)),
        },
        PiiKind::Ipv6 => match dice.below(3) {
            0 => format!("{:02}:{:02}:{:02}", dice.below(24), dice.below(60), dice.below(60)),
            1 => format!("{}::{}::f{}", dice.word(), dice.word(), dice.below(99)),
            _ => (0..6).map(|_| dice.hex(4)).collect::<Vec<_>>().join(":"),
        },
        PiiKind::Mac => match dice.below(3) {
            0 => proper[..14].to_owned(),
            1 => format!("{proper}{}{}", &proper[2..3], dice.hex(2)),
            _ => format!("{}g{}", &proper[..4], &proper[5..]),
        },
        PiiKind::Crypto => {
            let last = proper.len() - 1;
            let ether = proper.starts_with("0x");
            let other = if proper.ends_with('q') { 'p' } else { 'q' };
            if ether { proper[..last].to_owned() } else { format!("{}{other}", &proper[..last]) }
        }
        PiiKind::ApiKey => match dice.below(3) {
            0 => format!("sk-{}-{}", dice.word(), dice.word()),
            1 => format!("AKIA{}", dice.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 11)),
            _ => format!("ghp_{}", dice.of(LETTERS, 12)),
        },
        PiiKind::Jwt => match dice.below(2) {
            0 => proper.rsplit_once('.').unwrap().0.to_owned(),
            _ => format!("{}.{}.{}", dice.of(LETTERS, 20), dice.of(LETTERS, 40), dice.of(LETTERS, 43)),
        },
        PiiKind::PrivateKey => proper.replace("PRIVATE", "PUBLIC"),
        PiiKind::Password => {
            let phrases = [
                "the password is stored",
                "password: null",
                "password: required",
                "password = read_password()",
                "password: $PASSWORD",
                "the password is too short",
                "self.password = self.value",
                "password: Option<String>",
            ];
            dice.pick(&phrases).to_owned()
        }
        PiiKind::UrlCredentials => match dice.below(3) {
            0 => format!("https://{}@{}.harbour.org/", dice.word(), dice.word()),
            1 => format!("https://{}.harbour.org:8080/@{}", dice.word(), dice.word()),
            _ => format!("postgres://{}:$PASSWORD@db/{}", dice.word(), dice.word()),
        },
        PiiKind::Person => format!("{} {}", dice.word(), dice.word()),
        PiiKind::Address => match dice.below(3) {
            0 => format!("{} of the Street", dice.word()),
            1 => format!("{} Main stage", dice.below(99)),
            _ => format!("Wall Street fell by {} points", dice.below(99)),
        },
    }
}

fn phone(dice: &mut Dice) -> String {
    let area = format!("{}{}", 2 + dice.below(8), dice.digits(2));
    let exchange = format!("{}{}", 2 + dice.below(8), dice.digits(2));
    let line = dice.digits(4);
    match dice.below(8) {
        0 => format!("({area}) {exchange}-{line}"),
        1 => format!("{area}-{exchange}-{line}"),
        2 => format!("{area}.{exchange}.{line}"),
        3 => format!("+1 {area} {exchange} {line}"),
        4 => format!("1-{area}-{exchange}-{line}"),
        5 => {
            format!("+{} {} {}", dice.pick(&["49", "33", "44", "81"]), 1 + dice.below(9_999), dice.digits(7))
        }
        6 => format!("+{}{}", dice.pick(&["49", "353", "61"]), dice.digits(9)),
        _ => format!("0{} {} {}", 11 + dice.below(80), dice.digits(3), dice.digits(4)),
    }
}

fn card(dice: &mut Dice) -> String {
    let (prefix, length): (&str, usize) = [
        ("4", 16),
        ("51", 16),
        ("55", 16),
        ("2221", 16),
        ("2720", 16),
        ("34", 15),
        ("37", 15),
        ("6011", 16),
        ("65", 16),
        ("3528", 16),
        ("3589", 16),
        ("36", 14),
        ("301", 14),
        ("62", 16),
    ][dice.below(14)];
    let start = format!("{prefix}{}", dice.digits(length - prefix.len() - 1));
    let number = completed(&start, luhn).unwrap();
    let sizes: &[usize] = match length {
        16 => &[4, 4, 4, 4],
        15 => &[4, 6, 5],
        _ => &[4, 6, 4],
    };
    grouped(&number, sizes, dice.pick(&["", " ", "-"]))
}

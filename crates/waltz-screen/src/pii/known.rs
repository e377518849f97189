//! Values that documentation prints: cards of payment providers' tests, keys of manuals, names and networks that are
//! reserved for examples, and what stands for a value in a template. They belong to nobody and open nothing.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::PiiKind;

/// Cards that Stripe, Adyen, PayPal and the networks give out for tests.
const TEST_CARDS: [&str; 36] = [
    "4242424242424242",
    "4000056655665556",
    "4000002500003155",
    "4000000000000002",
    "4000000000009995",
    "5555555555554444",
    "2223003122003222",
    "5200828282828210",
    "5105105105105100",
    "378282246310005",
    "371449635398431",
    "378734493671000",
    "6011111111111117",
    "6011000990139424",
    "3056930009020004",
    "36227206271667",
    "30569309025904",
    "38520000023237",
    "3566002020360505",
    "3530111333300000",
    "6200000000000005",
    "4111111111111111",
    "4012888888881881",
    "4222222222222",
    "4988438843884305",
    "4166676667666746",
    "4646464646464644",
    "4000620000000007",
    "5577000055770004",
    "5555444433331111",
    "2222410740360010",
    "370000000000002",
    "6011601160116611",
    "5454545454545454",
    "5424000000000015",
    "4007000000027",
];

/// How the keys of manuals begin behind their prefix, in parts, so that no scanner takes them for keys.
const DOCUMENTED: [[&str; 2]; 5] = [
    ["sk_test_4eC39Hq", "LyjWDarjtT1zdp7dc"],
    ["sk_test_BQokikJ", "OvBiI2HlWgH4olfQ2"],
    ["ghp_16C7e42F292", "c6912E7710c838347Ae178B4a"],
    ["Eby8vdM02xNOcqFlqUwJPLlmEtl", "CDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"],
    ["eyJzdWIiOiIxMjM0NTY3", "ODkwIiwibmFtZSI6IkpvaG4gRG9l"],
];

/// Words that stand in the place of a value.
const STAND_INS: [&str; 17] = [
    "example",
    "sample",
    "placeholder",
    "changeme",
    "change_me",
    "change-me",
    "your_",
    "your-",
    "yourpass",
    "yoursecret",
    "dummy",
    "redacted",
    "insert",
    "xxxx",
    "****",
    "....",
    "0000000000",
];
/// Passwords that examples have, and nobody else should.
const EXAMPLE_PASSWORDS: [&str; 21] = [
    "password",
    "passwd",
    "pass",
    "pwd",
    "secret",
    "mypassword",
    "mysecret",
    "mysecretpassword",
    "mypass",
    "postgres",
    "root",
    "admin",
    "guest",
    "test",
    "user",
    "mysql",
    "letmein",
    "hunter2",
    "foobar",
    "p@ssw0rd",
    "rabbitmq",
];

/// Whether a value of a kind is one of documentation.
pub(super) fn is_documented(kind: PiiKind, value: &str) -> bool {
    match kind {
        PiiKind::Card => {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            TEST_CARDS.contains(&digits.as_str())
        }
        PiiKind::Email => {
            let domain =
                value.rsplit_once('@').or_else(|| value.rsplit_once("%40")).map_or("", |(_, domain)| domain);
            is_example_host(domain)
        }
        PiiKind::Phone => {
            let digits: String = value.chars().filter(char::is_ascii_digit).collect();
            let end = digits.len().saturating_sub(7);
            matches!(digits.len(), 7 | 10 | 11)
                && digits.get(end..).is_some_and(|local| local.starts_with("55501"))
        }
        PiiKind::Ipv4 => value.parse().is_ok_and(|address: Ipv4Addr| address.is_documentation()),
        PiiKind::Ipv6 => value.parse().is_ok_and(|address: Ipv6Addr| {
            matches!(address.segments(), [0x2001, 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..])
        }),
        PiiKind::ApiKey | PiiKind::Jwt => is_stand_in(value) || is_printed(value),
        PiiKind::Password => is_example_password(value) || is_printed(value),
        PiiKind::UrlCredentials => is_example_address(value),
        _ => false,
    }
}

/// Whether a key is one that a manual prints.
fn is_printed(value: &str) -> bool {
    DOCUMENTED.iter().any(|[first, second]| {
        value.find(first).is_some_and(|at| value[at + first.len()..].starts_with(second))
    })
}

/// Whether a value only marks the place of one.
pub(crate) fn is_stand_in(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let marked = value.starts_with(['<', '$', '{', '%', '[', '*']);
    let body = lower.rsplit(['_', '-', '/']).next().unwrap_or_default();
    let one = body.bytes().next();
    let repeats = body.len() >= 8 && body.bytes().all(|byte| Some(byte) == one);
    marked || repeats || STAND_INS.iter().any(|word| lower.contains(word))
}

fn is_example_password(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let word = lower.trim_end_matches(|sign: char| sign.is_ascii_digit() || sign == '!');
    EXAMPLE_PASSWORDS.contains(&word) || EXAMPLE_PASSWORDS.contains(&lower.as_str()) || is_stand_in(value)
}

/// Whether an address with a name and a password leads nowhere, or has a password of an example.
fn is_example_address(value: &str) -> bool {
    let Some((front, host)) = value.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')) else {
        return false;
    };
    let (name, password) = front.split_once(':').unwrap_or((front, ""));
    let host = host.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let nowhere = matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "host.docker.internal" | "[")
        || is_example_host(host);
    nowhere || name == password || is_example_password(password)
}

/// Names that RFC 2606 and RFC 6761 keep for documentation and tests.
fn is_example_host(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let ends_with =
        |name: &str| host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
    ["example.com", "example.net", "example.org", "example.edu", "example", "test", "invalid", "localhost"]
        .into_iter()
        .any(ends_with)
}

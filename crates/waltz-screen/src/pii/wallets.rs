//! Addresses of crypto-currencies and numbers of vehicles: words of letters and digits with a checksum.

use std::sync::LazyLock;

use regex::Regex;

use super::patterns::{compile, finding, is_called, matches, stands_free};
use super::{PiiFinding, PiiKind, checks};

static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| compile(r"(?-u)[0-9A-Za-z]{17,90}"));

/// Adds every address and vehicle.
pub(super) fn find(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&WORD, text) {
        let word = &text[span.start..span.end];
        let kind = if is_wallet(word) {
            PiiKind::Crypto
        } else if checks::is_vin(word) && (is_capital(word) || is_called(text, span, &["vin"])) {
            PiiKind::Vin
        } else {
            continue;
        };
        if stands_free(text, span) {
            found.push(finding(kind, span, 0.95));
        }
    }
}

/// Bitcoin in both of its forms, and Ethereum.
fn is_wallet(word: &str) -> bool {
    match word.as_bytes() {
        [b'1' | b'3', ..] => checks::is_base58_address(word),
        [b'b' | b'B', b'c' | b'C', b'1', ..] => checks::is_bech32_address(word),
        [b'0', b'x' | b'X', digits @ ..] => {
            digits.len() == 40
                && digits.iter().all(u8::is_ascii_hexdigit)
                && digits.iter().any(|digit| *digit != digits[0])
        }
        _ => false,
    }
}

fn is_capital(word: &str) -> bool {
    !word.bytes().any(|byte| byte.is_ascii_lowercase())
}

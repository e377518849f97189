//! Addresses of machines, and addresses of the web that carry a password.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;
use waltz_exchange::Span;

use super::patterns::{compile, finding, holds_word, matches, stands_free};
use super::{PiiFinding, PiiKind};

static IPV4: LazyLock<Option<Regex>> =
    LazyLock::new(|| compile(r"(?-u)[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}"));
/// Six pairs of hex digits, or hex digits with colons as in IPv6.
static PARTED_HEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"(?i-u)[0-9a-f]{2}(?:-[0-9a-f]{2}){5}",
        r"|(?:[0-9a-f]{1,4})?(?::[0-9a-f]{0,4}){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3})?",
    ))
});
static CREDENTIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    compile(concat!(
        r"(?i-u)[a-z][a-z0-9+.-]{1,15}://[a-z0-9._~%!$&*+,;=-]{0,64}:[!#-.0-9:;=?A-\[\]-~]{1,128}@",
        r#"[a-z0-9.\[\]:_-]{1,253}(?:[/?#][!#-&(-;=?-\[\]-~]{0,512})?"#,
    ))
});

/// Adds IPv4 addresses. Those that name no machine, and versions, are none.
pub(super) fn find_ipv4(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&IPV4, text) {
        let written = &text[span.start..span.end];
        let Ok(address) = written.parse::<Ipv4Addr>() else { continue };
        let nobody = address.is_loopback() || address.octets()[0] == 0 || is_mask(address);
        let before = &text.as_bytes()[span.start.saturating_sub(12)..span.start];
        if !nobody
            && stands_free(text, span)
            && !holds_word(before, &["version", "release", "v", "section", "sections"])
        {
            found.push(finding(PiiKind::Ipv4, span, 0.6));
        }
    }
}

/// Ones, then zeros: which part of an address is the network's.
fn is_mask(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    bits.leading_ones() >= 8 && bits.leading_ones() + bits.trailing_zeros() >= 32
}

/// Adds IPv6 and hardware addresses.
pub(super) fn find_parted_hex(text: &str, found: &mut Vec<PiiFinding>) {
    for span in matches(&PARTED_HEX, text) {
        let written = &text[span.start..span.end];
        if !stands_free(text, span) || text[span.end..].starts_with([':', '-', '_']) {
            continue;
        }
        if is_mac(written) {
            found.push(finding(PiiKind::Mac, span, 0.9));
        } else if written.parse::<Ipv6Addr>().is_ok_and(|address| names_a_machine(address, written)) {
            found.push(finding(PiiKind::Ipv6, span, 0.8));
        }
    }
}

/// Six pairs, alike parted, that are not all the same.
fn is_mac(written: &str) -> bool {
    let pairs: Vec<&str> = written.split([':', '-']).collect();
    let alike = !(written.contains(':') && written.contains('-'));
    alike
        && pairs.len() == 6
        && pairs.iter().all(|pair| pair.len() == 2)
        && pairs.iter().any(|pair| *pair != pairs[0])
}

/// Paths of code have colons too, but few and short parts between them.
fn names_a_machine(address: Ipv6Addr, written: &str) -> bool {
    let parts = written.split(':').filter(|part| !part.is_empty()).count();
    let begins = written.split(':').next().is_some_and(|part| part.len() == 4 && part != "ffff");
    let has_digit = written.bytes().any(|byte| byte.is_ascii_digit());
    has_digit && (begins || parts >= 4) && !address.is_loopback() && !address.is_unspecified()
}

/// Adds addresses of the web with a password in them.
pub(super) fn find_credentials(text: &str, found: &mut Vec<PiiFinding>) {
    if !text.contains("://") {
        return;
    }
    for span in matches(&CREDENTIALS, text) {
        let written = &text[span.start..span.end];
        let end = span.start + written.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']).len();
        found.push(finding(PiiKind::UrlCredentials, Span { start: span.start, end }, 0.97));
    }
}

//! Personal data and secrets: where they stand in a text, and the text without them.
//!
//! Called by `screen.rs` for every text and by whoever stores or shows text. Each sort has a cheap
//! sign (an `@`, enough digits, a key's prefix); text without the sign costs one pass. Patterns
//! propose, checksums and rules of issue decide.

mod cards;
mod checks;
mod patterns;

use std::borrow::Cow;

use serde::Serialize;
use waltz_exchange::Span;

use crate::secret;

/// A sort of personal data or secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PiiKind {
    /// An e-mail address.
    Email,
    /// A telephone number.
    Phone,
    /// A payment card number with a valid check digit.
    Card,
    /// An international bank account number with valid check digits.
    Iban,
    /// A United States social security number.
    Ssn,
    /// An IPv4 address.
    Ipv4,
    /// A key or token of a service.
    ApiKey,
    /// A JSON web token.
    Jwt,
    /// The header of a private key.
    PrivateKey,
    /// A password that is assigned or told.
    Password,
}

impl PiiKind {
    /// Every sort.
    pub const ALL: [Self; 10] = [
        Self::Email,
        Self::Phone,
        Self::Card,
        Self::Iban,
        Self::Ssn,
        Self::Ipv4,
        Self::ApiKey,
        Self::Jwt,
        Self::PrivateKey,
        Self::Password,
    ];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Ssn => "ssn",
            Self::Ipv4 => "ipv4",
            Self::ApiKey => "api_key",
            Self::Jwt => "jwt",
            Self::PrivateKey => "private_key",
            Self::Password => "password",
        }
    }

    /// What stands in masked text.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Email => "[EMAIL]",
            Self::Phone => "[PHONE]",
            Self::Card => "[CARD]",
            Self::Iban => "[IBAN]",
            Self::Ssn => "[SSN]",
            Self::Ipv4 => "[IPV4]",
            Self::ApiKey => "[API_KEY]",
            Self::Jwt => "[JWT]",
            Self::PrivateKey => "[PRIVATE_KEY]",
            Self::Password => "[PASSWORD]",
        }
    }

    /// What was found, in words that are safe to show.
    pub fn description(self) -> &'static str {
        match self {
            Self::Email => "an e-mail address",
            Self::Phone => "a telephone number",
            Self::Card => "a payment card number",
            Self::Iban => "a bank account number (IBAN)",
            Self::Ssn => "a US social security number",
            Self::Ipv4 => "an IPv4 address",
            Self::ApiKey => "a service key or token",
            Self::Jwt => "a JSON web token",
            Self::PrivateKey => "a private key",
            Self::Password => "a password",
        }
    }

    /// Whether it opens something, rather than naming somebody.
    pub fn is_secret(self) -> bool {
        matches!(self, Self::ApiKey | Self::Jwt | Self::PrivateKey | Self::Password)
    }

    /// Severity of the bare presence in a text; below 0.5, because naming an address is no harm.
    pub(crate) fn severity(self) -> f32 {
        match self {
            Self::Card | Self::Iban | Self::Ssn => 0.45,
            Self::Ipv4 => 0.1,
            _ => 0.3,
        }
    }
}

/// One piece of personal data or one secret.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PiiFinding {
    /// The sort.
    pub kind: PiiKind,
    /// Bytes of the text, on character boundaries.
    pub span: Span,
    /// How sure it is, 0 to 1.
    pub score: f32,
}

/// A text with its personal data and secrets taken out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Masked<'a> {
    /// The text with placeholders such as `[EMAIL]`; the original where nothing was found.
    pub text: Cow<'a, str>,
    /// What was replaced, with its place in the original text.
    pub found: Vec<PiiFinding>,
}

/// Finds personal data and secrets, in order of their place and without overlaps.
pub fn find_pii(text: &str) -> Vec<PiiFinding> {
    let mut found = Vec::new();
    patterns::find(text, &mut found);
    secret::find(text, &mut found);
    resolve(found)
}

/// Replaces personal data and secrets by placeholders.
pub fn mask(text: &str) -> Masked<'_> {
    let found = find_pii(text);
    if found.is_empty() {
        return Masked { text: Cow::Borrowed(text), found };
    }
    let mut masked = String::with_capacity(text.len());
    let mut position = 0;
    for PiiFinding { kind, span, .. } in &found {
        masked.push_str(&text[position..span.start]);
        masked.push_str(kind.placeholder());
        position = span.end;
    }
    masked.push_str(&text[position..]);
    Masked { text: Cow::Owned(masked), found }
}

/// Where findings overlap, the surer one stays, then the longer one, then the earlier sort.
fn resolve(mut found: Vec<PiiFinding>) -> Vec<PiiFinding> {
    if found.len() < 2 {
        return found;
    }
    found.sort_by(|left, right| {
        let length = |finding: &PiiFinding| finding.span.end - finding.span.start;
        right
            .score
            .total_cmp(&left.score)
            .then(length(right).cmp(&length(left)))
            .then(left.kind.cmp(&right.kind))
            .then(left.span.cmp(&right.span))
    });
    let mut taken = std::collections::BTreeMap::new();
    let mut kept = Vec::new();
    for finding in found {
        let Span { start, end } = finding.span;
        let before = taken.range(..end).next_back().map(|(_, end): (&usize, &usize)| *end);
        if before.is_none_or(|earlier_end| earlier_end <= start) {
            taken.insert(start, end);
            kept.push(finding);
        }
    }
    kept.sort_by_key(|finding: &PiiFinding| finding.span);
    kept
}

#[cfg(test)]
mod tests;

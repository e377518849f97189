//! Keyed hashes of personal data: HMAC with SHA-256, so that equal values can be joined and no value can be
//! found by trying all of them.

use std::fmt;

use waltz_exchange::id::sha256;

use super::PiiKind;

const BLOCK: usize = 64;
/// Bytes of the hash that are written; equal hashes of different values are then one in 2^64.
const WRITTEN: usize = 8;

/// The key of the hashes.
#[derive(Clone, PartialEq, Eq)]
pub struct HashKey([u8; BLOCK]);

impl fmt::Debug for HashKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("HashKey")
    }
}

impl HashKey {
    /// A key of any length.
    pub fn new(secret: &[u8]) -> Self {
        let mut key = [0; BLOCK];
        if secret.len() > BLOCK {
            key[..32].copy_from_slice(&sha256(secret));
        } else {
            key[..secret.len()].copy_from_slice(secret);
        }
        Self(key)
    }

    /// What stands in place of a value, such as `[EMAIL:0123456789abcdef]`. Blanks and hyphens of numbers and
    /// the case of letters do not count, so that one value has one hash however it is written.
    pub fn token(&self, kind: PiiKind, value: &str) -> String {
        let number =
            !matches!(kind, PiiKind::Email | PiiKind::Person | PiiKind::Address) && !kind.is_secret();
        let folded: String = if kind.is_secret() {
            value.to_owned()
        } else {
            let counts = |letter: &char| !number || letter.is_alphanumeric() || matches!(letter, '.' | ':');
            value.chars().filter(counts).flat_map(char::to_lowercase).collect()
        };
        let hash = self.hmac(format!("{}:{folded}", kind.as_str()).as_bytes());
        let hex: String = hash[..WRITTEN].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{hex}]", kind.placeholder().trim_end_matches(']'))
    }

    fn hmac(&self, message: &[u8]) -> [u8; 32] {
        let mut inner = self.0.map(|byte| byte ^ 0x36).to_vec();
        inner.extend_from_slice(message);
        let mut outer = self.0.map(|byte| byte ^ 0x5c).to_vec();
        outer.extend_from_slice(&sha256(&inner));
        sha256(&outer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Cases 1, 2 and 6 of RFC 4231: short and long keys.
    #[test]
    fn the_hash_is_hmac() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hex(&HashKey::new(key).hmac(message)), expected);
        }
    }

    #[test]
    fn one_value_has_one_hash_under_one_key() {
        let (one, other) = (HashKey::new(b"one"), HashKey::new(b"other"));
        let token = one.token(PiiKind::Card, "4539 1488 0343 6467");
        assert_eq!(token, one.token(PiiKind::Card, "4539-1488-0343-6467"));
        assert_ne!(token, one.token(PiiKind::Card, "4539 1488 0343 6468"));
        assert_ne!(token, other.token(PiiKind::Card, "4539 1488 0343 6467"));
        assert!(token.starts_with("[CARD:") && token.len() == "[CARD:]".len() + 16, "{token}");
        assert_eq!(one.token(PiiKind::Email, "A@b.org"), one.token(PiiKind::Email, "a@B.org"));
        assert_ne!(one.token(PiiKind::Password, "Abcd1"), one.token(PiiKind::Password, "abcd1"));
    }
}

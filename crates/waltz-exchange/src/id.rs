//! Identifiers: request ids, response ids, and the hash that finds the same question again.

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A new request id, unique and ordered by time: `req_` and 32 hex digits.
pub fn new_request_id() -> String {
    format!("req_{}", Uuid::now_v7().simple())
}

/// A new id for an answer that waltz writes itself. It is random, so that it cannot be guessed.
pub fn new_response_id() -> String {
    format!("chatcmpl-{}", Uuid::new_v4().simple())
}

/// A new coaching session id, random.
pub fn new_session_id() -> String {
    format!("ses_{}", Uuid::new_v4().simple())
}

/// The first 16 hex digits of SHA-256 over the text: the key under which past coaching of the very
/// same request is found.
pub fn request_hash(text: &str) -> String {
    let mut hash = sha256_hex(text.as_bytes());
    hash.truncate(16);
    hash
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from(b"0123456789abcdef"[usize::from(four)]);
    sha256(bytes).iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_hash_is_the_head_of_sha256() {
        assert_eq!(request_hash("hello"), "2cf24dba5fb0a30e");
        assert_eq!(request_hash("").len(), 16);
        assert!(sha256_hex(b"").starts_with("e3b0c44298fc1c14") && sha256_hex(b"").len() == 64);
    }
}

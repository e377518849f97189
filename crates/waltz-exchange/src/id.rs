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

/// A new coaching session id, unique and ordered by time: `ses_` and 32 hex digits.
pub fn new_session_id() -> String {
    format!("ses_{}", Uuid::now_v7().simple())
}

/// Whether a name that somebody gave is safe to log, to index, to stand in a path and to send back in a header: 1 to
/// 128 letters, digits or any of `. _ : -`, and not of signs alone.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=128).contains(&text.len())
        && text.bytes().all(plain)
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// The id of the answer of an exchange: it names the exchange and bears a signature.
pub fn response_id(exchange: &str, signature: &str) -> String {
    ["resp_", unique_part(exchange), "_", signature].concat()
}

/// The exchange whose answer has an id that [`response_id`] made. Whether its signature is right is not looked at.
pub fn exchange_of_response(response_id: &str) -> Option<String> {
    let (unique, _) = response_id.strip_prefix("resp_")?.rsplit_once('_')?;
    Some(format!("req_{unique}"))
}

/// What a request id has beside its prefix.
pub fn unique_part(exchange: &str) -> &str {
    exchange.strip_prefix("req_").unwrap_or(exchange)
}

/// The first 16 hex digits of SHA-256 over the text: the key under which past coaching of the very
/// same request is found.
pub fn request_hash(text: &str) -> String {
    hex(&sha256(text.as_bytes())[..8])
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// SHA-256 as lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |four: u8| char::from(b"0123456789abcdef"[usize::from(four)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// HMAC-SHA-256 (RFC 2104) as 64 hex digits.
pub fn hmac_sha256_hex(key: &[u8], message: &[u8]) -> String {
    const BLOCK: usize = 64;
    let mut padded = [0; BLOCK];
    if key.len() > BLOCK {
        padded[..32].copy_from_slice(&sha256(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let with =
        |pad: u8, rest: &[u8]| Sha256::new_with_prefix(padded.map(|byte| byte ^ pad)).chain_update(rest);
    let inner = with(0x36, message).finalize();
    hex(&with(0x5c, &inner).finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_letter_or_a_digit_and_no_other_signs() {
        for good in ["a", "7", "user_interaction", "v1.2:b-3", &"x".repeat(128)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "-", "_:", "a b", "a/b", "a\0", "\u{e9}", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        assert_eq!(
            hmac_sha256_hex(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac_sha256_hex(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn ids_of_requests_and_sessions_are_ordered_by_time() {
        for make in [new_request_id, new_session_id] {
            let ids: Vec<String> = (0..100).map(|_| make()).collect();
            assert!(ids.is_sorted_by(|earlier, later| earlier < later), "{ids:?}");
            assert!(ids.iter().all(|id| id.len() == 36));
        }
    }

    #[test]
    fn the_id_of_an_answer_leads_to_its_exchange() {
        let exchange = new_request_id();
        assert_eq!(exchange_of_response(&response_id(&exchange, "0f1e")), Some(exchange));
        for other in ["", "resp_", "resp_0190", "chatcmpl-1", "resp-req_1"] {
            assert_eq!(exchange_of_response(other), None, "{other}");
        }
    }

    #[test]
    fn request_hash_is_the_head_of_sha256() {
        assert_eq!(request_hash("hello"), "2cf24dba5fb0a30e");
        assert_eq!(request_hash("").len(), 16);
        assert!(sha256_hex(b"").starts_with("e3b0c44298fc1c14") && sha256_hex(b"").len() == 64);
    }
}

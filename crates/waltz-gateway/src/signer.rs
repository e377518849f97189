//! The ids of answers, by which clients report what came of them. An id names the exchange and is signed, so that nobody
//! can report on an answer that was not given to them, and an upstream that gives the same id twice confuses nobody.

use secrecy::{ExposeSecret, SecretString};
use waltz_exchange::id::{self, hmac_sha256_hex, sha256};

use crate::auth::same;

/// Hexadecimal digits of a signature.
const DIGITS: usize = 32;

/// Signs ids with the secret of this installation.
#[derive(Debug)]
pub struct Signer {
    secret: SecretString,
}

impl Signer {
    /// A signer with a secret.
    pub fn new(secret: String) -> Self {
        Self { secret: secret.into() }
    }

    /// The id of the answer of an exchange.
    pub fn response_id(&self, exchange: &str) -> String {
        let secret = self.secret.expose_secret().as_bytes();
        let digest = hmac_sha256_hex(secret, id::unique_part(exchange).as_bytes());
        id::response_id(exchange, digest.get(..DIGITS).unwrap_or_default())
    }

    /// Whether an id was made here.
    pub fn made(&self, response_id: &str) -> bool {
        // Digests are compared, so that the time taken says nothing about how close an id came.
        id::exchange_of_response(response_id).is_some_and(|exchange| {
            same(&sha256(self.response_id(&exchange).as_bytes()), &sha256(response_id.as_bytes()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_signed_with_the_secret_is_known() {
        let signer = Signer::new("a secret".to_owned());
        let id = signer.response_id("req_0190");
        assert!(signer.made(&id), "{id}");
        assert!(!Signer::new("another".to_owned()).made(&id));
        for wrong in [
            "",
            "resp_",
            "resp__",
            "resp_0190",
            "chatcmpl-1",
            &id.replacen("0190", "0191", 1),
            &id[..id.len() - 1],
        ] {
            assert!(!signer.made(wrong), "{wrong}");
        }
        assert_ne!(id, signer.response_id("req_0191"));
    }
}

//! The ids of answers, by which clients report what came of them. An id names the exchange and is signed, so that nobody
//! can report on an answer that was not given to them, and an upstream that gives the same id twice confuses nobody.

use secrecy::{ExposeSecret, SecretString};
use waltz_exchange::id::{hmac_sha256_hex, sha256};

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
        let unique = exchange.strip_prefix("req_").unwrap_or(exchange);
        let digest = hmac_sha256_hex(self.secret.expose_secret().as_bytes(), unique.as_bytes());
        format!("resp_{unique}_{}", digest.get(..DIGITS).unwrap_or_default())
    }

    /// Whether an id was made here.
    pub fn made(&self, response_id: &str) -> bool {
        let signed = response_id.strip_prefix("resp_").and_then(|rest| rest.rsplit_once('_'));
        // Digests are compared, so that the time taken says nothing about how close an id came.
        signed.is_some_and(|(unique, _)| {
            same(&sha256(self.response_id(unique).as_bytes()), &sha256(response_id.as_bytes()))
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

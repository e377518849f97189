//! What the safety benchmark said of trained weights: a small file beside them. `waltz eval --suite benchmark` writes it,
//! and weights without a pass are not released.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::id;

const PASS: &str = "pass";

/// What the benchmark said.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gate {
    /// SHA-256 of the weights that it speaks of.
    pub(crate) sha256: String,
    /// pass, fail or inconclusive.
    pub(crate) verdict: String,
    /// Why.
    pub(crate) reasons: Vec<String>,
    /// When.
    pub(crate) measured_at: Timestamp,
}

impl Gate {
    /// Where it stands.
    pub(crate) fn beside(weights: &Path) -> PathBuf {
        let mut name = weights.as_os_str().to_owned();
        name.push(".gate.json");
        PathBuf::from(name)
    }

    /// Writes it beside the weights.
    pub(crate) fn write(&self, weights: &Path) -> std::io::Result<PathBuf> {
        let path = Self::beside(weights);
        std::fs::write(&path, serde_json::to_string_pretty(self)?)?;
        Ok(path)
    }

    /// Why the weights may not be released; none where they passed.
    pub(crate) fn refuses(weights: &Path) -> Option<String> {
        let shown = weights.display();
        let hint = "`waltz eval --suite benchmark` measures them, and with `waltz.safety_benchmarks = false` people \
                    let every step go on";
        let Ok(text) = std::fs::read(Self::beside(weights)) else {
            return Some(format!("`{shown}` has not been through the safety benchmark; {hint}"));
        };
        let gate: Self = match serde_json::from_slice(&text) {
            Ok(gate) => gate,
            Err(error) => {
                return Some(format!("`{}` cannot be read: {error}", Self::beside(weights).display()));
            }
        };
        let sha256 = std::fs::read(weights).map(|bytes| id::sha256_hex(&bytes)).unwrap_or_default();
        if gate.sha256 != sha256 {
            return Some(format!(
                "the safety benchmark was run on other weights than `{shown}` holds now; {hint}"
            ));
        }
        (gate.verdict != PASS)
            .then(|| format!("the safety benchmark's verdict on `{shown}` is {}", gate.verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pass_of_the_same_weights_lets_them_through() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("a.safetensors");
        let say = |verdict: &str| {
            let sha256 = id::sha256_hex(b"one");
            let gate = Gate {
                sha256,
                verdict: verdict.to_owned(),
                reasons: Vec::new(),
                measured_at: Timestamp::UNIX_EPOCH,
            };
            gate.write(&weights).unwrap();
        };
        std::fs::write(&weights, "one").unwrap();
        assert!(Gate::refuses(&weights).unwrap().contains("has not been through"));
        for verdict in ["fail", "inconclusive"] {
            say(verdict);
            assert!(Gate::refuses(&weights).unwrap().contains(verdict));
        }
        say(PASS);
        assert_eq!(Gate::refuses(&weights), None);
        std::fs::write(&weights, "two").unwrap();
        assert!(Gate::refuses(&weights).unwrap().contains("other weights"));
        std::fs::write(Gate::beside(&weights), "{").unwrap();
        assert!(Gate::refuses(&weights).unwrap().contains("cannot be read"));
    }
}

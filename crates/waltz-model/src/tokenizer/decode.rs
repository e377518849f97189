//! Tokens to text while they come: only whole characters are given out.

/// Gathers the bytes of tokens and gives out valid UTF-8 only. A character may be spread over several tokens;
/// its first bytes wait for the rest.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    waiting: Vec<u8>,
}

impl Decoder {
    /// Takes a token's bytes and returns the text that is now certain, which may be empty. Bytes that can
    /// never become a character are replaced by U+FFFD, as [`String::from_utf8_lossy`] does.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.waiting.extend_from_slice(bytes);
        let mut text = String::new();
        let mut used = 0;
        for chunk in self.waiting.utf8_chunks() {
            text.push_str(chunk.valid());
            used += chunk.valid().len();
            let invalid = chunk.invalid();
            let ends_here = used + invalid.len() == self.waiting.len();
            if invalid.is_empty() || (ends_here && may_continue(invalid)) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            used += invalid.len();
        }
        self.waiting.drain(..used);
        text
    }

    /// Ends the text: what still waits for its rest is replaced by U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.waiting)).into_owned()
    }
}

/// Whether bytes at the end of the input are the beginning of a character.
fn may_continue(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

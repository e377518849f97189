//! Cuts a stream of text into windows that are judged before they are released. Pure: it knows no
//! network and no judge; the gateway's feedback step pushes text in and asks when to judge.
//!
//! A window ends where a sentence ends, so that the judge reads whole thoughts, and is judged together
//! with the end of what was released before, so that nothing hides at a border.

/// How much text is gathered before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// A sentence: the first words reach the client early.
    Sentence,
    /// A paragraph: the judge sees more at a time.
    Paragraph,
}

/// Bytes of released text that are judged again with the next window, at least.
const OVERLAP: usize = 256;
/// No sentence is so long that more of it has to be read again.
const OVERLAP_MOST: usize = 2048;
/// What could be the beginning of a number or a token is held back up to so many bytes.
const PRIVATE_TAIL: usize = 64;

impl Pace {
    /// Letters from which on a sentence end closes the window.
    fn least(self) -> usize {
        match self {
            Self::Sentence => 40,
            Self::Paragraph => 400,
        }
    }

    /// Letters from which on any blank closes the window.
    fn most(self) -> usize {
        match self {
            Self::Sentence => 160,
            Self::Paragraph => 600,
        }
    }
}

/// The window that is being gathered, and what was released before it.
#[derive(Clone, Debug)]
pub struct Window {
    pace: Pace,
    held: String,
    letters: usize,
    /// A sentence of sufficient length has ended in what is held.
    sentence: bool,
    released: String,
}

impl Window {
    /// An empty window.
    pub fn new(pace: Pace) -> Self {
        Self { pace, held: String::new(), letters: 0, sentence: false, released: String::new() }
    }

    /// The present pace.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Gathers more from now on. A pace never loosens again.
    pub fn tighten(&mut self) {
        self.pace = Pace::Paragraph;
    }

    /// Takes the next text. Returns whether the window should be judged now: a sentence has ended in it, or
    /// it is long enough without one. A sentence that has only begun goes along; it was judged too.
    pub fn push(&mut self, text: &str) -> bool {
        let mut before = self.held.chars().next_back();
        for letter in text.chars() {
            self.letters += 1;
            let ended = match before {
                Some('.' | '!' | '?' | '"' | ')') => letter.is_whitespace(),
                Some('\u{3002}' | '\u{ff01}' | '\u{ff1f}') => true,
                _ => letter == '\n',
            };
            self.sentence |= ended && self.letters > self.pace.least();
            before = Some(letter);
        }
        self.held.push_str(text);
        if self.letters < self.pace.least() || ends_in_private_prefix(&self.held) {
            // A tail that never ends is let go at twice the size; the judge still reads it with what follows.
            return self.letters >= 2 * self.pace.most() + PRIVATE_TAIL;
        }
        self.sentence
            || ends_sentence(&self.held)
            || (self.letters >= self.pace.most() && self.held.ends_with(char::is_whitespace))
            || self.letters >= 2 * self.pace.most()
    }

    /// Whether nothing was released yet.
    pub fn is_first(&self) -> bool {
        self.released.is_empty()
    }

    /// What must be judged before the window may go: the end of the released text and the window.
    pub fn judged(&self) -> String {
        let overlap = overlap(&self.released);
        let mut text = String::with_capacity(overlap.len() + self.held.len());
        text.push_str(overlap);
        text.push_str(&self.held);
        text
    }

    /// Everything so far, released or held.
    pub fn whole(&self) -> String {
        format!("{}{}", self.released, self.held)
    }

    /// Everything that was released.
    pub fn released(&self) -> &str {
        &self.released
    }

    /// The window passed.
    pub fn release(&mut self) {
        self.released.push_str(&self.held);
        self.held.clear();
        self.letters = 0;
        self.sentence = false;
    }
}

/// The end of a text: at least 256 bytes and at least its last full sentence.
fn overlap(text: &str) -> &str {
    let mut start = text.len().saturating_sub(OVERLAP);
    let limit = text.len().saturating_sub(OVERLAP_MOST);
    while start > 0 && !text.is_char_boundary(start) {
        start -= 1;
    }
    let sentence = text[..start].rfind(['.', '!', '?', '\n']).map_or(0, |end| end + 1);
    let mut from = sentence.max(limit).min(start);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

fn ends_sentence(text: &str) -> bool {
    let trimmed = text.trim_end_matches(|letter: char| letter.is_whitespace() && letter != '\n');
    let trimmed = trimmed.trim_end_matches(['"', '\'', ')', '\u{201d}', '\u{2019}']);
    trimmed.ends_with(['.', '!', '?', '\n', '\u{3002}', '\u{ff01}', '\u{ff1f}'])
}

/// Whether the text ends in what could be the beginning of a number or a token that must not be split:
/// a run of digits and their separators, or a long word of letters and digits.
fn ends_in_private_prefix(text: &str) -> bool {
    let mut start = text.len().saturating_sub(PRIVATE_TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let tail = &text[start..];
    let run_start = tail
        .char_indices()
        .rev()
        .take_while(|(_, letter)| {
            letter.is_ascii_digit() || matches!(letter, ' ' | '-' | '/' | '(' | ')' | '+')
        })
        .last()
        .map_or(tail.len(), |(position, _)| position);
    let digits = tail[run_start..].chars().filter(char::is_ascii_digit).count();
    if digits >= 4 {
        return true;
    }
    let word = tail.rsplit(char::is_whitespace).next().unwrap_or_default();
    word.len() >= 8
        && word.chars().any(|letter| letter.is_ascii_digit())
        && word.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn windows(pieces: &[&str], pace: Pace) -> Vec<String> {
        let mut window = Window::new(pace);
        let mut released = Vec::new();
        for piece in pieces {
            if window.push(piece) {
                let before = window.released().len();
                window.release();
                released.push(window.released()[before..].to_owned());
            }
        }
        let before = window.released().len();
        window.release();
        released.push(window.released()[before..].to_owned());
        released.retain(|window| !window.is_empty());
        released
    }

    #[test]
    fn a_window_ends_with_a_sentence_of_some_length() {
        let text = "Hi. This is a sentence that is long enough to be one window. And here is the next one, which also is long.";
        let words: Vec<&str> = text.split_inclusive(' ').collect();
        let found = windows(&words, Pace::Sentence);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("Hi.") && found[0].trim_end().ends_with("one window."));
    }

    #[test]
    fn text_without_sentences_is_still_released() {
        let words = vec!["word "; 200];
        assert!(windows(&words, Pace::Sentence).len() >= 6);
        let letters = vec!["x"; 2_000];
        assert!(windows(&letters, Pace::Sentence).len() >= 4);
        let digits = vec!["7"; 2_000];
        assert!(windows(&digits, Pace::Sentence).len() >= 4);
    }

    #[test]
    fn a_number_is_not_cut_in_two() {
        let text = "The sentence before it is long enough to be a window of its own, and the card number is 4111 1111 1111 1111.";
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<&str> = letters.iter().map(String::as_str).collect();
        for window in windows(&pieces, Pace::Sentence) {
            assert!(!window.contains("4111") || window.contains("4111 1111 1111 1111"), "{window}");
        }
    }

    #[test]
    fn the_overlap_holds_the_last_sentence() {
        let long = format!("First. {}", "a".repeat(400));
        assert!(overlap(&long).starts_with(' ') || overlap(&long).starts_with('a'));
        assert!(overlap(&long).len() >= 400);
        assert_eq!(overlap("short"), "short");
        assert!(overlap(&"é".repeat(5_000)).len() <= OVERLAP_MOST);
    }

    proptest! {
        #[test]
        fn any_chunking_releases_the_same_text(
            text in "[a-z0-9 .!?\\né日\"]{0,400}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let borders: Vec<usize> = text.char_indices().map(|(position, _)| position).chain([text.len()]).collect();
            let mut at: Vec<usize> = cuts.iter().map(|cut| borders[cut.index(borders.len())]).collect();
            at.extend([0, text.len()]);
            at.sort_unstable();
            let pieces: Vec<&str> = at.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(windows(&pieces, Pace::Sentence).concat(), text.clone());
            prop_assert_eq!(windows(&pieces, Pace::Paragraph).concat(), text);
        }

        #[test]
        fn what_is_judged_always_ends_with_the_window(released in "\\PC{0,600}", held in "\\PC{0,100}") {
            let mut window = Window::new(Pace::Sentence);
            window.push(&released);
            window.release();
            window.push(&held);
            prop_assert!(window.judged().ends_with(&held));
            prop_assert!(window.judged().len() >= held.len() + released.len().min(OVERLAP));
        }
    }
}

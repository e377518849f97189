//! Cuts a stream of text into windows that are judged before they are released. Pure: it knows no
//! network and no judge; the gateway's feedback step pushes text in and asks when to judge.
//!
//! A window ends where a sentence ends, so that the judge reads whole thoughts, and is judged together
//! with the end of what was released before, so that nothing hides at a border.

use crate::normalise::normalise;
use crate::secret::{MAX_KEY_BYTES, Secret};
use crate::{encoded, overlap, words};

/// How much text is gathered before it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pace {
    /// A sentence: the first words reach the client early.
    Sentence,
    /// A paragraph: the judge sees more at a time.
    Paragraph,
}

/// What to do with a window after a text was added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Gather more.
    Later,
    /// Judge it now.
    Now,
    /// Only who reads all of the text can tell: it ends in what may be a secret and is longer than any that is waited for,
    /// words that may belong together stand farther apart than is kept, or the text hides what it says.
    Never,
}

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
    /// The end of it, which is judged again.
    past: String,
    /// Whether a secret may have begun. It may stand in several windows, so that no release forgets it.
    secret: Secret,
    /// Only who reads all of the text can tell: nothing is looked at any more, however much comes.
    never: bool,
}

impl Window {
    /// An empty window.
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            held: String::new(),
            letters: 0,
            sentence: false,
            released: String::new(),
            past: String::new(),
            secret: Secret::default(),
            never: false,
        }
    }

    /// The present pace.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Gathers more from now on. A pace never loosens again.
    pub fn tighten(&mut self) {
        self.pace = Pace::Paragraph;
    }

    /// Takes the next text. The window should be judged when a sentence has ended in it, or it is long enough without
    /// one. A sentence that has only begun goes along; it was judged too.
    pub fn push(&mut self, text: &str) -> Due {
        if self.never {
            return self.keep(text);
        }
        let due = self.gather(text);
        self.never = due == Due::Never;
        due
    }

    /// Takes the next text of one that is read as a whole.
    pub fn keep(&mut self, text: &str) -> Due {
        self.never = true;
        self.held.push_str(text);
        Due::Never
    }

    fn gather(&mut self, text: &str) -> Due {
        let mut before = self.held.chars().next_back();
        for letter in text.chars() {
            self.letters += 1;
            self.secret.push(letter);
            let ended = match before {
                Some('.' | '!' | '?' | '"' | ')') => letter.is_whitespace(),
                Some('\u{3002}' | '\u{ff01}' | '\u{ff1f}') => true,
                _ => letter == '\n',
            };
            self.sentence |= ended && self.letters > self.pace.least();
            before = Some(letter);
        }
        self.held.push_str(text);
        if self.secret.may_have_begun() {
            // It is known for a secret by its end alone. Only its own length counts: a window can be long because the judge
            // was slower than the model.
            return if self.secret.length() < MAX_KEY_BYTES { Due::Later } else { Due::Never };
        }
        if self.past.len() > overlap::LONGEST {
            return Due::Never;
        }
        match self.is_due() {
            true if self.hides() => Due::Never,
            true => Due::Now,
            false => Due::Later,
        }
    }

    /// Whether what is to be judged reads otherwise than it is written, so that the next words may be as far away as
    /// they like: behind an encoding, look-alike letters, or letters that are spelt out.
    fn hides(&self) -> bool {
        let judged = self.judged();
        let normalised = normalise(&judged);
        normalised.disguised || encoded::hides_prose(&normalised) || words::are_spelt_out(&normalised)
    }

    fn is_due(&self) -> bool {
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
        [self.past.as_str(), &self.held].concat()
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
        self.past = overlap::kept(&self.past, &self.held);
        self.released.push_str(&self.held);
        self.held.clear();
        self.letters = 0;
        self.sentence = false;
    }
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
    let has = |sort: fn(&char) -> bool| word.chars().any(|letter| sort(&letter));
    let mixed = word.len() >= 16 && has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase);
    mixed || word.len() >= 8 && has(char::is_ascii_digit) && word.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests;

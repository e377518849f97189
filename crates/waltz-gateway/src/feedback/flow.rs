//! What of a streamed draft may go to the client, and when. Pure: it is given events and verdicts and says
//! what to do; the feedback step does it.
//!
//! A window is released only after it was judged together with the end of what went before. Suspicion
//! only tightens: sentences become paragraphs, paragraphs the whole draft. What was sent is never taken
//! back: harm after the first release ends the stream.

use serde_json::{Map, Value};
use waltz_coach::judge::THRESHOLD;
use waltz_exchange::Verdict;
use waltz_exchange::openai::answer::{FINISH_REASONS, KNOWN_HEAD, head_words};
use waltz_exchange::sse::Event;
use waltz_screen::{Due, Pace, Window};

/// How a draft is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// As it comes: waltz may not change it.
    Unread,
    /// Window by window.
    Windows(Pace),
    /// Once all of it was read, and coached if need be.
    Whole,
}

impl Release {
    /// The name in headers and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Windows(Pace::Sentence) => "sentence",
            Self::Windows(Pace::Paragraph) => "paragraph",
            Self::Whole => "whole",
        }
    }
}

/// From here on a window makes the rest be read more closely.
const SUSPICION: f32 = 0.45;

/// A draft on its way.
#[derive(Debug)]
pub struct Flow {
    release: Release,
    window: Window,
    held: Vec<Event>,
    left: Vec<Event>,
    plain: bool,
    unread: bool,
    /// The vendor behind the upstream that its events name, in words that are read with every window.
    vendor: Option<String>,
}

/// What to do after an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for more.
    Wait,
    /// Judge what [`Flow::judged`] gives, then call [`Flow::settle`].
    Judge,
    /// Send these.
    Send(Vec<Event>),
}

/// What to do after a verdict.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// Send these.
    Send(Vec<Event>),
    /// Hold the rest of the draft; nothing was sent yet, or the end will tell.
    Hold,
    /// End the stream here.
    Stop,
}

/// Fields of a choice that upstreams send without a value in every event.
const CHOICE: [&str; 7] = [
    "finish_reason",
    "logprobs",
    "stop_reason",
    "native_finish_reason",
    "matched_stop",
    "token_ids",
    "delta",
];
/// The same of a delta.
const DELTA: [&str; 12] = [
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
    "annotations",
    "audio",
    "images",
    "provider_specific_fields",
];

/// Whether a field has no value.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Whether a value is what a filter of the upstream found: yes or no, and how bad, under names of its own.
fn rates(value: &Value) -> bool {
    match value {
        Value::String(severity) => matches!(severity.as_str(), "safe" | "low" | "medium" | "high"),
        Value::Object(found) => {
            found.iter().all(|(name, value)| RATED.contains(&name.as_str()) && rates(value))
        }
        value => value.is_boolean() || value.is_null(),
    }
}

/// The names in what a filter found.
const RATED: [&str; 10] = [
    "hate",
    "self_harm",
    "sexual",
    "violence",
    "jailbreak",
    "protected_material_code",
    "protected_material_text",
    "filtered",
    "detected",
    "severity",
];

/// Whether a text can be the name of a vendor: a few short words.
fn is_vendor(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b" .-()&+".contains(&byte);
    name.len() <= LONGEST_VENDOR && name.split(' ').count() <= MOST_WORDS && name.bytes().all(is_sign)
}

/// No vendor has a longer name.
const LONGEST_VENDOR: usize = 40;
const MOST_WORDS: usize = 4;

/// What an event adds to the answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Text of the first choice.
    pub text: String,
    /// The event is of a form that is known through and through and holds nothing to be read but that
    /// text. Only such events are ever sent on as they came.
    pub plain: bool,
    /// The event belongs to the end of the stream: it has no choices.
    pub is_end: bool,
    /// The event says why a choice ended.
    pub finishes: bool,
    /// The vendor that it names in more than one word.
    pub vendor: Option<String>,
}

impl Part {
    /// Reads a chunk.
    pub fn of(chunk: &Map<String, Value>) -> Self {
        let choices = chunk.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let words = head_words(chunk);
        let vendor = chunk.get("provider").and_then(Value::as_str).filter(|name| is_vendor(name));
        let known_head = chunk.keys().all(|name| name == "choices" || KNOWN_HEAD.contains(&name.as_str()))
            && words.iter().all(|word| Some(*word) == vendor);
        let vendor = vendor.filter(|name| words.contains(name)).map(str::to_owned);
        let finishes =
            choices.iter().any(|choice| choice.get("finish_reason").is_some_and(|reason| !reason.is_null()));
        let is_end = choices.is_empty();
        let mut part = Self { text: String::new(), plain: known_head, is_end, finishes, vendor };
        for choice in choices {
            let Some(choice) = choice.as_object() else {
                part.plain = false;
                continue;
            };
            for (name, value) in choice {
                part.plain &= match (name.as_str(), value) {
                    ("index", value) => value.as_u64() == Some(0),
                    ("finish_reason", Value::String(reason)) => FINISH_REASONS.contains(&reason.as_str()),
                    ("delta", Value::Object(delta)) => part.take(delta),
                    ("content_filter_results", value) => rates(value),
                    (name, value) => CHOICE.contains(&name) && says_nothing(value),
                };
            }
        }
        part
    }

    fn take(&mut self, delta: &Map<String, Value>) -> bool {
        let mut plain = true;
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("content", Value::String(text)) => self.text.push_str(text),
                ("role", Value::String(role)) => plain &= role == "assistant",
                (name, value) => plain &= DELTA.contains(&name) && says_nothing(value),
            }
        }
        plain
    }
}

impl Flow {
    /// A draft of which nothing has come yet.
    pub fn new(release: Release) -> Self {
        let pace = if let Release::Windows(pace) = release { pace } else { Pace::Paragraph };
        Self {
            release,
            window: Window::new(pace),
            held: Vec::new(),
            left: Vec::new(),
            plain: true,
            unread: false,
            vendor: None,
        }
    }

    /// How the draft is being released by now.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Takes the next event.
    pub fn push(&mut self, event: Event, part: &Part) -> Next {
        if self.vendor.is_none() {
            self.vendor.clone_from(&part.vendor);
        }
        // Names that change could spell a text.
        let plain = part.plain && (part.vendor.is_none() || part.vendor == self.vendor);
        self.plain &= plain;
        if part.is_end {
            // Usage and the like go last, after what waltz has to say.
            self.left.push(event);
            return Next::Wait;
        }
        if self.release == Release::Unread {
            // Whoever gathers the answer holds its text; a second copy of it would only cost memory.
            self.unread = true;
            return Next::Send(vec![event]);
        }
        self.held.push(event);
        let due = match self.release {
            Release::Windows(_) => self.window.push(&part.text),
            // Nothing goes before all of it was read, so that nothing is looked at until then.
            _ => self.window.keep(&part.text),
        };
        match self.release {
            Release::Windows(_) if !plain || due == Due::Never => {
                self.release = Release::Whole;
                Next::Wait
            }
            // The last window waits for the look back over the whole, and its end for the last verdict.
            Release::Windows(_) if due == Due::Now && !part.finishes => Next::Judge,
            _ => Next::Wait,
        }
    }

    /// What must be judged now: the window, and what its events say beside it.
    pub fn judged(&self) -> String {
        let mut judged = self.window.judged();
        if let Some(vendor) = &self.vendor {
            judged.push('\n');
            judged.push_str(vendor);
        }
        judged
    }

    /// Everything the draft said so far; nothing of an unread one.
    pub fn text(&self) -> String {
        self.window.whole()
    }

    /// What went to the client; nothing of an unread draft, all of which goes.
    pub fn sent(&self) -> &str {
        self.window.released()
    }

    /// Whether nothing went to the client yet.
    pub fn nothing_sent(&self) -> bool {
        self.window.is_first() && !self.unread
    }

    /// Whether every event so far was of a form that may be sent on as it came.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether the window before the first release is to be judged.
    pub fn is_first_paragraph(&self) -> bool {
        self.release == Release::Windows(Pace::Paragraph) && self.nothing_sent()
    }

    /// Reads the rest as a whole.
    pub fn hold_all(&mut self) {
        self.release = Release::Whole;
    }

    /// The verdict on what was to be judged.
    pub fn settle(&mut self, verdict: &Verdict) -> Settled {
        if verdict.is_unsafe {
            if self.nothing_sent() {
                self.release = Release::Whole;
                return Settled::Hold;
            }
            self.held.clear();
            self.left.clear();
            return Settled::Stop;
        }
        // A refusal can only be mended while nothing of it was sent.
        if self.nothing_sent() && verdict.refusal >= THRESHOLD {
            self.release = Release::Whole;
            return Settled::Hold;
        }
        let suspicious = verdict.response_harm >= SUSPICION;
        let events = std::mem::take(&mut self.held);
        self.window.release();
        if suspicious {
            self.tighten();
        }
        Settled::Send(events)
    }

    /// The events that are left for the end of the stream. Usage goes only to who asked for it: some
    /// upstreams send it always.
    pub fn finish(&mut self, usage: bool) -> Vec<Event> {
        let mut left = std::mem::take(&mut self.held);
        if usage || self.release == Release::Unread {
            left.append(&mut self.left);
        }
        left
    }

    fn tighten(&mut self) {
        self.window.tighten();
        self.release = match self.release {
            Release::Windows(Pace::Sentence) => Release::Windows(Pace::Paragraph),
            _ => Release::Whole,
        };
    }
}

#[cfg(test)]
#[path = "flow/tests.rs"]
mod tests;

//! What the choice among variants may look at in a request: what the client says of it in `metadata`, and guesses
//! where it says nothing. It holds no text.

use waltz_exchange::openai::ChatRequest;
use waltz_exchange::variant::{Complexity, RequestContext};

/// Requests up to this many characters are little work, if they bring no tools.
const SHORT: usize = 200;
/// Requests from this many characters on are much work.
const LONG: usize = 4_000;
/// The language is guessed by so many characters.
const LOOKED_AT: usize = 2_000;

/// Letters that one language is mostly written with. Japanese stands before Chinese, whose letters it uses too.
const SCRIPTS: [(&str, char, char); 9] = [
    ("el", '\u{370}', '\u{3ff}'),
    ("ru", '\u{400}', '\u{4ff}'),
    ("he", '\u{590}', '\u{5ff}'),
    ("ar", '\u{600}', '\u{6ff}'),
    ("hi", '\u{900}', '\u{97f}'),
    ("th", '\u{e00}', '\u{e7f}'),
    ("ja", '\u{3040}', '\u{30ff}'),
    ("ko", '\u{ac00}', '\u{d7af}'),
    ("zh", '\u{4e00}', '\u{9fff}'),
];

/// Short words that a language cannot do without, and others hardly have.
const WORDS: [(&str, &[&str]); 7] = [
    ("en", &["the", "and", "of", "to", "is", "what", "how", "with", "you", "me"]),
    ("de", &["der", "die", "das", "und", "ist", "nicht", "ein", "eine", "wie", "mit", "ich"]),
    ("fr", &["le", "les", "des", "est", "et", "une", "dans", "pour", "que", "je", "vous"]),
    ("es", &["el", "los", "las", "es", "y", "una", "para", "como", "qué", "por", "del"]),
    ("it", &["il", "gli", "che", "di", "è", "una", "per", "con", "sono", "come", "della"]),
    ("pt", &["o", "os", "um", "uma", "não", "é", "para", "com", "como", "do", "da"]),
    ("nl", &["het", "een", "niet", "van", "en", "ik", "wat", "hoe", "met", "voor", "dat"]),
];

/// The context of a request.
pub fn of(request: &ChatRequest) -> RequestContext {
    let text = request.user_request();
    let length = text.chars().count();
    let has_tools = !request.tools().is_empty();
    RequestContext {
        complexity: said_complexity(request).unwrap_or(match length {
            _ if has_tools || length >= LONG => Complexity::High,
            _ if length <= SHORT => Complexity::Low,
            _ => Complexity::Medium,
        }),
        // Whoever wants a stream is there and waits.
        urgency: said_urgency(request).unwrap_or(if request.stream() { 0.5 } else { 0.0 }),
        language: language(&text).to_owned(),
        length: length as u64,
    }
}

fn said_complexity(request: &ChatRequest) -> Option<Complexity> {
    match request.metadata("complexity")? {
        "low" => Some(Complexity::Low),
        "medium" => Some(Complexity::Medium),
        "high" => Some(Complexity::High),
        _ => None,
    }
}

fn said_urgency(request: &ChatRequest) -> Option<f64> {
    match request.metadata("urgency")? {
        "low" => Some(0.0),
        "medium" => Some(0.5),
        "high" => Some(1.0),
        number => number.parse().ok().filter(|urgency| (0.0..=1.0).contains(urgency)),
    }
}

/// The language of a text, by its script or its commonest words; empty where that says nothing.
fn language(text: &str) -> &'static str {
    let head: String = text.chars().take(LOOKED_AT).flat_map(char::to_lowercase).collect();
    let letters = head.chars().filter(|letter| letter.is_alphabetic()).count();
    if !head.is_ascii() {
        for (code, first, last) in SCRIPTS {
            let own = head.chars().filter(|letter| (first..=last).contains(letter)).count();
            if own > 0 && own * 3 >= letters {
                return code;
            }
        }
    }
    let mut hits = [0_usize; WORDS.len()];
    for word in head.split(|letter: char| !letter.is_alphabetic()).filter(|word| !word.is_empty()) {
        for (hits, (_, known)) in hits.iter_mut().zip(WORDS) {
            *hits += usize::from(known.contains(&word));
        }
    }
    // Of two that are as likely, the one that stands first.
    let most = hits.iter().zip(WORDS).rev().max_by_key(|(hits, _)| **hits).filter(|(hits, _)| **hits > 0);
    most.map_or("", |(_, (code, _))| code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn context(request: Value) -> RequestContext {
        of(&ChatRequest::parse(request.to_string().as_bytes()).unwrap())
    }

    fn asked(text: &str) -> Value {
        json!({"model": "m", "messages": [{"role": "user", "content": text}]})
    }

    #[test]
    fn what_the_client_says_counts_and_the_rest_is_guessed() {
        let short = context(asked("What is the tide at the harbour?"));
        assert_eq!((short.complexity, short.urgency, short.language.as_str()), (Complexity::Low, 0.0, "en"));
        assert_eq!(context(asked(&"word ".repeat(100))).complexity, Complexity::Medium);
        assert_eq!(context(asked(&"word ".repeat(1_000))).complexity, Complexity::High);
        let mut said = asked("hello");
        said["stream"] = json!(true);
        assert_eq!(context(said.clone()).urgency, 0.5);
        said["metadata"] = json!({"complexity": "high", "urgency": "0.9"});
        let told = context(said.clone());
        assert_eq!((told.complexity, told.urgency), (Complexity::High, 0.9));
        for urgency in ["NaN", "-1", "7", "soon"] {
            said["metadata"] = json!({"urgency": urgency});
            assert_eq!(context(said.clone()).urgency, 0.5, "{urgency}");
        }
        let mut tools = asked("hello");
        tools["tools"] = json!([{"type": "function", "function": {"name": "search"}}]);
        assert_eq!(context(tools).complexity, Complexity::High);
    }

    #[test]
    fn languages_are_known_by_script_or_by_common_words() {
        for (text, code) in [
            ("Wie hoch ist die Flut und was kostet eine Karte?", "de"),
            ("Quelle est la hauteur de la marée dans le port ?", "fr"),
            ("¿Qué hora es y como llego a las playas?", "es"),
            ("Какая погода в порту?", "ru"),
            ("港はいつ作られましたか", "ja"),
            ("港口是什么时候建成的", "zh"),
            ("42 + 17", ""),
            ("", ""),
        ] {
            assert_eq!(language(text), code, "{text}");
        }
    }
}

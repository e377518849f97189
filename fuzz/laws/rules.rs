//! Laws of the rules file that an operator writes, and of reading any text with it.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use waltz_screen::{Error, Kind, Rules, Screen, Side, find_pii, mask};

/// What stands between the rules and the text that is read with them.
const BORDER: &str = "\n====\n";

static BUILTIN: LazyLock<Result<Screen, Error>> = LazyLock::new(Screen::builtin);

/// Screens of rules that came before: compiling one takes longer than reading a hundred texts.
static COMPILED: Mutex<BTreeMap<String, Result<Screen, Error>>> = Mutex::new(BTreeMap::new());

/// Rules and a text, with a border between them; without one, everything is both.
pub fn law(data: &[u8]) {
    let input = String::from_utf8_lossy(data);
    let (rules, text) = input.split_once(BORDER).unwrap_or((&input, &input));
    masking(text);
    if let Ok(screen) = &*BUILTIN {
        reading(screen, text, 0);
    }
    match Rules::parse(rules) {
        Ok(sound) => {
            assert!(!sound.is_empty());
            let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
            if compiled.len() >= 16 && !compiled.contains_key(rules) {
                compiled.clear();
            }
            match compiled.entry(rules.to_owned()).or_insert_with(|| Screen::with_rules(&sound)) {
                Ok(screen) => reading(screen, text, sound.len()),
                Err(error) => unreachable!("sound rules compile: {error}"),
            }
        }
        Err(Error::Mistakes(mistakes)) => {
            assert!((1..=51).contains(&mistakes.len()), "{}", mistakes.len());
            assert!(mistakes.iter().all(|mistake| !mistake.place.is_empty() && !mistake.problem.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn reading(screen: &Screen, text: &str, rules: usize) {
    let families = screen.families();
    let own = &families[families.len() - rules..];
    for side in [Side::Prompt, Side::Response] {
        let reading = screen.read(text, side);
        assert!((0.0..=1.0).contains(&reading.refusal), "{}", reading.refusal);
        assert!(reading.findings.is_sorted_by(|left, right| left.severity >= right.severity));
        for finding in &reading.findings {
            let span = finding.span;
            assert!(span.start < span.end && text.get(span.start..span.end).is_some(), "{finding:?}");
            assert!((0.0..=1.0).contains(&finding.severity), "{finding:?}");
            assert!(!finding.description.is_empty(), "{finding:?}");
            let ruled = own.iter().any(|family| family.id == finding.family);
            assert_eq!(ruled, finding.kind == Kind::Rule, "{finding:?}");
        }
        assert_eq!(screen.read(text, side), reading, "reading is a function of the text");
    }
}

/// What is found is gone from the masked text, and the rest of it stays.
fn masking(text: &str) {
    let masked = mask(text);
    assert_eq!(find_pii(text), masked.found);
    let mut rest = &*masked.text;
    let mut position = 0;
    for finding in &masked.found {
        assert!(finding.span.start >= position && finding.span.start < finding.span.end, "{finding:?}");
        let kept = text.get(position..finding.span.start);
        let after = kept.and_then(|kept| rest.strip_prefix(kept));
        let after = after.and_then(|rest| rest.strip_prefix(finding.kind.placeholder()));
        assert!(after.is_some(), "{finding:?} stands where it was found");
        rest = after.unwrap_or_default();
        position = finding.span.end;
    }
    assert_eq!(text.get(position..), Some(rest), "the rest of the text stays");
}
